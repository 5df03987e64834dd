"""kops's assignors compared with Kafka's: groups whose members come, go, change their topics and claim what others have."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kops.client.groups.assignors import Assignment, Racks, Subscription
from kops.client.groups.consumer_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from kops.client.groups.strategies import make_assignors
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle

NAMES = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
CLIENTS = "org.apache.kafka.clients.consumer."
TOPICS = ["orders", "clicks", "a", "b-2", "payments.eu", "Zz"]


class Java:
    """One of Kafka's assignors."""

    def __init__(self, oracle: Oracle, name: str) -> None:
        self._oracle = oracle
        self._assignor = oracle.java_class(CLIENTS + NAMES[name])()
        self._common = oracle.jvm.org.apache.kafka.common
        self._optional = oracle.jvm.java.util.Optional

    def assign(self, topics: dict[str, Racks], members: dict[str, Subscription]) -> Assignment | str:
        group = self._oracle.java_class(CLIENTS + "ConsumerPartitionAssignor$GroupSubscription")(self._members(members))
        assignments = self._assignor.assign(self._cluster(topics), group).groupAssignment()
        return {
            str(name): [TopicPartition(str(key.topic()), int(key.partition())) for key in assignments[name].partitions()]
            for name in assignments
        }

    def _cluster(self, topics: dict[str, Racks]) -> Any:
        java = self._oracle.jvm.java.util
        partitions = java.ArrayList()
        for topic, racks in topics.items():
            for index, found in enumerate(racks):
                replicas = [self._node(rack) for rack in sorted(found)] or [self._common.Node(99, "h", 9)]
                array = self._oracle.gateway.new_array(self._common.Node, len(replicas))
                for place, node in enumerate(replicas):
                    array[place] = node
                partitions.add(self._common.PartitionInfo(topic, index, None, array, array))
        return self._common.Cluster("c", java.ArrayList(), partitions, java.HashSet(), java.HashSet())

    def _node(self, rack: str) -> Any:
        return self._common.Node(ord(rack[-1]), "h", 9, rack)

    def _members(self, members: dict[str, Subscription]) -> Any:
        java = self._oracle.jvm.java
        kind = self._oracle.java_class(CLIENTS + "ConsumerPartitionAssignor$Subscription")
        found = java.util.HashMap()
        for name, member in members.items():
            data = None if member.user_data is None else java.nio.ByteBuffer.wrap(member.user_data)
            owned = java.util.ArrayList()
            for key in member.owned:
                owned.add(self._common.TopicPartition(key.topic, key.partition))
            generation = -1 if member.generation is None else member.generation
            made = kind(self._list(member.topics), data, owned, generation, self._optional.ofNullable(member.rack))
            made.setGroupInstanceId(self._optional.ofNullable(member.instance_id))
            found.put(name, made)
        return found

    def _list(self, values: Any) -> Any:
        found = self._oracle.jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found


class Group:
    """A random group: what its members want and have, from one generation to the next."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.equal = rng.random() < 0.5
        self.racks = rng.choice([[], [], ["ra", "rb"], ["ra", "rb", "rc"]])
        self.topics: dict[str, Racks] = {name: self._racks(rng.randrange(1, 9)) for name in rng.sample(TOPICS, rng.randrange(1, 5))}
        self.owned: dict[str, list[TopicPartition]] = {}
        self.wants: dict[str, list[str]] = {}
        self.generations: dict[str, int | None] = {}
        self.instances: dict[str, str | None] = {}
        self.racks_of: dict[str, str | None] = {}
        self.generation = 0
        self.made = 0
        self.shared = list(self.topics)

    def _racks(self, count: int) -> Racks:
        size = len(self.racks) if self.rng.random() < 0.3 else self.rng.randrange(1, 3)
        return [frozenset(self.rng.sample(self.racks, min(size, len(self.racks)))) for _ in range(count)]

    def _add(self) -> None:
        self.made += 1
        name = f"consumer-{self.rng.choice(['x', 'y', 'rdkafka', ''])}-{self.rng.getrandbits(40):x}-{self.made}"
        self.owned[name], self.generations[name] = [], None
        self.instances[name] = f"i{self.made % 7}{self.made}" if self.rng.random() < 0.3 else None
        self.racks_of[name] = self.rng.choice([*self.racks, None]) if self.racks else None
        self.wants[name] = self._wanted()

    def _wanted(self) -> list[str]:
        if self.equal:
            return list(self.shared)
        return self.rng.sample([*self.topics, "missing"], self.rng.randrange(1, len(self.topics) + 2))

    def change(self) -> dict[str, Subscription]:
        """The members of the next round."""
        rng = self.rng
        for _ in range(rng.randrange(1, 5) if not self.wants else rng.randrange(3)):
            self._add()
        if len(self.wants) > 1 and rng.random() < 0.4:
            self.wants.pop(rng.choice(list(self.wants)))
        if rng.random() < 0.2:
            topic = rng.choice(list(self.topics))
            self.topics[topic] = [*self.topics[topic], *self._racks(rng.randrange(1, 4))]
        if not self.equal and rng.random() < 0.3:
            self.wants[rng.choice(list(self.wants))] = self._wanted()
        if rng.random() < 0.15:
            thief, victim = rng.choice(list(self.wants)), rng.choice(list(self.wants))
            self.owned[thief] = list(dict.fromkeys([*self.owned[thief], *self.owned[victim][:2]]))
        found = {}
        for name, topics in self.wants.items():
            data = None if rng.random() < 0.5 else rng.choice([b"", b"\0\0\0\2", (self.generations[name] or 0).to_bytes(4, "big")])
            owned = list(self.owned[name])
            rng.shuffle(owned)
            found[name] = Subscription(topics, owned, self.generations[name], data, self.instances[name], self.racks_of[name])
        return found

    def take(self, assignment: Assignment) -> None:
        self.generation += 1
        for name, keys in assignment.items():
            if self.rng.random() < 0.9:  # another one missed it
                self.owned[name], self.generations[name] = list(keys), self.generation


def live(oracle: Oracle, name: str, seed: int) -> None:
    """Some rounds of one group."""
    (ours,) = make_assignors([name])
    theirs = Java(oracle, name)
    group = Group(random.Random(seed))
    for round_number in range(4):
        members = group.change()
        expected = theirs.assign(group.topics, members)
        found = ours.assign(group.topics, members)
        assert found == expected, f"{name}, seed {seed}, round {round_number}"
        group.take(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_kafkas(oracle: Oracle, name: str, seed_count: int | None) -> None:
    for seed in range(seed_count or (16 if name == "cooperative-sticky" else 5)):
        live(oracle, name, seed)


def test_the_same_bytes(oracle: Oracle) -> None:
    java = oracle.jvm.java.nio.ByteBuffer
    protocol = oracle.java_class("org.apache.kafka.clients.consumer.internals.ConsumerProtocol")
    owned = [TopicPartition(topic, index) for topic in ("b", "a") for index in (2, 0)]
    for member in (
        Subscription(["b", "a"], owned, 7, b"\1\2", "i", "r"),
        Subscription(["a"], generation=None),
    ):
        data = write_subscription(member)
        read = protocol.deserializeSubscription(java.wrap(data))
        assert bytes(protocol.serializeSubscription(read).array()) == data
        assert (list(read.topics()), read.generationId().orElse(-1)) == (sorted(member.topics), -1 if member.generation is None else 7)
        assert read_subscription(data, member.instance_id) == member._replace(topics=sorted(member.topics), owned=sorted(member.owned))
    data = write_assignment(owned)
    assert bytes(protocol.serializeAssignment(protocol.deserializeAssignment(java.wrap(data))).array()) == data
    assert read_assignment(data) == owned
