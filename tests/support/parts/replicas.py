"""Brokers with replicas and nothing else: logs in memory, a loop that a test turns, wires instead of connections.

`World` is the cluster: its metadata, a controller that grants every change of an ISR (or holds it back), and the wires between brokers.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from kops.broker.apis.data.fetch import handle_fetch
from kops.broker.apis.data.leader_epochs import handle_offset_for_leader_epoch
from kops.broker.apis.data.list_offsets import handle_list_offsets
from kops.broker.network.events.loop import Loop, Timer
from kops.broker.network.peer import PeerSettings
from kops.broker.parts.parts import BrokerParts
from kops.broker.replicas.appends import ProduceAnswer
from kops.broker.replicas.fetcher import LeaderConnection
from kops.broker.replicas.manager import ReplicaManager
from kops.broker.replicas.settings import ReplicaSettings
from kops.errors import ApiError
from kops.files import MemoryFiles
from kops.metadata.image.metadata_cache import MetadataCache
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.protocol.declaration import Message
from kops.protocol.messages import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from kops.protocol.messages.register_broker_record import BrokerEndpoint
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetcher_manager import BrokerEndPoint
from kops.replication.leading.fetch_context import FetchManager
from kops.replication.leading.fetch_session import FetchSessionCache
from kops.replication.leading.isr import LeaderAndIsr, ProposedIsr
from kops.replication.waiting.delayed import AwaitedDeletion, PartitionResponse
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.manager.log_manager import LogManager
from kops.storage.segment_files.file_records import LogView
from kops.storage.unified_log import UnifiedLog
from tests.support.parts.answering import Asked
from tests.support.parts.managing import DIRECTORY_IDS, START_MS, batch
from tests.support.parts.managing import Broker as Disks

TOPIC_ID = bytes(range(16))
TP = TopicPartition("orders", 0)
METADATA_VERSION = 29
VERSIONS = {1: 17, 2: 11, 23: 4}
"""The versions of the requests that followers send: Fetch, ListOffsets, OffsetForLeaderEpoch."""
HANDLERS = {1: handle_fetch, 2: handle_list_offsets, 23: handle_offset_for_leader_epoch}


class ManualLoop(Loop):
    """A loop with the test's clock. `turn` runs what is due."""

    def __init__(self) -> None:
        self.time_ms = START_MS
        self.set_back_ms = 0  # how far the wall clock has been set back
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self.time_ms - self.set_back_ms

    def monotonic_ms(self) -> float:
        return float(self.time_ms)

    def call_soon(self, run: Callable[[], object]) -> None:
        self._ready.append(run)

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Timer:
        timer = Timer(self, self.time_ms + max(delay_ms, 0), run)
        heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
        return timer

    def forget_timer(self) -> None:
        """Do nothing: timers go when they are due."""

    def turn(self, turns: int = 1000) -> None:
        """Run everything that is due now, until nothing is left (or so many calls were made)."""
        for _ in range(turns):
            while self._timers and self._timers[0][0] <= self.time_ms:
                timer = heapq.heappop(self._timers)[2]
                if timer.run is not None:
                    run, timer.run = timer.run, None
                    self._ready.append(run)
            if not self._ready:
                return
            self._ready.popleft()()

    def advance(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ms = self.time_ms + ms
        while True:
            self.turn()
            due_ms = min((entry[0] for entry in self._timers if entry[2].run is not None), default=end_ms + 1)
            if due_ms > end_ms:
                break
            self.time_ms = max(self.time_ms, int(due_ms))
        self.time_ms = end_ms
        self.turn()


class Wire:
    """A fetcher's connection. It passes requests to the leader's handlers as bytes. They wait while the wire is `cut` or `slow`."""

    def __init__(self, world: World, source: int, leader: BrokerEndPoint) -> None:
        self.versions = self
        self._world = world
        self._source = source
        self._leader = leader
        self.closed = False
        self.sent: list[Message] = []
        self._unanswered: list[Callable[[Message | ApiError], object]] = []

    def latest(self, api_key: int, allowed: range | None = None) -> int:
        return VERSIONS[api_key]

    def send(
        self,
        message: Message,
        done: Callable[[Message | ApiError], object],
        *,
        timeout_ms: int | None = None,
        versions: range | None = None,
    ) -> None:
        self.sent.append(message)
        if (self._source, self._leader.id) in self._world.cut:
            self._world.loop.call_later(10, lambda: self._end(done, ApiError("NETWORK_EXCEPTION")))
            return
        self._unanswered.append(done)
        self._world.loop.call_soon(lambda: self._deliver(message, done))

    def _deliver(self, message: Message, done: Callable[[Message | ApiError], object]) -> None:
        leader = self._world.brokers.get(self._leader.id)
        if leader is None or self.closed:
            self._end(done, ApiError("NETWORK_EXCEPTION"))
            return
        assert message.API_KEY is not None
        asked = Answered(message, VERSIONS[message.API_KEY], lambda answer: self._end(done, answer))
        HANDLERS[message.API_KEY](leader.parts, asked)

    def _end(self, done: Callable[[Message | ApiError], object], answer: Message | ApiError) -> None:
        if not self.closed:
            self._world.loop.call_soon(lambda: done(answer))

    def close(self) -> None:
        self.closed = True


class Answered(Asked):
    """A request whose answer is passed to a function."""

    def __init__(self, message: Message, version: int, on_answer: Callable[[Message], object]) -> None:
        super().__init__(message, version, "broker")
        self._on_answer = on_answer

    def respond(self, message: Message, *, throttle_ms: int = 0) -> None:
        version = self.request.version
        written = b"".join(_bytes_of(part) for part in message.write(version))
        self.answer = type(message).decode(written, version)
        self._on_answer(self.answer)


def _bytes_of(part: Any) -> bytes:
    """Return the bytes for a socket: the bytes themselves, or those of a segment's slice."""
    return part.read_at(part.start, part.size) if isinstance(part, LogView) else bytes(part)


class ReplicaBroker:
    """One broker. `disks` are its files, `manager` its replicas; `produced` and `deleted` are the answers that it got."""

    def __init__(self, world: World, node_id: int, log_dirs: Sequence[str] = ("/a",), disks: Disks | None = None, **settings: Any) -> None:
        self.world = world
        self.node_id = node_id
        self.disks = world.make_disks(node_id, log_dirs) if disks is None else disks
        self.logs: LogManager = self.disks.start()
        self.cache = MetadataCache()
        self.reported: list[tuple[TopicPartition, str]] = []
        self.accept: list[Callable[[], object]] = []
        self.failed_dirs: list[bytes] = []
        self.halted: list[str] = []
        self.wires: list[Any] = []
        settings.setdefault("replica_fetch_backoff_ms", 100)
        self.manager = ReplicaManager(
            world.loop,
            ReplicaSettings(node_id, **settings),
            self.logs,
            self.cache,
            connect=self._connect,
            alter_partition=self,
            broker_epoch=lambda: world.epochs[node_id],
            assignments=self,
            on_directory_failed=self.failed_dirs.append,
            halt=self.halted.append,
            space=lambda path: (1000, 400),
        )
        ids = itertools.count(100 * node_id)
        sessions = FetchManager(FetchSessionCache(1000, 120_000, lambda: next(ids)), world.loop.now_ms)
        parts = SimpleNamespace(
            cache=self.cache,
            replica_manager=self.manager,
            fetch_sessions=sessions,
            config={"fetch.max.bytes": 55 << 20},
            now_ms=world.loop.now_ms,
        )
        self.parts = cast("BrokerParts", parts)

    def _connect(self, leader: BrokerEndPoint, settings: PeerSettings) -> LeaderConnection:
        wire = self.world.connect(self.node_id, leader, settings)
        self.wires.append(wire)
        return wire

    # AlterPartitionQueue, Assignments

    def submit(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        self.world.alter_partition(topic_id, partition, proposed, done)

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, on_success: Callable[[], object]) -> None:
        path = next(path for path, text in DIRECTORY_IDS.items() if uuid_bytes(text) == directory_id)
        self.reported.append((TopicPartition("orders", partition), path))
        self.accept.append(on_success)

    # steps of a test

    def learn(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply new metadata."""
        self.cache.image = image
        if delta.has("topics"):
            self.manager.apply_delta(delta.topics, image)

    def produce(self, data: bytes, acks: int = -1, timeout_ms: int = 1000, key: TopicPartition = TP) -> list[PartitionResponse]:
        """Append. The list has the answer as soon as there is one."""
        answers: list[PartitionResponse] = []
        self.manager.append_records({key: data}, acks, timeout_ms, lambda found: answers.append(found[key]))
        return answers

    def produce_in_turn(self, keys: Sequence[TopicPartition]) -> list[PartitionResponse]:
        """Append to one partition after the other, each as soon as all replicas have the earlier records. Return the answers so far."""
        answers: list[PartitionResponse] = []

        def go_on(left: Sequence[TopicPartition]) -> None:
            def done(found: ProduceAnswer) -> None:
                answers.append(found[left[0]])
                go_on(left[1:])

            if left:
                self.manager.append_records({left[0]: batch()}, -1, 1000, done)

        go_on(keys)
        return answers

    def delete_records(self, offset: int, timeout_ms: int = 1000) -> list[AwaitedDeletion]:
        """Delete records before an offset. The list has the answer as soon as there is one."""
        answers: list[AwaitedDeletion] = []
        self.manager.delete_records({TP: offset}, timeout_ms, lambda found: answers.append(found[TP]))
        return answers

    @property
    def log(self) -> UnifiedLog:
        """The partition's log."""
        log = self.logs.get_log(TP)
        assert log is not None
        return log


class World:
    """The cluster. `cut` has the (follower, leader) pairs whose wires are cut. With `holds_isr_changes` the controller does not answer."""

    def __init__(self, *node_ids: int, log_dirs: Sequence[str] = ("/a",), **settings: Any) -> None:
        self.loop = self.make_loop()
        self.image = EMPTY
        self.epochs = {node_id: 10 * node_id for node_id in node_ids}
        self.cut: set[tuple[int, int]] = set()
        self.holds_isr_changes = False
        self.asked: list[ProposedIsr] = []
        self.brokers: dict[int, ReplicaBroker] = {}
        for node_id in node_ids:
            self.brokers[node_id] = ReplicaBroker(self, node_id, log_dirs, **settings)
        self.replay(FeatureLevelRecord("metadata.version", METADATA_VERSION), *map(self._registration, node_ids))

    def make_loop(self) -> Any:
        """Return the loop that everything runs on."""
        return ManualLoop()

    def make_disks(self, node_id: int, log_dirs: Sequence[str]) -> Disks:
        """Return the log directories of a new broker."""
        return Disks(MemoryFiles(now_ms=self.loop.now_ms), log_dirs, clock=cast("Any", self.loop.now_ms))

    def connect(self, source: int, leader: BrokerEndPoint, settings: PeerSettings) -> LeaderConnection:
        """Return a fetcher's connection."""
        return Wire(self, source, leader)

    def address(self, node_id: int) -> tuple[str, int]:
        """Return the address of a broker."""
        return f"host{node_id}", 9092

    def _registration(self, node_id: int) -> RegisterBrokerRecord:
        point = BrokerEndpoint("PLAINTEXT", *self.address(node_id), 0)
        return RegisterBrokerRecord(
            broker_id=node_id, broker_epoch=self.epochs[node_id], end_points=[point], rack=f"r{node_id}", fenced=False
        )

    def replay(self, *records: Message) -> None:
        """Apply records of the metadata log to all brokers."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(MetadataProvenance(self.image.offset + len(records), 1, 1, True))
        for broker in list(self.brokers.values()):
            broker.learn(delta, self.image)

    def restart(self, node_id: int) -> ReplicaBroker:
        """Stop a broker cleanly, and start it again with what is on its disks."""
        old = self.brokers.pop(node_id)
        old.manager.shut_down()
        old.disks.stop()
        return self.revive(old)

    def revive(self, old: ReplicaBroker, **settings: Any) -> ReplicaBroker:
        """Let a broker come back with another epoch."""
        self.epochs[old.node_id] += 1
        broker = self.brokers[old.node_id] = ReplicaBroker(self, old.node_id, disks=old.disks, **settings)
        delta = MetadataDelta(EMPTY)
        for each in self.brokers:
            delta.replay(self._registration(each))
        delta.replay(FeatureLevelRecord("metadata.version", METADATA_VERSION))
        for topic in self.image.topics.by_id.values():
            delta.replay(TopicRecord(topic.name, topic.id))
            for number, partition in topic.partitions.items():
                assert self.image.features.metadata_version is not None
                delta.replay(partition.to_record(topic.id, number, self.image.features.metadata_version, with_elr=False)[0])
        broker.learn(delta, delta.apply(self.image.provenance))
        self.replay(self._registration(old.node_id))
        return broker

    def create_topic(self, replicas: Sequence[int], *, leader: int | None = None, directories: Sequence[bytes] | None = None) -> None:
        """Create `orders` with one partition, led by the first replica."""
        self.replay(
            TopicRecord(TP.topic, TOPIC_ID),
            PartitionRecord(
                0,
                TOPIC_ID,
                list(replicas),
                list(replicas),
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                directories=list(directories or [uuid_bytes(DIRECTORY_IDS["/a"])] * len(replicas)),
            ),
        )

    def change(self, **fields: Any) -> None:
        """Change the partition's leader, ISR, replicas, and so on."""
        self.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields))

    def alter_partition(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        """Handle a leader's request for another ISR."""
        self.asked.append(proposed)
        if self.holds_isr_changes:
            return

        def grant() -> None:
            known = self.image.topics.partition(topic_id, partition)
            assert known is not None
            if (proposed.leader_epoch, proposed.partition_epoch) != (known.leader_epoch, known.partition_epoch):
                done("INVALID_UPDATE_VERSION")
                return
            isr = tuple(member.broker_id for member in proposed.isr)
            done(LeaderAndIsr(known.leader, known.leader_epoch, isr, 0, known.partition_epoch + 1))
            self.change(isr=list(isr))

        self.loop.call_soon(grant)
