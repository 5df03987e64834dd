"""The consumer groups of a shard (from Kafka's GroupMetadataManager): requests, loading, changes of metadata, descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.consumer.classic_members import ClassicMembers
from kops.coordinators.groups.consumer.heartbeat import Heartbeats
from kops.coordinators.groups.consumer.leave import Leaves
from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.migration import Migration
from kops.coordinators.groups.consumer.reconcile import Reconciler
from kops.coordinators.groups.consumer.replay import Replays
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, MemberState
from kops.coordinators.groups.consumer.subscription import Subscriptions
from kops.coordinators.groups.consumer.timers import MemberTimers
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.consumer_group_describe_response import DescribedGroup
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kops.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class ConsumerGroupManager:
    """Handles the consumer groups of a shard. `rebalances` are those of classic groups, for conversions."""

    def __init__(self, around: Surroundings, rebalances: Rebalances) -> None:
        self._around = around
        self._lookup = GroupLookup(around)
        self._timers = MemberTimers(self._lookup)
        reconciler = Reconciler(self._lookup, self._timers)
        migration = Migration(self._lookup, self._timers, rebalances)
        self._subscriptions = Subscriptions(self._lookup)
        self._heartbeats = Heartbeats(reconciler, self._subscriptions, migration)
        self._leaves = Leaves(reconciler, migration)
        self._timers.fence = lambda group, members: self._leaves.fence(group, members, None)
        self._replays = Replays(self._lookup)
        self.classic_members = ClassicMembers(reconciler, self._subscriptions, migration, self._heartbeats)
        self.leave_classic = self._leaves.leave_classic

    @property
    def replays(self) -> Mapping[type[Message], Callable[[Any, Any], None]]:
        """See GroupManager."""
        return self._replays.by_key

    def heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat. Raises ApiError."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leaves.leave(request)
        return self._heartbeats.heartbeat(context, request)

    def keep_member(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        """Handle a heartbeat that changes nothing. Returns None, and does nothing, if it is another one."""
        return self._heartbeats.keep_member(context, request)

    def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Handle ConsumerGroupDescribe, for committed consumer groups."""
        described = []
        for group_id in group_ids:
            try:
                group = self._lookup.committed_group(group_id)
            except ApiError as error:
                described.append(DescribedGroup(group_id=group_id, error_code=code(error.name), error_message=error.message))
            else:
                described.append(group.describe(self._lookup.default_assignor, self._lookup.image))
        return described

    def on_loaded(self) -> None:
        """Start the session timers of all members."""
        for group_id in self._around.store.ids():
            group = self._around.store.get(group_id)
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.ordered_members():
                self._timers.schedule_session(group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._timers.schedule_rebalance(group_id, member)

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Let groups that subscribe to a changed topic check its metadata at their next heartbeat."""
        self._subscriptions.on_metadata_update(delta, image)
        for topic in self._lookup.topic_hashes.forget_changed(delta, image):
            for group_id in self._around.store.groups_subscribed_to(topic):
                group = self._around.store.get(group_id)
                if group is not None:
                    group.request_metadata_refresh()

    def on_unloaded(self) -> None:
        """Do nothing: consumer groups have no pending responses."""
