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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kops.config.values.java import INT_MAX
from kops.files import Files
from kops.forensics.plans.chain import CLEANERS_GAPS, CLEANERS_SHARE, Bad, Item, chain, item_batch, may_begin, stream_items
from kops.forensics.plans.neighbours import mend_epochs
from kops.forensics.recover.copies.assemble import assemble
from kops.forensics.recover.copies.disk import PatientFiles
from kops.records import Batch, Damage, scan
from kops.storage.formats.names import parse_log_file

__all__ = ["Run", "Salvage", "Source", "append_item", "expand", "missing", "read_copy"]

_UNCHECKED = 16
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


def read_copy(files: Files, copy: Source, on_bytes: OnBytes | None = None) -> Salvage:
    """Read one copy by itself: bulk runs while its offsets increase, batch by batch otherwise."""
    result = Salvage()
    last = epoch = -1
    before = ""
    in_order = True
    for path in copy.paths:
        batches = gaps = 0
        expected: int | None = None
        for found in _readable_items(files, path, on_bytes):
            if isinstance(found, Bad):
                result.bad.append(found)
                expected = None
                continue
            batches += 1
            gaps += expected is not None and found.base > expected
            expected = found.last + 1
            if _is_filling(found):
                result.closed.append((found.base, found.last))
                continue
            in_order = in_order and last < found.base <= found.last and (found.magic < 2 or found.epoch >= epoch)
            in_order = in_order and found.last - max(last, found.base - 1) <= INT_MAX
            in_order = in_order and (found.base - last <= INT_MAX if path == before else may_begin(path, found.base))
            before = path
            last, epoch = found.last, max(epoch, found.epoch)
            result.compacted |= 0 <= found.count < found.span and found.magic > 1
            append_item(result.runs, found)
            if found.note:
                result.notes.append(f"{found.path}:{found.position}: {found.note}")
        # Without damage, so many holes in a segment come from the cleaner (`verify` assumes the same). v0 and v1 have no other sign of it.
        result.compacted |= gaps >= CLEANERS_GAPS and gaps * CLEANERS_SHARE >= batches
    left_out = [] if in_order else _sort_out(files, copy, result)
    result.lost = _holes_of_damage(copy, result, left_out)
    return result


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


def _sort_out(files: Files, copy: Source, result: Salvage) -> list[Bad]:
    """Put batches in disorder into their places. Returns those whose records are nowhere in the log then, as damage."""
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
    return [Bad(item.path, item.position, item.size, "misplaced", "", item.base, item.last, item) for item in items]


def _is_filling(item: Item) -> bool:
    """Whether this is an empty batch with which a repair closed a hole.

    The log cleaner leaves empty batches, too: the last one of a producer, and the last one of a round of cleaning. The latter may have no
    producer, but keeps the timestamp of its records (Cleaner.cleanInto). The empty batch of a repair never had one.
    """
    return item.magic > 1 and item.count == 0 and item.producer_id < 0 and item.max_timestamp < 0


def append_item(runs: list[Run], item: Item, stamp: int | None = None) -> None:
    """Add a batch to the last run, or after it. `stamp`: as in `Run`."""
    digest = hash((item.base, item.last, item.crc, item.contents, item.size, item.epoch, item.magic))
    if runs and item.data is None:
        run = runs[-1]
        joins = run.path == item.path and run.end == item.position and run.last + 1 == item.base
        if joins and run.data is None and not run.parts and run.stamp == stamp:
            run.end = item.end
            run.last = item.last
            run.batches += 1
            run.epochs = (run.epochs[0], item.epoch)
            run.digest = hash((run.digest, digest))
            return
    epochs = (item.epoch, item.epoch)
    runs.append(Run(item.path, item.position, item.end, item.base, item.last, data=item.data, stamp=stamp, epochs=epochs, digest=digest))


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
            if bad.code == "misplaced" and bad.base is not None and bad.last is not None and low <= bad.base <= bad.last < low + bad.length:
                holes.append((bad.base, bad.last))
            holes += _own_holes(bad, result)
        elif bad.code == "torn-tail" and bad.last is not None and low is not None and bad.last < low:
            holes += _own_holes(bad, result)  # A batch that belongs behind it stands before it.
        elif low is not None and bad.code in ("torn-tail", "file-unreadable", "misplaced"):
            # Its end is not known.
            holes.append((low, low))
    return holes


def _own_offsets(bad: Bad, result: Salvage, begin: int) -> list[tuple[int, int]]:
    """Return the offsets of a batch that contradicts others of a compacted log, where a hole says nothing: its own may be right. `begin`:
    the first offset of its segment."""
    if bad.code != "misplaced" or not result.compacted or bad.base is None or bad.last is None:
        return []
    return [(bad.base, bad.last)] if begin <= bad.base <= bad.last <= result.runs[-1].last else []


def _own_holes(bad: Bad, result: Salvage) -> list[tuple[int, int]]:
    own = [run for run in result.runs if run.path == bad.path]
    return [(one.last + 1, two.base - 1) for one, two in pairwise(own) if two.base > one.last + 1]


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
            yield item if run.stamp is None else _stamped(replace(item, data=bytes(found.data())), run.stamp)


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
    return replace(item, data=bytes(raw), epoch=epoch)
