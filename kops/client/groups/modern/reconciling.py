"""The states of a member whose coordinator assigns the partitions, and how it gets from its assignment to the one that it should have.

    UNSUBSCRIBED -> JOINING -> RECONCILING -> (commit, revoke, assign) -> ACKNOWLEDGING -> STABLE -> RECONCILING ...
    any of them  -> FENCED (lose everything) -> JOINING
                 -> LEAVING -> STALE (no poll in time: lose everything) -> JOINING with the next poll
                 -> PREPARE_LEAVING (revoke everything) -> LEAVING -> UNSUBSCRIBED
                 -> FATAL

Source: Kafka's AbstractMembershipManager. One difference is intended: an assignment that was overtaken (the member was fenced or left
before the application polled) is not applied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.groups.modern.events import (
    Assigned,
    Cleared,
    Commit,
    Event,
    FindTopics,
    Left,
    Lost,
    Pause,
    Reconciled,
    Revoked,
    Work,
)
from kops.client.groups.modern.states import NOT_IN_GROUP, TAKES_ASSIGNMENTS, MemberState, may_become
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.messages.consumer_group_heartbeat_response import TopicPartitions as ConsumerPartitions
    from kops.protocol.messages.share_group_heartbeat_response import TopicPartitions as SharePartitions

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
Partitions = Mapping[bytes, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """Partitions by topic id. The epoch counts the assignments that the coordinator has sent; it is not that of the group."""

    epoch: int
    partitions: Partitions


NONE: Final = LocalAssignment(-1, {})


class Rebalance(NamedTuple):
    """An assignment that is being reconciled."""

    local: LocalAssignment
    assigned: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]


class Reconciling(ABC):
    """The state of a member, without its heartbeats. Readers may use `state`, `member_id`, `member_epoch` and `owned`.

    `name_of(topic_id)` returns a topic's name if the metadata has it.
    """

    commits_before_rebalance: bool = False
    has_listener: bool = False

    def __init__(self, group_id: str, member_id: str, name_of: Callable[[bytes], str | None]) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED
        self.owned: frozenset[TopicPartition] = frozenset()
        self.topics: tuple[str, ...] = ()
        self.pattern: str | None = None
        self.rebalance_timeout_ms = 0
        self._name_of = name_of
        self._is_subscribed = False
        self._is_updated = False
        self._current = NONE
        self._target = NONE
        self._names: dict[bytes, str] = {}  # of the target, in case the metadata forgets them
        self._asked_for: tuple[bytes, ...] = ()
        self._is_reconciling = False
        self._has_rejoined = False  # since the reconciliation began
        self._is_leaving = False
        self._has_poll_expired = False
        self._is_releasing = False  # a stale member that has not lost its partitions yet
        self._rejoins_when_released = False
        self._work: dict[Work, Callable[[bool], None]] = {}
        self._events: deque[Event] = deque()

    # what the consumer tells

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None) -> None:
        """Replace the subscription: topics, or a pattern (RE2) that the coordinator resolves. A new member joins with the next poll."""
        self.topics, self.pattern = tuple(dict.fromkeys(topics)), pattern
        self._is_subscribed = self._is_updated = True

    def leave(self) -> None:
        """Revoke all partitions and leave. The event `Left` follows, at the latest when the answer of the coordinator is there."""
        self._leave(calls_listener=True)

    def metadata_changed(self) -> None:
        """Look again for the names of assigned topics."""
        self._asked_for = ()

    @property
    def target_topic_ids(self) -> frozenset[bytes]:
        """The topic ids of the assignment that the coordinator wants. Metadata requests include them."""
        return frozenset(self._target.partitions)

    @property
    def group_epoch(self) -> int | None:
        """The member epoch for commits, or None if the member is not in the group."""
        return self.member_epoch if self.member_epoch > 0 and self.state is not MemberState.FATAL else None

    def apply(self, assigned: Assigned) -> bool:
        """Take over an assignment in a poll of the application. Return False if it is out of date: then only call `done`."""
        if assigned not in self._work or self._is_overtaken:
            return False
        self.owned = frozenset(assigned.keys)
        return True

    def done(self, work: Work, *, is_ok: bool = True) -> None:
        """Continue after `Commit`, `Revoked`, `Lost` or `Assigned`. `is_ok` is whether the commit, or the listener, has succeeded."""
        then = self._work.pop(work, None)
        if then is not None:
            then(is_ok)

    # leaving

    def _leave_epoch(self) -> int:
        """Return the epoch of the heartbeat that leaves the group."""
        return LEAVE_EPOCH

    def _leave(self, *, calls_listener: bool) -> None:
        if self.state in NOT_IN_GROUP:
            if self.state is MemberState.FENCED:
                self._clear()
                self._become(MemberState.UNSUBSCRIBED)
            self._unsubscribe()
            self._events.append(Left())
            return
        if self._is_leaving:
            return
        self._become(MemberState.PREPARE_LEAVING)
        self._is_leaving = True
        if calls_listener:
            self._release_before_leaving(lambda is_ok: self._clear_and_leave())
        else:
            self._clear_and_leave()

    def _release_before_leaving(self, then: Callable[[bool], None]) -> None:
        """Release the assignment of a member that leaves."""
        then(True)

    def _clear_and_leave(self) -> None:
        self._unsubscribe()
        self._clear()
        self._send_leave()

    def _unsubscribe(self) -> None:
        self.topics, self.pattern, self.owned = (), None, frozenset()
        self._is_subscribed = self._is_updated = False
        self._events.append(Cleared(unsubscribes=True))

    def _send_leave(self, *, has_poll_expired: bool = False) -> None:
        """Let the next heartbeat leave the group."""
        if self.state in (MemberState.FATAL, MemberState.UNSUBSCRIBED):
            return
        if has_poll_expired:
            self._has_poll_expired = True
            self._become(MemberState.PREPARE_LEAVING)
        elif self.state is not MemberState.PREPARE_LEAVING:
            return  # the group was left another way while the listener was called
        self.member_epoch = self._leave_epoch()
        self._current = NONE
        self._become(MemberState.LEAVING)

    def _complete_leaving(self) -> bool:
        if not self._is_leaving:
            return False
        self._is_leaving = False
        self._events.append(Left())
        return True

    # changes of state

    def _become(self, state: MemberState) -> None:
        assert may_become(self.state, state), f"from {self.state} to {state}"
        self.state = state

    def _join(self) -> None:
        if self.state is MemberState.FATAL:
            return
        if self._is_reconciling:
            self._has_rejoined = True
        self.member_epoch = JOIN_EPOCH
        self._become(MemberState.JOINING)
        self._forget_target()

    def _polled(self) -> None:
        """Join with a poll after a change of the subscription."""
        if self._is_updated:
            self._is_updated = False
            if self.state is MemberState.UNSUBSCRIBED:
                self._join()

    def _fence(self) -> bool:
        """The coordinator does not know this member: release everything and join again. Return False if that is no longer possible."""
        if self.state is MemberState.UNSUBSCRIBED:
            return True
        if self.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            self._send_leave()
            self._become(MemberState.UNSUBSCRIBED)
            self._complete_leaving()
            return True
        if not may_become(self.state, MemberState.FENCED):
            return False
        self._become(MemberState.FENCED)
        self.member_epoch = JOIN_EPOCH
        self._lose(lambda is_ok: self._fenced())
        return True

    def _fenced(self) -> None:
        self._clear()
        if self.state is MemberState.FENCED:
            self._join()

    def _die(self) -> None:
        """The member can't go on."""
        before = self.state
        if not may_become(before, MemberState.FATAL):
            return
        self._become(MemberState.FATAL)
        if before is MemberState.UNSUBSCRIBED and self._complete_leaving():
            return
        if before in (MemberState.LEAVING, MemberState.PREPARE_LEAVING):
            self._complete_leaving()
            return
        self._lose(lambda is_ok: self._clear())

    def _grow_stale(self) -> None:
        """The application did not poll in time: the member has left, and loses everything."""
        self._become(MemberState.STALE)
        self._is_releasing, self._rejoins_when_released = True, False
        self._lose(lambda is_ok: self._released())

    def _released(self) -> None:
        self._clear()
        self._is_releasing = False
        if self._rejoins_when_released:
            self._rejoins_when_released = False
            self._join()

    def _rejoin_if_stale(self) -> None:
        self._has_poll_expired = False
        if self.state is not MemberState.STALE:
            return
        if self._is_releasing:
            self._rejoins_when_released = True
        else:
            self._join()

    def _lose(self, then: Callable[[bool], None]) -> None:
        """Lose all partitions, which may already belong to others."""
        then(True)

    def _clear(self) -> None:
        if self._is_subscribed:
            self.owned = frozenset()
            self._events.append(Cleared(unsubscribes=False))
        self._current = NONE
        self._forget_target()

    def _forget_target(self) -> None:
        self._target = NONE
        self._names.clear()
        self._asked_for = ()

    # a heartbeat was sent or answered

    def _beat_sent(self) -> None:
        if self.state is MemberState.ACKNOWLEDGING:
            self._become(MemberState.STABLE if self._current == self._target else MemberState.RECONCILING)
        elif self.state is MemberState.LEAVING:
            if self._has_poll_expired:
                self._grow_stale()
            else:
                self._become(MemberState.UNSUBSCRIBED)

    def _beat_skipped(self) -> None:
        """A heartbeat that leaves can't be sent: no coordinator is known."""
        if self.state is MemberState.LEAVING:
            self._become(MemberState.UNSUBSCRIBED)
            self._complete_leaving()

    def _beat_succeeded(self, member_epoch: int, partitions: Iterable[ConsumerPartitions | SharePartitions] | None) -> None:
        """Take the epoch and the assignment, if there is a new one."""
        if self.state is MemberState.LEAVING:
            return
        if self.state is MemberState.UNSUBSCRIBED and member_epoch < 0 and self._complete_leaving():
            return
        if self.state in NOT_IN_GROUP:
            return
        if member_epoch < 0:
            self._complete_leaving()
            return
        self.member_epoch = member_epoch
        if partitions is not None and self.state in TAKES_ASSIGNMENTS:
            self._set_target({one.topic_id: tuple(sorted(set(one.partitions))) for one in partitions})

    def _set_target(self, partitions: Partitions) -> None:
        if self._target is NONE or self._target.partitions != partitions:
            self._target = LocalAssignment(self._target.epoch + 1, partitions)
            self._asked_for = ()
        if self._current != self._target:
            self._become(MemberState.RECONCILING)
        elif self.state in (MemberState.RECONCILING, MemberState.JOINING):
            self._become(MemberState.STABLE)

    # reconciliation

    @property
    def _is_overtaken(self) -> bool:
        return self.state is not MemberState.RECONCILING or self._has_rejoined

    def _reconcile(self, now_ms: float, *, may_commit: bool) -> None:
        """Begin to take over the target, as far as its topics are known.

        Without `may_commit`, the application may be reading records: no partition is revoked, and nothing is committed.
        """
        if self.state is not MemberState.RECONCILING or self._current == self._target or self._is_reconciling:
            return
        resolved = self._resolve()
        local = LocalAssignment(self._target.epoch, {one: self._target.partitions[one] for one in resolved})
        if self._current is not NONE and local.partitions == self._current.partitions:
            self._current = local
            self._become(MemberState.ACKNOWLEDGING)
            return
        assigned = frozenset(TopicPartition(name, index) for one, name in resolved.items() for index in local.partitions[one])
        added, revoked = tuple(sorted(assigned - self.owned)), tuple(sorted(self.owned - assigned))
        if not may_commit and (self.commits_before_rebalance or revoked):
            return
        self._is_reconciling, self._has_rejoined = True, False
        if revoked:
            self._events.append(Pause(revoked))
        rebalance = Rebalance(local, tuple(sorted(assigned)), added, revoked)
        if self.commits_before_rebalance:
            self._wait_for(Commit(now_ms + self.rebalance_timeout_ms), lambda is_ok: self._committed(rebalance))
        else:
            self._committed(rebalance)

    def _resolve(self) -> dict[bytes, str]:
        """Return the names of the target's topics that are known. Ask for the others."""
        found: dict[bytes, str] = {}
        missing = []
        for topic_id in self._target.partitions:
            name = self._name_of(topic_id)
            if name is not None:
                self._names[topic_id] = name
            name = name or self._names.get(topic_id)
            if name is None:
                missing.append(topic_id)
            else:
                found[topic_id] = name
        if missing and self._asked_for != tuple(missing):
            self._asked_for = tuple(missing)
            self._events.append(FindTopics(self._asked_for))
        return found

    def _committed(self, rebalance: Rebalance) -> None:
        if self._abort_if_overtaken():
            return
        if rebalance.revoked:
            self._revoke(rebalance.revoked, lambda is_ok: self._revoked(rebalance, is_ok=is_ok))
        else:
            self._revoked(rebalance, is_ok=True)

    def _revoke(self, keys: tuple[TopicPartition, ...], then: Callable[[bool], None]) -> None:
        """Call the listener for these partitions, as far as they are still assigned."""
        owned = tuple(key for key in keys if key in self.owned)
        self._events.append(Pause(owned))
        if owned and self.has_listener:
            self._wait_for(Revoked(owned), then)
        else:
            then(True)

    def _revoked(self, rebalance: Rebalance, *, is_ok: bool) -> None:
        if not is_ok:
            self._stop_reconciling()
            return
        if self._abort_if_overtaken():
            return
        self._assign(rebalance)
        names = {key.topic for key in rebalance.assigned}
        self._names = {one: name for one, name in self._names.items() if name in names}

    @abstractmethod
    def _assign(self, rebalance: Rebalance) -> None:
        """Give the consumer its new assignment."""

    def _assigned(self, rebalance: Rebalance, *, is_ok: bool) -> None:
        if not is_ok:
            self._stop_reconciling()
        elif self._is_reconciling and not self._abort_if_overtaken():
            self._current = rebalance.local
            self._events.append(Reconciled())
            self._become(MemberState.ACKNOWLEDGING)
            self._stop_reconciling()

    def _abort_if_overtaken(self) -> bool:
        if self._is_overtaken:
            self._stop_reconciling()
            return True
        return False

    def _stop_reconciling(self) -> None:
        self._is_reconciling = self._has_rejoined = False

    def _wait_for(self, work: Work, then: Callable[[bool], None]) -> None:
        self._work[work] = then
        self._events.append(work)

    def _lose_with_listener(self, then: Callable[[bool], None]) -> None:
        """Tell the listener that everything is lost."""
        keys = tuple(sorted(self.owned))
        if keys and self.has_listener:
            self._wait_for(Lost(keys), then)
        else:
            then(True)
