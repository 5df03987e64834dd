"""Logs whose records are all known, and random damage of them. `verify`, `recover`, `diff`, `heal` and `carve` must count it correctly.

Which batches survive is decided without kops's readers. A batch is intact if its bytes are found again. It is `moved` if only the fields
outside the checksum differ (the base offset and, in v2, the leader epoch: `DefaultRecordBatch`, `LegacyRecord`). Otherwise it is dead.
"""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from kops.files import MemoryFiles
from kops.records import BatchBuilder
from kops.records.build import empty_batch, end_txn_marker

START_MS: Final = 1_700_000_000_000
TOPIC: Final = "orders"
FOLDER: Final = f"{TOPIC}-0"
TRANSACTIONAL: Final = 31
IDEMPOTENT: Final = 32
LARGEST: Final = 1 << 48
_FARTHEST_MESSAGE: Final = 1 << 24
"""A message of v0 or v1 by itself is not believed further behind the offsets before it (`kops.records.scanning.resync`)."""
CODECS: Final = ("none", "none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[bytes | None, bytes | None]


class KnownBatch(NamedTuple):
    """A batch as it was written: its bytes, its offsets (both inclusive), and the key and value of each record by offset."""

    data: bytes
    base: int
    last: int
    rows: dict[int, Row]
    is_control: bool = False
    inner: tuple[bytes, ...] = ()
    """Whole batches that are in the values of its records."""

    @property
    def magic(self) -> int:
        """The message format."""
        return self.data[16]

    @property
    def covered(self) -> bytes:
        """The part that a reader checks: the bytes after offset, length and, in v2, leader epoch."""
        return self.data[16 if self.magic == 2 else 12 :]


@dataclass
class KnownLog:
    """A partition: `(base offset, batches)` of each segment. `end` is the offset after the last batch."""

    segments: list[tuple[int, list[KnownBatch]]] = field(default_factory=list)
    compacted: bool = False
    end: int = 0

    @property
    def batches(self) -> list[KnownBatch]:
        """Every batch, in order."""
        return [batch for _, batches in self.segments for batch in batches]

    @property
    def rows(self) -> dict[int, Row]:
        """Every record by offset."""
        return {offset: row for batch in self.batches for offset, row in batch.rows.items()}

    @property
    def offsets(self) -> set[int]:
        """The offsets of all batches, including those that compaction removed from within a batch."""
        return {offset for batch in self.batches for offset in range(batch.base, batch.last + 1)}

    def contents(self) -> list[tuple[int, bytes]]:
        """The segments without damage."""
        return [(base, b"".join(batch.data for batch in batches)) for base, batches in self.segments]


class Writer:
    """A writer of logs of random shape that uses these random numbers."""

    def __init__(self, rng: random.Random, magic: int) -> None:
        self.rng = rng
        self.magic = magic
        self.codec = rng.choice(CODECS[: 4 + (magic > 0)] if magic < 2 else CODECS)
        self.epoch = 0
        self.offset = rng.choice((0, 0, 7, 1 << 33))
        self.sequences = {TRANSACTIONAL: 0, IDEMPOTENT: 0}

    def log(self) -> KnownLog:
        """Return a log with one to four segments of a few batches."""
        log = KnownLog(compacted=self.rng.random() < 0.3)
        for _ in range(self.rng.randint(1, 4)):
            base, batches = self.offset, []
            for _ in range(self.rng.randint(1, 7)):
                batches.append(self.batch(log.compacted))
                self.offset = batches[-1].last + 1
                if log.compacted and self.rng.random() < 0.6:
                    self.offset += self.rng.randint(1, 4)
            log.segments.append((base, batches))
            self.epoch += self.rng.random() < 0.3
        log.end = log.batches[-1].last + 1
        return log

    def batch(self, compacted: bool) -> KnownBatch:
        """Return a batch of records, a marker, or what compaction left of a batch."""
        if self.magic == 2 and self.rng.random() < 0.12:
            return self.marker()
        if self.magic == 2 and compacted and self.rng.random() < 0.1:
            last, time = self.offset + 2, START_MS + self.offset % 100_000
            data = empty_batch(base_offset=self.offset, last_offset=last, timestamp=time, partition_leader_epoch=self.epoch)
            return KnownBatch(data, self.offset, last, {})
        return self.records(compacted)

    def marker(self) -> KnownBatch:
        """Return the end of a transaction."""
        fields = {"coordinator_epoch": 0, "producer_epoch": 0, "partition_leader_epoch": self.epoch}
        commit = self.rng.random() < 0.5
        producer = TRANSACTIONAL
        data = end_txn_marker(self.offset, START_MS + self.offset % 1000, commit=commit, producer_id=producer, **fields)
        key, value = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00"), b"\x00\x00\x00\x00\x00\x00"
        return KnownBatch(data, self.offset, self.offset, {self.offset: (key, value)}, is_control=True)

    def records(self, compacted: bool) -> KnownBatch:
        """Return some records, of a transaction or not."""
        rng = self.rng
        count = rng.randint(1, 5)
        if self.magic < 2 and self.codec == "none":
            count = 1
        fields: dict[str, object] = {}
        if self.magic == 2:
            fields["partition_leader_epoch"] = self.epoch
            if rng.random() < 0.4:
                producer = rng.choice(tuple(self.sequences))
                fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
                fields["transactional"] = producer == TRANSACTIONAL
                self.sequences[producer] += count
        builder = BatchBuilder(magic=self.magic, codec=self.codec, base_offset=self.offset, **fields)  # type: ignore[arg-type]
        rows: dict[int, Row] = {}
        inner: list[bytes] = []
        offsets = range(self.offset, self.offset + count)
        # A batch of v0 and v1 gets its offset from its last record.
        kept = [each for each in offsets if not compacted or each == offsets[-1] or rng.random() < 0.6]
        for offset in kept:
            rows[offset] = self.row(offset, inner)
            builder.append(START_MS + offset % 100_000, *rows[offset], offset=offset)
        first = self.offset if self.magic == 2 else kept[0]
        data = builder.build(last_offset=offsets[-1]) if self.magic == 2 else builder.build()
        return KnownBatch(data, first, offsets[-1], rows, inner=tuple(inner))

    def row(self, offset: int, inner: list[bytes]) -> Row:
        """Return a key and a value. Sometimes the value is a whole batch of another log."""
        rng = self.rng
        key = None if rng.random() < 0.2 else b"key-%d" % (offset % 5)
        if rng.random() < 0.05:
            builder = BatchBuilder(base_offset=rng.choice((0, offset + 1000, 1 << 40)), partition_leader_epoch=self.epoch)
            builder.append(START_MS, b"inner", b"of %d" % offset)
            inner.append(builder.build())
            return key, inner[-1]
        return key, b"value of %d " % offset + rng.randbytes(rng.choice((0, 3, 40, 200)))


Segments = list[tuple[int, bytearray]]
Place = tuple[int, bytes, KnownBatch]
"""The position, the bytes and the origin of a whole batch in a segment."""


def _place(rng: random.Random, segments: Segments) -> tuple[bytearray, int] | None:
    """Return a random position in a random segment."""
    filled = [data for _, data in segments if data]
    if not filled:
        return None
    data = rng.choice(filled)
    return data, rng.randrange(len(data))


def flip_bit(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Flip one bit."""
    if place := _place(rng, segments):
        place[0][place[1]] ^= 1 << rng.randrange(8)


def zero_range(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Write a stretch of zeroes, as a lost sector leaves it."""
    if place := _place(rng, segments):
        data, at = place
        end = min(at + rng.choice((1, 8, 60, 300)), len(data))
        data[at:end] = bytes(end - at)


def overwrite_range(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Overwrite a part with foreign bytes."""
    if place := _place(rng, segments):
        data, at = place
        end = min(at + rng.choice((4, 61, 200)), len(data))
        data[at:end] = _foreign(rng, end - at)


def insert_foreign(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Insert foreign bytes between others or at the end."""
    if place := _place(rng, segments):
        data, at = place
        at = rng.choice((at, len(data)))
        data[at:at] = _foreign(rng, rng.choice((1, 17, 90)))


def cut_tail(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Cut off the end of a segment."""
    if place := _place(rng, segments):
        del place[0][place[1] :]


def cut_front(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Cut bytes out of the middle or the front."""
    if place := _place(rng, segments):
        data, at = place
        del data[at : at + rng.choice((1, 50, 400))]


def remove_segment(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Remove a whole segment."""
    if len(segments) > 1:
        segments.remove(rng.choice(segments))


def swap_blocks(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Swap two blocks of equal size."""
    if place := _place(rng, segments):
        data, _ = place
        size = rng.choice((16, 64, 128))
        if len(data) >= 2 * size:
            one, two = sorted(rng.sample(range(len(data) // size), 2))
            first, second = slice(one * size, one * size + size), slice(two * size, two * size + size)
            data[first], data[second] = data[second], data[first]


def swap_batches(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Swap two batches of a segment."""
    _, batches = rng.choice(log.segments)
    found = [data for _, data in segments if all(data.find(batch.data) >= 0 for batch in batches)]
    if found and len(batches) > 1:
        one, two = sorted(rng.sample(range(len(batches)), 2))
        places = [found[0].find(batches[each].data) for each in (one, two)]
        (begin, first), (other, second) = sorted(zip(places, (batches[one].data, batches[two].data), strict=True))
        if begin + len(first) <= other:
            found[0][begin : other + len(second)] = second + found[0][begin + len(first) : other] + first


def repeat_range(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Repeat a part of a segment: any bytes, or a whole batch."""
    if place := _place(rng, segments):
        data, at = place
        batches = [batch for batch in log.batches if data.find(batch.data) >= 0]
        if batches and rng.random() < 0.6:
            batch = rng.choice(batches)
            at = data.find(batch.data)
            data[at:at] = batch.data
        else:
            data[at:at] = data[at : at + rng.choice((20, 100, 300))]


def overwrite_header(rng: random.Random, segments: Segments, log: KnownLog) -> None:
    """Overwrite a header with random bytes, in one field, or with the header of another batch."""
    batch = rng.choice(log.batches)
    for _, data in segments:
        at = data.find(batch.data)
        if at < 0:
            continue
        kind = rng.randrange(4)
        if kind == 0:
            data[at : at + 17] = rng.randbytes(17)
        elif kind == 1:
            data[at : at + 8] = struct.pack(">q", batch.base + rng.choice((-3, 1, 2, 64, 1 << 40)))
        elif kind == 2:
            data[at + 8 : at + 12] = struct.pack(">i", rng.choice((0, 1, 61, len(batch.data), 1 << 28, -1)))
        else:
            size = min(len(other.data) if (other := rng.choice(log.batches)) else 0, 61, len(batch.data))
            data[at : at + size] = other.data[:size]
        return


def _foreign(rng: random.Random, size: int) -> bytes:
    kind = rng.randrange(3)
    return rng.randbytes(size) if kind == 0 else b"\xff" * size if kind == 1 else (b"no batch at all; " * (size // 17 + 1))[:size]


DAMAGES: Final[tuple[Callable[[random.Random, Segments, KnownLog], None], ...]] = (
    flip_bit,
    zero_range,
    overwrite_range,
    insert_foreign,
    cut_tail,
    cut_front,
    remove_segment,
    swap_blocks,
    swap_batches,
    repeat_range,
    overwrite_header,
)


@dataclass
class Moved:
    """A batch whose contents are intact, but not its offset or leader epoch. `data` is what is there now."""

    batch: KnownBatch
    data: bytes

    @property
    def shift(self) -> int:
        """The difference between its offset now and before."""
        return _shift(self.data, self.batch)


class DamagedLog:
    """A log after some damage, and what is left of it."""

    def __init__(self, log: KnownLog, segments: Segments, damages: list[str]) -> None:
        self.log = log
        self.segments = [(base, bytes(data)) for base, data in segments]
        self.damages = damages
        self.intact: list[KnownBatch] = []
        self.moved: list[Moved] = []
        self.dead: list[KnownBatch] = []
        self.stood: list[bytes] = []
        """The bytes of every whole batch with an offset that a log can have, as often as it occurs."""
        places = [_whole_batches(log.batches, data) for _, data in self.segments]
        self._data = dict(self.segments)
        self._places = {base: found for (base, _), found in zip(self.segments, places, strict=True)}
        for batch in log.batches:
            here = [whole for found in places for _, whole, known in found if known is batch]
            self.stood += [whole for whole in here if _is_possible(whole)]
            if any(whole[:8] == batch.data[:8] for whole in here):
                self.intact.append(batch)
            elif here:
                self.moved.append(Moved(batch, here[0]))
            else:
                self.dead.append(batch)
        self.seamless = {
            base for (base, data), found in zip(self.segments, places, strict=True) if data == b"".join(each[1] for each in found)
        }
        """The base offsets of the segments that have nothing but whole batches."""
        self.between = {offset for (base, _), found in zip(self.segments, places, strict=True) for offset in _between(base, found)}
        """The offsets between two batches, or the beginning of a segment and a batch, that have no other bytes between them."""
        self.unproved = [inner for found in places for _, whole, batch in found if not _is_possible(whole) for inner in batch.inner]
        """Whole batches in the values of whole batches with an offset that no log has. Nothing shows that the outer ones are batches."""
        self.places = sum(map(len, places))
        """How many whole batches there are, with any offset."""
        self.whole = {
            base: [(at, at + len(whole), batch) for at, whole, batch in found]
            for (base, _), found in zip(self.segments, places, strict=True)
        }
        """The first position and the end of each whole batch, by segment."""
        self.disordered = {offset for found in places for offset in _disordered(found)}
        """The offsets of batches that are out of order or occur more than once."""
        self.undecided = {
            offset for (base, data), found in zip(self.segments, places, strict=True) for offset in _undecided(base, len(data), found)
        }
        """The offsets of batches whose offsets may be right or wrong: they are out of order, but just fit a hole at their place, and the
        segment ends with damage, behind which they may belong."""
        self.restamped = {
            offset for found in places for _, whole, batch in found if whole != batch.data for offset in range(batch.base, batch.last + 1)
        }
        """The offsets of batches with another leader epoch or offset."""
        self.inside = [
            inner
            for batch in log.batches
            for each in batch.inner
            for (_, data), found in zip(self.segments, places, strict=True)
            for at, inner in _wholes(each, data)
            if not any(start <= at < start + len(whole) for start, whole, _ in found)
        ]
        """Whole batches in values whose own batch is gone. Nothing distinguishes them from batches of the log."""
        self.hidden = {
            offset
            for (_, data), found in zip(self.segments, places, strict=True)
            for offset in _hidden(data, found, any(inner in data for inner in self.inside))
        }
        """The offsets of intact batches that a reader may miss.

        The damaged bytes before such a batch begin with a header that claims its bytes, or its offsets or later ones, or the batch before
        them has later ones, and no batch follows it. The batch may then be from the value of a record. So may a message of v0 or v1 whose
        offset is far from what they claim. In a segment with one of the batches of `inside`, this holds for all batches. A batch that is
        only in another segment may be from a value, too: the name of that segment contradicts its offsets.
        """
        self.hidden |= self._strayed(places)

    @cached_property
    def copies(self) -> list[Moved]:
        """All that is there of batches under other offsets. Equal records that were written in the same millisecond make equal batches, so
        nothing distinguishes a copy under a free offset from a batch of its own."""
        wholes = [(whole, batch) for found in self._places.values() for _, whole, batch in found]
        return [Moved(batch, whole) for whole, batch in wholes if whole[:8] != batch.data[:8]]

    @cached_property
    def fitting(self) -> set[int]:
        """The offsets of a hole beside a batch with a wrong offset that the intact batch between them fills. Either may be wrong."""
        return {offset for base, found in self._places.items() for offset in _fitting(base, found)}

    @cached_property
    def adjacent(self) -> set[bytes]:
        """The whole batches that follow another one without other bytes between them."""
        pairs = [pair for found in self._places.values() for pair in itertools.pairwise(found)]
        return {whole for (at, before, _), (then, whole, _) in pairs if at + len(before) == then}

    @cached_property
    def closing(self) -> set[int]:
        """The offsets of the only hole of a compacted log, if a batch that is out of order stands there and just fills it. Nothing tells
        that the cleaner left the hole, and that the batch was swapped."""
        spans = [(batch.base, batch.last) for base, _ in self.segments for _, _, batch in self._places[base]]
        closing: set[int] = set()
        for number in range(1, len(spans) - 1) if self.log.compacted else ():
            before, (first, last), after = spans[number - 1 : number + 2]
            hole = range(before[1] + 1, after[0])
            rest = spans[:number] + spans[number + 1 :]
            holes = [one for one, two in itertools.pairwise(rest) if two[0] != one[1] + 1]
            if first not in hole and len(hole) == last - first + 1 and holes == [before]:
                closing |= set(hole)
        return closing

    @cached_property
    def claims(self) -> list[tuple[int, int]]:
        """(last offset, bytes) of damaged compressed sets of v0 and v1 by their headers: nothing but the size of its bytes contradicts a
        wrong last offset."""
        return [claim for base, found in self._places.items() for claim in _claims(self._data[base], found)]

    @cached_property
    def overlapping(self) -> dict[int, list[tuple[int, int]]]:
        """The first position and the end of each whole batch, by segment, with those that overlap the one before. A reader that follows
        damaged lengths may find the second one."""
        return {
            base: [(at, at + len(whole)) for at, whole, _ in _overlapping_batches(self.log.batches, data)] for base, data in self.segments
        }

    def _strayed(self, places: list[list[Place]]) -> set[int]:
        """Return the offsets of intact batches that are not in their own segment."""
        found = {base: place for (base, _), place in zip(self.segments, places, strict=True)}
        strayed: set[int] = set()
        for base, known in self.log.segments:
            own = {batch.base for _, _, batch in found.get(base, [])}
            strayed |= {at for batch in known if batch in self.intact and batch.base not in own for at in range(batch.base, batch.last + 1)}
        return strayed

    @property
    def is_changed(self) -> bool:
        """Whether any byte has changed."""
        return self.segments != self.log.contents()

    @property
    def kept(self) -> set[int]:
        """The offsets of all intact batches."""
        return {offset for batch in self.intact for offset in range(batch.base, batch.last + 1)}

    @property
    def lost(self) -> set[int]:
        """The offsets of all dead batches."""
        return {offset for batch in self.dead for offset in range(batch.base, batch.last + 1)}

    def write(self, files: MemoryFiles, log_dir: str, *, checkpoints: bool) -> str:
        """Write the partition below a log directory. Return its path."""
        return write(files, log_dir, self.segments, self.log, checkpoints=checkpoints)


def _wholes(data: bytes, segment: bytes) -> list[tuple[int, bytes]]:
    """Return position and bytes of the batch `data` wherever it is in a segment, with any offset and leader epoch."""
    covered = data[16 if data[16] == 2 else 12 :]
    start = len(data) - len(covered)
    found, at = [], segment.find(covered)
    while at >= 0:
        if at >= start and segment[at - start + 8 : at - start + 12] == data[8:12]:
            found.append((at - start, segment[at - start : at + len(covered)]))
        at = segment.find(covered, at + 1)
    return found


def _whole_batches(batches: list[KnownBatch], segment: bytes) -> list[Place]:
    """Return position, bytes and origin of the batches in a segment. If two of them overlap, the first one counts."""
    found: list[Place] = []
    for place in _overlapping_batches(batches, segment):
        if not found or place[0] >= found[-1][0] + len(found[-1][1]):
            found.append(place)
    return found


def _overlapping_batches(batches: list[KnownBatch], segment: bytes) -> list[Place]:
    """Return the same with those that overlap."""
    places: list[Place] = []
    for batch in batches:
        covered, start = batch.covered, len(batch.data) - len(batch.covered)
        at = segment.find(covered)
        while at >= 0:
            whole = segment[at - start : at + len(covered)] if at >= start else b""
            if whole[8:12] == batch.data[8:12]:
                places.append((at - start, whole, batch))
            at = segment.find(covered, at + 1)
    return sorted(places, key=lambda each: each[0])


def _undecided(base: int, size: int, found: list[Place]) -> set[int]:
    if not found or found[-1][0] + len(found[-1][1]) == size:
        return set()
    before = [base - 1, *(batch.last for _, _, batch in found)]
    holes = zip(before, found, found[1:], strict=False)
    fitting = [one for last, (_, _, one), (_, _, two) in holes if one.base > two.base == last + 1 + one.last - one.base + 1]
    return {offset for batch in fitting for offset in range(batch.base, batch.last + 1)}


def _fitting(base: int, found: list[Place]) -> set[int]:
    fitting: set[int] = set()
    shifts = [_shift(whole, batch) for _, whole, batch in found]
    ends = [base, *(batch.last + shift + 1 for (_, _, batch), shift in zip(found, shifts, strict=True))]
    for number, ((_, _, batch), (_, _, two)) in enumerate(itertools.pairwise(found)):
        hole = range(ends[number], two.base + shifts[number + 1])
        is_outside = batch.last < hole.start or batch.base >= hole.stop
        is_beside = shifts[number + 1] or (number and shifts[number - 1])
        if shifts[number] == 0 and is_beside and is_outside and len(hole) == batch.last - batch.base + 1:
            fitting |= set(hole)
    return fitting


def _shift(whole: bytes, batch: KnownBatch) -> int:
    return int.from_bytes(whole[:8], "big", signed=True) - int.from_bytes(batch.data[:8], "big")


def _claims(data: bytes, found: list[Place]) -> Iterator[tuple[int, int]]:
    starts = {at for at, _, _ in found}
    for begin in (0, *(at + len(whole) for at, whole, _ in found)):
        at, end = begin, min((start for start in starts if start >= begin), default=len(data))
        for after, offset in _headers(data, begin, end, starts):
            if at + 17 < len(data) and data[at + 16] < 2 and data[at + 17] & 7:
                yield offset, end - at
            at = after


def _is_possible(whole: bytes) -> bool:
    """Return whether a batch has an offset that a log can have."""
    return 0 <= int.from_bytes(whole[:8], "big", signed=True) < LARGEST


def _between(base: int, found: list[Place]) -> set[int]:
    pairs = itertools.pairwise(found)
    between = {offset for (at, whole, one), (then, _, two) in pairs if at + len(whole) == then for offset in range(one.last + 1, two.base)}
    return between | set(range(base, found[0][2].base) if found and found[0][0] == 0 else ())


def _disordered(found: list[Place]) -> set[int]:
    wrong: set[int] = set()
    for number, (_, _, batch) in enumerate(found):
        for _, _, later in found[number + 1 :]:
            if later.base <= batch.last:
                wrong |= {*range(batch.base, batch.last + 1), *range(later.base, later.last + 1)}
    return wrong


def _hidden(data: bytes, found: list[Place], has_inner: bool) -> set[int]:
    hidden = {offset for _, _, batch in found for offset in range(batch.base, batch.last + 1)} if has_inner else set()
    starts = {at for at, _, _ in found}
    end = seen = reach = claimed = 0
    highest = -1
    for number, (at, whole, batch) in enumerate(found):
        after = at + len(whole)
        if batch.last + _shift(whole, batch) < 0:
            continue  # A reader takes it for damage.
        is_followed = number + 1 < len(found) and found[number + 1][0] == after
        is_last = after == len(data) and (batch.magic == 2 or batch.data[17] & 7 != 0)
        for begin in (end, reach):
            headers = _headers(data, begin, at, starts)
            claimed = max([claimed, *(offset for _, offset in headers)])
            reach = max([reach, *(stop for stop, _ in headers)])
        if batch.magic < 2:
            highest = max([highest, *_messages(data, end, at)])
        is_swallowed = at < reach
        before = max(claimed, highest)
        is_far = batch.magic < 2 and batch.base - before > _FARTHEST_MESSAGE and before > 0
        is_hidden = is_swallowed or (at > seen and (batch.base <= before or is_far) and not is_followed and not is_last)
        if is_hidden:
            hidden |= set(range(batch.base, batch.last + 1))
        if not is_swallowed:
            claimed = 0
        end = after
        seen = seen if is_hidden else after
        highest = max(highest, batch.last + _shift(whole, batch))
    return hidden


def _headers(data: bytes, begin: int, end: int, starts: set[int]) -> list[tuple[int, int]]:
    """Follow damaged headers by their lengths, from one that begins at `begin` to one at `end` or behind it. Return the position after each
    one (its own if its length is impossible), and the offset that it claims (0 if its format is unknown)."""
    found: list[tuple[int, int]] = []
    at = begin
    while at < end and at not in starts and at + 17 <= len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        is_possible = length >= 14 and at + 12 + length <= len(data)
        found.append((at + 12 + length if is_possible else at, offset if data[at + 16] < 3 else 0))
        if not is_possible:
            break
        at += 12 + length
    return found


def _messages(data: bytes, begin: int, end: int) -> Iterator[int]:
    """Yield the offsets of the whole messages of v0 and v1 between two positions: a set may contain them in plain form."""
    for at in range(begin, end - 25):
        length, checksum, magic = struct.unpack_from(">iIb", data, at + 8)
        if magic in (0, 1) and 14 <= length <= end - at - 12 and zlib.crc32(data[at + 16 : at + 12 + length]) == checksum:
            yield struct.unpack_from(">q", data, at)[0]


def write(files: MemoryFiles, log_dir: str, segments: list[tuple[int, bytes]], log: KnownLog, *, checkpoints: bool) -> str:
    """Write segments as a partition of a log directory, with or without the checkpoints that know the end and the first epoch."""
    folder = f"{log_dir}/{FOLDER}"
    files.mkdir(log_dir)
    files.mkdir(folder)
    for base, data in segments:
        files.write_all(f"{folder}/{base:020d}.log", data)
    if checkpoints:
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            files.write_all(f"{log_dir}/{name}", f"0\n1\n{TOPIC} 0 {log.end}\n".encode())
        if log.batches[0].magic == 2:
            files.write_all(f"{folder}/leader-epoch-checkpoint", _epochs(log))
    return folder


def _epochs(log: KnownLog) -> bytes:
    found: dict[int, int] = {}
    for batch in log.batches:
        found.setdefault(struct.unpack_from(">i", batch.data, 12)[0], batch.base)
    found[min(found)] = log.segments[0][0]
    return f"0\n{len(found)}\n".encode() + b"".join(b"%d %d\n" % each for each in found.items())


def known_log(seed: int) -> KnownLog:
    """Return the log of a seed."""
    rng = random.Random(f"log {seed}")
    return Writer(rng, rng.choice((0, 1, 2, 2, 2))).log()


def damaged_log(log: KnownLog, seed: int, number: int) -> DamagedLog:
    """Return the log of a seed after one to three damages."""
    rng = random.Random(f"damage {seed} {number}")
    segments = [(base, bytearray(data)) for base, data in log.contents()]
    chosen = [rng.choice(DAMAGES) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    for damage in chosen:
        damage(rng, segments, log)
    return DamagedLog(log, segments, [damage.__name__ for damage in chosen])
