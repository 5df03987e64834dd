"""Plans the logs of one partition after a repair: which ranges of which files make which segment.

Batches stay at their offsets and, if possible, in their files (`kops.forensics.plans.chain` decides about each). A hole that damage left is
filled from leftovers with the missing batches (`.swap`, `.cleaned`, `.deleted`). A remaining hole is closed with an empty batch, as
compaction leaves one (Kafka's MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader). Brokers, followers and consumers skip it, and a
later check does not take the hole for new damage. Nothing is filled at the end of the log: a replica would never fetch those offsets again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir
from kops.forensics.plans.chain import Aside, chain
from kops.forensics.plans.items import Bad, Item, read_items
from kops.forensics.plans.neighbours import mend_epochs, mend_sequences
from kops.forensics.plans.plan import Copy, Data, Part
from kops.records.build import empty_batch
from kops.storage.formats.names import log_file_name

__all__ = ["MendedLog", "TargetSegment", "arrange", "fill", "mend_log"]

_MAX_RELATIVE: Final = 0x7FFFFFFF
_MAX_SIZE: Final = 0x7FFFFFFF


@dataclass(slots=True)
class TargetSegment:
    """One segment after the repair. `source` is the live file it comes from ("" for a new one). `size`: the bytes of its parts. `whole`: it
    is that file, unchanged."""

    base_offset: int
    source: str
    parts: list[Part] = field(default_factory=list)
    next_offset: int = 0
    whole: bool = False
    mended: list[str] = field(default_factory=list)
    filled: int = 0
    size: int = 0


@dataclass(slots=True)
class MendedLog:
    """A partition's logs after the repair. `log` are the batches by offset, `segments` the files they make, `gone` the live files to
    remove. `fresh` are base offsets of logs to make for batches of other replicas. `is_whole`: those batches filled every hole of
    damage."""

    log: list[Item]
    bad: list[Bad]
    aside: list[Aside]
    sizes: dict[str, int]
    bases: dict[str, int]
    segments: list[TargetSegment] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    from_leftovers: int = 0
    fresh: dict[str, int] = field(default_factory=dict)
    is_whole: bool = False

    @property
    def end_offset(self) -> int:
        """The log end offset, as a broker computes it from the last segment."""
        return self.segments[-1].next_offset if self.segments else 0

    def lossless(self) -> bool:
        """Whether only bytes after the last batch of the last segment are cut off, so that nothing readable or mendable is removed."""
        if self.aside or self.gone or any(segment.mended or segment.filled for segment in self.segments) or self.from_leftovers:
            return False
        last = max(self.bases, key=lambda path: self.bases[path], default=None)
        ends = {bad.path: max((item.end for item in self.log if item.path == bad.path), default=0) for bad in self.bad}
        return all(
            bad.path == last and bad.position >= ends[bad.path] and bad.code in ("torn-tail", "garbage", "zeroes") for bad in self.bad
        )

    def ends_with_damage(self) -> bool:
        """Whether all damage is after the last batch of the log, where Kafka's recovery cuts, too."""
        last = self.log[-1] if self.log else None
        behind = all(last is None or bad.path > last.path or (bad.path == last.path and bad.position >= last.end) for bad in self.bad)
        return behind and not self.aside and not any(segment.mended or segment.filled for segment in self.segments)


def mend_log(files: Files, partition: PartitionDir, *, known_epochs: Sequence[tuple[int, int]] = ()) -> MendedLog:
    """Read every live log of the partition and decide. `arrange` then makes the segments. Raises OSError if a file cannot be read."""
    items: list[Item] = []
    bad: list[Bad] = []
    sizes: dict[str, int] = {}
    bases: dict[str, int] = {}
    for segment in partition.live_segments:
        assert segment.log is not None
        found, broken = read_items(files, segment.log.path)
        items += found
        bad += broken
        del found  # A list of all batches takes memory, too.
        sizes[segment.log.path] = segment.log.size
        bases[segment.log.path] = segment.base_offset
    log, aside = chain(files, items, bad)
    mended = MendedLog(log, bad, aside, sizes, bases)
    del items, log
    _use_leftovers(files, partition, mended)
    mended.log = mend_sequences(files, mend_epochs(files, mended.log, known_epochs))
    return mended


def _use_leftovers(files: Files, partition: PartitionDir, mended: MendedLog) -> None:
    """Fill holes of damage or missing segments from leftovers."""
    for segment in partition.segments:
        if segment.suffix not in (".swap", ".cleaned", ".deleted") or segment.log is None:
            continue
        holes = _holes(mended, whole=segment.suffix == ".swap")
        if not holes:
            continue
        taken = [item for item in read_items(files, segment.log.path)[0] if _inside(item, holes)]
        if taken:
            mended.log, aside = chain(files, sorted([*mended.log, *taken], key=lambda item: item.base))
            mended.from_leftovers += len(taken) - len(aside)


def _holes(mended: MendedLog, *, whole: bool) -> list[tuple[int, int]]:
    """Offset ranges without a batch between the first and the last one, and the batches around them: those next to damage, with `whole`
    all."""
    found: list[tuple[int, int]] = []
    damaged = {(bad.path) for bad in mended.bad}
    before: Item | None = None
    for item in mended.log:
        if before is not None and item.base > before.last + 1 and (whole or _damage_between(mended, before, item, damaged)):
            found.append((before.last + 1, item.base - 1))
        before = item
    if whole:
        first = mended.log[0].base if mended.log else 0
        found.insert(0, (0, first - 1))
        found.append((before.last + 1 if before is not None else 0, (1 << 63) - 1))
    return [(low, high) for low, high in found if low <= high]


def _damage_between(mended: MendedLog, before: Item, after: Item, damaged: set[str]) -> bool:
    if before.path not in damaged and after.path not in damaged:
        return False
    return any(
        (bad.path == before.path and bad.position >= before.end and (after.path != bad.path or bad.position < after.position))
        or (bad.path == after.path and bad.position < after.position and (before.path != bad.path or bad.position >= before.end))
        for bad in mended.bad
    )


def _inside(item: Item, holes: Sequence[tuple[int, int]]) -> bool:
    return any(low <= item.base and item.last <= high for low, high in holes)


def fill(mended: MendedLog, low: int, high: int) -> bool:
    """Close the hole from offset `low` to `high` with empty batches; False if there is no such hole between two batches. The caller then
    arranges the log again."""
    place = next((i for i, item in enumerate(mended.log) if item.base > high), None)
    ends = [base for path, base in mended.bases.items() if base > high]
    if place is None and not ends:
        return False
    position = len(mended.log) if place is None else place
    before = mended.log[position - 1] if position else None
    if before is not None and before.last >= low:
        return False
    after = mended.log[position] if position < len(mended.log) else None
    if high - low > _MAX_RELATIVE:
        return False
    # An empty segment file inside the hole gets its share.
    cuts = sorted(base for base in mended.bases.values() if low < base <= high)
    for start, end in zip([low, *cuts], [*(cut - 1 for cut in cuts), high], strict=True):
        mended.log.insert(position, _filler(mended, start, end, before, after))
        position += 1
    return True


def _filler(mended: MendedLog, low: int, high: int, before: Item | None, after: Item | None) -> Item:
    epoch = before.epoch if before is not None else after.epoch if after is not None else -1
    data = empty_batch(base_offset=low, last_offset=high, partition_leader_epoch=epoch)
    own = next((path for path, base in mended.bases.items() if base == low), None)
    damaged = before is not None and any(bad.path == before.path and bad.position >= before.end for bad in mended.bad)
    leads = after is not None and any(bad.path == after.path and bad.position < after.position for bad in mended.bad)
    path = own or ""
    if own is None and before is not None and (damaged or (after is not None and _home(after) == _home(before))):
        path = _home(before)
    elif own is None and after is not None and leads and mended.bases.get(after.path, low + 1) <= low:
        path = after.path
    note = f"offsets {low} to {high} closed with an empty batch"
    home = path if path in mended.fresh else ""
    return Item(path, -1, len(data), low, high, 2, 0, epoch, -1, -1, -1, -1, 0, 0, data, note, home)


def _home(item: Item) -> str:
    """The log of a batch. One from another replica has its own path, but stands in a log of this one."""
    return item.home or item.path


# From batches to files.


def arrange(mended: MendedLog, directory: str) -> None:
    """Make `segments` and `gone` from `log`."""
    segments: list[TargetSegment] = []
    used: set[str] = set()
    current: TargetSegment | None = None
    origin = ""
    last = -1
    for item in mended.log:
        home = item.home or (item.path if item.path in mended.bases else "")
        if current is None or _begins(current, origin, home, item):
            current = _begin(mended, home if home not in used else "", item, last)
            origin = home
            used.add(home)
            segments.append(current)
        _add(current, item)
        last = item.last
    _keep_empty(mended, segments, used)
    segments.sort(key=lambda segment: segment.base_offset)
    for segment in segments:
        name = posixpath.join(directory, log_file_name(segment.base_offset, "log"))
        size = mended.sizes.get(segment.source)
        whole = [Copy(segment.source, 0, size)] if size else []
        segment.whole = segment.source != "" and segment.parts == whole and name == segment.source
    mended.segments = segments
    mended.gone = [path for path in mended.bases if path not in {segment.source for segment in segments}]


def _begins(current: TargetSegment, origin: str, home: str, item: Item) -> bool:
    """Whether a batch opens a segment: it comes from another live file, or does not fit into this one."""
    if item.last - current.base_offset > _MAX_RELATIVE or current.size + item.size > _MAX_SIZE:
        return True
    return home != origin and (home != "" or item.position < 0)


def _begin(mended: MendedLog, home: str, item: Item, last: int) -> TargetSegment:
    base = mended.bases.get(home, mended.fresh.get(home, item.base))
    if not last < base <= item.base or item.last - base > _MAX_RELATIVE:
        base = item.base
    return TargetSegment(base, home if home in mended.bases else "", next_offset=base)


def _add(segment: TargetSegment, item: Item) -> None:
    parts = segment.parts
    segment.next_offset = item.last + 1
    segment.size += item.size if item.data is None else len(item.data)
    if item.data is not None:
        parts.append(Data(item.data))
        if item.position < 0:
            segment.filled += 1
        if item.note:
            segment.mended.append(item.note)
        return
    if item.home and item.note:
        segment.mended.append(item.note)
    if parts and isinstance(parts[-1], Copy) and parts[-1].path == item.path and parts[-1].position + parts[-1].length == item.position:
        parts[-1] = Copy(item.path, parts[-1].position, parts[-1].length + item.size)
        return
    parts.append(Copy(item.path, item.position, item.size))


def _keep_empty(mended: MendedLog, segments: list[TargetSegment], used: set[str]) -> None:
    """Keep live files without a batch as empty segments, unless their base offset is among the offsets of another."""
    for path, base in mended.bases.items():
        if path in used:
            continue
        if any(segment.base_offset <= base < max(segment.next_offset, segment.base_offset + 1) for segment in segments):
            continue
        segments.append(TargetSegment(base, path, next_offset=base))
