"""Cases of classic groups that random lives rarely meet, compared with Kafka's GroupCoordinatorShard."""

from __future__ import annotations

from typing import Any

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.errors import by_code
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kops.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kops.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from kops.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kops.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kops.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.group_twins import GroupTwins
from tests.support.kafka.twins.java_coordinators import JavaCoordinators

TOPICS = {"orders": (bytes(range(16)), 4)}
SETTINGS = {"group.initial.rebalance.delay.ms": 1000, "group.max.size": 100}
DESCRIBE = RequestContext(6, "c", "/127.0.0.1", 15)
METADATA = b"\x00\x03" + ConsumerProtocolSubscription(["orders"]).encode(3)


def twins(oracle: Oracle, log: Any = (), **settings: Any) -> GroupTwins:
    return GroupTwins(JavaCoordinators(oracle), SETTINGS | settings, TOPICS, log)


def join(
    both: GroupTwins,
    member_id: str = "",
    instance: str | None = None,
    names: tuple[str, ...] = ("range",),
    version: int = 9,
    metadata: bytes = METADATA,
) -> None:
    protocols = [JoinGroupRequestProtocol(name, metadata) for name in names]
    request = JoinGroupRequest("g", 60_000, 20_000, member_id, instance, "consumer", protocols)
    both.ask("classic_group_join", request, version, holds_back=True)


def sync(both: GroupTwins, joined: JoinGroupResponse, members: list[str], instance: str | None = None) -> None:
    given = [SyncGroupRequestAssignment(member, member[:2].encode()) for member in members]
    request = SyncGroupRequest("g", joined.generation_id, joined.member_id, instance, "consumer", joined.protocol_name, given)
    both.ask("classic_group_sync", request, 5, holds_back=True)


def answers(both: GroupTwins) -> list[Any]:
    """Return the responses since the last call."""
    found = [response for _, response in both.answered]
    both.answered.clear()
    return found


def stable(both: GroupTwins, instances: tuple[str | None, ...], names: tuple[str, ...] = ("range",)) -> list[JoinGroupResponse]:
    """Make a stable group with a member for each instance (None for a dynamic one), and return their JoinGroup responses."""
    for instance in instances:
        join(both, "", instance, names, version=9 if instance else 3)
    both.advance(2500)
    joined = answers(both)
    assert [response.error_code for response in joined] == [0] * len(instances)
    for response in sorted(joined, key=lambda each: each.leader == each.member_id):
        instance = next((each for each in instances if each and response.member_id.startswith(each)), None)
        sync(both, response, [each.member_id for each in joined], instance)
    both.commit()
    assert [by_code(response.error_code).name for response in answers(both)] == ["NONE"] * len(instances)
    assert both.ours.describe_groups(DESCRIBE, ["g"])[0].group_state == "Stable"
    return joined


@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_leader_comes_back(oracle: Oracle, version: int) -> None:
    """The group goes on without a rebalance. From version 9 on, the member learns that it leads (KIP-814)."""
    both = twins(oracle)
    leader = next(each for each in stable(both, ("i1", "i2")) if each.leader == each.member_id)
    join(both, "", leader.member_id[:2], version=version)
    assert answers(both) == []
    both.commit()
    (answer,) = answers(both)
    assert answer.skip_assignment == (version == 9) and (answer.leader == answer.member_id) == (version == 9)


@pytest.mark.parametrize("fails", ["write", "commit"])
def test_static_member_cannot_be_written(oracle: Oracle, fails: str) -> None:
    """The member gets its old id back."""
    both = twins(oracle)
    old = stable(both, ("i1", "i2"))[0]
    if fails == "write":
        both.fail_write = "MESSAGE_TOO_LARGE"
    join(both, "", "i1")
    if fails == "commit":
        both.time_out("REQUEST_TIMED_OUT")
    assert [by_code(answer.error_code).name for answer in answers(both)] == [
        "UNKNOWN_SERVER_ERROR" if fails == "write" else "COORDINATOR_NOT_AVAILABLE"
    ]
    assert old.member_id in both.theirs.member_ids("g")
    join(both, old.member_id, "i1")


def test_static_member_changes_the_protocol(oracle: Oracle) -> None:
    """Another protocol now has the most votes, so the group rebalances."""
    both = twins(oracle)
    first, second = stable(both, ("i1", "i2"), ("range", "sticky"))
    join(both, "", "i1", ("sticky",))
    both.advance(20_000)
    assert both.waiting == [] and second.protocol_name == first.protocol_name == "range"


def test_votes_are_counted_in_java_s_order(oracle: Oracle) -> None:
    """If two protocols have the same number of votes, the first one in the HashMap of votes wins."""
    names = ("range", "sticky", "cooperative-sticky", "roundrobin", "a", "b", "c")
    for turn in range(3):
        both = twins(oracle)
        first, second = names[turn], names[(turn + 3) % len(names)]
        join(both, "", "i1", (first, second))
        join(both, "", "i2", (second, first))
        both.advance(30_000)
        assert {response.protocol_name for response in answers(both)} <= {first, second}


def test_only_static_members_are_left(oracle: Oracle) -> None:
    """None of them comes back in time. The rebalance completes, and the first one to come leads."""
    both = twins(oracle)
    joined = stable(both, ("i1", "i2"))
    second = next(each for each in joined if each.leader != each.member_id)
    join(both, "", None, version=3)
    (newcomer,) = both.theirs.member_ids("g") - {each.member_id for each in joined}
    both.ask("classic_group_leave", LeaveGroupRequest("g", members=[MemberIdentity(newcomer)]), 5)
    answers(both)
    both.advance(20_000)
    assert answers(both) == []
    join(both, second.member_id, second.member_id[:2])
    both.advance(20_000)
    (answer,) = answers(both)
    assert answer.leader == second.member_id != second.leader


def test_group_over_capacity_is_loaded(oracle: Oracle) -> None:
    """The group rebalances, and has room for only some of its members."""
    both = twins(oracle)
    joined = stable(both, (None, "i1", None))
    both.unload()
    again = both.reloaded({**both.settings, "group.max.size": 2})
    for response in joined:
        join(again, response.member_id, "i1" if response.member_id.startswith("i1") else None)
    again.advance(20_000)
    assert sorted(by_code(answer.error_code).name for answer in answers(again)) == ["GROUP_MAX_SIZE_REACHED", "NONE", "NONE"]


def test_many_members(oracle: Oracle) -> None:
    """There are more members than initial bins of a HashMap. The order of members in responses and records is the same, and so is the next
    leader.
    """
    both = twins(oracle)
    joined = stable(both, (None,) * 16)
    leader = joined[0].leader
    both.advance(1000)
    for response in joined:
        if response.member_id != leader:
            join(both, response.member_id, metadata=METADATA + b"y")
    both.advance(20_000)
    assert len(answers(both)) == 15


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\x00\x00", b"\x00\x00\x00\x00\x00\x02\x00\x01a"])
def test_metadata_that_is_no_subscription(oracle: Oracle, metadata: bytes) -> None:
    """The group's topics are unknown then."""
    both = twins(oracle)
    join(both, "", "i1", metadata=metadata)
    both.advance(1000)
    assert [answer.error_code for answer in answers(both)] == [0]

    both.operate(both.theirs.shard.cleanupGroupMetadata, both.ours.cleanup_group_metadata)


def test_legacy_offset_records(oracle: Oracle) -> None:
    """Offsets of the first format, and its tombstones, are loaded."""
    values = [LegacyOffsetCommitValue(5, "m", 7), LegacyOffsetCommitValue(6, "", 8), None]
    log = [
        (CoordinatorRecord(LegacyOffsetCommitKey("g", "orders", partition), value, -1 if value is None else 0), -1, -1, False)
        for partition, value in [(1, values[0]), (2, values[1]), (1, values[2])]
    ]
    both = twins(oracle, log)
    found = both.ours.fetch_offsets(OffsetFetchRequestGroup("g", topics=None), require_stable=False)
    assert [(part.partition_index, part.committed_offset) for topic in found.topics for part in topic.partitions] == [(2, 6)]
    both.advance(600_000)  # the offsets are older than any retention
    assert both.ours.fetch_offsets(OffsetFetchRequestGroup("g", topics=None), require_stable=True).topics == []


def test_offset_with_a_pending_one_does_not_expire(oracle: Oracle) -> None:
    """The transaction may commit it again. After the transaction, the offset expires."""
    both = twins(oracle, **{"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000})
    topics = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(index, 5) for index in (0, 1)])]
    both.ask("commit_offset", OffsetCommitRequest("g", topics=topics), 9, written_as=9)
    pending = [TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(1, 6)])]
    both.ask("commit_transactional_offset", TxnOffsetCommitRequest("t", "g", 7, 0, topics=pending), 5, producer=(7, 0))
    both.commit()

    def left() -> list[int]:
        found = both.ours.fetch_offsets(OffsetFetchRequestGroup("g", topics=None), require_stable=False)
        return [part.partition_index for topic in found.topics for part in topic.partitions]

    both.advance(61_000)
    both.commit()
    assert left() == [1]
    both.end_transaction(7, 0, is_commit=False)
    both.advance(1000)
    both.commit()
    assert left() == []


def test_transactional_commits_of_unknown_members(oracle: Oracle) -> None:
    """Both answer alike to a transactional commit of a member that the group does not know, and to one without a group."""
    both = twins(oracle)
    topics = [TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(1, 6)])]
    for generation, member in ((3, "m"), (-1, ""), (0, "m")):
        request = TxnOffsetCommitRequest("t", "g", 7, 0, generation, member, topics=topics)
        answer = both.ask("commit_transactional_offset", request, 5, producer=(7, 0))
        assert answer.error == {3: "ILLEGAL_GENERATION", -1: None, 0: "UNKNOWN_MEMBER_ID"}[generation]


def test_rebalance_while_a_static_leader_is_written(oracle: Oracle) -> None:
    """The member is answered when the rebalance ends, not when the record is committed."""
    both = twins(oracle)
    joined = stable(both, ("i1", "i2", "i3"))
    leader = next(each for each in joined if each.leader == each.member_id)
    other = next(each for each in joined if each.leader != each.member_id)
    join(both, "", leader.member_id[:2])
    both.ask("classic_group_leave", LeaveGroupRequest("g", members=[MemberIdentity("", other.member_id[:2])]), 5)
    both.commit()
    assert answers(both) == []
    both.advance(20_000)
    assert [answer.error_code for answer in answers(both)] == [0]


def test_static_leader_is_gone_before_it_is_written(oracle: Oracle) -> None:
    """The write fails after the member has left, so there is nothing to undo."""
    both = twins(oracle)
    stable(both, ("i1", "i2"))
    join(both, "", "i1")
    both.ask("classic_group_leave", LeaveGroupRequest("g", members=[MemberIdentity("", "i1")]), 5)
    both.time_out("REQUEST_TIMED_OUT")
    both.advance(60_000)
    assert len(answers(both)) == 1
