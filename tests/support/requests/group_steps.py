"""Raw requests about groups in any version to one broker, valid and invalid ones. Each step yields its name and its masked answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.leave_group_request import MemberIdentity
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.raw_client import PATIENCE_S

Steps = Iterator[tuple[str, Any]]
UNKNOWN_ID = bytes([9]) * 16
TOPIC = "of-groups"


def ready(side: Side) -> None:
    """Create a topic and wait for a coordinator that has loaded."""
    if TOPIC not in side.ids:
        side.create(TOPIC, partitions=2)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found: Any = side.client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("warm", topics=None)]), 8)
        if found.groups[0].error_code == 0:
            return
        side.client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["warm"]), 6)
        assert time.monotonic() < deadline, (side.name, found)
        time.sleep(0.05)


class Members:
    """A sender of requests that maps the ids of members, which are random, to names."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ids: dict[str, str] = {}

    def ask(self, message: Message, version: int, name: str = "") -> Any:
        """Return the masked answer. From now on, `name` stands for the member that the answer names."""
        response: Any = self.side.client.ask(message, version)
        if name and response.member_id:
            self.ids[response.member_id] = name
        return self._named(self.side.masked(response))

    def __getitem__(self, name: str) -> str:
        return next(member_id for member_id, known in self.ids.items() if known == name)

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._node(key, self._named(each)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._named(each) for each in value]
        return self.ids.get(value, value) if isinstance(value, str) else value

    def _node(self, key: str, value: Any) -> Any:
        return bool(value >= 0) if key == "node_id" else value


def find_coordinator(side: Side, version: int) -> Steps:
    """Find coordinators of groups, transactions and share partitions, including missing ones."""
    ready(side)
    members = Members(side)

    def ask(key_type: int, *keys: str) -> Any:
        if version < 4:
            return members.ask(FindCoordinatorRequest(keys[0], key_type), version)
        return members.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys)), version)

    yield "a group", ask(0, "g")
    if version >= 1:
        yield "no such type", ask(7, "g")
    if version >= 4:
        yield "several", ask(0, "g", "", "h")
        yield "nothing", ask(0)
        yield "not a share partition", ask(2, "g", "g:x:y", "a:b", "")


def classic_group(side: Side, version: int) -> Steps:
    """A member joins, commits and leaves. Every possible error occurs on the way."""
    ready(side)
    members, group = Members(side), f"classic-{version}"
    sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)

    def join(member_id: str = "", *, name: str = "", group_id: str = group, timeout: int = 10_000, **fields: Any) -> Any:
        protocols = [JoinGroupRequestProtocol("range", b"meta")]
        request = JoinGroupRequest(group_id, timeout, 10_000, member_id, None, "consumer", protocols)
        for field, value in fields.items():
            setattr(request, field, value)
        return members.ask(request, version, name)

    def sync(member_id: str, generation: int, **fields: Any) -> Any:
        assignments = [SyncGroupRequestAssignment(member_id, b"parts")]
        request = SyncGroupRequest(group, generation, member_id, None, "consumer", "range", assignments)
        for field, value in fields.items():
            setattr(request, field, value)
        return members.ask(request, sync_version)

    yield "no group id", join(group_id="")
    yield "short time-out", join(timeout=1)
    yield "long time-out", join(timeout=2_000_000)
    yield "unknown member", join("somebody")
    yield "no protocol", join(protocols=[])
    yield "joins", join(name="m")
    if version >= 4:
        yield "joins with its id", join(members["m"], name="m")
    me = members["m"]
    yield "heartbeat before sync", members.ask(HeartbeatRequest(group, 1, me), beat_version)
    yield "sync of nobody", sync("somebody", 1)
    yield "sync of another generation", sync(me, 5)
    if sync_version >= 5:
        yield "sync without protocol", sync(me, 1, protocol_name=None)
        yield "sync of another protocol", sync(me, 1, protocol_name="other")
    yield "sync", sync(me, 1)
    yield "heartbeat", members.ask(HeartbeatRequest(group, 1, me), beat_version)
    yield "heartbeat of another generation", members.ask(HeartbeatRequest(group, 2, me), beat_version)
    yield "heartbeat of nobody", members.ask(HeartbeatRequest(group, 1, "somebody"), beat_version)
    yield "heartbeat of no group", members.ask(HeartbeatRequest("", 1, me), beat_version)
    yield "heartbeat of an absent group", members.ask(HeartbeatRequest("absent", 1, me), beat_version)
    yield "described", members.ask(DescribeGroupsRequest([group], include_authorized_operations=version >= 3), min(version, 6))
    yield "deleted too early", members.ask(DeleteGroupsRequest([group]), min(version, 2))
    yield "offsets deleted too early", members.ask(_deletion(group, TOPIC, 0), 0)

    def leave(member_id: str, group_id: str = group) -> Any:
        if leave_version < 3:
            return members.ask(LeaveGroupRequest(group_id, member_id), leave_version)
        return members.ask(LeaveGroupRequest(group_id, members=[MemberIdentity(member_id), MemberIdentity(member_id, "i")]), leave_version)

    yield "nobody leaves", leave("somebody")
    yield "leaves no group", leave(me, "")
    yield "leaves an absent group", leave(me, "absent")
    yield "leaves", leave(me)
    yield "described when empty", members.ask(DescribeGroupsRequest([group, "absent", ""]), min(version, 6))
    yield "deleted", members.ask(DeleteGroupsRequest([group, "absent", ""]), min(version, 2))


def _deletion(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(one) for one in partitions])])


def _commit(side: Side, version: int, group: str, *places: tuple[str, int, int], **fields: Any) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            "" if version >= 10 else name,
            side.ids.get(name, UNKNOWN_ID),
            [OffsetCommitRequestPartition(partition, offset, committed_metadata=fields.get("metadata", "note"))],
        )
        for name, partition, offset in places
    ]
    return OffsetCommitRequest(group, fields.get("generation", -1), fields.get("member", ""), topics=topics)


def _fetch(side: Side, version: int, group: str, *places: tuple[str, int]) -> OffsetFetchRequest:
    if version < 8:
        old = [OffsetFetchRequestTopic(name, [partition]) for name, partition in places]
        return OffsetFetchRequest(group, old if places or version < 2 else None)
    topics = [
        OffsetFetchRequestTopics("" if version >= 10 else name, side.ids.get(name, UNKNOWN_ID), [partition]) for name, partition in places
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics if places else None)])


def offsets(side: Side, version: int) -> Steps:
    """Offsets are committed, fetched and deleted, for topics and groups that exist or not."""
    ready(side)
    members, group = Members(side), f"offsets-{version}"
    commit_version, fetch_version = min(max(version, 2), 10), version

    def commit(group_id: str, *places: tuple[str, int, int], **fields: Any) -> Any:
        return members.ask(_commit(side, commit_version, group_id, *places, **fields), commit_version)

    def fetch(group_id: str, *places: tuple[str, int]) -> Any:
        return members.ask(_fetch(side, fetch_version, group_id, *places), fetch_version)

    yield "nothing yet", fetch(group, (TOPIC, 0))
    yield "committed", commit(group, (TOPIC, 0, 5), (TOPIC, 9, 5), ("absent", 0, 5))
    yield "committed, nothing known", commit(group, ("absent", 0, 5))
    yield "committed nothing", commit(group)
    yield "long metadata", commit(group, (TOPIC, 1, 5), metadata="x" * 5000)
    yield "without metadata", commit(group, (TOPIC, 1, 6), metadata=None)
    yield "a topic twice", commit(group, (TOPIC, 0, 8), (TOPIC, 1, 8))
    yield "of a member", commit(group, (TOPIC, 0, 5), member="m", generation=3)
    yield "of an absent group's member", commit("absent", (TOPIC, 0, 5), member="m", generation=3)
    yield "of no group", commit("", (TOPIC, 0, 7))
    yield "fetched", fetch(group, (TOPIC, 0), (TOPIC, 1), (TOPIC, 9), ("absent", 0))
    yield "all", fetch(group)
    yield "of an absent group", fetch("absent", (TOPIC, 0))
    yield "of the empty group", fetch("", (TOPIC, 0))
    yield "deleted", members.ask(_deletion(group, TOPIC, 0, 9), 0)
    yield "deleted of an absent topic", members.ask(_deletion(group, "absent", 0), 0)
    yield "deleted of an absent group", members.ask(_deletion("absent", TOPIC, 0), 0)
    yield "deleted of no group", members.ask(_deletion("", TOPIC, 0), 0)
    yield "what is left", fetch(group)


def groups(side: Side, version: int) -> Steps:
    """Groups are listed with filters."""
    ready(side)
    members, group = Members(side), f"listed-{version}"
    members.ask(_commit(side, 9, group, (TOPIC, 0, 5)), 9)

    def listed(**fields: Any) -> Any:
        found = members.ask(ListGroupsRequest(**fields), version)
        return [one for one in found["groups"] if one["group_id"] == group], found["error_code"]

    yield "all", listed()
    if version >= 4:
        yield "empty ones", listed(states_filter=["Empty"])
        yield "stable ones", listed(states_filter=["stable", "no such state"])
    if version >= 5:
        yield "classic ones", listed(types_filter=["classic"])
        yield "consumer ones", listed(types_filter=["Consumer", "no such type"])


def txn_offsets(side: Side, version: int) -> Steps:
    """Offsets are committed in a transaction that nobody knows."""
    ready(side)
    members = Members(side)

    def commit(group: str, *places: tuple[str, int]) -> Any:
        topics = [TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(number, 5)]) for name, number in places]
        return members.ask(TxnOffsetCommitRequest("nobody", group, 4000, 0, topics=topics), version)

    yield "nothing known", commit("g", ("absent", 0), (TOPIC, 9))
    yield "of no group", commit("", (TOPIC, 0))
    yield "a topic twice", commit("", (TOPIC, 0), (TOPIC, 1))
    yield "a topic twice, once unknown", commit("", (TOPIC, 0), (TOPIC, 9))


def consumer_group(side: Side, version: int) -> Steps:
    """A member of the consumer protocol joins and leaves. Every possible error occurs on the way."""
    ready(side)
    members, group = Members(side), f"consumer-{version}"

    def beat(epoch: int, member_id: str = "me", *, group_id: str = group, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id, member_id, epoch)
        for field, value in fields.items():
            setattr(request, field, value)
        return members.ask(request, version)

    joining: dict[str, Any] = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    yield "no group id", beat(0, group_id=" ", **joining)
    yield "blank instance", beat(0, instance_id="", **joining)
    yield "blank rack", beat(0, rack_id="", **joining)
    yield "no time-out", beat(0, **{**joining, "rebalance_timeout_ms": -1})
    yield "owns without", beat(0, **{**joining, "topic_partitions": None})
    yield "no subscription", beat(0, **{**joining, "subscribed_topic_names": None})
    yield "no such assignor", beat(0, server_assignor="none", **joining)
    yield "epoch -3", beat(-3)
    yield "leaves without instance", beat(-2)
    yield "an absent group", beat(5)
    if version:
        yield "no member id", beat(0, "", **joining)
        yield "bad expression", beat(0, **{**joining, "subscribed_topic_names": None, "subscribed_topic_regex": "[a"})
    joined = beat(0, **joining)
    yield "joins", joined
    yield "again", beat(joined["member_epoch"])
    yield "too new an epoch", beat(99)
    yield "somebody else", beat(1, "you")
    described = members.ask(ConsumerGroupDescribeRequest([group, "absent", ""], include_authorized_operations=True), min(version, 1))
    yield "described", described
    yield (
        "a classic member",
        members.ask(JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 9, "classic"),
    )
    yield "leaves", beat(-1)
    yield "described when empty", members.ask(ConsumerGroupDescribeRequest([group]), min(version, 1))


SCENARIOS: list[tuple[Callable[[Side, int], Steps], range]] = [
    (find_coordinator, FindCoordinatorRequest.VERSIONS),
    (classic_group, JoinGroupRequest.VERSIONS),
    (offsets, OffsetFetchRequest.VERSIONS),
    (groups, ListGroupsRequest.VERSIONS),
    (txn_offsets, TxnOffsetCommitRequest.VERSIONS),
    (consumer_group, ConsumerGroupHeartbeatRequest.VERSIONS),
]
CASES = {f"{steps.__name__}-{version}": (steps, version) for steps, versions in SCENARIOS for version in versions}
