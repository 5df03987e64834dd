"""The streams groups of a shard (from Kafka's GroupMetadataManager): requests, loading, changes of metadata, descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.streams.heartbeat import Heartbeats
from kops.coordinators.groups.streams.leave import Leaves
from kops.coordinators.groups.streams.lookup import GroupLookup
from kops.coordinators.groups.streams.replay import Replays
from kops.coordinators.groups.streams.result import HeartbeatResult
from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.streams.state.member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, MemberState
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.streams_group_describe_response import DescribedGroup
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest


class StreamsGroupManager:
    """Handles the streams groups of a shard."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._lookup = GroupLookup(around)
        self._leaves = Leaves(self._lookup)
        self._heartbeats = Heartbeats(self._lookup, self._leaves)
        self._replays = Replays(self._lookup)

    @property
    def replays(self) -> Mapping[type[Message], Callable[[Any, Any], None]]:
        """See GroupManager."""
        return self._replays.by_key

    def heartbeat(self, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        """Handle StreamsGroupHeartbeat. Raises ApiError."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leaves.leave(request)
        return self._heartbeats.heartbeat(context, request)

    def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Handle StreamsGroupDescribe, for committed streams groups."""
        described = []
        for group_id in group_ids:
            try:
                group = self._lookup.committed_group(group_id)
            except ApiError as error:
                described.append(DescribedGroup(group_id=group_id, error_code=code(error.name), error_message=error.message))
            else:
                described.append(group.describe())
        return described

    def on_loaded(self) -> None:
        """Start the session timers of all members."""
        for group_id in self._around.store.ids():
            group = self._around.store.get(group_id)
            if not isinstance(group, StreamsGroup):
                continue
            for member in group.ordered_members():
                self._leaves.schedule_session(group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_TASKS:
                    self._leaves.schedule_rebalance(group_id, member)

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Drop the cached hashes of changed topics. The manager of consumer groups informs the groups."""
        self._lookup.topic_hashes.forget_changed(delta, image)

    def on_unloaded(self) -> None:
        """Do nothing: streams groups have no pending responses."""
