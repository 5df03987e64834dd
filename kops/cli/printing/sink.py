"""The destination of a command's data: stdout, or a file that gets its name only when it is complete.

A sink takes bytes. There are three kinds of failures: the reader of stdout has ended (`OutputClosed`, not an error), the disk is full or
the stream is broken (`OutputError`, exit code 8), the command failed (the incomplete file is removed).
"""

from __future__ import annotations

import os
import sys

from kops.errors import KopsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO


PIECE_SIZE = 64 * 1024


class OutputClosed(Exception):
    """The reader of stdout has ended, as `head` does when it has read enough."""


class OutputError(KopsError):
    """The output can't be written: disk full, stream closed, no permission."""


def discard_stdout() -> None:
    """Redirect stdout to nothing, so that the interpreter's last flush does not fail."""
    if sys.stdout is None:
        return
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def _failure(name: str, error: OSError) -> OutputError:
    return OutputError(f"cannot write to {name}: {error.strerror or error}")


class StdoutSink:
    """Standard output. `commit` and `keep` flush it; nothing can be undone.

    Ctrl-C may come while a slow reader (`| less`) blocks a write. An interrupted write does not know how far it came; an interrupted flush
    does. So data goes into a buffer, in pieces that fit, and is flushed from there. The rest waits for the next write.
    """

    name = "standard output"

    def __init__(self) -> None:
        if sys.stdout is None:
            raise OutputError("cannot write to standard output: it is closed")
        self._stream = _stdout_stream()
        self._left: list[memoryview] = []
        self.is_terminal = sys.stdout.isatty()

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None if there is none, or if it does not tell."""
        if not self.is_terminal:
            return None
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or None
        except (OSError, ValueError):
            return None

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it."""
        self._left.append(memoryview(data))
        self._put(flush=self.is_terminal)

    def flush(self) -> None:
        """Flush the buffer."""
        self._put(flush=True)

    def _put(self, *, flush: bool) -> None:
        try:
            while self._left:
                self._stream.flush()
                self._stream.write(self._left[0][:PIECE_SIZE])
                rest = self._left[0][PIECE_SIZE:]
                self._left[:1] = [rest] if rest else []
            if flush:
                self._stream.flush()
        except BrokenPipeError:
            self._left.clear()
            raise OutputClosed from None
        except OSError as error:
            self._left.clear()
            discard_stdout()
            raise _failure(self.name, error) from error

    def check_reader(self) -> None:
        """Raise OutputClosed if the reader has ended; a command that has nothing to write would not notice."""
        import select

        try:
            number = self._stream.fileno()
        except (OSError, ValueError):
            return
        poll = select.poll()
        poll.register(number, 0)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            raise OutputClosed

    def commit(self) -> None:
        """The output is complete."""
        self.flush()

    def keep(self) -> None:
        """The output was interrupted; keep it."""
        self.flush()

    def abandon(self) -> None:
        """The command failed: flush what was written."""
        self.flush()


def _stdout_stream() -> BinaryIO:
    """Standard output with a buffer of PIECE_SIZE, or its replacement if that is not a file."""
    assert sys.stdout is not None
    try:
        sys.stdout.flush()
        return open(sys.stdout.fileno(), "wb", buffering=PIECE_SIZE, closefd=False)
    except (OSError, ValueError):
        return sys.stdout.buffer


class FileSink:
    """A file written under a temporary name and renamed at the end. Devices and pipes (`/dev/null`, a fifo) are written directly."""

    is_terminal = False
    columns: int | None = None

    def __init__(self, path: str) -> None:
        self.name = path
        self._target = os.path.realpath(path)
        self._temporary: str | None = None
        direct = os.path.exists(self._target) and not os.path.isfile(self._target)
        if not direct:
            folder, base = os.path.split(self._target)
            self._temporary = os.path.join(folder, f".{base}.{os.getpid()}.part")
        try:
            self._stream: BinaryIO = open(self._temporary or self._target, "wb")  # noqa: SIM115 - closed by commit, keep or abandon
            if self._temporary and os.path.exists(self._target):
                os.fchmod(self._stream.fileno(), os.stat(self._target).st_mode & 0o7777)
        except OSError as error:
            raise _failure(path, error) from error

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it."""
        try:
            self._stream.write(data)
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise _failure(self.name, error) from error

    def flush(self) -> None:
        """Flush the buffer."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise _failure(self.name, error) from error

    def check_reader(self) -> None:
        """Nothing to check: a file has no reader."""

    def commit(self) -> None:
        """The output is complete: give the file its name."""
        if self._stream.closed:
            return
        try:
            self._stream.flush()
            if self._temporary:
                os.fsync(self._stream.fileno())
            self._stream.close()
            if self._temporary:
                os.replace(self._temporary, self._target)
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            self.abandon()
            raise _failure(self.name, error) from error

    def keep(self) -> None:
        """The output was interrupted (Ctrl-C): keep what there is under the file's name."""
        self.commit()

    def abandon(self) -> None:
        """The command failed: remove the incomplete file. An older file of that name stays as it was."""
        if self._temporary and os.path.exists(self._temporary):
            os.unlink(self._temporary)
        try:
            self._stream.close()
        except OSError:
            return
