"""The work of the commands on a cluster: start it, stop it, find it, and clean up after a killed supervisor."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kops.cluster.layout import ports, settings
from kops.cluster.layout.directory import DEFAULT_PATH, ClusterDirectory, Undo, check_nodes, check_usable, follow_a_move, move_ports
from kops.cluster.processes.control import ControlClient
from kops.cluster.processes.processes import MARK, ProcessIdentity, identity_of, supervised
from kops.errors import KopsError, NotFoundError, UnreachableError, UsageError

ANSWER_TIMEOUT_S: Final = 10.0
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 90.0
_ORPHAN_STOP_S: Final = 30.0
_POLL_S: Final = 0.005
# This has no line breaks, so that `ps` shows one line.
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); from kops.cluster.processes.supervisor import main; "
    "sys.exit(main(sys.argv[4:], starter=int(sys.argv[2])))"
)


@dataclass(frozen=True, slots=True)
class UpRequest:
    """The options of `up`. None means the directory's value, or the default of a new one. With `attached`, the cluster ends with its
    caller.

    `source` names the origin of `settings` in messages.
    """

    node_count: int | None = None
    base_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    ephemeral: bool = False
    attached: bool = False
    source: str = "--config"


@dataclass(frozen=True, slots=True)
class UpResult:
    """The result of `up`. `was_up` is true if the cluster was already up. `notes` are messages for the user.

    `attachment` is a connection, if it was requested. The cluster is stopped when it is closed.
    """

    bootstrap_servers: str
    was_up: bool
    notes: tuple[str, ...]
    attachment: ControlClient | None = None


class Supervision:
    """The commands' handle of a running supervisor."""

    def __init__(self, directory: ClusterDirectory, identity: ProcessIdentity, socket_path: str, *, ephemeral: bool) -> None:
        self.directory = directory
        self.identity = identity
        self.socket_path = socket_path
        self.ephemeral = ephemeral

    def connect(self) -> ControlClient:
        """Open a connection. Raises KopsError."""
        return ControlClient(self.socket_path, timeout_s=ANSWER_TIMEOUT_S)

    def ask(self, do: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **values: object) -> list[dict[str, Any]]:
        """Send one request on a new connection, and return the brokers that it concerns."""
        with self.connect() as control:
            answer = control.ask(do, timeout_s=timeout_s, **values)["ok"]
        return answer if isinstance(answer, list) else []


def locate(data_dir: str | None, *, look_around: bool = False) -> ClusterDirectory:
    """Return the directory of a command: the given one, else `./kops-data`.

    With `look_around`, for commands that change nothing, a single running cluster elsewhere is used if there is none in these directories.
    Raises NotFoundError, UsageError.
    """
    if data_dir is not None:
        return ClusterDirectory(data_dir)
    default = ClusterDirectory(DEFAULT_PATH)
    if default.is_cluster:
        return default
    running = sorted(running_directories())
    if look_around and len(running) == 1:
        return ClusterDirectory(running[0])
    if look_around and running:
        raise UsageError(f"several clusters run ({', '.join(running)}): choose one with --data-dir")
    others = "none is running (kops cluster up starts one)"
    if running:
        others = f"running elsewhere, choose one with --data-dir: {', '.join(running)}"
    raise NotFoundError(f"no cluster in {default.path}; {others}")


def running_directories() -> set[str]:
    """Return the directories of all clusters of this user that have a running process."""
    found = set()
    for _, line in supervised():
        # MARK TOKEN DIRECTORY [ephemeral]; the directory may contain blanks.
        path = line.partition(f"{MARK} ")[2].partition(" ")[2].removesuffix(" ephemeral")
        if ClusterDirectory(path).is_cluster:
            found.add(path)
    return found


def supervision(directory: ClusterDirectory) -> Supervision | None:
    """Return the directory's supervisor, or None if none runs."""
    document = directory.read_state(directory.supervisor_path)
    identity = identity_of(document)
    if identity is None or not identity.is_alive:
        return None
    return Supervision(directory, identity, str(document.get("socket")), ephemeral=bool(document.get("ephemeral")))


def require_supervision(directory: ClusterDirectory) -> Supervision:
    """Return the directory's supervisor. Raises NotFoundError if there is no cluster, KopsError if it is down or its supervisor was
    killed.
    """
    directory.require()
    found = supervision(directory)
    if found is None:
        if orphans(directory):
            raise KopsError(
                f"the supervisor of {directory.path} was killed, its brokers are still running: kops cluster restart, or kops cluster down"
            )
        raise KopsError(f"{directory.path}: the cluster is down (kops cluster up starts it)")
    return found


def orphans(directory: ClusterDirectory) -> dict[int, ProcessIdentity]:
    """Return the brokers that still run without their supervisor."""
    if supervision(directory) is not None:
        return {}
    found = {}
    for node_id in directory.node_ids():
        identity = identity_of(directory.read_state(directory.process_path(node_id)))
        if identity is not None and identity.is_alive:
            found[node_id] = identity
    return found


def clean_up(directory: ClusterDirectory, *, kill: bool = False) -> list[str]:
    """Stop (or kill) the brokers of a killed supervisor, and remove its files. Returns a sentence for each action."""
    if not os.path.isdir(directory.state_dir) or supervision(directory) is not None:
        return []
    notes = []
    found = orphans(directory)
    for identity in found.values():
        identity.signal(signal.SIGCONT)
        identity.signal(signal.SIGKILL if kill else signal.SIGTERM)
    for node_id, identity in found.items():
        if not identity.wait(_ORPHAN_STOP_S):
            identity.signal(signal.SIGKILL)
            identity.wait(_ORPHAN_STOP_S)
        notes.append(f"broker {node_id} of a killed supervisor (process {identity.pid}) was {'killed' if kill else 'stopped'}")
    socket_path = directory.read_state(directory.supervisor_path).get("socket")
    if isinstance(socket_path, str) and os.path.basename(socket_path) == "control":
        _remove_socket(directory, socket_path)
    for path in (directory.supervisor_path, *map(directory.process_path, directory.node_ids())):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return notes


def _remove_socket(directory: ClusterDirectory, socket_path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)
    folder = os.path.dirname(socket_path)
    if folder != directory.state_dir:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


@contextmanager
def exclusive(directory: ClusterDirectory) -> Iterator[None]:
    """Let only one command at a time change a directory. Raises KopsError if another one is running."""
    os.makedirs(directory.state_dir, mode=0o700, exist_ok=True)
    path = os.path.join(directory.state_dir, "command.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise KopsError(f"another kops cluster command is changing {directory.path}") from None
    try:
        yield
    finally:
        os.close(fd)


# up -----------------------------------------------------------------------------------------------------------------------------------


def bring_up(directory: ClusterDirectory, request: UpRequest, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S) -> UpResult:
    """Create the cluster if there is none, start it, and wait until all brokers are registered and a controller is elected.

    A failed start leaves no process, and no files of a new cluster. Raises UsageError, KopsError with the last lines of a broker that
    ended, OSError.
    """
    running = supervision(directory)
    if running is not None:
        found = _already_up(running, request)
        return replace(found, attachment=attach(running)) if request.attached else found
    is_new = not directory.is_cluster
    if is_new:
        check_usable(directory)
    finds_ports = is_new and request.base_port is None
    with Undo() as undo, ports.choosing() if finds_ports else contextlib.nullcontext():
        if is_new:
            undo.making(_missing_parents(directory.path))
            undo.making([directory.state_dir])
        with exclusive(directory):
            notes = clean_up(directory)
            notes += prepare(directory, request, undo)
            started = launch(directory, ephemeral=request.ephemeral)
            try:
                attachment = attach(started) if request.attached else None
                start_brokers(started, wait=wait, timeout_s=timeout_s)
            except BaseException:
                stop_supervisor(started, kill=is_new)
                raise
        undo.keep()
    return UpResult(directory.bootstrap_servers(), False, tuple(notes), attachment)


def attach(running: Supervision) -> ControlClient:
    """Return a connection on which a supervisor reports events. The supervisor stops its cluster when it is closed. Raises KopsError."""
    control = running.connect()
    try:
        control.ask("attach", timeout_s=ANSWER_TIMEOUT_S)
    except BaseException:
        control.close()
        raise
    return control


def start_brokers(
    running: Supervision, node_ids: Sequence[int] | None = None, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Start the given brokers, or all, and wait until they serve.

    Raises KopsError with the last lines of a broker that ended, and UnreachableError with those of one that is too slow.
    """
    ids = running.directory.node_ids() if node_ids is None else list(node_ids)
    try:
        return running.ask("start", ids=ids, timeout_s=timeout_s, wait=wait)
    except UnreachableError:
        slow = [broker for broker in running.ask("status", ids=ids) if broker["state"] != "running"]
        if not slow:
            raise
        names = ", ".join(str(broker["id"]) for broker in slow)
        path = running.directory.output_path(slow[0]["id"])
        said = " | ".join(running.directory.last_lines(path, 3))
        raise UnreachableError(f"broker {names} did not serve within {timeout_s:g} s; its last lines ({path}): {said}") from None


def _missing_parents(path: str) -> list[str]:
    """Return the missing directories above the path, the uppermost first, and the path itself."""
    missing = []
    while path and not os.path.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing[::-1]


def _already_up(running: Supervision, request: UpRequest) -> UpResult:
    directory = running.directory
    node_ids = directory.node_ids()
    if request.node_count is not None and request.node_count != len(node_ids):
        raise UsageError(f"{directory.path} is up with {_brokers(len(node_ids))}: kops cluster broker add adds one")
    if request.settings or request.base_port is not None:
        raise UsageError(f"{directory.path} is up: settings and ports can only be changed when it is down (kops cluster down)")
    notes = [f"{directory.path} is already up (supervisor: process {running.identity.pid})"]
    for broker in running.ask("status"):
        if broker["state"] != "running":
            hint = f" (kops cluster broker start {broker['id']} starts it)" if broker["state"] in ("stopped", "ended") else ""
            notes.append(f"broker {broker['id']} is {broker['state']}{hint}")
    return UpResult(directory.bootstrap_servers(), True, tuple(notes))


def prepare(directory: ClusterDirectory, request: UpRequest, undo: Undo) -> list[str]:
    """Write the settings and format the log directories of all nodes."""
    notes = follow_a_move(directory)
    if directory.is_cluster:
        _update(directory, request)
    else:
        _make(directory, request, undo)
    cluster_id = check_nodes(directory)
    addresses = []
    told = set(request.settings)
    for node_id in directory.node_ids():
        properties = directory.properties(node_id)
        path = directory.properties_path(node_id)
        settings.check_properties(properties, file=path)
        notes += settings.unknown_settings({key: value for key, value in properties.items() if key not in told}, file=path)
        told.update(properties)
        addresses += settings.listening_ports(properties)
    ports.check_free(addresses, advice="choose others with --port-base")
    format_nodes(directory, cluster_id, undo)
    return notes


def _make(directory: ClusterDirectory, request: UpRequest, undo: Undo) -> None:
    node_ids = settings.combined_ids(3 if request.node_count is None else request.node_count)
    if request.base_port is None:
        base_port = ports.find_base(len(node_ids))
    else:
        base_port = request.base_port
        ports.check_base(base_port, len(node_ids))
    voters = [settings.Voter(node_id, settings.controller_port(base_port, node_id)) for node_id in node_ids]
    for node_id in node_ids:
        properties = settings.node_properties(
            node_id,
            voters,
            port=settings.client_port(base_port, node_id),
            log_dir=directory.log_dir(node_id),
            broker_count=len(node_ids),
            settings=request.settings,
        )
        settings.check_properties(properties, file=request.source)
        path = directory.properties_path(node_id)
        undo.making([path, f"{path}.tmp", directory.log_dir(node_id)])
        directory.write_properties(node_id, properties)


def _update(directory: ClusterDirectory, request: UpRequest) -> None:
    node_ids = directory.node_ids()
    if request.node_count is not None and request.node_count != len(node_ids):
        raise UsageError(f"{directory.path} has {_brokers(len(node_ids))}: kops cluster broker add adds one")
    if request.base_port is not None:
        ports.check_base(request.base_port, max(node_ids))
        move_ports(directory, request.base_port)
    if request.settings:
        change_settings(directory, request.settings, source=request.source)


def change_settings(directory: ClusterDirectory, changes: Mapping[str, str], *, source: str) -> None:
    """Write settings to the files of all nodes, or to none. Raises UsageError with the source, or with the file that is invalid without
    them.
    """
    changed = {}
    for node_id in directory.node_ids():
        path = directory.properties_path(node_id)
        changed[node_id] = settings.changed_properties(directory.properties(node_id), changes, file=path, source=source)
    for node_id, properties in changed.items():
        directory.write_properties(node_id, properties)


def format_nodes(directory: ClusterDirectory, cluster_id: str | None, undo: Undo) -> str:
    """Format the log directories that are not formatted yet. Returns the cluster's id, which is created if it is None.

    Raises KopsError, OSError.
    """
    from kops.broker.quorum.draws import random_uuid
    from kops.broker.quorum.format import FormatOptions, format_node
    from kops.config import BrokerConfig
    from kops.storage.formats.kafka_uuid import uuid_text

    cluster_id = cluster_id or uuid_text(random_uuid())
    for node_id in directory.node_ids():
        log_dirs = directory.log_dirs(node_id)
        if all(directory.files.exists(os.path.join(path, "meta.properties")) for path in log_dirs):
            continue
        undo.making(log_dirs)
        config = BrokerConfig.from_properties(directory.properties(node_id))
        # Only kops cluster format creates a dynamic quorum.
        options = FormatOptions(cluster_id, ignore_formatted=True, no_initial_controllers=not config.quorum_voters)
        format_node(directory.files, config, options, now_ms=time.time_ns() // 1_000_000)
    return cluster_id


def launch(directory: ClusterDirectory, *, ephemeral: bool = False) -> Supervision:
    """Start a supervisor for the directory and wait until it answers. If it ends at once, raises KopsError with its output."""
    token = secrets.token_hex(8)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = [MARK, token, directory.path, *(["ephemeral"] if ephemeral else [])]
    command = [sys.executable, "-P", "-c", _PROGRAM, root, str(os.getpid()), *own]
    with open(directory.supervisor_output_path, "ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", start_new_session=True)
    try:
        return _wait_for(directory, process, token)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _wait_for(directory: ClusterDirectory, process: subprocess.Popen[bytes], token: str) -> Supervision:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = supervision(directory)
        if found is not None and found.identity.token == token:
            return found
        if process.poll() is not None:
            said = "".join(f"\n  {line}" for line in directory.last_lines(directory.supervisor_output_path))
            raise KopsError(f"the supervisor ended with exit code {process.returncode}:{said}")
        time.sleep(_POLL_S)
    raise KopsError(f"the supervisor did not start within {START_TIMEOUT_S:g} s")


# down ---------------------------------------------------------------------------------------------------------------------------------


def take_down(directory: ClusterDirectory, *, kill: bool = False) -> list[str]:
    """Stop all brokers and the supervisor, cleanly or as `kill -9` does. Returns a sentence for each action, and none if it was down."""
    directory.require()
    running = supervision(directory)
    if running is None:
        return clean_up(directory, kill=kill)
    brokers = stop_supervisor(running, kill=kill)
    return [f"broker {broker['id']}: {'killed' if kill else 'stopped'}" for broker in brokers if broker["state"] == "stopped"]


def stop_supervisor(running: Supervision, *, kill: bool) -> list[dict[str, Any]]:
    """Let the supervisor stop its brokers and end. If it does not, kill it and the brokers."""
    was_alive: list[dict[str, Any]] = []
    try:
        was_alive = [broker for broker in running.ask("status") if broker["pid"] is not None]
        running.ask("shutdown", kill=kill, timeout_s=STOP_TIMEOUT_S)
        is_gone = running.identity.wait(STOP_TIMEOUT_S)
    except KopsError:
        is_gone = False
    if not is_gone:
        running.identity.signal(signal.SIGKILL)
        running.identity.wait(ANSWER_TIMEOUT_S)
        clean_up(running.directory, kill=True)
    return [{**broker, "state": "stopped"} for broker in was_alive]


def require_down(directory: ClusterDirectory) -> None:
    """Raise NotFoundError if there is no cluster, and KopsError if it runs."""
    directory.require()
    if supervision(directory) is not None or orphans(directory):
        raise KopsError(f"{directory.path} is up: kops cluster down first")


def purge(directory: ClusterDirectory) -> list[str]:
    """Remove a cluster that is down, with its data. Returns the files that were left because they are not kops's. Raises KopsError if it
    runs.
    """
    directory.require()
    if supervision(directory) is not None:
        raise KopsError(f"{directory.path} is up: kops cluster down first")
    clean_up(directory, kill=True)
    foreign = [name for node_id in directory.node_ids() for name in directory.log_dirs(node_id) if os.path.dirname(name) != directory.path]
    return [*directory.remove(), *foreign]


def remove_node(directory: ClusterDirectory, node_id: int) -> None:
    """Remove a stopped node's settings, directory and state."""
    directory.require_node(node_id)
    os.unlink(directory.properties_path(node_id))
    for path in (directory.output_path(node_id), directory.status_path(node_id), directory.process_path(node_id)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if os.path.isdir(directory.log_dir(node_id)):
        shutil.rmtree(directory.log_dir(node_id))


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"
