"""The partition assignors compared with Kafka's: random groups get the same target assignments in the same order."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.assignors import range_assignor, simple, uniform
from kops.coordinators.groups.assignors.java_maps import numbers_of_list, put_ordered, text_hash, texts_of_list, uuid_hash
from kops.coordinators.groups.assignors.spec import GroupSpec, MemberSpec, Partitions
from kops.errors import ApiError
from kops.protocol.messages.consumer_group_target_assignment_member_value import ConsumerGroupTargetAssignmentMemberValue, TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators

NUMBERS = random.Random(7)
TOPICS = {f"topic-{index}": (NUMBERS.randbytes(16), count) for index, count in enumerate((1, 2, 3, 5, 8, 13, 21, 40, 1, 3))}
GONE = ("gone-1", "gone-2")
ASSIGNORS: dict[str, tuple[ModuleType, str]] = {
    "range": (range_assignor, "RangeAssignor"),
    "uniform": (uniform, "UniformAssignor"),
    "simple": (simple, "SimpleAssignor"),
}
Assignments = dict[str, Partitions]


class Twins:
    """An assignor of ours, and Kafka's."""

    def __init__(self, java: JavaCoordinators, image: Any, name: str) -> None:
        self.java = java
        self.image = image
        self.ours, class_name = ASSIGNORS[name]
        self.theirs = java.make(f"coordinator.group.assignor.{class_name}")
        self.counts = dict(TOPICS.values())
        self.helpers = java.oracle.java_class("org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers")
        self.serde = java.make("coordinator.group.GroupCoordinatorRecordSerde")
        self.assignment = java.oracle.java_class("org.apache.kafka.coordinator.group.modern.Assignment")
        self.types = java.oracle.java_class("org.apache.kafka.coordinator.group.api.assignor.SubscriptionType")

    def assign(self, subscriptions: dict[str, list[str]], instances: dict[str, str], old: Assignments, allowed: Any) -> Assignments:
        """Assign on both sides and compare."""
        members = {}
        their_members = self.java.oracle.jvm.java.util.HashMap()
        for member_id, names in subscriptions.items():
            listed = texts_of_list(names)
            topic_ids = dict.fromkeys(TOPICS[name][0] for name in listed if name in TOPICS)
            partitions = old.get(member_id, {})
            members[member_id] = MemberSpec(None, instances.get(member_id), topic_ids, len(listed), partitions)
            their_members.put(member_id, self._their_member(names, instances.get(member_id), partitions))
        homogeneous = len({frozenset(names) for names in subscriptions.values()}) == 1
        owners: dict[bytes, dict[int, str]] = {}
        for member_id, partitions in old.items():
            if member_id in subscriptions:
                for topic_id, numbers in partitions.items():
                    owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member_id))
        flat = {(topic_id, number): member_id for topic_id, owner in owners.items() for number, member_id in owner.items()}
        spec = GroupSpec(put_ordered(members, text_hash), homogeneous, flat, allowed)
        theirs: Any = None
        try:
            theirs = self.theirs.assign(*self._their_spec(their_members, homogeneous, owners, allowed))
        except Py4JJavaError as error:
            assert error.java_exception.getClass().getSimpleName() == "NoSuchElementException"
            with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
                self.ours.assign(spec, lambda topic_id: self.counts.get(topic_id, -1))
            return {}
        ours = self.ours.assign(spec, lambda topic_id: self.counts.get(topic_id, -1))
        found: Assignments = {}
        results = theirs.members()
        assert set(results.keySet()) == set(ours)
        for member_id, partitions in ours.items():
            value = ConsumerGroupTargetAssignmentMemberValue(
                [TopicPartition(topic_id, list(numbers)) for topic_id, numbers in partitions.items()]
            )
            record = self.helpers.newConsumerGroupTargetAssignmentRecord("g", member_id, results.get(member_id).partitions())
            assert bytes(self.serde.serializeValue(record))[2:] == value.encode(0), member_id
            found[member_id] = put_ordered({topic_id: numbers_of_list(numbers) for topic_id, numbers in partitions.items()}, uuid_hash)
        return found

    def _their_member(self, names: list[str], instance_id: str | None, partitions: Partitions) -> Any:
        java = self.java
        utils = java.oracle.jvm.java.util
        value = ConsumerGroupTargetAssignmentMemberValue(
            [TopicPartition(topic_id, list(numbers)) for topic_id, numbers in partitions.items()]
        )
        their_value = java.make(
            "coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue", java.accessor(java.wrap(value.encode(0))), java.short(0)
        )
        topics = java.make("coordinator.group.modern.TopicIds", utils.HashSet(names), self.image)
        return java.make(
            "coordinator.group.modern.MemberSubscriptionAndAssignmentImpl",
            utils.Optional.empty(),
            utils.Optional.ofNullable(instance_id),
            topics,
            self.assignment.fromRecord(their_value),
        )

    def _their_spec(self, members: Any, homogeneous: bool, owners: dict[bytes, dict[int, str]], allowed: Any) -> tuple[Any, Any]:
        java = self.java
        utils = java.oracle.jvm.java.util
        their_owners = utils.HashMap()
        for topic_id, owner in owners.items():
            their_owners.put(java.uuid(topic_id), owner)
        their_allowed = utils.Optional.empty()
        if allowed is not None:
            filled = utils.HashMap()
            for topic_id, numbers in allowed.items():
                filled.put(java.uuid(topic_id), set(numbers))
            their_allowed = utils.Optional.of(filled)
        kind = self.types.HOMOGENEOUS if homogeneous else self.types.HETEROGENEOUS
        spec = java.make(
            "coordinator.group.modern.GroupSpecImpl",
            java.oracle.java_class("java.util.Collections").unmodifiableMap(members),
            kind,
            their_owners,
            their_allowed,
        )
        return spec, java.make("coordinator.group.modern.SubscribedTopicDescriberImpl", self.image)


def _life(twins: Twins, numbers: random.Random, *, shared: bool) -> int:
    """Run a group that grows and shrinks. Return how many partitions moved between members."""
    names = [*TOPICS, *GONE]
    everyone = numbers.sample(names, numbers.randint(0, 6))
    subscriptions: dict[str, list[str]] = {}
    instances: dict[str, str] = {}
    old: Assignments = {}
    moved = 0
    for _ in range(numbers.randint(2, 6)):
        if numbers.random() < 0.3:
            everyone = numbers.sample(names, numbers.randint(0, 6))
        for _ in range(numbers.choice((1, 1, 2, 9))):
            member_id = f"{numbers.getrandbits(64):x}"
            subscriptions[member_id] = everyone
            if numbers.random() < 0.2:
                instances[member_id] = f"i{numbers.getrandbits(20)}"
        if subscriptions and numbers.random() < 0.4:
            for member_id in numbers.sample(sorted(subscriptions), int(len(subscriptions) * numbers.choice((0.3, 0.3, 0.8)))):
                del subscriptions[member_id]
        keeps_apart = numbers.random() < 0.5
        for member_id in subscriptions:
            subscriptions[member_id] = numbers.sample(names, numbers.randint(0, 5)) if keeps_apart else everyone
        allowed = None
        if shared and numbers.random() < 0.3:
            allowed = {topic_id: {n for n in range(count) if numbers.random() < 0.7} for topic_id, count in TOPICS.values()}
        new = twins.assign(subscriptions, instances, old, allowed)
        moved += sum(old.get(member_id, partitions) != partitions for member_id, partitions in new.items())
        old = new
    return moved


@pytest.mark.parametrize("name", ASSIGNORS)
def test_groups(oracle: Oracle, name: str) -> None:
    assert _lives(oracle, name, range(3)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNORS)
def test_many_groups(oracle: Oracle, name: str, seed_count: int | None) -> None:
    assert _lives(oracle, name, range(100, 100 + (seed_count or 8))) > 20


def _lives(oracle: Oracle, name: str, seeds: range) -> int:
    java = JavaCoordinators(oracle)
    twins = Twins(java, java.image(TOPICS), name)
    return sum(_life(twins, random.Random(seed), shared=name == "simple") for seed in seeds)
