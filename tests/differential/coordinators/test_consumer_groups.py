"""Consumer groups compared with Kafka's GroupCoordinatorShard: random heartbeats, classic members, metadata and timers give the same
answers and records.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.records import consumer as records
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.errors import by_code, by_exception
from kops.protocol.messages import consumer_group_current_member_assignment_value as current
from kops.protocol.messages import delete_groups_response, list_groups_response
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kops.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kops.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kops.protocol.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from kops.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kops.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.consumer_group_twins import ConsumerTwins
from tests.support.kafka.twins.group_twins import GroupTwins
from tests.support.kafka.twins.java_coordinators import JavaCoordinators

GROUPS = ("g1", "g2")
INSTANCES = ("i1", "i2")
REGEXES = ("orders|stock", "o.*", ".*", "[a-z]+-[0-9]", "", "(?i)STOCK", "nothing", "a{2", "(", "[b-a]")
NAMES = ("orders", "stock", "big", "new-1", "new-2", "gone")
KINDS: dict[str, float] = {
    "join": 14,
    "stay": 40,
    "round": 8,
    "leave": 5,
    "classic_join": 7,
    "classic_sync": 5,
    "classic_heartbeat": 4,
    "classic_leave": 2,
    "classic_round": 4,
    "commit_offset": 6,
    "fetch": 3,
    "delete_groups": 0.7,
    "list": 1,
    "change_topics": 3,
    "run_tasks": 6,
    "advance": 12,
    "commit": 10,
    "fail_write": 1,
    "describe": 3,
    "reload": 0.5,
}


@dataclass
class Member:
    """What a client knows about its membership."""

    member_id: str
    instance_id: str | None
    epoch: int = 0
    is_classic: bool = False
    owned: dict[bytes, list[int]] = field(default_factory=dict)
    protocol: str | None = None

    def topics(self) -> list[TopicPartitions]:
        """Return the partitions that the member owns."""
        return [TopicPartitions(topic_id, list(partitions)) for topic_id, partitions in self.owned.items()]


class Life:
    """Clients of one shard. In a calm life most heartbeats tell nothing new, and there are no regular expressions."""

    def __init__(self, java: JavaCoordinators, seed: int, *, is_calm: bool = False) -> None:
        self.java = java
        self.is_calm = is_calm
        self.rng = rng = random.Random(seed)
        self.topics = {"orders": (rng.randbytes(16), 4), "stock": (rng.randbytes(16), 2), "big": (rng.randbytes(16), rng.randint(10, 40))}
        settings = {
            "group.max.size": rng.choice((2, 100)),
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.max.size": rng.choice((3, 100)),
            "group.consumer.assignment.interval.ms": rng.choice((0, 1000)),
            "group.consumer.migration.policy": rng.choice(("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")),
            "group.consumer.assignors": rng.choice((["uniform", "range"], ["range", "uniform"])),
        }
        self.members: dict[str, list[Member]] = {group: [] for group in GROUPS}
        log = [(record, -1, -1, False) for record in self._old_records()] if rng.random() < 0.4 else []
        self.twins = ConsumerTwins(java, settings, self.topics, log)
        self.seen: Counter[str] = Counter()
        self.count = 0

    def _old_records(self) -> list[CoordinatorRecord]:
        """Return the records of a group that an older or a newer broker has left."""
        topic_id, count = self.topics["orders"]
        partitions = list(range(count))
        state = self.rng.choice((0, 1, 2, 5))
        owned = [current.TopicPartitions(topic_id, partitions, None)]
        metadata = ConsumerGroupMemberMetadataValue(None, None, "c", "/127.0.0.1", ["orders"], "", 20_000, None, None)
        member = Member("old", None, 3)
        member.owned = {topic_id: partitions}
        self.members["g1"].append(member)
        return [
            records.member_record("g1", "old", metadata),
            CoordinatorRecord(ConsumerGroupPartitionMetadataKey("g1"), ConsumerGroupPartitionMetadataValue([]), 0),
            records.epoch_record("g1", 3, 0),
            records.target_assignment_record("g1", "old", {topic_id: partitions[1:]}),
            records.target_assignment_epoch_record("g1", 3, 0),
            records.current_assignment_record("g1", "old", current.ConsumerGroupCurrentMemberAssignmentValue(3, 2, state, owned, [])),
        ]

    def live(self, step_count: int) -> Counter[str]:
        """Run this many steps, and return what happened."""
        kinds, weights = list(KINDS), list(KINDS.values())
        for _ in range(step_count):
            getattr(self, f"_{self.rng.choices(kinds, weights)[0]}")()
            self._learn()
        self.twins.commit()
        self._describe()
        return self.seen

    def _some(self, *, classic: bool) -> tuple[str, Member | None]:
        group = self.rng.choices(GROUPS, (3, 1))[0]
        known = [member for member in self.members[group] if member.is_classic == classic]
        return group, self.rng.choice(known) if known else None

    def _new_id(self) -> str:
        self.count += 1
        return f"{self.rng.choice('abc')}{self.count}-{self.rng.getrandbits(32)}"

    def _names(self) -> list[str]:
        return self.rng.sample(NAMES, self.rng.choice((0, 1, 1, 2, 2, 3)))

    # Heartbeats

    def _join(self) -> None:
        rng = self.rng
        group = rng.choices(GROUPS, (3, 1))[0]
        instance = rng.choice(INSTANCES) if rng.random() < 0.3 else None
        version = rng.choice((0, 1, 1))
        member = Member(self._new_id(), instance)
        if version == 0 and instance is None and rng.random() < 0.4:
            member.member_id = ""
        elif self.members[group] and rng.random() < 0.2:
            member = rng.choice(self.members[group])
        request = ConsumerGroupHeartbeatRequest(
            group, member.member_id, 0, member.instance_id, rng.choice((None, "r1")), rng.choice((5000, 30_000)), topic_partitions=[]
        )
        if not self.is_calm and rng.random() < 0.3 and member.member_id:
            request.subscribed_topic_regex = rng.choice(REGEXES)
        if request.subscribed_topic_regex is None or rng.random() < 0.3:
            request.subscribed_topic_names = self._names()
        request.server_assignor = rng.choice((None, None, "range", "uniform"))
        self._send(group, member, request, version)

    def _stay(self) -> None:
        group, member = self._some(classic=False)
        if member is None:
            return self._join()
        rng = self.rng
        if self.is_calm and member.epoch > 0 and rng.random() < 0.8:
            return self._send(group, member, ConsumerGroupHeartbeatRequest(group, member.member_id, member.epoch), 1)
        request = ConsumerGroupHeartbeatRequest(group, member.member_id, member.epoch, member.instance_id)
        if rng.random() < 0.06:
            request.member_epoch += rng.choice((-1, -1, 1))
        if request.member_epoch < 0:
            return None
        if rng.random() < 0.05:
            request.instance_id = rng.choice((None, *INSTANCES))
        if rng.random() < 0.7:
            request.topic_partitions = member.topics()
            if rng.random() < 0.1:
                request.topic_partitions = request.topic_partitions[1:]
        if rng.random() < 0.15:
            request.subscribed_topic_names = self._names()
        if not self.is_calm and rng.random() < 0.1:
            request.subscribed_topic_regex = rng.choice(REGEXES)
        if rng.random() < 0.1:
            request.rebalance_timeout_ms = 20_000
        if rng.random() < 0.05:
            request.server_assignor = rng.choice(("range", "uniform"))
        return self._send(group, member, request, 1)

    def _round(self) -> None:
        """Let all members of a group report what they own."""
        group = self.rng.choices(GROUPS, (3, 1))[0]
        for member in list(self.members[group]):
            if member.is_classic:
                self._classic_join_again(group, member)
            else:
                request = ConsumerGroupHeartbeatRequest(group, member.member_id, member.epoch, member.instance_id)
                request.topic_partitions = member.topics()
                self._send(group, member, request, 1)
            self._learn()

    def _send(self, group: str, member: Member, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        answer = self.twins.ask(
            "consumer_group_heartbeat", request, version, client_id="c" if self.is_calm else self.rng.choice(("c", "d"))
        )
        self.seen[f"heartbeat {answer.error}"] += 1
        self.seen["kept"] = self.twins.kept_count
        known = self.members[group]
        if answer.error is not None:
            if answer.error in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND") and member in known:
                known.remove(member)
            return
        response = answer.response
        member.member_id, member.epoch, member.is_classic = response.member_id, response.member_epoch, False
        if request.member_epoch == 0:
            member.owned = {}
            if member not in known:
                known[:] = [other for other in known if member.instance_id is None or other.instance_id != member.instance_id]
                known.append(member)
        if response.assignment is not None:
            member.owned = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
            self.seen["assignment"] += 1
        for record in answer.records:
            self.seen[type(record.key).__name__ + ("" if record.value is None else " value")] += 1

    def _leave(self) -> None:
        group, member = self._some(classic=False)
        if member is None:
            return
        epoch = self.rng.choice((-1, -2)) if member.instance_id is not None else -1
        request = ConsumerGroupHeartbeatRequest(group, member.member_id, epoch, member.instance_id)
        answer = self.twins.ask("consumer_group_heartbeat", request, 1)
        self.seen[f"leave {answer.error}"] += 1
        if answer.error is None:
            self.members[group].remove(member)

    # The classic protocol

    def _metadata(self, member: Member | None) -> bytes:
        rng = self.rng
        if rng.random() < 0.01:
            return b"\0"
        subscription = ConsumerProtocolSubscription(topics=self._names() or ["orders"], rack_id=rng.choice((None, "r1")))
        by_id = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        if member is not None:
            subscription.owned_partitions = [
                TopicPartition(by_id[topic_id], partitions) for topic_id, partitions in member.owned.items() if topic_id in by_id
            ]
        return b"\0\3" + subscription.encode(3)

    def _classic_join(self) -> None:
        rng = self.rng
        group = rng.choices(GROUPS, (3, 1))[0]
        known = self.members[group]
        member = rng.choice(known) if known and rng.random() < 0.5 else Member("", rng.choice((None, None, *INSTANCES)), is_classic=True)
        if rng.random() < 0.3:
            member = Member("", member.instance_id, is_classic=True)
        self._classic_join_again(group, member)

    def _classic_join_again(self, group: str, member: Member) -> None:
        rng = self.rng
        protocols = [JoinGroupRequestProtocol(name, self._metadata(member)) for name in rng.choice((("range",), ("range", "sticky")))]
        request = JoinGroupRequest(group, 10_000, 20_000, member.member_id, member.instance_id, "consumer", protocols)
        if rng.random() < 0.03:
            request.protocol_type = "connect"
        answer = self.twins.ask("classic_group_join", request, rng.choice((3, 9, 9)), holds_back=True)
        self.seen[f"classic join {answer.error}"] += 1
        if answer.error is not None:
            self.twins.waiting.pop()

    def _classic_round(self) -> None:
        """Let the members with the classic protocol join and sync."""
        group = self.rng.choices(GROUPS, (3, 1))[0]
        for member in [member for member in self.members[group] if member.is_classic]:
            self._classic_join_again(group, member)
            self.twins.commit()
            self._learn()
            self._sync(group, member)
            self.twins.commit()
            self._learn()

    def _learn(self) -> None:
        """Update the clients' knowledge from the responses."""
        for request, response in self.twins.answered:
            if isinstance(request, JoinGroupRequest) and isinstance(response, JoinGroupResponse):
                self.seen[f"joined {by_code(response.error_code).name}"] += 1
                known = self.members[request.group_id]
                if response.error_code and response.error_code != 79:  # MEMBER_ID_REQUIRED
                    continue
                member = next((one for one in known if one.member_id == response.member_id), None)
                if member is None:
                    instance = request.group_instance_id
                    known[:] = [other for other in known if instance is None or other.instance_id != instance]
                    member = Member(response.member_id, instance)
                    known.append(member)
                member.is_classic = True
                if not response.error_code:
                    member.epoch, member.protocol = response.generation_id, response.protocol_name
            elif isinstance(request, SyncGroupRequest) and len(response.assignment) > 2:
                self.seen["synced"] += 1
                version = int.from_bytes(response.assignment[:2], "big")
                assignment = ConsumerProtocolAssignment.decode(response.assignment[2:], version)
                for member in self.members[request.group_id]:
                    if member.member_id == request.member_id:
                        given = assignment.assigned_partitions
                        member.owned = {self.topics[topic.topic][0]: topic.partitions for topic in given if topic.topic in self.topics}
        self.twins.answered.clear()

    def _classic_sync(self) -> None:
        group, member = self._some(classic=True)
        if member is not None:
            self._sync(group, member)

    def _sync(self, group: str, member: Member) -> None:
        rng = self.rng
        request = SyncGroupRequest(group, member.epoch, member.member_id, member.instance_id, "consumer", member.protocol)
        if rng.random() < 0.05:
            request.generation_id += 1
        if rng.random() < 0.05:
            request.protocol_name = "odd"
        if rng.random() < 0.02:
            request.protocol_type = "connect"
        request.assignments = [SyncGroupRequestAssignment(other.member_id, b"\0\1\0\0\0\0\0\0\0\0") for other in self.members[group]]
        answer = self.twins.ask("classic_group_sync", request, 5, holds_back=True)
        self.seen[f"sync {answer.error}"] += 1
        if answer.error is not None:
            self.twins.waiting.pop()

    def _classic_heartbeat(self) -> None:
        group, member = self._some(classic=self.rng.random() < 0.9)
        if member is not None:
            request = HeartbeatRequest(group, member.epoch, member.member_id, member.instance_id)
            answer = self.twins.ask("classic_group_heartbeat", request, 4)
            error = answer.error if answer.response is None else by_code(answer.response.error_code).name
            self.seen[f"classic heartbeat {error}"] += 1
            self.seen["kept"] = self.twins.kept_count

    def _classic_leave(self) -> None:
        group, member = self._some(classic=self.rng.random() < 0.7)
        if member is not None:
            identities = [MemberIdentity(self.rng.choice((member.member_id, member.member_id, "x", "")), member.instance_id)]
            answer = self.twins.ask("classic_group_leave", LeaveGroupRequest(group, members=identities), 5)
            self.seen[f"classic leave {answer.error}"] += 1

    # Offsets, and all kinds of groups

    def _commit_offset(self) -> None:
        group, member = self._some(classic=self.rng.random() < 0.3)
        member = Member("", None, -1) if member is None or self.rng.random() < 0.1 else member
        rng, topics = self.rng, []
        for name in rng.sample(("orders", "stock", "gone"), 2):
            partitions = [OffsetCommitRequestPartition(index, rng.randrange(100), -1, "") for index in rng.sample(range(4), 2)]
            topics.append(OffsetCommitRequestTopic(name, self.topics.get(name, (bytes(16), 0))[0], partitions))
        epoch = member.epoch + rng.choice((0, 0, 0, -1, -2, 1))
        request = OffsetCommitRequest(group, epoch, member.member_id, member.instance_id, topics=topics)

        def adjust(real: Any) -> None:
            for own, topic in zip(topics, real.topics(), strict=True):
                topic.setTopicId(self.java.uuid(own.topic_id))

        answer = self.twins.ask("commit_offset", request, rng.choice((8, 9, 9, 10)), written_as=9, adjust=adjust)
        self.seen[f"commit {answer.error}"] += 1
        if answer.response is not None:
            self.seen.update(f"commit {by_code(part.error_code).name}" for topic in answer.response.topics for part in topic.partitions)

    def _fetch(self) -> None:
        group, member = self._some(classic=self.rng.random() < 0.3)
        member = Member("x", None, 1) if member is None or self.rng.random() < 0.1 else member
        asked = OffsetFetchRequestGroup(group, member.member_id, member.epoch + self.rng.choice((0, 0, 1)))
        stable = self.rng.random() < 0.5
        real = self.java.message(OffsetFetchRequest(groups=[asked]), 9).groups().get(0)
        at = self.java.long(2**63 - 1 if stable else self.twins.committed_offset)
        theirs = None
        try:
            theirs = self.twins.theirs.shard.fetchOffsets(real, at)
        except Py4JJavaError as error:
            with pytest.raises(ApiError) as raised:
                self.twins.ours.fetch_offsets(asked, require_stable=stable)
            thrown = error.java_exception
            assert raised.value.message == thrown.getMessage()
            assert raised.value.name == by_exception(thrown.getClass().getSimpleName()).name
            self.seen[f"fetch {raised.value.name}"] += 1
            return
        own = self.twins.ours.fetch_offsets(asked, require_stable=stable)
        assert own.error_code == theirs.errorCode() and len(own.topics) == theirs.topics().size()
        self.seen[f"fetch {own.error_code}"] += 1

    def _delete_groups(self) -> None:
        ids = [self.rng.choice(GROUPS)]
        twins, context = self.twins, self.twins.theirs.context("DELETE_GROUPS", 2, "c")

        def as_bytes(results: Any) -> bytes:
            if isinstance(results, list):
                self.seen.update(f"delete {by_code(result.error_code).name}" for result in results)
                return delete_groups_response.DeleteGroupsResponse(results=results).encode(2)
            return self.java.message_bytes(self.java.make("common.message.DeleteGroupsResponseData").setResults(results), 2)

        twins.operate(
            lambda: twins.theirs.shard.deleteGroups(context, ids),
            lambda: twins.ours.delete_groups(RequestContext(2, "c", "/127.0.0.1", 42), ids),
            response_bytes=as_bytes,
        )

    def _list(self) -> None:
        states, types = self.rng.choice(([], ["Stable"], ["reconciling", "Assigning"])), self.rng.choice(([], ["consumer"]))
        found = self.twins.theirs.shard.listGroups(states, types, self.java.long(self.twins.committed_offset))
        data = self.java.make("common.message.ListGroupsResponseData").setGroups(found)
        own = list_groups_response.ListGroupsResponse(groups=self.twins.ours.list_groups(states, types))
        GroupTwins.compare_messages(self.twins, own, data)

    # Topics

    def _change_topics(self) -> None:
        rng, topics = self.rng, dict(self.topics)
        name = rng.choice(NAMES[:-1])
        if name not in topics:
            topics[name] = (rng.randbytes(16), rng.randint(1, 5))
        elif rng.random() < 0.4:
            del topics[name]
            if rng.random() < 0.3:
                topics[name] = (rng.randbytes(16), rng.randint(1, 5))
        else:
            topics[name] = (topics[name][0], topics[name][1] + rng.randint(1, 3))
        self.twins.change_topics(topics)
        self.topics = topics

    def _run_tasks(self) -> None:
        self.seen["tasks"] += self.twins.run_tasks()

    def _advance(self) -> None:
        self.twins.advance(self.rng.choice((1, 500, 1000, 3000, 6000, 12_000, 50_000)))

    def _commit(self) -> None:
        self.twins.commit()

    def _fail_write(self) -> None:
        self.twins.fail_write = "NOT_ENOUGH_REPLICAS"

    def _describe(self) -> None:
        self.twins.describe([*GROUPS, "absent"])

    def _reload(self) -> None:
        self.twins.fail_write = None
        self.twins = self.twins.reloaded()
        self.seen["reload"] += 1


def _lives(oracle: Oracle, seeds: range, step_count: int, *, is_calm: bool = False) -> Counter[str]:
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += Life(java, seed, is_calm=is_calm).live(step_count)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return seen


def test_consumer_groups(oracle: Oracle) -> None:
    seen = _lives(oracle, range(1), 120)
    assert seen["assignment"] > 10, seen


def test_heartbeats_that_change_nothing(oracle: Oracle) -> None:
    """The short way to answer them gives the same answers, records and timers."""
    seen = _lives(oracle, range(2), 120, is_calm=True)
    assert seen["kept"] > 5, seen


@pytest.mark.slow
def test_many_heartbeats_that_change_nothing(oracle: Oracle, seed_count: int | None) -> None:
    seen = _lives(oracle, range(100, 100 + (seed_count or 4)), 300, is_calm=True)
    assert seen["kept"] > 10, seen


@pytest.mark.slow
def test_many_consumer_groups(oracle: Oracle, seed_count: int | None) -> None:
    seen = _lives(oracle, range(100, 100 + (seed_count or 8)), 200)
    wanted = ("heartbeat FENCED_MEMBER_EPOCH", "heartbeat UNRELEASED_INSTANCE_ID", "heartbeat INVALID_REGULAR_EXPRESSION", "joined NONE")
    records = ("GroupMetadataKey", "ConsumerGroupRegularExpressionKey", "ConsumerGroupTargetAssignmentMemberKey value")
    assert all(seen[name] for name in (*wanted, *records)), seen
