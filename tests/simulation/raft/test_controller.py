"""A controller under random requests. Brokers come, go and die, and leaderships are lost before records are committed.

After every step, leaders are in sync, the ISR and the eligible leaders are disjoint sets of replicas, and epochs grow as they must. At the
end a new controller replays the log and has the same state.
"""

from __future__ import annotations

import random

import pytest

from kops.metadata.controller.controller import Controller
from kops.metadata.controller.parts import Parts
from kops.metadata.partition_registration import PartitionRegistration
from kops.protocol import messages
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.alter_partition_request import BrokerState, PartitionData, TopicData
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from tests.support.parts.controlling import SeededDraws, World, creation

BROKERS = (1, 2, 3, 4, 5)
Partitions = dict[tuple[bytes, int], PartitionRegistration]


def partitions(world: World) -> Partitions:
    topics = world.controller.parts.state.topics.values()
    return {(topic.id, number): partition for topic in topics for number, partition in topic.partitions.items()}


def act(world: World, source: random.Random) -> None:
    """Do one random thing."""
    kind = source.choice(["heartbeat", "heartbeat", "die", "start", "isr", "isr", "isr", "reassign", "create", "delete", "resign"])
    broker_id = source.choice(BROKERS)
    found = partitions(world)
    if kind == "heartbeat":
        beat(world, broker_id, want_fence=source.random() < 0.1, want_shut_down=source.random() < 0.1)
    elif kind == "die":
        for _ in range(2):
            world.now_ms += 5_000
            for other in BROKERS:
                if other != broker_id:
                    beat(world, other)
        world.tick()
    elif kind == "start":
        previous = world.epochs[broker_id] if source.random() < 0.5 else -1
        if world.register(broker_id, incarnation=source.randrange(1 << 60), previous=previous) == 0:
            world.heartbeat(broker_id)
    elif kind == "create":
        name = source.choice("abcd")
        world.ask(creation(name, partitions=3, factor=3, min_insync_replicas=source.choice("12")), messages.CreateTopicsResponse)
    elif kind == "resign":
        resign(world)
    elif found:
        (topic_id, number), partition = source.choice(list(found.items()))
        if kind == "isr" and partition.has_leader:
            alter_isr(world, source, topic_id, number, partition)
        elif kind == "reassign":
            replicas = None if source.random() < 0.2 else source.sample(BROKERS, 3)
            name = world.controller.parts.state.topics[topic_id].name
            topics = [ReassignableTopic(name, [ReassignablePartition(number, replicas)])]
            world.ask(messages.AlterPartitionReassignmentsRequest(topics=topics), messages.AlterPartitionReassignmentsResponse)
        elif kind == "delete" and source.random() < 0.2:
            world.ask(messages.DeleteTopicsRequest([DeleteTopicState(None, topic_id)]), messages.DeleteTopicsResponse)


def beat(world: World, broker_id: int, *, want_fence: bool = False, want_shut_down: bool = False) -> None:
    """Send a heartbeat. A broker that has begun to shut down continues to, and must register to come back."""
    broker = world.controller.parts.cluster.brokers[broker_id]
    if not (broker.in_controlled_shutdown and broker.fenced):
        world.heartbeat(broker_id, want_fence=want_fence, want_shut_down=want_shut_down or broker.in_controlled_shutdown)


def alter_isr(world: World, source: random.Random, topic_id: bytes, number: int, partition: PartitionRegistration) -> None:
    """Let the leader ask for a random ISR."""
    members = [replica for replica in partition.replicas if replica == partition.leader or source.random() < 0.7]
    states = [BrokerState(replica, world.epochs[replica]) for replica in members]
    data = PartitionData(number, partition.leader_epoch, [], states, 0, partition.partition_epoch)
    request = messages.AlterPartitionRequest(partition.leader, world.epochs[partition.leader], [TopicData(topic_id, [data])])
    world.ask(request, messages.AlterPartitionResponse)


def resign(world: World) -> None:
    """Append something that is never committed. Then let the same node lead again."""
    committed, epochs, before = len(world.log), dict(world.epochs), partitions(world)
    world.commits = False
    world.heartbeat(1, want_fence=True)
    world.ask(creation("lost", partitions=2, factor=1), messages.CreateTopicsResponse)
    world.controller.on_resign()
    del world.log[committed:]
    world.epochs, world.commits = epochs, True
    assert partitions(world) == before
    world.append(world.controller.on_claim(world.controller.epoch + 2, committed, world.now_ms))


def check(world: World, before: Partitions) -> None:
    """Check what must always be true."""
    for key, partition in partitions(world).items():
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert len(replicas) == len(partition.replicas) == len(partition.directories)
        assert isr <= replicas
        assert not isr & elr
        assert not partition.has_leader or partition.leader in isr
        assert isr or (elr or partition.last_known_elr)
        assert not partition.has_leader or world.controller.parts.cluster.is_active(partition.leader)
        topic = world.controller.parts.state.topics[key[0]].name
        least = min(world.controller.parts.configs.min_insync_replicas(topic), len(replicas))
        assert not elr or len(isr) < least
        old = before.get(key)
        if old is not None and old != partition:
            assert partition.partition_epoch > old.partition_epoch
            assert partition.leader_epoch - old.leader_epoch <= partition.partition_epoch - old.partition_epoch
            assert partition.leader == old.leader or partition.leader_epoch > old.leader_epoch


def known(parts: Parts) -> tuple[object, ...]:
    """Return everything that was replayed."""
    topics = {topic.name: dict(topic.partitions) for topic in parts.state.topics.values()}
    brokers = dict(parts.cluster.brokers)
    index = {broker_id: (set(parts.state.index.in_isr(broker_id)), set(parts.state.index.in_elr(broker_id))) for broker_id in BROKERS}
    marks = (set(parts.state.imbalanced), set(parts.state.index.without_leader()))
    return topics, brokers, index, marks, parts.features.finalized, parts.producer_ids.next_producer_id


def run(seed: int, steps: int) -> None:
    source = random.Random(seed)
    world = World.with_brokers(*BROKERS, leader_imbalance_check_interval_ms=20_000)
    world.ask(creation("a", partitions=3, factor=3, min_insync_replicas="2"), messages.CreateTopicsResponse)
    for _ in range(steps):
        before = partitions(world)
        act(world, source)
        check(world, before)
    again = Controller(3000, world.settings, SeededDraws())
    for offset, (message, _) in enumerate(world.log):
        again.replay(message, offset)
    assert known(again.parts) == known(world.controller.parts)


@pytest.mark.parametrize("seed", range(8))
def test_a_life(seed: int) -> None:
    run(seed, 60)


@pytest.mark.slow
def test_many_lives() -> None:
    for seed in range(1000, 1060):
        run(seed, 150)
