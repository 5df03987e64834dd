"""The supervisor: one process for each cluster, which forks the brokers and knows their state.

It imports everything that a broker needs, so a forked broker starts in milliseconds and shares that memory. It has one loop and no threads,
so forking is safe. A broker that ends by itself stays down, because the user who killed it wants to see what happens. The supervisor holds
a lock on `.kops/supervisor.lock`. If it is killed, its brokers continue, and the next command finds them through the files in `.kops`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kops.broker.network.events.loop import Loop
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.processes.broker_process import BrokerProcess, State
from kops.cluster.processes.control import Caller, ControlServer
from kops.cluster.processes.processes import identify
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POLL_MS: Final = 20
LOOK_MS: Final = 2_000
STOP_TIMEOUT_MS: Final = 30_000
# Host names and messages: modules that a broker would import in its first seconds.
_IMPORTED_LATER: Final = (
    "encodings.idna",
    "kops.protocol.read_compiler",
    "kops.protocol.write_compiler",
    "kops.protocol.messages.produce_request",
)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
RunBroker = Callable[[dict[str, str], str], int]
"""The function that a forked child runs: `(properties, status_path)` → exit code."""


class Supervisor:
    """Supervises the brokers of one directory. Raises KopsError if another supervisor has it. `starter` is the process that will request
    the start.
    """

    def __init__(self, directory: ClusterDirectory, token: str, run_broker: RunBroker, *, ephemeral: bool = False, starter: int) -> None:
        self.directory = directory
        self.token = token
        self.loop = Loop()
        self.brokers: dict[int, BrokerProcess] = {}
        self._run_broker = run_broker
        self._ephemeral = ephemeral
        self._lock = take_lock(directory)
        self._socket_dir: str | None = None
        self._control: ControlServer | None = None
        self._attached: list[Caller] = []
        self._is_polling = False
        self._is_shutting_down = False
        self._starter = starter
        self._was_asked_to_start = False
        self._on_all_ended: list[Callable[[], object]] = []

    # life -------------------------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until a shutdown, and return the exit code."""
        gc.collect()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.loop.call_from_thread(lambda: self.shut_down(kill=False)))
        signal.signal(signal.SIGCHLD, lambda *_: self.loop.call_from_thread(self._reap))
        self._listen()
        self.loop.call_later(LOOK_MS, self._look_after_directory)
        try:
            self.loop.run()
        finally:
            self._leave()
        return 0

    def _listen(self) -> None:
        path = self.directory.socket_path
        if path is None:
            self._socket_dir = tempfile.mkdtemp(prefix="kops-")
            path = os.path.join(self._socket_dir, "control")
        self._control = ControlServer(self.loop, path, self._on_request)
        identity = identify(os.getpid(), self.token)
        assert identity is not None
        document = {**identity.document(), "socket": path, "ephemeral": self._ephemeral}
        self.directory.write_state(self.directory.supervisor_path, document)

    @property
    def _owns_directory(self) -> bool:
        return self.directory.read_state(self.directory.supervisor_path).get("token") == self.token

    def _look_after_directory(self) -> None:
        """Exit if the directory was removed, or if the command that started the supervisor has exited before it requested anything."""
        if not self._owns_directory:
            self.say(f"{self.directory.path} was removed")
            self.shut_down(kill=True)
        elif not self._was_asked_to_start and os.getppid() != self._starter:
            self.say("the command that started this supervisor has exited")
            self.shut_down(kill=True)
        self.loop.call_later(LOOK_MS, self._look_after_directory)

    def _leave(self) -> None:
        owns_directory = self._owns_directory
        if self._control is not None:
            self._control.close(remove=owns_directory or self._socket_dir is not None)
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        self.loop.close()
        if owns_directory:  # otherwise another cluster may be there now
            os.unlink(self.directory.supervisor_path)
            if self._ephemeral:
                shutil.rmtree(self.directory.path, ignore_errors=True)
        os.close(self._lock)

    def say(self, text: str, **event: object) -> None:
        """Write a line to the supervisor's output, and send it as an event to attached callers."""
        print(time.strftime("[%Y-%m-%d %H:%M:%S]"), text, file=sys.stderr, flush=True)
        for caller in self._attached:
            caller.answer(event=text, **event)

    # requests ---------------------------------------------------------------------------------------------------------------------

    def _on_request(self, caller: Caller, request: dict[str, Any]) -> None:
        do = {
            "status": self._status,
            "start": self._start,
            "stop": self._stop,
            "pause": self._pause,
            "resume": self._resume,
            "forget": self._forget,
            "shutdown": self._shutdown,
            "attach": self._attach,
        }.get(str(request.get("do")))
        try:
            if do is None:
                raise UsageError(f"the supervisor does not know the request '{request.get('do')}'")
            do(caller, request)
        except KopsError as error:
            caller.fail(error)
        except OSError as error:
            caller.fail(KopsError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")))

    def _asked_for(self, request: dict[str, Any]) -> list[BrokerProcess]:
        """Return the brokers that a request names, or all if it names none."""
        node_ids = request.get("ids")
        if node_ids is None:
            node_ids = self.directory.node_ids()
        for node_id in node_ids:
            self.directory.require_node(node_id)
        return [self._broker(node_id) for node_id in node_ids]

    def _broker(self, node_id: int) -> BrokerProcess:
        if node_id not in self.brokers:
            self.brokers[node_id] = BrokerProcess(self.directory, node_id)
        return self.brokers[node_id]

    def _status(self, caller: Caller, request: dict[str, Any]) -> None:
        caller.answer(ok=[broker.document() for broker in self._asked_for(request)])

    def _start(self, caller: Caller, request: dict[str, Any]) -> None:
        if self._is_shutting_down:
            raise KopsError("the cluster is being stopped")
        self._was_asked_to_start = True
        brokers = self._asked_for(request)
        new = [broker for broker in brokers if not broker.is_alive]
        for broker in new:
            self._fork(broker)
        if request.get("wait", True):
            gathered = Gathered(caller, brokers)
            for broker in brokers:
                broker.when_started(gathered.one)
        else:
            caller.answer(ok=[broker.document() for broker in brokers])
        self._poll()

    def _stop(self, caller: Caller, request: dict[str, Any]) -> None:
        brokers = self._asked_for(request)
        gathered = Gathered(caller, brokers)
        for broker in brokers:
            broker.when_ended(gathered.one)
            self._end(broker, kill=bool(request.get("kill")))

    def _pause(self, caller: Caller, request: dict[str, Any]) -> None:
        brokers = self._asked_for(request)
        for broker in brokers:
            broker.pause()
            self.say(f"broker {broker.node_id} is paused")
        caller.answer(ok=[broker.document() for broker in brokers])

    def _resume(self, caller: Caller, request: dict[str, Any]) -> None:
        brokers = self._asked_for(request)
        for broker in brokers:
            broker.resume()
            self.say(f"broker {broker.node_id} continues")
        self._poll()
        caller.answer(ok=[broker.document() for broker in brokers])

    def _forget(self, caller: Caller, request: dict[str, Any]) -> None:
        """Forget brokers that were removed."""
        for node_id in request.get("ids", ()):
            if node_id in self.brokers and not self.brokers[node_id].is_alive:
                del self.brokers[node_id]
        caller.answer(ok=[])

    def _shutdown(self, caller: Caller, request: dict[str, Any]) -> None:
        self._on_all_ended.append(lambda: caller.answer(ok=[broker.document() for broker in self.brokers.values()]))
        self.shut_down(kill=bool(request.get("kill")))

    def _attach(self, caller: Caller, request: dict[str, Any]) -> None:
        forget = caller.on_gone
        self._attached.append(caller)

        def gone() -> None:
            forget()
            self._attached.remove(caller)
            self.shut_down(kill=False)

        caller.on_gone = gone
        caller.answer(ok=True)

    # brokers ----------------------------------------------------------------------------------------------------------------------

    def shut_down(self, *, kill: bool) -> None:
        """Stop all brokers, then the supervisor. A second call has an effect only if it kills."""
        self._is_shutting_down = True
        alive = [broker for broker in self.brokers.values() if broker.is_alive]
        for broker in alive:
            self._end(broker, kill=kill)
        if not alive:
            self._finish()

    def _finish(self) -> None:
        callbacks, self._on_all_ended = self._on_all_ended, []
        for call in callbacks:
            call()
        self.loop.stop()

    def _end(self, broker: BrokerProcess, *, kill: bool) -> None:
        """Stop a broker, cleanly or as `kill -9` does. A clean stop that takes too long ends with a kill."""
        if not broker.is_alive:
            broker.tell_ended(None)
            return
        if kill:
            broker.kill()
            return
        if broker.terminate():
            broker.deadline = self.loop.call_later(STOP_TIMEOUT_MS, lambda: self._too_slow(broker))

    def _too_slow(self, broker: BrokerProcess) -> None:
        if broker.is_alive:
            self.say(f"broker {broker.node_id} did not stop within {STOP_TIMEOUT_MS // 1000} s and is killed")
            broker.kill()

    def _fork(self, broker: BrokerProcess) -> None:
        properties = self.directory.properties(broker.node_id)
        output = broker.prepare()
        gc.freeze()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._become_broker(properties, broker.status_path, output, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(output)
        broker.started(pid, self.token)
        self.say(f"broker {broker.node_id} is process {pid}")

    def _become_broker(self, properties: dict[str, str], status_path: str, output: int, mask: Iterable[int]) -> None:
        """Run as a broker in the child, after closing what belongs to the supervisor. Never returns."""
        exit_code = 1
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            if self._control is not None:
                self._control.abandon()
            self.loop.close()
            os.closerange(3, max(map(int, os.listdir("/dev/fd"))) + 1)
            random.seed()  # otherwise all brokers would draw the same numbers
            exit_code = self._run_broker(properties, status_path)
        except BaseException:
            import traceback

            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(exit_code)

    def _reap(self) -> None:
        for broker in self.brokers.values():
            if broker.is_alive and broker.reap():
                self._on_ended(broker)

    def _on_ended(self, broker: BrokerProcess) -> None:
        words = f"broker {broker.node_id} has ended: {broker.how_it_ended}"
        self.say(words, broker=broker.node_id, expected=broker.state is State.STOPPED)
        if self._is_shutting_down:
            if not any(other.is_alive for other in self.brokers.values()):
                self._finish()
            else:
                self._hurry_the_rest()

    def _hurry_the_rest(self) -> None:
        """Tell the remaining brokers not to wait. Without a majority, there is no controller that could allow a broker to shut down."""
        voters = self.directory.voter_ids()
        left = [broker for broker in self.brokers.values() if broker.is_alive]
        if len([broker for broker in left if broker.node_id in voters]) * 2 <= len(voters):
            for broker in left:
                broker.hurry()

    def _poll(self) -> None:
        """Check the brokers that are starting, until there are none."""
        if self._is_polling:
            return
        still = [broker for broker in self.brokers.values() if broker.look_whether_started()]
        self._is_polling = bool(still)
        if self._is_polling:
            self.loop.call_later(POLL_MS, self._poll_again)

    def _poll_again(self) -> None:
        self._is_polling = False
        self._poll()


class Gathered:
    """Answers a caller when all brokers have finished its request, or at the first error."""

    def __init__(self, caller: Caller, brokers: Sequence[BrokerProcess]) -> None:
        self._caller = caller
        self._brokers = brokers
        self._left = len(brokers)
        self._is_answered = False
        self._answer_if_done()

    def one(self, error: KopsError | None) -> None:
        """Record that one broker has finished, or failed."""
        self._left -= 1
        if error is not None and not self._is_answered:
            self._is_answered = True
            self._caller.fail(error)
        self._answer_if_done()

    def _answer_if_done(self) -> None:
        if not self._left and not self._is_answered:
            self._is_answered = True
            self._caller.answer(ok=[broker.document() for broker in self._brokers])


def take_lock(directory: ClusterDirectory) -> int:
    """Return the descriptor with the lock that marks a live supervisor. Raises KopsError if another supervisor holds it."""
    fd = os.open(os.path.join(directory.state_dir, "supervisor.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise KopsError(f"{directory.path} already has a supervisor") from None
    return fd


def warm_up() -> RunBroker:
    """Import what a broker needs, including later imports. Returns the function of a forked child."""
    from kops.broker.life.process import run_node

    for name in _IMPORTED_LATER:
        import_module(name)

    def run(properties: dict[str, str], status_path: str) -> int:
        return run_node(properties, status_path=status_path)

    return run


def main(arguments: Sequence[str], *, starter: int) -> int:
    """Run the supervisor for `TOKEN DIRECTORY [ephemeral]`. The process `starter` will request the brokers."""
    token, path, *more = arguments
    directory = ClusterDirectory(path)
    try:
        return Supervisor(directory, token, warm_up(), ephemeral="ephemeral" in more, starter=starter).run()
    except KopsError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
