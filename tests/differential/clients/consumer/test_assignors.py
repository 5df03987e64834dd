"""kops's assignors compared with Kafka's: groups whose members come, go, change their topics and claim partitions of others."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kops.client.groups.assignors import Assignment, Racks, Subscription
from kops.client.groups.consumer_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from kops.client.groups.sticky import write_user_data
from kops.client.groups.strategies import make_assignors
from kops.protocol.messages import MetadataResponse
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators

NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
CLIENTS = "org.apache.kafka.clients.consumer."
TOPICS = ["orders", "clicks", "a", "b-2", "payments.eu", "Zz"]


class Java:
    """One of Kafka's assignors. It gets members and topics as the bytes of requests and responses."""

    def __init__(self, oracle: Oracle, name: str) -> None:
        self._java = JavaCoordinators(oracle)
        self._oracle = oracle
        self._assignor = oracle.java_class(CLIENTS + NAMES[name])()
        self._protocol = oracle.java_class(CLIENTS + "internals.ConsumerProtocol")
        self._group = oracle.java_class(CLIENTS + "ConsumerPartitionAssignor$GroupSubscription")

    def assign(self, topics: dict[str, Racks], members: dict[str, Subscription]) -> Assignment:
        found = self._oracle.jvm.java.util.HashMap()
        for name, member in members.items():
            made = self._protocol.deserializeSubscription(self._java.wrap(write_subscription(member)))
            if member.instance_id is not None:
                made.setGroupInstanceId(self._oracle.jvm.java.util.Optional.of(member.instance_id))
            found.put(name, made)
        text = str(self._assignor.assign(self._cluster(topics), self._group(found)).groupAssignment().toString())
        return {
            name: [TopicPartition(topic, int(index)) for topic, _, index in (one.rpartition("-") for one in keys.split(", ") if one)]
            for name, keys in re.findall(r"(?:^{|, )(consumer[^=]*)=Assignment\(partitions=\[(.*?)\]", text)
        }

    def _cluster(self, topics: dict[str, Racks]) -> Any:
        racks = sorted({rack for found in topics.values() for one in found for rack in one})
        brokers = [MetadataResponseBroker(ord(rack[-1]), "h", 9, rack) for rack in racks]
        brokers.append(MetadataResponseBroker(1, "h", 9))
        made = [
            MetadataResponseTopic(
                0,
                name,
                partitions=[
                    MetadataResponsePartition(0, index, replica_nodes=[ord(rack[-1]) for rack in sorted(one)] or [1])
                    for index, one in enumerate(found)
                ],
            )
            for name, found in topics.items()
        ]
        data = self._java.message(MetadataResponse(brokers=brokers, topics=made), 12)
        return self._java.make("common.requests.MetadataResponse", data, self._java.short(12)).buildCluster()


class Group:
    """A random group: what its members want and own, from one generation to the next."""

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

    def _data(self, name: str, owned: list[TopicPartition], *, is_sticky: bool) -> bytes | None:
        """Return a member's user data: of its assignor, of an old version of it, or garbage."""
        rng = self.rng
        if not is_sticky:
            return None if rng.random() < 0.5 else rng.choice([b"", b"\0\0\0\2", (self.generations[name] or 0).to_bytes(4, "big")])
        chosen, generation = rng.random(), self.generations[name]
        if generation is None or chosen < 0.1:
            return rng.choice([None, b""])
        data = write_user_data(owned, generation)
        if chosen < 0.2:
            return data[:-4]
        return data[: rng.randrange(len(data))] if chosen < 0.25 else data

    def change(self, *, is_sticky: bool = False) -> dict[str, Subscription]:
        """Return the members of the next round."""
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
            owned = list(self.owned[name])
            rng.shuffle(owned)
            data = self._data(name, owned, is_sticky=is_sticky)
            if is_sticky and rng.random() < 0.8:
                owned = []  # everything was revoked before
            found[name] = Subscription(topics, owned, self.generations[name], data, self.instances[name], self.racks_of[name])
        return found

    def take(self, assignment: Assignment) -> None:
        self.generation += 1
        for name, keys in assignment.items():
            if self.rng.random() < 0.9:  # the others missed the assignment
                self.owned[name], self.generations[name] = list(keys), self.generation


def live(oracle: Oracle, name: str, seed: int) -> None:
    """Compare some rounds of one group."""
    (ours,) = make_assignors([name])
    theirs = Java(oracle, name)
    group = Group(random.Random(seed))
    for round_number in range(4):
        members = {
            each: read_subscription(write_subscription(member), member.instance_id)
            for each, member in group.change(is_sticky=name == "sticky").items()
        }
        expected = theirs.assign(group.topics, members)
        found = ours.assign(group.topics, members)
        assert found == expected, f"{name}, seed {seed}, round {round_number}"
        group.take(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_more(oracle: Oracle, name: str, seed_count: int | None) -> None:
    """`--seeds N` runs more."""
    for seed in range(100, 100 + (seed_count or 250)):
        live(oracle, name, seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_kafkas(oracle: Oracle, name: str) -> None:
    for seed in range(16 if name.endswith("sticky") else 8):
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


def test_user_data_of_sticky(oracle: Oracle) -> None:
    """The bytes are the same as Kafka's, also for many topics."""
    kind = oracle.java_class(CLIENTS + "StickyAssignor")
    metadata = oracle.java_class(CLIENTS + "ConsumerGroupMetadata")("g", 5, "m", oracle.jvm.java.util.Optional.empty())
    for count in (0, 1, 9, 40):
        keys = [TopicPartition(f"topic-{index % 13}é", index) for index in range(count)]
        (ours,), theirs = make_assignors(["org.apache.kafka.clients.consumer.StickyAssignor"]), kind()
        assert ours.user_data() is theirs.subscriptionUserData(oracle.jvm.java.util.HashSet()) is None
        ours.on_assignment(keys, 5)
        made = oracle.jvm.java.util.ArrayList()
        for key in keys:
            made.add(oracle.jvm.org.apache.kafka.common.TopicPartition(key.topic, key.partition))
        theirs.onAssignment(oracle.java_class(CLIENTS + "ConsumerPartitionAssignor$Assignment")(made), metadata)
        assert ours.user_data() == bytes(theirs.subscriptionUserData(oracle.jvm.java.util.HashSet()).array())
