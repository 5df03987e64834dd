"""Streams groups compared with Kafka's GroupCoordinatorShard: random heartbeats, topologies, topics and timers give the same answers and
records.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.records import streams as records
from kops.coordinators.groups.streams.result import HeartbeatResult
from kops.coordinators.groups.streams.topics.topology import topology_value
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.errors import by_exception
from kops.protocol.messages import delete_groups_response, offset_fetch_response
from kops.protocol.messages import streams_group_current_member_assignment_value as current
from kops.protocol.messages import streams_group_heartbeat_request as asking
from kops.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kops.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kops.protocol.messages.streams_group_target_assignment_member_value import StreamsGroupTargetAssignmentMemberValue, TaskIds
from kops.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.streams_group_twins import StreamsTwins
from tests.support.parts.groups.streams_topologies import TOPOLOGIES, topology

GROUPS = ("g", "g", "g", "h")
SOURCES = ("orders", "stock", "big")
GOOD = ("stateful", "counting", "wide", "joined", "external", "many", "plain")
"""Topologies that mostly work."""
Tasks = dict[str, dict[str, list[int]]]
KINDS: dict[str, float] = {
    "join": 16,
    "stay": 50,
    "leave": 3,
    "classic_join": 1.5,
    "commit_offset": 7,
    "commit_transactional_offset": 1.5,
    "fetch": 3,
    "delete_groups": 0.7,
    "list": 1,
    "make_topics": 7,
    "change_topics": 2,
    "advance": 13,
    "commit": 9,
    "fail_write": 1,
    "expire": 0.3,
    "describe": 4,
    "reload": 0.9,
}
BUSY_KINDS: dict[str, float] = {
    "join": 12,
    "stay": 80,
    "leave": 8,
    "make_topics": 20,
    "commit": 10,
    "fail_write": 1,
    "pass": 5,
    "describe": 1,
}


@dataclass
class Member:
    """What a client knows about its membership."""

    member_id: str
    process_id: str
    epoch: int = 0
    topology: str = "plain"
    endpoint_epoch: int = 0
    owned: Tasks = field(default_factory=lambda: {"active": {}, "standby": {}})

    def tasks(self, kind: str) -> list[asking.TaskIds]:
        """Return the tasks that the member owns."""
        return [asking.TaskIds(subtopology_id, list(numbers)) for subtopology_id, numbers in self.owned[kind].items()]


class Life:
    """Members of one shard."""

    def __init__(self, java: JavaCoordinators, seed: int) -> None:
        self.java = java
        self.rng = rng = random.Random(seed)
        self.topics: Mapping[str, tuple[bytes, int]] = {
            "orders": (rng.randbytes(16), rng.randrange(1, 5)),
            "stock": (rng.randbytes(16), rng.randrange(1, 5)),
            "big": (rng.randbytes(16), rng.randrange(10, 30)),
        }
        self.is_busy = seed % 2 == 0
        """Whether members come and go all the time, without delays, and nothing else goes wrong."""
        settings = {
            "group.initial.rebalance.delay.ms": 0,
            "group.streams.max.size": 100 if self.is_busy else rng.choice((3, 100, 100)),
            "group.streams.initial.rebalance.delay.ms": 0 if self.is_busy else rng.choice((0, 0, 3000)),
            "group.streams.assignment.interval.ms": 0 if self.is_busy else rng.choice((0, 1000)),
            "group.streams.num.standby.replicas": 1 if self.is_busy else rng.choice((0, 1, 2)),
            "offsets.retention.minutes": rng.choice((1, 10_080)),
        }
        self.names = [rng.choice(GOOD)] * 3 + ([rng.choice(list(TOPOLOGIES))] if rng.random() < 0.5 and not self.is_busy else [])
        self.members: dict[str, list[Member]] = {"g": [], "h": []}
        log = [(record, -1, -1, False) for record in self._old_records()] if rng.random() < 0.4 else []
        self.twins = StreamsTwins(java, settings, self.topics, log)
        self.wanted: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.count = 0

    def _old_records(self) -> list[CoordinatorRecord]:
        """Return the records of a group that an older or a newer broker has left: without epochs of tasks, maybe in an unknown state."""
        rng = self.rng
        state = rng.choice((1, 2, 3, 9))
        tasks, more = current.TaskIds("0", [0], None), current.TaskIds("0", [1, 2], [1])
        pending = [current.TaskIds("0", [3], [2])] if state == 2 else []
        metadata = StreamsGroupMemberMetadataValue(None, "r", "c", "/127.0.0.1", 20_000, 0, "p1", None, [])
        member = Member("old", "p1", 3, "plain")
        member.owned["active"] = {"0": [0]}
        self.members["g"].append(member)
        target = StreamsGroupTargetAssignmentMemberValue([TaskIds("0", [0, 1])], [], [])
        has = current.StreamsGroupCurrentMemberAssignmentValue(3, 2, state, [rng.choice((tasks, more))], [], [], pending, [], [])
        about = [
            records.member_record("g", "old", metadata),
            records.topology_record("g", topology_value(topology("plain"))),
            records.metadata_record("g", 3, 0, 0, {}),
            records.target_assignment_record("g", "old", target),
            records.target_assignment_epoch_record("g", 3, 0),
            records.current_assignment_record("g", "old", has),
        ]
        rng.shuffle(about)
        return about

    def live(self, step_count: int) -> Counter[str]:
        """Run this many steps, and return what happened."""
        table = BUSY_KINDS if self.is_busy else KINDS
        kinds, weights = list(table), list(table.values())
        for _ in range(step_count):
            getattr(self, f"_{self.rng.choices(kinds, weights)[0]}")()
        self.twins.commit()
        self._describe()
        return self.seen

    # Members

    def _join(self) -> None:
        rng, group = self.rng, "g" if self.is_busy else self.rng.choice(GROUPS)
        known = self.members[group]
        if known and (rng.random() < 0.1 if self.is_busy and len(known) < 6 else rng.random() < 0.3):
            member = rng.choice(known)
        else:
            self.count += 1
            member = Member(f"m{self.count}-{rng.getrandbits(24)}", rng.choice(("p1", "p2", "p3")))
        name = known[0].topology if known and rng.random() < 0.9 else rng.choice(self.names)
        request = asking.StreamsGroupHeartbeatRequest(
            group,
            member.member_id,
            0,
            rng.choice((0, 0, 1)),
            rack_id=rng.choice((None, "r")),
            rebalance_timeout_ms=rng.choice((10_000, 50_000)),
            topology=topology(name, epoch=rng.choice((0, 0, 0, 1)) if rng.random() < 0.2 else 0),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=member.process_id,
            user_endpoint=asking.Endpoint("host", 4000 + self.count) if rng.random() < 0.4 else None,
            client_tags=[asking.KeyValue(key, "v") for key in rng.choices(((), ("zone", "rack"), ("zone", "zone")), (10, 10, 1))[0]],
            shutdown_application=rng.random() < 0.02,
        )
        if rng.random() < 0.02:
            request.topology = None
        answer = self.twins.ask("streams_group_heartbeat", request, 0)
        self._note("join", answer)
        if answer.error is None:
            member.topology = name
            if member not in known:
                known.append(member)
            self._learn(member, answer.response)

    def _stay(self) -> None:
        rng, group = self.rng, "g" if self.is_busy else self.rng.choice(GROUPS)
        known = self.members[group]
        member = rng.choice(known) if known and rng.random() < 0.97 else Member("stranger", "p1", 3)
        epoch = member.epoch
        if rng.random() < 0.08:
            epoch = max(1, epoch + rng.choice((-2, -1, 1)))
        request = asking.StreamsGroupHeartbeatRequest(group, member.member_id, max(epoch, 1), member.endpoint_epoch)
        if rng.random() < 0.75:
            request.active_tasks, request.standby_tasks = member.tasks("active"), member.tasks("standby")
            request.warmup_tasks = []
            if rng.random() < 0.05 and request.active_tasks:
                request.active_tasks.append(rng.choice((asking.TaskIds("0", [99]), asking.TaskIds("none", [0]), asking.TaskIds("1", [0]))))
        if rng.random() < 0.05:
            request.client_tags = [asking.KeyValue("zone", rng.choice("ab"))]
        if rng.random() < 0.04:
            request.user_endpoint = asking.Endpoint("other", rng.randrange(65536))
        if rng.random() < 0.02:
            request.process_id = rng.choice(("p1", "p2"))
        if rng.random() < 0.03:
            request.rebalance_timeout_ms = 5000
        request.shutdown_application = rng.random() < 0.01
        answer = self.twins.ask("streams_group_heartbeat", request, 0)
        self._note("stay", answer)
        for record in answer.records:
            if isinstance(record.value, current.StreamsGroupCurrentMemberAssignmentValue):
                self.seen[f"state {record.value.state}"] += 1
                self.seen["standby"] += bool(record.value.standby_tasks)
        if answer.error is None:
            self._learn(member, answer.response)
        elif answer.error in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND") and member in known and rng.random() < 0.7:
            known.remove(member)

    def _leave(self) -> None:
        rng, group = self.rng, self.rng.choice(GROUPS)
        known = self.members[group]
        leaving = [*known] if rng.random() < 0.25 and not self.is_busy else rng.sample(known, min(1, len(known)))
        for member in leaving:
            request = asking.StreamsGroupHeartbeatRequest(group, member.member_id, -1, shutdown_application=rng.random() < 0.1)
            if rng.random() < 0.05:
                request.instance_id = "i"
            answer = self.twins.ask("streams_group_heartbeat", request, 0)
            self._note("leave", answer)
            if answer.error is None:
                known.remove(member)

    def _classic_join(self) -> None:
        group = self.rng.choice(GROUPS)
        protocols = [JoinGroupRequestProtocol("range", b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff")]
        request = JoinGroupRequest(group, 10_000, 20_000, "", None, "consumer", protocols, None)
        self._note("classic_join", self.twins.ask("classic_group_join", request, 3, holds_back=True))

    def _learn(self, member: Member, result: HeartbeatResult) -> None:
        """Let a member accept most of what it is given."""
        response = result.response
        member.epoch = response.member_epoch
        if self.rng.random() < 0.9:
            member.endpoint_epoch = response.endpoint_information_epoch
        for kind in ("active", "standby"):
            lists = getattr(response, f"{kind}_tasks")
            if lists is not None and self.rng.random() < 0.9:
                member.owned[kind] = {each.subtopology_id: list(each.partitions) for each in lists}
        self.seen.update(f"status {status.status_code}" for status in response.status or ())
        if response.partitions_by_user_endpoint:
            self.seen["endpoints"] += 1
        for topic in result.topics_to_create.values():
            self.wanted[topic.name] = topic.num_partitions

    # Offsets

    def _commit_offset(self) -> None:
        rng, group = self.rng, self.rng.choice(GROUPS)
        known = self.members[group]
        member = rng.choice(known) if known and rng.random() < 0.85 else Member("", "p", -1)
        topics = [
            OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(rng.randrange(5), rng.randrange(100))])
            for name in rng.sample(["orders", "stock", "app-count-repartition"], 2)
        ]
        epoch = member.epoch + rng.choice((0, 0, -1, -2, 1))
        request = OffsetCommitRequest(group, epoch, member.member_id, topics=topics)
        version = rng.choice((8, 9, 9, 9))
        self._note("commit_offset", self.twins.ask("commit_offset", request, version, written_as=9))

    def _commit_transactional_offset(self) -> None:
        rng, group = self.rng, self.rng.choice(GROUPS)
        known = self.members[group]
        member = rng.choice(known) if known and rng.random() < 0.7 else Member("", "p", -1)
        topics = [TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(0, rng.randrange(100))])]
        request = TxnOffsetCommitRequest("t", group, 7, 0, member.epoch - rng.choice((0, 0, 1)), member.member_id, None, topics)
        self._note("commit_transactional", self.twins.ask("commit_transactional_offset", request, 5, producer=(7, 0)))
        if rng.random() < 0.7:
            self.twins.end_transaction(7, 0, is_commit=rng.random() < 0.5)

    def _fetch(self) -> None:
        rng, group = self.rng, self.rng.choice(GROUPS)
        known = self.members[group]
        member_id: str | None = None
        epoch = -1
        if known and rng.random() < 0.7:
            member = rng.choice(known)
            member_id, epoch = member.member_id, member.epoch - rng.choice((0, 0, 1))
        asked = OffsetFetchRequestGroup(group, member_id, epoch, None)
        real = self.java.message(OffsetFetchRequest(groups=[asked]), 9).groups().get(0)
        require_stable = rng.random() < 0.5
        at = self.java.long(2**63 - 1 if require_stable else self.twins.committed_offset)
        try:
            found = self.twins.theirs.shard.fetchOffsets(real, at)
        except Py4JJavaError as caught:
            with pytest.raises(ApiError) as raised:
                self.twins.ours.fetch_offsets(asked, require_stable=require_stable)
            thrown = caught.java_exception
            expected = by_exception(thrown.getClass().getSimpleName()).name, thrown.getMessage()
            assert (raised.value.name, raised.value.message) == expected
            self.seen[f"fetch {raised.value.name}"] += 1
            return
        data = self.java.make("common.message.OffsetFetchResponseData").setGroups([found])
        decoded = offset_fetch_response.OffsetFetchResponse.decode(self.java.message_bytes(data, 9), 9).groups[0]
        own = self.twins.ours.fetch_offsets(asked, require_stable=require_stable)
        for answer in (own, decoded):
            answer.topics.sort(key=lambda topic: topic.name)
            for topic in answer.topics:
                topic.partitions.sort(key=lambda partition: partition.partition_index)
                topic.topic_id = bytes(16)
        assert repr(own) == repr(decoded)
        self.seen["fetch None"] += 1

    # Groups

    def _delete_groups(self) -> None:
        context = self.twins.theirs.context("DELETE_GROUPS", 2, "client")
        groups = ["g", "h", "none"]

        def as_bytes(results: Any) -> bytes:
            if isinstance(results, list):
                self.seen.update(f"delete {result.error_code}" for result in results)
                return delete_groups_response.DeleteGroupsResponse(results=results).encode(2)
            return self.java.message_bytes(self.java.make("common.message.DeleteGroupsResponseData").setResults(results), 2)

        self.twins.operate(
            lambda: self.twins.theirs.shard.deleteGroups(context, groups),
            lambda: self.twins.ours.delete_groups(RequestContext(2, "client", "/127.0.0.1", 42), groups),
            response_bytes=as_bytes,
        )

    def _list(self) -> None:
        states = self.rng.choice(((), ("Stable",), ("not_ready", "EMPTY"), ("NotReady",), ("assigning", "reconciling")))
        types = self.rng.choice(((), ("streams",), ("Streams", "classic"), ("share",)))
        real = self.twins.theirs.shard.listGroups(list(states), list(types), self.java.long(self.twins.committed_offset))
        ours = self.twins.ours.list_groups(states, types)
        theirs = {group.groupId(): (group.protocolType(), group.groupState(), group.groupType()) for group in real}
        assert {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in ours} == theirs

    def _describe(self) -> None:
        self.twins.describe_streams(["g"])
        self.twins.describe_streams(["h", "none"])

    # Topics

    def _make_topics(self) -> None:
        """Make the internal topics that were asked for, as the broker does. Some of them are wrong."""
        topics = dict(self.topics)
        for name, count in self.wanted.items():
            if name not in topics and self.rng.random() < 0.9:
                topics[name] = self.rng.randbytes(16), count + (self.rng.random() < 0.06)
        self.wanted.clear()
        self._set_topics(topics)

    def _change_topics(self) -> None:
        topics = {}
        for name in dict.fromkeys((*self.topics, *SOURCES)):
            if name in self.topics and self.rng.random() < 0.93:
                topic_id, count = self.topics[name]
                topics[name] = topic_id, count + (self.rng.random() < 0.1)
            elif name in SOURCES and name not in self.topics and self.rng.random() < 0.8:
                topics[name] = self.rng.randbytes(16), self.rng.randrange(1, 6)
        self._set_topics(topics)

    def _set_topics(self, topics: Mapping[str, tuple[bytes, int]]) -> None:
        if topics != self.topics:
            self.twins.change_topics(topics)
            self.topics = topics

    def _advance(self) -> None:
        self.twins.advance(self.rng.choice((0, 500, 1000, 3000, 3000, 3000, 6000, 6000, 11_000, 46_000)))

    def _pass(self) -> None:
        self.twins.advance(self.rng.choice((0, 100, 1000)))

    def _expire(self) -> None:
        self.twins.advance(700_000)

    def _commit(self) -> None:
        self.twins.commit()

    def _fail_write(self) -> None:
        self.twins.fail_write = self.rng.choice(("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"))

    def _reload(self) -> None:
        self.twins.commit()
        standby = self.rng.choice((0, 1, 1, 2))
        self.twins = self.twins.reloaded({**self.twins.settings, "group.streams.num.standby.replicas": standby})
        self.seen["reloaded"] += 1

    def _note(self, kind: str, answer: Any) -> None:
        self.seen[f"{kind} {answer.error}"] += 1
        self.seen.update(type(record.key).__name__ for record in answer.records)


def live(java: JavaCoordinators, seed: int, step_count: int) -> Counter[str]:
    """Run one life, and return what happened."""
    return Life(java, seed).live(step_count)


def test_random_lives(oracle: Oracle) -> None:
    """Both give the same answers, the same records, the same timers and the same topics to create."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in (1, 2):
        seen += live(java, seed, 30)
    assert {"join None", "stay None", "StreamsGroupTargetAssignmentMemberKey"} <= set(seen), seen


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    """Longer lives agree as well."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 6)):
        seen += live(java, seed, 200)
    wanted = (
        {f"status {number}" for number in range(6)} | {f"state {number}" for number in (1, 2, 3)} | {"standby", "endpoints", "reloaded"}
    )
    wanted |= {f"stay {error}" for error in (None, "FENCED_MEMBER_EPOCH", "INVALID_REQUEST", "UNKNOWN_MEMBER_ID")}
    wanted |= {"join INVALID_REQUEST", "join GROUP_MAX_SIZE_REACHED", "commit_offset STALE_MEMBER_EPOCH", "delete 0", "leave None"}
    assert wanted <= set(seen), wanted - set(seen)
    print(seen)
