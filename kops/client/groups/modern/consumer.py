"""A member of a group with the consumer protocol (KIP-848): its heartbeats have only what has changed since the last one.

Source: Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager; KIP-1092 for the ways to close.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from kops.client.groups.modern.events import Assigned, Pause
from kops.client.groups.modern.heartbeats import Heartbeating, ModernSettings
from kops.client.groups.modern.reconciling import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, LocalAssignment, Rebalance
from kops.client.groups.modern.states import MemberState

if TYPE_CHECKING:
    from kops.errors import ApiError
    from kops.protocol.messages import ConsumerGroupHeartbeatRequest

NOT_SUPPORTED: Final = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on the consumer configs to revert to the "
    "CLASSIC protocol until the cluster is upgraded."
)
REGEX_NOT_SUPPORTED: Final = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be upgraded to use "
    "ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)


class Leaving(Enum):
    """What a consumer that closes does with its membership (KIP-1092)."""

    DEFAULT = "DEFAULT"
    LEAVE = "LEAVE_GROUP"
    REMAIN = "REMAIN_IN_GROUP"


class ConsumerMember(Heartbeating):
    """A member of a group. Set `has_listener` if there is a rebalance listener: without one, there is no `Revoked` and no `Lost`."""

    def __init__(
        self,
        settings: ModernSettings,
        member_id: str,
        name_of: Callable[[bytes], str | None],
        backoff_ms: Callable[[int], float],
        now_ms: float,
    ) -> None:
        super().__init__(settings, member_id, name_of, backoff_ms, now_ms)
        self.commits_before_rebalance = settings.auto_commits
        self.leaving = Leaving.DEFAULT
        self._sent_timeout_ms = -1
        self._sent_topics: frozenset[str] | None = None
        self._sent_pattern: str | None = None
        self._sent_assignor: str | None = None
        self._sent_partitions: LocalAssignment | None = None

    def close(self, leaving: Leaving = Leaving.DEFAULT) -> None:
        """Leave without calling the listener. The event `Left` follows. The consumer has called the listener itself before."""
        self.leaving = leaving
        self._leave(calls_listener=False)

    # leaving

    def _leave_epoch(self) -> int:
        is_temporary = self.settings.instance_id is not None and self.leaving is not Leaving.LEAVE
        return LEAVE_STATIC_EPOCH if is_temporary else LEAVE_EPOCH

    @property
    def _remains(self) -> bool:
        return self.leaving is Leaving.REMAIN and self.settings.instance_id is None

    @property
    def _is_leaving_group(self) -> bool:
        return super()._is_leaving_group and not self._remains

    @property
    def _leaves_at_once(self) -> bool:
        return super()._leaves_at_once and not self._remains

    def _release_before_leaving(self, then: Callable[[bool], None]) -> None:
        keys = tuple(sorted(self.owned))
        if keys and self.member_epoch > 0:
            self._revoke(keys, then)
        else:
            self._lose_with_listener(then)

    def _lose(self, then: Callable[[bool], None]) -> None:
        if self.owned:
            self._events.append(Pause(tuple(sorted(self.owned))))
        self._lose_with_listener(then)

    def _assign(self, rebalance: Rebalance) -> None:
        self._wait_for(Assigned(rebalance.assigned, rebalance.added), lambda is_ok: self._assigned(rebalance, is_ok=is_ok))

    # requests

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        from kops.protocol.messages import ConsumerGroupHeartbeatRequest
        from kops.protocol.messages.consumer_group_heartbeat_request import TopicPartitions

        settings = self.settings
        has_all = self.state is MemberState.JOINING
        message = ConsumerGroupHeartbeatRequest(settings.group_id, self.member_id, self.member_epoch, settings.instance_id)
        if has_all or self._sent_timeout_ms != self.rebalance_timeout_ms:
            message.rebalance_timeout_ms = self._sent_timeout_ms = self.rebalance_timeout_ms
        topics = frozenset(self.topics)
        if has_all or topics != self._sent_topics:
            message.subscribed_topic_names, self._sent_topics = list(self.topics), topics
        if self.pattern != self._sent_pattern or (has_all and self.pattern is not None):
            message.subscribed_topic_regex, self._sent_pattern = self.pattern or "", self.pattern
        if settings.server_assignor is not None and (has_all or settings.server_assignor != self._sent_assignor):
            message.server_assignor = self._sent_assignor = settings.server_assignor
        if has_all or self._current != self._sent_partitions:
            message.topic_partitions = [TopicPartitions(one, list(found)) for one, found in self._current.partitions.items()]
            self._sent_partitions = self._current
        if has_all:
            message.rack_id = settings.rack
        return message

    def _forget_sent(self) -> None:
        self._sent_timeout_ms = -1
        self._sent_topics = self._sent_pattern = self._sent_assignor = self._sent_partitions = None

    def _unsupported_request(self, error: ApiError) -> str:
        return REGEX_NOT_SUPPORTED if self.pattern is not None and str(error) == REGEX_NOT_SUPPORTED else NOT_SUPPORTED

    def _unsupported_answer(self) -> str:
        return NOT_SUPPORTED
