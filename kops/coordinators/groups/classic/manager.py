"""The classic groups of a shard (from Kafka's GroupMetadataManager): requests, replay, loading and unloading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.group import ClassicGroup, broken
from kops.coordinators.groups.classic.join import Joins
from kops.coordinators.groups.classic.leave import Leaves
from kops.coordinators.groups.classic.lookup import committed_classic_group
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.classic.stored import group_from_record
from kops.coordinators.groups.classic.sync import Syncs
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.describe_groups_response import DescribedGroup
from kops.protocol.messages.group_metadata_key import GroupMetadataKey
from kops.protocol.messages.group_metadata_value import GroupMetadataValue
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_response import SyncGroupResponse

_FIRST_DESCRIBE_VERSION_WITH_MESSAGES = 6


class ClassicGroupManager:
    """Handles the classic groups of a shard. `rebalances` is also used for conversions between classic and consumer groups."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.rebalances = Rebalances(around)
        self.join = Joins(around, self.rebalances).join
        syncs = Syncs(self.rebalances)
        self.sync = syncs.sync
        self.heartbeat = syncs.heartbeat
        self.keep_member = syncs.keep_member
        self.leave = Leaves(self.rebalances).leave

    @property
    def replays(self) -> Mapping[type[Message], Callable[[Any, Any], None]]:
        """See GroupManager."""
        return {GroupMetadataKey: self._replay}

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._around.store.remove(key.group)
        else:
            self._around.store.put(group_from_record(key.group, value, self._around.now_ms))

    def on_loaded(self) -> None:
        """Start the session timers of all members. A group that is too large rebalances."""
        for group_id in self._around.store.ids():
            group = self._around.store.get(group_id)
            if isinstance(group, ClassicGroup):
                for member in group.all_members():
                    self.rebalances.reschedule_heartbeat(group, member)
                if group.member_count > self._around.config.group_max_size:
                    self.rebalances.prepare_rebalance(group)

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Do nothing: the leader of a classic group assigns the partitions."""

    def on_unloaded(self) -> None:
        """Answer waiting members with NOT_COORDINATOR, so that they look for the new coordinator."""
        not_coordinator = code("NOT_COORDINATOR")
        for group in list(self._around.store.groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            group.transition_to(DEAD)
            for member in group.all_members():
                if group.previous_state is PREPARING_REBALANCE:
                    group.complete_join(member, JoinGroupResponse(error_code=not_coordinator, member_id=member.member_id))
                elif group.previous_state in (COMPLETING_REBALANCE, STABLE):
                    group.complete_sync(member, SyncGroupResponse(error_code=not_coordinator))

    def describe(self, context: RequestContext, group_ids: list[str]) -> list[DescribedGroup]:
        """Describe committed groups. Ids that are not classic groups are described as dead."""
        return [self._describe(context, group_id) for group_id in group_ids]

    def _describe(self, context: RequestContext, group_id: str) -> DescribedGroup:
        try:
            group = committed_classic_group(self._around.store, group_id)
        except ApiError as error:
            described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
            if context.api_version >= _FIRST_DESCRIBE_VERSION_WITH_MESSAGES:
                described.error_code = code(error.name)
                described.error_message = error.message
            return described
        protocol = group.protocol_name if group.state is STABLE else None
        if group.state is STABLE and protocol is None:
            raise broken("Invalid null group protocol for stable group")
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_text,
            protocol_type=group.protocol_type_text,
            protocol_data=protocol or "",
            members=[member.describe(protocol) for member in group.all_members()],
        )
