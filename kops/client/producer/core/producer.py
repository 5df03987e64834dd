"""A whole producer without I/O: records in, requests out, outcomes.

Source: Kafka's KafkaProducer (doSend, waitOnMetadata, ensureValidRecordSize, partition, flush, close). Its driver holds a lock during every
call, waits as `Step` says, sends the requests, and calls the callbacks of the batches from `take_finished`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from kops.client.errors import (
    BufferExhaustedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from kops.client.producer.core.accumulator import Accumulator, Appended
from kops.client.producer.core.batches import largest_size
from kops.client.producer.core.identity import SequenceKeeper
from kops.client.producer.core.links import Links, Outgoing
from kops.client.producer.core.sender import Sender
from kops.client.producer.core.topics import ProducerMetadata
from kops.client.producer.core.transactions import Transactions
from kops.client.producer.partitioners import partition_for_key
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.client.metrics.producer import ProducerMetrics
    from kops.client.producer.core._hot_records import Delivery
    from kops.client.producer.core.batches import ProducerBatch
    from kops.client.producer.options import ProducerOptions
    from kops.client.producer.pool import Waiter
    from kops.records.log_offsets import TopicPartition
    from kops.records.record import Header


class Partitioner(Protocol):
    """A program's own partitioner, which gets keys and values as bytes."""

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, available: Sequence[int], count: int) -> int:
        """Return the partition. `available` are those with a leader."""


class Step(Enum):
    """The next step for a record."""

    METADATA = auto()  # wait until the metadata has another version
    MEMORY = auto()  # wait until the memory is granted
    APPENDED = auto()
    WAKES = auto()  # appended, and the sender should look at once


class Entry:
    """One record before it is in a batch. `deadline_ms` is the end of max.block.ms."""

    __slots__ = ("deadline_ms", "delivery", "headers", "key", "memory", "partition", "timestamp", "topic", "value", "version")

    def __init__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp: int,
        delivery: Delivery,
        deadline_ms: float,
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.partition = partition
        self.timestamp = timestamp
        self.delivery = delivery
        self.deadline_ms = deadline_ms
        self.version = -1
        self.memory: Waiter | None = None


class ProducerCore:
    """The state of a producer."""

    def __init__(
        self,
        options: ProducerOptions,
        bootstrap: Sequence[tuple[str, int]],
        links: Links,
        draw: Callable[[], float],
        partitioner: Partitioner | None = None,
        metrics: ProducerMetrics | None = None,
        keeper: SequenceKeeper | None = None,
    ) -> None:
        """`keeper` replaces the numbers of an idempotent producer without transactions."""
        self.options = options
        self.metadata = ProducerMetadata(bootstrap, options, draw)
        self.metadata.creates_topics = options.creates_topics
        self.transactions: Transactions | None = None
        self.keeper = (keeper or SequenceKeeper()) if options.is_idempotent else None
        if options.transactional_id is not None:
            backoff_ms = options.retry_backoff_ms
            self.transactions = Transactions(options.transactional_id, options.transaction_timeout_ms, backoff_ms, links.features)
            self.keeper = self.transactions
        self.accumulator = Accumulator(options, self.metadata, self.keeper, draw)
        self.sender = Sender(options, self.metadata, self.accumulator, self.keeper, links, metrics)
        self.is_closing = False
        self.is_forced = False
        self._partitioner = partitioner
        self._is_slow = partitioner is not None or options.ignores_keys

    # records in

    def know(self, topic: str, partition: int | None, now_ms: float) -> int | None:
        """Return the number of partitions of a topic, or None if the caller has to wait for metadata. Raises KafkaError.

        Like Kafka's, a closed producer returns what it knows (KafkaProducer.partitionsFor). Records are rejected by `check_record`.
        """
        metadata = self.metadata
        error = metadata.topic_error(topic)
        if isinstance(error, InvalidTopicError):
            raise error
        metadata.use(topic, now_ms)
        count = metadata.partition_count(topic)
        if count is not None and (partition is None or partition < count):
            return count
        if self.is_closing:
            raise ProducerClosedError("the producer is closed")
        if error is not None and not error.retriable:
            raise error
        if metadata.error is not None and not metadata.error.retriable:
            raise metadata.error
        metadata.want_topic(topic)
        return None

    def has_news(self, version: int) -> bool:
        """Whether the metadata is newer than this version, or the producer is closing: the end of a wait for metadata."""
        return self.metadata.version > version or self.is_closing

    def late(self, topic: str, partition: int | None, reason: str = "") -> KafkaTimeoutError:
        """Return the error for a topic that is still not known after max.block.ms."""
        count = self.metadata.partition_count(topic)
        waited = f"after {self.options.max_block_ms} ms"
        if count is None:
            words = f"topic {topic} is not in the metadata {waited}"
        else:
            words = f"partition {partition} of topic {topic}, which has {count}, is not in the metadata {waited}"
        last = self.metadata.topic_error(topic) or self.metadata.error
        why = reason if last is None else str(last)
        return KafkaTimeoutError(f"{words}: {why}" if why else words)

    def advance(self, entry: Entry, now_ms: float) -> Step:
        """Add a record to a batch, or return what it waits for. If this raises KafkaError or UsageError, the record has no outcome."""
        try:
            return self._advance(entry, now_ms)
        except BaseException:  # others need its memory
            if entry.memory is not None:
                self.accumulator.pool.cancel(entry.memory)
            raise

    def check_record(self) -> None:
        """Raise UsageError or KafkaError if the producer is closed, also after a fatal error, or if the transaction accepts no record."""
        if self.is_closing:
            raise ProducerClosedError("the producer is closed")
        if self.transactions is not None:
            self.transactions.check_record()

    def not_sent(self, error: KafkaError) -> None:
        """Record that a record is lost before it was in a batch: its transaction can't be committed."""
        if self.transactions is not None and self.transactions.is_open:
            self.transactions.note(error)

    def _advance(self, entry: Entry, now_ms: float) -> Step:
        self.check_record()
        if self.keeper is not None and self.keeper.fatal_error is not None:
            raise self.keeper.fatal_error
        count = self.know(entry.topic, entry.partition, now_ms)
        if count is None:
            entry.version = self.metadata.version
            return Step.METADATA
        if entry.memory is None:
            self._check_size(entry)
        partition = entry.partition
        if partition is None:
            partition = self._choose(entry, count)
        appended = self.accumulator.append(
            entry.topic, partition, entry.timestamp, entry.key, entry.value, entry.headers, entry.delivery, now_ms, entry.memory
        )
        if isinstance(appended, Appended):
            place = entry.delivery.place
            if self.transactions is not None and place is not None:
                self.transactions.add_partition(place)
            return Step.WAKES if self._wakes(appended, place, now_ms) else Step.APPENDED
        entry.memory = appended
        return Step.MEMORY

    def advance_quickly(
        self, topic: str, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery, partition: int | None = None
    ) -> bool | None:
        """Append a record without headers if its batch is open -> whether the sender should look at once.

        Otherwise return None: then `advance` decides.
        """
        if self._is_slow or self.is_closing or (self.keeper is not None and self.keeper.fatal_error is not None):
            return None
        if self.transactions is not None and not self.transactions.is_open:
            return None
        if key is None or partition is not None:
            return self.accumulator.append_quickly(topic, partition, timestamp, key, value, delivery)
        count = self.metadata.cluster.partition_counts.get(topic)
        if count is None:
            return None
        partition = partition_for_key(key, count)
        return self.accumulator.append_quickly(topic, partition, timestamp, key, value, delivery)

    def advance_at_once(
        self, topic: str, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery, now_ms: float
    ) -> bool | None:
        """Append a record without headers that needs a new batch, as `advance` does, if it need not wait and surely is allowed.

        Returns whether the sender should look at once. Otherwise returns None: then `advance` decides.
        """
        if self._is_slow or self.is_closing or self.transactions is not None or (self.keeper is not None and self.keeper.fatal_error):
            return None
        cluster, options, pool = self.metadata.cluster, self.options, self.accumulator.pool
        count = cluster.partition_counts.get(topic)
        if count is None or topic in cluster.topic_errors:
            return None
        size = largest_size(key, value, ())
        if size > options.max_request_size or pool.waiters or pool.available < max(size, options.batch_size):
            return None
        self.metadata.use(topic, now_ms)
        partition = None if key is None else partition_for_key(key, count)
        appended = self.accumulator.append(topic, partition, timestamp, key, value, (), delivery, now_ms)
        assert isinstance(appended, Appended)  # there is memory, and nobody waits for it
        return self._wakes(appended, delivery.place, now_ms)

    def _wakes(self, appended: Appended, place: TopicPartition | None, now_ms: float) -> bool:
        """Whether the sender should look at once. Java's always looks at a new batch, and then waits for more records in it.

        This one need not if it will look before the batch is due, because nothing else depends on it.
        """
        if appended.is_ready or not appended.is_new:
            return appended.is_ready
        if self.transactions is not None or place is None or self.metadata.leader(place) is None:
            return True
        return self.sender.due_ms > now_ms + self.options.linger_ms

    def exhausted(self, entry: Entry) -> BufferExhaustedError:
        """Give up on a record that has waited for memory for too long."""
        pool = self.accumulator.pool
        assert entry.memory is not None
        size = entry.memory.size
        pool.cancel(entry.memory)
        waited = f"within {self.options.max_block_ms} ms"
        return BufferExhaustedError(f"no {size} bytes of buffer.memory={pool.total} were free {waited}; {pool.available} are free now")

    def _check_size(self, entry: Entry) -> None:
        size = largest_size(entry.key, entry.value, entry.headers)
        options = self.options
        if size > options.max_request_size:
            raise RecordTooLargeError(f"the record has {size} bytes, and max.request.size is {options.max_request_size}")
        if size > options.buffer_memory:
            raise RecordTooLargeError(f"the record has {size} bytes, and buffer.memory is {options.buffer_memory}")
        if options.batch_size > options.buffer_memory:
            raise UsageError(f"batch.size={options.batch_size}: larger than buffer.memory={options.buffer_memory}")

    def _choose(self, entry: Entry, count: int) -> int | None:
        """Return the partition from the program's partitioner or the key, or None if the accumulator chooses."""
        if self._partitioner is not None:
            chosen: Any = self._partitioner(entry.topic, entry.key, entry.value, self.metadata.available(entry.topic), count)
            if not isinstance(chosen, int) or not 0 <= chosen < count:
                raise UsageError(f"partitioner.class: it chose {chosen!r} for {entry.topic}; allowed: 0 to {count - 1}")
            return chosen
        if entry.key is not None and not self.options.ignores_keys:
            return partition_for_key(entry.key, count)
        return None

    # the sender's side

    def turn(self, now_ms: float) -> tuple[list[Outgoing], float]:
        """Return the requests to send now, and the time until the next turn at the latest."""
        if self.is_closing and not self.is_forced:
            self._abort_at_the_end()
        return self.sender.turn(now_ms)

    def _abort_at_the_end(self) -> None:
        """Abort the transaction of a producer that closes, after its records (Sender.run)."""
        transactions = self.transactions
        if transactions is None or not transactions.is_ongoing or transactions.is_completing:
            return
        if self.sender.is_idle and not transactions.has_requests:
            try:
                transactions.abort()
            except (KafkaError, UsageError):
                self.force_close()

    @property
    def results(self) -> int:
        """How many results of transactions there have been. A face wakes its callers when this changes."""
        return 0 if self.transactions is None else self.transactions.results

    @property
    def has_finished(self) -> bool:
        """Whether there are batches whose outcome is new."""
        return bool(self.sender.finished)

    def take_finished(self) -> list[ProducerBatch]:
        """Return the batches whose outcome is new."""
        finished = self.sender.finished
        if finished:
            self.sender.finished = []
        return finished

    # the end

    def incomplete(self) -> list[ProducerBatch]:
        """Return the unfinished batches, for which a flush waits."""
        return list(self.accumulator.incomplete)

    def begin_flush(self) -> None:
        """Let no batch wait for more records."""
        self.accumulator.flushes += 1

    def end_flush(self) -> None:
        """Let batches wait for more records again."""
        self.accumulator.flushes -= 1

    def close(self) -> None:
        """Accept no more records. Accepted records are sent without waiting for more."""
        self.is_closing = True
        self.accumulator.is_closed = True

    def force_close(self) -> None:
        """Fail all unfinished records."""
        self.close()
        self.is_forced = True
        if self.transactions is not None:
            self.transactions.close()
        self.sender.abort(ProducerClosedError("the producer was closed before the record was acknowledged"))

    @property
    def has_ended(self) -> bool:
        """Whether a closed producer has nothing more to do."""
        if not self.is_closing or self.is_forced:
            return self.is_closing
        return self.sender.is_idle and not (self.transactions is not None and self.transactions.is_ongoing)


def belongs_to_record(error: KafkaError) -> bool:
    """Whether an error is the outcome of the record, and not raised by `send` (KafkaProducer.doSend: ApiException)."""
    return not isinstance(error, ProducerClosedError | SerializationError)
