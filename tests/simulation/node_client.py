"""The client of the nodes of `node_world`: for each partition, an idempotent producer with one batch in flight and a consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kops.broker.network.peer import Peer, PeerSettings
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.metadata_response import MetadataResponseTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records import BatchBuilder, read_batches
from tests.simulation.node_checks import CompactedLedger, Keyed, Ledger, Sent
from tests.simulation.sim_world import Host, SimLoop

if TYPE_CHECKING:
    from tests.simulation.node_world import NodeWorld

BROKER_PORT = 9092
ADDRESS = "10.0.0.9"
KEYS = 6
TOMBSTONES = 0.2
"""The number of keys in a compacted topic, and the proportion of its records that are tombstones."""
FATAL = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID", "CORRUPT_MESSAGE", "INVALID_RECORD"}
"""Errors that a correct producer never gets."""


class SimClient:
    """A client that knows the topics and has a `Flow` for each of their partitions."""

    def __init__(self, world: NodeWorld) -> None:
        self.world = world
        self.chance = world.clock.random
        self.host = Host(world.clock, ADDRESS)
        self.loop = SimLoop(self.host)
        self.flows: dict[tuple[bytes, int], Flow] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.is_ending = False
        self._leaders: dict[tuple[bytes, int], int] = {}
        self._epochs: dict[tuple[bytes, int], int] = {}
        self._is_asking = False
        settings = PeerSettings(client_id="client", request_timeout_ms=4_000)
        self._peers = {
            one.id: Peer(self.loop, one.host.address, BROKER_PORT, draw=world.clock.random.random, settings=settings)
            for one in world.nodes.values()
            if one.is_broker
        }

    def send(self, node: int, message: Message, done: Callable[[Message | ApiError], None]) -> None:
        """Send a request to a node."""
        self._peers[node].send(message, done)

    def later(self, run: Callable[[], None], low_ms: float = 20, high_ms: float = 200) -> None:
        """Run a function a little later."""
        self.loop.call_later(self.chance.uniform(low_ms, high_ms), run)

    def any_node(self) -> int:
        """Return a random broker."""
        return self.chance.choice(self.world.brokers)

    def leader(self, ledger: Ledger) -> int:
        """Return the leader of a partition as far as it is known, otherwise any broker."""
        return self._leaders.get((ledger.topic_id, ledger.partition)) or self.any_node()

    def refresh(self) -> None:
        """Ask a broker for the metadata of the topics."""
        if not self._is_asking:
            self._is_asking = True
            self.send(self.any_node(), MetadataRequest([MetadataRequestTopic(name=one) for one in self.world.topics]), self._metadata_came)

    def _metadata_came(self, answer: Message | ApiError) -> None:
        self._is_asking = False
        if isinstance(answer, MetadataResponse):
            for topic in answer.topics:
                if not topic.error_code:
                    self._learn(topic)
        if any(name not in self.topic_ids or self.world.is_gone(self.topic_ids[name]) for name in self.world.topics):
            self.later(self.refresh)

    def _learn(self, topic: MetadataResponseTopic) -> None:
        # A node whose metadata lag may report a topic that is deleted.
        if self.world.is_gone(topic.topic_id):
            return
        name = topic.name or ""
        self.topic_ids[name] = topic.topic_id
        for one in topic.partitions:
            key = topic.topic_id, one.partition_index
            if one.leader_id > 0 and one.leader_epoch >= self._epochs.get(key, -1):
                # As Kafka's client (Metadata.updateLatestMetadata): a node whose metadata lag tells of a leader that is no longer one.
                self._leaders[key] = one.leader_id
                self._epochs[key] = one.leader_epoch
            if key not in self.flows:
                self.flows[key] = flow = self.new_flow(self.world.ledger_of(name, *key))
                self.loop.call_soon(flow.begin)

    def new_flow(self, ledger: Ledger) -> Flow:
        """Return the flow of a new partition."""
        return Flow(self, ledger)

    @property
    def is_idle(self) -> bool:
        """Whether all topics are known and everything that was sent to them is acknowledged and read."""
        image = self.world.latest_image()
        for name in self.world.topics:
            topic = image.topics.by_name.get(name)
            if topic is None or any((topic.id, number) not in self.flows for number in topic.partitions):
                self.refresh()
                return False
        return all(flow.is_idle or self.world.is_orphaned(flow.ledger) for flow in self.flows.values() if flow.is_alive)


class Flow:
    """A producer and a consumer of a partition. They run as long as the topic exists."""

    def __init__(self, client: SimClient, ledger: Ledger) -> None:
        self.client = client
        self.ledger = ledger
        self.is_sending = False
        self._id = (-1, -1)
        self._batch = b""

    @property
    def is_alive(self) -> bool:
        """Whether the topic still exists."""
        return not self.client.world.is_gone(self.ledger.topic_id)

    @property
    def is_idle(self) -> bool:
        """Whether no batch is in flight and everything acknowledged is read."""
        ledger = self.ledger
        return not self.is_sending and max(ledger.read_end, ledger.start_offset) >= ledger.acknowledged_end

    def begin(self) -> None:
        """Start to produce and consume."""
        self._ask_for_id()
        self.fetch()

    # the producer -----------------------------------------------------------------------------------------------------------------

    def _ask_for_id(self) -> None:
        self.client.send(self.client.any_node(), InitProducerIdRequest(None, 60_000), self._id_came)

    def _id_came(self, answer: Message | ApiError) -> None:
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self._id = answer.producer_id, answer.producer_epoch
            self._next()
        elif not self.client.is_ending:
            self.client.later(self._ask_for_id)

    def _next(self) -> None:
        """Send the next batch. The record that is to be at offset n has the number n, and the batch has the sequence n."""
        client, ledger = self.client, self.ledger
        self.is_sending = False
        if client.is_ending or not self.is_alive:
            return
        self.is_sending = True
        offset = ledger.acknowledged_end
        end_offset = offset + client.chance.choice((1, 1, 2, 2 if isinstance(ledger, CompactedLedger) else 4))
        now_ms = client.loop.now_ms()
        builder = BatchBuilder(producer_id=self._id[0], producer_epoch=self._id[1], base_sequence=offset)
        for number in range(offset, end_offset):
            self._add(builder, number, now_ms)
        self._batch = builder.build()
        ledger.sent.append(Sent(offset, end_offset, len(self._batch), now_ms))
        self._send()

    def _add(self, builder: BatchBuilder, number: int, now_ms: int) -> None:
        chance, ledger = self.client.chance, self.ledger
        filler = 60 if isinstance(ledger, CompactedLedger) else 300
        value: bytes | None = b"%d %s" % (number, b"." * chance.choice((0, filler)))
        key = None
        if isinstance(ledger, CompactedLedger):
            key = b"key %d" % chance.randrange(KEYS)
            value = None if chance.random() < TOMBSTONES else value
            ledger.records.append(Keyed(key, value, now_ms))
        builder.append(now_ms, key, value)

    def _send(self) -> None:
        ledger = self.ledger
        if not self.is_alive:
            self.is_sending = False
            return
        data = TopicProduceData(ledger.topic, ledger.topic_id, [PartitionProduceData(ledger.partition, self._batch)])
        self.client.send(self.client.leader(ledger), ProduceRequest(None, -1, 2_000, [data]), self._answered)

    def _answered(self, answer: Message | ApiError) -> None:
        client, ledger = self.client, self.ledger
        if isinstance(answer, ProduceResponse):
            told = answer.responses[0].partition_responses[0]
            error = by_code(told.error_code).name
            assert error not in FATAL, f"{ledger.name}, batch {ledger.sent[-1]}: {error}"
            if error == "NONE":
                self._acknowledged(told.base_offset)
                return
            world = client.world
            world.tell(lambda: f"client: {ledger.name}, {ledger.sent[-1]}: {error} {told.error_message or ''}")
        client.refresh()
        client.later(self._send)

    def _acknowledged(self, base_offset: int) -> None:
        ledger, sent, world = self.ledger, self.ledger.sent[-1], self.client.world
        again = base_offset - sent.base_offset
        if again:
            # That may happen only if the first copy was deleted meanwhile (see `node_checks`). The sequences no longer match the offsets,
            # so this producer ends.
            world.checks.look()
            assert again > 0 and sent.end_offset <= ledger.start_offset, f"{ledger.name}: {sent} was acknowledged at offset {base_offset}"
            self.is_sending = False
        ledger.acknowledged_end = sent.end_offset + again
        world.check_replicated(ledger, ledger.acknowledged_end)
        if not again:
            self.client.later(self._next, 5, 120)

    # the consumer -----------------------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Fetch the records after those that were read."""
        client, ledger = self.client, self.ledger
        if not self.is_alive:
            return
        offset = max(ledger.read_end, ledger.start_offset)
        wanted = FetchPartition(ledger.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
        request.topics = [FetchTopic(ledger.topic, ledger.topic_id, [wanted])]
        node = client.leader(ledger)
        client.send(node, request, lambda answer: self._fetched(node, offset, answer))

    def _fetched(self, node: int, asked: int, answer: Message | ApiError) -> None:
        client, ledger = self.client, self.ledger
        if isinstance(answer, FetchResponse) and answer.responses:
            data = answer.responses[0].partitions[0]
            error = by_code(data.error_code).name
            if error == "OFFSET_OUT_OF_RANGE" and client.world.leads(node, ledger):
                # The newest leader has every record that was ever read. Look where its log begins now.
                client.world.checks.look()
                assert asked < ledger.start_offset, (
                    f"{ledger.name}: offset {asked} is out of range, the log begins at {ledger.start_offset}"
                )
            if error != "NONE":
                client.refresh()
            if isinstance(data.records, bytes | bytearray | memoryview):
                self._take(bytes(data.records), asked, data.high_watermark)
        else:
            client.refresh()
        client.later(self.fetch, 10, 150)

    def _take(self, records: bytes, asked: int, high_watermark: int) -> None:
        client, ledger = self.client, self.ledger
        for batch in read_batches(records):
            if batch.last_offset < asked:
                continue
            expected = max(asked, ledger.read_end)
            if isinstance(ledger, CompactedLedger):
                ledger.check_gone(expected, batch, high_watermark, client.world.latest_for_cleaners_ms)
            else:
                assert batch.base_offset <= expected, f"{ledger.name}: a consumer at offset {expected} was given {batch.base_offset}"
            assert batch.last_offset < high_watermark, f"{ledger.name}: offset {batch.last_offset} was given above {high_watermark}"
            ledger.decide(batch, "a consumer")
            ledger.read_end = batch.last_offset + 1
