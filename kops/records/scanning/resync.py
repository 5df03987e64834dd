"""Finds where the scan continues after damage, and classifies the damage.

The work is linear in the number of damaged bytes, whatever their contents. A regular expression for the fixed bytes of a header finds
candidates. Each byte that is passed earns a credit for computing checksums, so that false candidates cannot make the search slow.
"""

from __future__ import annotations

import heapq
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records.batch import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, Batch
from kops.records.crc import crc32c_function
from kops.records.scanning.damage import (
    BAD_LENGTH,
    CRC_MISMATCH,
    ENDS,
    GARBAGE,
    INVALID,
    THROWS,
    TORN_TAIL,
    UNKNOWN_MAGIC,
    ZEROES,
    Damage,
)
from kops.records.scanning.source import ByteSource

CHUNK: Final = 1 << 20
_FIRST_CHUNK: Final = 16 << 10
_CREDIT: Final = 8 << 20
_CREDIT_A_BYTE: Final = 16
_CHAIN: Final = 16

# The magic byte of a v2 header and the bytes around it. Before it there are a non-negative offset and length. After it there are the CRC,
# attributes with known bits and a known codec, and a non-negative offset delta.
_V2: Final = re.compile(
    rb"\x02(?<=[\x00-\x7f].{7}[\x00-\x7f].{7}\x02)(?=.{4}\x00[%s][\x00-\x7f])"
    % b"".join(b"\\x%02x" % low for low in range(0x80) if low & 7 <= 4),
    re.DOTALL,
)
# The same for v0 and v1: a length below 128 MiB and not 0, attributes with a codec that the format knows.
_LEGACY: Final = re.compile(
    rb"[\x00\x01](?<=[\x00-\x7f].{7}[\x00-\x07].{3}.{5})(?<!\x00\x00\x00\x00.{5})(?=[\x00-\x03\x08-\x0b][\x00-\x7f\xff])", re.DOTALL
)
_BEFORE_MAGIC: Final = 16
_HEADER_VIEW: Final = 64
_FARTHEST: Final = 1 << 32
_FARTHEST_MESSAGE: Final = 1 << 24
"""A message of a damaged set may be there verbatim, and no checksum covers its offset."""
_LEAST_RECORD: Final = 8
"""A record hardly ever takes fewer bytes."""
_LARGEST: Final = 1 << 48
"""An offset that no log reaches: that would take a hundred thousand records a second for ninety years."""
_INT: Final = struct.Struct(">i")
_ZEROES: Final = bytes(CHUNK)


class Resync:
    """Explains the damage that one scan meets. `limit` is the end of the scanned range."""

    def __init__(self, source: ByteSource, limit: int, max_magic: int) -> None:
        self.source = source
        self.limit = limit
        self.max_magic = max_magic
        # There is one account for each power of two of a claimed size, so that false large batches do not use up the credits of small ones.
        self._spent = [0] * 32
        self._searched = 0
        self._rejected = (0, 0)
        self._highest = -1
        """The highest offset that a damaged header has claimed."""

    # checksums ------------------------------------------------------------------------------------------------------------------------

    def crc_holds(self, position: int, total: int, magic: int) -> bool:
        """Whether the checksum of the batch of `total` bytes at `position` is correct. Reads the batch in chunks."""
        head = self.source.read(position, BATCH_OVERHEAD)
        modern = 1 < magic < 128
        at = 17 if modern else 12
        start = position + (21 if modern else 16)
        stored = int.from_bytes(head[at : at + 4], "big")
        function = crc32c_function() if modern else zlib.crc32
        end = position + total
        value = 0
        while start < end:
            data = self.source.read(start, min(CHUNK, end - start))
            if not data:
                return False
            value = function(data, value)
            start += len(data)
        return value == stored

    def _least(self, magic: int) -> int:
        return BATCH_OVERHEAD if magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0

    def _header(self, position: int) -> Batch | None:
        """Return the header at `position` if all of it can be read."""
        data = self.source.read(position, min(BATCH_OVERHEAD, self.limit - position))
        try:
            return Batch(data, 0, position)
        except DecodeError:
            return None

    def _plausible(self, position: int) -> Batch | None:
        """Return the header at `position` if its magic is known and its length is possible."""
        if position + HEADER_SIZE_UP_TO_MAGIC > self.limit:
            return None
        batch = self._header(position)
        if batch is None or not known_magic(batch.magic, self.max_magic) or batch.size < self._least(batch.magic):
            return None
        return batch if position + batch.size <= self.limit else None

    # the search -----------------------------------------------------------------------------------------------------------------------

    def find(self, start: int, end: int, last_offset: int | None, *, limits: bool = True) -> int | None:
        """Return the first position of a good batch between `start` and `end`. Its offset must exceed `last_offset`. `limits`: it must also
        be near it, unless a batch follows."""
        at = start
        reading = _FIRST_CHUNK
        while at < end:
            data = self.source.read(at, min(reading, end - at + _HEADER_VIEW, self.limit - at))
            if not data:
                return None
            reading = min(reading * 4, CHUNK)
            zeroes = leading_zeroes(data)
            if zeroes > _HEADER_VIEW:
                # No header has this many zeroes before its magic byte and length. Skipping them is worthwhile, because a preallocated tail
                # may be long.
                step = zeroes - _HEADER_VIEW // 2
            else:
                for index in self._candidates(data, min(len(data), end - at)):
                    if not self._rejected[0] < at + index < self._rejected[1] and self._accept(at + index, last_offset, limits):
                        return at + index
                # A header may begin just before the next chunk. Then this chunk does not contain its magic byte.
                step = len(data) - _HEADER_VIEW if at + len(data) < self.limit and len(data) > _HEADER_VIEW else len(data)
            self._searched += step
            at += step
        return None

    def _candidates(self, data: bytes, reach: int) -> Iterator[int]:
        """Yield the indexes below `reach` where a header may begin, in order."""
        for index in heapq.merge(self._v2_candidates(data), self._legacy_candidates(data)):
            if index >= reach:
                return
            yield index

    def _v2_candidates(self, data: bytes) -> Iterator[int]:
        for match in _V2.finditer(data):
            yield match.start() - _BEFORE_MAGIC

    def _legacy_candidates(self, data: bytes) -> Iterator[int]:
        """The same for a message of v0 or v1. If its key and value are in the chunk, they must fill it exactly."""
        unpack = _INT.unpack_from
        last = len(data) - 4
        for match in _LEGACY.finditer(data):
            magic = match.start()
            room = unpack(data, magic - 8)[0] - (22 if data[magic] else 14)
            if room < 0:
                continue
            at = magic + (10 if data[magic] else 2)
            if at <= last:
                key = unpack(data, at)[0]
                if key > room or key < -1:
                    continue
                if key > 0:
                    at += key
                    room -= key
                if at + 4 <= last:
                    value = unpack(data, at + 4)[0]
                    if value != room and (value != -1 or room):
                        continue
            yield magic - _BEFORE_MAGIC

    def _accept(self, position: int, last_offset: int | None, limits: bool) -> bool:
        batch = self._plausible(position)
        if batch is None or batch.last_offset < 0:
            return False
        if batch.magic > 1:
            if (batch.count or 0) < 0 or batch.base_offset < 0 or batch.last_offset < batch.base_offset:
                return False
        elif not self._message_fits(batch):
            return False
        kind = batch.size.bit_length()
        if self._spent[kind] > _CREDIT + _CREDIT_A_BYTE * self._searched:
            return False
        if not self.crc_holds(position, batch.size, batch.magic):
            self._spent[kind] += batch.size
            return False
        is_set = batch.magic > 1 or batch.compressed
        farthest = (_FARTHEST if limits else _LARGEST) if is_set else _FARTHEST_MESSAGE
        if last_offset is None or 0 < batch.last_offset - last_offset <= farthest:
            return True
        if last_offset < self._highest < batch.last_offset <= self._highest + farthest:
            return True  # The batch before this one has a wrong offset.
        # A batch whose offset goes back or far ahead may be inside the value of a record. It may also be a message inside a compressed set,
        # whose offset no checksum covers. Sets are not nested. So it counts if another batch follows it, or the end, where a message of an
        # old format could be the last one of a set.
        if (batch.end == self.limit and is_set) or self._is_followed(batch):
            return True
        self._rejected = (position, batch.end)  # What lies inside its bytes is a part of it.
        return False

    def _is_followed(self, batch: Batch) -> bool:
        """Whether another batch follows this one: an intact one, or a damaged one whose header continues the offsets."""
        after = self._plausible(batch.end)
        if after is None:
            return False
        if after.magic == batch.magic and after.last_offset > batch.last_offset:
            if after.magic > 1:
                continues = after.base_offset == batch.last_offset + 1
            else:
                # The header of a set has only its last offset, so it tells little. A plain message may be from another set.
                most = 1 if not after.compressed else after.size // _LEAST_RECORD if batch.compressed else 0
                continues = after.last_offset - batch.last_offset <= most
            if continues:
                return True
        return self.crc_holds(after.position, after.size, after.magic)

    def _message_fits(self, batch: Batch) -> bool:
        """Whether the key and value of a v0 or v1 message fill it exactly."""
        at = batch.position + LOG_OVERHEAD + (14 if batch.magic else 6)
        room = batch.end - at - 8
        key = int.from_bytes(self.source.read(at, 4), "big", signed=True)
        if key < -1 or max(key, 0) > room:
            return False
        value = int.from_bytes(self.source.read(at + 4 + max(key, 0), 4), "big", signed=True)
        return value >= -1 and max(key, 0) + max(value, 0) == room

    # names ----------------------------------------------------------------------------------------------------------------------------

    def explain(self, position: int, last_offset: int | None, *, go_on: bool) -> list[Damage]:
        """Return the damage at `position` and any further damage before the next good batch. The list is never empty.

        With `go_on=False`, return only the first one, without a search. It extends to the end of the scanned range.
        """
        first = self._name(position)
        if first.last_offset is not None and _continues(first, last_offset):
            self._highest = max(self._highest, first.last_offset)
        if not go_on:
            if first.code != CRC_MISMATCH:
                first.length = self.limit - position
                if first.code == BAD_LENGTH and self._zeroes(position, self.limit) == first.length:
                    first.code, first.reason = ZEROES, f"{first.length} zero bytes"
            return [first]
        if first.length and self._chain_holds(first, last_offset):
            self._mend_magic(first)
            inner = None if first.mended else self._find_inner(first, last_offset)
            if inner is not None:
                first.length = inner - position
                first.reason += f"; an intact batch lies inside its bytes, at {inner}"
                self._mend_length(first)
            return [first]
        # Without a batch before it, a header with an impossible length may have any offset. It is only a lower limit of the next one's.
        limits = last_offset is not None or first.code == CRC_MISMATCH
        found = self.find(position + 1, self.limit, _floor(first, last_offset), limits=limits)
        stop = self.limit if found is None else found
        claimed, first.length = first.length, stop - position
        if self._mend_length(first):
            return [first]
        first.length = claimed
        self._mend_magic(first)
        if not claimed or stop < first.end or not _continues(first, last_offset):
            return self._hole(position, stop, first, found, last_offset)
        rest = self._hole(first.end, stop, self._name(first.end), found, last_offset) if first.end < stop else []
        return [first, *rest]

    def _mend_length(self, damage: Damage) -> bool:
        """Whether the checksum matches the damaged bytes, so that only the length field is wrong."""
        batch = damage.batch
        if batch is None or not known_magic(batch.magic, self.max_magic) or not self._least(batch.magic) <= damage.length < 1 << 31:
            return False
        if not self.crc_holds(damage.position, damage.length, batch.magic):
            return False
        data = self.source.read(damage.position, damage.length)
        data = data[:8] + (damage.length - LOG_OVERHEAD).to_bytes(4, "big") + data[12:]
        damage.code = BAD_LENGTH
        claimed = batch.size - LOG_OVERHEAD
        damage.mend(Batch(data, 0, damage.position), f"the length field says {claimed}, the batch has {damage.length - LOG_OVERHEAD}")
        return True

    def _mend_magic(self, damage: Damage) -> None:
        """Check whether the checksum matches with another magic."""
        claimed = damage.batch
        if claimed is None or damage.length > CHUNK or damage.code not in (CRC_MISMATCH, UNKNOWN_MAGIC):
            return
        data = self.source.read(damage.position, damage.length)
        for magic in (2, 1, 0):
            if magic != claimed.magic and len(data) >= self._least(magic):
                batch = Batch(data[:16] + bytes((magic,)) + data[17:], 0, damage.position)
                if batch.crc_ok:
                    damage.mend(batch, f"the magic byte says {claimed.magic}, the checksum matches a batch of magic {magic}")
                    return

    def _name(self, position: int) -> Damage:
        """Return what the bytes at `position` claim to be. `length` is the claimed size if that is possible, else 0."""
        left = self.limit - position
        # Kafka reads nothing unless more than 17 bytes are left.
        if left <= HEADER_SIZE_UP_TO_MAGIC:
            return Damage(position, 0, TORN_TAIL, f"{left} bytes at the end, too few for a batch")
        data = self.source.read(position, min(BATCH_OVERHEAD, left))
        length = int.from_bytes(data[8:12], "big", signed=True)
        magic = data[16] if data[16] < 128 else data[16] - 256
        batch = self._header(position)
        if batch is None and length >= MESSAGE_OVERHEAD_V0 and known_magic(magic, self.max_magic):
            torn = Damage(position, 0, TORN_TAIL, f"the batch claims {length + LOG_OVERHEAD} bytes, {left} are left")
            torn.base_offset = int.from_bytes(data[:8], "big", signed=True)
            return torn
        if length < MESSAGE_OVERHEAD_V0:
            reason = f"the length field says {length}, at least {MESSAGE_OVERHEAD_V0} are needed"
            return Damage(position, 0, BAD_LENGTH, reason, kafka=THROWS, batch=batch)
        total = length + LOG_OVERHEAD
        if total > left:
            reason = f"the batch claims {total} bytes, {left} are left"
            return Damage(position, 0, TORN_TAIL, reason, kafka=ENDS, batch=batch)
        if not known_magic(magic, self.max_magic):
            return Damage(position, total, UNKNOWN_MAGIC, f"unknown magic {magic}", kafka=INVALID, batch=batch)
        if total < self._least(magic):
            reason = f"the length field says {length}, a batch of magic {magic} needs {self._least(magic) - LOG_OVERHEAD}"
            return Damage(position, 0, BAD_LENGTH, reason, kafka=INVALID, batch=batch)
        return Damage(position, total, CRC_MISMATCH, "the checksum is wrong", kafka=INVALID, batch=batch)

    def _chain_holds(self, damage: Damage, last_offset: int | None) -> bool:
        """Whether the claimed size leads to the beginning of a batch or to the end. An unchecked header on the way must continue the
        offsets.
        """
        at = damage.end
        if at == self.limit:
            return _continues(damage, last_offset)
        claimed = damage.last_offset
        for _ in range(_CHAIN):
            batch = self._plausible(at)
            if batch is None:
                return False
            if claimed is not None and batch.magic > 1 and batch.base_offset == claimed + 1:
                return True
            if self.crc_holds(at, batch.size, batch.magic):
                return True
            if claimed is not None and not 0 < batch.last_offset - claimed <= _FARTHEST:
                return False
            claimed = batch.last_offset
            at = batch.end
            if at == self.limit:
                return True
        return False

    def _find_inner(self, damage: Damage, last_offset: int | None) -> int | None:
        """Return a good batch inside a damaged one if batches lead from it exactly to the end. The damaged batch's length was then
        wrong."""
        found = self.find(damage.position + 1, damage.end, last_offset)
        if found is None or self._is_of_set(damage, found, last_offset):
            return None
        at = found
        while at < damage.end:
            batch = self._plausible(at)
            if batch is None:
                return None
            at = batch.end
        return found if at == damage.end else None

    def _is_of_set(self, damage: Damage, position: int, last_offset: int | None) -> bool:
        """Whether the message at `position` may be one of a damaged set that did not compress: its offset is not behind the set."""
        outer, inner = damage.batch, self._plausible(position)
        if outer is None or inner is None or outer.magic > 1 or inner.magic > 1 or inner.compressed or not outer.compressed:
            return False
        return inner.last_offset <= max(outer.last_offset, -1 if last_offset is None else last_offset)

    def _hole(self, position: int, stop: int, named: Damage, found: int | None, last_offset: int | None) -> list[Damage]:
        """Return the damage from `position` to `stop`, where no good batch begins."""
        length = stop - position
        zeroes = self._zeroes(position, stop)
        if length > HEADER_SIZE_UP_TO_MAGIC and (zeroes == length or zeroes >= 64):
            first = Damage(position, zeroes, ZEROES, f"{zeroes} zero bytes", kafka=named.kafka)
            if zeroes == length:
                return [first]
            return [first, *self._hole(position + zeroes, stop, self._name(position + zeroes), found, last_offset)]
        named.length = length
        if named.mended:
            return [named]
        if not self._believable(named, last_offset):
            named = Damage(position, length, GARBAGE, f"{length} bytes that are not a batch", kafka=named.kafka)
        elif named.code == TORN_TAIL and found is not None:
            named.code = BAD_LENGTH
        return [named]

    def _believable(self, damage: Damage, last_offset: int | None) -> bool:
        """Whether the bytes look like a batch header in which only one field is wrong."""
        batch = damage.batch
        if batch is None:
            return damage.code == TORN_TAIL
        if not known_magic(batch.magic, self.max_magic) or batch.attributes & ~0x7F:
            return False
        return _continues(damage, last_offset)

    def _zeroes(self, position: int, stop: int) -> int:
        """Return the number of zero bytes that begin at `position`."""
        at = position
        while at < stop:
            data = self.source.read(at, min(CHUNK, stop - at))
            if not data:
                break
            zeroes = leading_zeroes(data)
            at += zeroes
            if zeroes < len(data):
                break
        return at - position


def leading_zeroes(data: bytes) -> int:
    """Return the number of zero bytes at the beginning of `data`. Holes are long, so whole blocks are compared."""
    if data == (_ZEROES if len(data) == CHUNK else _ZEROES[: len(data)]):
        return len(data)
    return len(data) - len(data.lstrip(b"\x00"))


def known_magic(magic: int, max_magic: int) -> bool:
    """Whether a batch may have this (signed) magic. `max_magic` 127 accepts any magic, as Kafka does."""
    return 0 <= magic <= max_magic or max_magic == 127


def _floor(damage: Damage, last_offset: int | None) -> int | None:
    """The offset that the next good batch must exceed. A batch below it may be inside the damaged one: for instance, a compressed set of v0
    or v1 contains messages verbatim if they did not compress. A damaged header of v2 that leaves out offsets is not believed: it may be
    that of another batch."""
    batch = damage.batch
    if batch is None or not _continues(damage, last_offset):
        return last_offset
    is_first = damage.code == BAD_LENGTH and last_offset is None and batch.last_offset > 0
    if damage.code not in (CRC_MISMATCH, TORN_TAIL) and not is_first:
        return last_offset
    if not known_magic(batch.magic, 2):
        return last_offset
    if batch.magic < 2:
        return batch.last_offset
    return batch.base_offset if last_offset is None or batch.base_offset == last_offset + 1 else last_offset


def _continues(damage: Damage, last_offset: int | None) -> bool:
    """Whether the offset that the header claims can follow the last good batch."""
    claimed = damage.last_offset
    if claimed is None or claimed < 0:
        return False
    return claimed < _LARGEST if last_offset is None else 0 < claimed - last_offset <= _FARTHEST
