"""Predicts how a starting node loads its metadata: bootstrap file, quorum state, `__cluster_metadata-0` with its snapshots, and the image.

Order and rules are those of Apache Kafka 4.3: `BootstrapDirectory`, `FileQuorumStateStore`, `KafkaRaftLog.createLog` (the log is recovered
from its beginning whatever the clean-shutdown marker says; `recoverSnapshots`; `truncateToLatestSnapshot`), `RecordsSnapshotReader` and
`RecordsIterator` (CRCs of a snapshot are checked), `MetadataBatchLoader` (records are replayed into the image). Everything runs on the
given files: in a forecast they are an overlay.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kops.config.topic import TopicConfig
from kops.errors import DecodeError
from kops.files import Files
from kops.metadata import ClusterImage, MetadataRecord, read_metadata_record
from kops.metadata.records import read_kraft_voters
from kops.records import Batch, BytesSource, Damage, scan
from kops.records.record import KRaftVoters, read_control_record
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.quorum_state import read_quorum_state
from kops.storage.start.loaded_log import LoadAction
from kops.storage.start.loader import LoadedLog, load_partition
from kops.storage.start.log_dirs import METADATA_DIR, StartRefusedError

BOOTSTRAP_FILE = "bootstrap.checkpoint"
BOOTSTRAP_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"
"""Holds the voters that the quorum was formatted with; only the control records in it count."""
QUORUM_STATE = "quorum-state"
NO_TOPIC_ID = "it has no topic id (partition.metadata is missing), so the broker treats it as a stray log"
KNOWN_FEATURES = frozenset(
    (
        "metadata.version",
        "kraft.version",
        "transaction.version",
        "group.version",
        "eligible.leader.replicas.version",
        "share.version",
        "streams.version",
    )
)
_SNAPSHOT = re.compile(r"^(\d{20})-(\d{10})\.checkpoint(\.part|\.deleted)?$")


@dataclass(slots=True)
class MetadataLog:
    """The node's own copy of the cluster's metadata after its start; `image` is None if there is no metadata log here."""

    image: ClusterImage | None = None
    log: LoadedLog | None = None
    warnings: list[str] = field(default_factory=list)
    voters: list[tuple[int, str]] | None = None
    data_version: int | None = None
    is_voter: bool = False


def load_metadata_log(files: Files, log_dir: str, *, now_ms: int) -> MetadataLog:
    """Load `__cluster_metadata-0` in the metadata log directory. Raises StartRefusedError with Kafka's reason if the node would end.

    Without the directory nothing is known about the cluster. Then the image is None, and a warning says so.
    """
    bootstrap = _read_bootstrap(files, log_dir)
    result = MetadataLog()
    path = posixpath.join(log_dir, METADATA_DIR)
    if not files.exists(path):
        result.warnings.append(
            f"{log_dir}: no {METADATA_DIR} here, so it is not known which partitions the cluster assigns to this broker, "
            "and no partition counts as stray"
        )
        return result
    _read_quorum_state(files, path, result)
    try:
        result.log = load_partition(
            files,
            path,
            TopicConfig(),
            log_start_offset=0,
            recovery_point=0,
            clean_shutdown=False,
            now_ms=now_ms,
            producer_id_expiration_ms=2**31 - 1,
        )
    except LoadError as error:
        raise StartRefusedError(f"{path}: {error}") from error
    log_start, log_end = result.log.log_start_offset, result.log.log_end_offset
    snapshot = _latest_snapshot(files, path, log_start)
    result.warnings.extend(f"{posixpath.join(path, action.file)}: {_words(action)}" for action in result.log.actions if _costs(action))
    image = ClusterImage()
    replayed_to = 0
    if snapshot is not None:
        replayed_to = snapshot[0]
        _replay_snapshot(files, posixpath.join(path, snapshot[1]), image, result)
    if log_end > replayed_to:
        _replay_log(files, path, result, image, replayed_to)
    if snapshot is None and log_end == 0:
        _apply_bootstrap(bootstrap, image)
    result.image = image
    return result


def _costs(action: LoadAction) -> bool:
    """Whether something is removed. A node recovers its metadata log at every start, which alone needs no warning."""
    return action.kind != "segment-recovered"


def _words(action: LoadAction) -> str:
    match action.kind:
        case "segment-truncated" | "segment-emptied":
            done = f"cut from {action.old_size} to {action.new_size} bytes, so that the metadata log ends at offset {action.offset}"
        case "segment-removed":
            done = f"removed with all metadata from offset {action.offset} on"
        case kind:
            done = kind.rpartition("-")[2]
    return f"{done}: {action.reason}"


def check_voter(metadata: MetadataLog, node_id: int, directory_id: str | None) -> None:
    """In a dynamic quorum (KIP-853) a sole voter whose directory id is gone can't elect itself: the broker never registers and ends."""
    voters = metadata.voters
    if voters is None:
        if metadata.data_version == 1 and metadata.is_voter:
            raise StartRefusedError(
                "The voters of the dynamic quorum are neither in a snapshot nor in the log; no controller can be elected."
            )
        return
    if len(voters) == 1 and voters[0][0] == node_id and voters[0][1] != directory_id:
        raise StartRefusedError(
            f"The only voter of the quorum is node {node_id} with directory id {voters[0][1]}; "
            f"this directory's id is {directory_id}: no controller "
            "can be elected, and the broker's registration times out."
        )


def _metadata_records(batch: Batch) -> Iterator[MetadataRecord]:
    for record in batch.iterate():
        if record.value is not None:
            yield read_metadata_record(record.value)


def _batches(data: bytes, *, check_crc: bool, what: str) -> Iterator[Batch]:
    """Yield the batches up to an incomplete one, as RecordsIterator does; other damage ends the node."""
    for item in scan(BytesSource(data), check_crc=check_crc, resync=False):
        if isinstance(item, Batch):
            yield item
        elif not _is_incomplete(item):
            raise StartRefusedError(f"{what}: {item.reason}")


def _is_incomplete(damage: Damage) -> bool:
    return damage.code == "torn-tail"


def _read_bootstrap(files: Files, log_dir: str) -> list[MetadataRecord] | None:
    path = posixpath.join(log_dir, BOOTSTRAP_FILE)
    if not files.exists(path):
        return None
    records: list[MetadataRecord] = []
    try:
        for batch in _batches(files.read_all(path), check_crc=False, what=path):
            if not batch.is_control:
                records.extend(_metadata_records(batch))
    except DecodeError as error:
        raise StartRefusedError(f"{path}: {error.reason}") from error
    if not any(record.name == "FeatureLevelRecord" and record.fields["name"] == "metadata.version" for record in records):
        raise StartRefusedError(
            "No FeatureLevelRecord for metadata.version was found in the bootstrap metadata from the binary bootstrap metadata file: "
            f"{path}"
        )
    return records


def _apply_bootstrap(records: list[MetadataRecord] | None, image: ClusterImage) -> None:
    """Fill an empty metadata log from the bootstrap records. A feature that the controller does not know ends the node."""
    for record in records or ():
        if record.name == "FeatureLevelRecord":
            name, level = record.fields["name"], record.fields["feature_level"]
            if name not in KNOWN_FEATURES and level != 0:
                raise StartRefusedError(
                    f"Tried to apply FeatureLevelRecord(name='{name}', featureLevel={level}), but this controller only supports versions 0"
                )
        image.replay(record)


def _read_quorum_state(files: Files, path: str, result: MetadataLog) -> None:
    state_path = posixpath.join(path, QUORUM_STATE)
    if not files.exists(state_path):
        return
    try:
        state = read_quorum_state(files.read_all(state_path), file=state_path)
    except DecodeError as error:
        raise StartRefusedError(f"Error while reading the Quorum status from the file {state_path}: {error.reason}") from error
    result.data_version = state.data_version
    result.is_voter = state.leader_id >= 0 or state.voted_id >= 0


def _latest_snapshot(files: Files, path: str, log_start: int) -> tuple[int, str] | None:
    """KafkaRaftLog.recoverSnapshots: partial, deleted and too old snapshots are removed, and one at or above the log start must exist."""
    retained: list[tuple[int, int, str]] = []
    unneeded: list[str] = []
    for name in files.list(path):
        match = _SNAPSHOT.match(name)
        if match is None:
            continue
        if match[3] is not None or int(match[1]) < log_start:
            unneeded.append(name)
        else:
            retained.append((int(match[1]), int(match[2]), name))
    if log_start > 0 and not retained:
        raise StartRefusedError(
            f"Inconsistent snapshot state: there must be a snapshot at an offset larger then the current log start offset "
            f"{log_start}, but the latest "
            "snapshot is Optional.empty"
        )
    for name in unneeded:
        files.unlink(posixpath.join(path, name))
    if not retained:
        return None
    offset, _, name = max(retained)
    return offset, name


def _replay_snapshot(files: Files, path: str, image: ClusterImage, result: MetadataLog) -> None:
    seen = False
    for batch in _batches(files.read_all(path), check_crc=True, what=path):
        seen = True
        _replay_batch(batch, image, result, path)
    if not seen and posixpath.basename(path) != BOOTSTRAP_SNAPSHOT:
        raise StartRefusedError(f"{path}: the snapshot has no batch (NoSuchElementException)")


def _replay_log(files: Files, path: str, result: MetadataLog, image: ClusterImage, start: int) -> None:
    log = result.log
    assert log is not None
    for segment in log.segments:
        segment_path = posixpath.join(path, f"{segment.base_offset:020d}.log")
        with files.open(segment_path) as file:
            for item in scan(file, check_crc=False, resync=False):
                if isinstance(item, Damage) or item.base_offset >= log.log_end_offset:
                    break
                if item.last_offset >= start:
                    _replay_batch(item, image, result, segment_path)


def _replay_batch(batch: Batch, image: ClusterImage, result: MetadataLog, path: str) -> None:
    try:
        if batch.is_control:
            for record in batch.iterate():
                control = read_control_record(record).value
                if isinstance(control, KRaftVoters):
                    result.voters = read_kraft_voters(control.raw)
            return
        for each in _metadata_records(batch):
            image.replay(each)
    except DecodeError as error:
        raise StartRefusedError(f"Error loading metadata log record from offset {batch.base_offset} ({path}): {error.reason}") from error


def stray_rule(image: ClusterImage, node_id: int) -> Callable[[str | None, str, int], str | None]:
    """Return LogManager.isStrayReplica for this image."""

    def is_stray(topic_id: str | None, topic: str, partition: int) -> str | None:
        if topic_id is None:
            return NO_TOPIC_ID
        replicas = image.replicas(topic_id, partition)
        if not replicas:
            return (
                f"the topicId {topic_id} does not exist in the metadata image"
                if topic_id not in image.topics
                else (f"the metadata image has no partition {partition} of {topic}")
            )
        if node_id not in replicas:
            return f"the current replica assignment {replicas} does not contain the local brokerId {node_id}"
        return None

    return is_stray
