"""Chooses the batches of other replicas that fill the holes of a damaged log, and their segments.

A batch is taken only if it belongs to the history of the damaged replica. One leader writes all batches of an epoch (KIP-101), so this is
certain if both replicas continue with the same batch after the hole, or if leader-epoch-checkpoint has the batch's epoch for its offset. A
batch is never moved or changed, and never replaces an intact one.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter

from kops.files import Files
from kops.forensics.plans.items import Item
from kops.forensics.repair.log import MendedLog
from kops.forensics.replicas.report import Range, joined, without
from kops.forensics.replicas.slices import Finder
from kops.forensics.replicas.stream import Chunk, Hurt, LogFile, Place, ordered_batches, row_last
from kops.records import Batch
from kops.records.batch import CODEC_MASK
from kops.records.scanning.columns import Row
from kops.storage.formats.names import log_file_name

__all__ = ["Donor", "Filling", "Needs", "fill_holes"]

_FAR = (1 << 63) - 1


@dataclass(slots=True)
class Donor:
    """Another replica. `limit`: the offset at which its history leaves that of the damaged one."""

    directory: str
    logs: list[LogFile]
    last_epoch: int = -1
    limit: int = _FAR


@dataclass(slots=True)
class Needs:
    """What the damaged replica needs. `ranges`: offsets that it had and lacks; `epochs`: (epoch, first offset) of its
    leader-epoch-checkpoint; `known_end`: the end offset that its checkpoints know; `compacted`: whether the log cleaner works on this log;
    `misplaced`: path and position of batches that the others have at other offsets."""

    directory: str
    ranges: list[Range]
    tail: bool
    epochs: list[tuple[int, int]] = field(default_factory=list)
    known_end: int = 0
    orphans: list[int] = field(default_factory=list)
    compacted: bool = False
    misplaced: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class Filling:
    """The result: (first offset, last offset, directory) of each filled range, and the ranges that no donor could fill."""

    filled: list[tuple[int, int, str]] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)

    @property
    def ranges(self) -> list[Range]:
        """The filled offsets."""
        return joined((first, last) for first, last, _ in self.filled)


@dataclass(slots=True)
class _Hole:
    """Offsets between two batches of the damaged log; None at its ends."""

    low: int
    high: int
    before: Item | None
    after: Item | None


def fill_holes(files: Files, mended: MendedLog, needs: Needs, donors: Sequence[Donor]) -> Filling:
    """Put the donors' batches into the holes of the log, replacing guesses and the empty batches of an earlier repair."""
    result = Filling()
    sure: list[Item] = []
    unsure: list[Item] = []
    misplaced = needs.misplaced
    for item in mended.log:
        is_unsure = item.note or (not item.count and _is_filling(item)) or (misplaced and (item.path, item.position) in misplaced)
        (unsure if is_unsure else sure).append(item)
    taken: list[Item] = []
    holes = list(_holes(sure, needs, unsure))
    found, gaps = _ask(files, holes, needs, sorted(donors, key=lambda donor: -donor.last_epoch))
    for hole, got in zip(holes, found, strict=True):
        taken += [item for item, _ in got]
        _note(got, result)
        _give_homes(mended, hole, got, needs, donors)
    # A batch that was taken at its right offset is there a second time, at the wrong one.
    contents = {(item.crc, item.size) for item in taken}
    unsure = [item for item in unsure if (item.path, item.position) not in needs.misplaced or (item.crc, item.size) not in contents]
    kept = [item for item in unsure if not any(item.base <= other.last and other.base <= item.last for other in taken)]
    mended.log = _merged(sure, sorted([*taken, *kept], key=attrgetter("base")))
    mended.from_leftovers += len(taken)
    wanted = joined([*needs.ranges, *((item.base, item.last) for item in unsure if _is_filling(item))])
    if wanted:
        low, high = wanted[0][0], wanted[-1][1]
        covered = list(_stretches(item for item in mended.log if item.base <= high and item.last >= low and not _is_filling(item)))
        result.lost = without(wanted, [*covered, *gaps] if needs.compacted else covered)
    mended.is_whole = not result.lost and not any(item.note and not item.home for item in mended.log)
    return result


def _merged(log: Sequence[Item], more: Iterable[Item]) -> list[Item]:
    """The batches of both in the order of their offsets, in which each of them is. (A sort would keep a number for each batch.)"""
    merged: list[Item] = []
    at = 0
    for item in more:
        place = bisect_right(log, item.base, at, key=attrgetter("base"))
        merged += log[at:place]
        merged.append(item)
        at = place
    merged += log[at:]
    return merged


def _stretches(items: Iterable[Item]) -> Iterator[Range]:
    """The offsets of batches in their order; those that follow one another are one range."""
    low, high = 0, -1
    for item in items:
        if item.last < item.base:
            continue
        if item.base == high + 1:
            high = item.last
            continue
        if low <= high:
            yield low, high
        low, high = item.base, item.last
    if low <= high:
        yield low, high


def _is_filling(item: Item) -> bool:
    """Whether this is an empty batch with which a repair closed a hole (see `kops.forensics.recover.copies.runs`)."""
    return item.magic > 1 and item.count == 0 and item.producer_id < 0 and item.max_timestamp < 0


def _holes(sure: Sequence[Item], needs: Needs, unsure: Sequence[Item]) -> Iterator[_Hole]:
    """The holes between intact batches that come from damage. Holes from compaction are not among the needs."""
    wanted = joined([*needs.ranges, *((item.base, item.last) for item in unsure)])
    for before, after in pairwise(chain((None,), sure, (None,))):
        low = before.last + 1 if before is not None else 0
        high = after.base - 1 if after is not None else _FAR
        if low > high:
            continue
        inside = [(max(first, low), min(last, high)) for first, last in wanted if first <= high and last >= low]
        if not (inside or (after is None and needs.tail)):
            continue
        if before is None:
            low = max(low, inside[0][0]) if inside else low
        yield _Hole(low, high, before, after)


@dataclass(slots=True)
class _Offer:
    """What a donor has for a hole: its batches inside, the next one after it, and the offsets that it lacks between intact batches."""

    rows: list[tuple[str, int, Row]] = field(default_factory=list)
    goes_on: Row | None = None
    gaps: list[Range] = field(default_factory=list)


def _ask(files: Files, holes: Sequence[_Hole], needs: Needs, donors: Sequence[Donor]) -> tuple[list[list[tuple[Item, Donor]]], list[Range]]:
    """Return the batches for each hole, and the offsets that donors lack between intact batches.

    `donors`: those that are asked first come first. The others are asked for what is still lacking.
    """
    found: list[list[tuple[Item, Donor]]] = [[] for _ in holes]
    gaps: list[Range] = []
    lacking = list(range(len(holes)))
    for donor in donors:
        if not lacking:
            break
        offers = _offers(files, [holes[number] for number in lacking], donor)
        for number, offer in zip(lacking, offers, strict=True):
            _take(files, holes[number], needs, donor, offer, found[number])
            gaps += offer.gaps
        lacking = [number for number in lacking if _lacks(holes[number], found[number])]
    return [_ascending(sorted(each, key=lambda item: item[0].base)) for each in found], gaps


def _lacks(hole: _Hole, found: Sequence[tuple[Item, Donor]]) -> bool:
    return bool(without([(hole.low, hole.high)], joined((item.base, item.last) for item, _ in found)))


def _take(files: Files, hole: _Hole, needs: Needs, donor: Donor, offer: _Offer, found: list[tuple[Item, Donor]]) -> None:
    """Add those of a donor's batches to the ones found for a hole that belong there."""
    meets = hole.after is not None and offer.goes_on is not None and _is_same(hole.after, offer.goes_on)
    for path, position, row in offer.rows:
        item = Item.of_row(path, position, row)
        if not (meets or _is_of_history(item, hole, needs)) or item.last >= donor.limit or not _is_sound(files, item):
            continue
        if item.base < hole.low:
            continue  # A compressed set of v0 or v1, which begins among the offsets of the batch before the hole.
        if not any(item.base <= other.last and other.base <= item.last for other, _ in found):
            found.append((item, donor))


def _offers(files: Files, holes: Sequence[_Hole], donor: Donor) -> list[_Offer]:
    """Read what a donor has for these holes, which are in the order of offsets. A segment is read once, from the batch before its first
    hole on if the index leads to that; one without a hole is not read."""
    offers = [_Offer() for _ in holes]
    following = [*(log.base_offset for log in donor.logs[1:]), _FAR]
    numbers = {log.path: number for number, log in enumerate(donor.logs)}
    finder = Finder(files, donor.logs)
    at = 0
    while at < len(holes):
        first = bisect_right(following, holes[at].low)
        stream = ordered_batches(files, donor.logs[first:], place=_beginning(finder, holes[at], first))
        at = _read_on(stream, holes, offers, at, lambda path, low: following[numbers[path]] <= low)
    return offers


def _beginning(finder: Finder, hole: _Hole, log: int) -> Place:
    """Where to begin to read for a hole: at the batch before it, if the donor has that in the log of this number; else at the log's
    beginning."""
    if hole.before is not None:
        cut = finder.find(hole.before.base)
        if cut is not None and cut.log == log:
            return Place(0, cut.position, hole.before.base - 1)
    return Place()


def _read_on(
    stream: Iterable[Chunk | Hurt], holes: Sequence[_Hole], offers: Sequence[_Offer], at: int, is_behind: Callable[[str, int], bool]
) -> int:
    """Continue with hole number `at`. Returns the number of the next hole to begin with, after a leap to another segment.

    `is_behind`: whether the segment of a path ends before an offset.
    """
    before: int | None = None
    for chunk in stream:
        if isinstance(chunk, Hurt):
            before = None
            continue
        if row_last(chunk.rows[-1]) >= holes[at].low:
            for row, position in zip(chunk.rows, chunk.positions, strict=True):
                if before is not None and row[0] > before + 1:
                    offers[at].gaps.append((before + 1, row[0] - 1))
                before = row_last(row)
                while row[0] > holes[at].high:
                    offers[at].goes_on = row
                    at += 1
                    if at == len(holes):
                        return at
                if row[0] >= holes[at].low and before <= holes[at].high:
                    offers[at].rows.append((chunk.path, position, row))
        before = row_last(chunk.rows[-1])
        if is_behind(chunk.path, holes[at].low):
            return at
    return len(holes)


def _is_same(item: Item, row: Row) -> bool:
    """Whether this shows that two replicas have the same batch. Different gzip sets of v0 or v1 may have equal headers
    (`kops.forensics.carve.fragments.identity`), so they show nothing."""
    if row[3] < 2 and row[5] & CODEC_MASK == 1:
        return False
    return (item.base, item.last, item.crc, item.epoch) == (row[0], row_last(row), row[4], row[2] if row[3] > 1 else -1)


def _is_of_history(item: Item, hole: _Hole, needs: Needs) -> bool:
    """Whether the batch is of the damaged replica's history, by the leader epochs."""
    if hole.before is not None and item.epoch < hole.before.epoch:
        return False
    if hole.after is not None and item.epoch > hole.after.epoch >= 0:
        return False
    if item.magic < 2 or not needs.epochs:
        return True
    if hole.after is None and item.base >= needs.known_end:
        return item.epoch >= needs.epochs[-1][0]
    place = bisect_right(needs.epochs, item.base, key=lambda entry: entry[1]) - 1
    if place < 0:
        return item.epoch <= needs.epochs[0][0]  # Before the log start offset, to which Kafka raises the first entry.
    return item.epoch == needs.epochs[place][0]


def _is_sound(files: Files, item: Item) -> bool:
    """Whether it is there, with records that can be read. The first offset of a compressed set of v0 or v1 is in it."""
    with files.open(item.path) as file:
        batch = Batch(file.read(item.position, item.size), 0, item.position)
    if not batch.crc_ok or batch.check():
        return False
    item.base = batch.base_offset
    return True


def _ascending(found: list[tuple[Item, Donor]]) -> list[tuple[Item, Donor]]:
    """Leave out batches of an older epoch after a newer one: they are of a history that ended."""
    result: list[tuple[Item, Donor]] = []
    epoch = -1
    for item, donor in found:
        if item.epoch >= epoch:
            result.append((item, donor))
            epoch = item.epoch
    return result


def _note(got: Iterable[tuple[Item, Donor]], result: Filling) -> None:
    """Record where each range comes from; the first batch of a range carries the text into the plan."""
    first: Item | None = None
    for item, donor in got:
        before = result.filled[-1] if result.filled else None
        if first is not None and before is not None and before[1] + 1 == item.base and before[2] == donor.directory:
            result.filled[-1] = (before[0], item.last, donor.directory)
        else:
            result.filled.append((item.base, item.last, donor.directory))
            first = item
        assert first is not None
        first.note = f"offsets {result.filled[-1][0]} to {result.filled[-1][1]} come from {donor.directory}"


def _give_homes(mended: MendedLog, hole: _Hole, got: Sequence[tuple[Item, Donor]], needs: Needs, donors: Sequence[Donor]) -> None:
    """Assign each batch to a log. A log begins where this replica had one (its indexes exist), or where the donors have one, but no log
    that continues after the hole is cut in two."""
    if not got:
        return
    behind = mended.bases.get(hole.after.path, 0) if hole.after is not None else _FAR
    used = {donor.directory for _, donor in got}
    known = {log.base_offset for donor in donors if donor.directory in used for log in donor.logs} | set(needs.orphans)
    low, high = got[0][0].base, got[-1][0].last
    bases = {base: path for path, base in mended.bases.items()}
    floor = max((base for base in bases if base <= low), default=None)
    for base in sorted(known):
        if base in bases or base > min(high, behind) or (floor is not None and base <= floor):
            continue
        path = posixpath.join(needs.directory, log_file_name(base, "log"))
        mended.fresh[path] = base
        bases[base] = path
    order = sorted(bases)
    for item, _ in got:
        place = bisect_right(order, item.base) - 1
        item.home = bases[order[place]] if place >= 0 else ""
