"""Log directories of real Kafka: formats them as `kafka-storage format` does, or takes them over with all their data.

Source: Kafka's StorageTool, MetaPropertiesEnsemble, FileQuorumStateStore, KIP-853. The contents of a directory decide its node and cluster,
and whether the node votes. In a dynamic quorum, they also decide where the voters listen: only the metadata log has these addresses.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.cluster.layout import ports, settings
from kops.cluster.layout.directory import ClusterDirectory, Undo, check_name, check_usable
from kops.errors import DecodeError, KopsError, LockHeldError, NotFoundError, UsageError
from kops.files import OsFiles
from kops.storage.formats.meta_properties import read_meta_properties
from kops.storage.formats.quorum_state import read_quorum_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kops.files import Files
    from kops.metadata.raft.voters.voter_set import VoterSet

_METADATA_DIR: Final = "__cluster_metadata-0"
_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\Z")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log\Z")


@dataclass(slots=True)
class FoundNode:
    """A node's directories before they are adopted. `voter_ids` and `voters` come from its metadata log, if that contains them."""

    node_id: int
    cluster_id: str
    log_dirs: list[str] = field(default_factory=list)
    metadata_dir: str | None = None
    is_broker: bool = True
    voter_ids: frozenset[int] = frozenset()
    voters: VoterSet | None = None


def adopt(
    directory: ClusterDirectory,
    log_dirs: Sequence[str],
    *,
    base_port: int | None = None,
    own_settings: Mapping[str, str] | None = None,
    source: str = "--config",
) -> list[FoundNode]:
    """Make a cluster from existing log directories. They are not changed or moved; `N.properties` refers to them.

    `source` names the origin of `own_settings` in messages. Raises NotFoundError and UsageError for directories that are not a cluster,
    LockHeldError if a broker runs on one, OSError.
    """
    check_usable(directory)
    nodes = find_nodes(log_dirs)
    voter_ids = _voter_ids(nodes)
    dynamic = next((node.voters for node in nodes if node.voters is not None), None)
    base = ports.find_base(len(nodes)) if base_port is None else base_port
    ports.check_base(base, len(nodes))
    order = {node.node_id: index for index, node in enumerate(nodes, start=1)}
    voters = [
        settings.Voter(node_id, settings.controller_port(base, order[node_id]) if dynamic is None else _voter_port(dynamic, node_id))
        for node_id in sorted(voter_ids)
    ]
    with Undo() as undo:
        undo.making([directory.path])
        os.makedirs(directory.path, exist_ok=True)
        for node in nodes:
            properties = _properties(node, voters, settings.client_port(base, order[node.node_id]))
            if dynamic is not None:
                del properties["controller.quorum.voters"]
                properties["controller.quorum.bootstrap.servers"] = ",".join(f"{settings.HOST}:{voter.port}" for voter in voters)
            path = directory.properties_path(node.node_id)
            properties = settings.changed_properties(properties, own_settings or {}, file=path, source=source)
            undo.making([path, f"{path}.tmp"])
            directory.write_properties(node.node_id, properties)
        undo.keep()
    return nodes


def _properties(node: FoundNode, voters: Sequence[settings.Voter], port: int) -> dict[str, str]:
    made = settings.node_properties(node.node_id, voters, port=port, log_dir=",".join(node.log_dirs), broker_count=len(voters), settings={})
    # The defaults of a new cluster do not apply to an existing one.
    kept = {key: value for key, value in made.items() if key in settings.OWNED}
    if node.metadata_dir is not None and node.metadata_dir != node.log_dirs[0]:
        kept["metadata.log.dir"] = node.metadata_dir
    if not node.is_broker:
        own = next(voter for voter in voters if voter.node_id == node.node_id)
        kept["process.roles"] = "controller"
        kept["listeners"] = f"{settings.CONTROLLER_LISTENER}://{settings.HOST}:{own.port}"
        del kept["advertised.listeners"], kept["inter.broker.listener.name"]
    return kept


def find_nodes(log_dirs: Sequence[str]) -> list[FoundNode]:
    """Return the nodes of these log directories in the order of their ids. Raises NotFoundError, UsageError, LockHeldError."""
    files = OsFiles(read_only=True)
    nodes: dict[int, FoundNode] = {}
    for name in log_dirs:
        path = os.path.abspath(name)
        check_name(path)
        node_id, cluster_id = _owner(files, path)
        first = next(iter(nodes.values()), None)
        if first is not None and first.cluster_id != cluster_id:
            raise UsageError(f"{path} belongs to cluster {cluster_id}, {first.log_dirs[0]} to {first.cluster_id}")
        holder = files.lock_owner(path)
        if holder is not None:
            raise LockHeldError(f"{path}: a broker runs on it (process {holder}); stop it first")
        node = nodes.setdefault(node_id, FoundNode(node_id, cluster_id))
        node.log_dirs.append(path)
        if os.path.isdir(os.path.join(path, _METADATA_DIR)):
            node.metadata_dir = path
            _look_into_quorum(files, node)
    return [nodes[node_id] for node_id in sorted(nodes)]


def _owner(files: Files, path: str) -> tuple[int, str]:
    meta_path = os.path.join(path, "meta.properties")
    try:
        meta = read_meta_properties(files.read_all(meta_path), file=meta_path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{path}: no meta.properties, so it is not a log directory of Kafka (kops cluster format makes one)") from None
    except DecodeError as error:
        raise KopsError(str(error)) from error
    if meta.version != 1 or meta.node_id is None or meta.cluster_id is None:
        raise UsageError(f"{meta_path} belongs to a broker with ZooKeeper: only KRaft directories can be adopted")
    return meta.node_id, meta.cluster_id


def _look_into_quorum(files: Files, node: FoundNode) -> None:
    """Read from the metadata log which nodes vote, and whether this node is registered as a broker."""
    from kops.files.tree import OverlayFiles
    from kops.forensics.forecast.metadata_log import load_metadata_log
    from kops.storage.start.log_dirs import StartRefusedError

    assert node.metadata_dir is not None
    path = os.path.join(node.metadata_dir, _METADATA_DIR)
    try:
        state = read_quorum_state(files.read_all(os.path.join(path, "quorum-state")), file=path)
        node.voter_ids = frozenset(state.current_voters or ())
    except FileNotFoundError:
        node.voter_ids = frozenset()
    except DecodeError as error:
        raise KopsError(str(error)) from error
    node.voters = _last_voters(files, path)
    if node.voters is not None:
        node.voter_ids = node.voters.ids
    try:
        image = load_metadata_log(OverlayFiles(files), node.metadata_dir, now_ms=0).image
    except StartRefusedError as error:
        raise KopsError(str(error)) from error
    # Without any registration, the cluster was never started, so the node may have any role.
    registered = set() if image is None else set(image.brokers)
    node.is_broker = not registered or node.node_id in registered or node.node_id not in node.voter_ids


def _last_voters(files: Files, path: str) -> VoterSet | None:
    """Return the last voters of a dynamic quorum in a snapshot or the log, or None for a static quorum."""
    from kops.metadata.raft.log.control_records import quorum_changes
    from kops.records import Batch, scan

    names = files.list(path)
    snapshots = [name for name in names if _SNAPSHOT.match(name)]
    found = None
    for name in [*snapshots[-1:], *(name for name in names if _SEGMENT.match(name))]:
        with files.open(posixpath.join(path, name)) as file:
            for batch in scan(file):
                if isinstance(batch, Batch) and batch.is_control:
                    for change in quorum_changes(batch):
                        found = found if isinstance(change.value, int) else change.value
    return found


def _voter_ids(nodes: Sequence[FoundNode]) -> frozenset[int]:
    """Return the voters on which the nodes agree. Raises UsageError if voters are missing or nothing is known."""
    known = max((node.voter_ids for node in nodes), key=len, default=frozenset())
    if not known:
        # The directories were formatted, but the nodes never started. Either the only node votes, or all nodes do.
        known = frozenset(node.node_id for node in nodes)
    missing = sorted(known - {node.node_id for node in nodes})
    if missing:
        names = ", ".join(map(str, missing))
        raise UsageError(f"node {names} votes in the quorum, but its log directory was not given")
    return known


def _voter_port(voters: VoterSet, node_id: int) -> int:
    """Return the port of a voter of a dynamic quorum from the metadata log. Raises UsageError if it is not on this machine."""
    address = voters.listeners(node_id).address(settings.CONTROLLER_LISTENER)
    if address is None:
        raise UsageError(f"node {node_id} has no listener {settings.CONTROLLER_LISTENER} in its metadata log")
    if address.host not in _LOCAL:
        raise UsageError(f"node {node_id} votes at {address.host}:{address.port} in its metadata log, an address of another machine")
    return address.port


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The options of `kops cluster format`. See `kops.broker.quorum.format.FormatOptions`."""

    log_dirs: Sequence[str]
    properties: Mapping[str, str] | None
    node_id: int | None
    cluster_id: str | None
    release_version: str | None
    features: Mapping[str, int]
    standalone: bool
    initial_controllers: str | None
    no_initial_controllers: bool
    ignore_formatted: bool


def format_directories(request: FormatRequest, *, now_ms: int) -> tuple[str, list[str]]:
    """Format log directories as kafka-storage does. Returns the cluster's id and messages for the user.

    Raises KopsError, OSError, and then nothing is left.
    """
    from kops.broker.quorum.draws import random_uuid
    from kops.broker.quorum.format import FormatOptions, format_node
    from kops.config import BrokerConfig
    from kops.storage.formats.kafka_uuid import uuid_text

    properties = _properties_to_format(request)
    config = BrokerConfig.from_properties(properties)
    options = FormatOptions(
        request.cluster_id or uuid_text(random_uuid()),
        release_version=request.release_version,
        features=request.features,
        ignore_formatted=request.ignore_formatted,
        standalone=request.standalone,
        initial_controllers=request.initial_controllers,
        no_initial_controllers=request.no_initial_controllers,
    )
    with Undo() as undo:
        undo.making(sorted({*config.log_dirs, config.metadata_log_dir}))
        said = format_node(OsFiles(), config, options, now_ms=now_ms)
        undo.keep()
    return options.cluster_id, said


def _properties_to_format(request: FormatRequest) -> dict[str, str]:
    paths = [os.path.abspath(name) for name in request.log_dirs]
    for path in paths:
        check_name(path)
        if ClusterDirectory(path).is_cluster:
            raise UsageError(f"{path} is a cluster's directory; the log directories of its nodes are {path}/broker-N")
    named = {"log.dirs": ",".join(paths)} if paths else {}
    if request.properties is not None:
        own_id = {} if request.node_id is None else {"node.id": str(request.node_id)}
        return {**request.properties, **named, **own_id}
    if not named:
        raise UsageError("no directory: give DIR, or --server-properties FILE with log.dirs")
    node_id = 1 if request.node_id is None else request.node_id
    port, controller = settings.DEFAULT_PORT, settings.DEFAULT_PORT + settings.CONTROLLER_PORT_OFFSET
    made = settings.node_properties(
        node_id, [settings.Voter(node_id, controller)], port=port, log_dir=named["log.dirs"], broker_count=1, settings={}
    )
    if request.standalone or request.initial_controllers is not None or request.no_initial_controllers:
        del made["controller.quorum.voters"]
        made["controller.quorum.bootstrap.servers"] = f"{settings.HOST}:{controller}"
    return made
