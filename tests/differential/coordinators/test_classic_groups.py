"""Classic groups and offsets compared with Kafka's GroupCoordinatorShard: random requests, timers and failed writes give the same answers
and records.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import DeletedTopic
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    delete_groups_response,
    describe_groups_request,
    describe_groups_response,
    list_groups_response,
    offset_fetch_response,
)
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kops.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kops.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.group_twins import GroupTwins
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators

TOPICS = {"orders": (bytes(range(16)), 4), "stock": (bytes(range(240, 256)), 2)}
TOPIC_NAMES = ("orders", "stock", "gone")
GROUPS = ("g1", "g2", "g3")
INSTANCES = ("i1", "i2", "i3")
APPEND_ERRORS = (
    "REQUEST_TIMED_OUT",
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "MESSAGE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "KAFKA_STORAGE_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "COORDINATOR_NOT_AVAILABLE",
)
KINDS: dict[str, float] = {
    "join": 24,
    "sync": 16,
    "round": 9,
    "restart": 4,
    "heartbeat": 8,
    "leave": 5,
    "commit_offset": 9,
    "commit_transactional_offset": 4,
    "fetch": 5,
    "delete_offsets": 2,
    "delete_groups": 1,
    "list": 1,
    "describe": 2,
    "topics_deleted": 0.7,
    "end_transaction": 2,
    "advance": 14,
    "commit": 16,
    "time_out": 1,
    "fail_write": 1.5,
    "reload": 0.5,
}
AFTER_UNLOADING = ("join", "sync", "heartbeat", "leave", "commit_offset", "fetch", "delete_offsets", "delete_groups")


class Member:
    """What a client knows about its membership."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.generation = -1
        self.protocol: tuple[str | None, str | None] = (None, None)
        self.is_leader = False


class Life:
    """Clients of one shard."""

    def __init__(self, java: JavaCoordinators, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.java = java
        settings = {
            "group.max.size": rng.choice((2, 4, 100)),
            "group.initial.rebalance.delay.ms": rng.choice((0, 3000)),
            "offsets.retention.minutes": rng.choice((1, 10, 10_080)),
            "offset.metadata.max.bytes": 8,
        }
        self.kind = rng.choices(("consumer", "connect"), (4, 1))[0]
        self.static_share = rng.choice((0.2, 0.5, 1))
        self.newcomers = rng.choice(((0, 1, 2), (0, 1, 2), (3, 6)))
        self.twins = GroupTwins(java, settings, TOPICS)
        self.members: dict[str, list[Member]] = {group: [] for group in GROUPS}
        self.seen: Counter[str] = Counter()

    def live(self, step_count: int) -> Counter[str]:
        """Run this many steps, and return what happened."""
        kinds, weights = list(KINDS), list(KINDS.values())
        for _ in range(step_count):
            kind = self.rng.choices(kinds, weights)[0]
            getattr(self, f"_{kind}")()
            self._learn()
        self._compare_all()
        self._reload()
        return self.seen

    # Groups

    def _join(self) -> None:
        rng, group = self.rng, self._group()
        known = self.members[group]
        chosen = rng.random()
        if chosen < 0.6 and known:
            member = rng.choice(known)
            member_id, instance = member.member_id, member.instance_id
            if rng.random() < 0.05:
                instance = rng.choice((None, *INSTANCES))
        else:
            member_id = "stranger" if chosen > 0.97 else ""
            instance = rng.choice(INSTANCES) if rng.random() < 0.35 else None
        version = rng.choice((0, 3, 4, 5, 8, 9, 9, 9))
        kind = rng.choices((self.kind, "connect", ""), (30, 1, 1))[0]
        names = rng.choice((("range",), ("range", "sticky"), ("sticky", "range"), ("range", "sticky", "cooperative"), ("odd",)))
        if rng.random() < 0.7:
            names = ("range", "sticky")
        protocols = [JoinGroupRequestProtocol(name, self._metadata()) for name in names]
        request = JoinGroupRequest(
            group, rng.choice((6000, 10_000)), rng.choice((10_000, 20_000)), member_id, instance, kind, protocols, rng.choice((None, "r"))
        )
        self._note("join", self.twins.ask("classic_group_join", request, version, client_id=rng.choice(("c", "ä")), holds_back=True))

    def _round(self) -> None:
        """Let some members join as clients do. Most of them also sync."""
        rng, group = self.rng, self._group()
        for _ in range(rng.choice(self.newcomers)):
            self._join_as_client(group, Member("", rng.choice(INSTANCES) if rng.random() < self.static_share else None))
        for member in [*self.members[group]]:
            if rng.random() < 0.9:
                self._join_as_client(group, member)
        self.twins.advance(rng.choice((3000, 3000, 3000, 20_000)))
        self._learn()
        for member in sorted(self.members[group], key=lambda each: each.is_leader):
            if rng.random() < 0.92:
                self._sync_as_client(group, member)
        if rng.random() < 0.9:
            self._commit()

    def _restart(self) -> None:
        """Let a static member join without its id."""
        group = self._group()
        instances = [member.instance_id for member in self.members[group] if member.instance_id is not None]
        if instances:
            names = self.rng.choice((("range",), ("range",), ("range", "sticky"), ("sticky", "range")))
            self._join_as_client(group, Member("", self.rng.choice(instances)), names)
            self._commit()

    def _join_as_client(self, group: str, member: Member, names: tuple[str, ...] = ("range", "sticky")) -> None:
        protocols = [JoinGroupRequestProtocol(name, self._metadata()) for name in names]
        session_ms = self.rng.choice((10_000, 60_000))
        request = JoinGroupRequest(group, session_ms, 20_000, member.member_id, member.instance_id, self.kind, protocols)
        self._note("join", self.twins.ask("classic_group_join", request, self.rng.choice((3, 8, 9)), client_id="c", holds_back=True))
        self._learn()

    def _sync_as_client(self, group: str, member: Member) -> None:
        ids = [each.member_id for each in self.members[group]] if member.is_leader else []
        assignments = [SyncGroupRequestAssignment(each, self.rng.randbytes(3)) for each in ids]
        request = SyncGroupRequest(group, member.generation, member.member_id, member.instance_id, *member.protocol, assignments)
        self._note("sync", self.twins.ask("classic_group_sync", request, 5, holds_back=True))

    def _metadata(self) -> bytes:
        chosen = self.rng.random()
        if chosen < 0.03:
            return self.rng.choice((b"", b"\x00", b"\x00\x01\x00\x00"))
        topics = self.rng.choice((["orders"], ["orders", "stock"], ["stock"])) if chosen < 0.3 else ["orders"]
        version = self.rng.choice((0, 1, 3)) if chosen < 0.1 else 3
        return version.to_bytes(2, "big") + ConsumerProtocolSubscription(topics).encode(version)

    def _sync(self) -> None:
        rng, group = self.rng, self._group()
        member = self._member(group)
        leaders = [each for each in self.members[group] if each.is_leader]
        if leaders and rng.random() < 0.5:
            member = rng.choice(leaders)
        ids = [each.member_id for each in self.members[group] if rng.random() < 0.9]
        assignments = [SyncGroupRequestAssignment(each, rng.randbytes(3)) for each in ids] if member.is_leader else []
        kind, name = member.protocol if rng.random() < 0.9 else rng.choice(((None, None), ("connect", None), ("consumer", "odd")))
        request = SyncGroupRequest(group, self._generation(member), member.member_id, self._instance(member), kind, name, assignments)
        self._note("sync", self.twins.ask("classic_group_sync", request, 5, holds_back=True))

    def _heartbeat(self) -> None:
        group = self._group()
        member = self._member(group)
        request = HeartbeatRequest(group, self._generation(member), member.member_id, self._instance(member))
        self._note("heartbeat", self.twins.ask("classic_group_heartbeat", request, 4))
        self.seen["kept"] = self.twins.kept_count

    def _leave(self) -> None:
        rng, group = self.rng, self._group()
        identities = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            member = self._member(group)
            member_id = "" if rng.random() < 0.3 else member.member_id
            identities.append(MemberIdentity(member_id, self._instance(member), rng.choice((None, "bored"))))
        answer = self.twins.ask("classic_group_leave", LeaveGroupRequest(group, members=identities), 5)
        self._note("leave", answer)
        if answer.response is not None:
            self._count("leave", (member.error_code for member in answer.response.members))

    # Offsets

    def _commit_offset(self) -> None:
        rng, group = self.rng, self._group()
        member = self._member(group) if rng.random() < 0.7 else Member("", None)
        topics = []
        for name in rng.sample(TOPIC_NAMES, rng.choice((1, 2))):
            partitions = [
                OffsetCommitRequestPartition(
                    index, rng.randrange(100), rng.choice((-1, 3)), rng.choice((None, "", "note", "much too long"))
                )
                for index in rng.sample(range(4), 2)
            ]
            topic_id = TOPICS[name][0] if name in TOPICS and rng.random() < 0.5 else bytes(16)
            topics.append(OffsetCommitRequestTopic(name, topic_id, partitions))
        request = OffsetCommitRequest(group, self._generation(member), member.member_id, self._instance(member), topics=topics)
        version = rng.choice((2, 7, 9, 10))
        if version == 2:
            request.retention_time_ms = rng.choice((-1, 60_000, 2**63 - 1))

        def adjust(real: Any) -> None:
            real.setRetentionTimeMs(self.java.long(request.retention_time_ms))
            for own, topic in zip(topics, real.topics(), strict=True):
                topic.setTopicId(self.java.uuid(own.topic_id))

        answer = self.twins.ask("commit_offset", request, version, written_as=9, adjust=adjust)
        self._note("commit_offset", answer)
        if answer.response is not None:
            self._count("commit_offset", (part.error_code for topic in answer.response.topics for part in topic.partitions))

    def _commit_transactional_offset(self) -> None:
        rng, group = self.rng, self._group()
        member = self._member(group) if rng.random() < 0.5 else Member("", None)
        producer_id = rng.choice((7, 8))
        parts = [
            TxnOffsetCommitRequestPartition(index, rng.randrange(100), -1, rng.choice((None, "note", "much too long")))
            for index in rng.sample(range(4), 2)
        ]
        topics = [TxnOffsetCommitRequestTopic(rng.choice(TOPIC_NAMES), parts)]
        request = TxnOffsetCommitRequest(
            "t", group, producer_id, 0, self._generation(member), member.member_id, self._instance(member), topics
        )
        self._note("commit_transactional_offset", self.twins.ask("commit_transactional_offset", request, 5, producer=(producer_id, 0)))

    def _end_transaction(self) -> None:
        self.twins.end_transaction(self.rng.choice((7, 8)), 0, is_commit=self.rng.random() < 0.6)

    def _fetch(self) -> None:
        rng = self.rng
        topics: list[OffsetFetchRequestTopics] | None = None
        if rng.random() < 0.6:
            topics = []
            for name in rng.sample(TOPIC_NAMES, 2):
                topic_id = rng.choice((bytes(16), bytes(range(16))))
                topics.append(OffsetFetchRequestTopics(name, topic_id, rng.sample(range(4), 3)))
        self._compare_fetch(self._group(), topics, require_stable=rng.random() < 0.5)

    def _compare_fetch(self, group: str, topics: list[OffsetFetchRequestTopics] | None, *, require_stable: bool) -> None:
        asked = OffsetFetchRequestGroup(group, topics=topics)
        wire = OffsetFetchRequest(groups=[asked])
        real_asked = self.java.message(wire, 9).groups().get(0)
        for own, real in zip(topics or (), real_asked.topics() or (), strict=True):
            real.setTopicId(self.java.uuid(own.topic_id))
        own_answer = self.twins.ours.fetch_offsets(asked, require_stable=require_stable)
        at = "9223372036854775807" if require_stable else str(self.twins.committed_offset)
        found = self.twins.theirs.shard.fetchOffsets(real_asked, self.java.oracle.java_class("java.lang.Long").valueOf(at))
        data = self.java.make("common.message.OffsetFetchResponseData").setGroups([found])
        decoded = offset_fetch_response.OffsetFetchResponse.decode(self.java.message_bytes(data, 9), 9).groups[0]
        for answer in (own_answer, decoded):
            if topics is None:
                answer.topics.sort(key=lambda topic: topic.name)
                for topic in answer.topics:
                    topic.partitions.sort(key=lambda partition: partition.partition_index)
            for topic in answer.topics:
                self._count("fetch", (partition.error_code for partition in topic.partitions))
                topic.topic_id = bytes(16)
        assert repr(own_answer) == repr(decoded)

    def _delete_offsets(self) -> None:
        rng = self.rng
        topics = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in rng.sample(range(4), 2)])
            for name in rng.sample(TOPIC_NAMES, 2)
        ]
        answer = self.twins.ask("delete_offsets", OffsetDeleteRequest(self._group(), topics), 0)
        self._note("delete_offsets", answer)
        if answer.response is not None:
            self._count("delete_offsets", (part.error_code for topic in answer.response.topics for part in topic.partitions))

    def _topics_deleted(self) -> None:
        name = self.rng.choice(("orders", "stock"))
        topic_id = TOPICS[name][0] if self.rng.random() < 0.7 else bytes(range(60, 76))
        deleted = self.java.oracle.java_class(f"{KAFKA}coordinator.group.GroupCoordinatorShard$DeletedTopic")
        real = [deleted(self.java.uuid(topic_id), name)]
        twins = self.twins
        answer = twins.operate(
            lambda: twins.theirs.shard.onTopicsDeleted(real), lambda: twins.ours.on_topics_deleted([DeletedTopic(topic_id, name)])
        )
        self._note("topics_deleted", answer)

    # All kinds of groups

    def _delete_groups(self) -> None:
        ids = self.rng.sample((*GROUPS, "nowhere"), 2)
        context = self.twins.theirs.context("DELETE_GROUPS", 2, "c")

        def as_bytes(results: Any) -> bytes:
            if isinstance(results, list):
                self._count("delete_groups", (result.error_code for result in results))
                return delete_groups_response.DeleteGroupsResponse(results=results).encode(2)
            return self.java.message_bytes(self.java.make("common.message.DeleteGroupsResponseData").setResults(results), 2)

        twins = self.twins
        twins.operate(
            lambda: twins.theirs.shard.deleteGroups(context, ids),
            lambda: twins.ours.delete_groups(RequestContext(2, "c", "/127.0.0.1", 42), ids),
            response_bytes=as_bytes,
        )

    def _list(self) -> None:
        states = self.rng.choice(([], ["Stable"], ["empty ", "PreparingRebalance"], ["Dead"]))
        types = self.rng.choice(([], [], ["classic"], ["CLASSIC", "share"], ["consumer"], ["odd"]))
        found = self.twins.theirs.shard.listGroups(states, types, self.java.long(self.twins.committed_offset))
        data = self.java.make("common.message.ListGroupsResponseData").setGroups(found)
        own = list_groups_response.ListGroupsResponse(groups=self.twins.ours.list_groups(states, types))
        self.twins.compare_messages(own, data)

    def _describe(self) -> None:
        version = self.rng.choice((4, 6))
        ids = [*GROUPS, "nowhere"]
        context = self.twins.theirs.context("DESCRIBE_GROUPS", version, "c")
        found = self.twins.theirs.shard.describeGroups(context, ids, self.java.long(self.twins.committed_offset))
        data = self.java.make("common.message.DescribeGroupsResponseData").setGroups(found)
        key = describe_groups_request.DescribeGroupsRequest.API_KEY
        assert key is not None
        own = self.twins.ours.describe_groups(RequestContext(version, "c", "/127.0.0.1", key), ids)
        self.seen.update(f"state {group.group_state}" for group in own)
        self.twins.compare_messages(describe_groups_response.DescribeGroupsResponse(groups=own), data)

    # The runtime

    def _advance(self) -> None:
        if self.rng.random() < 0.9:
            self.twins.advance(self.rng.choice((0, 1, 500, 500, 3000, 3000, 6000, 10_000)))
        else:
            self.twins.advance(self.rng.choice((20_000, 61_000, 300_000, 600_000)))

    def _commit(self) -> None:
        twins = self.twins
        if twins.appends and self.rng.random() < 0.4:
            twins.commit(self.rng.choice(twins.appends).end_offset)
        else:
            twins.commit()

    def _time_out(self) -> None:
        self.twins.time_out(self.rng.choice(APPEND_ERRORS))

    def _fail_write(self) -> None:
        self.twins.fail_write = self.rng.choice(APPEND_ERRORS)

    def _reload(self) -> None:
        self.twins.unload()
        self._learn()
        for _ in range(4):
            getattr(self, f"_{self.rng.choice(AFTER_UNLOADING)}")()
        self.twins = self.twins.reloaded({**self.twins.settings, "group.max.size": self.rng.choice((2, 4, 100))})
        self._compare_all()

    def _compare_all(self) -> None:
        self._describe()
        self._list()
        for group in GROUPS:
            self._compare_fetch(group, None, require_stable=True)
            self._compare_fetch(group, None, require_stable=False)

    # What clients know

    def _group(self) -> str:
        return self.rng.choices(GROUPS, (6, 3, 1))[0]

    def _member(self, group: str) -> Member:
        if not self.members[group] or self.rng.random() < 0.05:
            return Member(self.rng.choice(("stranger", "")), self.rng.choice((None, *INSTANCES)))
        return self.rng.choice(self.members[group][-6:])

    def _generation(self, member: Member) -> int:
        return member.generation if self.rng.random() < 0.93 else self.rng.choice((-1, 0, 1, member.generation + 1))

    def _instance(self, member: Member) -> str | None:
        return member.instance_id if self.rng.random() < 0.95 else self.rng.choice((None, *INSTANCES))

    def _learn(self) -> None:
        """Update the clients' knowledge from the answers."""
        for request, response in self.twins.answered:
            name = type(request).__name__.removesuffix("Request")
            self._count(name, [response.error_code])
            assert isinstance(request, JoinGroupRequest | SyncGroupRequest)
            if by_code(response.error_code).name in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
                kept = self.members[request.group_id]
                kept[:] = [member for member in kept if member.member_id != request.member_id]
            if isinstance(request, JoinGroupRequest) and isinstance(response, JoinGroupResponse):
                self.seen["skip_assignment"] += response.skip_assignment
                if response.member_id and response.error_code in (0, 79):
                    self._learn_join(request, response)
        self.twins.answered.clear()

    def _learn_join(self, request: JoinGroupRequest, response: JoinGroupResponse) -> None:
        members = self.members[request.group_id]
        member = next((each for each in members if each.member_id == response.member_id), None)
        if member is None:
            member = Member(response.member_id, request.group_instance_id)
            members.append(member)
            del members[:-16]
        member.generation = response.generation_id
        member.protocol = (response.protocol_type, response.protocol_name)
        member.is_leader = response.leader == response.member_id

    def _note(self, kind: str, answer: Any) -> None:
        self.seen[f"{kind} {answer.error}"] += 1
        self.seen.update(f"{kind} {type(record.key).__name__}{'' if record.value else ' tombstone'}" for record in answer.records)

    def _count(self, kind: str, codes: Any) -> None:
        self.seen.update(f"{kind} {by_code(code).name}" for code in codes)


def test_random_lives(oracle: Oracle) -> None:
    """Every kind of request, timer and failure gives the same results."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(2):
        seen += Life(java, seed).live(90)
    assert {"JoinGroup NONE", "SyncGroup NONE", "state Stable"} <= set(seen), seen


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    """Longer lives agree as well."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 6)):
        seen += Life(java, seed).live(300)
    assert {"JoinGroup FENCED_INSTANCE_ID", "fetch UNSTABLE_OFFSET_COMMIT", "topics_deleted OffsetCommitKey tombstone"} <= set(seen), seen
    assert seen["kept"], seen
