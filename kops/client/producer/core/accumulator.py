"""The queues of waiting records: batches for each partition, and the decision which partitions are ready to send.

Source: Kafka's RecordAccumulator. The random pause before a retry is drawn once. Kafka draws it again each time it looks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.errors import ProducerClosedError
from kops.client.producer.core._hot_records import REFUSED, TOLD
from kops.client.producer.core.batches import CompressionRatios, ProducerBatch, largest_size
from kops.client.producer.partitioners import BuiltInPartitioner
from kops.client.producer.pool import MemoryPool, Waiter
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.records.compression import codec_id
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kops.client.node import Node
    from kops.client.producer.core._hot_records import Delivery, OpenRecords
    from kops.client.producer.core.identity import SequenceKeeper
    from kops.client.producer.core.topics import ProducerMetadata
    from kops.client.producer.options import ProducerOptions
    from kops.records.record import Header


class Ready(NamedTuple):
    """The nodes with a ready partition, the latest time of the next check, and topics whose leaders are unknown."""

    nodes: list[Node]
    wait_ms: float
    unknown_topics: list[str]


_NOTHING: Final = Ready([], float("inf"), [])


class Appended(NamedTuple):
    """A record was added to a batch. It is ready to be sent, or new: then the sender must know until when it may wait."""

    is_ready: bool
    is_new: bool


class _Topic:
    """The batches of a topic by partition. `open` are the records of the batch that takes the next record without a key, if it is open."""

    __slots__ = ("open", "partitioner", "queues")

    def __init__(self, partitioner: BuiltInPartitioner) -> None:
        self.partitioner = partitioner
        self.queues: dict[int, deque[ProducerBatch]] = {}
        self.open: OpenRecords | None = None

    def tell_partitioner(self, *, may_switch: bool) -> None:
        """Tell what was added to the open batch. Another partition may be next."""
        records = self.open
        if records is None:
            return
        produced, records.produced = records.produced, 0
        if self.partitioner.produced(produced, may_switch=may_switch):
            self.open = None
        else:
            records.room = self.partitioner.room


class Accumulator:
    """Batches by partition. Without `keeper`, the producer is not idempotent."""

    def __init__(
        self, options: ProducerOptions, metadata: ProducerMetadata, keeper: SequenceKeeper | None, draw: Callable[[], float]
    ) -> None:
        self.pool = MemoryPool(options.buffer_memory)
        self.ratios = CompressionRatios()
        self.is_closed = False
        self.flushes = 0
        self.incomplete: dict[ProducerBatch, None] = {}
        self._options = options
        self._codec = codec_id(options.compression_type)
        self._may_hurry = options.batch_size <= options.max_request_size  # then what fits into a batch is not too large
        self._metadata = metadata
        self._keeper = keeper
        self._draw = draw
        self._backoff = ExponentialBackoff(options.retry_backoff_ms, options.retry_backoff_max_ms, draw)
        self._topics: dict[str, _Topic] = {}
        self._muted: set[TopicPartition] = set()
        self._drain_from: dict[int, int] = {}
        self._latency: dict[int, tuple[float, float]] = {}  # node → when it was last ready and last drained
        self._empty_at: int | None = None  # the version of the leaders for which `ready` found only empty queues, until a batch comes

    # records in

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        delivery: Delivery,
        now_ms: float,
        memory: Waiter | None = None,
    ) -> Appended | Waiter:
        """Append a record, or return a request for the memory that a new batch needs: call again with it once it is granted.

        Memory that is no longer needed is returned to the pool.
        """
        found = self._topic(topic)
        if partition is None:
            found.tell_partitioner(may_switch=False)
            found.open = None
        while True:
            chosen = found.partitioner.current() if partition is None else partition
            queue = found.queues.get(chosen)
            if queue is None:
                queue = found.queues[chosen] = deque()
            # A switch may have been delayed until the last batch was full.
            if partition is not None or (queue and not queue[-1].is_full) or not found.partitioner.produced(0, may_switch=True):
                break
        if self.is_closed:
            raise ProducerClosedError("the producer is closed")
        batch = queue[-1] if queue else None
        before = 0 if batch is None else batch.estimated_size
        if batch is not None and not batch.try_append(timestamp, key, value, headers, delivery):
            batch.close_for_appends()
            batch, before = None, 0
        is_new = batch is None
        if batch is None:
            if memory is None:
                memory = self.pool.request(max(self._options.batch_size, largest_size(key, value, headers)))
            if not memory.is_granted:
                return memory
            batch = self._new_batch(TopicPartition(topic, chosen), memory, now_ms)
            batch.try_append(timestamp, key, value, headers, delivery)
            queue.append(batch)
            self.incomplete[batch] = None
            self._empty_at = None
        elif memory is not None:
            self.pool.cancel(memory)
        delivery.describe(timestamp, key, value)
        is_full = batch.is_full
        added = batch.estimated_size - before
        if partition is None and not found.partitioner.produced(added, may_switch=is_full) and self._may_hurry:
            found.open = batch.records
            batch.records.produced, batch.records.room = 0, found.partitioner.room
        return Appended(is_full or len(queue) > 1 or (is_new and self.is_hurried), is_new)

    def append_quickly(
        self, topic: str, partition: int | None, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery
    ) -> bool | None:
        """Append a record without headers if its batch is open and has room -> whether the sender should look at once.

        Otherwise return None: then `append` decides. A batch that is not the first of its partition was a reason to look when it was new.
        """
        found = self._topics.get(topic)
        if found is None or not self._may_hurry:
            return None
        if partition is None:
            records = found.open
            if records is None:
                return None
            added = records.add(timestamp, key, value, delivery)
            if added == TOLD:
                is_full = records.is_full
                found.tell_partitioner(may_switch=is_full)
                return is_full
            return None if added == REFUSED else False
        queue = found.queues.get(partition)
        if not queue or queue[-1].records.add(timestamp, key, value, delivery) == REFUSED:
            return None
        return queue[-1].is_full

    def _new_batch(self, key: TopicPartition, memory: Waiter, now_ms: float) -> ProducerBatch:
        return ProducerBatch(
            key,
            now_ms,
            limit=memory.size,
            memory=memory.size,
            codec=self._codec,
            level=self._options.compression_level,
            ratio=self.ratios.estimate(key.topic),
        )

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            metadata = self._metadata
            partitioner = BuiltInPartitioner(
                self._options.batch_size,
                lambda: int(self._draw() * 2**31),
                lambda: metadata.available(name),
                lambda: metadata.partition_count(name) or 1,
            )
            found = self._topics[name] = _Topic(partitioner)
        return found

    def _queue(self, key: TopicPartition) -> deque[ProducerBatch]:
        return self._topic(key.topic).queues.setdefault(key.partition, deque())

    # what is ready

    def ready(self, now_ms: float) -> Ready:
        """Find the nodes for which a batch is full, has waited long enough, or must not wait."""
        if self._empty_at == self._metadata.leader_version:
            return _NOTHING
        self._empty_at = self._metadata.leader_version
        nodes: dict[Node, None] = {}
        unknown: dict[str, None] = {}
        wait_ms = float("inf")
        is_hurried = self.is_hurried
        for name, topic in self._topics.items():
            sizes: list[int] = []
            partitions: list[int] = []
            for index, queue in topic.queues.items():
                key = queue[0].partition if queue else TopicPartition(name, index)
                leader = self._metadata.leader(key)
                if not queue:
                    if leader is not None:
                        sizes.append(0)
                        partitions.append(index)
                    continue
                self._empty_at = None
                if leader is None:
                    unknown[name] = None
                    continue
                if not self._is_slow(leader):
                    sizes.append(len(queue))
                    partitions.append(index)
                if leader not in nodes and key not in self._muted:
                    left_ms = self._wait_of(key, queue, now_ms, is_hurried)
                    if left_ms is None:
                        nodes[leader] = None
                    else:
                        wait_ms = min(wait_ms, left_ms)
            if self._options.is_adaptive:
                is_counted = len(topic.queues) >= (self._metadata.partition_count(name) or 0)
                topic.partitioner.load(sizes if is_counted else None, partitions, len(topic.queues))
        return Ready(list(nodes), wait_ms, list(unknown))

    @property
    def is_hurried(self) -> bool:
        """Whether no batch waits for more records."""
        return self.is_closed or bool(self.flushes or self.pool.waiters) or (self._keeper is not None and self._keeper.is_completing)

    def _wait_of(self, key: TopicPartition, queue: deque[ProducerBatch], now_ms: float, is_hurried: bool) -> float | None:
        """The time until the first batch of a partition may be sent, or None if that is now."""
        batch = queue[0]
        batch.see_leader(self._metadata.leader_epoch(key))
        pause_ms = batch.pause_left_ms(now_ms)
        if pause_ms:
            return pause_ms
        waited_ms = batch.waited_ms(now_ms)
        is_due = waited_ms >= self._options.linger_ms
        if len(queue) > 1 or batch.is_full or is_due or is_hurried:
            return None
        return self._options.linger_ms - waited_ms

    def _is_slow(self, leader: Node) -> bool:
        """Whether a node has not taken batches for partitioner.availability.timeout.ms."""
        limit_ms = self._options.availability_timeout_ms
        if limit_ms <= 0 or leader.id not in self._latency:
            return False
        ready_ms, drained_ms = self._latency[leader.id]
        return ready_ms - drained_ms > limit_ms

    def looked_at(self, node: Node, now_ms: float, *, can_drain: bool) -> None:
        """Record that there were batches for a node, and whether it could accept them."""
        if self._options.availability_timeout_ms > 0:
            _, drained_ms = self._latency.get(node.id, (now_ms, now_ms))
            self._latency[node.id] = now_ms, now_ms if can_drain else drained_ms

    # batches out

    def drain(self, node: Node, now_ms: float) -> list[ProducerBatch]:
        """Take the first batch of each partition of a node, up to `max.request.size`. The next call begins with another partition."""
        partitions = self._metadata.partitions_of(node.id)
        taken: list[ProducerBatch] = []
        if not partitions or (self._keeper is not None and not self._keeper.has_identity):
            return taken
        size = 0
        start = self._drain_from.get(node.id, 0) % len(partitions)
        for step in range(len(partitions)):
            index = (start + step) % len(partitions)
            key = partitions[index]
            self._drain_from[node.id] = index
            topic = self._topics.get(key.topic)
            queue = None if topic is None else topic.queues.get(key.partition)
            if not queue or key in self._muted:
                continue
            first = queue[0]
            first.see_leader(self._metadata.leader_epoch(key))
            if first.pause_left_ms(now_ms):
                continue
            if size + first.estimated_size > self._options.max_request_size and taken:
                break
            if self._keeper is not None and not self._keeper.may_drain(key, first):
                break
            queue.popleft()
            if self._keeper is not None and not first.has_sequence:
                self._keeper.assign(first)
            size += len(first.build(self.ratios))
            taken.append(first)
        return taken

    def reenqueue(self, batch: ProducerBatch, now_ms: float) -> None:
        """Put a batch back, before all later ones."""
        batch.reenqueued(now_ms, self._backoff.delay_ms(batch.attempts))
        self._put_back(batch)

    def _put_back(self, batch: ProducerBatch) -> None:
        queue = self._queue(batch.partition)
        place = 0
        if self._keeper is not None:
            while place < len(queue) and queue[place].has_sequence and queue[place].base_sequence < batch.base_sequence:
                place += 1
        queue.insert(place, batch)
        self._empty_at = None

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch that is too large for the broker by smaller ones."""
        self.ratios.reset(batch.partition.topic, max(1.0, batch.ratio))
        limit = self._options.batch_size
        if batch.is_split:
            limit = max(batch.max_record_size, batch.estimated_size // 2)
        for part in reversed(batch.split(limit)):
            self.incomplete[part] = None
            if self._keeper is not None:
                self._keeper.add_in_flight(part)
            self._put_back(part)

    def take_expired(self, now_ms: float) -> list[ProducerBatch]:
        """Take the batches whose delivery time-out is over."""
        expired: list[ProducerBatch] = []
        for topic in self._topics.values():
            for queue in topic.queues.values():
                while queue and queue[0].is_expired(self._options.delivery_timeout_ms, now_ms):
                    expired.append(queue.popleft())
        return expired

    def next_expiry_ms(self) -> float:
        """Return the time at which the first of the waiting batches expires."""
        firsts = (queue[0].created_ms for topic in self._topics.values() for queue in topic.queues.values() if queue)
        return min(firsts, default=float("inf")) + self._options.delivery_timeout_ms

    def take_all(self) -> Iterable[ProducerBatch]:
        """Remove every unfinished batch, including batches in flight, so that the caller can fail them."""
        for topic in self._topics.values():
            topic.queues.clear()
        return list(self.incomplete)

    def take_undrained(self) -> list[ProducerBatch]:
        """Remove the batches that were never sent, so that the caller can fail them."""
        found = [batch for batch in self.incomplete if not batch.has_sequence]
        for batch in found:
            self._queue(batch.partition).remove(batch)
        return found

    @property
    def has_undrained(self) -> bool:
        """Whether any batch is waiting to be sent."""
        return any(queue for topic in self._topics.values() for queue in topic.queues.values())

    def forget(self, batch: ProducerBatch) -> None:
        """Forget a finished batch, and free its memory."""
        if batch in self.incomplete:
            del self.incomplete[batch]
            memory, batch.memory = batch.memory, 0
            if memory:
                self.pool.release(memory)

    def mute(self, key: TopicPartition) -> None:
        """Send no more batches of a partition until it is unmuted."""
        self._muted.add(key)

    def unmute(self, key: TopicPartition) -> None:
        """Send the partition's batches again."""
        self._muted.discard(key)
