"""Which processes are kops's own: by id, start time and a token in the command line, so that no other one is ever signalled.

An id alone says nothing: the system uses it again when its process is gone. The start time distinguishes two processes with one id. The
token, which a forked broker inherits in its command line, says which cluster it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROC: Final = "/proc"
_HAS_PROC: Final = os.path.exists("/proc/self/stat")
_POLL_S: Final = 0.02
MARK: Final = "--kops-supervisor"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. `started` is its start time as the system reports it, only to be compared; `token` is in its command line."""

    pid: int
    started: str
    token: str

    def document(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {"pid": self.pid, "started": self.started, "token": self.token}

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs (one that has ended and was not waited for does not)."""
        line = command_line(self.pid)
        # One that is about to end has no command line any more, but may have ports and locks.
        return (not line or self.token in line) and start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal, if it is still this process; whether it was sent."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is gone; whether it is."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def identity_of(document: Mapping[str, Any]) -> ProcessIdentity | None:
    """What `document()` gave, read again; None if it is something else."""
    pid, started, token = document.get("pid"), document.get("started"), document.get("token")
    if isinstance(pid, int) and isinstance(started, str) and isinstance(token, str) and token:
        return ProcessIdentity(pid, started, token)
    return None


def identify(pid: int, token: str) -> ProcessIdentity | None:
    """The process that has this id now, None if there is none."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(pid, started, token)


def start_time(pid: int) -> str | None:
    """When a process started, as text that is only good for comparing; None if none runs under this id."""
    if not _HAS_PROC:
        return _ask_ps(pid, "lstart") if "Z" not in _ask_ps(pid, "stat") else None
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            # The name in brackets may hold anything; the state follows and, as the 20th field, the start in clock ticks.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def command_line(pid: int) -> str:
    """Its arguments, with spaces between; empty where none runs."""
    if not _HAS_PROC:
        return _ask_ps(pid, "command")
    try:
        with open(f"{_PROC}/{pid}/cmdline", "rb") as file:
            return os.fsdecode(file.read().rstrip(b"\0").replace(b"\0", b" "))
    except OSError:
        return ""


def _ask_ps(pid: int, field: str) -> str:
    done = subprocess.run(["ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def supervised() -> Iterator[tuple[int, str]]:
    """Id and command line of each process of this user that is a supervisor of kops's or one of its brokers."""
    if _HAS_PROC:
        for name in os.listdir(_PROC):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(f"{_PROC}/{name}").st_uid == os.getuid() and MARK in (line := command_line(int(name))):
                        yield int(name), line
        return
    done = subprocess.run(["ps", "-x", "-o", "pid=,command="], capture_output=True, text=True, check=False)
    for text in done.stdout.splitlines():
        pid, _, line = text.strip().partition(" ")
        if MARK in line and pid.isdigit():
            yield int(pid), line.strip()
