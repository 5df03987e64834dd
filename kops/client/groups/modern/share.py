"""A member of a share group (KIP-932): it takes each assignment at once, and has no listener.

Source: Kafka's ShareMembershipManager and ShareHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kops.client.groups.modern.events import Assigned
from kops.client.groups.modern.heartbeats import Heartbeating, ModernSettings
from kops.client.groups.modern.reconciling import Rebalance
from kops.client.groups.modern.states import MemberState

if TYPE_CHECKING:
    from kops.errors import ApiError
    from kops.protocol.messages import ShareGroupHeartbeatRequest

NOT_SUPPORTED: Final = (
    "The cluster does not support the share group protocol. To use share groups, the cluster must have the share group protocol enabled."
)
VERSION_NOT_SUPPORTED: Final = (
    "The cluster does not support the share group protocol using ShareGroupHeartbeat API version 1 or later. This version of the API was "
    "introduced in Apache Kafka v4.1."
)


class ShareMember(Heartbeating):
    """A member of a share group. Of the settings, it uses the group, the rack and the poll interval. `Assigned` needs no answer."""

    _reconciles_at_once = True

    def __init__(
        self,
        settings: ModernSettings,
        member_id: str,
        name_of: Callable[[bytes], str | None],
        backoff_ms: Callable[[int], float],
        now_ms: float,
    ) -> None:
        super().__init__(settings, member_id, name_of, backoff_ms, now_ms)
        self._sent_rack: str | None = None
        self._sent_topics: frozenset[str] | None = None

    def _assign(self, rebalance: Rebalance) -> None:
        self.owned = frozenset(rebalance.assigned)
        self._events.append(Assigned(rebalance.assigned, rebalance.added))
        self._assigned(rebalance, is_ok=True)

    def _heartbeat(self) -> ShareGroupHeartbeatRequest:
        from kops.protocol.messages import ShareGroupHeartbeatRequest

        message = ShareGroupHeartbeatRequest(self.settings.group_id, self.member_id, self.member_epoch)
        if self._sent_rack is None:
            message.rack_id = self._sent_rack = self.settings.rack
        topics = frozenset(self.topics)
        if self.state is MemberState.JOINING or topics != self._sent_topics:
            message.subscribed_topic_names, self._sent_topics = list(self.topics), topics
        return message

    def _forget_sent(self) -> None:
        self._sent_rack = self._sent_topics = None

    def _unsupported_request(self, error: ApiError) -> str:
        return VERSION_NOT_SUPPORTED

    def _unsupported_answer(self) -> str:
        return NOT_SUPPORTED
