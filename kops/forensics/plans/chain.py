"""Which batches of a damaged log stay, and at which offsets: the decisions that `repair` and `recover` share.

A batch whose checksum holds has the right contents. But its base offset and leader epoch are outside of the checksum (Kafka's
DefaultRecordBatch), so they may be wrong. A batch may also be there twice, or in the wrong place. The log is the longest chain of batches
in file order whose offsets increase. A batch outside of the chain is

* mended, if the hole in the chain at its place has exactly its size (its base offset was damaged), or its records fit there (its last
  offset was damaged); not if its own offset may be right, because it is behind a log that ends with damage;
* moved to its own offsets, if the chain has a hole there within its file, or ends just before them (batches changed places);
* set aside otherwise (it is already in the log).

Nothing else is changed: a value that is not determined by these rules is never guessed.
"""

from __future__ import annotations

import itertools
import posixpath
import struct
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.plans.items import Bad, Item, item_batch, mend_contents
from kops.records import Batch
from kops.storage.formats.names import parse_log_file

__all__ = ["CLEANERS_GAPS", "CLEANERS_SHARE", "Aside", "chain", "in_order", "may_begin", "reach_beyond"]

_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_RELATIVE: Final = 0x7FFFFFFF
_LEAST_RECORD: Final = 8
"""A record hardly ever takes fewer bytes."""
CLEANERS_GAPS: Final = 3
CLEANERS_SHARE: Final = 10
"""A log looks compacted with this many holes without damage, if they are at least one in so many batches."""


@dataclass(slots=True)
class Aside:
    """A readable batch that is left out, and why. `is_copy`: the log has it elsewhere."""

    item: Item
    why: str
    is_copy: bool = False


def chain(files: Files, items: Sequence[Item], bad: Sequence[Bad] = (), *, start: int = 0) -> tuple[list[Item], list[Aside]]:
    """Make the log of these batches (all of a partition's live segments, in file order): batches by offset, and what is left out.

    `bad`: the damage between them. `start`: no batch begins before this offset.
    """
    if _increasing(items, start) and not reach_beyond(items, bad):
        return list(items), []
    limits = _limits(items, _begun(bad))
    spans = _spans(items, limits)
    empty = {i for i, item in enumerate(items) if item.magic > 1 and not item.count} | _may_be_inner(items, bad)
    chosen = in_order(spans, start, [limits[item.path][0] for item in items], empty)
    kept = [items[i] for i in chosen]
    aside: list[Aside] = []
    claimed = {(each.path, each.last) for each in bad if each.last is not None}
    is_compacted, has_holes = _is_compacted(kept), bool(_holes(kept))
    facts = _Facts(start, _places(items), _by_checksum(kept), is_compacted, has_holes, _open_ends(items, bad), claimed)
    chosen, placed = _vote(items, chosen, spans, facts)
    chosen = _without_copies(items, chosen, placed)
    kept = [items[i] for i in chosen]
    facts = facts._replace(known=_by_checksum([*kept, *placed]))
    members = set(chosen)
    _fill_up([item for i, item in enumerate(items) if i not in members], facts, kept, placed)
    for group in _groups(items, members):
        around = (items[chosen[group[0] - 1]] if group[0] else None, items[chosen[group[0]]] if group[0] < len(chosen) else None)
        _place(files, [items[i] for i in group[1]], around, facts, kept, placed, aside)
    log = sorted([*kept, *placed], key=lambda item: item.base)
    return log, aside


def _may_be_inner(items: Sequence[Item], bad: Sequence[Bad]) -> set[int]:
    """The numbers of the messages of v0 and v1 that may be from a damaged set in front of them, which has its last message verbatim if that
    does not compress. A message of a set has an offset relative to the set."""
    if not any(item.magic < 2 and item.compressed for item in items):
        return set()
    ends = {(each.path, each.position + each.length) for each in bad}
    return {i for i, item in enumerate(items) if item.magic < 2 and not item.compressed and (item.path, item.position) in ends}


def _increasing(items: Iterable[Item], start: int) -> bool:
    last = start - 1
    path = ""
    for item in items:
        if item.base <= last or not 0 < item.span <= _MAX_RELATIVE:
            return False
        if item.path == path:
            if item.base - last > _MAX_RELATIVE:
                return False
        elif not may_begin(item.path, item.base):
            return False
        last, path = item.last, item.path
    return True


class Placed(Protocol):
    """Batches of a file up to an offset."""

    path: str
    last: int


def reach_beyond(found: Iterable[Placed], bad: Iterable[Bad]) -> bool:
    """Whether a batch has an offset of a later file of which only damage is left: a damaged batch of the offset in its name."""
    begins = _begun(bad)
    return bool(begins) and any(_following(begins, _base_of(each.path)) <= each.last for each in found)


def _begun(bad: Iterable[Bad]) -> list[int]:
    return sorted({each.base for each in bad if not each.position and each.base is not None and each.base == _base_of(each.path)})


def _following(begins: Sequence[int], base: int) -> int:
    place = bisect_right(begins, base)
    return begins[place] if place < len(begins) else _MAX_OFFSET


def may_begin(path: str, offset: int) -> bool:
    """Whether a segment of this name may begin with a batch at this offset: at the one in its name, or within an int32 after it."""
    name = parse_log_file(posixpath.basename(path))
    return name is None or 0 <= offset - name.offset <= _MAX_RELATIVE


def _limits(items: Iterable[Item], begun: Iterable[int] = ()) -> dict[str, tuple[int, int]]:
    """Return the lowest and the highest offset that each file may have.

    The offsets of a segment lie within an int32 from the one in its name on (LogSegment.canConvertToRelativeOffset), and below those of
    the next segment that begins with the offset in its name (`begun`: those that begin with a damaged batch of that offset). The name
    counts if a batch of the file confirms it, or the file before it, which ends there, or if only one batch contradicts it. Otherwise the
    file may have been renamed, and its offsets lie within an int32 of the one in their middle.
    """
    files: dict[str, list[Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    limits: dict[str, tuple[int, int]] = {}
    ends: set[int] = set()
    begins = sorted({*begun, *(_base_of(path) for path, found in files.items() if any(item.base == _base_of(path) for item in found))})
    for path, found in files.items():
        name = parse_log_file(posixpath.basename(path))
        centre = sorted(item.base for item in found)[(len(found) - 1) // 2]
        limits[path] = (centre - _MAX_RELATIVE, centre + _MAX_RELATIVE)
        fits = len(found) == 1 or any(0 <= item.base - name.offset <= _MAX_RELATIVE for item in found) if name is not None else False
        if name is not None and (fits or name.offset in ends):
            limits[path] = (name.offset, min(name.offset + _MAX_RELATIVE, _following(begins, name.offset) - 1))
        ends.update(item.last + 1 for item in found)
    return limits


def in_order(spans: Sequence[tuple[int, int] | None], start: int = 0, floors: Sequence[int] = (), empty: Collection[int] = ()) -> list[int]:
    """Indices of the batches that make the longest log, of (first offset, last offset) in file order; None for one that can't be in it.

    Each begins after the end of the one before it, and the first not before `start`. `floors`: the lowest offset of each batch's file.
    `empty`: the indices of batches that take the place of no other: those without records, and those that may be a part of another one.
    """
    chosen = _longest(spans, start)
    return _prefer_real(spans, chosen, start, floors, empty)


def _prefer_real(
    spans: Sequence[tuple[int, int] | None], chosen: list[int], start: int, floors: Sequence[int], empty: Collection[int]
) -> list[int]:
    """If two successive batches have the same offsets, the right one is the one that closes the gap beside it.

    A batch is exchanged for the one beside it if the gap on its own side of that one then has exactly its size, or if that one fills the
    whole gap between the two others; for the one behind it also if that one leads up to the next batch, and for the one before it if that
    one continues the log, when this one touches no other. A batch without records gives way to one with records that touches another batch
    just so.
    """
    members = set(chosen)
    result = list(chosen)
    for number, index in enumerate(chosen):
        before = _at(spans, result[number - 1])[1] if number else start - 1
        before = max(before, floors[index] - 1) if floors else before
        after = _at(spans, chosen[number + 1])[0] if number + 1 < len(chosen) else _MAX_OFFSET
        wrong = _at(spans, index)
        touches = wrong[0] == before + 1 or wrong[1] + 1 == after
        for other in (index + 1, index - 1):
            is_candidate = 0 <= other < len(spans) and other not in members and other not in empty
            real = spans[other] if is_candidate else None
            if real is None or not before < real[0] <= real[1] < after or wrong[1] < real[0] or real[1] < wrong[0]:
                continue
            hole = real[0] - before - 1 if other > index else after - real[1] - 1
            closes = wrong[1] - wrong[0] + 1 == hole
            leads_on = not touches and (real[1] + 1 == after if other > index else real[0] == before + 1)
            fills = real == (before + 1, after - 1)
            gives_way = index in empty and (not touches or real[0] == before + 1 or real[1] + 1 == after)
            if closes or fills or leads_on or gives_way:
                result[number] = other
                break
    return result


def _at(spans: Sequence[tuple[int, int] | None], index: int) -> tuple[int, int]:
    found = spans[index]
    assert found is not None
    return found


def _longest(spans: Sequence[tuple[int, int] | None], start: int) -> list[int]:
    """Indices of the longest chain in order in which each batch begins after the end of the one before it (patience sorting)."""
    ends: list[int] = []
    heads: list[int] = []
    before = [-1] * len(spans)
    for i, span in enumerate(spans):
        if span is None or span[0] < start:
            continue
        length = bisect_left(ends, span[0])
        before[i] = heads[length - 1] if length else -1
        if length == len(ends):
            ends.append(span[1])
            heads.append(i)
        elif span[1] < ends[length]:
            ends[length] = span[1]
            heads[length] = i
    found: list[int] = []
    i = heads[-1] if heads else -1
    while i >= 0:
        found.append(i)
        i = before[i]
    return found[::-1]


def _spans(items: Sequence[Item], limits: Mapping[str, tuple[int, int]]) -> list[tuple[int, int] | None]:
    """The offsets of each batch, without those that are impossible in their file."""
    return [
        (item.base, item.last) if item.span > 0 and limits[item.path][0] <= item.base and item.last <= limits[item.path][1] else None
        for item in items
    ]


def _groups(items: Sequence[Item], members: set[int]) -> Iterable[tuple[int, list[int]]]:
    """-> (number of chain members before it, indices) of each run of batches that are not in the chain."""
    number = 0
    run: list[int] = []
    for i in range(len(items)):
        if i not in members:
            run.append(i)
            continue
        if run:
            yield number, run
            run = []
        number += 1
    if run:
        yield number, run


def _places(items: Iterable[Item]) -> dict[str, tuple[int, int]]:
    """Return the offsets that belong to each file by its name: from its base offset up to that of the next file."""
    bases = {item.path: _base_of(item.path) for item in items}
    return {path: (base, min((other for other in bases.values() if other > base), default=_MAX_OFFSET)) for path, base in bases.items()}


def _base_of(path: str) -> int:
    name = parse_log_file(posixpath.basename(path))
    return 0 if name is None else name.offset


class _Facts(NamedTuple):
    """What is known of a log: its lowest offset, the offsets of each file, the chain's batches by checksum and size, whether the log looks
    compacted or at least has a hole without damage, the damage with which files end, and the file and last offset of each damaged header.
    """

    start: int
    places: dict[str, tuple[int, int]]
    known: set[tuple[int, int, int]]
    is_compacted: bool
    has_holes: bool
    open_ends: dict[str, Bad]
    claimed: set[tuple[str, int]]

    @property
    def first(self) -> int:
        """The lowest offset that a batch may have by the names of the files."""
        return max(min(low for low, _ in self.places.values()), self.start)

    def follows(self, item: Item) -> bool:
        """Whether a batch follows the last offset that a damaged header in its file claims."""
        return (item.path, item.base - 1) in self.claimed

    def may_be_behind(self, item: Item, last: int) -> bool:
        """Whether a batch may belong behind the damaged end of its file, and of a log that ends with this offset: what was between may
        have been in the damaged bytes, or is cut off."""
        end = self.open_ends.get(item.path)
        if end is None or not last < item.base <= item.last < self.places[item.path][1]:
            return False
        reach = _MAX_RELATIVE if end.code == "torn-tail" else end.length // _LEAST_RECORD
        return item.base - last - 1 <= reach and item.last - self.places[item.path][0] <= _MAX_RELATIVE


def _open_ends(items: Iterable[Item], bad: Iterable[Bad]) -> dict[str, Bad]:
    """Return the damage behind the last batch of each file."""
    ends: dict[str, int] = {}
    for item in items:
        ends[item.path] = max(item.end, ends.get(item.path, 0))
    found: dict[str, Bad] = {}
    for each in bad:
        if each.path in ends and each.position >= ends[each.path]:
            found[each.path] = each
    return found


def _is_compacted(log: Sequence[Item]) -> bool:
    """Whether the log looks compacted: a batch has fewer records than offsets, or there are many holes without damage (as in `verify`). v0
    and v1 have no other sign of it."""
    if any(item.magic > 1 and 0 <= item.count < item.span for item in log):
        return True
    gaps = _holes(log)
    return gaps >= CLEANERS_GAPS and gaps * CLEANERS_SHARE >= len(log)


def _holes(log: Sequence[Item]) -> int:
    """Count the holes between batches that follow each other in a file without damage."""
    pairs = itertools.pairwise(log)
    return sum(one.path == two.path and one.end == two.position and two.base > one.last + 1 for one, two in pairs)


def _contents(item: Item) -> tuple[int, int, int]:
    return item.crc, item.size, item.contents


def _by_checksum(items: Iterable[Item]) -> set[tuple[int, int, int]]:
    return set(map(_contents, items))


def _is_known(item: Item, facts: _Facts) -> bool:
    """Whether the chain has this batch at these or other offsets."""
    return _contents(item) in facts.known


def _vote(
    items: Sequence[Item], chosen: Sequence[int], spans: Sequence[tuple[int, int] | None], facts: _Facts
) -> tuple[list[int], list[Item]]:
    """Return the chain without each batch whose offsets two or more others have in pieces, and these others: one wrong offset is more
    likely than two. The others stand beside it in any order, and their offsets touch no other batch of the chain."""
    members = set(chosen)
    kept: list[int] = []
    placed: list[Item] = []
    for number, index in enumerate(chosen):
        low = _at(spans, chosen[number - 1])[1] if number else facts.first - 1
        high = _at(spans, chosen[number + 1])[0] if number + 1 < len(chosen) else _MAX_OFFSET
        begin = chosen[number - 1] + 1 if number else 0
        end = chosen[number + 1] if number + 1 < len(chosen) else len(items)
        first, last = _at(spans, index)
        others = [items[i] for i in range(begin, end) if i not in members and spans[i] is not None]
        others = [each for each in others if low < each.base <= last and first <= each.last < high and not _is_known(each, facts)]
        others.sort(key=lambda item: item.base)
        if len(others) > 1 and all(one.last < two.base for one, two in itertools.pairwise(others)):
            placed += others
        else:
            kept.append(index)
    return kept, placed


def _without_copies(items: Sequence[Item], chosen: Sequence[int], placed: list[Item]) -> list[int]:
    """Return the chain without each batch that the log also has at other offsets, if another one has its offsets and contents that the log
    lacks. Adds that one to `placed`."""
    log = [*(items[i] for i in chosen), *placed]
    copies = Counter(map(_contents, log))
    if len(copies) == len(log):
        return list(chosen)
    members = {*map(id, log)}
    others = {(item.base, item.last): item for item in items if id(item) not in members and _contents(item) not in copies}
    kept: list[int] = []
    for index in chosen:
        item = items[index]
        other = others.get((item.base, item.last)) if copies[_contents(item)] > 1 else None
        if other is None:
            kept.append(index)
        else:
            copies[_contents(item)] -= 1
            placed.append(other)
    placed.sort(key=lambda item: item.base)
    return kept


def _fill_up(outside: Iterable[Item], facts: _Facts, kept: Sequence[Item], placed: list[Item]) -> None:
    """Place batches whose own offsets are just what is missing. One may make room for the next."""
    left = sorted((item for item in outside if not _is_known(item, facts)), key=lambda item: item.base)
    log = sorted([*kept, *placed], key=lambda item: item.base)
    is_changed = True
    while is_changed:
        is_changed = False
        for item in list(left):
            if _fills(item, log, facts):
                placed.append(item)
                insort(log, item, key=lambda item: item.base)
                left.remove(item)
                is_changed = True
    placed.sort(key=lambda item: item.base)


def _place(
    files: Files,
    group: list[Item],
    around: tuple[Item | None, Item | None],
    facts: _Facts,
    kept: list[Item],
    placed: list[Item],
    aside: list[Aside],
) -> None:
    """Decide about a run of batches between two members of the chain, `around`."""
    start, places = facts.start, facts.places
    done = set(map(id, placed))
    group = [item for item in group if id(item) not in done]
    if not group:
        return
    before = max(around[0].last if around[0] is not None else start - 1, places[group[0].path][0] - 1)
    after = around[1].base if around[1] is not None else None
    fresh = []
    for item in group:
        if _is_known(item, facts) or _is_copy(item, placed):
            aside.append(Aside(item, "it is already in the log", is_copy=True))
        else:
            fresh.append(item)
    # A wrong offset hardly ever fits into another hole, so such batches are in the wrong place.
    log = sorted([*kept, *placed], key=lambda item: item.base)
    for test in (_fills, _is_free):
        for item in sorted(fresh, key=lambda item: item.base):
            if test(item, log, facts):
                placed.append(item)
                insort(log, item, key=lambda item: item.base)
                fresh.remove(item)
    # In a log that also has other holes, a hole of that size may be the cleaner's.
    is_hole = after is not None and not any(before < item.base < after for item in log)
    fills = not facts.has_holes and not facts.is_compacted and is_hole and sum(item.span for item in fresh) == (after or 0) - before - 1
    behind = [item for item in fresh if facts.may_be_behind(item, log[-1].last)] if log else []
    if fills and behind:
        aside += [Aside(item, "it may belong behind the damaged end of the log") for item in behind]
        fills, fresh = False, [item for item in fresh if item not in behind]
    if fills and fresh and all(map(_can_move, fresh)) and _is_between(group, around, facts.open_ends):
        for item in fresh:
            placed.append(_moved(files, item, before + 1))
            before += item.span
        return
    room = None if after is None else after - before - 1
    for item in fresh:
        if room is not None and room < item.span and item.last <= places[item.path][0] + _MAX_RELATIVE and _touches_none(item, log, facts):
            placed.append(item)  # It cannot be from its place, so it is its place that is wrong.
            insort(log, item, key=lambda item: item.base)
            continue
        trimmed = _trimmed(files, item, before, after) if item.base >= places[item.path][0] else None
        if trimmed is not None and not any(other.base <= trimmed.last and trimmed.base <= other.last for other in log):
            placed.append(trimmed)
            insort(log, trimmed, key=lambda item: item.base)
        else:
            is_here = places[item.path][0] <= item.base < places[item.path][1]
            if is_here and _touches_none(item, log, facts):
                why = "its offsets are far from those of the other batches, and nothing confirms them"
            else:
                why = f"its offsets belong to {'other batches' if is_here else 'another segment'}"
            aside.append(Aside(item, why))
    placed.sort(key=lambda item: item.base)


def _is_between(group: Sequence[Item], around: tuple[Item | None, Item | None], open_ends: Collection[str]) -> bool:
    """Whether these batches are all that stands between two others, and of their format. A batch among damaged bytes may be from the value
    of a record, or from elsewhere in the log. `open_ends`: the files that end with damage."""
    before, after = around
    path, end = (before.path, before.end) if before is not None else ("", 0)
    for item in group:
        if item.position != (end if item.path == path else 0):
            return False
        path, end = item.path, item.end
    if after is not None and after.path != path and path in open_ends:
        return False
    if after is not None and after.position != (end if after.path == path else 0):
        return False
    return all(other is None or other.magic == item.magic for other in around for item in group)


def _is_copy(item: Item, others: Sequence[Item]) -> bool:
    i = bisect_right(others, item.base, key=lambda other: other.base) - 1
    if i < 0:
        return False
    other = others[i]
    return (other.base, other.last, other.crc, other.contents) == (item.base, item.last, item.crc, item.contents)


def _touches_none(item: Item, others: Sequence[Item], facts: _Facts) -> bool:
    """Whether its own offsets are of its own file, and none of `others` has one of them."""
    place = facts.places[item.path]
    if item.base < facts.first or item.last < item.base or item.base < place[0] or item.last >= place[1]:
        return False
    i = bisect_right(others, item.base, key=lambda other: other.base)
    return not (i and others[i - 1].last >= item.base) and not (i < len(others) and others[i].base <= item.last)


def _is_free(item: Item, others: Sequence[Item], facts: _Facts) -> bool:
    """Whether its own offsets are free in its own file: between two of `others`, or before or behind them, but then not further than the
    largest hole in the log, or than a compacted log is long."""
    if not others or not _touches_none(item, others, facts):
        return False
    i = bisect_right(others, item.base, key=lambda other: other.base)
    if 0 < i < len(others):
        return True
    if facts.is_compacted:
        largest = others[-1].last - others[0].base  # The holes of the cleaner have any size.
    else:
        largest = max((two.base - one.last - 1 for one, two in itertools.pairwise(others)), default=0)
    return (item.base - others[-1].last if i else others[0].base - item.last) <= largest + 1


def _fills(item: Item, others: Sequence[Item], facts: _Facts) -> bool:
    """Whether its own offsets and leader epoch are just what is missing between two of `others`, before them from the log's first offset
    on, or what follows the last of them in its own file, or the damaged batch behind that."""
    place = facts.places[item.path]
    i = bisect_right(others, item.base, key=lambda other: other.base)
    if i == len(others) and i:
        end = others[-1]
        follows = item.base == end.last + 1 or (item.base > end.last and facts.follows(item))
        return follows and item.epoch >= end.epoch and place[0] <= item.base <= item.last < place[1]
    if i == len(others) or item.last < item.base or item.last + 1 != others[i].base or item.epoch > others[i].epoch:
        return False
    return item.base == facts.first if i == 0 else others[i - 1].last + 1 == item.base and others[i - 1].epoch <= item.epoch


def _can_move(item: Item) -> bool:
    """A compressed set of v0 holds absolute offsets under its checksum, so its own offset is known from there."""
    return item.span > 0 and (item.magic > 0 or not item.compressed)


def _moved(files: Files, item: Item, base: int) -> Item:
    """The batch at another base offset: the first eight bytes, outside of the checksum."""
    raw = bytearray(item_batch(files, item).data())
    last = base + item.span - 1
    raw[:8] = struct.pack(">q", base if item.magic > 1 else last)
    return item.mended(bytes(raw), base=base, last=last, note=f"base offset {item.base} mended to {base}")


def _trimmed(files: Files, item: Item, before: int, after: int | None) -> Item | None:
    """The batch with the last offset of its last record, when it fits between its neighbours so."""
    if item.magic != 2 or item.base <= before or after is None:
        return None
    batch = item_batch(files, item)
    try:
        kept = deque(batch.iterate(), 1)
    except DecodeError:
        return None
    if not kept or kept[0].offset >= after:
        return None
    mended = mend_contents(batch, kept[0].offset)
    if mended is None:
        return None
    fixed = Batch(mended)
    note = f"last offset {item.last} mended to {fixed.last_offset}"
    changed = item.mended(mended, last=fixed.last_offset, note=note)
    changed.crc = fixed.crc
    return changed
