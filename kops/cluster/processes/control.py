"""The connection to a supervisor: lines of JSON over a Unix socket.

A request is one line, `{"do": name, …}`. Its answer is another line, `{"ok": …}` or
`{"error": sentence, "kind": "usage" | "not-found" | "failed"}`. An attached caller also receives events as lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from kops.errors import KopsError, NotFoundError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from kops.broker.network.events.loop import Loop

_READ_SIZE: Final = 64 * 1024
_MAX_LINE_SIZE: Final = 1024 * 1024
_KINDS: Final = {"usage": UsageError, "not-found": NotFoundError, "failed": KopsError}


class Caller:
    """The server's end of one connection. Answers are small, so they are written at once."""

    def __init__(self, loop: Loop, sock: socket.socket, on_request: Callable[[Caller, dict[str, Any]], object]) -> None:
        self.on_gone: Callable[[], object] = lambda: None
        self._sock = sock
        self._on_request = on_request
        self._received = b""
        self._is_open = True
        sock.setblocking(False)
        self._watch = loop.watch(sock, self._on_readable, lambda: None)
        self._watch.want(reading=True)

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        if not data or len(self._received) > _MAX_LINE_SIZE:
            self.close()
            return
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._on_line(line)

    def _on_line(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        if isinstance(request, dict):
            self._on_request(self, request)
        else:
            self.fail(UsageError("a request is a JSON object"))

    def answer(self, **values: object) -> None:
        """Send an answer or an event. A caller that does not read, or is gone, misses it."""
        if self._is_open:
            with contextlib.suppress(OSError):
                self._sock.sendall(json.dumps(values).encode() + b"\n")

    def fail(self, error: KopsError) -> None:
        """Answer with an error."""
        kind = "usage" if isinstance(error, UsageError) else "not-found" if isinstance(error, NotFoundError) else "failed"
        self.answer(error=str(error), kind=kind)

    def close(self) -> None:
        """Close the connection."""
        if self._is_open:
            self._is_open = False
            self._watch.close()
            self._sock.close()
            self.on_gone()

    def abandon(self) -> None:
        """Close the descriptor in a forked child, without touching anything that the parent shares."""
        self._sock.close()


class ControlServer:
    """Listens at `path`, for this user only. `on_request(caller, request)` is called for each line."""

    def __init__(self, loop: Loop, path: str, on_request: Callable[[Caller, dict[str, Any]], object]) -> None:
        self.path = path
        self._loop = loop
        self._on_request = on_request
        self._callers: list[Caller] = []
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._sock.bind(path)
        os.chmod(path, 0o600)
        self._sock.listen()
        self._watch = loop.watch(self._sock, self._on_readable, lambda: None)
        self._watch.want(reading=True)

    def _on_readable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return  # the caller has already gone
        caller = Caller(self._loop, sock, self._on_request)
        self._callers.append(caller)
        caller.on_gone = lambda: self._callers.remove(caller)

    def close(self, *, remove: bool = True) -> None:
        """Stop listening, close all connections, and remove the socket's file unless it belongs to another server by now."""
        self._watch.close()
        self._sock.close()
        for caller in list(self._callers):
            caller.close()
        if remove:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

    def abandon(self) -> None:
        """Close the descriptors in a forked child. The file stays."""
        self._sock.close()
        for caller in self._callers:
            caller.abandon()


class ControlClient:
    """The command's end of a connection. Raises KopsError if the supervisor does not answer."""

    def __init__(self, path: str, *, timeout_s: float) -> None:
        self._received = b""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout_s)
        try:
            self._sock.connect(path)
        except OSError as error:
            self._sock.close()
            raise KopsError(f"the supervisor does not answer at {path}: {error.strerror or error}") from error

    def ask(self, do: str, *, timeout_s: float, **values: object) -> dict[str, Any]:
        """Send a request and wait for its answer. An error in the answer is raised. Raises UnreachableError if no answer comes."""
        self._sock.settimeout(timeout_s)
        try:
            self._sock.sendall(json.dumps({"do": do, **values}).encode() + b"\n")
            answer = self.next_line(timeout_s)
        except TimeoutError:
            raise UnreachableError(f"the supervisor did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise KopsError(f"the supervisor has exited: {error.strerror or error}") from error
        if answer is None:
            raise KopsError("the supervisor has exited")
        raise_error(answer)
        return answer

    def next_line(self, timeout_s: float | None) -> dict[str, Any] | None:
        """Return the next answer or event, or None after the supervisor has closed the connection. Raises TimeoutError, OSError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._received:
            self._sock.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            data = self._sock.recv(_READ_SIZE)
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        document = json.loads(line)
        return document if isinstance(document, dict) else {}

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield events until the supervisor closes the connection."""
        while (line := self.next_line(None)) is not None:
            yield line

    def forget_events(self) -> None:
        """Discard the events received so far."""
        self._received = b""
        self._sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self._sock.recv(_READ_SIZE):
                pass

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def raise_error(answer: Mapping[str, Any]) -> None:
    """Raise the error in an answer, if there is one."""
    if "error" in answer:
        raise _KINDS.get(str(answer.get("kind")), KopsError)(str(answer["error"]))
