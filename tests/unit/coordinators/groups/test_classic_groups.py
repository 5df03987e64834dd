"""Classic groups without Kafka beside them: a rebalance from beginning to end, its timers, and what is written."""

from __future__ import annotations

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.errors import ApiError
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages.group_metadata_value import GroupMetadataValue
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from tests.support.parts.groups.group_shard import GroupShard


def joined_pair(shard: GroupShard) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Return two members of the first generation, the leader first."""
    promises = [shard.join(), shard.join()]
    shard.advance(6000)
    first, second = (promise.result() for promise in promises)
    return (first, second) if first.leader == first.member_id else (second, first)


def test_a_rebalance() -> None:
    """The leader gets the members and sends the assignment. All members get theirs when it is written."""
    shard = GroupShard()
    leader, other = joined_pair(shard)
    assert sorted(member.member_id for member in leader.members) == ["c-id1", "c-id2"] and other.members == []
    assert (leader.generation_id, leader.protocol_name, shard.state()) == (1, "range", "CompletingRebalance")
    waits = shard.sync(other)
    assert not waits.is_done
    assert shard.sync(leader, "c-id1", "c-id2").result().assignment == leader.member_id.encode()
    assert (waits.result().assignment, shard.state()) == (other.member_id.encode(), "Stable")
    written = shard.log[-1].value
    assert isinstance(written, GroupMetadataValue) and len(written.members) == 2


def test_heartbeats_that_change_nothing() -> None:
    """Such a heartbeat only restarts the session."""
    shard = GroupShard()
    leader, other = joined_pair(shard)

    def keeps(member_id: str, generation: int = 1, instance: str | None = None) -> bool:
        return shard.shard.keep_classic_member(HeartbeatRequest("g", generation, member_id, instance))

    shard.sync(other)
    assert not keeps(other.member_id), "the group is not stable yet"
    shard.sync(leader, "c-id1", "c-id2")
    for _ in range(8):
        shard.advance(9000)
        assert keeps(leader.member_id) and keeps(other.member_id)
    assert not keeps("c-id3") and not keeps(leader.member_id, 2) and not keeps(leader.member_id, 1, "i")
    assert not shard.shard.keep_classic_member(HeartbeatRequest("absent", 1, leader.member_id))
    assert shard.state() == "Stable"
    for _ in range(3):
        shard.advance(9000)
        assert keeps(leader.member_id)
    shard.advance(9000)
    assert not keeps(leader.member_id), "the other member is out"


def test_a_member_needs_an_id_from_version_4_on() -> None:
    """A member gets an id and joins again with it (KIP-394)."""
    shard = GroupShard()
    answer = shard.join(version=4).result()
    assert (by_code(answer.error_code).name, answer.member_id) == ("MEMBER_ID_REQUIRED", "c-id1")
    assert len(shard.log) == 1, "the group is written"
    again = shard.join(answer.member_id, version=4)
    shard.advance(3000)
    assert again.result().error_code == 0


def test_the_first_rebalance_waits_for_more_members() -> None:
    """It waits three seconds after the last member, but not longer than the rebalance timeout."""
    shard = GroupShard()
    first = shard.join()
    shard.advance(2000)
    second = shard.join()
    shard.advance(3500)
    assert not first.is_done
    shard.advance(500)
    assert first.is_done and second.is_done


def test_a_silent_member_is_out() -> None:
    """Its session ends, and the others rebalance."""
    shard = GroupShard()
    leader, other = joined_pair(shard)
    waits = shard.sync(other)
    shard.sync(leader, "c-id1", "c-id2")
    assert waits.is_done
    for _ in range(4):
        shard.advance(10_000)
        beat = HeartbeatRequest("g", 1, other.member_id)
        response = shard.write(shard.shard.classic_group_heartbeat(RequestContext(4, "c", "/h", 12), beat))
    assert by_code(response.error_code).name == "REBALANCE_IN_PROGRESS"
    again = shard.join(other.member_id)
    assert again.result().leader == other.member_id


def test_the_assignment_cannot_be_written() -> None:
    """The members get an error, and the group rebalances."""
    shard = GroupShard()
    leader, other = joined_pair(shard)
    waits = shard.sync(other)
    failed = shard.sync(leader, error=ApiError("NOT_LEADER_OR_FOLLOWER"))
    assert {by_code(promise.result().error_code).name for promise in (waits, failed)} == {"NOT_COORDINATOR"}
    assert shard.state() == "PreparingRebalance"


def test_a_new_group_cannot_be_written() -> None:
    """The group is removed again."""
    shard = GroupShard()
    promise = shard.join(error=ApiError("REQUEST_TIMED_OUT"))
    assert by_code(promise.result().error_code).name == "COORDINATOR_NOT_AVAILABLE"
    assert list(shard.shard.list_groups([], [])) == [] and shard.state() == "Dead"
    with pytest.raises(ApiError, match="Group g not found"):
        shard.shard.classic_group_heartbeat(RequestContext(4, "c", "/h", 12), HeartbeatRequest("g", 1, "m"))


def test_a_static_member_comes_back_with_a_new_id() -> None:
    """Nobody rebalances (KIP-345). A member that still uses the old id is fenced."""
    shard = GroupShard()
    first = shard.join(instance="i", version=9)
    shard.advance(3000)
    shard.sync(first.result(), "i-id1")
    again = shard.join(instance="i", version=9).result()
    assert (again.member_id, again.generation_id, again.skip_assignment) == ("i-id2", 1, True)
    beat = HeartbeatRequest("g", 1, "i-id1", "i")
    with pytest.raises(ApiError, match="FENCED_INSTANCE_ID"):
        shard.shard.classic_group_heartbeat(RequestContext(4, "c", "/h", 12), beat)


def test_all_members_leave() -> None:
    """The empty group is written. A static member may leave by its instance id."""
    shard = GroupShard()
    joined = shard.join(instance="i")
    shard.advance(3000)
    shard.sync(joined.result(), "i-id1")
    request = LeaveGroupRequest("g", members=[MemberIdentity("", "i"), MemberIdentity("", "j")])
    response = shard.write(shard.shard.classic_group_leave(RequestContext(5, "c", "/h", 13), request))
    assert [member.error_code for member in response.members] == [0, by_name("UNKNOWN_MEMBER_ID").code]
    written = shard.log[-1].value
    assert isinstance(written, GroupMetadataValue) and written.members == [] and shard.state() == "Empty"


def test_the_group_is_loaded() -> None:
    """Members continue where the log ends, and their sessions begin again."""
    shard = GroupShard()
    leader, other = joined_pair(shard)
    shard.sync(other)
    shard.sync(leader, "c-id1", "c-id2")
    again = GroupShard(shard.log)
    assert again.state() == "Stable"
    assert {key for key in again.timer.dues() if key.startswith("heartbeat")} == {"heartbeat-g-c-id1", "heartbeat-g-c-id2"}
    assert again.sync(other).result().assignment == other.member_id.encode()


def test_unloaded_members_look_for_the_new_coordinator() -> None:
    """Waiting members get an error."""
    shard = GroupShard()
    waits = shard.join()
    shard.shard.on_unloaded()
    assert by_code(waits.result().error_code).name == "NOT_COORDINATOR"
