"""Reads a loaded log as a consumer: fetches as a broker answers them, parsed as Kafka's consumer parses them.

Sources: LocalLog.read and LogSegment.read (where a fetch begins, via the offset index; one segment an answer), ByteBufferLogInputStream and
CompletedFetch (which checks come in which order with `check.crcs`, the default; records below the wanted offset are skipped), Fetcher's
`max.partition.fetch.bytes` and `max.poll.records`. Before a KafkaException, the application gets the earlier records; any other exception
loses those of the same poll, too.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from kops.config.values.java import INT_MAX
from kops.errors import DecodeError
from kops.forensics.forecast.offset_ranges import Ranges, merge
from kops.records import Batch
from kops.storage.failures.load_errors import LoadError
from kops.storage.segment_files import legacy_batch
from kops.storage.segments.segment import FetchData
from kops.storage.start.loaded_log import LoadedLog

MAX_PARTITION_FETCH_BYTES = 1 << 20
MAX_POLL_RECORDS = 500
_LOG_OVERHEAD = 12
_HEADER_SIZE_UP_TO_MAGIC = 17
_MIN_RECORD_SIZE = 14
_V2_OVERHEAD = 61
_ZSTD = 4


@dataclass(slots=True)
class Served:
    """Offsets of data batches a consumer gets, and why it ends before the log's end (None: it does not).

    `loops`: it gets no error, but reads the same records forever (offsets go back at the end of a segment).
    """

    offsets: Ranges = field(default_factory=list)
    error: str | None = None
    error_offset: int | None = None
    loops: bool = False


class _ConsumerError(Exception):
    """`raw`: not a KafkaException, so the application loses the records of the same poll."""

    def __init__(self, reason: str, *, raw: bool = False) -> None:
        super().__init__(reason)
        self.raw = raw


class Consumer:
    """One pass of a consumer from the log start to the log end, read_uncommitted. The log is only read."""

    def __init__(self, log: LoadedLog) -> None:
        self._log = log
        self._next = log.log_start_offset
        self._got: list[tuple[int, int]] = []
        self._poll: list[tuple[int, int]] = []
        self._polled = 0

    def run(self) -> Served:
        """Fetch until the log end or an error."""
        try:
            while self._next < self._log.log_end_offset:
                fetched = self._fetch()
                if fetched is None or fetched.records is None:
                    break
                before = self._next
                self._parse(fetched.records.read_at(fetched.records.start, fetched.records.size))
                self._end_poll()
                if self._next <= before:
                    return Served(merge(self._got), f"it reads offsets {self._next} to {before} again and again", self._next, loops=True)
        except _ConsumerError as error:
            if not error.raw:
                self._end_poll()
            return Served(merge(self._got), str(error), self._next)
        except LoadError as error:
            return Served(merge(self._got), str(error), self._next)
        return Served(merge(self._got))

    def _fetch(self) -> FetchData | None:
        segment = self._log.segments.floor(self._next)
        while segment is not None:
            found = segment.read(self._next, MAX_PARTITION_FETCH_BYTES, segment.size, min_one_batch=True)
            if found is not None:
                return found
            segment = self._log.segments.higher(segment.base_offset)
        return None

    def _end_poll(self) -> None:
        self._got += self._poll
        self._poll.clear()
        self._polled = 0

    def _parse(self, data: bytes) -> None:
        """One answer's bytes; an incomplete batch at its end is left for the next fetch."""
        position = 0
        batch: Batch | None = None
        while len(data) - position >= _HEADER_SIZE_UP_TO_MAGIC:
            length = struct.unpack_from(">i", data, position + 8)[0]
            if length < _MIN_RECORD_SIZE:
                raise _ConsumerError(f"Record size {length} is less than the minimum record overhead ({_MIN_RECORD_SIZE})")
            magic = struct.unpack_from(">b", data, position + 16)[0]
            if not 0 <= magic <= 2:
                raise _ConsumerError(f"Invalid magic found in record: {magic}")
            size = length + _LOG_OVERHEAD
            if size > INT_MAX:
                raise _ConsumerError(f"newLimit < 0: ({size - (1 << 32)} < 0)", raw=True)
            if len(data) - position < size:
                break
            if magic == 2 and size < _V2_OVERHEAD:
                raise _ConsumerError(
                    f"Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead {_V2_OVERHEAD})"
                )
            batch = Batch(data, position)
            self._take(batch)
            position += size
        if batch is not None:
            self._next = batch.next_offset

    def _take(self, batch: Batch) -> None:
        if batch.magic == 2:
            self._check_v2(batch)
        else:
            self._check_legacy(batch)
        if batch.is_control or batch.last_offset < self._next:
            return
        self._poll.append((max(batch.base_offset, self._next), batch.last_offset))
        self._polled += batch.last_offset - batch.base_offset + 1
        self._next = batch.next_offset
        if self._polled >= MAX_POLL_RECORDS:
            self._end_poll()

    def _check_v2(self, batch: Batch) -> None:
        if not batch.crc_ok:
            raise _ConsumerError(f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.computed_crc()})")
        codec = batch.attributes & 7
        if codec > _ZSTD:
            raise _ConsumerError(f"Unknown compression type id: {codec}", raw=True)
        if batch.count == 0:
            return
        # The deep check reads the records without creating them. A consumer sees only those of its problems that end an iteration.
        for error in batch.check():
            if error.code not in ("bad-offsets", "bad-timestamps"):
                raise _ConsumerError(error.reason) from error

    def _check_legacy(self, batch: Batch) -> None:
        if batch.compressed:
            try:
                legacy_batch.base_offset(batch.last_offset, bytes(batch.data()))
            except LoadError as error:
                raise _ConsumerError(str(error), raw=error.exception.startswith("java.lang.")) from error
        if not batch.crc_ok:
            raise _ConsumerError(f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.computed_crc()})")
        try:
            deque(batch.iterate(), 0)
        except DecodeError as error:
            raise _ConsumerError(error.reason) from error
