"""The timers of a consumer group's members (from Kafka's GroupMetadataManager).

A member is removed when its session expires, when it does not revoke partitions in time, or, with the classic protocol, when it does not
join or sync in time.
"""

from __future__ import annotations

from collections.abc import Callable

from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError

Fence = Callable[[ConsumerGroup, list[ConsumerGroupMember]], CoordinatorResult[None]]


def session_key(group_id: str, member_id: str) -> str:
    """The key of the timer of a member's session."""
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """The key of the timer of a member that must revoke partitions."""
    return f"rebalance-timeout-{group_id}-{member_id}"


def join_key(group_id: str, member_id: str) -> str:
    """The key of the timer of a classic member that must join."""
    return f"join-{group_id}-{member_id}"


def sync_key(group_id: str, member_id: str) -> str:
    """The key of the timer of a classic member that must sync."""
    return f"sync-{group_id}-{member_id}"


class MemberTimers:
    """Sets and cancels timers. `fence` removes members; the manager sets it."""

    def __init__(self, lookup: GroupLookup) -> None:
        self._lookup = lookup
        self._timer = lookup.around.timer
        self.fence: Fence = _not_ready

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart a member's session timer after a request."""
        delay_ms = self._lookup.session_timeout_ms(group_id) if timeout_ms is None else timeout_ms
        # No restart: share and streams groups use the same keys, and so do groups and members with hyphens in their ids.
        self._timer.schedule(session_key(group_id, member_id), delay_ms, lambda: self._fence_by_id(group_id, member_id))

    def schedule_rebalance(self, group_id: str, member: ConsumerGroupMember) -> None:
        """Start the timer of a member that must revoke partitions within its rebalance timeout."""
        member_id, epoch = member.member_id, member.member_epoch
        self._timer.schedule(
            rebalance_key(group_id, member_id), member.rebalance_timeout_ms, lambda: self._fence_by_id(group_id, member_id, epoch)
        )

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        """Cancel this timer, because the member has revoked its partitions."""
        self._timer.cancel(rebalance_key(group_id, member_id))

    def schedule_join_if_absent(self, group_id: str, member: ConsumerGroupMember) -> None:
        """Start the timer of a classic member that must join within its rebalance timeout."""
        member_id = member.member_id
        self._timer.schedule_if_absent(
            join_key(group_id, member_id), member.rebalance_timeout_ms, lambda: self._fence_by_id(group_id, member_id)
        )

    def cancel_join(self, group_id: str, member_id: str) -> None:
        """Cancel this timer, because the classic member has joined."""
        self._timer.cancel(join_key(group_id, member_id))

    def schedule_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the timer of a classic member that must sync."""
        self._timer.schedule(sync_key(group_id, member_id), timeout_ms, lambda: self._fence_by_id(group_id, member_id))

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        """Cancel this timer, because the classic member has synced."""
        self._timer.cancel(sync_key(group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of a removed member."""
        for key_of in (session_key, rebalance_key, join_key, sync_key):
            self._timer.cancel(key_of(group_id, member_id))

    def _fence_by_id(self, group_id: str, member_id: str, epoch: int | None = None) -> CoordinatorResult[None]:
        """Remove a member whose timer has expired, if it still exists and, if `epoch` is given, still has that epoch."""
        try:
            group = self._lookup.group(group_id)
            member = group.member(member_id)
        except ApiError:
            return CoordinatorResult()
        if epoch is not None and member.member_epoch != epoch:
            return CoordinatorResult()
        return self.fence(group, [member])


def _not_ready(group: ConsumerGroup, members: list[ConsumerGroupMember]) -> CoordinatorResult[None]:
    raise AssertionError("the manager sets it")
