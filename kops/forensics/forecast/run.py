"""Predicts what an Apache Kafka 4.3 broker would do to log directories at its start, and what would be lost.

The loader itself runs, on a copy-on-write overlay.

This module has no loading rules of its own. `kops.storage.start.log_dirs` and `kops.storage.start.loader` run as in a broker, but every
write stays in memory (`OverlayFiles`). This module finds out which paths belong together, which records were readable before and which are
served afterwards. Both reads see the same bytes, even while a broker is writing (`SnapshotFiles`). So records that it appends meanwhile do
not count as lost.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, topic_config
from kops.config.values.java import NumberFormatError, parse_int
from kops.config.values.properties import read_properties
from kops.errors import DecodeError, NotFoundError, UsageError
from kops.files import Files, OverlayFiles, SnapshotFiles
from kops.forensics.forecast.consumer import Consumer, Served
from kops.forensics.forecast.metadata_log import NO_TOPIC_ID, check_voter, load_metadata_log, stray_rule
from kops.forensics.forecast.offset_ranges import clip, merge, subtract
from kops.forensics.forecast.on_disk import OnDisk, live_segments, offsets_on_disk
from kops.metadata import ClusterImage
from kops.metadata.cluster_image import BROKER_RESOURCE
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.names import parse_partition_dir
from kops.storage.start.log_dirs import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSET_CHECKPOINT,
    METADATA_DIR,
    RECOVERY_POINT_CHECKPOINT,
    BrokerStart,
    LoadOptions,
    LogDirStart,
    PartitionStart,
    StartRefusedError,
    StrayRule,
    check_meta_properties,
    finish,
    list_unloaded,
    load_one,
    start_log_dirs,
)

SCHEMA = "kops.forecast/v1"
ZOOKEEPER = (
    "a broker with ZooKeeper wrote this directory; Kafka 4 has no ZooKeeper and would find none of its topics in the metadata; "
    "this forecast covers only the loading of the logs"
)
PRODUCER_EXPIRATION = "producer.id.expiration.ms"
DEFAULT_EXPIRATION_MS = 86_400_000


@dataclass(slots=True)
class PartitionForecast:
    """One partition directory. Offsets are log offsets, `lost` and `lost_though_intact` closed ranges of data offsets no longer served."""

    dir: str
    topic: str | None
    partition: int
    state: str
    outcome: str
    reason: str | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    recovery_point: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    lost_though_intact: list[tuple[int, int]] = field(default_factory=list)
    segments_removed: list[str] = field(default_factory=list)
    segments_truncated: list[dict[str, int | str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As in `kops.forecast/v1`."""
        return {
            "dir": self.dir,
            "topic": self.topic,
            "partition": self.partition,
            "state": self.state,
            "outcome": self.outcome,
            "reason": self.reason,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "recovery_point": self.recovery_point,
            "lost": [list(each) for each in self.lost],
            "lost_though_intact": [list(each) for each in self.lost_though_intact],
            "segments_removed": self.segments_removed,
            "segments_truncated": self.segments_truncated,
        }


@dataclass(slots=True)
class Forecast:
    """The whole result; `broker` is None if only partition directories were given."""

    partitions: list[PartitionForecast] = field(default_factory=list)
    broker_outcome: str | None = None
    broker_reason: str | None = None
    log_dirs: list[dict[str, str | None]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def harmless(self) -> bool:
        """Whether the broker starts, serves every partition and loses nothing."""
        return self.broker_outcome in (None, "started") and all(
            each.outcome == "loaded" and not each.lost and not each.segments_removed for each in self.partitions
        )

    def to_json(self) -> dict[str, Any]:
        """The document `kops.forecast/v1`."""
        return {
            "schema": SCHEMA,
            "broker": {"outcome": self.broker_outcome, "reason": self.broker_reason},
            "log_dirs": self.log_dirs,
            "partitions": [each.to_json() for each in self.partitions],
            "warnings": self.warnings,
        }


@dataclass(slots=True)
class ForecastOptions:
    """The options: `clean_shutdown`, `recovery_point` and `log_start_offset` replace the state on disk; `overrides` are topic settings,
    `server_properties` the broker's."""

    now_ms: int
    clean_shutdown: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    node_id: int | None = None
    metadata_log_dir: str | None = None
    server_properties: Mapping[str, str] = field(default_factory=dict)


def forecast(files: Files, paths: Sequence[str], options: ForecastOptions) -> Forecast:
    """Forecast the start on `paths`: log directories of one broker (together), or partition directories (each alone).

    `files` is only read. Raises NotFoundError for a missing path, UsageError if the two kinds are mixed or a path is neither.
    """
    kinds = {path: _kind(files, path) for path in paths}
    if len(set(kinds.values())) > 1:
        raise UsageError("forecast takes either the log directories of one broker or partition directories, not both")
    snapshot = SnapshotFiles(files)
    overlay = OverlayFiles(snapshot)
    try:
        if "partition" in kinds.values():
            result = Forecast()
            for path in paths:
                result.partitions.append(_forecast_partition(snapshot, overlay, path.rstrip("/") or "/", options))
            return result
        return _forecast_broker(snapshot, overlay, [path.rstrip("/") or "/" for path in paths], options)
    finally:
        overlay.close_base_files()
        snapshot.close_base_files()


def use_server_properties(files: Files, path: str, options: ForecastOptions) -> list[str]:
    """Take node.id, metadata.log.dir and the log.* defaults from a broker's own settings file; returns its log.dirs."""
    if not files.exists(path):
        raise NotFoundError(f"{path}: no such file or directory")
    properties = read_properties(files.read_all(path), file=path)
    options.server_properties = properties
    if "node.id" in properties:
        try:
            options.node_id = parse_int(properties["node.id"].strip())
        except NumberFormatError as error:
            raise UsageError(f"{path}: node.id={properties['node.id']}: not a number; allowed: 0 or more") from error
    log_dirs = [
        each.strip() for each in properties.get("log.dirs", properties.get("log.dir", "/tmp/kafka-logs")).split(",") if each.strip()
    ]
    options.metadata_log_dir = properties.get("metadata.log.dir", "").strip() or log_dirs[0]
    return log_dirs


def _kind(files: Files, path: str) -> str:
    if not files.exists(path):
        raise NotFoundError(f"{path}: no such file or directory")
    if not files.stat(path).is_dir:
        raise UsageError(f"{path}: not a directory; forecast takes a log directory or a partition directory")
    names = files.list(path)
    if any(name.endswith((".log", ".index", ".timeindex", ".snapshot", ".swap", ".cleaned", ".deleted")) for name in names):
        return "partition"
    if any(name in names for name in ("partition.metadata", "leader-epoch-checkpoint")):
        return "partition"
    return "log-dir"


def _topic_config(options: ForecastOptions, image: ClusterImage | None, node_id: int | None) -> Callable[[str], TopicConfig]:
    """The settings in Kafka's order: --config, the topic's overrides in the metadata, dynamic broker settings, server.properties,
    defaults."""
    broker = dict(options.server_properties)
    if image is not None:
        broker.update(image.configs.get((BROKER_RESOURCE, ""), {}))
        broker.update(image.configs.get((BROKER_RESOURCE, str(node_id)), {}))

    overrides = _settings(options.overrides)

    def config(topic: str) -> TopicConfig:
        settings = dict(image.topic_config(topic)) if image is not None else {}
        known = {key: value for key, value in settings.items() if key in TOPIC_CONFIG_DEF.keys}
        known.update(overrides)
        return topic_config(known, broker)

    return config


def _settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings. A `segment.bytes` below 1 MiB was allowed until 3.9; in 4.x it is `internal.segment.bytes`. The broker's setting
    is not a topic's.
    """
    settings = {key: value for key, value in overrides.items() if key != PRODUCER_EXPIRATION}
    size = settings.get("segment.bytes", "")
    if size.isdecimal() and 14 <= int(size) < 1 << 20:
        settings["internal.segment.bytes"] = settings.pop("segment.bytes")
    return settings


def _no_topic_id(topic_id: str | None, topic: str, partition: int) -> str | None:
    return NO_TOPIC_ID if topic_id is None else None


def _load_options(
    options: ForecastOptions, image: ClusterImage | None = None, node_id: int | None = None, *, is_stray: StrayRule | None = None
) -> LoadOptions:
    return LoadOptions(
        config=_topic_config(options, image, node_id),
        now_ms=options.now_ms,
        clean_shutdown=options.clean_shutdown,
        recovery_point=options.recovery_point,
        log_start_offset=options.log_start_offset,
        producer_id_expiration_ms=_expiration(options),
        is_stray=is_stray,
    )


def _expiration(options: ForecastOptions) -> int:
    text = options.overrides.get(PRODUCER_EXPIRATION, options.server_properties.get(PRODUCER_EXPIRATION))
    if text is None:
        return DEFAULT_EXPIRATION_MS
    try:
        return parse_int(text.strip())
    except NumberFormatError as error:
        raise UsageError(f"{PRODUCER_EXPIRATION}={text}: not allowed; allowed: 1 or more") from error


def _forecast_partition(files: Files, overlay: OverlayFiles, path: str, options: ForecastOptions) -> PartitionForecast:
    """Load one directory as the log loader does, with the marker and the checkpoints of the directory above, if there are any."""
    parent, name = posixpath.split(overlay.absolute(path))
    parsed = parse_partition_dir(name)
    key = (parsed.topic, parsed.partition)
    clean = options.clean_shutdown
    if clean is None:
        clean = files.exists(posixpath.join(parent, CLEAN_SHUTDOWN))
    recovery_point = options.recovery_point
    if recovery_point is None:
        recovery_point = _checkpoint(files, posixpath.join(parent, RECOVERY_POINT_CHECKPOINT)).get(key, 0)
    log_start = options.log_start_offset
    if log_start is None:
        log_start = _checkpoint(files, posixpath.join(parent, LOG_START_OFFSET_CHECKPOINT)).get(key, 0)
    started = load_one(overlay, path, parsed, recovery_point, log_start, clean=clean, options=_load_options(options))
    return _partition_forecast(files, overlay, started)


def _checkpoint(files: Files, path: str) -> Mapping[tuple[str, int], int]:
    try:
        found = read_offset_checkpoint(files.read_all(path), file=path)
        return {(each.topic, each.partition): offset for each, offset in found.items()}
    except (FileNotFoundError, DecodeError):
        # As in a broker, an unreadable checkpoint counts as empty for the partition. (Its effect on the directory is part of the broker's
        # forecast.)
        return {}


def _forecast_broker(files: Files, overlay: OverlayFiles, paths: list[str], options: ForecastOptions) -> Forecast:
    result = Forecast()
    metadata_dir = options.metadata_log_dir or _metadata_dir(files, paths)
    starts = [LogDirStart(path) for path in paths]
    broker = BrokerStart(log_dirs=starts)
    try:
        broker.log_dirs = starts = check_meta_properties(overlay, paths, node_id=options.node_id, metadata_log_dir=metadata_dir)
        meta = next(start.meta for start in starts if start.meta is not None)
        node_id = meta.node_id if options.node_id is None else options.node_id
        assert node_id is not None
        metadata = load_metadata_log(overlay, metadata_dir, now_ms=options.now_ms)
        result.warnings.extend(metadata.warnings)
        own = next((start.meta.directory_id for start in starts if start.path == metadata_dir and start.meta is not None), None)
        check_voter(metadata, node_id, own)
        is_stray: StrayRule | None = stray_rule(metadata.image, node_id) if metadata.image is not None else _no_topic_id
        if metadata.image is None and meta.version == 0:
            is_stray = None
            result.warnings.append(f"{paths[0]}: {ZOOKEEPER}")
        broker = start_log_dirs(overlay, starts, _load_options(options, metadata.image, node_id, is_stray=is_stray))
        if metadata.image is not None:
            _leaderless(broker, metadata.image, node_id)
    except StartRefusedError as error:
        broker.refuse(str(error))
        finish(broker)
        list_unloaded(files, broker.log_dirs)
    _report(result, files, overlay, broker)
    return result


def _metadata_dir(files: Files, paths: list[str]) -> str:
    """The metadata log directory: the one that has the metadata log, else the first of `log.dirs`, which is Kafka's default."""
    for path in paths:
        if files.exists(posixpath.join(path, METADATA_DIR)):
            return path
    return paths[0]


def _leaderless(broker: BrokerStart, image: ClusterImage, node_id: int) -> None:
    """Add warnings about partitions whose assigned directory id no live directory has: they stay without a leader (KIP-858). New ids are
    registered at the start."""
    online = {start.meta.directory_id for start in broker.log_dirs if start.outcome == "started" and start.meta is not None}
    for start in broker.log_dirs:
        for partition in start.partitions:
            if partition.outcome != "loaded" or partition.log is None or partition.log.topic_id is None or partition.name.state:
                continue
            registration = image.partitions.get((partition.log.topic_id, partition.name.partition))
            if registration is None or node_id not in registration.replicas or not registration.directories:
                continue
            assigned = registration.directories[registration.replicas.index(node_id)]
            if assigned not in online and assigned not in _UNASSIGNED:
                partition.outcome = "not-served"
                partition.reason = (
                    f"it is assigned to the directory id {assigned}, which no live log directory has: the partition gets no leader"
                )


# DirectoryId.LOST, UNASSIGNED and MIGRATING: not the id of a directory.
_UNASSIGNED = frozenset(("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"))


def _report(result: Forecast, files: Files, overlay: OverlayFiles, broker: BrokerStart) -> None:
    result.broker_outcome, result.broker_reason = broker.outcome, broker.reason
    result.warnings.extend(broker.warnings)
    for start in broker.log_dirs:
        result.log_dirs.append({"dir": start.path, "outcome": start.outcome, "reason": start.reason})
        result.warnings.extend(start.warnings)
        for partition in start.partitions:
            result.partitions.append(_partition_forecast(files, overlay, partition))


def _partition_forecast(files: Files, overlay: OverlayFiles, started: PartitionStart) -> PartitionForecast:
    """Compare what is on disk with what is served after the start."""
    answer = PartitionForecast(
        dir=started.path,
        topic=started.name.topic,
        partition=started.name.partition,
        state=started.state,
        outcome=started.outcome,
        reason=started.reason,
        recovery_point=started.recovery_point,
    )
    try:
        before = offsets_on_disk(files, started.path)
    except OSError as error:
        answer.reason = f"{answer.reason or ''} ({error.filename or started.path} can't be read: {error.strerror or error})".strip()
        return answer
    served = Served()
    if started.log is not None:
        log = started.log
        answer.log_start_offset, answer.log_end_offset = log.log_start_offset, log.log_end_offset
        _segments(files, overlay, started.path, answer)
        if started.outcome == "loaded":
            served = Consumer(log).run()
            if served.error is not None:
                answer.outcome = "loaded" if served.loops else "loaded-consumer-error"
                answer.reason = f"a consumer ends at offset {served.error_offset}: {served.error}"
        elif started.outcome == "stray":
            _stray(answer, files)
        elif started.outcome == "not-served":
            answer.outcome = "loaded-consumer-error"
    first = _first_wanted(before, started)
    answer.lost = subtract(clip(merge([*before.intact, *before.damaged]), first), served.offsets)
    answer.lost_though_intact = subtract(clip(before.intact, first), served.offsets)
    return answer


def _stray(answer: PartitionForecast, files: Files) -> None:
    """The forecast of a directory that is renamed to `-stray`: all its records are lost. If the topic exists, the partition starts again,
    empty."""
    answer.log_start_offset = answer.log_end_offset = 0
    answer.segments_removed = [posixpath.basename(segment) for _, segment in live_segments(files, answer.dir)]
    answer.segments_truncated.clear()


def _first_wanted(before: OnDisk, started: PartitionStart) -> int:
    """Return the previous log start: the checkpointed one, unless it is beyond everything on disk and therefore wrong."""
    ends = [ranges[-1][1] for ranges in (before.intact, before.damaged) if ranges]
    if ends and started.log_start_checkpoint > max(ends) + 1:
        return 0
    return max(started.log_start_checkpoint, 0)


def _segments(files: Files, overlay: OverlayFiles, path: str, answer: PartitionForecast) -> None:
    for base, segment in live_segments(files, path):
        name = posixpath.basename(segment)
        old = files.stat(segment).size
        if not overlay.exists(segment):
            answer.segments_removed.append(name)
            continue
        new = overlay.stat(segment).size
        if new < old:
            answer.segments_truncated.append({"segment": name, "base_offset": base, "from": old, "to": new})
