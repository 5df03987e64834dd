"""Finds fragments, batches that follow one another in an image, in one pass.

A batch is taken if its checksum is correct and it is not inside another such batch: a record may hold a whole Kafka segment. Adjacent
batches form a fragment as long as their offsets increase and nothing shows that they belong to two logs. Memory grows with the number of
fragments, not of batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kops.config.values.java import LONG_MAX
from kops.errors import DecodeError
from kops.files import File
from kops.forensics.carve._hot_search import DIGEST, contents_fit, digest_on, follow, known_from, plausible_size
from kops.forensics.carve.search import EVERYTHING, HEADER_VIEW, Look, headers
from kops.records import Batch
from kops.records.batch import CODEC_MASK
from kops.records.crc import crc32c_function
from kops.records.scanning.columns import Row, read_headers
from kops.records.scanning.resync import Resync

__all__ = ["Border", "Claim", "Done", "Fragment", "Producer", "Scan", "identity"]

WINDOW: Final = 4 << 20
_SECTOR: Final = 512
_PRODUCERS: Final = 8
CREDIT: Final = 64 << 20
"""Bytes of false batches of about one size that may be checked, besides those that each byte allows."""
_CREDIT_A_BYTE: Final = 2
_CLAIMS: Final = 64
_SEQUENCES: Final = 1 << 31
_BULK: Final = 256 << 10
_SIZES: Final = 33
_NEVER: Final = -1 << 63

_GZIP: Final = 1

Producer = tuple[int, int, int]
"""Producer id, producer epoch, a sequence."""


def identity(batch: Batch) -> int:
    """A number that is equal for equal batches: the checksum.

    gzip ends what it writes with a checksum. So all gzip sets of v0 and v1 with stored contents of one size have the same checksum of the
    same kind, and another one is computed.
    """
    if batch.magic < 2 and batch.attributes & CODEC_MASK == _GZIP:
        return int(crc32c_function()(batch.data()))
    return batch.crc


@dataclass(slots=True)
class Fragment:
    """Batches without a gap between them: bytes `start` to `end` of `image`, offsets `base` to `last`.

    `firsts` has the first sequence of the first producers, `lasts` the last sequence of the latest ones. `digest` is equal for fragments of
    the same batches. `inside` is the end of a damaged batch that seems to contain the fragment, 0 if there is none (see `Done.proved`).
    """

    image: str
    start: int
    end: int
    base: int
    last: int
    batches: int = 0
    records: int = 0
    magic: int = 0
    first_epoch: int = -1
    last_epoch: int = -1
    first_ms: int = -1
    last_ms: int = -1
    compacted: bool = False
    digest: int = 0
    first_crc: int = 0
    inside: int = 0
    firsts: list[Producer] = field(default_factory=list)
    lasts: list[Producer] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.end - self.start

    def to_json(self) -> dict[str, Any]:
        """Return it as a line of the state or, with the log's name, of the list of fragments."""
        return {
            "image": self.image,
            "position": self.start,
            "length": self.size,
            "base_offset": self.base,
            "last_offset": self.last,
            "batches": self.batches,
            "records": self.records,
            "magic": self.magic,
            "leader_epochs": [self.first_epoch, self.last_epoch],
            "timestamps": [self.first_ms, self.last_ms],
            "compacted": self.compacted,
            "digest": self.digest,
            "first_crc": self.first_crc,
            "inside": self.inside,
            "first_sequences": [list(each) for each in self.firsts],
            "last_sequences": [list(each) for each in self.lasts],
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Fragment:
        """Return the fragment of such a line. Raises KeyError, TypeError or ValueError if it is not one."""
        first_epoch, last_epoch = row["leader_epochs"]
        first_ms, last_ms = row["timestamps"]
        return cls(
            row["image"],
            row["position"],
            row["position"] + row["length"],
            row["base_offset"],
            row["last_offset"],
            row["batches"],
            row["records"],
            row["magic"],
            first_epoch,
            last_epoch,
            first_ms,
            last_ms,
            row["compacted"],
            row["digest"],
            row["first_crc"],
            row["inside"],
            [(one, two, three) for one, two, three in row["first_sequences"]],
            [(one, two, three) for one, two, three in row["last_sequences"]],
        )

    def copied(self) -> Fragment:
        """Return an independent copy."""
        return replace(self, firsts=list(self.firsts), lasts=list(self.lasts))

    def continued(self) -> Fragment:
        """The fragment that continues this one: without batches, but with what decides which ones may follow."""
        return replace(
            self,
            start=self.end,
            base=self.last,
            batches=0,
            records=0,
            last_ms=-1,
            digest=0,
            inside=0,
            firsts=[],
            lasts=list(self.lasts),
        )

    def joined(self, more: Fragment) -> Fragment:
        """This fragment and the one that continues it (`continued`), after batches were added to that one."""
        new = [each for each in more.firsts if all(each[0] != known[0] for known in self.firsts)]
        later = {each[0] for each in more.lasts}
        return replace(
            self,
            end=more.end,
            last=more.last,
            batches=self.batches + more.batches,
            records=self.records + more.records,
            magic=max(self.magic, more.magic),
            last_epoch=max(self.last_epoch, more.last_epoch),
            last_ms=max(self.last_ms, more.last_ms),
            compacted=self.compacted or more.compacted,
            digest=(self.digest + more.digest) & DIGEST,
            inside=0 if more.end > self.inside else self.inside,
            firsts=[*self.firsts, *new][:_PRODUCERS],
            lasts=[*(each for each in self.lasts if each[0] not in later), *more.lasts][-_PRODUCERS:],
        )

    def add(self, batch: Batch, base: int) -> None:
        """Add the next batch."""
        count = batch.count if batch.count is not None else 1
        self.end = batch.position + batch.size
        self.last = batch.last_offset
        self.batches += 1
        self.records += 0 if batch.is_control else count
        self.magic = max(self.magic, batch.magic)
        self.last_epoch = max(self.last_epoch, batch.partition_leader_epoch)
        self.last_ms = max(self.last_ms, batch.max_timestamp)
        self.compacted |= batch.magic > 1 and count < batch.last_offset - base + 1
        self.digest = digest_on(self.digest, identity(batch), base)
        if batch.base_sequence >= 0:
            self._add_producer(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_offset - base)

    def _add_producer(self, producer: int, epoch: int, sequence: int, delta: int) -> None:
        if self.lasts and self.lasts[-1][0] == producer:
            self.lasts.pop()
        else:
            known = next((index for index, each in enumerate(self.lasts) if each[0] == producer), None)
            if known is not None:
                del self.lasts[known]
            elif len(self.firsts) < _PRODUCERS and all(each[0] != producer for each in self.firsts):
                self.firsts.append((producer, epoch, sequence))
        self.lasts.append((producer, epoch, (sequence + delta) % _SEQUENCES))
        if len(self.lasts) > _PRODUCERS:
            del self.lasts[0]

    def extend(self, data: bytes, index: int) -> int:
        """Add the intact v2 batches that follow in `data` without a hole, the next one at `index`. Returns the index after them."""
        stop, batches, self.last, self.last_epoch, self.digest, records, self.last_ms, misses = follow(
            data, index, self.last, self.last_epoch, self.digest, self.last_ms, crc32c_function(), self._add_producer
        )
        self.end += stop - index
        self.batches += batches
        self.records += records
        self.compacted |= misses
        return stop

    def extend_legacy(self, rows: Sequence[Row]) -> int:
        """Add messages of v0 and v1 as long as they follow without a hole; returns how many. Compressed ones do not: their first offsets
        are inside.
        """
        done = 0
        for base, length, _, magic, crc, attributes, _, _, max_ms, *_ in rows:
            if magic != self.magic or attributes & 7 or base != self.last + 1:
                break
            self.end += length + 12
            self.last = base
            self.digest = digest_on(self.digest, crc, base)
            self.records += 1
            self.last_ms = max(self.last_ms, max_ms)
            done += 1
        self.batches += done
        return done

    def continues(self, batch: Batch, base: int) -> bool:
        """Whether a batch right after this fragment is of the same log.

        Files begin at a sector. So bytes that meet elsewhere are of one file. At the edge of a sector the offsets or the producer's
        sequences must continue, too.
        """
        if batch.position != self.end or base <= self.last or batch.partition_leader_epoch < self.last_epoch:
            return False
        if base == self.last + 1:
            return True
        known = next((each for each in self.lasts if each[:2] == (batch.producer_id, batch.producer_epoch)), None)
        if known is not None and batch.base_sequence >= 0:
            return 0 < (batch.base_sequence - known[2]) % _SEQUENCES <= base - self.last
        return batch.position % _SECTOR != 0 or self.compacted


@dataclass(slots=True)
class Claim:
    """A header with a wrong checksum, and the bytes and offsets that it claims."""

    position: int
    end: int
    last: int


@dataclass(slots=True)
class Done:
    """What a scan has read: everything before `position`.

    `closed` are complete fragments that were not taken yet, and `last` is the one that may continue. `nested` counts the intact v2 batches
    inside intact ones, and `damaged` the damaged batches that follow an intact one. `proved` are the ends of damaged batches whose lengths
    are right.
    """

    position: int
    closed: list[Fragment]
    last: Fragment | None
    nested: int = 0
    damaged: int = 0
    proved: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Border:
    """All that a scan knows at `position` and needs to go on from there.

    `outer_end` is the end of the batch or the batches that were taken, and `known` the first of those that are not searched yet. `claims`
    are the damaged headers that may still matter. `spent` has the bytes of false batches, by size (see `Scan`).
    """

    position: int = 0
    outer_end: int = 0
    known: int = -1
    last: Fragment | None = None
    claims: list[Claim] = field(default_factory=list)
    spent: list[int] = field(default_factory=lambda: [0] * _SIZES)


class Scan:
    """One pass over an image from `position` on, up to `end`. `last` is the fragment that may continue there (see `Done`).

    What a part of the image has does not depend on the rest, but for the `Border` before it. So parts can be read by themselves
    (`kops.forensics.carve.ranges`).
    """

    def __init__(
        self,
        image: str,
        file: File,
        position: int = 0,
        last: Fragment | None = None,
        *,
        look: Look = EVERYTHING,
        end: int | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self.image = image
        self.file = file
        self.size = file.size()
        self.end = self.size if end is None else end
        self.look = look
        self.done = Done(position, [], last)
        self.nested = 0
        self.damaged = 0
        self.proved: set[int] = set()
        self._open = None if last is None else last.copied()
        self._on_bytes = on_bytes
        self._outer_end = position if last is None else max(position, last.end)
        self._claims: list[Claim] = []
        self._resync = Resync(file, self.size, 2)
        self._known = -1  # The first of the batches that were taken and lie behind what was searched.
        self._spent = [0] * _SIZES
        self._carried: Fragment | None = None
        self.most_spent = [_NEVER] * _SIZES
        self.asked: set[tuple[int, int]] = set()
        self.asked_compacted = False

    def border(self) -> Border:
        """What is known where the scan is. Nothing in it changes later."""
        position = self.done.position
        outer_end = max(self._outer_end, position)
        last = self._open if self._open is not None and self._open.end >= position else None
        return Border(
            position,
            outer_end,
            self._known if outer_end > position else -1,
            None if last is None else last.copied(),
            [each for each in self._claims if each.end >= outer_end],
            list(self._spent),
        )

    def cross(self, border: Border, end: int) -> None:
        """Go on from a border to `end`, and say only what is behind the border.

        A fragment that reaches the border is continued by one without batches. What its earlier batches may decide is remembered: `asked`
        are the producers that its last ones are not known to have, `asked_compacted` tells whether it mattered that there was no hole. Of
        each size of false batches, `most_spent` is the most that was spent beyond what has to be allowed.
        """
        before = border.last
        self._open = self._carried = None if before is None else before.continued()
        self.done = Done(border.position, [], None if self._open is None else self._open.copied())
        self.nested = self.damaged = 0
        self.proved = set()
        self.end = end
        self._outer_end, self._known = border.outer_end, border.known
        self._claims, self._spent = list(border.claims), list(border.spent)
        self.most_spent = [_NEVER] * _SIZES
        self.asked = set()
        self.asked_compacted = False

    def windows(self) -> Iterator[Done]:
        """Read window by window. An interruption leaves `done` as it was after a whole window."""
        while self.done.position < min(self.size, self.end):
            position = self.done.position
            data = self.file.read(position, min(WINDOW, self.size - position))
            if not data:
                break  # the file became shorter
            is_last = position + len(data) >= self.size
            reach = len(data) if is_last or len(data) <= HEADER_VIEW else len(data) - HEADER_VIEW
            closed = list(self.done.closed)
            at = self._count_nested(data, position, 0, reach)
            while at < reach:
                for index in headers(data, at, reach, self.look):
                    closed += self._look(data, index, position + index)
                    if self._outer_end > position + index:
                        at = self._count_nested(data, position, index + 1, reach)
                        break
                else:
                    break
            last = None if self._open is None else self._open.copied()
            self.done = Done(position + reach, closed, last, self.nested, self.damaged, sorted(self.proved))
            if self._on_bytes is not None:
                self._on_bytes(reach)
            yield self.done

    def _close(self) -> Iterator[Fragment]:
        """Close the fragment that is still open."""
        if self._open is not None:
            closed, self._open = self._open, None
            yield closed

    def _look(self, data: bytes, index: int, position: int) -> Iterator[Fragment]:
        size: int = plausible_size(data, index)
        if not size or position + size > self.size:
            return
        kind = size.bit_length()
        if self._is_spent(kind):
            return
        magic = data[index + 16]
        if magic < 2 and not self._value_fits(data, index, position, size):
            return
        if not self._is_intact(data, index, position, size, magic):
            self._spent[kind] += size
            if magic > 1:
                self._claim(Batch(data, index, position), size)
            return
        whole = data if index + size <= len(data) or magic > 1 else self.file.read(position, size)
        yield from self._take(Batch(whole, index if whole is data else 0, position))
        self._outer_end = position + size
        self._known = -1
        if self._open is not None and self._open.end == self._outer_end:
            self._take_following(data, index + size, self._open)

    def _take_following(self, data: bytes, index: int, fragment: Fragment) -> None:
        """Take the batches that directly follow one that was taken, as far as they are in `data`."""
        begin = fragment.end
        if fragment.magic > 1:
            fragment.extend(data, index)
        while fragment.magic < 2 and index + 26 <= len(data) and data[index + 16] <= 1:
            size = int.from_bytes(data[index + 8 : index + 12], "big") + 12
            if int.from_bytes(data[index : index + 8], "big") != fragment.last + 1 or index + size > len(data):
                break
            rows: list[Row] = []
            before = fragment.end
            read_headers(data[index : index + max(_BULK, size)], before, True, 1, rows, [])
            taken = fragment.extend_legacy(rows)
            index += fragment.end - before
            if taken < len(rows) or not taken:
                break
        if fragment.end > begin:
            self._known = begin
            self._outer_end = fragment.end
            if fragment.end > fragment.inside:
                fragment.inside = 0

    def _count_nested(self, data: bytes, position: int, start: int, reach: int) -> int:
        """Count the intact v2 batches inside those taken from `start` on. Returns the index after them."""
        stop = min(self._outer_end - position, reach)
        if start >= stop:
            return max(start, 0)
        known = self._known - position if self._known >= 0 else -1
        for index in headers(data, start, stop, Look(2, self.look.large_offsets), known):
            size: int = plausible_size(data, index)
            if position + index + size > self._outer_end or self._is_spent(size.bit_length()):
                continue
            if self._is_intact(data, index, position + index, size, 2):
                self.nested += 1
            else:
                self._spent[size.bit_length()] += size
        self._known = -1 if known < 0 else position + known_from(data, known, stop)
        return stop

    def _is_spent(self, kind: int) -> bool:
        """Whether too many bytes of false batches of about this size were checked. How many are allowed depends on the position."""
        more = self._spent[kind] - _CREDIT_A_BYTE * self.done.position
        if more > self.most_spent[kind]:
            self.most_spent[kind] = more
        return more > CREDIT

    def _value_fits(self, data: bytes, index: int, position: int, size: int) -> bool:
        """Whether the value of a v0 or v1 message ends with the message. Its length may be beyond `data`, and reading it is cheaper than
        reading the whole message."""
        at = 26 if data[index + 16] else 18
        key = int.from_bytes(data[index + at : index + at + 4], "big", signed=True)
        at += 4 + max(key, 0)
        if index + at + 4 <= len(data) or at + 4 > size:
            return True  # `plausible_size` has seen it, or there is none.
        value = int.from_bytes(self.file.read(position + at, 4), "big", signed=True)
        return value >= -1 and at + 4 + max(value, 0) == size

    def _is_intact(self, data: bytes, index: int, position: int, size: int, magic: int) -> bool:
        """Whether the checksum is correct."""
        stop = index + size
        if stop > len(data):
            if magic > 1 and not contents_fit(data, index, size):
                return False  # Reading all of it would take long, and many claim to be large where there are no batches.
            return self._resync.crc_holds(position, size, magic)
        if magic > 1:
            return bool(crc32c_function()(memoryview(data)[index + 21 : stop]) == int.from_bytes(data[index + 17 : index + 21], "big"))
        return zlib.crc32(memoryview(data)[index + 16 : stop]) == int.from_bytes(data[index + 12 : index + 16], "big")

    def _take(self, batch: Batch) -> Iterator[Fragment]:
        try:
            base = batch.read_base_offset()
        except DecodeError:
            base = batch.base_offset
        if base < 0 or not base <= batch.last_offset <= LONG_MAX:
            return
        for claim in self._claims:
            if claim.end == batch.position and batch.magic > 1 and base == claim.last + 1:
                self.proved.add(claim.end)  # A batch follows at the end that the damaged one claims.
        if self._open is not None and self._open is self._carried:
            self._ask(batch, base, self._open)
        if self._open is not None and not self._open.continues(batch, base):
            yield from self._close()
        if self._open is None:
            self._open = Fragment(self.image, batch.position, batch.position, base, base)
            self._open.first_epoch, self._open.first_ms = batch.partition_leader_epoch, batch.max_timestamp
            self._open.first_crc = identity(batch)
            self._claims = [each for each in self._claims if each.end > batch.position]
            self._open.inside = next((each.end for each in self._claims if base != each.last + 1), 0)
        self._open.add(batch, base)
        if self._open.end > self._open.inside:
            self._open.inside = 0

    def _claim(self, batch: Batch, size: int) -> None:
        """Remember a damaged header. Batches inside it may be a record's value."""
        self.damaged += self._open is not None and self._open.end == batch.position and batch.base_offset == self._open.last + 1
        self._claims.append(Claim(batch.position, batch.position + size, batch.last_offset))
        if len(self._claims) > _CLAIMS:
            self._claims = [each for each in self._claims if each.end >= batch.position][-_CLAIMS:]

    def _ask(self, batch: Batch, base: int, fragment: Fragment) -> None:
        """Remember what the batches of `fragment` before the border may decide about this batch (see `Fragment.continues`)."""
        if batch.position != fragment.end or base <= fragment.last + 1 or batch.partition_leader_epoch < fragment.last_epoch:
            return
        producer = batch.producer_id, batch.producer_epoch
        if batch.base_sequence >= 0:
            if any(each[:2] == producer for each in fragment.lasts):
                return
            self.asked.add(producer)
        self.asked_compacted |= batch.position % _SECTOR == 0 and not fragment.compacted
