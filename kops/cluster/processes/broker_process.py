"""The supervisor's view of a broker: a child process, its state, and the callbacks that wait for it."""

from __future__ import annotations

import contextlib
import os
import signal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kops.cluster.processes.processes import identify
from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Timer
    from kops.cluster.layout.directory import ClusterDirectory

_LINES: Final = 10
_FATAL: Final = "] FATAL "
_LOGGER: Final = " (kops.broker.life.process)"


class State(Enum):
    """The state of a broker's process. ENDED means that it ended by itself, STOPPED that it was stopped or never started."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    ENDED = "ended"


ALIVE: Final = frozenset((State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING))


def exit_words(code: int) -> str:
    """Describe an exit code, as Python reports it, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class BrokerProcess:
    """A broker of the directory, running or not. Only the supervisor that forked it may use this, because only a parent can wait for its
    child.
    """

    def __init__(self, directory: ClusterDirectory, node_id: int) -> None:
        self.node_id = node_id
        self.state = State.STOPPED
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.deadline: Timer | None = None
        self._directory = directory
        self._output_start = 0
        self._before_pause = State.RUNNING
        self._is_in_haste = False
        self._when_started: list[Callable[[KopsError | None], object]] = []
        self._when_ended: list[Callable[[KopsError | None], object]] = []

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.state in ALIVE

    @property
    def status_path(self) -> str:
        """The file in which it reports its status."""
        return self._directory.status_path(self.node_id)

    def document(self) -> dict[str, Any]:
        """The broker as JSON for an answer."""
        return {"id": self.node_id, "state": self.state.value, "pid": self.pid, "exit_code": self.exit_code}

    @property
    def how_it_ended(self) -> str:
        """The exit code in words."""
        return exit_words(self.exit_code or 0)

    # start ------------------------------------------------------------------------------------------------------------------------

    def prepare(self) -> int:
        """Open its output before the fork, and remove the files of its last run. Returns the descriptor."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.status_path)
        output = os.open(self._directory.output_path(self.node_id), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._output_start = os.fstat(output).st_size
        return output

    def started(self, pid: int, token: str) -> None:
        """Record that it was forked."""
        self.state = State.STARTING
        self._is_in_haste = False
        self.pid = pid
        self.exit_code = None
        identity = identify(pid, token)
        if identity is not None:
            self._directory.write_state(self._directory.process_path(self.node_id), identity.document())

    def look_whether_started(self) -> bool:
        """Read its reported status, and return whether it is still starting."""
        if self.state is not State.STARTING:
            return False
        if self._directory.read_state(self.status_path).get("state") != "RUNNING":
            return True
        self.state = State.RUNNING
        self._tell_started(None)
        return False

    def when_started(self, told: Callable[[KopsError | None], object]) -> None:
        """Register a callback. It is called with None when the broker runs, or with an error when it ends instead."""
        if self.state in (State.RUNNING, State.PAUSED):
            told(None)
        else:
            self._when_started.append(told)

    def _tell_started(self, error: KopsError | None) -> None:
        waiting, self._when_started = self._when_started, []
        for told in waiting:
            told(error)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def terminate(self) -> bool:
        """Request a clean stop, even of a paused broker. Returns whether this is the first request."""
        if self.state is State.STOPPING:
            return False
        if self.state is State.PAUSED:
            self.resume()
        self.state = State.STOPPING
        self._signal(signal.SIGTERM)
        return True

    def hurry(self) -> None:
        """Tell a shutdown in progress not to wait for other nodes. A second call does nothing."""
        if self.state is State.STOPPING and not self._is_in_haste:
            self._is_in_haste = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self.state = State.STOPPING
        self._signal(signal.SIGKILL)

    def when_ended(self, told: Callable[[KopsError | None], object]) -> None:
        """Register a callback for the end of its process."""
        self._when_ended.append(told)

    def reap(self) -> bool:
        """Check whether it has ended, and if so, call the waiting callbacks."""
        assert self.pid is not None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.exit_code = os.waitstatus_to_exitcode(status)
        was = self.state
        self.state = State.STOPPED if was is State.STOPPING else State.ENDED
        path = self._directory.process_path(self.node_id)
        if self._directory.read_state(path).get("pid") == self.pid:
            os.unlink(path)
        self.pid = None
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        if was is not State.RUNNING:
            self._tell_started(KopsError(self._what_it_said()))
        self.tell_ended(None)
        return True

    def tell_ended(self, error: KopsError | None) -> None:
        """Call the callbacks that wait for its end."""
        waiting, self._when_ended = self._when_ended, []
        for told in waiting:
            told(error)

    def _what_it_said(self) -> str:
        """Describe in one line why it did not start: how it ended, and the reason that it logged, or else its last lines."""
        path = self._directory.output_path(self.node_id)
        with open(path, "rb") as file:
            file.seek(self._output_start)
            lines = file.read().decode("utf-8", "replace").splitlines()[-_LINES:]
        ended = f"broker {self.node_id} ended while it started: {self.how_it_ended}"
        reason = next((line.partition(_FATAL)[2] for line in reversed(lines) if _FATAL in line), None)
        if reason is not None:
            return f"{ended}: {reason.removesuffix(_LOGGER)}"
        return f"{ended}; its last lines ({path}): {' | '.join(lines)}" if lines else f"{ended}, without output ({path})"

    # pause ------------------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause it (SIGSTOP). Raises KopsError unless it runs."""
        if self.state not in (State.RUNNING, State.STARTING):
            raise KopsError(f"broker {self.node_id} is {self.state.value}: only a running one can be paused")
        self._before_pause = self.state
        self.state = State.PAUSED
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it (SIGCONT). Raises KopsError unless it is paused."""
        if self.state is not State.PAUSED:
            raise KopsError(f"broker {self.node_id} is {self.state.value}, not paused")
        self.state = self._before_pause
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # It is a child that was not waited for, so no other process can have its id.
        assert self.pid is not None
        os.kill(self.pid, number)
