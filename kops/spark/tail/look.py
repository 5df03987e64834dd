"""Reads, in the directories of brokers, the state of partitions that are being written: ends, bounds, epochs, and which replica serves.

Sources: Kafka's `ReplicaManager.checkpointHighWatermarks` (`replication-offset-checkpoint`, every
`replica.high.watermark.checkpoint.interval.ms`), `LogManager.checkpointLogStartOffsets`, `LeaderEpochFileCache`, `PartitionMetadataFile`.

The replica whose log ends with the highest leader epoch, then offset, serves: the leader, or a follower that has all that the leader has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError, NotFoundError
from kops.forensics.inventory.replicas import Replica, list_replicas
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.records import Batch, scan
from kops.spark.tail.last_stable import LastStable
from kops.spark.tail.places import before
from kops.spark.tail.planning import View
from kops.spark.tail.positions import Key
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kops.storage.formats.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from kops.files import Files

HIGH_WATERMARK: Final = "high-watermark"
LOG_END: Final = "log-end"
BOUNDS: Final = (HIGH_WATERMARK, LOG_END)
METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica, the readable part of it, and its live segments."""

    replica: Replica
    view: View
    segments: list[Segment]


class _Known(NamedTuple):
    """The end of a log, and the state of its files when it was found."""

    log_path: str
    size: int
    mtime_ms: int
    epochs: tuple[tuple[int, int], ...]
    position: int
    offset: int
    is_torn: bool


class Lookout:
    """Lists the directories repeatedly. `wants` says which topics are read."""

    def __init__(self, files: Files, paths: Sequence[str], wants: Callable[[str], bool], bound: str, *, is_committed: bool) -> None:
        self._files = files
        self._paths = list(paths)
        self._wants = wants
        self._bound = bound
        self._stable = LastStable(files) if is_committed else None
        self._known: dict[str, _Known] = {}

    def first_look(self) -> dict[Key, list[Seen]]:
        """Like `look`, but raises NotFoundError for a missing path or a missing checkpoint of high watermarks, which is a mistake of the
        user."""
        return self._look(is_first=True)

    def look(self) -> dict[Key, list[Seen]]:
        """Return the replicas of each partition of the current topics, the serving one first. Raises OSError if none of them can be
        read."""
        return self._look(is_first=False)

    def _look(self, *, is_first: bool) -> dict[Key, list[Seen]]:
        found: dict[Key, list[Replica]] = {}
        for path in self._paths:
            try:
                listing = list_replicas([path], self._files)
            except NotFoundError:
                if is_first:
                    raise
                continue  # The broker is gone: its partitions are gone, too, or have other replicas.
            # Files disappear while they are listed: brokers write checkpoints beside, and rename them.
            problems = [each for each in listing.inventory.problems if is_first and self._files.exists(each.path)]
            if problems:
                raise NotFoundError(f"{problems[0].path}: {problems[0].reason}")
            for key, replicas in listing.by_partition().items():
                if self._wants(key[0]):
                    found.setdefault(key, []).extend(replicas)
        checkpoints = _Checkpoints(self._files, self._bound, is_first=is_first)
        ids = {each.directory.path: self._topic_id(each.directory) for replicas in found.values() for each in replicas}
        present = _present_ids(found, ids)
        seen: dict[Key, list[Seen]] = {}
        for key, replicas in found.items():
            present_id = present.get(key[0], "")
            ofs = [each for each in replicas if ids[each.directory.path] in ("", present_id)]
            serving = self._serving(checkpoints, present_id, ofs)
            if serving:
                seen[key] = serving
        return seen

    def _serving(self, checkpoints: _Checkpoints, topic_id: str, replicas: Sequence[Replica]) -> list[Seen]:
        looks: list[tuple[Seen, int]] = []
        failure: OSError | None = None
        for each in replicas:
            mark = checkpoints.high_watermark(each.directory)  # Read before the log, which is then at least as long.
            try:
                found = self._replica(checkpoints, topic_id, each)
            except FileNotFoundError:
                continue  # It was deleted or replaced meanwhile.
            except OSError as error:
                failure = error
                continue
            if found is not None:
                looks.append((found, mark))
        if not looks:
            if failure is not None:
                raise failure
            return []
        looks.sort(key=lambda each: (_last_epoch(each[0].view), each[0].view.end, -each[0].view.start), reverse=True)
        # Every replica's high watermark is committed. Those of the same leader epoch agree up to it.
        committed = max(mark for seen, mark in looks if _last_epoch(seen.view) == _last_epoch(looks[0][0].view))
        return [self._bounded(seen, committed) for seen, _ in looks]

    def _bounded(self, seen: Seen, committed: int) -> Seen:
        view = seen.view
        # Below the high watermark the log is complete: bytes there that are not a batch are damage, which the read reports.
        bound = view.end if self._bound == LOG_END or (committed > view.end and not view.is_torn) else committed
        if self._stable is not None and bound > view.start:
            bound = self._stable.offset(seen.replica.directory.path, seen.segments, view.epochs, bound)
        return Seen(seen.replica, View(view.topic_id, view.start, view.end, bound, view.epochs, view.is_torn), seen.segments)

    def _replica(self, checkpoints: _Checkpoints, topic_id: str, replica: Replica) -> Seen | None:
        directory = replica.directory
        segments = live_segments(directory)
        if not segments:
            return None
        epochs = self._epochs(directory)
        known = self._end(directory.path, segments[-1], epochs)
        start = max(segments[0].base_offset, checkpoints.log_start(directory))
        # A log that was emptied begins where it ends.
        return Seen(replica, View(topic_id, start, max(known.offset, start), 0, epochs, known.is_torn), segments)

    def _end(self, path: str, last: Segment, epochs: tuple[tuple[int, int], ...]) -> _Known:
        log = last.log
        assert log is not None
        known = self._known.get(path)
        if known is not None and (known.log_path, known.epochs) == (log.path, epochs) and known.size <= log.size:
            if (known.size, known.mtime_ms) == (log.size, log.mtime_ms):
                return known
            position, offset = known.position, known.offset
        else:
            position, offset = before(self._files, last), last.base_offset
        is_torn = False
        with self._files.open(log.path) as file:
            for item in scan(file, position):
                is_torn = not isinstance(item, Batch)
                if isinstance(item, Batch):
                    position, offset = item.position + item.size, item.next_offset
        self._known[path] = found = _Known(log.path, log.size, log.mtime_ms, epochs, position, offset, is_torn)
        return found

    def _epochs(self, directory: PartitionDir) -> tuple[tuple[int, int], ...]:
        entry = directory.file("leader-epoch-checkpoint")
        if entry is None:
            return ()
        try:
            return tuple(
                (each.epoch, each.start_offset) for each in effective_epochs(read_leader_epoch_checkpoint(self._files.read_all(entry.path)))
            )
        except DecodeError:
            return ()  # `kops log verify` reports it. Without epochs only the ends of logs are compared.

    def _topic_id(self, directory: PartitionDir) -> str:
        entry = directory.file("partition-metadata")
        if entry is None:
            return ""
        try:
            return read_partition_metadata(self._files.read_all(entry.path)).topic_id
        except (DecodeError, OSError):
            return ""


class _Checkpoints:
    """The checkpoints of offsets in log directories, each read once for a listing."""

    def __init__(self, files: Files, bound: str, *, is_first: bool) -> None:
        self._files = files
        self._bound = bound
        self._is_first = is_first
        self._read: dict[str, Mapping[TopicPartition, int] | None] = {}

    def high_watermark(self, directory: PartitionDir) -> int:
        """A partition's high watermark; 0 if it has none yet."""
        if self._bound == LOG_END:
            return 0
        path = os.path.join(os.path.dirname(directory.path), REPLICATION_OFFSET_CHECKPOINT)
        offsets = self._offsets(path)
        if offsets is None and self._is_first:
            raise NotFoundError(
                f"{path}: there is no readable checkpoint of high watermarks; a copy of a log without it can be read with bound={LOG_END}"
            )
        return (offsets or {}).get(_name(directory), 0)

    def log_start(self, directory: PartitionDir) -> int:
        """A partition's log start offset; 0 if it has none."""
        return (self._offsets(os.path.join(os.path.dirname(directory.path), LOG_START_OFFSET_CHECKPOINT)) or {}).get(_name(directory), 0)

    def _offsets(self, path: str) -> Mapping[TopicPartition, int] | None:
        if path not in self._read:
            try:
                data = self._files.read_all(path)
                # A broker that has just started writes it empty.
                self._read[path] = read_offset_checkpoint(data, file=path) if data else {}
            except (DecodeError, FileNotFoundError):
                self._read[path] = None
        return self._read[path]


def live_segments(directory: PartitionDir) -> list[Segment]:
    """The segments that a broker reads, in order, including one with which compaction is about to replace others (`.swap`)."""
    live = {each.base_offset: each for each in directory.segments if each.suffix == ".swap" and each.log is not None}
    live.update({each.base_offset: each for each in directory.live_segments})
    return [live[base] for base in sorted(live)]


def _present_ids(found: Mapping[Key, Sequence[Replica]], ids: Mapping[str, str]) -> dict[str, str]:
    """The current id of each topic. A broker that is down may have directories of an earlier topic, so the newest directory decides."""
    newest: dict[str, tuple[int, str]] = {}
    for (topic, _), replicas in found.items():
        for each in replicas:
            entry, topic_id = each.directory.file("partition-metadata"), ids[each.directory.path]
            if entry is not None and topic_id:
                newest[topic] = max(newest.get(topic, (-1, "")), (entry.mtime_ms, topic_id))
    return {topic: topic_id for topic, (_, topic_id) in newest.items()}


def _last_epoch(view: View) -> int:
    return view.epochs[-1][0] if view.epochs else -1


def _name(directory: PartitionDir) -> TopicPartition:
    return TopicPartition(directory.topic or "", directory.partition)
