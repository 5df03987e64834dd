"""The processes that belong to kops, recognised by id, start time and a token in the command line, so that no other one is ever signalled.

An id alone is not enough, because the system reuses it after its process has ended. The start time distinguishes two processes with one id.
The token identifies the cluster. A forked broker inherits it in its command line.
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
    """One process. `started` is its start time as the system reports it, which serves only for comparison. `token` is in its command
    line.
    """

    pid: int
    started: str
    token: str

    def document(self) -> dict[str, Any]:
        """The identity as a JSON object."""
        return {"pid": self.pid, "started": self.started, "token": self.token}

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process is still running. A zombie does not count."""
        line = command_line(self.pid)
        # A process that is about to end no longer has a command line, but it may still hold ports and locks.
        return (not line or self.token in line) and start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal if it is still this process. Returns whether it was sent."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process is gone, and return whether it is."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def identity_of(document: Mapping[str, Any]) -> ProcessIdentity | None:
    """Return the identity for a result of `document()`, or None for anything else."""
    pid, started, token = document.get("pid"), document.get("started"), document.get("token")
    if isinstance(pid, int) and isinstance(started, str) and isinstance(token, str) and token:
        return ProcessIdentity(pid, started, token)
    return None


def identify(pid: int, token: str) -> ProcessIdentity | None:
    """Return the process that has this id now, or None."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(pid, started, token)


def start_time(pid: int) -> str | None:
    """Return the start time of a process as text, which serves only for comparison, or None if there is no such process."""
    if not _HAS_PROC:
        return _ask_ps(pid, "lstart") if "Z" not in _ask_ps(pid, "stat") else None
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            # The name in brackets may contain anything. The state follows it, and the start in clock ticks is the 20th field after it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def command_line(pid: int) -> str:
    """Return the arguments of a process separated by spaces, or "" if there is no such process."""
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
    """Yield id and command line of each of this user's processes that is a supervisor of kops or one of its brokers."""
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
