"""A producer: collects records in batches, sends them to leaders, and retries.

Source: Kafka's KafkaProducer, RecordAccumulator, Sender, ProducerBatch, TransactionManager. There are two intended differences. Each
partition has one batch in flight at a time, so the order is kept after any failure, with or without idempotence. If a batch could not be
delivered, the producer continues with a new producer id; in a transaction it sends nothing more, as in Kafka.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kops.client.client import WAITING_MS, Client, To, check
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.client.producer.partitioners import StickyPartitioner, choose_partition, partition_for_key
from kops.client.topics import error_of
from kops.errors import ApiError, KopsError, NotFoundError, UnreachableError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import Reaction, by_name
from kops.records.batch import BATCH_OVERHEAD, increment_sequence
from kops.records.build import BatchBuilder
from kops.records.log_offsets import TopicPartition
from kops.records.record import Header

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages.produce_response import PartitionProduceResponse

_RECORD_OVERHEAD: Final = 21  # the maximum size of a v2 record's lengths and deltas
_REQUESTS_PER_NODE: Final = 5
_TOPIC_MS: Final = 5000  # the time that a broker has to create a missing topic
_NEW_ID: Final = ("UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_ID_MAPPING")
_FIRST_VERSION_2: Final = 12  # of Produce: it adds the partition to the transaction itself (transaction version 2)
_AGAIN_WITH_NEW_ID: Final = ("UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class Sent(NamedTuple):
    """A record that was written. The offset is -1 if the answer does not contain it (acks=0, a duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Done = Callable[[Sent | KopsError], object]


class InTransaction(Protocol):
    """The interface of a transaction for a producer (`kops.client.coordinators.producing`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def add(self, keys: Iterable[TopicPartition]) -> None:
        """Make sure that these partitions are in the transaction. Raises KopsError."""


class _Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    done: Done | None


class _Batch:
    __slots__ = ("attempts", "created_ms", "data", "identity", "last_error", "records", "retry_ms", "sent_ms", "size")

    def __init__(self, created_ms: float) -> None:
        self.records: list[_Record] = []
        self.size = BATCH_OVERHEAD
        self.created_ms = created_ms
        self.retry_ms = 0.0
        self.sent_ms = created_ms
        self.attempts = 0
        self.data: bytes | None = None
        self.identity: tuple[int, int, int] | None = None  # producer id, epoch, base sequence; a retry keeps them
        self.last_error: ApiError | None = None


class _Queue:
    """A partition's batches. The last one is still open."""

    __slots__ = ("batches", "in_flight", "key", "sequence")

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.batches: deque[_Batch] = deque()
        self.in_flight: _Batch | None = None
        self.sequence = 0


class Producer:
    """A producer, for use by one thread. `send` only queues records. `poll` and `flush` send them and call back.

    With a transaction, `failure` is the error of the first record that was not written. After it nothing more is sent.
    """

    def __init__(
        self,
        client: Client,
        *,
        transaction: InTransaction | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.client = client
        self.settings = client.settings
        self.buffered_size = 0  # bytes of unfinished records
        self._acks = int(self.settings.acks)
        self._wall_ms = wall_ms
        self._queues: dict[TopicPartition, _Queue] = {}
        self._sticky: dict[str, StickyPartitioner] = {}
        self._transaction = transaction
        self._producer = None if transaction is None else (transaction.producer_id, transaction.producer_epoch)
        self.failure: KopsError | None = None
        self._is_flushing = False
        self._stale: set[str] = set()  # topics whose leaders must be requested
        self._stale_ms = 0.0

    # records in

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        timestamp: int | None = None,
        partition: int | None = None,
        done: Done | None = None,
    ) -> None:
        """Queue a record. `done` is called with its partition and offset, or with an error. Raises NotFoundError for a missing topic or
        partition."""
        count = self._partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            raise NotFoundError(f"{topic} has no partition {partition}, it has {count}")
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") + 10 for name, content in headers)
        record = _Record(self._wall_ms() if timestamp is None else timestamp, key, value, headers, done)
        if BATCH_OVERHEAD + size > self.settings.max_request_size:
            words = f"a record of {size} bytes is larger than max.request.size={self.settings.max_request_size}"
            error = ApiError("MESSAGE_TOO_LARGE", words)
            self._fail(error)
            self._call_back(record, error)
            return
        if partition is not None:
            self._append(topic, partition, record, size)
        elif key is not None and not self.settings.partitioner_ignore_keys:
            self._append(topic, partition_for_key(key, count), record, size)
        else:
            sticky = self._sticky.setdefault(topic, StickyPartitioner(self.settings.batch_size, self.client.draw))
            chosen = sticky.partition(lambda draw: self._choose(topic, count, draw))
            queue = self._append(topic, chosen, record, size)
            sticky.added(size, batch_is_ready=len(queue.batches) > 1 or queue.batches[-1].size >= self.settings.batch_size)

    def poll(self, timeout_ms: float) -> None:
        """Send batches that are ready, receive answers and call back. Waits at most `timeout_ms`."""
        self._refresh_leaders()
        self._tell(self.client.now_ms())
        self._expire()
        self._send_ready()
        self.client.turn(min(timeout_ms, self._next_ms()))

    def flush(self) -> None:
        """Wait until every record is sent and answered, or a transaction has failed."""
        self._is_flushing = True
        try:
            while self.is_busy and self.failure is None:
                self.poll(100)
        finally:
            self._is_flushing = False

    def drop(self, error: KopsError) -> None:
        """Fail unsent records with this error, and wait for the answers to sent ones. Only for transactions."""
        self.failure = self.failure or error
        for queue in self._queues.values():
            while queue.batches:
                self._give_up(queue.batches.popleft(), error)
        while self.is_busy:
            self.poll(100)

    @property
    def is_busy(self) -> bool:
        """Whether any record is unfinished."""
        return any(queue.batches or queue.in_flight for queue in self._queues.values())

    def _partition_count(self, topic: str) -> int:
        counts = self.client.metadata.partition_counts
        if topic in counts:
            return counts[topic]
        until_ms = self.client.now_ms() + min(_TOPIC_MS, self.settings.default_api_timeout_ms)
        tries = 0
        while True:
            (found,) = self.client.fetch_metadata([topic], auto_create=True).topics
            error = error_of(found.error_code)
            if error is None and found.partitions:
                return len(found.partitions)
            if error is not None and error.name not in ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"):
                raise ApiError(error.name, f"{topic}: {error}")
            if self.client.now_ms() >= until_ms:
                raise NotFoundError(f"no such topic: {topic}")
            self._wait(self.client.backoff.delay_ms(tries))
            tries += 1

    def _wait(self, pause_ms: float) -> None:
        until_ms = self.client.now_ms() + pause_ms
        while (left_ms := until_ms - self.client.now_ms()) > 0:
            self.client.turn(left_ms)

    def _choose(self, topic: str, count: int, draw: float) -> int:
        leaders = self.client.metadata.leaders
        available = [index for index in range(count) if leaders.get(TopicPartition(topic, index), Leader(-1, -1)).node_id >= 0]
        sizes = None
        if self.settings.partitioner_adaptive_partitioning_enable:
            sizes = {key.partition: len(queue.batches) for key, queue in self._queues.items() if key.topic == topic}
        return choose_partition(draw, available or range(count), sizes)

    def _append(self, topic: str, partition: int, record: _Record, size: int) -> _Queue:
        key = TopicPartition(topic, partition)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
        batches = queue.batches
        if not batches or batches[-1].attempts or batches[-1].size + size > max(self.settings.batch_size, BATCH_OVERHEAD + size):
            batches.append(_Batch(self.client.now_ms()))
        batches[-1].records.append(record)
        batches[-1].size += size
        self.buffered_size += size
        return queue

    # batches out

    def _is_ready(self, queue: _Queue, now_ms: float) -> bool:
        if not queue.batches or queue.in_flight is not None:
            return False
        batch = queue.batches[0]
        if now_ms < batch.retry_ms:
            return False
        is_full = len(queue.batches) > 1 or batch.size >= self.settings.batch_size
        is_late = now_ms - batch.created_ms >= self.settings.linger_ms
        return bool(is_full or is_late or batch.attempts or self._is_flushing or self.buffered_size >= self.settings.buffer_memory)

    def _next_ms(self) -> float:
        """The time until a batch is due."""
        now_ms = self.client.now_ms()
        due = [
            max(
                queue.batches[0].retry_ms,
                0 if queue.batches[0].attempts else queue.batches[0].created_ms + self.settings.linger_ms,
                self._stale_ms if queue.key.topic in self._stale else 0,
            )
            for queue in self._queues.values()
            if queue.batches and queue.in_flight is None
        ]
        return max(min(due, default=float("inf")) - now_ms, 1)

    def _send_ready(self) -> None:
        if self.failure is not None:
            return
        now_ms = self.client.now_ms()
        groups: dict[int, list[_Queue]] = {}
        sizes: dict[int, int] = {}
        for queue in self._queues.values():
            if not self._is_ready(queue, now_ms):
                continue
            node = self.client.metadata.leader_node(queue.key)
            if node is None:
                self._stale.add(queue.key.topic)
                continue
            if self.client.network.load(node) >= _REQUESTS_PER_NODE:
                continue
            size = queue.batches[0].size
            if node.id in groups and sizes[node.id] + size > self.settings.max_request_size:
                continue
            groups.setdefault(node.id, []).append(queue)
            sizes[node.id] = sizes.get(node.id, 0) + size
        if groups and self.settings.enable_idempotence and self._producer is None:
            self._get_producer_id()
        if self._transaction is not None:
            self._transaction.add(queue.key for queues in groups.values() for queue in queues)
        for node_id, queues in groups.items():
            self._send_to(self.client.metadata.nodes[node_id], queues)

    def _get_producer_id(self) -> None:
        from kops.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

        def handle(response: Message) -> tuple[int, int]:
            assert isinstance(response, InitProducerIdResponse)
            check(response.error_code)
            return response.producer_id, response.producer_epoch

        def build(_: int) -> Message:
            return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFF_FFFF)

        self._producer = self.client.call("init producer id", To.ANY, build, handle)
        for queue in self._queues.values():
            queue.sequence = 0

    def _send_to(self, node: Node, queues: list[_Queue]) -> None:
        from kops.protocol.messages import ProduceRequest
        from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData

        ids = self.client.metadata.topic_ids
        topics: dict[str, list[PartitionProduceData]] = {}
        batches: dict[TopicPartition, _Batch] = {}
        for queue in queues:
            batch = queue.in_flight = batches[queue.key] = queue.batches.popleft()
            batch.attempts += 1
            batch.sent_ms = self.client.now_ms()
            if batch.data is None:
                batch.data = self._build(queue, batch)
            topics.setdefault(queue.key.topic, []).append(PartitionProduceData(index=queue.key.partition, records=batch.data))
        entries = [
            TopicProduceData(name=name, topic_id=ids.get(name, ZERO_UUID), partition_data=partitions) for name, partitions in topics.items()
        ]
        # Only some brokers send topic ids.
        last = ProduceRequest.VERSIONS.stop if all(ids.get(name, ZERO_UUID) != ZERO_UUID for name in topics) else 13
        request = ProduceRequest(acks=self._acks, timeout_ms=self.settings.request_timeout_ms, topic_data=entries)
        if self._transaction is not None:
            request.transactional_id = self._transaction.transactional_id
            last = min(last, _FIRST_VERSION_2)
        names = {ids.get(name, ZERO_UUID): name for name in topics}
        self.client.network.send(
            node,
            request,
            lambda answer: self._answered(node, batches, names, answer),
            versions=range(ProduceRequest.VERSIONS.start, last),
            expects_response=self._acks != 0,
        )

    def _build(self, queue: _Queue, batch: _Batch) -> bytes:
        if self._producer is not None and batch.identity is None:
            batch.identity = (*self._producer, queue.sequence)
            queue.sequence = increment_sequence(queue.sequence, len(batch.records))
        producer_id, epoch, sequence = batch.identity or (-1, -1, -1)
        builder = BatchBuilder(
            codec=self.settings.compression_type,
            level=self.settings.compression_level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=self._transaction is not None,
        )
        for record in batch.records:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        return builder.build()

    # answers

    def _answered(self, node: Node, batches: dict[TopicPartition, _Batch], names: dict[bytes, str], answer: Message | ApiError) -> None:
        from kops.protocol.messages import ProduceResponse

        if isinstance(answer, ApiError):
            error: KopsError = answer
            try:
                self.client.ensure_reachable(node)
            except UnreachableError as unreachable:
                error = unreachable
            for key, batch in batches.items():
                self._failed(self._queues[key], batch, error)
            return
        if not isinstance(answer, ProduceResponse):  # acks=0: the request is written
            for key, batch in batches.items():
                self._succeeded(self._queues[key], batch, -1, -1)
            return
        hosts = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints}
        for topic in answer.responses:
            for one in topic.partition_responses:
                key = TopicPartition(topic.name or names.get(topic.topic_id, ""), one.index)
                taken = batches.pop(key, None)
                if taken is not None:
                    self._take(self._queues[key], taken, one, hosts)
        for key, batch in batches.items():
            self._failed(self._queues[key], batch, ApiError("UNKNOWN_SERVER_ERROR", "the broker's answer omits the partition"))

    def _take(self, queue: _Queue, batch: _Batch, one: PartitionProduceResponse, hosts: dict[int, Node]) -> None:
        error = error_of(one.error_code, one.error_message)
        if error is None or error.name == "DUPLICATE_SEQUENCE_NUMBER":
            self._succeeded(queue, batch, one.base_offset if error is None else -1, one.log_append_time_ms)
            return
        leader = Leader(one.current_leader.leader_id, one.current_leader.leader_epoch)
        if leader.node_id in hosts and self.client.metadata.update_leader(queue.key, leader):
            self.client.metadata.add_nodes([hosts[leader.node_id]])
            batch.attempts -= 1  # the new leader is known, so there is no pause
            self._again(queue, batch, 0)
            return
        if error.name == "MESSAGE_TOO_LARGE" and len(batch.records) > 1:
            self._split(queue, batch)
            return
        self._failed(queue, batch, error)

    def _succeeded(self, queue: _Queue, batch: _Batch, base_offset: int, log_append_time_ms: int) -> None:
        queue.in_flight = None
        self.buffered_size -= batch.size - BATCH_OVERHEAD
        for index, record in enumerate(batch.records):
            if record.done is not None:
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp = record.timestamp if log_append_time_ms < 0 else log_append_time_ms
                record.done(Sent(queue.key.topic, queue.key.partition, offset, timestamp))

    def _failed(self, queue: _Queue, batch: _Batch, error: KopsError) -> None:
        """Send the batch again if that may help and there is time left. Otherwise its records fail."""
        queue.in_flight = None
        now_ms = self.client.now_ms()
        if isinstance(error, ApiError):
            kind = by_name(error.name)
            batch.last_error = error
            may_change_id = self._transaction is None
            if error.name in _NEW_ID and may_change_id:
                self._producer = None
            if kind.reaction is Reaction.METADATA:
                self._stale.add(queue.key.topic)
            is_again_with_new_id = error.name in _AGAIN_WITH_NEW_ID and may_change_id
            if is_again_with_new_id:
                batch.data = batch.identity = None
            may_retry = (kind.retriable or is_again_with_new_id) and self.failure is None
            if may_retry and batch.attempts <= self.settings.retries and not self._is_expired(batch, now_ms):
                self._again(queue, batch, now_ms + self.client.backoff.delay_ms(batch.attempts - 1))
                return
        self._give_up(batch, error)

    def _again(self, queue: _Queue, batch: _Batch, retry_ms: float) -> None:
        queue.in_flight = None
        batch.retry_ms = retry_ms
        queue.batches.appendleft(batch)

    def _give_up(self, batch: _Batch, error: KopsError) -> None:
        self._fail(error)
        if self._transaction is None and batch.identity is not None:
            # The batch may or may not have been written, so later batches must not depend on its sequence numbers.
            self._producer = None
        self.buffered_size -= batch.size - BATCH_OVERHEAD
        for record in batch.records:
            self._call_back(record, error)

    def _fail(self, error: KopsError) -> None:
        if self._transaction is not None:
            self.failure = self.failure or error

    def _call_back(self, record: _Record, error: KopsError) -> None:
        if record.done is not None:
            record.done(error)

    def _split(self, queue: _Queue, batch: _Batch) -> None:
        """Replace a batch that is too large for the broker with two halves that have consecutive sequence numbers."""
        queue.in_flight = None
        middle = len(batch.records) // 2
        sequence = None if batch.identity is None else batch.identity[2]
        for records in (batch.records[middle:], batch.records[:middle]):
            half = _Batch(batch.created_ms)
            half.attempts = batch.attempts
            half.records = records
            half.size += sum(
                _RECORD_OVERHEAD
                + len(record.key or b"")
                + len(record.value or b"")
                + sum(len(name) + len(content or b"") + 10 for name, content in record.headers)
                for record in records
            )
            if batch.identity is not None and sequence is not None:
                first = sequence if records[0] is batch.records[0] else increment_sequence(sequence, middle)
                half.identity = (batch.identity[0], batch.identity[1], first)
            queue.batches.appendleft(half)

    def _is_expired(self, batch: _Batch, now_ms: float) -> bool:
        return now_ms - batch.created_ms >= self.settings.delivery_timeout_ms

    def _expire(self) -> None:
        now_ms = self.client.now_ms()
        for queue in self._queues.values():
            while queue.batches and self._is_expired(queue.batches[0], now_ms):
                batch = queue.batches.popleft()
                last = "" if batch.last_error is None else f"; last: {batch.last_error}"
                words = f"{queue.key.topic}-{queue.key.partition}: not delivered within {self.settings.delivery_timeout_ms} ms{last}"
                self._give_up(batch, UnreachableError(words))

    def _tell(self, now_ms: float) -> None:
        """Report what records are waiting for, if they have waited for a while."""
        for key, queue in self._queues.items():
            batch = queue.in_flight or (queue.batches[0] if queue.batches else None)
            if batch is None or self.client.metadata.is_bootstrap:
                continue
            node = self.client.metadata.leader_node(key)
            why = batch.last_error or ("it has no leader" if node is None else None)
            if queue.in_flight is not None and why is None and node is not None and now_ms - batch.sent_ms >= WAITING_MS:
                self.client.tell(f"{key.topic}-{key.partition}: no answer from {node.address} yet")
            elif why is not None and now_ms - batch.created_ms >= WAITING_MS:
                self.client.tell(f"{key.topic}-{key.partition}: {why}")

    def _metadata_timeout_ms(self, now_ms: float) -> int:
        """The time-out for metadata: at most that of a request and the remaining time of the first record."""
        waiting_ms = max((now_ms - queue.batches[0].created_ms for queue in self._queues.values() if queue.batches), default=0.0)
        return max(int(min(self.settings.request_timeout_ms, self.settings.delivery_timeout_ms - waiting_ms)), 1)

    def _refresh_leaders(self) -> None:
        now_ms = self.client.now_ms()
        if self._stale and now_ms >= self._stale_ms:
            topics, self._stale = sorted(self._stale), set()
            self._stale_ms = now_ms + self.settings.retry_backoff_ms
            try:
                response = self.client.fetch_metadata(topics, timeout_ms=self._metadata_timeout_ms(now_ms))
            except UnreachableError:
                # Records have their own time-out. The cluster may return before that.
                self._stale |= set(topics)
                return
            for found in response.topics:
                if any(one.leader_id < 0 for one in found.partitions) or found.error_code:
                    self._stale.add(found.name or "")
