"""Members of groups whose coordinator assigns the partitions: their requests, and their reaction to each answer."""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.groups.membership import FindCoordinator, Send
from kops.client.groups.modern.consumer import REGEX_NOT_SUPPORTED, ConsumerMember, Leaving
from kops.client.groups.modern.events import Assigned, Cleared, Commit, Failed, FindTopics, Left, Lost, Pause, Reconciled, Revoked
from kops.client.groups.modern.heartbeats import ModernSettings
from kops.client.groups.modern.share import ShareMember
from kops.client.groups.modern.states import MemberState
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kops.protocol.messages import consumer_group_heartbeat_response as consumer_response
from kops.protocol.messages import share_group_heartbeat_response as share_response
from kops.records.log_offsets import TopicPartition

ID, OTHER = b"1" * 16, b"2" * 16
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


class Member:
    """A member of a group with a clock. `names` has the topics that the metadata knows."""

    def __init__(self, *, has_listener: bool = True, **settings: Any) -> None:
        self.now_ms = 10_000.0
        self.names = {ID: "t"}
        self.core = ConsumerMember(ModernSettings("g", **settings), "me", self.names.get, lambda failures: 100, 0)
        self.core.has_listener = has_listener

    def events(self) -> list[Any]:
        found = []
        while (event := self.core.next_event(self.now_ms)) is not None:
            found.append(event)
        return found

    def expect(self, *kinds: type[Any]) -> Any:
        """Check the kinds of the next events. Return the last event, or its message."""
        found = self.events()
        assert [type(event) for event in found] == list(kinds), found
        return found[-1].message if isinstance(found[-1], Send) else found[-1]

    def join(self, *topics: str, pattern: str | None = None) -> ConsumerGroupHeartbeatRequest:
        self.expect(FindCoordinator)
        self.core.coordinator_found(self.now_ms)
        self.core.subscribe(topics or ("t",), pattern)
        self.core.polled(self.now_ms)
        found: ConsumerGroupHeartbeatRequest = self.expect(Send)
        return found

    def answer(self, sent: Any, epoch: int = 1, assigned: dict[bytes, list[int]] | None = None, error: str = "NONE") -> None:
        made = None
        if assigned is not None:
            made = consumer_response.Assignment([consumer_response.TopicPartitions(*one) for one in assigned.items()])
        answer = ConsumerGroupHeartbeatResponse(0, by_name(error).code, None, "me", epoch, 3000, made)
        self.core.receive(sent, answer, self.now_ms)

    def stable(self, *keys: int) -> None:
        """Join, and get these partitions."""
        self.answer(self.join(), assigned={ID: list(keys)})
        self.core.polled(self.now_ms)
        if self.core.commits_before_rebalance:
            self.core.done(self.expect(Commit))
        self.take(self.expect(Assigned))
        self.answer(self.expect(Reconciled, Send))
        assert self.core.state is MemberState.STABLE

    def take(self, assigned: Assigned) -> None:
        assert self.core.apply(assigned)
        self.core.done(assigned)

    def beat(self) -> Any:
        """Return the next heartbeat when it is due."""
        self.now_ms = self.core.wake_ms()
        return self.expect(Send)


def test_the_first_heartbeats() -> None:
    """The first heartbeat has all fields. Later ones have only what has changed, and the partitions to acknowledge them."""
    member = Member(instance_id="i", rack="r", server_assignor="uniform", auto_commits=False, max_poll_interval_ms=60_000)
    sent = member.join("t", "u")
    assert sent == ConsumerGroupHeartbeatRequest("g", "me", 0, "i", "r", 60_000, ["t", "u"], None, "uniform", [])
    member.answer(sent, epoch=4, assigned={ID: [1, 0]})
    assigned = member.expect(Assigned)  # without commits and revocations, there is no need to wait for a poll
    assert assigned.keys == assigned.added == (T0, T1)
    member.take(assigned)
    assert member.core.owned == {T0, T1} and member.core.group_epoch == 4
    acknowledged = member.expect(Reconciled, Send)
    assert acknowledged.topic_partitions is not None and [one.partitions for one in acknowledged.topic_partitions] == [[0, 1]]
    assert (acknowledged.subscribed_topic_names, acknowledged.rack_id, acknowledged.rebalance_timeout_ms) == (None, None, -1)
    member.answer(acknowledged, epoch=4)
    assert member.events() == [] and member.core.wake_ms() == member.now_ms + 3000
    assert member.beat() == ConsumerGroupHeartbeatRequest("g", "me", 4, "i")


def test_revoked_before_assigned() -> None:
    """The order is commit, listener, assignment, acknowledgement. Nothing happens without a poll."""
    member = Member()
    member.stable(0, 1)
    member.answer(member.beat(), epoch=2, assigned={ID: [1, 2]})
    assert member.events() == [] and member.core.state is MemberState.RECONCILING
    member.core.polled(member.now_ms)
    pause, commit = member.events()
    assert pause == Pause((T0,)) and commit.deadline_ms == member.now_ms + 300_000
    member.core.done(commit, is_ok=False)
    revoked = member.expect(Pause, Revoked)
    assert revoked.keys == (T0,)
    member.core.done(revoked)
    assigned = member.expect(Assigned)
    assert (assigned.keys, assigned.added) == ((T1, T2), (T2,))
    member.take(assigned)
    sent = member.expect(Reconciled, Send)
    assert sent.topic_partitions[0].partitions == [1, 2] and sent.member_epoch == 2


@pytest.mark.parametrize("error", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"])
def test_a_fenced_member_loses_everything_and_joins(error: str) -> None:
    member = Member()
    member.stable(0)
    member.answer(member.beat(), error=error)
    lost = member.expect(Pause, Lost)
    assert lost.keys == (T0,) and member.core.state is MemberState.FENCED and member.core.group_epoch is None
    member.core.done(lost)
    sent = member.expect(Cleared, Send)
    assert (sent.member_epoch, sent.member_id, sent.topic_partitions) == (0, "me", [])
    assert member.core.owned == frozenset()


def test_an_assignment_that_a_fence_overtakes() -> None:
    member = Member(auto_commits=False)
    member.answer(member.join(), assigned={ID: [0]})
    assigned = member.expect(Assigned)
    member.now_ms += 3000
    member.answer(member.expect(Send), error="FENCED_MEMBER_EPOCH")
    assert not member.core.apply(assigned) and member.core.owned == frozenset()
    member.core.done(assigned)
    assert member.core.state is MemberState.JOINING


def test_topics_without_a_name() -> None:
    """The member takes over and acknowledges the known part. The rest follows with the metadata."""
    member = Member(auto_commits=False)
    member.answer(member.join(), assigned={ID: [0], OTHER: [0]})
    find, assigned = member.events()
    assert find == FindTopics((OTHER,)) and assigned.keys == (T0,) and member.core.target_topic_ids == {ID, OTHER}
    member.take(assigned)
    sent = member.expect(Reconciled, Send)
    assert [one.topic_id for one in sent.topic_partitions] == [ID]
    member.core.metadata_changed()
    member.answer(sent)
    again, find = member.events()  # as in Kafka, it is acknowledged again and again until the name is known
    assert again.message.topic_partitions is None and find == FindTopics((OTHER,))
    member.names[OTHER] = "u"
    member.answer(again.message)
    again, assigned = member.events()
    assert assigned.added == (TopicPartition("u", 0),)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving(instance_id: str | None, epoch: int) -> None:
    member = Member(instance_id=instance_id)
    member.stable(0)
    member.core.leave()
    member.core.leave()  # a second call changes nothing
    revoked = member.expect(Pause, Revoked)
    member.core.done(revoked)
    sent = member.expect(Cleared, Send)
    assert sent.member_epoch == epoch and member.core.state is MemberState.UNSUBSCRIBED
    member.answer(sent, epoch=epoch)
    assert member.events() == [Left()]
    member.core.leave()
    assert member.events() == [Cleared(unsubscribes=True), Left()]


@pytest.mark.parametrize(("leaving", "epoch"), [(Leaving.DEFAULT, -2), (Leaving.LEAVE, -1), (Leaving.REMAIN, -2)])
def test_ways_to_close_of_a_static_member(leaving: Leaving, epoch: int) -> None:
    member = Member(instance_id="i")
    member.stable(0)
    member.core.close(leaving)
    assert member.expect(Cleared, Send).member_epoch == epoch


def test_no_poll_in_time() -> None:
    """The member leaves, loses everything, and joins again with the next poll."""
    member = Member(max_poll_interval_ms=10_000)
    member.stable(0)
    while member.core.state is not MemberState.STALE:
        assert member.now_ms < 20_001
        member.now_ms = member.core.wake_ms()
        events = member.events()
        if len(events) == 1:
            member.answer(events[0].message)
    pause, lost, leave = events
    assert (pause.keys, lost.keys, leave.message.member_epoch) == ((T0,), (T0,), -1)
    member.answer(leave.message, error="UNKNOWN_MEMBER_ID")  # its answer does not matter
    member.core.polled(member.now_ms)
    assert member.core.state is MemberState.STALE
    member.core.done(lost)
    assert member.expect(Cleared, Send).member_epoch == 0


FATAL = {
    "GROUP_AUTHORIZATION_FAILED": "Not authorized to access group: g",
    "INVALID_REQUEST": by_name("INVALID_REQUEST").words,
    "UNRELEASED_INSTANCE_ID": by_name("UNRELEASED_INSTANCE_ID").words,
    "FENCED_INSTANCE_ID": by_name("FENCED_INSTANCE_ID").words,
    "UNKNOWN_SERVER_ERROR": by_name("UNKNOWN_SERVER_ERROR").words,
}


@pytest.mark.parametrize("error", FATAL)
def test_fatal_errors(error: str) -> None:
    member = Member()
    member.stable(0)
    member.answer(member.beat(), error=error)
    failed, pause, lost = member.events()
    assert (failed.error.name, str(failed.error), pause.keys) == (error, FATAL[error], (T0,))
    member.core.done(lost)
    assert member.events() == [Cleared(unsubscribes=False)]
    member.core.subscribe(["u"])
    member.core.polled(member.now_ms)
    assert member.events() == [] and member.core.wake_ms() == float("inf")


def test_errors_of_the_network() -> None:
    """A lost coordinator is looked up again after a pause. A broker without the protocol is a fatal error."""
    member = Member()
    sent = member.join(pattern="t.*")
    assert sent.subscribed_topic_regex == "t.*"
    member.core.receive(sent, ApiError("NETWORK_EXCEPTION", "gone"), member.now_ms)
    assert member.events() == [] and member.core.wake_ms() == member.now_ms + 100
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_not_found(ApiError("COORDINATOR_NOT_AVAILABLE", "none"), member.now_ms)
    assert member.events() == [] and member.core.wake_ms() == member.now_ms + 100 and member.core.why == "none"
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_not_found(ApiError("GROUP_AUTHORIZATION_FAILED", "no"), member.now_ms)
    assert str(member.expect(Failed).error) == "Not authorized to access group: g"
    assert member.core.state is MemberState.JOINING
    member.now_ms += 100
    member.expect(FindCoordinator)
    member.core.coordinator_found(member.now_ms)
    again = member.expect(Send)
    assert again == sent
    member.core.receive(again, ApiError("UNSUPPORTED_VERSION", REGEX_NOT_SUPPORTED), member.now_ms)
    failed, cleared = member.events()
    assert (str(failed.error), cleared) == (REGEX_NOT_SUPPORTED, Cleared(unsubscribes=False))


def test_a_share_member_takes_its_assignment_at_once() -> None:
    now_ms = 1000.0
    member = ShareMember(ModernSettings("s", rack="r"), "me", lambda one: "t", lambda failures: 100, now_ms)
    assert isinstance(member.next_event(now_ms), FindCoordinator)
    member.coordinator_found(now_ms)
    member.subscribe(["t"])
    member.polled(now_ms)
    sent = member.next_event(now_ms)
    assert isinstance(sent, Send) and sent.message == ShareGroupHeartbeatRequest("s", "me", 0, "r", ["t"])
    assignment = share_response.Assignment([share_response.TopicPartitions(ID, [0, 1])])
    member.receive(sent.message, ShareGroupHeartbeatResponse(0, 0, None, "me", 3, 5000, assignment), now_ms)
    assigned = member.next_event(now_ms)
    assert isinstance(assigned, Assigned) and assigned.added == (T0, T1) and member.owned == {T0, T1}
    assert isinstance(member.next_event(now_ms), Reconciled)
    acknowledged = member.next_event(now_ms)
    assert isinstance(acknowledged, Send) and acknowledged.message == ShareGroupHeartbeatRequest("s", "me", 3)
    assert member.state is MemberState.STABLE and member.next_event(now_ms) is None
    member.leave()
    cleared, leave = member.next_event(now_ms), member.next_event(now_ms)
    assert cleared == Cleared(unsubscribes=True) and isinstance(leave, Send)
    assert leave.message == ShareGroupHeartbeatRequest("s", "me", -1, None, [])
