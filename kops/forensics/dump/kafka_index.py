"""Prints the text of Kafka's dump tool about indexes and producer snapshots.

Source: Kafka's `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, `dumpTxnIndex`, `dumpProducerIdSnapshot`, with `OffsetIndex`, `TimeIndex`,
`TransactionIndex` and `ProducerStateManager.readSnapshot`. Kafka walks the log again for each entry of a time index. This module walks it
once.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack
from operator import le
from typing import Final

from kops.errors import DecodeError
from kops.files import File, Files
from kops.forensics.dump._hot_dump import largest_delta
from kops.forensics.dump.legacy import legacy_messages
from kops.forensics.dump.text import (
    INT_MAX,
    DumpOptions,
    DumpProblem,
    DumpText,
    WindowSource,
    absolute_path,
    base_offset_of,
    java_hash_order,
    wrap_int,
)
from kops.records import Batch, decrement_sequence
from kops.records.batch import MAX_LONG
from kops.records.windows import RecordWindows
from kops.storage.segment_files.offset_index import OffsetIndex, read_offset_index
from kops.storage.segment_files.time_index import TimeIndex, read_time_index

_PREFIX: Final = struct.Struct(">qi4xb")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_TXN_ENTRY: Final = struct.Struct(">bxqqqq")


class _Ends(Exception):
    """Kafka's tool ends here with an exception."""


class _Walk:
    """Positions and last offsets of the batches from some position on; `reason`: why Kafka's walk ends with an exception, else ""."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.offsets: list[int] = []
        self.reason = ""
        self.sorted = True


class LogFrames:
    """The batches of a log as far as their lengths lead, from any position on: those that `FileRecords.slice(...).batches()` returns."""

    def __init__(self, file: File) -> None:
        self.source = WindowSource(file)
        self.size = self.source.size()
        self.found_position = 0
        self.found_offset = 0
        self._known: dict[int, tuple[_Walk, int]] = {}
        self._timestamps: dict[int, int] = {}

    def check_slice(self, position: int) -> None:
        """Raise where `FileRecords.slice` does."""
        if position < 0:
            raise _Ends(f"the entry's position {position} is negative")
        if position > self.size:
            raise _Ends(f"the entry's position {position} is beyond the log's end, {self.size}")

    def frame(self, position: int, end: int) -> tuple[int, int] | None:
        """(offset that counts as the last one, size) of the batch at `position`; None if there is none before `end`."""
        if position >= end - 17:
            return None
        prefix = self.source.read(position, 17)
        if len(prefix) < 17:
            return None
        offset, length, magic = _PREFIX.unpack(prefix)
        if length < 14:
            raise _Ends(f"the batch at position {position} has {length} bytes, at least 14 are needed")
        if position > end - 12 - length:
            return None
        if magic < 2:
            return offset, 12 + length
        header = self.source.read(position, 61)
        if len(header) < 61:
            raise _Ends(f"the header of the batch at position {position} is cut")
        return offset + int.from_bytes(header[23:27], "big", signed=True), 12 + length

    def find(self, position: int, offset: int) -> bool:
        """Whether there is a batch from `position` on whose last offset is not below `offset`; `found_position` is the first one."""
        known = self._known.get(position)
        if known is None:
            known = self._walk(position)
        walk, index = known
        if walk.reason:
            raise _Ends(walk.reason)
        if walk.sorted:
            found = bisect_left(walk.offsets, offset, index)
        else:
            found = next((at for at in range(index, len(walk.offsets)) if walk.offsets[at] >= offset), len(walk.offsets))
        if found == len(walk.offsets):
            return False
        self.found_position, self.found_offset = walk.positions[found], walk.offsets[found]
        return True

    def _walk(self, position: int) -> tuple[_Walk, int]:
        """Walk from `position` to the end and remember every batch on the way."""
        walk = _Walk()
        at = position
        try:
            while (found := self.frame(at, self.size)) is not None:
                walk.positions.append(at)
                walk.offsets.append(found[0])
                at += found[1]
        except _Ends as error:
            walk.reason = str(error)
        walk.sorted = all(map(le, walk.offsets, walk.offsets[1:]))
        for index, start in enumerate(walk.positions):
            self._known.setdefault(start, (walk, index))
        return self._known.setdefault(position, (walk, 0))

    def max_timestamp(self, position: int) -> int:
        """The largest timestamp of all records in the batch at `position`; -1 without records."""
        known = self._timestamps.get(position)
        if known is None:
            known = self._timestamps[position] = self._read_max_timestamp(position)
        return known

    def _read_max_timestamp(self, position: int) -> int:
        (length,) = struct.unpack(">i", self.source.read(position + 8, 4))
        try:
            batch = Batch(self.source.read(position, max(length + 12, 61)), 0, position)
            count = batch.count
            if batch.magic < 2 or count is None:
                return max(-1, *(timestamp for _, _, timestamp in legacy_messages(batch)))
            if count == 0:
                return -1
            if count < 0:
                raise DecodeError(f"the batch claims {count} records")
            delta = -MAX_LONG
            for data, start, end, found in RecordWindows(batch, holds="nulls"):
                largest = largest_delta(data, start, end, found)
                if largest is None:
                    raise DecodeError("a record in it can't be read, or bytes are left after the last one")
                delta = max(delta, largest)
        except DecodeError as error:
            raise _Ends(f"the batch at position {position} of the log: {error.reason}") from None
        return max(-1, batch.max_timestamp if batch.attributes & 8 else batch.base_timestamp + delta)


class IndexTexts:
    """Prints `.index`, `.timeindex`, `.txnindex` and `.snapshot` files, and the text about all of them at the end."""

    def __init__(self, files: Files, options: DumpOptions, text: DumpText) -> None:
        self.files = files
        self.options = options
        self.text = text
        self._mismatches: dict[str, dict[int, int]] = {}
        self._time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self._out_of_order: dict[str, list[tuple[int, int]]] = {}
        self._not_found: dict[str, list[tuple[int, int]]] = {}

    def file(self, path: str, shown: str, suffix: str) -> None:
        """Print one file; `shown` is its path as it is printed."""
        texts: dict[str, Callable[[str, str], None]] = {
            ".index": self._offset_index,
            ".timeindex": self._time_index,
            ".txnindex": self._txn_index,
            ".snapshot": self._snapshot,
        }
        try:
            texts[suffix](path, shown)
        except DecodeError as error:
            self._problem(shown, error.reason, error.position)

    def finish(self) -> None:
        """The mismatches, in the words of Kafka's tool."""
        err = self.text.err
        for path in java_hash_order(self._mismatches):
            err(b"Mismatches in :%b\n" % os.fsencode(path))
            for index_offset, log_offset in sorted(self._mismatches[path].items(), reverse=True):
                err(b"  Index offset: %d, log offset: %d\n" % (index_offset, log_offset))
        for title, line, found in (
            (b"Found timestamp mismatch in :", b"  Index timestamp: %d, log timestamp: %d\n", self._time_mismatches),
            (b"Found out of order timestamp in :", b"  Index timestamp: %d, Previously indexed timestamp: %d\n", self._out_of_order),
            (b"The following indexed offsets are not found in :", b"Indexed offset: %d, found log offset: %d\n", self._not_found),
        ):
            for path in java_hash_order(found):
                err(title + os.fsencode(path) + b"\n")
                for pair in found[path]:
                    err(line % pair)

    def _problem(self, shown: str, reason: str, position: int | None = None) -> None:
        """Kafka's tool ends here with an exception."""
        self.text.problems.append(DumpProblem(shown, position, reason, ends_kafka=True))

    def _wrong(self, shown: str, reason: str, position: int) -> None:
        """Note a mismatch, which Kafka's tool reports at the end, if at all."""
        self.text.problems.append(DumpProblem(shown, position, reason))

    def _log_of(self, stack: ExitStack, path: str, shown: str) -> LogFrames | None:
        """Return the `.log` of an index; None, and a problem, if it is missing."""
        log_path = os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + ".log")
        if not self.files.exists(log_path):
            self._problem(shown, f"{os.path.basename(log_path)} is missing, so the entries can't be compared with it")
            return None
        return LogFrames(stack.enter_context(self.files.open(log_path)))

    def _offset_index(self, path: str, shown: str) -> None:
        index = read_offset_index(self.files.read_all(path), base_offset_of(path))
        with ExitStack() as stack:
            log = self._log_of(stack, path, shown)
            if not index.entries:
                self.text.out(b"%b is empty.\n" % os.fsencode(shown))
            elif self.options.index_sanity_check:
                self._sanity(index, shown)
            else:
                self._offset_entries(index, log, shown)

    def _sanity(self, index: OffsetIndex | TimeIndex, shown: str) -> None:
        index.sanity_check(shown)
        self.text.out(b"%b passed sanity check.\n" % os.fsencode(shown))

    def _offset_entries(self, index: OffsetIndex, log: LogFrames | None, shown: str) -> None:
        for slot, (offset, position) in enumerate(index):
            if slot and offset == index.base_offset:
                return  # Zeros that a broker preallocated and did not trim.
            if log is not None:
                try:
                    log.check_slice(position)
                    end = position + self.options.max_message_size
                    found = log.frame(position, log.size if end > INT_MAX else min(end, log.size))
                    if found is None:
                        raise _Ends(f"there is no whole batch at the entry's position {position}")
                    if found[0] != offset:
                        self._mismatches.setdefault(absolute_path(shown), {})[offset] = found[0]
                        self._wrong(shown, f"the entry of offset {offset} points at a batch whose last offset is {found[0]}", slot * 8)
                except _Ends as error:
                    self._problem(shown, f"offset {offset}: {error}", slot * 8)
            if not self.options.verify_index_only:
                self.text.out(b"offset: %d position: %d\n" % (offset, position))

    def _time_index(self, path: str, shown: str) -> None:
        index = read_time_index(self.files.read_all(path), base_offset_of(path))
        offsets_path = path.removesuffix(".timeindex") + ".index"
        with ExitStack() as stack:
            log = self._log_of(stack, path, shown)
            offsets: OffsetIndex | None = None
            if self.files.exists(offsets_path):
                offsets = read_offset_index(self.files.read_all(offsets_path), index.base_offset)
            else:
                self._problem(shown, f"{os.path.basename(offsets_path)} is missing, so the entries can't be compared with the log")
            if self.options.index_sanity_check:
                self._sanity(index, shown)
            else:
                self._time_entries(index, offsets, log, shown)

    def _time_entries(self, index: TimeIndex, offsets: OffsetIndex | None, log: LogFrames | None, shown: str) -> None:
        previous = -1
        for slot, (timestamp, offset) in enumerate(index):
            if slot and offset == index.base_offset:
                return
            if log is not None and offsets is not None:
                try:
                    self._time_entry(log, offsets, shown, slot * 12, timestamp, offset, previous)
                except _Ends as error:
                    self._problem(shown, f"offset {offset}: {error}", slot * 12)
            if not self.options.verify_index_only:
                self.text.out(b"timestamp: %d offset: %d\n" % (timestamp, offset))
            previous = timestamp

    def _time_entry(self, log: LogFrames, offsets: OffsetIndex, shown: str, place: int, timestamp: int, offset: int, previous: int) -> None:
        position = offsets.lookup(offset).position
        log.check_slice(position)
        path = absolute_path(shown)
        found = log.find(position, offset)
        if not found or log.found_offset != offset:
            last = log.found_offset if found else -1
            self._not_found.setdefault(path, []).append((offset, last))
            self._wrong(shown, f"no batch ends at the entry's offset {offset}", place)
            return
        largest = log.max_timestamp(log.found_position)
        if largest != timestamp:
            self._time_mismatches.setdefault(path, []).append((timestamp, largest))
            self._wrong(shown, f"the entry says {timestamp}, the largest timestamp of the batch of offset {offset} is {largest}", place)
        if previous >= timestamp:
            self._out_of_order.setdefault(path, []).append((timestamp, previous))
            self._wrong(shown, f"the entry's timestamp {timestamp} is not above the one before it, {previous}", place)

    def _txn_index(self, path: str, shown: str) -> None:
        base_offset_of(path)
        data = self.files.read_all(path)
        entries = list(_TXN_ENTRY.iter_unpack(data[: len(data) // 34 * 34]))
        for slot, entry in enumerate(entries):
            if entry[0] > 0:
                self._problem(shown, f"unknown version {entry[0]} of an aborted transaction", slot * 34)
        for entry in entries:
            self.text.out(b"version: %d producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n" % entry)
        if len(data) % 34:
            self._wrong(shown, f"{len(data) % 34} bytes are left after the last entry", len(data) // 34 * 34)

    def _snapshot(self, path: str, shown: str) -> None:
        data = self.files.read_all(path)
        reason = snapshot_error(data)
        if reason:
            self.text.err(reason.encode() + b"\n")
            self._wrong(shown, reason, 0)
            return
        (count,) = struct.unpack_from(">i", data, 6)
        for entry in _SNAPSHOT_ENTRY.iter_unpack(data[10 : 10 + 46 * count]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first = entry
            txn = b"OptionalLong[%d]" % txn_first if txn_first >= 0 else b"OptionalLong.empty"
            line = b"producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %b lastTimestamp: %d" % (
                *(producer_id, epoch, coordinator_epoch),
                *(txn, timestamp),
            )
            if last_offset >= 0:
                line += b" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d" % (
                    *(wrap_int(decrement_sequence(last_sequence, delta)), last_sequence),
                    *(last_offset, delta, timestamp),
                )
            self.text.out(line + b"\n")


def snapshot_error(data: bytes) -> str:
    """Return Kafka's message about a producer snapshot that it rejects, "" for a good one."""
    failed = "Snapshot failed schema validation: "
    if len(data) < 2:
        return failed + "null"
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != 1:
        return f"{failed}Snapshot contained an unknown file version {version}"
    if len(data) < 10:
        return failed + "null"
    stored, count = struct.unpack_from(">Ii", data, 2)
    left = len(data) - 10
    if count < 0:
        return failed + "non-nullable field producerEntries was serialized as null"
    if count > left:
        return f"{failed}Tried to allocate a collection of size {count}, but there are only {left} bytes remaining."
    if 46 * count > left:
        return failed + "null"
    from kops.records import crc32c

    computed = crc32c(memoryview(data)[6:])
    if stored != computed:
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
    return ""
