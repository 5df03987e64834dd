"""How a broker starts with its log directories: which errors abort startup, which directories go offline, what is loaded and how.

The rules are those of Apache Kafka 4.3:

- `MetaPropertiesEnsemble.verify` and `KafkaRaftServer.initializeLogDirs`: meta.properties.
- `LogManager.createAndValidateLogDirs`, `loadLogs` and `loadLog`: markers, checkpoints, folder names, stray and duplicate partitions.
- `ReplicaManager`: replication-offset-checkpoint, read when the first partition of a directory becomes leader or follower.
- `LogCleanerManager`: cleaner-offset-checkpoint, read in the cleaner's first round.

A live broker (`kops.storage.manager.log_manager`) and the forecast run the same code. The forecast passes an overlay. The broker passes a
`load` that opens a log for writing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from kops.errors import DecodeError
from kops.files import Files
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties
from kops.storage.formats.names import PartitionDir, parse_partition_dir
from kops.storage.segment_files.paths import is_directory
from kops.storage.start.loader import LoadedLog, load_partition

if TYPE_CHECKING:
    from kops.config.topic import TopicConfig

META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_TOPIC = "__cluster_metadata"
METADATA_DIR = "__cluster_metadata-0"
REMOTE_INDEX_CACHE = "remote-log-index-cache"
RESERVED_DIRECTORY_IDS = 100
"""Uuids whose 128 bits are a number below this are reserved and never name a directory (DirectoryId.reserved)."""

Offsets = dict[tuple[str, int], int]
DirOutcome = Literal["started", "log-dir-offline", "broker-does-not-start"]
PartitionOutcome = Literal["loaded", "not-served", "log-dir-offline", "broker-does-not-start", "stray"]
StrayRule = Callable[[str | None, str, int], str | None]
"""(topic id, topic, partition) -> the reason why Kafka calls the replica stray, or None."""
Job = Callable[[], None]
Runner = Callable[[list[list[Job]]], None]
"""Runs all jobs, given as one list for each log directory. Returns when all are done, or raises the exception of a job."""


class StartRefusedError(Exception):
    """The broker exits before it loads anything. `str()` is Kafka's reason."""


@dataclass(slots=True)
class PartitionStart:
    """The result of startup for one partition's folder.

    `state` is `clean` (the marker exists), `left` (no marker, a recovery point above zero) or `full` (no marker, no recovery point). `log`
    is the loaded log, or None if `LoadOptions.load` keeps it elsewhere. `error` is the error that ended the loading. `outcome` already
    includes the consequences for directory and broker. `remaining_segments` counts down while the log is recovered. `high_watermark` is the
    checkpointed one, or None if it was not read.
    """

    path: str
    name: PartitionDir
    state: str
    recovery_point: int
    log_start_checkpoint: int
    outcome: PartitionOutcome = "loaded"
    reason: str | None = None
    log: LoadedLog | None = None
    error: LoadError | None = None
    is_done: bool = False
    remaining_segments: int = 0
    high_watermark: int | None = None

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the log is loaded without recovery."""
        return self.state == "clean"


@dataclass(slots=True)
class LogDirStart:
    """The result of startup for one log directory."""

    path: str
    outcome: DirOutcome = "started"
    reason: str | None = None
    error: Exception | None = None
    had_clean_shutdown: bool = False
    meta: MetaProperties | None = None
    partitions: list[PartitionStart] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def remaining_logs(self) -> int:
        """The number of logs still to be loaded (Kafka's gauge remainingLogsToRecover)."""
        return sum(not partition.is_done for partition in self.partitions)

    @property
    def remaining_segments(self) -> int:
        """The number of segments still to be recovered in the logs that are being loaded (remainingSegmentsToRecover)."""
        return sum(partition.remaining_segments for partition in self.partitions)

    def go_offline(self, reason: str, error: Exception | None = None) -> None:
        """Take the directory offline. As in LogDirFailureChannel, the first failure counts."""
        if self.outcome == "started":
            self.outcome, self.reason, self.error = "log-dir-offline", reason, error


@dataclass(slots=True)
class BrokerStart:
    """The result of the whole startup. `outcome` is that of Kafka's process. The directories are in the order of `log.dirs`."""

    outcome: Literal["started", "started-log-dir-offline", "does-not-start"] = "started"
    reason: str | None = None
    log_dirs: list[LogDirStart] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, reason: str) -> None:
        """End the process. The first reason counts."""
        if self.outcome != "does-not-start":
            self.outcome, self.reason = "does-not-start", reason


@dataclass(slots=True)
class LoadOptions:
    """Options for loading partitions. `config(topic)` returns a topic's settings. `clean_shutdown` and `recovery_point` override the values
    on disk. `load` loads one partition's folder without setting `PartitionStart.log`, and returns the topic's id.
    """

    config: Callable[[str], TopicConfig]
    now_ms: int
    clean_shutdown: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    producer_id_expiration_ms: int = 86_400_000
    is_stray: StrayRule | None = None
    load: Callable[[PartitionStart], str | None] | None = None


def run_in_turn(jobs: list[list[Job]]) -> None:
    """Run the jobs one after the other: the `Runner` without threads."""
    for of_one_dir in jobs:
        for job in of_one_dir:
            job()


def check_meta_properties(files: Files, paths: Sequence[str], *, node_id: int | None, metadata_log_dir: str) -> list[LogDirStart]:
    """Read and verify meta.properties of all directories, given in the order of `log.dirs`.

    If `node_id` is None, the first one found counts. Returns a `LogDirStart` for each directory, which is offline if its file can't be
    read. Raises `StartRefusedError` with Kafka's reason if the process would exit.
    """
    starts = [LogDirStart(path) for path in paths]
    missing: list[str] = []
    for start in starts:
        try:
            start.meta = read_meta_properties(files.read_all(posixpath.join(start.path, META_PROPERTIES)))
        except FileNotFoundError:
            missing.append(start.path)
        except (DecodeError, OSError) as error:
            reason = error.reason if isinstance(error, DecodeError) else str(error)
            start.go_offline(f"Error while reading meta.properties file {start.path}/{META_PROPERTIES}: {reason}", error)
    _verify_ensemble(starts, node_id)
    for start in starts:
        if start.path == metadata_log_dir and start.outcome != "started":
            raise StartRefusedError(
                f"Encountered I/O error in metadata log directory {metadata_log_dir}. Cannot continue. ({start.reason})"
            )
        if start.path != metadata_log_dir and files.exists(posixpath.join(start.path, METADATA_DIR)):
            raise StartRefusedError(
                f"Found unexpected metadata location in data directory `{start.path}/{METADATA_DIR}` (the configured metadata directory is "
                f"{metadata_log_dir})."
            )
    if missing:
        raise StartRefusedError(f"No `meta.properties` found in {min(missing)} (have you run `kafka-storage.sh` to format the directory?)")
    for start in sorted(starts, key=lambda each: each.path):
        if start.meta is not None and start.meta.node_id is None:
            raise StartRefusedError(f"Error: node ID not found in {start.path}")
        if start.meta is not None and start.meta.cluster_id is None:
            raise StartRefusedError(f"Error: cluster ID not found in {start.path}")
    return starts


def _verify_ensemble(starts: list[LogDirStart], node_id: int | None) -> None:
    readable = [start for start in starts if start.meta is not None]
    if not readable:
        detail = "".join(f" ({start.reason})" for start in starts[:1] if start.reason)
        raise StartRefusedError(f"No readable meta.properties files found.{detail}")
    cluster_id: str | None = None
    seen: dict[str, str] = {}
    for start in sorted(readable, key=lambda each: each.path):
        meta = start.meta
        assert meta is not None
        path = posixpath.join(start.path, META_PROPERTIES)
        if meta.cluster_id is not None:
            cluster_id = meta.cluster_id if cluster_id is None else cluster_id
            if meta.cluster_id != cluster_id:
                raise StartRefusedError(f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {meta.cluster_id}")
        if meta.node_id is not None:
            node_id = meta.node_id if node_id is None else node_id
            if meta.node_id != node_id:
                raise StartRefusedError(
                    f"Stored node id {meta.node_id} doesn't match previous node id {node_id} in {path}. "
                    "If you moved your data, make sure your "
                    "configured node id matches. If you intend to create a new node, you should remove all data in your data directories."
                )
        if meta.directory_id is not None:
            if _reserved(meta.directory_id):
                raise StartRefusedError(f"Invalid reserved directory ID {meta.directory_id} found in {start.path}")
            if meta.directory_id in seen:
                raise StartRefusedError(
                    f"Duplicate directory ID {meta.directory_id} found. "
                    f"It was the ID of {seen[meta.directory_id]}, but also of {start.path}"
                )
            seen[meta.directory_id] = start.path


def _reserved(directory_id: str) -> bool:
    import base64

    raw = base64.urlsafe_b64decode(directory_id + "=" * (-len(directory_id) % 4))
    return int.from_bytes(raw, "big") < RESERVED_DIRECTORY_IDS


def start_log_dirs(files: Files, starts: list[LogDirStart], options: LoadOptions, *, run: Runner = run_in_turn) -> BrokerStart:
    """Load every partition of every live directory and apply the consequences, as LogManager and ReplicaManager do.

    All writes go through `files`. `run` may run the jobs of the directories at the same time.
    """
    broker = BrokerStart(log_dirs=starts)
    jobs: list[list[Job]] = []
    for start in starts:
        if start.outcome == "started":
            try:
                jobs.append(_jobs_of_dir(files, start, options))
            except StartRefusedError as error:
                start.outcome, start.reason = "broker-does-not-start", str(error)
                broker.refuse(str(error))
            except OSError as error:
                start.go_offline(f"Error while loading log dir {start.path}: {error}", error)
    run(jobs)
    list_unloaded(files, starts)
    _find_duplicates(broker)
    for start in starts:
        _judge_partitions(broker, start)
    if broker.outcome != "does-not-start":
        for start in starts:
            if start.outcome == "started":
                _read_high_watermarks(files, start)
                _read_cleaner_checkpoint(files, start)
    finish(broker)
    return broker


def list_unloaded(files: Files, starts: list[LogDirStart]) -> None:
    """List the partitions of directories that were not loaded at all. These are neither changed nor served."""
    for start in starts:
        if start.partitions or start.outcome == "started" or not files.exists(start.path):
            continue
        for name in files.list(start.path):
            try:
                parsed = parse_partition_dir(name)
            except DecodeError:
                continue  # the directory's result already reports what this folder's name means for startup
            path = posixpath.join(start.path, name)
            if parsed.topic != METADATA_TOPIC and is_directory(files, path):
                outcome: PartitionOutcome = "log-dir-offline" if start.outcome == "log-dir-offline" else "broker-does-not-start"
                state = "clean" if files.exists(posixpath.join(start.path, CLEAN_SHUTDOWN)) else "full"
                start.partitions.append(PartitionStart(path, parsed, state, 0, 0, outcome, start.reason))


def finish(broker: BrokerStart) -> None:
    """Copy the outcome of broker and directories to the partitions, and the outcome of the directories to the broker."""
    offline = [start for start in broker.log_dirs if start.outcome == "log-dir-offline"]
    for start in offline:
        for partition in start.partitions:
            _fall(partition, "log-dir-offline", start.reason)
    if broker.outcome == "does-not-start":
        for start in broker.log_dirs:
            if start.outcome == "started":
                start.outcome, start.reason = "broker-does-not-start", broker.reason
            if start.outcome == "broker-does-not-start":
                for partition in start.partitions:
                    _fall(partition, "broker-does-not-start", broker.reason)
    elif broker.log_dirs and len(offline) == len(broker.log_dirs):
        paths = ", ".join(start.path for start in broker.log_dirs)
        broker.refuse(f"Shutdown broker because all log dirs in {paths} have failed: {offline[0].reason}")
    elif offline:
        broker.outcome, broker.reason = "started-log-dir-offline", offline[0].reason


def _fall(partition: PartitionStart, outcome: PartitionOutcome, reason: str | None) -> None:
    if partition.outcome != outcome or partition.reason is None:
        partition.outcome = outcome
        partition.reason = str(partition.error) if partition.error is not None else reason


def _read_offsets(files: Files, start: LogDirStart, name: str, consequence: str) -> Offsets:
    """Read an offset checkpoint as the broker does: a malformed line takes the directory offline, a bad number resets the file."""
    path = posixpath.join(start.path, name)
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return {}
    try:
        return {(each.topic, each.partition): offset for each, offset in read_offset_checkpoint(data, file=path).items()}
    except DecodeError as error:
        if error.code == "checkpoint-number":
            start.warnings.append(f"{path}: {error.reason}: {consequence}")
            return {}
        start.go_offline(f"Error while reading checkpoint file {path}: {error.reason}", error)
        return {}


def _jobs_of_dir(files: Files, start: LogDirStart, options: LoadOptions) -> list[Job]:
    """Remove the marker, read the checkpoints and find the folders. Returns a job for each folder that loads it."""
    marker = posixpath.join(start.path, CLEAN_SHUTDOWN)
    found = files.exists(marker)
    if found:
        files.unlink(marker)
    start.had_clean_shutdown = found if options.clean_shutdown is None else options.clean_shutdown
    recovery_points = _read_offsets(files, start, RECOVERY_POINT_CHECKPOINT, "all recovery points are reset to 0")
    log_starts = _read_offsets(
        files, start, LOG_START_OFFSET_CHECKPOINT, "all log start offsets are reset to the first segment's base offset"
    )
    folders: list[tuple[str, PartitionDir]] = []
    for name in files.list(start.path):
        path = posixpath.join(start.path, name)
        if name == REMOTE_INDEX_CACHE or not is_directory(files, path):
            continue
        try:
            parsed = parse_partition_dir(name)
        except DecodeError as error:
            raise StartRefusedError(
                f"Found directory {path}, '{name}' is not in the form of topic-partition or topic-partition.uniqueId-delete "
                f"(if marked for deletion): {error.reason}"
            ) from error
        if parsed.topic != METADATA_TOPIC:
            folders.append((path, parsed))
    for path, parsed in folders:
        key = (parsed.topic, parsed.partition)
        recovery_point = recovery_points.get(key, 0) if options.recovery_point is None else options.recovery_point
        log_start = log_starts.get(key, 0) if options.log_start_offset is None else options.log_start_offset
        start.partitions.append(_partition_start(path, parsed, recovery_point, log_start, clean=start.had_clean_shutdown))
    return [partial(_load, files, partition, options) for partition in start.partitions]


def load_one(
    files: Files, path: str, name: PartitionDir, recovery_point: int, log_start: int, *, clean: bool, options: LoadOptions
) -> PartitionStart:
    """Load one partition's folder. An error is stored in the result, not raised."""
    partition = _partition_start(path, name, recovery_point, log_start, clean=clean)
    _load(files, partition, options)
    return partition


def _partition_start(path: str, name: PartitionDir, recovery_point: int, log_start: int, *, clean: bool) -> PartitionStart:
    state = "clean" if clean else ("left" if recovery_point > 0 else "full")
    return PartitionStart(path, name, state, recovery_point, log_start)


def _load(files: Files, partition: PartitionStart, options: LoadOptions) -> None:
    name = partition.name
    try:
        topic_id = _load_log(files, partition, options) if options.load is None else options.load(partition)
    except LoadError as error:
        partition.error = error
        partition.outcome = error.kind
        partition.reason = str(error)
        return
    finally:
        partition.is_done = True
    if name.state == "stray":
        partition.outcome, partition.reason = "stray", "the folder is already marked stray"
    elif name.state != "delete" and options.is_stray is not None:
        reason = options.is_stray(topic_id, name.topic, name.partition)
        if reason is not None:
            partition.outcome, partition.reason = "stray", reason


def _load_log(files: Files, partition: PartitionStart, options: LoadOptions) -> str | None:
    partition.log = load_partition(
        files,
        partition.path,
        options.config(partition.name.topic),
        log_start_offset=partition.log_start_checkpoint,
        recovery_point=partition.recovery_point,
        clean_shutdown=partition.had_clean_shutdown,
        now_ms=options.now_ms,
        producer_id_expiration_ms=options.producer_id_expiration_ms,
    )
    return partition.log.topic_id


def _find_duplicates(broker: BrokerStart) -> None:
    seen: dict[tuple[str, int, str], str] = {}
    for start in broker.log_dirs:
        for partition in start.partitions:
            if partition.outcome != "loaded" or partition.name.state == "delete":
                continue
            key = (partition.name.topic, partition.name.partition, partition.name.state)
            if key in seen:
                reason = (
                    f"Duplicate log directories for {key[0]}-{key[1]} are found in both {seen[key]} and {partition.path}. "
                    "It is likely because log "
                    "directory failure happened while broker was replacing current replica with future replica."
                )
                partition.outcome, partition.reason = "broker-does-not-start", reason
                broker.refuse(reason)
            seen.setdefault(key, partition.path)


def _judge_partitions(broker: BrokerStart, start: LogDirStart) -> None:
    for partition in start.partitions:
        if partition.error is None:
            continue
        if partition.error.kind == "log-dir-offline":
            start.go_offline(f"Error while loading log dir {start.path}: {partition.path}: {partition.error}", partition.error)
        else:
            broker.refuse(f"{partition.path}: {partition.error}")


def _served(start: LogDirStart) -> list[PartitionStart]:
    return [partition for partition in start.partitions if partition.outcome == "loaded" and partition.name.state == ""]


def _read_high_watermarks(files: Files, start: LogDirStart) -> None:
    served = _served(start)
    if not served:
        return
    before = len(start.warnings)
    offsets = _read_offsets(files, start, HIGH_WATERMARK_CHECKPOINT, "the broker runs and serves no partition of this directory")
    if len(start.warnings) > before:
        for partition in served:
            partition.outcome, partition.reason = "not-served", start.warnings[-1]
        return
    for partition in served:
        partition.high_watermark = offsets.get((partition.name.topic, partition.name.partition), 0)
        if partition.log is not None:
            partition.log.high_watermark = partition.high_watermark


def _read_cleaner_checkpoint(files: Files, start: LogDirStart) -> None:
    _read_offsets(files, start, CLEANER_CHECKPOINT, "the log cleaner's thread ends; nothing is compacted any more")
