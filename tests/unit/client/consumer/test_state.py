"""The state of assigned partitions: seeks, resets, new leaders, validation and truncation (Kafka's SubscriptionStateTest)."""

from __future__ import annotations

import pytest

from kops.client.consumer.options import TO_BEGINNING, TO_END
from kops.client.consumer.parts.state import Kind, Phase, Position, Subscriptions, Truncation
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.metadata import Leader
from kops.errors import UsageError
from kops.records.log_offsets import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
OLD, NEW = Leader(1, 4), Leader(2, 5)


def test_one_kind_of_subscription() -> None:
    subscriptions = Subscriptions(None)
    subscriptions.set_kind(Kind.TOPICS)
    with pytest.raises(UsageError, match="call unsubscribe"):
        subscriptions.set_kind(Kind.ASSIGNED)
    subscriptions.unsubscribe()
    subscriptions.set_kind(Kind.ASSIGNED)
    subscriptions.assign([A, B])
    subscriptions.state(A).seek(Position(3))
    subscriptions.assign([A])
    assert subscriptions.state(A).position == Position(3)
    with pytest.raises(UsageError, match="b-0 is not assigned"):
        subscriptions.state(B)


def test_positions_that_may_be_read() -> None:
    subscriptions = Subscriptions(TO_END)
    subscriptions.set_kind(Kind.TOPICS)
    subscriptions.topics = frozenset("a")
    subscriptions.assign([A, B])
    assert subscriptions.initializing() == [A, B] and not subscriptions.is_fetchable(A)
    for key in (A, B):
        subscriptions.state(key).seek(Position(3, 1))
    assert subscriptions.is_fetchable(A)
    assert not subscriptions.is_fetchable(B)  # no longer subscribed
    for name in ("is_paused", "is_revoking", "has_pending_call"):
        setattr(subscriptions.state(A), name, True)
        assert not subscriptions.is_fetchable(A)
        setattr(subscriptions.state(A), name, False)
    subscriptions.state(A).request_reset(TO_BEGINNING)
    assert subscriptions.consumed() == {B: OffsetAndMetadata(3, "", 1)}
    assert subscriptions.due(Phase.RESETTING, 0) == [A]
    subscriptions.retry_at([A], 50)
    assert subscriptions.due(Phase.RESETTING, 49) == []
    subscriptions.move_to_end(A)
    assert list(subscriptions.partitions) == [B, A]


def test_a_new_leader_validates_the_position() -> None:
    subscriptions = Subscriptions(None)
    subscriptions.assign([A])
    state = subscriptions.state(A)
    state.seek(Position(10, 4, OLD))
    state.prefer(7, 100)
    assert state.read_replica(100) == 7 and state.read_replica(101) is None
    state.prefer(7, 100)
    state.use_leader(OLD, can_validate=True)
    state.use_leader(Leader(-1, 6), can_validate=True)
    assert state.phase is Phase.FETCHING
    state.use_leader(NEW, can_validate=True)
    assert (state.phase, state.position, state.replica) == (Phase.VALIDATING, Position(10, 4, NEW), None)
    assert state.position is not None
    assert subscriptions.complete_validation(A, state.position, 4, 10) is None
    assert state.phase is Phase.FETCHING
    state.use_leader(Leader(3, 6), can_validate=False)  # this broker is too old for it
    assert (state.phase, state.position) == (Phase.FETCHING, Position(10, 4, Leader(3, 6)))
    state.seek_unvalidated(Position(2, None, NEW))  # no epoch, nothing to compare
    assert state.phase is Phase.FETCHING


@pytest.mark.parametrize(("epoch", "end"), [(4, 6), (-1, -1), (3, 9)])
def test_truncation(epoch: int, end: int) -> None:
    for reset in (None, TO_BEGINNING):
        subscriptions = Subscriptions(reset)
        subscriptions.assign([A])
        state = subscriptions.state(A)
        position = Position(10, 4, NEW)
        state.seek_unvalidated(position)
        assert subscriptions.complete_validation(A, Position(9, 4, NEW), epoch, end) is None  # it belongs to another position
        assert state.phase is Phase.VALIDATING
        found = subscriptions.complete_validation(A, position, epoch, end)
        if reset is None:
            assert found == Truncation(A, position, None if end < 0 else OffsetAndMetadata(end, "", epoch))
        elif end < 0:
            assert found is None and (state.phase, state.reset) == (Phase.RESETTING, TO_BEGINNING)
        else:
            assert found is None and (state.phase, state.position) == (Phase.FETCHING, Position(end, epoch, NEW))
