"""`kops log compaction`: what the log cleaner would do with each compacted partition, what holds it back, and when tombstones go.

Sources: Kafka's `LogCleanerManager` (the dirty range, the ratio, the choice), `Cleaner` (delete horizons), `LogConfig`. The log is
opened as by a starting broker, over an overlay that keeps writes in memory. `kops.storage.cleaning` computes the same as in a running
broker.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, topic_config
from kops.errors import DecodeError, KopsError
from kops.files import Files
from kops.files.tree import OverlayFiles
from kops.forensics.inventory.replicas import Replica, broker_id
from kops.forensics.inventory.tree import open_paths
from kops.forensics.questions.horizons import Deletions, read_deletions
from kops.forensics.questions.reading import Unread, answers, by_replica
from kops.forensics.repair.topics import TopicIds
from kops.forensics.verify.parts import Part
from kops.metadata import ClusterImage
from kops.metadata.cluster_image import BROKER_RESOURCE
from kops.storage.cleaning.cleaner_manager import (
    LogToClean,
    cleanable_offsets,
    log_to_clean,
    max_compaction_delay,
    non_active_segments_from,
)
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.formats.names import CLEANER_OFFSET_CHECKPOINT
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kops.storage.unified_log import UnifiedLog

SCHEMA: Final = "kops.compaction/v1"
COMPACTED_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
"""Topics that Kafka creates with cleanup.policy=compact."""
METADATA_TOPIC: Final = "__cluster_metadata"
DUE: Final = "due"
BELOW_RATIO: Final = "below-ratio"
NOTHING: Final = "nothing-dirty"
HELD_BACK: Final = "held-back"
UNREADABLE: Final = "not-loaded"
_CHECKPOINTS: Final = (CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)


class Limit(NamedTuple):
    """Something that keeps the cleaner from `offset` on. `until_ms` is the time at which it ends, if that is known."""

    cause: str
    offset: int
    detail: str
    until_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return dict(self._asdict())


@dataclass(slots=True)
class Compaction:
    """The answer about one partition. `turn` is its place in the order in which the cleaner would take the logs that are due."""

    replica: Replica
    policy: str
    policy_from: str
    verdict: str = UNREADABLE
    reason: str = ""
    turn: int | None = None
    checkpoint: int | None = None
    first_dirty_offset: int | None = None
    clean_until: int | None = None
    log_end_offset: int | None = None
    clean_bytes: int = 0
    cleanable_bytes: int = 0
    uncleanable_bytes: int = 0
    ratio: float | None = None
    min_ratio: float | None = None
    overdue_ms: int = 0
    limits: list[Limit] = field(default_factory=list)
    deletions: Deletions | None = None
    unread: bool = False
    """Whether a file could not be read. `reason` then says why."""

    def to_row(self) -> dict[str, Any]:
        """Return a row of `kops.compaction/v1`."""
        directory, found = self.replica.directory, self.deletions
        return {
            "name": directory.name,
            "broker": self.replica.broker,
            "topic": directory.topic,
            "partition": directory.partition,
            "dir": self.replica.given,
            "policy": self.policy,
            "policy_from": self.policy_from,
            "verdict": self.verdict,
            "turn": self.turn,
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "min_ratio": self.min_ratio,
            "overdue_ms": self.overdue_ms,
            "checkpoint": self.checkpoint,
            "first_dirty_offset": self.first_dirty_offset,
            "clean_until": self.clean_until,
            "log_end_offset": self.log_end_offset,
            "clean_bytes": self.clean_bytes,
            "cleanable_bytes": self.cleanable_bytes,
            "uncleanable_bytes": self.uncleanable_bytes,
            "limits": [each.to_json() for each in self.limits],
            "tombstones": None if found is None else found.tombstones,
            "tombstones_due": None if found is None else found.due,
            "tombstones_waiting": None if found is None else found.waiting,
            "tombstones_new": None if found is None else found.new,
            "next_horizon": None if found is None else found.next_horizon,
            "last_horizon": None if found is None else found.last_horizon,
            "records_without_key": None if found is None else found.without_key,
            "damaged": 0 if found is None else found.damaged,
            "reason": self.reason,
        }


@dataclass(slots=True)
class _Beside:
    """The surroundings of a partition directory: checkpoints, the marker of a clean stop, the cluster's metadata."""

    offsets: dict[str, Mapping[TopicPartition, int]]
    was_stopped_cleanly: bool
    image: ClusterImage | None
    node_id: int | None


class CompactionReport:
    """The answers about some replicas: the compacted ones in the order of their names, and the number of the others.

    `overrides` are topic settings that override all others. A partition of a topic whose policy is not known counts as compacted if
    the cleaner's checkpoint names it. Raises UsageError for a setting that is not allowed.
    """

    def __init__(self, files: Files, replicas: Sequence[Replica], overrides: Mapping[str, str], now_ms: int) -> None:
        topic_config(overrides)
        self._files = files
        self._overrides = overrides
        self._now_ms = now_ms
        self._beside: dict[str, _Beside] = {}
        self.others: list[Replica] = []
        self.compacted: list[tuple[Replica, TopicConfig, str]] = []
        for replica in replicas:
            if replica.directory.topic in (None, METADATA_TOPIC):
                continue
            config, source = self._config(replica)
            if config.compact:
                self.compacted.append((replica, config, source))
            else:
                self.others.append(replica)

    def answers(self, *, with_tombstones: bool, jobs: int | None = None, on_bytes: Callable[[int], None] | None = None) -> list[Compaction]:
        """Look into the logs. The logs that are due get their turns, separately for each broker.

        `jobs` is the number of processes that count tombstones (see `kops.forensics.questions.reading.answers`).
        """
        found = [self._answer(*each) for each in self.compacted]
        loaded = [each for each in found if each.verdict != UNREADABLE]
        if with_tombstones:
            self._count_tombstones(loaded, jobs, on_bytes)
        brokers = {each.replica.broker for each in found}
        for broker in brokers:
            due = [each for each in found if each.replica.broker == broker and each.verdict == DUE]
            for turn, each in enumerate(sorted(due, key=lambda each: -(each.ratio or 0.0)), 1):
                each.turn = turn
        return found

    def _count_tombstones(self, found: Sequence[Compaction], jobs: int | None, on_bytes: Callable[[int], None] | None) -> None:
        def read(part: Part) -> Deletions:
            return read_deletions(self._files, part, found[part.number].clean_until or 0, self._now_ms)

        replicas = [each.replica for each in found]
        source = by_replica(answers(self._files, replicas, read, jobs=jobs, on_bytes=on_bytes), len(found))
        for answer, parts in zip(found, source, strict=True):
            whole = Deletions()
            for each in parts:
                if isinstance(each, Unread):
                    answer.unread, answer.reason = True, f"{each.file}: {each.reason}"
                else:
                    whole.merge(each)
            if not answer.unread:
                answer.deletions = whole

    # what is known --------------------------------------------------------------------------------------------------------------------

    def _around(self, replica: Replica) -> _Beside:
        parent = posixpath.dirname(replica.directory.path)
        if parent not in self._beside:
            inventory = open_paths([parent], self._files)
            own = [each for each in inventory.log_dirs if self._files.absolute(each.path) == parent]
            has_metadata = any(each.topic == METADATA_TOPIC for log_dir in own for each in log_dir.partitions)
            inventory.log_dirs = own
            self._beside[parent] = _Beside(
                {name: self._read(posixpath.join(parent, name)) for name in _CHECKPOINTS},
                self._files.exists(posixpath.join(parent, CLEAN_SHUTDOWN)),
                TopicIds(self._files, inventory).image() if has_metadata else None,
                broker_id(self._files, own[0]) if own else None,
            )
        return self._beside[parent]

    def _read(self, path: str) -> Mapping[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._files.read_all(path), file=path)
        except (DecodeError, OSError):
            return {}  # as in a broker, which logs it; kops log verify reports it

    def _config(self, replica: Replica) -> tuple[TopicConfig, str]:
        """Return the settings in Kafka's order of precedence, and the source of the policy."""
        beside, topic = self._around(replica), replica.directory.topic or ""
        settings: dict[str, str] = {}
        broker: dict[str, str] = {}
        if beside.image is not None:
            settings = {key: value for key, value in beside.image.topic_config(topic).items() if key in TOPIC_CONFIG_DEF.keys}
            for node in ("", str(beside.node_id)):
                broker.update(beside.image.configs.get((BROKER_RESOURCE, node), {}))
        source = "topic" if "cleanup.policy" in settings else "metadata" if beside.image is not None else "default"
        if beside.image is None:
            if topic in COMPACTED_TOPICS:
                settings["cleanup.policy"], source = "compact", "internal-topic"
            elif _key(replica) in beside.offsets[CLEANER_OFFSET_CHECKPOINT]:
                settings["cleanup.policy"], source = "compact", "cleaner-checkpoint"
        if "cleanup.policy" in self._overrides:
            source = "--config"
        return topic_config({**settings, **self._overrides}, broker), source

    # one log --------------------------------------------------------------------------------------------------------------------------

    def _answer(self, replica: Replica, config: TopicConfig, source: str) -> Compaction:
        beside, key = self._around(replica), _key(replica)
        policy = ",".join(each for each, is_set in (("compact", config.compact), ("delete", config.delete)) if is_set)
        answer = Compaction(replica, policy, source, checkpoint=beside.offsets[CLEANER_OFFSET_CHECKPOINT].get(key))
        answer.min_ratio = config.min_cleanable_dirty_ratio
        try:
            log = self._open(replica, config, beside)
            try:
                log.update_high_watermark(beside.offsets[HIGH_WATERMARK_CHECKPOINT].get(key, log.log_end_offset))
                self._judge(answer, log, key)
            finally:
                log.close_handlers()
        except KopsError as error:
            # The loader turns an error of the disk into an error of the broker.
            if isinstance(error.__cause__ or error.__context__, OSError):
                self._unread(answer, cast(OSError, error.__cause__ or error.__context__))
            else:
                answer.reason = str(error)
            return answer
        except OSError as error:
            self._unread(answer, error)
            return answer
        return answer

    def _unread(self, answer: Compaction, error: OSError) -> None:
        answer.unread = True
        answer.reason = f"{error.filename or answer.replica.given}: {error.strerror or error}"

    def _open(self, replica: Replica, config: TopicConfig, beside: _Beside) -> UnifiedLog:
        key = _key(replica)
        return UnifiedLog.open(
            OverlayFiles(self._files),
            replica.directory.path,
            config,
            now_ms=self._now,
            scheduler=Scheduler(self._now),
            failures=LogDirFailureChannel(),
            log_start_offset=beside.offsets[LOG_START_OFFSET_CHECKPOINT].get(key, 0),
            recovery_point=beside.offsets[RECOVERY_POINT_CHECKPOINT].get(key, 0),
            had_clean_shutdown=beside.was_stopped_cleanly,
        )

    def _now(self) -> int:
        return self._now_ms

    def _judge(self, answer: Compaction, log: UnifiedLog, key: TopicPartition) -> None:
        words: list[str] = []
        offsets = cleanable_offsets(log, answer.checkpoint, self._now_ms, words.append)
        answer.overdue_ms = max_compaction_delay(log, offsets.first_dirty_offset, self._now_ms)
        found = log_to_clean(key, log, offsets, is_overdue=answer.overdue_ms > 0)
        answer.first_dirty_offset, answer.clean_until = found.span.first_dirty_offset, found.span.first_uncleanable_offset
        answer.log_end_offset = log.log_end_offset
        answer.clean_bytes, answer.cleanable_bytes = found.clean_bytes, found.cleanable_bytes
        answer.uncleanable_bytes = log.size - found.total_bytes
        answer.ratio = found.cleanable_ratio
        answer.limits = limits_of(log, offsets.first_dirty_offset, self._now_ms)
        answer.verdict = _verdict(found, log, answer)
        answer.reason = "; ".join([*words, _why(found, log, answer)])


def _key(replica: Replica) -> TopicPartition:
    return TopicPartition(replica.directory.topic or "", replica.directory.partition)


def _verdict(found: LogToClean, log: UnifiedLog, answer: Compaction) -> str:
    if found.is_overdue and found.cleanable_bytes:
        return DUE
    if found.total_bytes and found.cleanable_ratio > log.config.min_cleanable_dirty_ratio:
        return DUE
    if found.cleanable_bytes:
        return BELOW_RATIO
    return HELD_BACK if any(each.offset < log.segments.active.base_offset for each in answer.limits) else NOTHING


def _why(found: LogToClean, log: UnifiedLog, answer: Compaction) -> str:
    ratio, least = found.cleanable_ratio, log.config.min_cleanable_dirty_ratio
    if answer.verdict == DUE:
        if found.is_overdue and ratio <= least:
            return f"max.compaction.lag.ms is exceeded by {answer.overdue_ms} ms"
        return f"the dirty ratio {ratio:.2f} is above min.cleanable.dirty.ratio {least:.2f}"
    if answer.verdict == BELOW_RATIO:
        return f"the dirty ratio {ratio:.2f} is not above min.cleanable.dirty.ratio {least:.2f}"
    if answer.verdict == HELD_BACK:
        return min(answer.limits, key=lambda each: each.offset).detail
    if not log.size:
        return "the log is empty"
    return f"everything is clean up to the active segment, which begins at {log.segments.active.base_offset}"


def limits_of(log: UnifiedLog, first_dirty_offset: int, now_ms: int) -> list[Limit]:
    """Return what keeps the cleaner from continuing, the nearest first. The active segment is always one of these limits."""
    active = log.segments.active.base_offset
    limits = [Limit("active-segment", active, f"the active segment, which begins at {active}, is never cleaned")]
    stable = log.last_stable_offset
    if stable < log.log_end_offset:
        unstable = log.first_unstable_offset
        transaction = None if unstable is None else log.producers.ongoing_txns.get(unstable)
        if unstable is not None and unstable <= log.high_watermark:
            who = "an undecided transaction" if transaction is None else f"the open transaction of producer {transaction.producer_id}"
            limits.append(Limit("transaction", unstable, f"{who} begins at {unstable}"))
        else:
            limits.append(Limit("high-watermark", stable, f"the high watermark is {stable}, as replication-offset-checkpoint says"))
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in non_active_segments_from(log, first_dirty_offset):
            if segment.largest_timestamp > now_ms - lag_ms:
                base = segment.base_offset
                words = f"the segment that begins at {base} has a record younger than min.compaction.lag.ms {lag_ms}"
                limits.append(Limit("min-compaction-lag", base, words, segment.largest_timestamp + lag_ms))
                break
    return sorted(limits, key=lambda each: each.offset)
