"""A member of a classic group: its requests, and its reaction to each answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kops.client.groups.assignors import Subscription
from kops.client.groups.consumer_protocol import read_subscription, write_assignment, write_subscription
from kops.client.groups.membership import Divide, FindCoordinator, GiveUp, GroupSettings, Membership, Prepare, Send, State, Take
from kops.client.groups.sticky import CooperativeSticky
from kops.client.groups.strategies import make_assignors
from kops.errors import ApiError, DecodeError, UsageError
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kops.protocol.messages.join_group_response import JoinGroupResponseMember
from kops.records.log_offsets import TopicPartition

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
NO_RACKS = [frozenset[str]()] * 3


class Member:
    """A membership with a clock, and shortcuts through a rebalance."""

    def __init__(self, assignor: str = "range", **settings: Any) -> None:
        self.now_ms = 1000.0
        self.core = Membership(GroupSettings("g", ["t"], **settings), make_assignors([assignor]), lambda failures: 100)

    def next(self) -> Any:
        return self.core.next_event(self.now_ms)

    def expect(self, kind: type[Any]) -> Any:
        event = self.next()
        found = event.message if isinstance(event, Send) else event
        assert isinstance(found, kind), found
        return found

    def answer(self, sent: Any, answer: Any) -> None:
        self.core.receive(sent, answer, self.now_ms)

    def begin(self) -> JoinGroupRequest:
        self.expect(FindCoordinator)
        self.core.coordinator_found()
        return self.prepare()

    def prepare(self) -> JoinGroupRequest:
        prepared: Prepare = self.expect(Prepare)
        self.core.prepared(prepared.revoked)
        joined: JoinGroupRequest = self.expect(JoinGroupRequest)
        return joined

    def joined(self, sent: JoinGroupRequest, *keys: TopicPartition, generation: int = 1) -> None:
        """Answer a join and a sync of a follower, which gets these partitions."""
        (protocol,) = sent.protocols
        self.answer(
            sent,
            JoinGroupResponse(
                generation_id=generation, protocol_type="consumer", protocol_name=protocol.name, leader="other", member_id="me"
            ),
        )
        sync = self.expect(SyncGroupRequest)
        assert (sync.generation_id, sync.member_id, sync.assignments) == (generation, "me", [])
        self.answer(sync, SyncGroupResponse(protocol_type="consumer", protocol_name=protocol.name, assignment=write_assignment(keys)))


def failed(kind: Any, name: str, **fields: Any) -> Any:
    return kind(error_code=by_name(name).code, **fields)


def test_a_member_id_is_given_first() -> None:
    member = Member()
    first = member.begin()
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 45_000, 300_000)
    member.answer(first, failed(JoinGroupResponse, "MEMBER_ID_REQUIRED", member_id="me"))
    second = member.expect(JoinGroupRequest)
    assert (second.member_id, second.reason) == ("me", "need to re-join with the given member-id: me")
    member.joined(second, T0, T1)
    assert member.expect(Take).keys == [T0, T1]
    assert member.next() is None and member.core.wake_ms() == member.now_ms + 3000


def test_the_leader_divides() -> None:
    member = Member()
    sent = member.begin()
    members = [JoinGroupResponseMember(name, None, write_subscription(Subscription(["t"]))) for name in ("me", "other")]
    answer = JoinGroupResponse(
        generation_id=4, protocol_type="consumer", protocol_name="range", leader="me", member_id="me", members=members
    )
    member.answer(sent, answer)
    divide = member.expect(Divide)
    assert member.core.is_leader and set(divide.members) == {"me", "other"}
    member.core.divide(divide.members, {"t": NO_RACKS})
    sync = member.expect(SyncGroupRequest)
    assert {one.member_id: one.assignment for one in sync.assignments} == {
        "me": write_assignment([T0, T1]),
        "other": write_assignment([T2]),
    }


def test_a_static_leader_that_comes_back_divides_nothing() -> None:
    member = Member(instance_id="i")
    sent = member.begin()
    answer = JoinGroupResponse(
        generation_id=4, protocol_type="consumer", protocol_name="range", leader="me", member_id="me", skip_assignment=True
    )
    member.answer(sent, answer)
    divide = member.expect(Divide)  # to watch the topics
    assert divide.keeps_assignment
    member.core.divide(divide.members, {"t": NO_RACKS})
    assert member.expect(SyncGroupRequest).assignments == []
    assert member.core.leave() is None


def test_a_rebalance_takes_everything_from_eager_members() -> None:
    member = Member()
    member.joined(member.begin(), T0, T1)
    member.expect(Take)
    member.now_ms += 3000
    beat = member.expect(HeartbeatRequest)
    assert member.next() is None
    member.answer(beat, failed(HeartbeatResponse, "REBALANCE_IN_PROGRESS"))
    prepare = member.expect(Prepare)
    assert (prepare.revoked, prepare.is_lost) == ([T0, T1], False)
    member.core.prepared(prepare.revoked)
    again = member.expect(JoinGroupRequest)
    subscription = read_subscription(again.protocols[0].metadata, None)
    assert (again.member_id, again.reason, subscription.owned) == ("me", "group is already rebalancing", [])
    member.joined(again, T1, T2, generation=2)
    assert member.expect(Take).keys == [T1, T2]


def test_a_cooperative_member_gives_up_only_what_others_get() -> None:
    member = Member("cooperative-sticky")
    member.joined(member.begin(), T0, T1)
    member.expect(Take)
    member.core.rejoin("why")
    again = member.prepare()
    subscription = read_subscription(again.protocols[0].metadata, None)
    assert (subscription.owned, subscription.generation, subscription.user_data) == ([T0, T1], 1, b"\0\0\0\1")
    member.joined(again, T0, generation=2)
    assert member.expect(GiveUp).keys == [T1]
    assert member.expect(Take).keys == []
    last = member.prepare()
    assert last.reason == "need to revoke partitions and re-join"
    member.joined(last, T0, T2, generation=3)
    assert member.expect(Take).keys == [T2] and member.core.owned == [T0, T2]


@pytest.mark.parametrize(("error", "member_id"), [("UNKNOWN_MEMBER_ID", ""), ("ILLEGAL_GENERATION", "me")])
def test_a_group_that_went_on_without_the_member(error: str, member_id: str) -> None:
    member = Member("cooperative-sticky")
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), failed(HeartbeatResponse, error))
    prepare = member.expect(Prepare)
    assert (prepare.revoked, prepare.is_lost) == ([T0], True)
    member.core.prepared(prepare.revoked)
    assert member.expect(JoinGroupRequest).member_id == member_id


def test_an_old_heartbeat_says_nothing() -> None:
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    beat = member.expect(HeartbeatRequest)
    member.core.rejoin("why")
    member.joined(member.prepare(), T0, generation=2)
    member.answer(beat, failed(HeartbeatResponse, "ILLEGAL_GENERATION"))
    assert (member.core.generation_id, member.core.state) == (2, State.STABLE)


@pytest.mark.parametrize("answer", [failed(HeartbeatResponse, "NOT_COORDINATOR"), ApiError("NETWORK_EXCEPTION", "it is gone")], ids=str)
def test_the_coordinator_moves(answer: Any) -> None:
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), answer)
    assert member.next() is None and member.core.why
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_not_found("none", member.now_ms)
    assert member.next() is None
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_found()
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), HeartbeatResponse())
    assert member.core.owned == [T0] and member.core.state is State.STABLE


def test_a_session_ends_without_answers() -> None:
    member = Member(session_timeout_ms=6000)
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    member.expect(HeartbeatRequest)
    member.now_ms += 2999
    assert member.next() is None
    member.now_ms += 1
    assert member.next() is None and "session" in member.core.why


def test_what_fails_for_good() -> None:
    for error in ("GROUP_AUTHORIZATION_FAILED", "INVALID_SESSION_TIMEOUT", "FENCED_INSTANCE_ID", "UNKNOWN_SERVER_ERROR"):
        member = Member()
        member.answer(member.begin(), failed(JoinGroupResponse, error))
        with pytest.raises(ApiError, match=r"^group g: ") as caught:
            member.next()
        assert caught.value.name == error
        assert member.core.take_error() is caught.value
        member.expect(JoinGroupRequest)  # a program that goes on tries again at once


def test_joins_and_syncs_are_tried_again() -> None:
    member = Member()
    sent = member.begin()
    member.answer(sent, failed(JoinGroupResponse, "COORDINATOR_LOAD_IN_PROGRESS"))
    assert member.next() is None
    member.now_ms += 100
    again = member.expect(JoinGroupRequest)
    joined = JoinGroupResponse(generation_id=1, protocol_name="range", protocol_type="consumer", leader="x", member_id="me")
    member.answer(again, joined)
    member.answer(member.expect(SyncGroupRequest), failed(SyncGroupResponse, "REBALANCE_IN_PROGRESS"))
    member.answer(member.expect(JoinGroupRequest), joined)
    sync = member.expect(SyncGroupRequest)
    member.answer(sync, failed(SyncGroupResponse, "ILLEGAL_GENERATION"))
    member.expect(Prepare)
    member.answer(sync, SyncGroupResponse(assignment=write_assignment([T0])))  # too late
    assert member.core.owned == []


@pytest.mark.parametrize("age", [0, 1], ids=["its generation", "a former generation"])
def test_commits_tell_of_rebalances(age: int) -> None:
    """Kafka's member also gives up a generation if a commit of a former one is refused."""
    for error, expected in [
        ("REBALANCE_IN_PROGRESS", (False, "me")),
        ("ILLEGAL_GENERATION", (True, "me")),
        ("UNKNOWN_MEMBER_ID", (True, "")),
    ]:
        member = Member()
        member.joined(member.begin(), T0)
        member.expect(Take)
        member.core.commit_failed(error, 1 - age, member.now_ms)
        assert (member.expect(Prepare).is_lost, member.core.member_id) == expected


def test_strategies_and_wrong_bytes() -> None:
    names = ["org.apache.kafka.clients.consumer.RangeAssignor", "roundrobin", "sticky", "cooperative-sticky"]
    assert [one.name for one in make_assignors(names)] == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    with pytest.raises(UsageError, match="strategy=stickiest: not supported; allowed: range"):
        make_assignors(["stickiest"])
    for data in (b"", b"\0", b"\xff\xff", b"\0\1\0"):
        with pytest.raises(DecodeError):
            read_subscription(data, None)
    later = b"\0\x09" + write_subscription(Subscription(["t"], [T0], 3, None, None, "rack"))[2:] + b"more"
    assert read_subscription(later, "i") == Subscription(["t"], [T0], 3, None, "i", "rack")


@pytest.mark.parametrize("error", ["GROUP_AUTHORIZATION_FAILED", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"])
def test_a_failed_heartbeat_is_repeated_after_a_pause(error: str) -> None:
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), failed(HeartbeatResponse, error))
    assert member.next() is None and member.core.wake_ms() == member.now_ms + 100
    member.now_ms += 100
    member.expect(HeartbeatRequest)


def test_reasons_to_join_again() -> None:
    member = Member()
    sent = member.begin()
    member.answer(sent, failed(JoinGroupResponse, "COORDINATOR_LOAD_IN_PROGRESS"))
    member.now_ms += 100
    sent = member.expect(JoinGroupRequest)
    assert sent.reason == "rebalance failed due to CoordinatorLoadInProgressException"
    member.joined(sent, T0)
    member.expect(Take)
    member.core.rejoin("r" * 300)
    member.core.rejoin("another one", keeps_reason=True)
    sent = member.prepare()
    assert sent.reason == "r" * 255
    member.joined(sent, T0)
    member.expect(Take)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), failed(HeartbeatResponse, "UNKNOWN_MEMBER_ID"))
    assert member.core.leave() is None  # the coordinator does not know this member
    sent = member.prepare()
    assert (sent.reason, sent.member_id) == ("encountered UNKNOWN_MEMBER_ID from HEARTBEAT response", "")


def test_an_assignment_that_does_not_match_the_subscription() -> None:
    """The assignment is rejected, and the member joins again. With a pattern, every topic that the pattern accepts matches."""
    member = Member()
    other = TopicPartition("u", 0)
    member.joined(member.begin(), T0, other)
    sent = member.prepare()
    assert sent.reason == "received assignment does not match the current subscription" and member.core.owned == []
    member.core.accepts = "u".__eq__
    member.joined(sent, T0, other)
    assert member.expect(Take).keys == [T0, other]


def test_the_coordinator_is_lost_during_a_rebalance() -> None:
    """The answer of the old coordinator is ignored."""
    member = Member()
    sent = member.begin()
    member.core.coordinator_lost("gone", member.now_ms)
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_found()
    again = member.expect(JoinGroupRequest)
    assert again.reason == "rebalance failed due to DisconnectException"
    member.answer(sent, JoinGroupResponse(generation_id=7, protocol_type="consumer", protocol_name="range", leader="x", member_id="old"))
    assert member.core.state is State.JOINING and member.next() is None


def test_topics_that_are_no_longer_subscribed_are_revoked_before_a_cooperative_rebalance() -> None:
    member = Member("cooperative-sticky")
    member.core.accepts = "u".__eq__
    other = TopicPartition("u", 0)
    member.joined(member.begin(), T0, other)
    member.expect(Take)
    member.core.accepts = None
    member.core.rejoin("subscription has changed")
    assert member.expect(Prepare) == Prepare([other], is_lost=False)


def test_an_assignor_of_the_user_that_breaks_the_cooperative_protocol() -> None:
    class Greedy(CooperativeSticky):
        name = "greedy"

        def assign(self, topics: Any, members: Any) -> Any:
            return {"me": [T0], "other": []}

    member = Member()
    member.core = Membership(GroupSettings("g", ["t"]), [Greedy()], lambda failures: 100)
    sent = member.begin()
    member.answer(sent, JoinGroupResponse(generation_id=1, protocol_type="consumer", protocol_name="greedy", leader="me", member_id="me"))
    divide = member.expect(Divide)
    member.core.divide({"me": Subscription(["t"]), "other": Subscription(["t"], [T0], 1)}, {"t": NO_RACKS})
    assert divide.members == {}
    with pytest.raises(ApiError, match="before their owners have revoked them"):
        member.next()


def test_a_heartbeat_ends_a_rebalance() -> None:
    """All partitions are lost at once, but the next rebalance waits for the answer that is still in flight."""
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.core.rejoin("again")
    sent = member.prepare()
    (protocol,) = sent.protocols
    joined = JoinGroupResponse(generation_id=2, protocol_type="consumer", protocol_name=protocol.name, leader="x", member_id="me")
    member.answer(sent, joined)
    sync = member.expect(SyncGroupRequest)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), failed(HeartbeatResponse, "UNKNOWN_MEMBER_ID"))
    prepared = member.expect(Prepare)
    assert prepared.is_lost
    member.core.prepared(prepared.revoked)
    assert member.next() is None
    member.answer(sync, SyncGroupResponse(protocol_type="consumer", assignment=write_assignment([T1])))
    assert member.expect(JoinGroupRequest).reason == "rebalance failed due to IllegalGenerationException"
    assert member.core.owned == []


def test_a_subscription_that_changes_during_a_rebalance() -> None:
    member = Member()
    sent = member.begin()
    member.core.settings = replace(member.core.settings, topics=["t", "u"])
    member.joined(sent, T0)
    member.expect(Take)
    assert member.prepare().reason == "subscription has changed"


def test_a_subscription_that_changes_back_needs_no_rebalance() -> None:
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.core.coordinator_lost("gone", member.now_ms)  # without a coordinator, nobody compares
    member.core.settings = replace(member.core.settings, topics=["u"])
    assert member.next() is None
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.settings = replace(member.core.settings, topics=["t"])
    member.core.coordinator_found()
    assert member.next() is None and member.core.state is State.STABLE
    member.core.add_topics(["t2"])  # which the leader has assigned
    assert member.next() is None
    member.core.settings = replace(member.core.settings, topics=["u"])
    assert member.prepare().reason == "subscription has changed"


def test_a_heartbeat_ends_a_rebalance_before_the_join_is_answered() -> None:
    """The member that the answer names is not this one any more. It waits before it joins again."""
    member = Member()
    member.joined(member.begin(), T0)
    member.expect(Take)
    member.now_ms += 3000
    beat = member.expect(HeartbeatRequest)
    member.core.rejoin("again")
    sent = member.prepare()
    member.answer(beat, failed(HeartbeatResponse, "UNKNOWN_MEMBER_ID"))
    member.core.prepared(member.expect(Prepare).revoked)
    member.answer(sent, JoinGroupResponse(generation_id=2, protocol_type="consumer", protocol_name="range", leader="x", member_id="me"))
    assert member.next() is None and member.core.member_id == ""
    member.now_ms += 100
    assert member.expect(JoinGroupRequest).reason == "rebalance failed due to UnjoinedGroupException"


@pytest.mark.parametrize("name", ["NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"])
def test_a_broker_that_sends_the_code_of_a_lost_connection(name: str) -> None:
    """The coordinator stays, and no retry is suggested, as with any other code that JoinGroup does not have."""
    member = Member()
    member.answer(member.begin(), failed(JoinGroupResponse, name))
    with pytest.raises(ApiError, match=name) as caught:
        member.next()
    assert caught.value.name == "UNKNOWN_SERVER_ERROR"
    member.core.take_error()
    member.now_ms += 100
    member.joined(member.expect(JoinGroupRequest), T0)
    member.expect(Take)
    member.now_ms += 3000
    member.answer(member.expect(HeartbeatRequest), failed(HeartbeatResponse, name))
    member.now_ms += 100
    member.expect(HeartbeatRequest)
