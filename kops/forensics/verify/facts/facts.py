"""The facts from one pass over a `.log` (or a part of it). They can be pickled, merged, and judged later.

`scan_segment_facts` reads bytes `start` to `end`, `SegmentFacts.extend` adds the facts of the next part. Only whole segments are judged
(`kops.forensics.verify.partition`), so the verdict is the same whether one process read a log or a cluster read it in pieces. The scanner
is `kops.records`; sources of the facts: Kafka's DefaultRecordBatch (header), ProducerAppendInfo (sequences), ProducerStateManager
(transactions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError
from kops.forensics.verify.facts.index import IndexFile, IndexSampler, IndexSamples
from kops.forensics.verify.facts.producers import ProducerFacts
from kops.forensics.verify.facts.window import Head, Window

if TYPE_CHECKING:
    from kops.records import ByteSource, Damage

QUICK: Final = "quick"
CRC: Final = "crc"
DEEP: Final = "deep"
FULL: Final = "full"
LEVELS: Final = (QUICK, CRC, DEEP, FULL)

LEGACY_EPOCH: Final = -2
"""Stands for the leader epoch of a batch whose format (v0, v1) has none."""
_KEPT: Final = 10_000
_V2: Final = {2}


class Break(NamedTuple):
    """Two adjacent batches in the file whose offsets don't follow each other."""

    before: Head
    after: Head

    @property
    def is_backward(self) -> bool:
        """Whether the second one does not come after the first."""
        return self.after.base_offset <= self.before.last_offset


@dataclass(slots=True)
class DamageFact:
    """Bytes that are not a batch, and the batches on both sides (None: the scanned part has none).

    `base_offset`, `last_offset` and `count` are what the damaged header claims, if it can be read.
    """

    position: int
    length: int
    code: str
    reason: str
    base_offset: int | None
    last_offset: int | None
    count: int | None
    before: Head | None
    after: Head | None = None

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.length


class ContentError(NamedTuple):
    """A batch whose checksum is correct and whose contents are wrong."""

    head: Head
    code: str
    reason: str


class EpochRun(NamedTuple):
    """From this batch on the leader epoch is `epoch`."""

    epoch: int
    base_offset: int
    position: int


@dataclass(slots=True)
class SegmentFacts:
    """The facts about bytes `start` to `end` of a `.log`.

    `size` is that of the file when the scan began. `scanned_to` is the position up to which it was read (below `end` if the file shrank or
    the scan was stopped). Lists are in file order. `gaps` counts all forward breaks; `breaks` has the first ten thousand.
    `short_batches` counts batches of v2 with fewer records than offsets, as only compaction leaves them.
    `is_blurred`: there are compressed sets of v0 or v1 whose first offsets were not read (levels quick and crc), so holes can't be seen.
    """

    start: int
    end: int
    size: int
    scanned_to: int = 0
    batches: int = 0
    records: int = 0
    first: Head | None = None
    last: Head | None = None
    lowest_offset: int | None = None
    highest_offset: int | None = None
    magics: set[int] = field(default_factory=set)
    max_timestamp: int = -1
    gaps: int = 0
    short_batches: int = 0
    is_blurred: bool = False
    breaks: list[Break] = field(default_factory=list)
    damages: list[DamageFact] = field(default_factory=list)
    contents: list[ContentError] = field(default_factory=list)
    odd_counts: list[Head] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    producers: ProducerFacts | None = None
    samples: IndexSamples = field(default_factory=IndexSamples)

    @property
    def backward(self) -> list[Break]:
        """The batches whose offsets do not increase."""
        return [found for found in self.breaks if found.is_backward]

    @property
    def joins_cleanly(self) -> bool:
        """Whether the part ends with a batch or is empty; else the next part must be scanned together with its end."""
        return not self.damages or self.damages[-1].end < self.scanned_to

    def extend(self, after: SegmentFacts) -> None:
        """Add the facts of the next part. Both must meet at a batch boundary (see `join_facts`)."""
        if self.last is not None and after.first is not None:
            between = [fact for fact in (*self.damages[-1:], *after.damages[:1]) if self.last.end <= fact.position < after.first.position]
            if _is_break(self.last, after.first) and (not between or after.first.base_offset <= self.last.last_offset):
                self._add_break(Break(self.last, after.first))
        if after.first is not None:
            for fact in reversed(self.damages):
                if fact.after is not None:
                    break
                fact.after = after.first
        for fact in after.damages:
            if fact.before is not None:
                break
            fact.before = self.last
        self.damages += after.damages
        for found in after.breaks:
            self._add_break(found, counted=True)
        self.gaps += after.gaps
        runs = after.epochs[1:] if self.epochs and after.epochs and self.epochs[-1].epoch == after.epochs[0].epoch else after.epochs
        self.epochs += runs
        self.contents = (self.contents + after.contents)[:_KEPT]
        self.odd_counts = (self.odd_counts + after.odd_counts)[:_KEPT]
        self.batches += after.batches
        self.records += after.records
        self.short_batches += after.short_batches
        self.magics |= after.magics
        self.is_blurred |= after.is_blurred
        self.max_timestamp = max(self.max_timestamp, after.max_timestamp)
        self.first = self.first or after.first
        self.last = after.last or self.last
        self.lowest_offset = _lowest(self.lowest_offset, after.lowest_offset)
        self.highest_offset = _highest(self.highest_offset, after.highest_offset)
        self.end, self.scanned_to = after.end, after.scanned_to
        self.samples.extend(after.samples)
        if self.producers is not None and after.producers is not None:
            self.producers.extend(after.producers)

    def _add_break(self, found: Break, *, counted: bool = False) -> None:
        if not counted and found.after.base_offset > found.before.last_offset:
            self.gaps += 1
        if len(self.breaks) < _KEPT or found.is_backward:
            self.breaks.append(found)


def _lowest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _highest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _is_break(before: Head, after: Head) -> bool:
    return after.base_offset != before.last_offset + 1


class FactsBuilder:
    """Takes windows and damages in file order and collects the facts."""

    def __init__(self, facts: SegmentFacts, *, with_producers: bool, sampler: IndexSampler | None) -> None:
        self.facts = facts
        self.sampler = sampler
        self.producers = facts.producers = ProducerFacts() if with_producers else None
        self._open: list[DamageFact] = []

    def window(self, window: Window) -> None:
        """The next batches."""
        facts = self.facts
        rows = window.rows
        first, last = window.head(0), window.head(-1)
        self._follow(first)
        facts.first = facts.first or first
        facts.batches += len(rows)
        timestamps = window.columns.column(8)
        facts.max_timestamp = max(facts.max_timestamp, *timestamps)
        if window.is_plain:
            facts.magics.add(2)
            facts.records += sum(window.counts)
            lowest, highest = first.base_offset, last.last_offset
        else:
            facts.magics.update(window.magics)
            self._breaks(window)
            self._counts(window)
            lowest, highest = min(window.base_offsets), max(window.last_offsets)
        facts.lowest_offset = _lowest(facts.lowest_offset, lowest)
        facts.highest_offset = _highest(facts.highest_offset, highest)
        epochs = set(window.columns.column(2))
        if len(epochs) > 1 or not facts.epochs or facts.epochs[-1].epoch not in epochs or facts.magics != _V2:
            self._epochs(window)
        if self.sampler is not None:
            self.sampler.window(window.positions, window.base_offsets, window.last_offsets, timestamps)
        if self.producers is not None and set(window.columns.column(9)) != {-1}:
            self.producers.window(window)
        facts.last = last

    def _follow(self, head: Head) -> None:
        """Add a batch that follows those so far."""
        before = self.facts.last
        if before is not None and _is_break(before, head) and (not self._open or head.base_offset <= before.last_offset):
            self.facts._add_break(Break(before, head))
        for fact in self._open:
            fact.after = head
        self._open.clear()

    def _breaks(self, window: Window) -> None:
        for number, (base, last) in enumerate(zip(window.base_offsets[1:], window.last_offsets, strict=False)):
            if base != last + 1:
                self.facts._add_break(Break(window.head(number), window.head(number + 1)))

    def _counts(self, window: Window) -> None:
        facts = self.facts
        for number, count in enumerate(window.counts):
            span = window.last_offsets[number] - window.base_offsets[number] + 1
            if window.magics[number] < 2:
                facts.records += max(span, 1)
                continue
            facts.records += max(count, 0)
            if 0 <= count < span:
                facts.short_batches += 1
            elif (count != span or span < 1) and len(facts.odd_counts) < _KEPT:
                facts.odd_counts.append(window.head(number))

    def _epochs(self, window: Window) -> None:
        runs = self.facts.epochs
        current = runs[-1].epoch if runs else None
        for number, epoch in enumerate(window.columns.leader_epochs):
            if window.magics[number] < 2:
                epoch = LEGACY_EPOCH
            if epoch != current:
                runs.append(EpochRun(epoch, window.base_offsets[number], window.positions[number]))
                current = epoch

    def damage(self, damage: Damage) -> None:
        """The next bytes that are not a batch."""
        count = damage.batch.count if damage.batch is not None and damage.batch.magic == 2 else None
        fact = DamageFact(
            damage.position,
            damage.length,
            damage.code,
            damage.reason,
            damage.base_offset,
            damage.last_offset,
            count,
            self.facts.last,
        )
        self.facts.damages.append(fact)
        self._open.append(fact)

    def content(self, head: Head, error: DecodeError) -> None:
        """A batch whose contents are wrong."""
        if len(self.facts.contents) < _KEPT:
            self.facts.contents.append(ContentError(head, error.code, error.reason))

    def finish(self) -> SegmentFacts:
        """The facts, with what the sampler saw."""
        if self.sampler is not None:
            self.facts.samples = self.sampler.samples
        return self.facts


def scan_segment_facts(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    level: str = CRC,
    *,
    index: IndexFile | None = None,
    time_index: IndexFile | None = None,
    producers: bool | None = None,
    progress: Callable[[int], None] | None = None,
) -> SegmentFacts:
    """The facts about bytes `start` to `end` of a `.log`; `start` must be the position of a batch.

    `level`: `quick` (headers), `crc` (and checksums), `deep` and `full` (and every record). With a segment's indexes, the facts include
    what the log has at their entries; with `producers` (the default at level full) also producers and transactions. `progress` gets the
    bytes done since the last call. Raises OSError if the file cannot be read; anything else in it is a fact.
    """
    from kops.records import Damage
    from kops.records.scanning.columns import scan_columns

    size = source.size()
    limit = size if end is None else min(end, size)
    sampler = IndexSampler(index, time_index) if index is not None or time_index is not None else None
    with_producers = level == FULL if producers is None else producers
    builder = FactsBuilder(SegmentFacts(start, limit, size), with_producers=with_producers, sampler=sampler)
    deep = level in (DEEP, FULL)
    done = position = start
    for item in scan_columns(source, start, limit, check_crc=level != QUICK):
        if isinstance(item, Damage):
            builder.damage(item)
            position = item.end
        else:
            window = Window(item)
            if min(window.magics) < 2:
                builder.facts.is_blurred |= window.mend_legacy(builder.facts.last, deep=deep) and not deep
            builder.window(window)
            if deep:
                _check_contents(builder, window)
            position = item.end
        if progress is not None:
            progress(position - done)
            done = position
    builder.facts.scanned_to = position
    return builder.finish()


def _check_contents(builder: FactsBuilder, window: Window) -> None:
    """Every record of every batch."""
    is_sound = True
    for number in window.columns.unsound():
        for error in window.columns.batch(number).check():
            is_sound = False
            builder.content(window.head(number), error)
    window.columns.is_sound = is_sound


def join_facts(parts: list[SegmentFacts], rescan: Callable[[int, int], SegmentFacts]) -> SegmentFacts:
    """One segment's facts from those of its parts, in order.

    If two parts don't meet at a batch boundary (an index was wrong, so a part began inside a batch, or damage crosses the boundary),
    `rescan(start, end)` reads again from the end of the last good batch. So damage is reported as if the file had been read as a whole.
    """
    whole = parts[0]
    for part in parts[1:]:
        clean = whole.joins_cleanly and (not part.damages or part.damages[0].position > part.start)
        meets = whole.last.end == part.start if whole.last is not None else whole.start == whole.end == part.start
        if clean and meets and part.start == whole.end:
            whole.extend(part)
            continue
        whole = rescan(whole.start, part.end)
    return whole
