"""Finds the recoverable part of one copy of a partition: runs of intact batches, with each offset once.

A run is a range of bytes of one file in which batches follow each other. A healthy segment is one run, whatever its size, so memory does
not grow with the bytes of a log. `kops.forensics.plans.chain` resolves disorder in a copy, `kops.forensics.recover.copies.merge` makes one
log of several copies.
"""

from __future__ import annotations

import errno
import os
import posixpath
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kops.config.values.java import INT_MAX
from kops.files import Files
from kops.forensics.plans.chain import CLEANERS_GAPS, CLEANERS_SHARE, chain, may_begin, reach_beyond
from kops.forensics.plans.items import Bad, Item, item_batch, item_of, stream_items
from kops.forensics.plans.neighbours import mend_epochs
from kops.forensics.recover.copies.assemble import assemble
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage, scan
from kops.storage.formats.names import parse_log_file

__all__ = [
    "Reading",
    "Run",
    "Salvage",
    "Source",
    "append_item",
    "append_run",
    "expand",
    "join_readings",
    "missing",
    "read_copy",
    "read_part",
]

_UNCHECKED = 16
_MODULUS = (1 << 61) - 1
_FACTOR = 0x1F3D5B79A2C4E681 % _MODULUS
"""The digest of a run is a polynomial in the digests of its batches, so it does not depend on where the run was cut and joined."""
_LEAST_RECORD = 8
"""A record of a compressed set hardly ever takes fewer bytes."""

OnBytes = Callable[[int], None]


@dataclass(slots=True)
class Run:
    """Batches that follow each other in one file without a gap: bytes `start` to `end`, offsets `base` to `last`.

    `data`: the bytes of one batch that was mended. `parts`: the batches from whose records this one is assembled; then the offsets are
    those to take. `stamp`: the leader epoch to write instead of their own. `epochs`: the leader epochs of the first and the last batch.
    `digest` is equal for two runs of the same batches.
    """

    path: str
    start: int
    end: int
    base: int
    last: int
    batches: int = 1
    data: bytes | None = None
    parts: tuple[Item, ...] = ()
    stamp: int | None = None
    epochs: tuple[int, int] = (-1, -1)
    digest: int = 0

    @property
    def size(self) -> int:
        """Its size in bytes; for an assembled batch, at least its size."""
        if self.parts:
            return sum(part.size for part in self.parts)
        return len(self.data) if self.data is not None else self.end - self.start

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are those of the file."""
        return self.data is None and not self.parts and self.stamp is None


@dataclass(slots=True)
class Source:
    """One copy of the partition, or of a part of it: `.log` files in the order of their base offsets. `kind` is the kind of copy."""

    kind: str
    paths: list[str]


@dataclass(slots=True)
class Salvage:
    """The result for one copy: runs by offset, unreadable places, notes, and whether the log looks compacted.

    `closed`: holes that an earlier repair closed by empty batches. They count as holes here.
    """

    runs: list[Run] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    set_aside: int = 0
    compacted: bool = False
    closed: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """What was found in a file, or in a part of it: bytes up to `end`. `extend` adds the next one of the same copy.

    `first` and `last` are its first and last batch, without those that close holes. `epoch` is the highest leader epoch so far, and
    `first_epoch` that of the first batch that has one. `expected` is the offset after the last batch, and `begins` the offset of the first
    one: None where damage comes last, or first. `batches` and `gaps` are those of the last file. `gone`: bytes that the disk can't read.
    """

    path: str
    end: int = 0
    result: Salvage = field(default_factory=Salvage)
    in_order: bool = True
    first: Item | None = None
    last: Item | None = None
    epoch: int = -1
    first_epoch: int | None = None
    begins: int | None = None
    expected: int | None = None
    batches: int = 0
    gaps: int = 0
    gone: list[tuple[int, int]] = field(default_factory=list)

    def add(self, found: Item | Bad, step: int = 0) -> None:
        """Add the next batch or damage. `step`: see `append_item`."""
        result = self.result
        if isinstance(found, Bad):
            self.end = found.position + found.length
            result.bad.append(found)
            self.expected = None
            return
        self.end = found.end
        if not self.batches and not result.bad:
            self.begins = found.base
        self.batches += 1
        self.gaps += self.expected is not None and found.base > self.expected
        self.expected = found.last + 1
        if _is_filling(found):
            result.closed.append((found.base, found.last))
            return
        if self.last is None:
            self.first = found
            self.in_order = found.base <= found.last
        else:
            self.in_order = self.in_order and _follows(self.last, self.epoch, found, found.epoch if found.magic > 1 else None)
        if found.magic > 1 and self.first_epoch is None:
            self.first_epoch = found.epoch
        self.last, self.epoch = found, max(self.epoch, found.epoch)
        result.compacted |= 0 <= found.count < found.span and found.magic > 1
        append_item(result.runs, found, step=step)
        if found.note:
            result.notes.append(f"{found.path}:{found.position}: {found.note}")

    def extend(self, after: Reading, step: int = 0) -> None:
        """Add the next part of this file, or the next file."""
        if after.path != self.path:
            self.close()
            self.path, self.batches, self.gaps, self.expected = after.path, 0, 0, None
        self.gaps += after.gaps + (self.expected is not None and after.begins is not None and after.begins > self.expected)
        self.batches += after.batches
        if after.batches or after.result.bad:
            self.expected = after.expected
        self.in_order = self.in_order and after.in_order
        if after.first is not None:
            self.in_order = self.in_order and _follows(self.last, self.epoch, after.first, after.first_epoch)
            self.first = self.first or after.first
            self.last, self.epoch = after.last, max(self.epoch, after.epoch)
            self.first_epoch = after.first_epoch if self.first_epoch is None else self.first_epoch
        ours, theirs = self.result, after.result
        for run in theirs.runs:
            append_run(ours.runs, run, step=step)
        ours.bad += theirs.bad
        ours.notes += theirs.notes
        ours.closed += theirs.closed
        ours.compacted |= theirs.compacted
        self.end = after.end

    def close(self) -> None:
        """End the file. Without damage, so many holes in a segment come from the cleaner (`verify` assumes the same). v0 and v1 have no
        other sign of it."""
        self.result.compacted |= self.gaps >= CLEANERS_GAPS and self.gaps * CLEANERS_SHARE >= self.batches


def _follows(last: Item | None, epoch: int, found: Item, first_epoch: int | None) -> bool:
    """Whether a batch may follow the last one; `first_epoch` is the next leader epoch."""
    before = -1 if last is None else last.last
    if not before < found.base <= found.last or (first_epoch is not None and first_epoch < epoch):
        return False
    if found.last - max(before, found.base - 1) > INT_MAX:
        return False
    if last is not None and found.path == last.path:
        return found.base - before <= INT_MAX
    return may_begin(found.path, found.base)


def read_copy(files: Files, copy: Source, on_bytes: OnBytes | None = None) -> Salvage:
    """Read one copy by itself: bulk runs while its offsets increase, batch by batch otherwise."""
    return join_readings(files, copy, (_read_file(files, path, on_bytes) for path in copy.paths))


def _read_file(files: Files, path: str, on_bytes: OnBytes | None) -> Reading:
    reading = Reading(path)
    for found in _readable_items(files, path, on_bytes):
        reading.add(found)
    return reading


def join_readings(files: Files, copy: Source, readings: Iterable[Reading], step: int = 0) -> Salvage:
    """Return the result for a copy from what was found in its files, or in parts of them, in order. `step`: see `append_item`."""
    whole = Reading("")
    for reading in readings:
        whole.extend(reading, step)
    whole.close()
    result = whole.result
    in_order = whole.in_order and not reach_beyond(result.runs, result.bad)
    left_out, copies = ([], []) if in_order else _sort_out(files, copy, result)
    result.lost = [*_holes_of_damage(copy, result, left_out), *_holes_beside_copies(result, copies)]
    return result


def read_part(files: Files, part: Part, step: int) -> Reading | None:
    """What is found in a part of a file. None if the part can't be read by itself: its end is not where a batch or damage ends, or the file
    is unreadable. `step`: see `append_item`."""
    named = parse_log_file(posixpath.basename(part.path))
    first = named.offset if named is not None else None
    reading = Reading(part.path, part.start)
    try:
        with files.open(part.path) as file:
            for found in part_items(file, part):
                item = item_of(part.path, found)
                end = item.position + (item.length if isinstance(item, Bad) else item.size)
                reading.add(_as_the_disk_gave_it(files, item, end, first) if isinstance(files, PatientFiles) else item, step)
    except OSError:
        return None
    if isinstance(files, PatientFiles):
        reading.gone = files.unreadable(part.path, 0, sys.maxsize)
    return reading if reading.end == part.end else None


def _readable_items(files: Files, path: str, on_bytes: OnBytes | None) -> Iterator[Item | Bad]:
    """Yield the batches of a log as far as it can be read. An unreadable file is damage; the others are still read."""
    position = 0
    named = parse_log_file(posixpath.basename(path))
    first = named.offset if named is not None else None  # The segment begins with the offset in its name.
    try:
        for found in stream_items(files, path, on_bytes=on_bytes):
            position = found.position + (found.length if isinstance(found, Bad) else found.size)
            yield _as_the_disk_gave_it(files, found, position, first) if isinstance(files, PatientFiles) else found
    except OSError as error:
        size = files.stat(path).size
        base = first if position == 0 else None
        yield Bad(path, position, max(size - position, 0), "file-unreadable", error.strerror or str(error), base)


def _as_the_disk_gave_it(files: PatientFiles, found: Item | Bad, end: int, first: int | None) -> Item | Bad:
    """Report damage that overlaps unreadable bytes as damage of the disk, not of the log. A batch whose checksum is correct with zeros for
    them is intact, but the checksum does not cover its first fields (offset, length, leader epoch)."""
    gone = files.unreadable(found.path, found.position, end)
    if not gone or (isinstance(found, Item) and gone[0][0] >= found.position + _UNCHECKED):
        return found
    reason = os.strerror(errno.EIO)
    if gone != [(found.position, end)]:
        reason += " at bytes " + ", ".join(f"{low} to {high - 1}" for low, high in gone)
    known = found if isinstance(found, Bad) else None
    base = first if found.position == 0 and (known is None or known.base is None) else known.base if known is not None else None
    last = known.last if known is not None else None
    return Bad(found.path, found.position, end - found.position, "file-unreadable", reason, base, last)


def _sort_out(files: Files, copy: Source, result: Salvage) -> tuple[list[Bad], list[Item]]:
    """Put batches in disorder into their places. Returns those whose records are nowhere in the log then, as damage, and those that the log
    has elsewhere."""
    items = [item for path in copy.paths for item in _readable_items(files, path, None) if isinstance(item, Item) and not _is_filling(item)]
    log, aside = chain(files, items, result.bad)
    log = mend_epochs(files, log)
    result.runs = []
    result.notes = [f"{item.path}:{item.position}: {item.note}" for item in log if item.note]
    for item in log:
        append_item(result.runs, item)
    result.set_aside = len(aside)
    result.notes += [f"{left.item.path}:{left.item.position}: offsets {left.item.base} to {left.item.last}: {left.why}" for left in aside]
    items = [left.item for left in aside if not left.is_copy]
    bad = [Bad(item.path, item.position, item.size, "misplaced", "", item.base, item.last, item) for item in items]
    return bad, [left.item for left in aside if left.is_copy]


def _is_filling(item: Item) -> bool:
    """Whether this is an empty batch with which a repair closed a hole.

    The log cleaner leaves empty batches, too: the last one of a producer, and the last one of a round of cleaning. The latter may have no
    producer, but keeps the timestamp of its records (Cleaner.cleanInto). The empty batch of a repair never had one.
    """
    return item.magic > 1 and item.count == 0 and item.producer_id < 0 and item.max_timestamp < 0


def append_item(runs: list[Run], item: Item, stamp: int | None = None, *, step: int = 0) -> None:
    """Add a batch to the last run, or after it. `stamp`: as in `Run`. `step`: a run also ends at offsets that are multiples of it, so that
    copies with other segments have the same runs."""
    digest = hash((item.base, item.last, item.crc, item.contents, item.size, item.epoch, item.magic))
    if runs and item.data is None:
        run = runs[-1]
        joins = run.path == item.path and run.end == item.position and run.last + 1 == item.base
        if joins and run.data is None and not run.parts and run.stamp == stamp and not (step and run.base // step != item.base // step):
            run.end = item.end
            run.last = item.last
            run.batches += 1
            run.epochs = (run.epochs[0], item.epoch)
            run.digest = (run.digest * _FACTOR + digest) % _MODULUS
            return
    epochs = (item.epoch, item.epoch)
    runs.append(Run(item.path, item.position, item.end, item.base, item.last, data=item.data, stamp=stamp, epochs=epochs, digest=digest))


def append_run(runs: list[Run], run: Run, *, step: int = 0) -> None:
    """Add a run to the last one if it follows it, else after it. `step`: as in `append_item`."""
    if runs and run.data is None and not run.parts:
        last = runs[-1]
        joins = last.path == run.path and last.end == run.start and last.last + 1 == run.base
        if (
            joins
            and last.data is None
            and not last.parts
            and last.stamp == run.stamp
            and not (step and last.base // step != run.base // step)
        ):
            last.end = run.end
            last.last = run.last
            last.digest = (last.digest * pow(_FACTOR, run.batches, _MODULUS) + run.digest) % _MODULUS
            last.batches += run.batches
            last.epochs = (last.epochs[0], run.epochs[1])
            return
    runs.append(run)


def _holes_of_damage(copy: Source, result: Salvage, left_out: Sequence[Bad]) -> list[tuple[int, int]]:
    """The offsets between the batches on both sides of each damage. Before the first batch they begin with the offset in the first
    segment's name; after the last one they end where the damaged header says, if that can be."""
    holes = list(result.closed)
    places = {path: number for number, path in enumerate(copy.paths)}
    names = [parse_log_file(posixpath.basename(path)) for path in copy.paths]
    for bad in [*result.bad, *left_out]:
        number = places[bad.path]
        end = bad.position + bad.length
        before = [run.last for run in result.runs if (places[run.path], run.end) <= (number, bad.position)]
        after = [run.base for run in result.runs if (places[run.path], run.start) >= (number, end)]
        named = names[number]
        following = next((name.offset for name in names[number + 1 :] if name is not None), None)
        low = max(before) + 1 if before else None if named is None else named.offset
        if named is not None and low is not None and low < named.offset:
            holes += [] if result.compacted else [(low, named.offset - 1)]
            low = named.offset
        if low is None:
            low = bad.base
        high = min([*after, *(() if following is None else (following,))], default=None)
        if high is not None:
            high -= 1
        elif low is not None and _is_credible(bad, low):
            high = bad.last
        if low is not None and high is not None and 0 <= low <= high:
            holes.append((low, high))
            holes += _own_offsets(bad, result, 0 if named is None else named.offset)
        elif low is not None and high is not None:
            # Batches changed places around it, so it may have been in any hole of its file.
            if bad.base is not None and bad.last is not None and _is_near(bad, result, low, following):
                holes.append((bad.base, bad.last))
            holes += _own_holes(bad, result, following)
        elif bad.code == "torn-tail" and bad.last is not None and low is not None and bad.last < low:
            holes += _own_holes(bad, result, following)  # A batch that belongs behind it stands before it.
        elif low is not None and bad.code in ("torn-tail", "file-unreadable", "misplaced"):
            # Its end is not known.
            holes.append((low, low))
    return holes


def _holes_beside_copies(result: Salvage, copies: Iterable[Item]) -> Iterator[tuple[int, int]]:
    """The offsets on both sides of a batch that is there twice, with damage directly between the copies: either may be in the wrong place,
    so the damaged bytes may have been behind it or before it."""
    for item in copies:
        number = next((n for n, run in enumerate(result.runs) if run.base <= item.base <= run.last), None)
        if number is None or result.runs[number].path != item.path:
            continue
        run = result.runs[number]
        low, high = (run.end, item.position) if run.end <= item.position else (item.end, run.start)
        is_between = any(other.path == item.path and low <= other.start and other.end <= high for other in result.runs)
        if is_between or not any(bad.path == item.path and low <= bad.position and bad.position + bad.length <= high for bad in result.bad):
            continue
        named = parse_log_file(posixpath.basename(item.path))
        before = max(result.runs[number - 1].last + 1 if number else 0, named.offset if named is not None else 0)
        if before < run.base:
            yield before, run.base - 1
        if number + 1 < len(result.runs) and result.runs[number + 1].path == item.path:
            yield run.last + 1, result.runs[number + 1].base - 1


def _own_offsets(bad: Bad, result: Salvage, begin: int) -> list[tuple[int, int]]:
    """Return the offsets of a batch that contradicts others of a compacted log, where a hole says nothing: its own may be right. `begin`:
    the first offset of its segment."""
    if bad.code != "misplaced" or not result.compacted or bad.base is None or bad.last is None:
        return []
    return [(bad.base, bad.last)] if begin <= bad.base <= bad.last <= result.runs[-1].last else []


def _is_near(bad: Bad, result: Salvage, low: int, following: int | None) -> bool:
    """Whether a batch in the wrong place may have the right offsets: in its segment, and not further than the end of the log."""
    if bad.code != "misplaced" or bad.base is None or bad.last is None:
        return False
    end = result.runs[-1].last + 1 if result.runs else low
    return low <= bad.base <= min(end, bad.last) and bad.last < low + bad.length and (following is None or bad.last < following)


def _own_holes(bad: Bad, result: Salvage, following: int | None) -> list[tuple[int, int]]:
    """Return the holes of its file, the last one up to the offset with which the next file begins."""
    own = [run for run in result.runs if run.path == bad.path]
    holes = [(one.last + 1, two.base - 1) for one, two in pairwise(own)]
    holes += [(own[-1].last + 1, following - 1)] if own and following is not None else []
    return [(first, last) for first, last in holes if first <= last]


def _is_credible(bad: Bad, low: int) -> bool:
    """Whether the last offset in a damaged header can be right: it begins where the log ended, and has as many records as offsets. The
    header of a compressed set of v0 or v1 has no first offset."""
    if bad.last is None or not low <= bad.last:
        return False
    if bad.header is not None:
        return bad.base == low and bad.header.count == bad.header.span
    return bad.base in (None, low) and bad.last - low < bad.length // _LEAST_RECORD


def missing(runs: Iterable[Run], holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of these ranges that no run covers, joined and sorted."""
    covered = [(run.base, run.last) for run in runs]
    found: list[tuple[int, int]] = []
    for low, high in sorted(set(holes)):
        if found:
            low = max(low, found[-1][1] + 1)
        for base, last in covered:
            if last < low or base > high:
                continue
            if base > low:
                found.append((low, base - 1))
            low = last + 1
        if low <= high:
            found.append((low, high))
    joined: list[tuple[int, int]] = []
    for low, high in found:
        if joined and joined[-1][1] + 1 >= low:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


# From a run back to its batches.


def expand(files: Files, run: Run) -> Iterator[Item]:
    """Yield the batches of a run (their checksums are known to be correct), as they are to be written."""
    if run.parts:
        data = assemble([item_batch(files, part) for part in run.parts], run.base, run.last)
        assert data is not None, "the run was made for the records in it"
        yield _stamped(_as_item(run, data), run.stamp)
        return
    if run.data is not None:
        yield _stamped(_as_item(run, run.data), run.stamp)
        return
    with files.open(run.path) as file:
        for found in scan(file, run.start, run.end, check_crc=False):
            if isinstance(found, Damage):
                continue
            item = Item.of(run.path, found)
            yield item if run.stamp is None else _stamped(item.mended(bytes(found.data())), run.stamp)


def _as_item(run: Run, data: bytes) -> Item:
    batch = Batch(data)
    batch.position = run.start
    return Item.of(run.path, batch, data=data)


def _stamped(item: Item, epoch: int | None) -> Item:
    """Return the batch with this leader epoch, which the checksum does not cover."""
    if epoch is None or item.data is None:
        return item
    raw = bytearray(item.data)
    raw[12:16] = struct.pack(">i", epoch)
    return item.mended(bytes(raw), epoch=epoch)
