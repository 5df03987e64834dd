"""Formats a node's directories: writes the files that they need before its first start (kafka-storage format).

Source: Kafka's StorageTool (format), Formatter, DynamicVoters, BootstrapDirectory and BatchFileWriter; KIP-853. Each directory gets a
`bootstrap.checkpoint` with the cluster's initial features. If the quorum is dynamic, the metadata directory gets a first snapshot with the
voters. Each directory's `meta.properties` is written last.
"""

from __future__ import annotations

import ipaddress
import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.broker.quorum.draws import random_uuid
from kops.broker.quorum.snapshot_files import SnapshotFileWriter
from kops.config.values.java import NumberFormatError, parse_int
from kops.config.values.java_hash import HashOrder
from kops.errors import DecodeError, KopsError
from kops.metadata.controller.cluster.feature_versions import FEATURES, KRAFT_FEATURE, bootstrap_records, default_level, dependency_error
from kops.metadata.metadata_version import FEATURE_NAME, LATEST_PRODUCTION, MINIMUM, VERSIONS, from_level
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.roles.quorum import KRAFT_VERSIONS
from kops.metadata.raft.voters.replica import Endpoints, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet
from kops.metadata.records import write_record
from kops.storage.formats.kafka_uuid import uuid_bytes, uuid_text
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kops.storage.formats.names import BOOTSTRAP_CHECKPOINT, META_PROPERTIES, METADATA_TOPIC, partition_dir_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kops.config import BrokerConfig
    from kops.files import Files
    from kops.metadata.controller.base.result import Record
    from kops.metadata.metadata_version import MetadataVersion

_VERSION_1: Final = 1
_DYNAMIC_FLAGS: Final = "--standalone, --initial-controllers, or --no-initial-controllers"
_VOTERS: Final = "controller.quorum.voters"


class FormatError(KopsError):
    """The directories can't be formatted with these options. Nothing was written, unless a directory itself failed."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The options of kafka-storage format. At most one of `standalone`, `initial_controllers` and `no_initial_controllers` is set.

    `initial_controllers` is a comma-separated list of id@host:port:directory. `features` maps names to levels.
    """

    cluster_id: str
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    ignore_formatted: bool = False
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False


def format_node(files: Files, config: BrokerConfig, options: FormatOptions, *, now_ms: int) -> list[str]:
    """Format the directories of a node that are not formatted yet. Returns the messages for the user.

    Raises FormatError with Kafka's message, OSError.
    """
    voters = _initial_voters(config, options)
    version = _release_version(config, options)
    levels = _feature_levels(version, options.features, is_dynamic=not config.quorum_voters)
    bootstrap = bootstrap_records(version, levels)
    found = _read_directories(files, config, options)
    if not found.empty:
        return [*found.said, "All of the log directories are already formatted."]
    said = [*found.said, f"Bootstrap metadata: {_bootstrap_text(bootstrap, version)}"]
    taken = found.directory_ids
    for path in _in_map_order(found.empty):
        is_metadata = path == config.metadata_log_dir
        voter = voters.get(config.node_id) if is_metadata and voters is not None else None
        directory_id = random_uuid(taken) if voter is None else voter.key.directory_id_or_zero
        taken.add(directory_id)
        kind = "data directory"
        if is_metadata:
            kind = "metadata directory" if voters is None else f"dynamic metadata {'voter ' if voter is not None else ''}directory"
        said.append(f"Formatting {kind} {path} with {FEATURE_NAME} {version}.")
        _make_directory(files, path)
        _write_bootstrap(files, path, bootstrap, now_ms)
        if is_metadata and voters is not None:
            _write_voters(files, path, voters, levels[KRAFT_FEATURE], now_ms)
        meta = MetaProperties(_VERSION_1, options.cluster_id, config.node_id, uuid_text(directory_id))
        files.write_atomic(posixpath.join(path, META_PROPERTIES), write_meta_properties(meta, date=now_ms))
    return said


# Options ---------------------------------------------------------------------------------------------------------------------------


def _initial_voters(config: BrokerConfig, options: FormatOptions) -> VoterSet | None:
    """The initial voters of the quorum; None if they are static or another node defines them."""
    if config.quorum_voters and (options.initial_controllers is not None or options.standalone):
        raise FormatError(
            f"You cannot specify {_VOTERS} and format the node with --initial-controllers or --standalone. If you want to use dynamic "
            f"quorum, please remove {_VOTERS} and specify controller.quorum.bootstrap.servers instead."
        )
    listener = config.controller_listener_names[0]
    if options.standalone:
        return parse_initial_controllers(_standalone(config), listener)
    if options.initial_controllers is not None:
        return parse_initial_controllers(options.initial_controllers, listener)
    if not options.no_initial_controllers and config.is_controller and not config.quorum_voters:
        raise FormatError(
            f"Because {_VOTERS} is not set on this controller, you must specify one of the following: --standalone, "
            "--initial-controllers, or --no-initial-controllers."
        )
    return None


def _standalone(config: BrokerConfig) -> str:
    if not config.is_controller:
        raise FormatError("You can only use --standalone on a controller.")
    listener = config.advertised_controller_listeners[0]
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{config.node_id}@{host}:{listener.port}:{uuid_text(random_uuid())}"


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """The voters of `--initial-controllers`; `listener` is the first of controller.listener.names. Raises FormatError with Kafka's
    message."""
    voters = [_parse_voter(one, listener) for one in text.strip().split(",") if one]
    if not voters:
        raise FormatError("No voters given.")
    ids = [voter.key.id for voter in voters]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise FormatError(f"Node id {node_id} was specified more than once.")
    return VoterSet(voters)


def _parse_voter(text: str, listener: str) -> VoterNode:
    id_text, at, rest = text.strip().partition("@")
    if not at:
        raise FormatError("No @ found in dynamic voter string.")
    node_id = _parse_number(id_text, "Failed to parse node id in dynamic voter string.")
    if node_id < 0:
        raise FormatError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise FormatError("No hostname found after node id.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise FormatError("Hostname began with left bracket, but no right bracket was found.")
    else:
        host, colon, after = rest.partition(":")
        if not colon:
            raise FormatError("No colon following hostname could be found.")
        rest = f":{after}"
    if not rest.startswith(":"):
        raise FormatError("Port section must start with a colon.")
    port_text, colon, directory_text = rest[1:].partition(":")
    if not colon:
        raise FormatError("No colon following port could be found.")
    port = _parse_number(port_text, "Failed to parse port in dynamic voter string.")
    if not 0 <= port <= 0xFFFF:
        raise FormatError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = uuid_bytes(directory_text)
    except ValueError as error:
        raise FormatError("Failed to parse directory ID in dynamic voter string.") from error
    return VoterNode(ReplicaKey(node_id, directory_id), Endpoints.of(listener, _java_host(host), port), *KRAFT_VERSIONS)


def _java_host(host: str) -> str:
    """A host as InetSocketAddress.getHostString returns it: an IPv6 address with all its groups, any other host as given."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def _parse_number(text: str, reason: str) -> int:
    try:
        return parse_int(text)
    except NumberFormatError as error:
        raise FormatError(reason) from error


def _release_version(config: BrokerConfig, options: FormatOptions) -> MetadataVersion:
    unstable = config["unstable.feature.versions.enable"]
    if FEATURE_NAME in options.features:
        if options.release_version is not None:
            raise FormatError(f"Use --release-version instead of --feature {FEATURE_NAME}=X to avoid ambiguity.")
        version = from_level(options.features[FEATURE_NAME])
        if version is None:
            valid = f"Valid feature levels are from {MINIMUM.level} to {VERSIONS[-1].level}."
            raise FormatError(f"No MetadataVersion with feature level {options.features[FEATURE_NAME]}. {valid}")
        if version > LATEST_PRODUCTION and not unstable:
            raise FormatError(f"{FEATURE_NAME} {version} is not yet stable.")
        return version
    known = [version for version in VERSIONS if unstable or version <= LATEST_PRODUCTION]
    if options.release_version is None:
        return known[-1]
    name = ".".join(options.release_version.split(".")[:2])
    found = [version for version in known if name in (version.name, version.release)]
    if not found:
        supported = ", ".join(map(str, known))
        raise FormatError(f"Unknown metadata.version '{options.release_version}'. Supported metadata.version are: {supported}")
    return found[-1]


def _feature_levels(version: MetadataVersion, wanted: Mapping[str, int], *, is_dynamic: bool) -> dict[str, int]:
    """The level of every feature: the requested one, else the initial level of a cluster of this version."""
    for name in sorted(wanted):
        if name != FEATURE_NAME and name not in FEATURES:
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    levels = {name: wanted.get(name, default_level(name, version)) for name in FEATURES}
    levels[FEATURE_NAME] = version.level
    levels[KRAFT_FEATURE] = _kraft_level(wanted.get(KRAFT_FEATURE), is_dynamic=is_dynamic)
    for name in sorted(FEATURES):
        error = dependency_error(name, levels[name], levels)
        if error is not None:
            raise FormatError(error)
    return levels


def _kraft_level(wanted: int | None, *, is_dynamic: bool) -> int:
    if wanted is None:
        return int(is_dynamic)
    if wanted == 0 and is_dynamic:
        raise FormatError(
            f"Cannot set kraft.version to 0 if {_VOTERS} is empty and one of the flags {_DYNAMIC_FLAGS} is used. For dynamic controllers "
            "support, try removing the --feature flag for kraft.version."
        )
    if wanted != 0 and not is_dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {wanted} unless {_VOTERS} is empty and one of the flags {_DYNAMIC_FLAGS} is used. For dynamic "
            f"controllers support, try using one of {_DYNAMIC_FLAGS} and removing {_VOTERS}."
        )
    return wanted


# Existing directories --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """`empty`: the directories to format. `said`: messages about directories that can't be read."""

    empty: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    directory_ids: set[bytes] = field(default_factory=set)


def _read_directories(files: Files, config: BrokerConfig, options: FormatOptions) -> _Found:
    found = _Found()
    formatted: dict[str, MetaProperties] = {}
    for path in sorted({*config.log_dirs, config.metadata_log_dir}):
        try:
            formatted[path] = read_meta_properties(files.read_all(posixpath.join(path, META_PROPERTIES)))
        except FileNotFoundError:
            found.empty.append(path)
        except (DecodeError, OSError):
            found.said.append(f"I/O error trying to read log directory {path}. Ignoring...")
    for path, meta in formatted.items():
        _check_owner(path, meta, config, options)
        if meta.directory_id is not None:
            found.directory_ids.add(uuid_bytes(meta.directory_id))
    if formatted and not options.ignore_formatted:
        first = _in_map_order(sorted(formatted))[0]
        raise FormatError(
            f"Log directory {first} is already formatted. Use --ignore-formatted to ignore this directory and format the others."
        )
    if found.said and not found.empty and not formatted:
        raise FormatError("No available log directories to format.")
    return found


def _check_owner(path: str, meta: MetaProperties, config: BrokerConfig, options: FormatOptions) -> None:
    if meta.cluster_id is not None and meta.cluster_id != options.cluster_id:
        where = posixpath.join(path, META_PROPERTIES)
        raise FormatError(f"Invalid cluster.id in: {where}. Expected {options.cluster_id}, but read {meta.cluster_id}")
    if meta.node_id is not None and meta.node_id != config.node_id:
        where = posixpath.join(path, META_PROPERTIES)
        raise FormatError(
            f"Stored node id {meta.node_id} doesn't match previous node id {config.node_id} in {where}. If you moved your data, make sure "
            "your configured node id matches. If you intend to create a new node, you should remove all data in your data directories."
        )


def _in_map_order(paths: Sequence[str]) -> list[str]:
    order: HashOrder[str] = HashOrder()
    for path in paths:
        order.put(path)
    return list(order)


# New files -------------------------------------------------------------------------------------------------------------------------


class _BootstrapFile:
    """A SnapshotSink for a file that is not a snapshot of a log. Its bytes are on the disk before it gets its name, and its name is durable
    before meta.properties is written. A node does not start without meta.properties, and every start reads this file."""

    snapshot_id = OffsetAndEpoch(offset=0, epoch=0)

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._data = bytearray()

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return len(self._data)

    def append(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data

    def settle(self) -> None:
        """Write the file durably under its name."""
        self._files.write_atomic(self._path, bytes(self._data))

    def freeze(self) -> None:
        """Do nothing: there is no log that has to know the file."""

    def close(self) -> None:
        """Do nothing: nothing was written before `settle`."""


def _write_bootstrap(files: Files, directory: str, records: Sequence[Record], now_ms: int) -> None:
    writer = SnapshotWriter(_BootstrapFile(files, posixpath.join(directory, BOOTSTRAP_CHECKPOINT)), 0, 0, None, now_ms)
    for record in records:
        writer.append([write_record(*record)], now_ms)
    writer.freeze(now_ms)


def _write_voters(files: Files, directory: str, voters: VoterSet, kraft_version: int, now_ms: int) -> None:
    log_directory = posixpath.join(directory, partition_dir_name(METADATA_TOPIC, 0))
    _make_directory(files, log_directory)
    sink = SnapshotFileWriter(files, log_directory, BOOTSTRAP_SNAPSHOT_ID, lambda _: None)
    writer = SnapshotWriter(sink, now_ms, kraft_version, voters, now_ms)
    try:
        writer.freeze(now_ms)
    finally:
        writer.close()


def _make_directory(files: Files, path: str) -> None:
    if path and not files.exists(path):
        _make_directory(files, posixpath.dirname(path))
        files.mkdir(path)


def _bootstrap_text(records: Sequence[Record], version: MetadataVersion) -> str:
    """BootstrapMetadata.toString."""
    shown = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{message.name}', featureLevel={message.feature_level}) at version {at})"  # type: ignore[attr-defined]
        for message, at in records
    )
    return f"BootstrapMetadata(records=[{shown}], metadataVersionLevel={version.level}, source=format command)"
