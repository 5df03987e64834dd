"""Groups fragments into logs: decides which pieces of an image were of one partition.

A fragment continues a log if its first offset follows the log's last one, its leader epochs do not go back and no producer's sequence
contradicts this. If several logs fit, the producers' sequences decide. If these do not decide, nothing is guessed: the fragment becomes a
log of its own. Across a hole only sequences join pieces, because no offset says that they belong together. The same batches found twice are
copies.

With a hint that everything is of one partition, offsets alone join pieces, also across holes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kops.forensics.carve.fragments import Fragment, Producer

__all__ = ["Items", "Log", "Piece", "group"]

Items = Callable[[Fragment], Iterator[tuple[int, int, int, int]]]
"""The batches of a fragment: base offset, last offset, `identity`, and position in the image."""

_SEQUENCES: Final = 1 << 31
_CACHED_FRAGMENT: Final = 4096
_CACHED_BATCHES: Final = 1 << 18


@dataclass(slots=True)
class Piece:
    """The part of a fragment in a log: the batches from `start` (a position) and `base` on. `why`: what joins it to the piece before."""

    fragment: Fragment
    start: int
    base: int
    why: str


@dataclass(slots=True)
class Log:
    """Pieces in the order of their offsets, and the fragments that are copies of parts of it."""

    pieces: list[Piece] = field(default_factory=list)
    copies: list[Fragment] = field(default_factory=list)
    last: int = -1
    epoch: int = -1
    magic: int = 0
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    is_inside: bool = False

    def add(self, fragment: Fragment, start: int, base: int, why: str) -> None:
        """The next piece."""
        self.pieces.append(Piece(fragment, start, base, why))
        self.last = fragment.last
        self.epoch = max(self.epoch, fragment.last_epoch)
        self.magic = max(self.magic, fragment.magic)
        for producer, epoch, sequence in fragment.lasts:
            self.producers[producer] = (epoch, sequence)

    @property
    def batches(self) -> int:
        """The approximate number of batches: a piece counts as its whole fragment."""
        return sum(piece.fragment.batches for piece in self.pieces)

    @property
    def position(self) -> tuple[str, int]:
        """The position of its first piece."""
        return self.pieces[0].fragment.image, self.pieces[0].start


def group(fragments: Sequence[Fragment], items: Items, inside: Callable[[Fragment], bool], *, one_partition: bool = False) -> list[Log]:
    """Group all fragments into logs, the largest log first. `inside` says which fragments are known to be a damaged batch's contents."""
    copies: dict[_Key, list[Fragment]] = {}
    rest: list[Fragment] = []
    for fragment in sorted(fragments, key=lambda each: (each.base, -each.last, each.image, each.start)):
        if _key(fragment) in copies:
            copies[_key(fragment)].append(fragment)
        else:
            copies[_key(fragment)] = []
            rest.append(fragment)
    shelf = _Shelf(items)
    for same_base in _by_base(rest):
        _place(same_base, shelf, inside, one_partition)
    for log in shelf.logs:
        for fragment in [*(piece.fragment for piece in log.pieces), *log.copies]:
            log.copies += copies[_key(fragment)]
    return sorted(shelf.logs, key=lambda log: (-log.batches, log.position))


_Key = tuple[int, int, int, int]


def _key(fragment: Fragment) -> _Key:
    """Equal for fragments of the same batches."""
    return fragment.base, fragment.last, fragment.batches, fragment.digest


def _by_base(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    result: list[list[Fragment]] = []
    for fragment in fragments:
        if result and result[-1][0].base == fragment.base:
            result[-1].append(fragment)
        else:
            result.append([fragment])
    return result


class _Shelf:
    """The logs so far, with the look-ups for a fragment. Fragments come in the order of their first offsets, so a log that ends below has
    no further overlaps until it grows."""

    def __init__(self, items: Items) -> None:
        self.logs: list[Log] = []
        self._items = items
        self._known = _Known(items)
        self._active: dict[int, Log] = {}
        self._by_end: dict[int, list[Log]] = {}
        self._by_producer: dict[int, list[Log]] = {}

    def new(self, fragment: Fragment, why: str, *, is_inside: bool = False) -> None:
        """Begin a log."""
        log = Log(is_inside=is_inside)
        self.logs.append(log)
        log.add(fragment, fragment.start, fragment.base, why)
        self._index(log, set())

    def extend(self, log: Log, fragment: Fragment, why: str) -> None:
        """The fragment continues the log."""
        before = set(log.producers)
        log.add(fragment, fragment.start, fragment.base, why)
        self._index(log, before)

    def _index(self, log: Log, before: set[int]) -> None:
        if log.is_inside:
            return
        self._active[id(log)] = log
        self._by_end.setdefault(log.last, []).append(log)
        for producer in log.producers.keys() - before:
            self._by_producer.setdefault(producer, []).append(log)

    def takes(self, fragment: Fragment) -> bool:
        """Whether a log already has these batches, or the first of them."""
        self._active = {key: log for key, log in self._active.items() if log.last >= fragment.base}
        for log in self._active.values():
            if self._known.differs(log, fragment):
                continue
            before, last = set(log.producers), log.last
            if _overlaps(log, fragment, self._items):
                if log.last != last:
                    self._index(log, before)
                return True
        return False

    def before(self, fragment: Fragment, one_partition: bool) -> list[Log]:
        """Return the logs that the fragment may continue: they end right before it, or share a producer with it; with the hint, any log."""
        if one_partition:
            return [log for log in self.logs if not log.is_inside]
        found = {id(log): log for log in self._by_end.get(fragment.base - 1, ()) if log.last == fragment.base - 1}
        for producer, _, _ in fragment.firsts:
            found |= {id(log): log for log in self._by_producer.get(producer, ())}
        return list(found.values())


def _place(fragments: list[Fragment], shelf: _Shelf, inside: Callable[[Fragment], bool], one_partition: bool) -> None:
    """Add fragments with the same first offset to the logs that they continue, else each to a new one."""
    waiting: list[Fragment] = []
    for fragment in fragments:
        if inside(fragment):
            shelf.new(fragment, "inside a damaged batch", is_inside=True)
        elif not shelf.takes(fragment):
            waiting.append(fragment)
    pairs = [
        (strength, log, fragment)
        for fragment in waiting
        for log in shelf.before(fragment, one_partition)
        if (strength := _strength(log, fragment, one_partition)) > 0
    ]
    for strength in sorted({pair[0] for pair in pairs}, reverse=True):
        level = [
            (log, fragment) for found, log, fragment in pairs if found == strength and fragment in waiting and log.last < fragment.base
        ]
        for log, fragment in level:
            rivals = sum(one is log for one, _ in level) + sum(other is fragment for _, other in level)
            if rivals == 2 and fragment in waiting:
                shelf.extend(log, fragment, _REASONS[min(strength, 3)])
                waiting.remove(fragment)
    if one_partition:
        # Different batches have the same offsets: the later leader epoch wins, else the larger piece.
        for fragment in sorted(waiting, key=lambda each: (-each.last_epoch, -each.batches, each.start)):
            fits = [log for _, log, other in pairs if other is fragment and log.last < fragment.base]
            if fits:
                shelf.extend(max(fits, key=lambda log: log.last), fragment, _REASONS[1])
                waiting.remove(fragment)
    for fragment in waiting:
        shelf.new(fragment, "first")


_REASONS: Final = {1: "one partition", 2: "offsets", 3: "sequences"}


def _strength(log: Log, fragment: Fragment, one_partition: bool) -> int:
    """Return how strongly the fragment continues the log: 0 not at all, 1 by the hint, 2 by its offsets, more by sequences."""
    gap = fragment.base - log.last - 1
    if gap < 0 or (fragment.first_epoch < log.epoch and fragment.first_epoch >= 0) or fragment.magic < log.magic:
        return 0
    agreeing = 0
    for first in fragment.firsts:
        agrees = _agrees(log.producers.get(first[0]), first, gap)
        if agrees is False:
            return 0
        agreeing += agrees is True
    if agreeing:
        return 2 + agreeing
    if gap == 0:
        return 2
    return 1 if one_partition else 0


def _agrees(known: tuple[int, int] | None, first: Producer, gap: int) -> bool | None:
    """Whether the producer's sequence continues as the offsets do; None if that is not known."""
    if known is None or first[1] > known[0]:
        return None
    if first[1] < known[0]:
        return False
    step = (first[2] - known[1] - 1) % _SEQUENCES
    return step == 0 if gap == 0 else step <= gap


class _Known:
    """A cache of the batches of recent fragments. Most overlaps are between different logs, and this shows it without reading the batches
    again."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._cached: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._size = 0

    def differs(self, log: Log, fragment: Fragment) -> bool:
        """Whether the log is known to have another batch at the fragment's first offset."""
        there = next((piece.fragment for piece in reversed(log.pieces) if piece.base <= fragment.base), None)
        if there is None or there.last < fragment.base:
            return False
        if there.base == fragment.base:
            return there.first_crc != fragment.first_crc
        return there.batches <= _CACHED_FRAGMENT and self._of(there).get(fragment.base) != fragment.first_crc

    def _of(self, fragment: Fragment) -> dict[int, int]:
        """Checksums by first offset."""
        known = self._cached.get(id(fragment))
        if known is None:
            known = self._cached[id(fragment)] = {item[0]: item[2] for item in self._items(fragment)}
            self._size += len(known)
            while self._size > _CACHED_BATCHES and len(self._cached) > 1:
                self._size -= len(self._cached.popitem(last=False)[1])
        else:
            self._cached.move_to_end(id(fragment))
        return known


def _overlaps(log: Log, fragment: Fragment, items: Items) -> bool:
    """Whether the fragment has batches that the log has. Then it is a copy of a part of the log, and its batches beyond the log's end are
    added.

    A fragment that also has other batches at the same offsets is of another log.
    """
    touched = [piece for piece in log.pieces if piece.base <= fragment.last and piece.fragment.last >= fragment.base]
    if not any(piece.base <= fragment.base for piece in touched):
        return False
    there = (item for piece in touched for item in items(piece.fragment) if item[0] >= max(piece.base, fragment.base))
    for item in items(fragment):
        if item[0] > log.last:
            log.add(fragment, item[3], item[0], "the same batches before")
            return True
        if next((other[:3] for other in there if other[0] >= item[0]), None) != item[:3]:
            return False
    log.copies.append(fragment)
    return True
