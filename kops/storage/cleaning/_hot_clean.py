"""The hot loops of log compaction. mypyc compiles this module where a compiler is available; otherwise it is interpreted.

Sources: Kafka's `SkimpyOffsetMap` (the map from a key's MD5 to its latest offset), `Cleaner.shouldRetainRecord`, and the output of
`MemoryRecords.filterTo` for a batch that lost records. For a record that can't be read, a function returns only its position, and
`kops.records.decode` produces the error text. Both variants must return the same result for any bytes, so no arithmetic may exceed 64 bits.
"""

from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import i64

from kops.records import _hot
from kops.records.build import write_record
from kops.records.record import java_string
from kops.records.varint import write_varint

try:
    # The interpreter's own MD5 starts in half the time of OpenSSL's, and exists even where FIPS rules forbid OpenSSL's.
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # an interpreter without its own MD5
    from hashlib import md5

BYTES_PER_ENTRY: Final = 24
GROWTH: Final = 8
FULL: Final = -1
BY_KEY: Final = 0
ALL: Final = 1
NONE: Final = 2
LATEST: Final = 1
SUPERSEDED: Final = 2
MARKS_SHARE: Final = 16
_LINEAR: Final = 12
"""Earlier probes take their number from the hash."""
_WORDS: Final = struct.Struct(">qq")
_SMALL: Final = tuple(write_varint(value) for value in range(-64, 64))
_seen_varints: dict[int, bytes] = {}
"""Precomputed two-byte varints."""
_MAX64: Final = 9223372036854775807
NO_OFFSET: Final = -9223372036854775807


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


class OffsetMap:
    """The latest offset of each key, in `memory_bytes` of memory (Kafka SkimpyOffsetMap).

    The MD5 of a key identifies it. An entry has 24 bytes: hash and offset. Collisions are probed in Kafka's order. The map first allocates
    a 64th of the memory, then an eighth, then all of it, each time the previous part is two thirds full. `latest_offset` is the last offset
    passed to `put` or `update_latest_offset`, initially -1. `size` is the number of entries, `slots` their maximum.

    As long as the offsets increase, as those of a log do, the map also marks each offset LATEST, and the offset that it supersedes
    SUPERSEDED. The marks take one byte for each offset from the first one on, in another sixteenth of `memory_bytes`. When the log is read
    a second time, a mark answers without computing the MD5 and searching the table.
    """

    slots: i64
    size: i64
    latest_offset: i64
    _places: i64
    _marked_from: i64
    _marked_to: i64
    _marks_size: i64
    _marks_limit: i64

    def __init__(self, memory_bytes: int) -> None:
        self.slots = memory_bytes // BYTES_PER_ENTRY
        self.clear()

    @property
    def utilization(self) -> float:
        """The utilization, 0 to 1."""
        return float(self.size) / float(self.slots)

    def clear(self) -> None:
        """Remove all entries."""
        self.size = 0
        self.latest_offset = -1
        self._places = max(self.slots // (GROWTH * GROWTH), min(self.slots, 1))
        self._table = _zeros(self._places)
        self._marks = bytearray()
        self._marked_from = self._marked_to = -1
        self._marks_size = 0
        self._marks_limit = self.slots * BYTES_PER_ENTRY // MARKS_SHARE

    def update_latest_offset(self, offset: i64) -> None:
        """Note that the log was read up to this offset, even if there were no keys."""
        self.latest_offset = offset

    def put(self, key: bytes, offset: i64) -> None:
        """Store the offset of a key.

        Raises ValueError if all slots are in use. As in Kafka, this also applies to a key that is already in the map.
        """
        if self.size >= self.slots:
            raise ValueError(f"Attempted to add a new entry to a full offset map, entries: {self.size}, slots: {self.slots}")
        if self.size * 3 > self._places * 2 and self._places < self.slots:
            self._grow()
        digest = md5(key).digest()
        first, second = _words(digest)
        self._mark(offset, self._set(digest, first, second, offset))
        self.latest_offset = offset

    def get(self, key: bytes) -> i64:
        """Return the key's offset, or -1 if it has none."""
        table = self._table
        digest = md5(key).digest()
        first, second = _words(digest)
        attempt: i64 = 0
        while attempt < self._places + _LINEAR:
            at = _position(digest, first, attempt, self._places)
            found: i64 = table[at]
            if found == first and table[at + 1] == second:
                offset: i64 = table[at + 2]
                return offset
            if found == 0 and table[at + 1] == 0 and table[at + 2] == 0:
                break
            attempt += 1
        return -1

    def marks(self, base_offset: i64, count: i64) -> bytes:
        """Return the marks of `count` offsets: LATEST or SUPERSEDED, or 0 if only `get` knows. The result may be shorter, with 0 for the
        rest.
        """
        if self._marks_size == 0 or not self._marked_from <= base_offset <= self._marked_to:
            return b""
        at = base_offset - self._marked_from
        return bytes(self._marks[at : at + min(count, self._marks_size)])

    def _mark(self, offset: i64, superseded: i64) -> None:
        if offset <= self._marked_to:
            # The offsets do not increase as in a log, so the superseded one need not be the older one.
            self._marks = bytearray()
            self._marks_size = self._marks_limit = 0
        self._marked_to = offset
        if self._marks_limit == 0:
            return
        if self._marked_from < 0:
            self._marked_from = offset
        at = offset - self._marked_from
        if self._marks_size <= at < self._marks_limit:
            more = min(max(at + 1, 2 * self._marks_size, 4096), self._marks_limit) - self._marks_size
            self._marks.extend(bytes(more))
            self._marks_size += more
        if at < self._marks_size:
            self._marks[at] = LATEST
        if superseded >= self._marked_from and superseded - self._marked_from < self._marks_size:
            self._marks[superseded - self._marked_from] = SUPERSEDED

    def _set(self, digest: bytes, first: i64, second: i64, offset: i64) -> i64:
        """Store an offset and return the previous one, or -1."""
        table = self._table
        before: i64 = -1
        attempt: i64 = 0
        while True:
            at = _position(digest, first, attempt, self._places)
            found: i64 = table[at]
            if found == first and table[at + 1] == second:
                before = table[at + 2]
                break
            if found == 0 and table[at + 1] == 0 and table[at + 2] == 0:
                table[at] = first
                table[at + 1] = second
                self.size += 1
                break
            attempt += 1
        table[at + 2] = offset
        return before

    def _grow(self) -> None:
        small = self._table
        self._places = self.slots if self._places * GROWTH * 2 > self.slots else self._places * GROWTH
        self._table = _zeros(self._places)
        self.size = 0
        for at in range(0, len(small), 3):
            first: i64 = small[at]
            second: i64 = small[at + 1]
            offset: i64 = small[at + 2]
            if first or second or offset:
                self._set(_WORDS.pack(first, second), first, second, offset)


def _zeros(slots: i64) -> memoryview:
    return memoryview(bytearray(slots * BYTES_PER_ENTRY)).cast("q")


def _words(digest: bytes) -> tuple[i64, i64]:
    first, second = _WORDS.unpack(digest)
    return first, second


def _position(digest: bytes, first: i64, attempt: i64, slots: i64) -> i64:
    """Return the index of the first number in the slot of this probe.

    It is computed from the four bytes of the hash that begin at `attempt`. Past the end of the hash, each attempt moves one slot further.
    """
    probe: i64 = first >> 32
    if attempt:
        start = min(attempt, _LINEAR)
        probe = int.from_bytes(digest[start : start + 4], "big", signed=True) + (attempt - start)
        if probe > 0x7FFFFFFF:
            probe -= 0x100000000
    if probe < 0:
        # Java has no absolute value for its smallest number, and Kafka uses 0.
        probe = 0 if probe == -0x80000000 else -probe
    return probe % slots * 3


def put_keys(
    offsets: OffsetMap, data: bytes, start: i64, end: i64, count: i64, base_offset: i64, start_offset: i64, max_entries: i64
) -> tuple[i64, i64]:
    """Put the keys of the uncompressed records `data[start:end]` that are at or after `start_offset` into the map.

    Returns (position after the last record, number of records read). The position FULL means that the map has `max_entries` and another one
    would follow. Any lower position is -2 - the position of a record that can't be read.
    """
    position: i64 = start
    read: i64 = 0
    while read < count:
        stop, _, delta, key_at, key_size, _, _, _, _ = _hot.place(data, position, end)
        if stop < 0:
            return -2 - position, read
        offset = base_offset + delta
        if key_size >= 0 and offset >= start_offset:
            if offsets.size >= max_entries:
                return FULL, read
            offsets.put(data[key_at : key_at + key_size], offset)
        position = stop
        read += 1
    return position, read


Retained = tuple[i64, i64, i64, bool, i64]
"""(position after the last record or -2 - position of one that can't be read, records retained, the largest offset among them or -1,
whether one of them has no value, dropped records without a key)."""


def choose(
    offsets: OffsetMap,
    data: bytes,
    start: i64,
    end: i64,
    count: i64,
    base_offset: i64,
    span: i64,
    which: i64,
    keep_tombstones: bool,
    runs: list[int],
) -> Retained:
    """Choose which of the uncompressed records `data[start:end]` are retained. `runs` gets the beginning and end of each stretch of
    adjacent retained records.

    The batch's offsets end before `base_offset + span`. `which` is ALL, NONE or BY_KEY. BY_KEY retains the records that are the latest of
    their key or above the offsets that the map knows (Cleaner.shouldRetainRecord).
    """
    position: i64 = start
    latest = offsets.latest_offset
    marks = offsets.marks(base_offset, span) if which == BY_KEY else b""
    marked: i64 = len(marks)
    retained: i64 = 0
    invalid: i64 = 0
    max_offset: i64 = -1
    has_tombstone = False
    begin: i64 = -1
    for _ in range(count):
        stop, _, delta, key_at, key_size, _, value_size, _, _ = _hot.place(data, position, end)
        if stop < 0:
            return -2 - position, retained, max_offset, has_tombstone, invalid
        offset = base_offset + delta
        if which != BY_KEY:
            stays = which == ALL
        elif offset > latest:
            stays = True
        elif key_size < 0:
            stays = False
            invalid += 1
        elif value_size < 0 and not keep_tombstones:
            stays = False
        elif 0 <= delta < marked and marks[delta]:
            stays = marks[delta] == LATEST
        else:
            stays = offset >= offsets.get(data[key_at : key_at + key_size])
        if stays:
            retained += 1
            if offset > max_offset:
                max_offset = offset
            if value_size < 0:
                has_tombstone = True
            if begin < 0:
                begin = position
        elif begin >= 0:
            runs.append(begin)
            runs.append(position)
            begin = -1
        position = stop
    if begin >= 0:
        runs.append(begin)
        runs.append(position)
    return position, retained, max_offset, has_tombstone, invalid


def rewrite(data: bytes, runs: list[int], timestamp: i64, fixed: bool, horizon: i64, parts: list[bytes], last: i64) -> tuple[i64, i64, i64]:
    """Write the records of `runs` to `parts`, as Kafka writes them to a new batch.

    Returns (base timestamp, largest timestamp, last offset delta).

    `timestamp` is the old batch's base timestamp or, with `fixed`, the timestamp of all its records (LogAppendTime). If `horizon` is not
    negative, it is the new base timestamp, otherwise the first record has it. `last` is NO_OFFSET or the result for the preceding records,
    whose base timestamp is then `horizon`. Raises ValueError for records that Kafka's builder rejects.
    """
    base: i64 = horizon
    largest: i64 = -1
    for index in range(0, len(runs), 2):
        position: i64 = runs[index]
        end: i64 = runs[index + 1]
        begin = position
        while position < end:
            stop, old, offset, key_at, key_size, value_at, value_size, headers_at, attributes = _hot.place(data, position, end)
            stamp = timestamp if fixed else _add(timestamp, old)
            if stamp < -1:
                raise ValueError(f"Invalid negative timestamp {stamp}")
            if offset <= last:
                raise ValueError(f"Illegal offset delta {offset} following previous offset delta {last}")
            if base < 0 and last == NO_OFFSET:
                base = stamp
            last = offset
            largest = max(largest, stamp)
            delta = _add(stamp, -base)
            plain = _is_plain(data, key_at, key_size, value_at, value_size, headers_at, stop)
            head = _size(delta) + _size(offset) + _size(key_size) + 1
            if plain and delta == old and attributes == 0 and key_at - position == head + _size(stop - key_at + head):
                position = stop
                continue
            if begin < position:
                parts.append(data[begin:position])
            if plain:
                rest = data[key_at:stop]
                parts.append(_varint(len(rest) + head))
                parts.append(b"\x00" + _varint(delta) + _varint(offset) + _varint(key_size))
                parts.append(rest)
            else:
                parts.append(_written(data, position, stop, offset, delta))
            begin = position = stop
        if begin < end:
            parts.append(data[begin:end])
    return base, largest, last


def _is_plain(data: bytes, key_at: i64, key_size: i64, value_at: i64, value_size: i64, headers_at: i64, stop: i64) -> bool:
    """Whether the bytes from the key onward are as Kafka writes them: no overlong number, no null other than -1, no invalid UTF-8."""
    if key_size < -1 or value_size < -1 or value_at != key_at + max(key_size, 0) + _size(value_size):
        return False
    if not data[headers_at]:
        return stop == headers_at + 1
    count, position = _hot.read_varint(data, headers_at)
    if position != headers_at + _size(count):
        return False
    for _ in range(count):
        begin = position
        size, position = _hot.read_varint(data, position)
        if position != begin + _size(size) or not data[position : position + size].isascii():
            return False
        begin = position + size
        size, position = _hot.read_varint(data, begin)
        if size < -1 or position != begin + _size(size):
            return False
        if size > 0:
            position += size
    return True


def _written(data: bytes, position: i64, stop: i64, offset: i64, delta: i64) -> bytes:
    """Return a record as Kafka writes it, whatever its encoding was before."""
    rows: list[_hot.Row] = []
    _hot.decode_records(data, position, stop, 1, 0, 0, "", -1, None, rows)
    _, _, _, key, value, headers, _, _, _, _ = rows[0]
    # Java's string of a header's name replaces invalid UTF-8.
    named = [(name if isinstance(name, str) else java_string(name), content) for name, content in headers]
    return write_record(offset, delta, key, value, named)


def _varint(value: i64) -> bytes:
    if -64 <= value < 64:
        return _SMALL[value + 64]
    if not -8192 <= value < 8192:
        return write_varint(value)
    known = _seen_varints.get(value)
    if known is None:
        known = _seen_varints[value] = write_varint(value)
    return known


def _size(value: i64) -> i64:
    """The size of a signed value as a zig-zag varint in bytes."""
    limit: i64 = 64
    size: i64 = 1
    while size < 10 and not -limit <= value < limit:
        size += 1
        if size < 10:
            limit <<= 7
    return size


def _add(base: i64, delta: i64) -> i64:
    """Add with a wrap-around at 64 bits, both interpreted and compiled."""
    if delta >= 0:
        if base > _MAX64 - delta:
            return (base - _MAX64 - 1) + (delta - _MAX64 - 1)
    elif base < -_MAX64 - 1 - delta:
        return (base + _MAX64 + 1) + (delta + _MAX64 + 1)
    return base + delta
