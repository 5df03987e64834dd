"""Idle partitions add no cost to a fetch, and no client or follower notices: every request and every answer is the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kops.broker.apis.data.fetch import handle_fetch
from kops.broker.network.peer import PeerSettings
from kops.broker.replicas import delta
from kops.broker.replicas import manager as replica_manager
from kops.broker.replicas.fetcher import LeaderConnection
from kops.broker.replicas.reads import ReplicaReads
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.messages import PartitionRecord, TopicRecord
from kops.protocol.messages.fetch_request import FetchRequest
from kops.protocol.messages.fetch_response import FetchResponse
from kops.protocol.messages.partition_change_record import PartitionChangeRecord
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_session_handler import FetchSessionHandler, response_data
from kops.replication.following.fetcher_manager import BrokerEndPoint
from kops.replication.following.followers import FollowerReplicas
from kops.replication.following.leader_endpoint import RemoteLeader
from kops.replication.leading.fetch import FetchInfo
from kops.replication.leading.partition import Partition
from kops.storage.formats.kafka_uuid import uuid_bytes
from tests.support.parts.managing import DIRECTORY_IDS, batch
from tests.support.parts.replicas import TOPIC_ID, TP, Answered, Wire, World
from tests.support.planted import plant

VERSION = 17


def written(message: Message, version: int) -> str:
    """Return a message as text after a trip over a wire."""
    data = b"".join(map(bytes, cast("list[bytes]", message.write(version))))
    found = type(message).decode(data, version)
    if isinstance(found, FetchResponse):
        for topic in found.responses:
            for partition in topic.partitions:
                partition.records = bytes(cast("bytes", partition.records or b""))
    return repr(found)


class ToldWire(Wire):
    """A wire that records its requests and answers."""

    def __init__(self, world: ToldWorld, source: int, leader: BrokerEndPoint) -> None:
        super().__init__(world, source, leader)
        self._told = world.told
        self._name = (source, leader.id)
        self._now_ms = world.loop.now_ms

    def send(self, message: Message, done: Any, **options: Any) -> None:
        version = self.latest(message.API_KEY or 0)
        self._told.append((self._now_ms(), *self._name, written(message, version)))

        def answered(answer: Any) -> None:
            said = written(answer, version) if isinstance(answer, Message) else str(answer)
            self._told.append((self._now_ms(), *self._name, said))
            done(answer)

        super().send(message, answered, **options)


class ToldWorld(World):
    """Brokers with many partitions, led in turn. `told` is everything that goes over their wires."""

    def __init__(self, *node_ids: int, partition_count: int) -> None:
        self.told: list[Any] = []
        super().__init__(*node_ids)
        directories = [uuid_bytes(DIRECTORY_IDS["/a"])] * len(node_ids)
        ids = list(node_ids)
        self.replay(
            TopicRecord(TP.topic, TOPIC_ID),
            *(
                PartitionRecord(number, TOPIC_ID, ids, ids, leader=ids[number % len(ids)], leader_epoch=0, directories=directories)
                for number in range(partition_count)
            ),
        )
        self.keys = [TopicPartition(TP.topic, number) for number in range(partition_count)]

    def connect(self, source: int, leader: BrokerEndPoint, settings: PeerSettings) -> LeaderConnection:
        return ToldWire(self, source, leader)

    def leader_of(self, key: TopicPartition) -> int:
        partition = self.image.topics.partition(TOPIC_ID, key.partition)
        assert partition is not None
        return partition.leader


class Reader:
    """A consumer in a session with one broker. It asks again as soon as it is answered."""

    def __init__(self, world: ToldWorld, node_id: int, keys: Sequence[TopicPartition]) -> None:
        self._world = world
        self._node_id = node_id
        self._offsets = dict.fromkeys(keys, 0)
        self._session = FetchSessionHandler()
        self.ask()

    def ask(self) -> None:
        broker = self._world.brokers.get(self._node_id)
        if broker is None:
            return
        wanted = {key: FetchInfo(offset, -1, 1_000_000, topic_id=TOPIC_ID) for key, offset in self._offsets.items()}
        data = self._session.build(wanted)
        request = data.fill(FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1_000_000))
        asked = Answered(request, VERSION, lambda answer: self._world.loop.call_soon(lambda: self._take(cast("FetchResponse", answer))))
        handle_fetch(broker.parts, asked)

    def _take(self, response: FetchResponse) -> None:
        world = self._world
        world.told.append((world.loop.now_ms(), "reader", self._node_id, written(response, VERSION)))
        if self._session.handle_response(response, VERSION):
            for key, data in response_data(response, self._session.session_topic_names, VERSION).items():
                count = len(cast("bytes", data.records or b"")) // len(batch())
                self._offsets[key] = max(self._offsets[key] + count, data.log_start_offset)
        world.loop.call_later(20, self.ask)


def live(seed: int, partition_count: int = 9) -> list[Any]:
    """Run a random life, and return its traffic, with the leaders' view of their followers after each step."""
    draw = random.Random(seed)
    world = ToldWorld(1, 2, 3, partition_count=partition_count)
    for node_id in (1, 2):
        Reader(world, node_id, world.keys)
    for _ in range(40):
        step(world, draw, draw.choice(world.keys))
        world.loop.advance(draw.choice((0, 1, 30, 200, 700)))
        for node_id, broker in world.brokers.items():
            for partition in broker.manager.hosted.online.values():
                known = {replica.broker_id: replica.state for replica in partition.remote_replicas.values()}
                log = partition.local_log
                world.told.append((node_id, str(partition), log.log_start_offset, log.log_end_offset, log.high_watermark, known))
    return world.told


def step(world: ToldWorld, draw: random.Random, key: TopicPartition) -> None:
    """Let a random event happen."""
    leader = world.brokers[world.leader_of(key)]
    log = leader.logs.get_log(key)
    assert log is not None
    match draw.choice(("produce",) * 6 + ("chain", "chain", "delete", "retention", "cut", "mend", "elect", "restart", "lag", "nothing")):
        case "produce":
            for each in draw.sample(world.keys, draw.choice((1, 1, 2))):
                world.brokers[world.leader_of(each)].produce(batch(), acks=draw.choice((-1, 1)), key=each)
        case "chain":
            others = [each for each in world.keys if world.leader_of(each) == leader.node_id]
            leader.produce_in_turn([key, *draw.sample(others, min(len(others), 2))])
        case "delete":
            leader.manager.delete_records({key: -1}, 1000, lambda found: None)
        case "retention":
            other = draw.choice(list(world.brokers.values())).logs.get_log(key)
            assert other is not None
            other.maybe_increment_log_start_offset(other.high_watermark, "segment deletion")
        case "cut":
            world.cut.add((draw.choice([1, 2, 3]), leader.node_id))
        case "mend":
            world.cut.clear()
        case "elect":
            partition = world.image.topics.partition(TOPIC_ID, key.partition)
            assert partition is not None
            world.replay(PartitionChangeRecord(partition_id=key.partition, topic_id=TOPIC_ID, leader=draw.choice(partition.isr)))
        case "restart":
            world.restart(draw.choice([1, 2, 3]))
        case "lag":
            for broker in world.brokers.values():
                broker.manager.maybe_shrink_isrs()


@pytest.mark.parametrize("seed", range(4))
def test_who_fetches_can_not_tell(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(seed, monkeypatch)


@pytest.mark.slow
def test_who_fetches_can_not_tell_in_many_lives(seed_count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4, 4 + (seed_count or 20)):
        with monkeypatch.context() as patch:
            compare(seed, patch)


class AskedForAll(RemoteLeader):
    """A leader of which each fetch asks for all partitions."""

    def build_fetch(self, states: Any, changed: Any, replicas: Any, now_ms: int) -> Any:
        return super().build_fetch(states, [*states, *self.session.session_partitions], replicas, now_ms)


class AllRead(ReplicaReads):
    """Reads of all partitions of a session."""

    def read_again(self, params: Any, awaited: Any, quota: Any, touched: Any) -> Any:
        return self.read(params, [asked for asked, _ in awaited], quota, from_purgatory=True)

    def _let_rest(self, session: Any, params: Any, infos: Any, answer: Any) -> Any:
        return [*zip(infos, answer, strict=True)]


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the life with that of brokers that look at all partitions all the time, as Kafka's do."""
    told = live(seed)
    monkeypatch.setattr(replica_manager, "RemoteLeader", AskedForAll)
    monkeypatch.setattr(replica_manager, "ReplicaReads", AllRead)
    for now, looking_at_all in zip(told, live(seed), strict=True):
        assert now == looking_at_all


def test_an_append_that_follows_from_a_replicated_one_does_not_wait() -> None:
    """For example, the end of a transaction follows its decision: the follower's fetch that completes the first append is in flight."""
    world = ToldWorld(1, 2, 3, partition_count=9)
    world.loop.advance(5000)
    leader = world.brokers[1]
    led = [key for key in world.keys if world.leader_of(key) == 1]
    answers = leader.produce_in_turn(led)
    world.loop.advance(100)
    assert [answer.error for answer in answers] == ["NONE"] * len(led)


def test_a_request_that_overtakes_one_that_waits() -> None:
    world = ToldWorld(1, partition_count=3)
    session = FetchSessionHandler()
    answers: list[list[FetchResponse]] = []

    def ask(epoch_ahead: int = 0) -> None:
        data = session.build({key: FetchInfo(0, -1, 1_000_000, topic_id=TOPIC_ID) for key in world.keys})
        request = data.fill(FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1_000_000))
        request.session_epoch += epoch_ahead
        took: list[FetchResponse] = []
        answers.append(took)
        asked = Answered(request, VERSION, lambda answer: took.append(cast("FetchResponse", answer)))
        handle_fetch(world.brokers[1].parts, asked)

    ask()
    world.loop.advance(300)
    assert session.handle_response(answers[0][0], VERSION)
    ask()
    ask(epoch_ahead=1)
    assert answers[1:] == [[], []]
    world.brokers[1].produce(batch(), key=world.keys[2])
    world.loop.turn()
    assert [(one.error_code, len(one.responses)) for one in (answers[1][0], answers[2][0])] == [
        (errors.by_name("INVALID_FETCH_SESSION_EPOCH").code, 0),
        (0, 1),
    ]


def looks(partition_count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the partitions that leader and follower look at while one of them is written to twenty times."""
    looked: list[str] = []

    def noted(owner: Any, *places: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            looked.append(name)
            return original(self, *arguments, **options)

        plant(patch, owner, *places, **{name: call})

    with monkeypatch.context() as patch:
        noted(Partition, delta, name="fetch_records")
        noted(Partition, delta, name="fetchable_end")
        noted(Partition, delta, name="is_as_read")
        noted(FollowerReplicas, replica_manager, name="log_start_offset")
        world = ToldWorld(1, 2, partition_count=partition_count)
        world.loop.advance(2000)
        looked.clear()
        for _ in range(20):
            world.brokers[1].produce(batch())
            world.loop.advance(30)
    return len(looked)


def test_a_fetch_looks_at_those_to_which_something_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    of_few, of_many = looks(4, monkeypatch), looks(400, monkeypatch)
    assert of_few == of_many < 20 * 16
