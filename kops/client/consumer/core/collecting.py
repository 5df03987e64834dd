"""Turns fetched bytes into records: checks, aborted transactions, control batches, deserializers, and the errors of partitions.

Source: Kafka's CompletedFetch, FetchCollector. Batches are decoded when their records are asked for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.client.consumer.deserializers import BYTES
from kops.client.consumer.errors import (
    FETCHED_AGAIN,
    LEADER_CHANGED,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    error_named,
)
from kops.client.consumer.parts.state import Phase, Position
from kops.client.consumer.records import ConsumerRecord, ConsumerRecords, OffsetAndMetadata, Run
from kops.client.errors import KafkaError
from kops.errors import DecodeError
from kops.protocol.errors import by_code
from kops.records import _hot as hot
from kops.records.batch import LOG_OVERHEAD, Batch
from kops.records.decode import CHUNK, chunks
from kops.records.record import ABORT, CONTROL_TYPES, LOG_APPEND_TIME, control_type_id
from kops.records.scanning import _hot_fetch as hot_fetch
from kops.records.windows import OVERHEAD, RecordWindows

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from kops.client.consumer.deserializers import Deserializer
    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.metadata import ConsumerMetadata
    from kops.client.consumer.parts.state import Subscriptions
    from kops.client.metrics.consumer import ConsumerMetrics, FetchedParts
    from kops.protocol.messages.fetch_response import PartitionData
    from kops.records._hot import ConsumerRow
    from kops.records.log_offsets import TopicPartition

_as_record: Callable[[tuple[Any, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


class Deserializers:
    """The deserializers of keys and values."""

    __slots__ = ("is_plain", "key", "value")

    def __init__(self, key: Deserializer, value: Deserializer) -> None:
        self.key, self.value = key, value
        self.is_plain = key is BYTES and value is BYTES


PLAIN: Final = Deserializers(BYTES, BYTES)


class Fetched(NamedTuple):
    """Consecutive records of one batch, with keys and values as bytes. A batch with many records is returned in several parts."""

    key: TopicPartition
    batch: Batch
    records: list[ConsumerRecord]


class CompletedFetch:
    """The answer for one partition. `next_offset` is the offset of the next record to return."""

    __slots__ = (
        "_aborted",
        "_aborters",
        "_at",
        "_batch",
        "_buffer",
        "_chunks",
        "_error",
        "_index",
        "_parts",
        "_rows",
        "_size",
        "_taken",
        "data",
        "has_returned",
        "is_consumed",
        "is_initialized",
        "key",
        "last_epoch",
        "next_offset",
    )

    def __init__(self, key: TopicPartition, data: PartitionData, offset: int, parts: FetchedParts | None = None) -> None:
        self.key = key
        self._parts = parts
        self._size = self._taken = 0
        self.data = data
        self.next_offset = offset
        self.last_epoch: int | None = None
        self.is_initialized = False
        self.is_consumed = False
        self.has_returned = False
        self._buffer = b""
        self._index = 0  # of the next batch in the buffer
        self._batch: Batch | None = None
        self._chunks: Iterator[list[ConsumerRow]] = iter(())
        self._rows: list[ConsumerRow] = []
        self._at = 0
        self._error: CorruptRecordError | None = None
        self._aborted: list[tuple[int, int]] = []
        self._aborters: set[int] = set()

    @property
    def size(self) -> int:
        """The number of bytes of records."""
        records = self.data.records
        return 0 if records is None else len(records)  # type: ignore[arg-type]  # received records are in memory

    def initialize(self) -> None:
        """Prepare to read the batches. Raises KafkaError if there is no complete one."""
        records = self.data.records
        assert records is None or isinstance(records, bytes | bytearray | memoryview)
        buffer = b"" if records is None else bytes(records)
        if buffer and not _has_batch(buffer, 0):
            text = f"{_name(self.key)}: no complete batch at offset {self.next_offset} in an answer of {len(buffer)} bytes"
            raise error_named("MESSAGE_TOO_LARGE", text)
        aborted = self.data.aborted_transactions or ()
        self._aborted = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
        self._buffer = buffer
        self.is_initialized = True

    def take(self, most: int, options: ConsumerOptions, deserializers: Deserializers) -> list[ConsumerRecord]:
        """Return up to `most` records. An error is raised only if there is no record before it."""
        if self._error is not None:
            raise self._error
        found: list[ConsumerRecord] = []
        try:
            while len(found) < most and not self.is_consumed:
                if self._at >= len(self._rows) and not self._fill(most - len(found), options):
                    break
                self._take_rows(found, most - len(found), deserializers)
        except (CorruptRecordError, RecordDeserializationError) as error:
            if isinstance(error, CorruptRecordError):
                self._error = error
            if not found:
                raise
        if found:
            self.has_returned = True
            self._taken += len(found)
        if self.is_consumed:
            self.skip()
        return found

    def take_part(self, options: ConsumerOptions) -> Fetched | None:
        """Return the next records of one batch, or None after the last ones. Raises CorruptRecordError."""
        if self._at >= len(self._rows) and not self._fill(1, options):
            return None
        records: list[ConsumerRecord] = []
        self._take_rows(records, len(self._rows), PLAIN)
        assert self._batch is not None
        return Fetched(self.key, self._batch, records)

    def _take_rows(self, found: list[ConsumerRecord], most: int, deserializers: Deserializers) -> None:
        if deserializers.is_plain:
            rows = self._rows[self._at : self._at + most] if self._at or most < len(self._rows) else self._rows
            found += map(_as_record, rows)
            self._at += len(rows)
            self.next_offset = rows[-1][2] + 1
            return
        for row in self._rows[self._at : self._at + most]:
            found.append(self._deserialize(row, deserializers))
            self._at += 1
            self.next_offset = row[2] + 1

    def _deserialize(self, row: ConsumerRow, deserializers: Deserializers) -> ConsumerRecord:
        topic, _, offset, timestamp, timestamp_type, key_bytes, value_bytes, headers, _, _, _ = row
        origin, key, value = "key", None, None
        try:
            if key_bytes is not None:
                key = deserializers.key(topic, headers, key_bytes)
            origin = "value"
            if value_bytes is not None:
                value = deserializers.value(topic, headers, value_bytes)
        except Exception as error:
            text = f"the {origin} of {_name(self.key)} at offset {offset} can't be deserialized: {error}; seek past it to continue"
            raise RecordDeserializationError(
                text, origin, self.key, offset, timestamp, timestamp_type, key_bytes, value_bytes, headers
            ) from error
        return ConsumerRecord(topic, row[1], offset, timestamp, timestamp_type, key, value, headers, *row[8:])

    def _fill(self, most: int, options: ConsumerOptions) -> bool:
        """Decode the next records, those of whole batches until there are `most`. Returns False after the last ones."""
        while True:
            try:
                rows = next(self._chunks, None)
                if rows is None:
                    rows = self._read_plain(most, options)
                if rows is None:
                    batch = self._next_batch(options)
                    if batch is None:
                        return False
                    self._chunks = _rows_of(batch, self.key, self.next_offset)
                    self._size += batch.size
                    continue
            except DecodeError as error:
                raise self._damage(error) from error
            if rows:
                self._rows, self._at = rows, 0
                return True

    def _read_plain(self, most: int, options: ConsumerOptions) -> list[ConsumerRow] | None:
        """Return the records of the next plain batches (`kops.records.scanning._hot_fetch`), or None if the next one is not plain."""
        self._leave_batch()
        rows: list[ConsumerRow] = []
        stops = options.is_committed and bool(self._aborted or self._aborters)
        index, batch = hot_fetch.read_plain(self._buffer, self._index, self.next_offset, most, *self.key, options.checks_crcs, stops, rows)
        if batch is None:
            return None
        self._size += index - self._index
        self._enter(batch, index)
        return rows

    def _leave_batch(self) -> None:
        """Move the position behind the last batch. Its last offset counts even if compaction has removed that record."""
        if self._batch is not None:
            self.next_offset = max(self.next_offset, self._batch.next_offset)

    def _enter(self, batch: Batch, end: int) -> None:
        self._batch, self._index = batch, end
        self.last_epoch = batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None

    def _next_batch(self, options: ConsumerOptions) -> Batch | None:
        """Return the next batch with records for the program. After the last one, the position is after its last offset."""
        while True:
            self._leave_batch()
            if not _has_batch(self._buffer, self._index):  # the last one of an answer may be cut off
                self.drain()
                return None
            batch = Batch(self._buffer, self._index)
            self._enter(batch, self._index + batch.size)
            if options.checks_crcs:
                batch.ensure_valid()
            if options.is_committed and batch.has_producer_id and self._is_aborted(batch):
                continue
            if not batch.is_control:
                return batch

    def _is_aborted(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[-1][0] <= batch.last_offset:
            self._aborters.add(self._aborted.pop()[1])
        if batch.is_control:
            records = batch.records()
            if records and control_type_id(records[0].key)[1] == CONTROL_TYPES.index(ABORT):
                self._aborters.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._aborters

    def _damage(self, error: DecodeError) -> CorruptRecordError:
        offset = self.next_offset if self._batch is None else max(self._batch.base_offset, 0)
        text = f"{_name(self.key)}, the batch at offset {offset}: {error.reason}; seek past it to continue"
        return CorruptRecordError(text, partition=self.key, offset=offset)

    def drain(self) -> None:
        """Drop what is left."""
        self.is_consumed = True
        self._rows, self._at = [], 0
        self._buffer, self._index, self._chunks = b"", 0, iter(())

    def skip(self) -> None:
        """Count what was read."""
        if self._parts is not None:
            self._parts.drained(self.key, self._size, self._taken)


class Collector:
    """Returns the records of completed fetches, partition by partition."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: ConsumerMetadata,
        subscriptions: Subscriptions,
        completed: deque[CompletedFetch],
        deserializers: Deserializers,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self._options = options
        self._metrics = metrics
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._completed = completed
        self._deserializers = deserializers

    def collect(self, now_ms: float) -> ConsumerRecords | None:
        """Return at most `max.poll.records` records, or None if no position has advanced. Raises KafkaError if none is before it."""
        found = ConsumerRecords()
        paused: list[CompletedFetch] = []
        has_advanced = False
        try:
            while len(found) < self._options.max_poll_records and self._completed:
                fetch = self._completed[0]
                if not fetch.is_initialized and not self._initialize(fetch, now_ms, is_first=not found and not has_advanced):
                    continue
                if fetch.key in self._subscriptions.partitions and self._subscriptions.partitions[fetch.key].is_paused:
                    paused.append(self._completed.popleft())
                    continue
                has_advanced = self._take(fetch, found) or has_advanced
                if fetch.is_consumed:
                    self._completed.popleft()
        except KafkaError:
            if not found and not has_advanced:
                raise
        finally:
            self._completed.extend(paused)
        return found if found or has_advanced else None

    def collect_part(self, now_ms: float) -> Fetched | None:
        """Return the next records of one batch, or None if no answer is left. The position is then after them. Raises KafkaError."""
        while self._completed:
            fetch = self._completed[0]
            if not fetch.is_initialized and not self._initialize(fetch, now_ms, is_first=True):
                continue
            position = self._position_of(fetch)
            part = None if position is None else fetch.take_part(self._options)
            if position is not None and fetch.next_offset > position.offset:
                self._advance(fetch, position)
            if part is not None:
                return part
            self._completed.popleft().skip()
            self._subscriptions.move_to_end(fetch.key)
        return None

    def collect_parts(self, now_ms: float) -> list[Fetched]:
        """Return parts of batches with about `max.poll.records` records. Raises KafkaError if there is no record before the error."""
        found: list[Fetched] = []
        count = 0
        try:
            while count < self._options.max_poll_records and (part := self.collect_part(now_ms)) is not None:
                found.append(part)
                count += len(part.records)
        except KafkaError:
            if not found:
                raise
        return found

    def _initialize(self, fetch: CompletedFetch, now_ms: float, *, is_first: bool) -> bool:
        """Prepare the first fetch of the queue, or remove it. As in Kafka, one that fails stays if it has records or others come first."""
        try:
            is_good = self._check(fetch, now_ms)
        except KafkaError:
            if is_first and not fetch.size:
                self._completed.popleft().skip()
            raise
        if not is_good:
            self._completed.popleft().skip()
        return is_good

    def _check(self, fetch: CompletedFetch, now_ms: float) -> bool:
        """Whether the records of a fetch are the next ones. Stores what the answer says about the partition."""
        key, data = fetch.key, fetch.data
        state = self._subscriptions.partitions.get(key)
        is_valid = state is not None and state.phase is Phase.FETCHING
        if data.error_code:
            try:
                if is_valid:
                    self._on_error(fetch, by_code(data.error_code).name)
            finally:
                self._subscriptions.move_to_end(key)
            return False
        if state is None or not is_valid or state.position is None or state.position.offset != fetch.next_offset:
            return False
        state.failure = None
        fetch.initialize()
        if data.high_watermark >= 0:
            state.high_watermark = data.high_watermark
            state.end_asked = False
        if data.log_start_offset >= 0:
            state.log_start = data.log_start_offset
        if data.last_stable_offset >= 0:
            state.stable_offset = data.last_stable_offset
        if data.preferred_read_replica >= 0:
            state.prefer(data.preferred_read_replica, now_ms + self._options.metadata_max_age_ms)
        return True

    def _take(self, fetch: CompletedFetch, found: ConsumerRecords) -> bool:
        """Add records of the first fetch of the queue. Returns whether the position has advanced."""
        key = fetch.key
        position = self._position_of(fetch)
        if position is None:
            fetch.drain()
            fetch.skip()
            if fetch.has_returned:
                self._subscriptions.move_to_end(key)
            return False
        records = fetch.take(self._options.max_poll_records - len(found), self._options, self._deserializers)
        has_advanced = fetch.next_offset > position.offset
        if has_advanced:
            self._advance(fetch, position)
            start = len(found)
            found += records
            found.runs.append(Run(key, start, len(found), OffsetAndMetadata(fetch.next_offset, "", fetch.last_epoch)))
        self._tell_place(fetch)
        if fetch.is_consumed and fetch.has_returned:
            self._subscriptions.move_to_end(key)
        return has_advanced

    def _position_of(self, fetch: CompletedFetch) -> Position | None:
        """Return the position of the partition if the next record of a fetch is there, else None."""
        state = self._subscriptions.partitions.get(fetch.key)
        if state is None or not self._subscriptions.is_fetchable(fetch.key) or state.position is None:
            return None
        return state.position if state.position.offset == fetch.next_offset else None

    def _advance(self, fetch: CompletedFetch, position: Position) -> None:
        state = self._subscriptions.state(fetch.key)
        state.position = Position(fetch.next_offset, fetch.last_epoch, position.leader)

    def _tell_place(self, fetch: CompletedFetch) -> None:
        """Record how far the position is from both ends of the log."""
        if self._metrics is not None:
            state, at = self._subscriptions.state(fetch.key), fetch.next_offset
            end = state.stable_offset if self._options.is_committed else state.high_watermark
            lead = None if state.log_start is None else at - state.log_start
            self._metrics.advanced(fetch.key, None if end is None else end - at, lead)

    def _on_error(self, fetch: CompletedFetch, name: str) -> None:
        key = fetch.key
        state = self._subscriptions.state(key)
        state.failure = name
        if name in LEADER_CHANGED:
            state.clear_replica()
            self._metadata.want()
        elif name == "OFFSET_OUT_OF_RANGE":
            if state.clear_replica() or state.position is None or state.position.offset != fetch.next_offset:
                return
            if self._subscriptions.reset is None:
                text = f"{_name(key)}: the position {fetch.next_offset} is out of range"
                raise OffsetOutOfRangeError(text, {key: fetch.next_offset})
            state.request_reset(self._subscriptions.reset)
        elif name == "CORRUPT_MESSAGE":
            text = f"{_name(key)}: the broker finds corrupt records at offset {fetch.next_offset}"
            raise CorruptRecordError(text, partition=key, offset=fetch.next_offset)
        elif name not in FETCHED_AGAIN:
            raise error_named(name, f"{_name(key)}: {by_code(fetch.data.error_code).words}")


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"


def _rows_of(batch: Batch, key: TopicPartition, first_offset: int) -> Iterator[list[ConsumerRow]]:
    """Yield the records of a batch from an offset on, in lists. Raises DecodeError after the records before the error."""
    whole = None
    count = batch.count or 0
    if batch.magic == 2 and 0 < count <= CHUNK:
        start, end = batch.index + OVERHEAD, batch.index + batch.size
        whole = RecordWindows(batch).whole() if batch.compressed else (batch.buffer, start, end, count)
    if whole is not None:
        data, start, end, _ = whole
        rows: list[ConsumerRow] = []
        is_fixed = batch.timestamp_type == LOG_APPEND_TIME
        epoch = batch.partition_leader_epoch
        stop = hot.decode_for_consumer(
            data,
            start,
            end,
            count,
            batch.base_offset,
            batch.max_timestamp if is_fixed else batch.base_timestamp,
            batch.timestamp_type,
            epoch if epoch >= 0 else None,
            key.topic,
            key.partition,
            first_offset,
            rows,
        )
        if stop == end:
            yield rows
            return
    for records in chunks(batch):  # a large batch, an old one, or one that can't be read, which this explains
        yield [
            (*key, one[0], one[1], one[2], one[3], one[4], tuple(one[5]), one[7], _size(one[3]), _size(one[4]))
            for one in records
            if one[0] >= first_offset
        ]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _has_batch(buffer: bytes, index: int) -> bool:
    """Whether there is a whole batch at `index`."""
    if index + LOG_OVERHEAD > len(buffer):
        return False
    return index + LOG_OVERHEAD + int.from_bytes(buffer[index + 8 : index + 12], "big") <= len(buffer)
