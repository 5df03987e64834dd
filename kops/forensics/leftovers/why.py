"""Finds out why something was deleted, or is about to be: causes with their evidence, and how certain they are.

Sources: the parts of Kafka that delete, and the files that each leaves. `UnifiedLog.deleteOldSegments` (retention by time and size, the log
start offset), `Cleaner` (compaction), `LogLoader` and `LocalLog.truncateTo` (recovery, truncation), `LogManager.asyncDelete` and its stray
partitions, RemoveTopicRecord and PartitionRecord of the metadata log.

A cause is `certain` if the files rule out every other, `likely` if they point to it and against the others, `possible` if they do not rule
it out. Kafka does not record why it deletes a segment, so retention is never more than likely.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files, OsFiles
from kops.forensics.inventory.topic_id import topic_id_of
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.leftovers.places import STATES, Contents, Place, contents_of, log_starts, places
from kops.metadata import read_metadata_record
from kops.records import Damage, scan
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.names import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, METADATA_TOPIC

__all__ = ["SCHEMA", "Cause", "Verdict", "why_deleted"]

SCHEMA: Final = "kops.why-deleted/v1"
DEFAULT_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
_TOPIC: Final = 2
_BROKER: Final = 4
_ORDER: Final = ("certain", "likely", "possible")


@dataclass(slots=True)
class Cause:
    """One cause, how certain it is, and the evidence for it."""

    cause: str
    confidence: str
    evidence: list[str]


@dataclass(slots=True)
class Verdict:
    """A deleted file or directory, its offsets if they are known, and the causes, the most certain first. `excluded`: evidence against
    others."""

    path: str
    what: str
    first_offset: int | None = None
    last_offset: int | None = None
    max_timestamp: int | None = None
    causes: list[Cause] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """A row of the document `kops.why-deleted/v1`."""
        return {
            "path": self.path,
            "what": self.what,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "max_timestamp": self.max_timestamp,
            "causes": [{"cause": each.cause, "confidence": each.confidence, "evidence": each.evidence} for each in self.causes],
            "excluded": self.excluded,
        }


def why_deleted(
    paths: Sequence[str | os.PathLike[str]], *, now_ms: int, files: Files | None = None, unreadable: list[str] | None = None
) -> list[Verdict]:
    """Return a verdict for each leftover below the paths, and for each log whose beginning is gone. Nothing is written.

    `unreadable` gets a line for each directory that can't be listed. Raises NotFoundError, UsageError, OSError.
    """
    reader = files if files is not None else OsFiles(read_only=True)
    result: list[Verdict] = []
    for place in places(paths, reader, [] if unreadable is None else unreadable):
        removed = _removed_topics(reader, place)
        for partition in place.chosen:
            if partition.state in STATES:
                result.append(_directory(reader, place, partition, removed))
            elif partition.state == "" and partition.topic != METADATA_TOPIC:
                result += _Log(reader, place, partition, now_ms).verdicts()
    for verdict in result:
        verdict.causes.sort(key=lambda each: _ORDER.index(each.confidence))
    return result


# Directories.


def _removed_topics(files: Files, place: Place) -> dict[str, tuple[int, int]]:
    """Offset and time (ms) of the record that removed a topic, by topic id, as far back as the metadata log goes."""
    found: dict[str, tuple[int, int]] = {}
    for partition in place.log_dir.partitions:
        if partition.topic != METADATA_TOPIC or partition.state:
            continue
        for segment in partition.live_segments:
            assert segment.log is not None
            with files.open(segment.log.path) as log:
                for batch in scan(log):
                    if isinstance(batch, Damage) or batch.is_control:
                        continue
                    try:
                        for record in batch.iterate():
                            message = None if record.value is None else read_metadata_record(record.value)
                            if message is not None and message.name == "RemoveTopicRecord":
                                found[str(message.fields["topic_id"])] = (record.offset, record.timestamp)
                    except DecodeError:
                        continue  # `kops log meta verify` reports it.
    return found


def _directory(files: Files, place: Place, partition: PartitionDir, removed: dict[str, tuple[int, int]]) -> Verdict:
    verdict = Verdict(partition.path, "partition deleted" if partition.state == "delete" else "stray partition")
    own = topic_id_of(files, partition)
    image = place.image
    causes = verdict.causes
    stray = partition.state == "stray"
    if own is None:
        if stray:
            causes.append(Cause("no-topic-id", "likely", ["partition.metadata is missing; a broker treats such a directory as stray"]))
        else:
            causes.append(Cause("topic-deletion", "possible", ["partition.metadata is missing, so the topic cannot be looked up"]))
        return verdict
    if own in removed:
        offset, time_ms = removed[own]
        when = f"the metadata log removes topic id {own} at offset {offset} (time {time_ms} ms)"
        more = ["the broker was down or did not know it yet: it found the directory when it started"] if stray else []
        causes.append(Cause("topic-deletion", "certain", [when, *more]))
        return verdict
    if image is None:
        cause, other = ("topic-deletion", "reassignment")
        fact = f"there is no metadata of the cluster here; the directory is of topic id {own}"
        causes += [Cause(cause, "likely" if not stray else "possible", [fact]), Cause(other, "possible", [fact])]
        return verdict
    if own not in image.topics:
        namesake = [known for known, name in image.topics.items() if name == partition.topic]
        facts = [f"the cluster's metadata has no topic with id {own}"]
        facts += [f"a topic {partition.topic} was created again (id {namesake[0]})"] if namesake else []
        causes.append(Cause("topic-deletion", "certain" if not stray else "likely", facts))
        return verdict
    registration = image.partitions.get((own, partition.partition))
    if registration is not None and place.node_id is not None and place.node_id not in registration.replicas:
        causes.append(Cause("reassignment", "certain", [f"the replicas are {registration.replicas}, this broker is {place.node_id}"]))
    elif registration is not None:
        fact = "the partition still belongs to this broker: another of its log directories has it, or it was moved away and back"
        causes.append(Cause("moved-between-disks", "likely", [fact]))
    return verdict


# Segments.


class _Log:
    """One partition's log: its deleted segments, and what is known of its settings."""

    def __init__(self, files: Files, place: Place, partition: PartitionDir, now_ms: int) -> None:
        self.files = files
        self.place = place
        self.partition = partition
        self.now_ms = now_ms
        self.live = partition.live_segments
        self.start = log_starts(files, place).get((partition.topic or "", partition.partition))
        self.settings, self.known_settings = self._settings()

    def verdicts(self) -> Iterator[Verdict]:
        """Yield a verdict for each leftover segment, and one for a beginning that is gone without a trace."""
        left = sorted((each for each in self.partition.segments if each.suffix and each.log is not None), key=lambda each: each.base_offset)
        for segment in left:
            yield self._segment(segment)
        if self.live and self.live[0].base_offset > 0 and not any(each.base_offset < self.live[0].base_offset for each in left):
            base = self.live[0].base_offset
            verdict = Verdict(self.partition.path, "beginning of the log", 0, base - 1)
            self._front(verdict, None, base - 1)
            yield verdict

    def _segment(self, segment: Segment) -> Verdict:
        assert segment.log is not None
        found = contents_of(self.files, segment)
        verdict = Verdict(segment.log.path, f"segment ({segment.suffix})")
        if found.batches:
            verdict.first_offset, verdict.last_offset = found.first, found.last
            verdict.max_timestamp = found.max_timestamp if found.max_timestamp >= 0 else None
        if segment.suffix == ".cleaned":
            fact = "the log cleaner, or the split of a segment at a start, writes .cleaned files; it was interrupted"
            verdict.causes.append(Cause("compaction", "likely", [fact]))
            return verdict
        if segment.suffix == ".swap":
            fact = "a .swap file is a complete new segment whose originals were about to be deleted; the next start finishes the swap"
            verdict.causes.append(Cause("compaction", "likely", [fact]))
            return verdict
        last = found.last if found.batches else segment.base_offset
        end = self._end()
        if any(each.base_offset == segment.base_offset for each in self.live) or (
            self.live and self.live[0].base_offset <= segment.base_offset and last < end
        ):
            self._replaced(verdict, segment, last)
        elif self.live and segment.base_offset >= end:
            facts = [f"the log ends at {end}, before this segment"]
            facts += [f"the segment is damaged: {found.problem}"] if found.problem else []
            verdict.causes.append(Cause("recovery", "likely", [*facts, "a start after a crash deletes everything after the first damage"]))
            verdict.causes.append(
                Cause("truncation", "possible", [facts[0], "a follower truncates its log to where it agrees with the leader"])
            )
        else:
            self._front(verdict, segment, last, found)
        return verdict

    def _end(self) -> int:
        if not self.live:
            return 0
        last = contents_of(self.files, self.live[-1])
        return max(last.last + 1, self.live[-1].base_offset)

    def _replaced(self, verdict: Verdict, segment: Segment, last: int) -> None:
        """Judge a segment whose offsets are in the log: another segment replaced it."""
        facts = ["the log has a segment with these offsets, which replaced it"]
        cleaned = self._checkpoint(CLEANER_OFFSET_CHECKPOINT)
        is_compacted = "compact" in self.settings.get("cleanup.policy", "")
        if is_compacted:
            facts.append(f"cleanup.policy is {self.settings['cleanup.policy']}")
        if cleaned is not None and cleaned > last:
            verdict.causes.append(Cause("compaction", "certain", [*facts, f"the cleaner is at offset {cleaned}, after this segment"]))
        elif is_compacted:
            verdict.causes.append(Cause("compaction", "likely", facts))
        else:
            verdict.causes.append(Cause("compaction", "possible", facts))
            verdict.causes.append(Cause("split", "possible", [*facts, "a start splits a segment whose offsets do not fit its indexes"]))

    def _front(self, verdict: Verdict, segment: Segment | None, last: int, found: Contents | None = None) -> None:
        """Judge a segment below the beginning of the log: retention, or the log start offset."""
        policy = self.settings.get("cleanup.policy", "delete")
        base = self.live[0].base_offset if self.live else None
        if self.start is not None and self.start > last and base is not None and self.start > base:
            fact = f"{LOG_START_OFFSET_CHECKPOINT} says {self.start}, in the middle of the segment that begins at {base}"
            verdict.causes.append(
                Cause("delete-records", "likely", [fact, "retention moves the log start only to the beginning of a segment"])
            )
        elif self.start is not None and self.start > last:
            fact = f"{LOG_START_OFFSET_CHECKPOINT} says {self.start}, above this segment"
            verdict.causes.append(Cause("delete-records", "possible", [fact]))
        if "delete" not in policy:
            verdict.excluded.append(f"cleanup.policy is {policy}, so retention by time and size does not delete")
            if not verdict.causes:
                verdict.causes.append(Cause("delete-records", "likely", [verdict.excluded[-1]]))
            return
        self._by_time(verdict, found)
        self._by_size(verdict, segment)
        if self.start is None or self.start <= last:
            verdict.excluded.append(f"{LOG_START_OFFSET_CHECKPOINT} does not say that DeleteRecords moved the start")

    def _by_time(self, verdict: Verdict, found: Contents | None) -> None:
        retention, source = self._number("retention.ms", DEFAULT_RETENTION_MS)
        if retention < 0:
            verdict.excluded.append(f"retention.ms is {retention} ({source}), so time deletes nothing")
            return
        if found is None or found.max_timestamp < 0:
            verdict.causes.append(Cause("retention-time", "possible", [f"retention.ms is {retention} ({source}); the segment is gone"]))
            return
        age = self.now_ms - found.max_timestamp
        fact = f"its newest record is {age} ms old, retention.ms is {retention} ({source})"
        if age > retention:
            confidence = "likely" if self.known_settings and not self._limits_size() else "possible"
            verdict.causes.append(Cause("retention-time", confidence, [fact]))
        else:
            verdict.excluded.append(f"{fact}: time does not delete it")

    def _by_size(self, verdict: Verdict, segment: Segment | None) -> None:
        limit, source = self._number("retention.bytes", -1)
        if limit < 0:
            verdict.excluded.append(f"retention.bytes is {limit} ({source}), so size deletes nothing")
            return
        live = sum(each.log.size for each in self.live if each.log is not None)
        fact = f"the log has {live} bytes now, retention.bytes is {limit} ({source})"
        own = segment.log.size if segment is not None and segment.log is not None else 0
        later = sum(
            each.log.size
            for each in self.partition.segments
            if each.suffix == ".deleted" and each.log is not None and segment is not None and each.base_offset > segment.base_offset
        )
        if segment is None or live + later >= limit:
            verdict.causes.append(Cause("retention-size", "likely" if segment is not None else "possible", [fact]))
        else:
            verdict.excluded.append(f"{fact}: with this segment it had {live + later + own}, so size would have kept it")

    def _limits_size(self) -> bool:
        return self._number("retention.bytes", -1)[0] >= 0

    def _number(self, name: str, default: int) -> tuple[int, str]:
        """Return a setting, and its source."""
        try:
            return int(self.settings[name]), "the topic's setting"
        except (KeyError, ValueError):
            return default, "the default" if self.known_settings else "Kafka's default; the topic's setting is not known"

    def _settings(self) -> tuple[dict[str, str], bool]:
        """Return the topic's settings in the cluster's metadata, with the brokers' dynamic defaults, and whether there is metadata."""
        image = self.place.image
        if image is None or self.partition.topic is None:
            return {}, False
        found: dict[str, str] = {}
        for name, broker_key in (("retention.ms", "log.retention.ms"), ("retention.bytes", "log.retention.bytes")):
            for resource in ("", str(self.place.node_id)):
                value = image.configs.get((_BROKER, resource), {}).get(broker_key)
                if value is not None:
                    found[name] = value
        found |= image.configs.get((_TOPIC, self.partition.topic), {})
        return found, True

    def _checkpoint(self, name: str) -> int | None:
        path = posixpath.join(self.place.path, name)
        try:
            offsets = read_offset_checkpoint(self.files.read_all(path), file=path)
        except (DecodeError, OSError):
            return None
        own = (self.partition.topic, self.partition.partition)
        return next((at for key, at in offsets.items() if (key.topic, key.partition) == own), None)
