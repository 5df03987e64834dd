"""A cluster of whole nodes of kops, and a client, in the world of `sim_world`.

What happens to them is drawn from a seed, what has to be true of them is looked at all the time and at the end.

* A record that was acknowledged to its idempotent producer is in its partition once, at the offset that was told, on every replica.
* What a consumer has read at an offset is never anything else.
* An epoch of a partition has one leader. A high watermark is not above the end of its log.
* When all nodes are well again, every replica gets in sync, and the logs of a partition hold the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from types import ModuleType

from kops.broker import acceptor, peer
from kops.broker.format import FormatOptions, format_node
from kops.broker.node import Node
from kops.broker.peer import Peer, PeerSettings
from kops.config import BrokerConfig
from kops.errors import ApiError
from kops.files.crash import CrashFiles
from kops.files.tree import MemoryFiles
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records import BatchBuilder, Record, read_batches
from kops.records.log_offsets import TopicPartition
from kops.replication.partition import Partition
from tests.simulation.sim_world import Clock, Host, SimLoop, SocketModule
from tests.support.controlling import CLUSTER_ID

TOPIC = "orders"
PARTITIONS = 2
NODES = (1, 2, 3)
MIN_INSYNC = 2
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
FATAL = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "UNKNOWN_PRODUCER_ID",
    "CORRUPT_MESSAGE",
    "INVALID_RECORD",
    "OFFSET_OUT_OF_RANGE",
}
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "min.insync.replicas": MIN_INSYNC,
    "log.flush.interval.messages": "1",
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3000,
    "request.timeout.ms": 5000,
    "replica.socket.timeout.ms": 5000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.request.timeout.ms": 1000,
    "auto.create.topics.enable": "false",
}
ISR_CHECK_EVENTS = 200


class SeededDraws:
    """A node's chance, from the world's."""

    def __init__(self, clock: Clock) -> None:
        self._random = clock.random

    def next_int(self, bound: int) -> int:
        """A number from 0 to below `bound`."""
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        """16 bytes."""
        return self._random.randbytes(16)


class SimNode:
    """A machine with a disk and, while it runs, a node of kops."""

    def __init__(self, world: NodeWorld, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.host = Host(world.clock, f"10.0.0.{node_id}")
        self.files: MemoryFiles = world.new_disk()
        self.node: Node | None = None
        self.failures: list[str] = []
        voters = ",".join(f"{one}@10.0.0.{one}:{CONTROLLER_PORT}" for one in NODES)
        listeners = f"PLAINTEXT://{self.host.address}:{BROKER_PORT},CONTROLLER://{self.host.address}:{CONTROLLER_PORT}"
        settings = {**SETTINGS, "node.id": node_id, "controller.quorum.voters": voters, "listeners": listeners, "log.dirs": "/data"}
        self.config = BrokerConfig.from_properties({name: str(value) for name, value in settings.items()})
        format_node(self.files, self.config, FormatOptions(CLUSTER_ID), now_ms=0)

    def start(self) -> None:
        """A new process on what is on the disk."""
        self.host.generation += 1
        self.files.locks.clear()
        node = self.node = Node(SimLoop(self.host), self.config, files=self.files, draws=SeededDraws(self.world.clock))
        node.on_failed = self.failures.append
        self.world.clock.at(0, node.start, self.host)

    def kill(self) -> None:
        """kill -9: what was written is there."""
        self.host.kill()
        self.node = None

    def lose_power(self) -> None:
        """What was not synced may be gone, torn or in another order."""
        self.kill()
        assert isinstance(self.files, CrashFiles)
        left = self.files.after_power_loss("random", seed=self.world.clock.random.randrange(1 << 30))
        self.files = self.world.new_disk(left)

    @property
    def logs(self) -> dict[TopicPartition, object]:
        """The logs that the running node has open."""
        broker = None if self.node is None else self.node.broker
        return {} if broker is None or broker.parts.logs is None else dict(broker.parts.logs.current_logs)

    def partition(self, number: int) -> Partition | None:
        """A partition that the running node serves."""
        broker = None if self.node is None else self.node.broker
        # A node that is starting has no replica manager yet.
        manager = None if broker is None else getattr(broker.parts, "replica_manager", None)
        return None if manager is None else manager.hosted.online.get(TopicPartition(TOPIC, number))

    def log_bytes(self, partition: int) -> bytes:
        """The partition's segments, as they are on the disk."""
        folder = f"/data/{TOPIC}-{partition}"
        names = sorted(name for name in self.files.list(folder) if name.endswith(".log"))
        return b"".join(self.files.read_all(f"{folder}/{name}") for name in names)


class NodeWorld:
    """Three nodes, each broker and controller, a producer a partition and a consumer."""

    def __init__(self, seed: int, *, modules: Iterable[ModuleType] = (acceptor, peer), power_losses: bool = False) -> None:
        self.seed = seed
        self.clock = Clock(seed)
        self.power_losses = power_losses
        self.said: list[str] = []
        self.leaders: dict[tuple[int, int], int] = {}
        sockets = SocketModule(self.clock)
        self._patched = [(module, module.socket) for module in modules]
        for module in modules:
            module.socket = sockets  # type: ignore[attr-defined]
        self.nodes = {node_id: SimNode(self, node_id) for node_id in NODES}
        self.client = SimClient(self)
        self._checked_at = 0

    def close(self) -> None:
        """The modules get their sockets back."""
        for module, real in self._patched:
            module.socket = real  # type: ignore[attr-defined]

    def new_disk(self, content: MemoryFiles | None = None) -> MemoryFiles:
        """A disk, with what another one holds; everything of it is durable."""
        if not self.power_losses:
            return MemoryFiles(now_ms=self.wall_ms) if content is None else content
        disk = CrashFiles(now_ms=self.wall_ms)
        if content is not None:
            copy_tree(content, disk, "/data")
            disk.sync_all()
        return disk

    def wall_ms(self) -> int:
        """The time of files."""
        return int(self.clock.now_ms)

    def say(self, what: str) -> None:
        """A line of the trace."""
        self.said.append(f"{self.clock.now_ms:10.1f} {what}")

    # running ------------------------------------------------------------------------------------------------------------------------

    def run_for(self, ms: float) -> None:
        """Let the world go on, and look at it now and then."""
        end_ms = self.clock.now_ms + ms
        clock = self.clock
        while clock._events and clock._events[0][0] <= end_ms:
            clock.step()
            if clock.event_count - self._checked_at >= ISR_CHECK_EVENTS:
                self._checked_at = clock.event_count
                self.check()
        clock.now_ms = max(clock.now_ms, end_ms)
        self.check()

    def run_until(self, condition: Callable[[], bool], what: str, limit_ms: float = 120_000) -> None:
        """Until it is so; AssertionError after the limit."""
        end_ms = self.clock.now_ms + limit_ms
        while not condition():
            assert self.clock.now_ms < end_ms, f"{what} never came"
            self.run_for(100)

    def start(self) -> None:
        """All nodes, and the topic."""
        for node in self.nodes.values():
            node.start()
        self.client.create_topic()
        self.run_until(lambda: self.client.topic_id is not None, "the topic")
        self.client.begin()

    # what happens -------------------------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        """One disturbance, drawn."""
        chance = self.clock.random
        node = self.nodes[chance.choice(NODES)]
        others = [one for one in self.nodes.values() if one is not node]
        kind = chance.choice(("kill", "kill", "power", "pause", "cut", "cut one", "reset", "slow", "clock", "restart"))
        if kind == "power" and not self.power_losses:
            kind = "kill"
        self.say(f"{kind} of node {node.id}")
        length_ms = chance.choice((50, 500, 2_000, 6_000)) * chance.random()
        if kind in ("kill", "power"):
            node.lose_power() if kind == "power" else node.kill()
            self.run_for(length_ms)
            self.say(f"node {node.id} starts")
            node.start()
            if kind == "power":
                # A second one before it is in sync again may take what only these two had.
                self.run_until(self.is_in_sync, "all replicas in sync behind a power loss")
        elif kind == "restart":
            self._restart(node)
        elif kind == "pause":
            node.host.pause()
            self.run_for(length_ms)
            node.host.resume()
        elif kind in ("cut", "cut one"):
            for other in others if kind == "cut" else others[:1]:
                self.clock.cut_off(node.host.address, other.host.address)
            if chance.random() < 0.3:
                self.clock.cut_off(node.host.address, self.client.host.address)
            self.run_for(length_ms)
            self.clock.heal()
        elif kind == "reset":
            for sock in sorted(node.host.sockets, key=lambda one: one.number):
                if sock.pipe is not None and chance.random() < 0.5:
                    sock.error = 104
                    sock.poll()
        elif kind == "slow":
            self.clock.slow = True
            self.run_for(length_ms)
            self.clock.slow = False
        else:
            node.host.clock_offset_ms += chance.uniform(-5_000, 5_000)
        self.run_for(chance.uniform(0, 1_500))

    def _restart(self, node: SimNode) -> None:
        ended: list[bool] = []
        if node.node is None:
            return
        running = node.node
        self.clock.at(0, lambda: running.shut_down(lambda: ended.append(True)), node.host)
        self.run_until(lambda: bool(ended), f"the stop of node {node.id}")
        node.kill()
        node.start()

    # what is true -------------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at every moment."""
        for node in self.nodes.values():
            assert not node.failures, f"node {node.id}: {node.failures}"
            for number in range(PARTITIONS):
                partition = node.partition(number)
                if partition is None:
                    continue
                log = partition.log
                if log is not None:
                    assert log.high_watermark <= log.log_end_offset, f"node {node.id}, partition {number}"
                if partition.is_leader:
                    known = self.leaders.setdefault((number, partition.leader_epoch), node.id)
                    assert known == node.id, f"partition {number}: nodes {known} and {node.id} lead epoch {partition.leader_epoch}"

    def leads(self, node_id: int, number: int) -> bool:
        """Whether a node leads a partition, and nobody a later epoch of it: who is cut off does not know yet that it leads no more."""
        found = {node.id: node.partition(number) for node in self.nodes.values()}
        asked = found[node_id]
        latest = max((one.leader_epoch for one in found.values() if one is not None), default=-1)
        return asked is not None and asked.is_leader and asked.leader_epoch == latest

    def is_in_sync(self) -> bool:
        """Whether every partition has all replicas in sync, as a node that is alive knows it."""
        for node in self.nodes.values():
            if node.node is None or node.node.shared is None:
                return False
            topic = node.node.shared.image.topics.by_name.get(TOPIC)
            if topic is None or any(len(one.isr) < len(NODES) or one.leader < 0 for one in topic.partitions.values()):
                return False
        return True

    def settle(self) -> None:
        """All is well again: everything sent is acknowledged, replicas get in sync, and what was promised is looked up."""
        self.say("all is well again")
        self.clock.heal()
        for node in self.nodes.values():
            node.host.clock_offset_ms = 0
        self.client.end()
        self.run_until(lambda: self.client.is_idle, "the last acknowledgement")
        self.run_until(self.is_in_sync, "all replicas in sync")
        self.run_for(3_000)
        for number in range(PARTITIONS):
            found = {node.id: node.log_bytes(number) for node in self.nodes.values()}
            first = found[1]
            assert all(one == first for one in found.values()), f"{number}: sizes { ({key: len(one) for key, one in found.items()}) }"
            values = {record.offset: record.value for batch in read_batches(first) for record in batch.records()}
            assert len(set(values.values())) == len(values), f"partition {number}: a record is there twice"
            for what, promised in (("acknowledged", self.client.acknowledged[number]), ("read", self.client.read[number])):
                for offset, value in promised.items():
                    there = values.get(offset)
                    assert there == value, f"partition {number}: {value!r} was {what} at offset {offset}, there is {there!r}"


def copy_tree(source: MemoryFiles, target: MemoryFiles, path: str) -> None:
    """A directory with all that is below it."""
    target.mkdir(path)
    for name in source.list(path):
        below = f"{path}/{name}"
        if source.stat(below).is_dir:
            copy_tree(source, target, below)
        else:
            target.write_all(below, source.read_all(below))


class SimClient:
    """An idempotent producer for each partition, one batch in flight, and a consumer that follows each partition."""

    def __init__(self, world: NodeWorld) -> None:
        self.world = world
        self.clock = world.clock
        self.host = Host(world.clock, "10.0.0.9")
        self.loop = SimLoop(self.host)
        self.topic_id: bytes | None = None
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.read: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.is_ending = False
        self._leaders: dict[int, int] = {}
        settings = PeerSettings(client_id="client", request_timeout_ms=4_000)
        self._peers = {
            one: Peer(self.loop, f"10.0.0.{one}", BROKER_PORT, draw=world.clock.random.random, settings=settings) for one in NODES
        }
        self._producers = [SimProducer(self, number) for number in range(PARTITIONS)]

    def send(self, node: int, message: Message, done: Callable[[Message | ApiError], None]) -> None:
        """Ask a node."""
        self._peers[node].send(message, done)

    def later(self, run: Callable[[], None], low_ms: float = 20, high_ms: float = 200) -> None:
        """A little later."""
        self.loop.call_later(self.clock.random.uniform(low_ms, high_ms), run)

    def any_node(self) -> int:
        """One of all nodes."""
        return self.clock.random.choice(NODES)

    def leader(self, partition: int) -> int:
        """Who leads, as far as is known."""
        return self._leaders.get(partition) or self.any_node()

    def create_topic(self) -> None:
        """Until it is there."""
        configs = [CreatableTopicConfig("min.insync.replicas", str(MIN_INSYNC))]
        topic = CreatableTopic(TOPIC, PARTITIONS, len(NODES), [], configs)
        self.clock.at(0, lambda: self.send(self.any_node(), CreateTopicsRequest([topic], 3_000), self._created), self.host)

    def _created(self, answer: Message | ApiError) -> None:
        if isinstance(answer, CreateTopicsResponse) and by_code(answer.topics[0].error_code).name in ("NONE", "TOPIC_ALREADY_EXISTS"):
            self.ask_for_metadata()
        else:
            self.later(self.create_topic)

    def ask_for_metadata(self) -> None:
        """Who leads now."""
        self.send(self.any_node(), MetadataRequest([MetadataRequestTopic(name=TOPIC)]), self._metadata_came)

    def _metadata_came(self, answer: Message | ApiError) -> None:
        if isinstance(answer, MetadataResponse) and answer.topics and not answer.topics[0].error_code:
            self._leaders = {one.partition_index: one.leader_id for one in answer.topics[0].partitions if one.leader_id > 0}
            self.topic_id = answer.topics[0].topic_id
        elif self.topic_id is None:
            self.later(self.ask_for_metadata)

    def begin(self) -> None:
        """Produce and consume until the end."""
        for producer in self._producers:
            self.clock.at(0, producer.begin, self.host)
        for number in range(PARTITIONS):
            self.clock.at(0, lambda number=number: self.fetch(number), self.host)  # type: ignore[misc]

    def end(self) -> None:
        """Nothing new is sent."""
        self.is_ending = True

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return all(producer.is_idle for producer in self._producers)

    # the consumer -------------------------------------------------------------------------------------------------------------------

    def fetch(self, partition: int) -> None:
        """What comes behind that which was read."""
        assert self.topic_id is not None
        offset = len(self.read[partition])
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
        request.topics = [FetchTopic(TOPIC, self.topic_id, [wanted])]
        node = self.leader(partition)
        self.send(node, request, lambda answer: self._fetched(partition, node, offset, answer))

    def _fetched(self, partition: int, node: int, asked: int, answer: Message | ApiError) -> None:
        if isinstance(answer, FetchResponse) and answer.responses:
            data = answer.responses[0].partitions[0]
            error = by_code(data.error_code).name
            # A follower answers, too, and may be behind (KIP-392); the leader has all that was ever read.
            assert error not in FATAL or not self.world.leads(node, partition), f"partition {partition}, offset {asked}: {error}"
            if error != "NONE":
                self.ask_for_metadata()
            read = self.read[partition]
            for batch in read_batches(bytes(data.records)) if isinstance(data.records, bytes | bytearray | memoryview) else ():
                for record in batch.records():
                    if record.offset >= asked:
                        assert record.offset == len(read), f"partition {partition}: offset {record.offset} behind {len(read) - 1}"
                        assert record.value is not None
                        read[record.offset] = record.value
        else:
            self.ask_for_metadata()
        self.later(lambda: self.fetch(partition), 5, 100)


class SimProducer:
    """One partition's producer: a batch is sent again, to whoever leads then, until it is acknowledged."""

    def __init__(self, client: SimClient, partition: int) -> None:
        self.client = client
        self.partition = partition
        self.is_idle = True
        self._id = (-1, -1)
        self._sequence = 0
        self._count = 0
        self._values: list[bytes] = []
        self._batch = b""

    def begin(self) -> None:
        """Get a producer id."""
        self.client.send(self.client.any_node(), InitProducerIdRequest(None, 60_000), self._id_came)

    def _id_came(self, answer: Message | ApiError) -> None:
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self._id = answer.producer_id, answer.producer_epoch
            self._next()
        else:
            self.client.later(self.begin)

    def _next(self) -> None:
        if self.client.is_ending:
            self.is_idle = True
            return
        self.is_idle = False
        count = self.client.clock.random.randint(1, 4)
        self._values = [f"{self.partition}-{self._count + number}".encode() for number in range(count)]
        self._count += count
        builder = BatchBuilder(producer_id=self._id[0], producer_epoch=self._id[1], base_sequence=self._sequence)
        for value in self._values:
            builder.append(self.client.loop.now_ms(), None, value.ljust(self.client.clock.random.choice((20, 400))))
        self._values = [record.value or b"" for record in builder_records(builder.build())]
        self._batch = builder.build()
        self._send()

    def _send(self) -> None:
        client = self.client
        assert client.topic_id is not None
        data = TopicProduceData(TOPIC, client.topic_id, [PartitionProduceData(self.partition, self._batch)])
        client.send(client.leader(self.partition), ProduceRequest(None, -1, 2_000, [data]), self._answered)

    def _answered(self, answer: Message | ApiError) -> None:
        client = self.client
        if isinstance(answer, ProduceResponse):
            told = answer.responses[0].partition_responses[0]
            error = by_code(told.error_code).name
            assert error not in FATAL, f"partition {self.partition}, {self._values[0]!r}: {error}"
            if error == "NONE":
                self._acknowledged(told.base_offset)
                return
        client.ask_for_metadata()
        client.later(self._send)

    def _acknowledged(self, base_offset: int) -> None:
        kept = self.client.acknowledged[self.partition]
        for number, value in enumerate(self._values):
            assert base_offset + number not in kept, f"partition {self.partition}: offset {base_offset + number} was acknowledged twice"
            kept[base_offset + number] = value
        self._check_replicated(base_offset + len(self._values))
        self._sequence += len(self._values)
        self.client.later(self._next, 1, 60)

    def _check_replicated(self, end_offset: int) -> None:
        """As many replicas have it as are asked for; of a node that is down nobody knows."""
        having = 0
        for node in self.client.world.nodes.values():
            log = node.logs.get(TopicPartition(TOPIC, self.partition))
            having += log is None or log.log_end_offset >= end_offset  # type: ignore[attr-defined]
        assert having >= MIN_INSYNC, f"partition {self.partition}: acknowledged up to {end_offset}, {having} replicas have it"


def builder_records(data: bytes) -> list[Record]:
    """The records of one batch."""
    return [record for batch in read_batches(data) for record in batch.records()]
