"""A consumer of partitions: fetches from leaders or nearer replicas, and returns batches according to the isolation level.

Source: Kafka's KafkaConsumer without groups (AbstractFetch, FetchCollector, CompletedFetch, SubscriptionState), KIP-392 (preferred read
replicas), KIP-951 (leaders with errors). Requests have no fetch session: each one lists all its partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.client import WAITING_MS, Client
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.client.offsets import EARLIEST, ListedOffset, list_offsets
from kops.client.topics import error_of
from kops.errors import ApiError, DecodeError, NotFoundError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import Reaction, by_name
from kops.records.batch import LOG_OVERHEAD, Batch
from kops.records.decode import chunks
from kops.records.isolation import read_committed, read_uncommitted
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages.fetch_response import PartitionData
    from kops.records.record import Record

_FIRST_VERSION_WITH_IDS: Final = 13
_GONE_TRIES: Final = 5  # after this many unknown answers, a partition counts as deleted


class Fetched(NamedTuple):
    """A batch and the requested records of it. A batch with many records is returned in several parts."""

    key: TopicPartition
    batch: Batch
    records: list[Record]


class _Partition:
    __slots__ = ("failing_since_ms", "failures", "is_in_flight", "key", "position", "replica", "replica_until_ms", "retry_ms")

    def __init__(self, key: TopicPartition, position: int) -> None:
        self.key = key
        self.position = position
        self.is_in_flight = False
        self.retry_ms = 0.0
        self.failures = 0
        self.failing_since_ms: float | None = None
        self.replica: int | None = None
        self.replica_until_ms = 0.0


class Consumer:
    """Reads partitions from given offsets. Only one thread may use it.

    `on_reset(key, offset)` is called if the records at a position are gone (retention, a trim) and reading continues at the log's start.
    """

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        on_reset: Callable[[TopicPartition, int], object] = lambda key, offset: None,
    ) -> None:
        self.client = client
        self.settings = client.settings
        self._committed = self.settings.isolation_level == "read_committed"
        self._partitions = {key: _Partition(key, position) for key, position in positions.items()}
        self._completed: deque[tuple[_Partition, int, PartitionData]] = deque()
        self._errors: deque[tuple[_Partition, ApiError]] = deque()
        self._on_reset = on_reset
        self._stale = True
        self._stale_ms = 0.0

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        return {key: one.position for key, one in self._partitions.items()}

    def add(self, key: TopicPartition, position: int) -> None:
        """Start reading a partition, or begin again at another offset."""
        self._partitions[key] = _Partition(key, position)
        self._stale = self._stale or key not in self.client.metadata.leaders

    def drop(self, key: TopicPartition) -> None:
        """Stop reading a partition."""
        self._partitions.pop(key, None)

    def poll(self, timeout_ms: float) -> Iterator[Fetched]:
        """Return the fetched batches, or wait up to `timeout_ms` for some. Positions advance as the batches are taken.

        Raises ApiError, UnreachableError, NotFoundError (a topic was deleted), DecodeError (damaged records).
        """
        deadline_ms = self.client.now_ms() + timeout_ms
        while True:
            self._refresh()
            self._handle_errors()
            while self._completed:
                partition, offset, data = self._completed.popleft()
                if partition.position == offset and self._partitions.get(partition.key) is partition:
                    yield from self._batches(partition, data)
                    deadline_ms = 0
            self._send_fetches()
            left_ms = deadline_ms - self.client.now_ms()
            if left_ms <= 0:
                return
            self.client.turn(left_ms)

    # fetches

    def _send_fetches(self) -> None:
        now_ms = self.client.now_ms()
        waiting = {partition for partition, _, _ in self._completed}
        groups: dict[Node, list[_Partition]] = {}
        busy = set()
        for partition in self._partitions.values():
            node = self._source(partition, now_ms)
            if node is None:
                self._stale = True
                self._fails(partition, "it has no leader")
            elif partition.is_in_flight:
                busy.add(node.id)
            elif now_ms >= partition.retry_ms and partition not in waiting:
                groups.setdefault(node, []).append(partition)
        for node, partitions in groups.items():
            if node.id not in busy:
                self._fetch(node, partitions)

    def _source(self, partition: _Partition, now_ms: float) -> Node | None:
        metadata = self.client.metadata
        if partition.replica is not None and now_ms < partition.replica_until_ms:
            node = metadata.nodes.get(partition.replica)
            if node is not None and not self.client.network.is_backing_off(node):
                return node
        partition.replica = None
        return metadata.leader_node(partition.key)

    def _fetch(self, node: Node, partitions: list[_Partition]) -> None:
        from kops.protocol.messages import FetchRequest
        from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic

        metadata, settings = self.client.metadata, self.settings
        topics: dict[str, list[FetchPartition]] = {}
        offsets = {}
        for partition in partitions:
            partition.is_in_flight = True
            offsets[partition.key] = (partition, partition.position)
            entry = FetchPartition(
                partition=partition.key.partition,
                current_leader_epoch=metadata.leaders[partition.key].epoch,
                fetch_offset=partition.position,
                partition_max_bytes=settings.max_partition_fetch_bytes,
            )
            topics.setdefault(partition.key.topic, []).append(entry)
        ids = {name: metadata.topic_ids.get(name, ZERO_UUID) for name in topics}
        last = FetchRequest.VERSIONS.stop if ZERO_UUID not in ids.values() else _FIRST_VERSION_WITH_IDS
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=name, topic_id=ids[name], partitions=entries) for name, entries in topics.items()],
            rack_id=settings.client_rack,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        self.client.network.send(
            node,
            request,
            lambda answer: self._answered(node, offsets, names, answer),
            versions=range(FetchRequest.VERSIONS.start, last),
        )

    def _answered(
        self,
        node: Node,
        offsets: dict[TopicPartition, tuple[_Partition, int]],
        names: dict[bytes, str],
        answer: Message | ApiError,
    ) -> None:
        from kops.protocol.messages import FetchResponse

        for partition, _ in offsets.values():
            partition.is_in_flight = False
        error = answer if isinstance(answer, ApiError) else None
        if isinstance(answer, FetchResponse):
            error = error_of(answer.error_code)
        if error is not None:
            for partition, _ in offsets.values():
                self._errors.append((partition, error))
            return
        assert isinstance(answer, FetchResponse)
        self.client.metadata.add_nodes(Node(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints)
        for topic in answer.responses:
            for one in topic.partitions:
                found = offsets.get(TopicPartition(topic.topic or names.get(topic.topic_id, ""), one.partition_index))
                if found is not None:
                    self._take(*found, one)

    def _take(self, partition: _Partition, offset: int, one: PartitionData) -> None:
        error = error_of(one.error_code)
        if error is None:
            partition.failures = 0
            partition.failing_since_ms = None
            if one.preferred_read_replica >= 0:
                partition.replica = one.preferred_read_replica
                partition.replica_until_ms = self.client.now_ms() + self.settings.metadata_max_age_ms
            if one.records is not None and len(one.records):  # type: ignore[arg-type]  # received records are in memory
                self._completed.append((partition, offset, one))
            return
        leader = Leader(one.current_leader.leader_id, one.current_leader.leader_epoch)
        if leader.node_id >= 0 and self.client.metadata.update_leader(partition.key, leader):
            return
        self._errors.append((partition, error))

    # errors

    def _handle_errors(self) -> None:
        while self._errors:
            partition, error = self._errors.popleft()
            if self._partitions.get(partition.key) is not partition:
                continue
            name = f"{partition.key.topic}-{partition.key.partition}"
            if error.name == "OFFSET_OUT_OF_RANGE":
                self._reset(partition)
                continue
            kind = by_name(error.name)
            partition.failures += 1
            partition.retry_ms = self.client.now_ms() + self.client.backoff.delay_ms(partition.failures - 1)
            if error.name in ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID") and partition.failures > _GONE_TRIES:
                raise NotFoundError(f"{name} does not exist any more")
            if not kind.retriable:
                raise ApiError(error.name, f"{name}: {error}")
            if kind.reaction is Reaction.METADATA or error.name in ("REQUEST_TIMED_OUT", "UNKNOWN_LEADER_EPOCH"):
                self._stale = True
            self._fails(partition, str(error))
            self._check_reachable(partition)
            partition.replica = None

    def _fails(self, partition: _Partition, why: str) -> None:
        """Report why a partition cannot be read, if the problem lasts."""
        now_ms = self.client.now_ms()
        if partition.failing_since_ms is None:
            partition.failing_since_ms = now_ms
        elif now_ms - partition.failing_since_ms >= WAITING_MS:
            self.client.tell(f"{partition.key.topic}-{partition.key.partition}: {why}")

    def _check_reachable(self, partition: _Partition) -> None:
        node = self.client.metadata.leader_node(partition.key)
        if node is not None:
            self.client.ensure_reachable(node)

    def _reset(self, partition: _Partition) -> None:
        """Handle a missing offset. A follower may be behind, so ask the leader first. Otherwise continue at the log's start."""
        if partition.replica is not None:
            partition.replica = None
            return
        found = list_offsets(self.client, {partition.key: EARLIEST})[partition.key]
        if not isinstance(found, ListedOffset):
            raise ApiError(found.name, f"{partition.key.topic}-{partition.key.partition}: {found}")
        partition.position = found.offset
        self._on_reset(partition.key, found.offset)

    def _refresh(self) -> None:
        """Find the leaders of partitions that need it."""
        now_ms = self.client.now_ms()
        if not self._stale or now_ms < self._stale_ms:
            return
        self._stale = False
        self._stale_ms = now_ms + self.settings.retry_backoff_ms
        if self._partitions:
            self.client.fetch_metadata(sorted({key.topic for key in self._partitions}))

    # responses

    def _batches(self, partition: _Partition, data: PartitionData) -> Iterator[Fetched]:
        batches = list(self._read(partition, data))
        if self._committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
            try:
                visible = {id(batch) for batch in read_committed(batches, aborted)}
            except DecodeError as error:
                raise _damage(partition.key, batches[0], error) from None
        else:
            visible = {id(batch) for batch in read_uncommitted(batches)}
        for batch in batches:
            if id(batch) in visible:
                yield from self._records(partition, batch)
            partition.position = max(partition.position, batch.next_offset)

    def _records(self, partition: _Partition, batch: Batch) -> Iterator[Fetched]:
        """Yield the records of a batch, in parts if there are many."""
        held: list[Record] = []
        try:
            for records in chunks(batch):
                if held:
                    partition.position = held[-1].offset + 1
                    yield Fetched(partition.key, batch, held)
                held = records
                if records[0].offset < partition.position:
                    held = [record for record in records if record.offset >= partition.position]
        except DecodeError as error:
            raise _damage(partition.key, batch, error) from None
        partition.position = batch.next_offset
        if held:
            yield Fetched(partition.key, batch, held)

    def _read(self, partition: _Partition, data: PartitionData) -> Iterator[Batch]:
        """Yield the complete batches. The last one of an answer may be cut off."""
        assert isinstance(data.records, bytes | bytearray | memoryview)
        buffer = bytes(data.records)
        index = 0
        while index + LOG_OVERHEAD <= len(buffer):
            if index + LOG_OVERHEAD + int.from_bytes(buffer[index + 8 : index + 12], "big") > len(buffer):
                break
            batch = Batch(buffer, index)
            if self.settings.check_crcs:
                try:
                    batch.ensure_valid()
                except DecodeError as error:
                    raise _damage(partition.key, batch, error) from None
            yield batch
            index += batch.size
        if index == 0 and buffer:
            key = partition.key
            words = f"{key.topic}-{key.partition}: the batch at offset {partition.position} is larger than the maximum size of a fetch"
            raise ApiError("MESSAGE_TOO_LARGE", words)


def _damage(key: TopicPartition, batch: Batch, error: DecodeError) -> DecodeError:
    return DecodeError(f"{key.topic}-{key.partition}, offset {batch.base_offset}: {error.reason}", code=error.code)
