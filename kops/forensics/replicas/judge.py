"""Judges a comparison of replicas: findings, what each replica lacks, and what each choice of a leader loses.

Kafka determines what follows from a divergence (KIP-101, KIP-279): a follower cuts its log to where the leader's history leaves its own.
If its high watermark was above that, committed records are cut off: the election was unclean.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kops.config.values.topic_names import INTERNAL_TOPICS
from kops.forensics.findings.finding import Finding, finding, sort_findings
from kops.forensics.replicas.compare import Branch, Comparison, Conflict, Hole, Injury, Sight, Walk
from kops.forensics.replicas.report import Divergence, PartitionDiff, Range, ReplicaReport, count_offsets, joined, without
from kops.forensics.verify.checks.log import PartitionContext
from kops.storage.formats.names import parse_log_file

__all__ = ["Beside", "judge"]

_TAIL_CODES = ("torn-tail", "zeroes", "garbage")
_ELSEWHERE = ("misplaced", "repeated")
_PREALLOCATED = 1 << 20
_PAGE = 4096


@dataclass(slots=True)
class Beside:
    """The data of a replica in addition to its batches. `epochs`: (epoch, first offset) of leader-epoch-checkpoint; `last_log`: path and
    size of its last segment's log; `first_log`: path of its first segment's log, and the offset in the name; `emptied`: whether only the
    name is left of that segment."""

    directory: str
    broker: int | None = None
    context: PartitionContext = field(default_factory=PartitionContext)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    last_log: tuple[str, int] = ("", 0)
    first_log: tuple[str, int] = ("", 0)
    emptied: bool = False

    @property
    def known_start(self) -> int | None:
        """The first offset of its log according to other files, if known."""
        if not self.epochs:
            return None
        return max(self.epochs[0][1], self.context.log_start or 0)


def judge(topic: str, partition: int, beside: Sequence[Beside], seen: Comparison) -> PartitionDiff:
    """The result for one partition."""
    return _Judge(topic, partition, beside, seen).result()


class _Judge:
    def __init__(self, topic: str, partition: int, beside: Sequence[Beside], seen: Comparison) -> None:
        self.beside = beside
        self.walks = seen.walks
        self.seen = seen
        self.diff = PartitionDiff(topic, partition)
        cleaned = any((each.context.cleaner_offset or 0) > 0 for each in beside)
        self.is_compacted = cleaned or topic in INTERNAL_TOPICS or any(walk.compacted for walk in seen.walks)

    def result(self) -> PartitionDiff:
        """Everything about the partition."""
        diff = self.diff
        for number, (each, walk) in enumerate(zip(self.beside, self.walks, strict=True)):
            hidden = sum(self._is_preallocated(number, injury) for injury in walk.injuries)
            report = ReplicaReport(each.directory, each.broker, walk.start, walk.end, walk.last_epoch, each.context.high_watermark)
            report.batches, report.bytes, report.damaged = walk.batches, walk.bytes, len(walk.injuries) - hidden
            report.missing = joined((hole.first, hole.last) for hole in self._lacking(number))
            if not self._ends_early(number):
                report.behind = joined((hole.first, hole.last) for hole in walk.behind if not hole.hurt)
            diff.replicas.append(report)
            diff.findings += self._injuries(number)
            diff.findings += self._gaps(number)
        diff.findings += self._conflicts()
        diff.findings += self._partings(self.seen.root)
        diff.findings += self._due()
        diff.findings = sort_findings(diff.findings)
        self._losses()
        serious = [found for found in diff.findings if found.base_offset is not None and found.code != "replica-behind"]
        if serious:
            first = min(serious, key=lambda found: found.base_offset or 0)
            diff.first_divergence = Divergence(first.base_offset or 0, first.code, first.detail)
        return diff

    def names(self, numbers: Sequence[int] | frozenset[int]) -> str:
        """The names of these replicas for a message."""
        return ", ".join(self.beside[number].directory for number in sorted(numbers))

    # What a replica lacks.

    def _start(self, number: int) -> int | None:
        """The first offset of its log, if known."""
        beside = self.beside[number]
        path, named = beside.first_log
        if beside.known_start is None and not self.is_compacted and (beside.emptied or self._has_disorder(number, path)):
            return max(named, beside.context.log_start or 0)
        return beside.known_start

    def _has_disorder(self, number: int, path: str) -> bool:
        """Whether a batch of this log is in the wrong place. Then the batch that the log begins with need not be its first one."""
        return any(injury.hurt.path == path and injury.hurt.code in _ELSEWHERE for injury in self.walks[number].injuries)

    def _lacking(self, number: int) -> Iterator[Hole]:
        """The holes that neither retention nor compaction made."""
        walk = self.walks[number]
        start = self._start(number)
        for hole in walk.before:
            low = hole.first if hole.hurt and start is None else max(hole.first, start if start is not None else hole.last + 1)
            if low <= hole.last:
                yield Hole(low, hole.last, hole.have, True)
        for hole in walk.holes:
            if hole.hurt or not self.is_compacted:
                yield hole
        yield from walk.behind

    def _ends_early(self, number: int) -> bool:
        """Whether its log once reached further than now: recovery point and high watermark are never both ahead of the log."""
        context, end = self.beside[number].context, self.walks[number].end or 0
        point, high = context.recovery_point, context.high_watermark
        return point is not None and point == high and point > end

    # Findings.

    def _injuries(self, number: int) -> Iterator[Finding]:
        walk = self.walks[number]
        lacking = list(self._lacking(number))
        holes = [hole for hole in lacking if hole.hurt]
        for injury in walk.injuries:
            if self._is_preallocated(number, injury):
                continue
            own = _own_hole(injury, lacking)
            low, high = (own.first, own.last) if own is not None else self._around(number, injury, walk, holes)
            holes_here = lacking if own is not None else holes
            here = [hole for hole in holes_here if low is not None and high is not None and hole.first <= high and hole.last >= low]
            is_known = low is not None and high is not None and low <= high
            gone = without([(low or 0, high or 0)], [(hole.first, hole.last) for hole in here]) if is_known else []
            hurt = injury.hurt
            where = "no offset is missing there" if hurt.code == "repeated" and not here else self._where(low, high, here, gone)
            words = f"{hurt.reason}; {where}"
            yield finding(
                "replica-damaged",
                hurt.path,
                words,
                position=hurt.position,
                length=hurt.length,
                base_offset=low if is_known else hurt.base_offset,
                last_offset=high if is_known else hurt.last_offset,
                severity=self._severity(number, injury),
            )
            if gone and not self.is_compacted:
                self.diff.replicas[number].gone = joined([*self.diff.replicas[number].gone, *gone])
                self.diff.lost = joined([*self.diff.lost, *gone])

    def _around(self, number: int, injury: Injury, walk: Walk, holes: list[Hole]) -> tuple[int | None, int | None]:
        """The offsets that are missing at this damage. (None, None) where it cannot be known."""
        start = self._start(number)
        named = parse_log_file(posixpath.basename(injury.hurt.path))
        first = start if start is not None else named.offset if named is not None else injury.hurt.base_offset
        low = injury.before + 1 if injury.before is not None else first
        high = injury.after - 1 if injury.after is not None else None
        if high is None:
            behind = [hole.last for hole in holes if hole in walk.behind]
            claimed = injury.hurt.last_offset if injury.hurt.code not in _ELSEWHERE else None
            # A damaged header may claim anything. It is believed if it continues the log and its numbers fit together.
            sane = claimed is not None and low is not None and low <= claimed < low + injury.hurt.length
            sane = sane and injury.hurt.is_whole and injury.hurt.base_offset in (None, low)
            high = max([*behind, *([claimed] if sane and claimed is not None else [])], default=None)
        return low, high

    def _where(self, low: int | None, high: int | None, here: list[Hole], gone: list[Range]) -> str:
        if low is None or high is None:
            return "which offsets it held is not known"
        if low > high:
            return "no offset is missing there"
        parts = [f"offsets {hole.first} to {hole.last} are intact in {self.names(hole.have)}" for hole in here]
        if not self.is_compacted:
            parts += [f"no replica has offsets {first} to {last}" for first, last in gone]
        return "; ".join(parts) if parts else f"no other replica has offsets {low} to {high}"

    def _severity(self, number: int, injury: Injury) -> str | None:
        """A start cuts off the torn tail of a crash and replicates it again, so it is only a warning."""
        is_tail = injury.after is None and injury.hurt.code in _TAIL_CODES and injury.hurt.path == self.beside[number].last_log[0]
        return "warning" if is_tail and self.beside[number].context.clean_stop is False else None

    def _is_preallocated(self, number: int, injury: Injury) -> bool:
        path, size = self.beside[number].last_log
        is_tail = injury.after is None and injury.hurt.code == "zeroes" and injury.hurt.path == path
        whole = size >= _PREALLOCATED and size % _PAGE == 0
        return is_tail and whole and self.beside[number].context.clean_stop is False

    def _gaps(self, number: int) -> Iterator[Finding]:
        """Yield findings about offsets that are missing without damage next to them."""
        directory, walk = self.beside[number].directory, self.walks[number]
        at_start = any(injury.before is None for injury in walk.injuries)
        lacking = list(self._lacking(number))
        owned = [_own_hole(injury, lacking) for injury in walk.injuries]
        for hole in lacking:
            if hole in walk.behind:
                continue
            is_damaged = hole in owned or (at_start if hole not in walk.holes else hole.hurt)
            if not is_damaged:
                text = f"offsets {hole.first} to {hole.last} are missing; {self._has(hole.have)} them"
                yield finding("replica-gap", directory, text, base_offset=hole.first, last_offset=hole.last)
        if not walk.behind or walk.behind[0].hurt:
            return
        first, last, end = walk.behind[0].first, walk.behind[-1].last, walk.end or 0
        if self._ends_early(number):
            text = f"it ends at {end}, but its checkpoints know offsets up to {self.beside[number].context.recovery_point}"
            yield finding("replica-gap", directory, f"{text}; {self._has(walk.behind[0].have)} them", base_offset=first, last_offset=last)
            return
        text = f"it ends at {end}; {self.names(walk.behind[-1].have)} ends at {last + 1}"
        yield finding("replica-behind", directory, text, base_offset=first, last_offset=last)

    def _has(self, numbers: frozenset[int]) -> str:
        return f"{self.names(numbers)} {'has' if len(numbers) == 1 else 'have'}"

    def _conflicts(self) -> Iterator[Finding]:
        for each in self.seen.conflicts:
            votes = Counter((sight.epoch, sight.crc) for sight in each.sights)
            # The file is that of the smallest group: with three replicas, the one that differs from the other two.
            sight = min(each.sights, key=lambda sight: votes[sight.epoch, sight.crc])
            words = "; ".join(self._sight(other) for other in each.sights)
            code = "replica-epoch-differs" if each.kind == "epoch" else "replica-contents-differ"
            yield finding(code, sight.path, words, position=sight.position, base_offset=each.first, last_offset=each.last)

    def _sight(self, sight: Sight) -> str:
        offsets = f"{sight.base_offset} to {sight.last_offset}"
        return f"{self.beside[sight.replica].directory} has offsets {offsets} of leader epoch {sight.epoch} with checksum {sight.crc:08x}"

    def _partings(self, branch: Branch) -> Iterator[Finding]:
        """Yield a finding at a divergence for each replica that does not have the latest leader epoch there."""
        if branch.parted is None:
            return
        sights = {sight.replica: sight for sight in branch.parted.sights}
        newest = max(sights.values(), key=lambda sight: sight.epoch)
        group = next(each.members for each in branch.branches if newest.replica in each.members)
        ahead = [number for number in group if number in sights]
        for number, sight in sights.items():
            if number in group:
                continue
            epochs = f"from offset {branch.parted.first} on it has batches of leader epoch {sight.epoch}"
            theirs = f"{self.names(ahead)} {'has' if len(ahead) == 1 else 'have'} others of leader epoch {newest.epoch}"
            yield self._cut(number, branch.parted.first, f"{epochs}, while {theirs}", sight)
        for below in branch.branches:
            yield from self._partings(below)

    def _due(self) -> Iterator[Finding]:
        """Yield findings about replicas that reach beyond the start of a later leader that has written nothing since."""
        parted = {number for each in self._parted(self.seen.root) for number in each}
        for number, walk in enumerate(self.walks):
            for other, theirs in enumerate(self.beside):
                end = self.walks[other].end or 0
                later = [(epoch, start) for epoch, start in theirs.epochs if epoch > walk.last_epoch and start == end]
                if other == number or number in parted or walk.last_epoch < 0 or not later or later[0][1] >= (walk.end or 0):
                    continue
                if any(epoch >= later[0][0] for epoch, _ in self.beside[number].epochs):
                    continue
                epoch, start = later[0]
                words = f"it ends at {walk.end}, but in {theirs.directory} leader epoch {epoch} began at {start}"
                yield self._cut(number, start, words, None)
                break

    def _parted(self, branch: Branch) -> Iterator[list[int]]:
        for below in branch.branches:
            yield below.members
            yield from self._parted(below)

    def _cut(self, number: int, offset: int, words: str, sight: Sight | None) -> Finding:
        """Return the finding about a replica whose batches from `offset` on are not in the history of a later leader."""
        high, end = self.beside[number].context.high_watermark, self.walks[number].end or 0
        code, last = "replica-truncation-due", max(end - 1, offset)
        if high is not None and high > offset:
            code = "replica-diverged"
            words += f". Its high watermark was {high}, so offsets {offset} to {min(high, end) - 1} were committed: an unclean election"
        elif high is not None:
            words += f". Its high watermark was {high}, so they were not known to be committed; as a follower it cuts its log to {offset}"
        else:
            code = "replica-diverged"
            words += ". Whether they were committed is not known, as there is no replication-offset-checkpoint"
        file = sight.path if sight is not None else self.beside[number].directory
        return finding(code, file, words, position=sight.position if sight else None, base_offset=offset, last_offset=last)

    # Losses.

    def _losses(self) -> None:
        """Compute what each choice of a leader loses, and the best choice."""
        reports = self.diff.replicas
        for number, report in enumerate(reports):
            own = [(hole.first, hole.last, self._high(hole.have)) for hole in self._lacking(number)]
            own += list(self._other_branches(number, self.seen.root))
            own += [(each.first, each.last, -1) for each in self.seen.conflicts if each.kind == "contents" and _is_in(number, each)]
            report.loses = joined((first, last) for first, last, _ in own)
            report.committed = count_offsets(joined((first, min(last, high - 1)) for first, last, high in own))
        if len(reports) > 1 and any(walk.batches for walk in self.walks):
            best = min(reports, key=lambda each: (each.committed, each.offsets_lost, -each.last_epoch, -(each.end_offset or 0)))
            best.best = True

    def _other_branches(self, number: int, branch: Branch) -> Iterator[tuple[int, int, int]]:
        """Return the offsets that the others have after their history diverged from this replica's."""
        if branch.parted is None:
            return
        for below in branch.branches:
            if number in below.members:
                yield from self._other_branches(number, below)
                continue
            for other in below.members:
                yield branch.parted.first, (self.walks[other].end or 0) - 1, self._high([other])

    def _high(self, numbers: Sequence[int] | frozenset[int]) -> int:
        return max((self.beside[number].context.high_watermark or -1 for number in numbers), default=-1)


def _own_hole(injury: Injury, lacking: Sequence[Hole]) -> Hole | None:
    """Return the hole, without damage of its own, that a batch in the wrong place left."""
    hurt = injury.hurt
    if hurt.code not in _ELSEWHERE:
        return None
    return next((hole for hole in lacking if not hole.hurt and (hole.first, hole.last) == (hurt.base_offset, hurt.last_offset)), None)


def _is_in(number: int, conflict: Conflict) -> bool:
    return any(sight.replica == number for sight in conflict.sights)
