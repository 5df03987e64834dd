"""Fetched records on their way to the program: matched with the acquired offsets, deserialized, and handed out in pieces.

Source: Kafka's ShareCompletedFetch, ShareFetchBuffer, ShareFetchCollector, ShareFetchException. A batch is always handed out whole.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kops.client.consumer.errors import FETCHED_AGAIN, LEADER_CHANGED
from kops.client.errors import KafkaError, TopicAuthorizationError, error_named
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.inflight import InFlightBatch, ShareFetch
from kops.errors import DecodeError
from kops.protocol.errors import by_code
from kops.records.batch import LOG_OVERHEAD, Batch
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.client.metrics.consumer import FetchedParts
    from kops.client.share.core.records import Deserializers
    from kops.protocol.messages.share_fetch_response import PartitionData
    from kops.records.record import Record


class DeliveryError(Exception):
    """Some records can't be delivered. `fetch` has the others and the acknowledgements of these."""

    def __init__(self, fetch: ShareFetch, error: KafkaError) -> None:
        super().__init__(str(error))
        self.fetch = fetch
        self.error = error


class CompletedFetch:
    """What one answer has of a partition."""

    def __init__(
        self,
        node_id: int,
        partition: TopicIdPartition,
        data: PartitionData,
        lock_timeout_ms: int | None,
        parts: FetchedParts | None = None,
    ) -> None:
        self.node_id = node_id
        self.partition = partition
        self._parts = parts
        self._read_bytes = self._read_records = 0
        self.is_consumed = False
        self.error = by_code(data.error_code).name
        self._lock_timeout_ms = lock_timeout_ms
        counts: dict[int, int] = {}
        for one in data.acquired_records:
            for offset in range(one.first_offset, one.last_offset + 1):
                counts.setdefault(offset, one.delivery_count)
        self._acquired = list(counts.items())
        self._index = 0  # of the next acquired offset
        self._batches = _batches(data)
        self._batch: Batch | None = None
        self._records: Iterator[Record] = iter(())
        self._left = 0  # of this batch
        self._last: Record | None = None
        self._failure: tuple[KafkaError, AcknowledgeType] | None = None  # for the next call

    def drain(self) -> None:
        """Nothing more is read from this."""
        if self._parts is not None and not self.is_consumed:
            key = TopicPartition(self.partition.topic, self.partition.partition)
            self._parts.drained(key, self._read_bytes, self._read_records)
        self.is_consumed = True
        self._failure = None

    def take(self, deserializers: Deserializers, limit: int, *, checks_crcs: bool) -> InFlightBatch:
        """Return the next records: `limit` of them, and the rest of the last one's batch."""
        found = InFlightBatch(self.node_id, self.partition, self._lock_timeout_ms)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._fail(found, *failure)
            return found
        if self.is_consumed:
            return found
        try:
            self._take(found, deserializers, limit, checks_crcs)
        except DecodeError as error:
            assert self._batch is not None
            key = self.partition
            words = f"the batch of {key.topic}-{key.partition} at offset {self._batch.base_offset} is damaged: {error}"
            self._fails(found, error_named("CORRUPT_MESSAGE", words), AcknowledgeType.REJECT)
        except KafkaError as error:
            self._index += 1
            self._fails(found, error, AcknowledgeType.RELEASE)
        return found

    def _take(self, found: InFlightBatch, deserializers: Deserializers, limit: int, checks_crcs: bool) -> None:
        acquired = self._acquired
        count = 0
        is_within = False
        while count < limit or is_within:
            is_within = self._next_record(checks_crcs)
            record = self._last
            while self._index < len(acquired):
                offset, delivery_count = acquired[self._index]
                if record is not None and record.offset < offset:
                    break  # not acquired
                if record is None or record.offset > offset:
                    found.add_gap(offset)
                    self._index += 1
                    continue
                assert self._batch is not None
                found.records[offset] = deserializers.read(self.partition.topic, self.partition.partition, record, delivery_count)
                self._read_bytes += record.size
                self._read_records += 1
                count += 1
                self._index += 1
                break
            if record is None:
                return

    def _next_record(self, checks_crcs: bool) -> bool:
        """Go to the next record that is not a control record. Returns whether its batch has more of them."""
        while True:
            record = next(self._records, None)
            if record is not None:
                self._last, self._left = record, self._left - 1
                return self._left > 0
            batch = next(self._batches, None)
            if batch is None:
                self._last = None
                self.drain()
                return False
            self._batch = batch
            if checks_crcs:
                batch.ensure_valid()
            records = [] if batch.is_control else batch.records()
            self._records, self._left = iter(records), len(records)

    # what can't be delivered

    def _fails(self, found: InFlightBatch, error: KafkaError, kind: AcknowledgeType) -> None:
        """Fail now, or after the program got what was found before."""
        if found.is_empty:
            self._fail(found, error, kind)
        else:
            self._failure = error, kind
            found.has_failure_next = True

    def _fail(self, found: InFlightBatch, error: KafkaError, kind: AcknowledgeType) -> None:
        if kind is AcknowledgeType.RELEASE:
            assert self._last is not None
            found.fail(error, (self._last.offset,), kind)
            return
        batch = self._batch
        assert batch is not None
        offsets = [offset for offset, _ in self._acquired if batch.base_offset <= offset <= batch.last_offset]
        found.fail(error, offsets, kind)
        while self._index < len(self._acquired) and self._acquired[self._index][0] <= batch.last_offset:
            self._index += 1


def _batches(data: PartitionData) -> Iterator[Batch]:
    """Yield the complete batches."""
    records = data.records
    if records is None:
        return
    assert isinstance(records, bytes | bytearray | memoryview)
    buffer = bytes(records)
    index = 0
    while index + LOG_OVERHEAD <= len(buffer):
        size = LOG_OVERHEAD + int.from_bytes(buffer[index + 8 : index + 12], "big")
        if index + size > len(buffer):
            return
        yield Batch(buffer, index)
        index += size


class FetchBuffer:
    """Answers that the program has not got yet. `want_metadata` is called if a partition has moved or is not known."""

    def __init__(self, want_metadata: Callable[[], object]) -> None:
        self._completed: deque[CompletedFetch] = deque()
        self._current: CompletedFetch | None = None
        self._want_metadata = want_metadata

    def add(self, completed: list[CompletedFetch]) -> None:
        """Add what an answer has."""
        self._completed.extend(completed)

    @property
    def is_empty(self) -> bool:
        """Whether no further answer waits."""
        return not self._completed

    def clear(self) -> None:
        """Forget everything."""
        self._completed.clear()
        self._current = None

    def collect(self, deserializers: Deserializers, limit: int, *, checks_crcs: bool) -> ShareFetch:
        """Return about `limit` records. Raises KafkaError, and DeliveryError for records that can't be delivered."""
        fetch = ShareFetch()
        left = limit
        try:
            while left > 0:
                current = self._current
                if current is None or current.is_consumed:
                    if not self._completed:
                        break
                    self._current = None
                    self._begin(fetch)
                    continue
                batch = current.take(deserializers, left, checks_crcs=checks_crcs)
                if batch.is_empty:
                    current.drain()
                left -= len(batch.records)
                fetch.add(batch)
                if batch.failure is not None:
                    raise DeliveryError(fetch, batch.failure)
                if batch.has_failure_next:
                    break
        except KafkaError:
            if fetch.is_empty:
                raise
        return fetch

    def _begin(self, fetch: ShareFetch) -> None:
        """Begin with the next answer. One with an error that has to be raised stays if there are records to return before."""
        completed = self._completed[0]
        try:
            self._check(completed)
        except KafkaError:
            if fetch.is_empty:
                self._completed.popleft()
            raise
        self._completed.popleft()
        if completed.error == "NONE":
            self._current = completed

    def _check(self, completed: CompletedFetch) -> None:
        error, key = completed.error, completed.partition
        if error in LEADER_CHANGED:
            self._want_metadata()
        elif error == "TOPIC_AUTHORIZATION_FAILED":
            raise TopicAuthorizationError(f"not allowed to read topic {key.topic}")
        elif error != "NONE" and error not in FETCHED_AGAIN:
            raise error_named(error, f"{key.topic}-{key.partition} can't be fetched: {_words(error)}")


def _words(name: str) -> str:
    """Return the text of an error."""
    from kops.protocol.errors import by_name

    return by_name(name).words
