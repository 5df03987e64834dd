"""The share groups of a shard (from Kafka's GroupMetadataManager): requests, loading, changes of metadata, descriptions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kops.coordinators.groups.assignors import simple
from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.share.group import ShareGroup
from kops.coordinators.groups.share.heartbeat import Heartbeats, share_group
from kops.coordinators.groups.share.offsets import ShareOffsets
from kops.coordinators.groups.share.replay import Replays
from kops.coordinators.groups.share.state_partitions import StatePartitions, TopicNumbers
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.share_group_describe_response import DescribedGroup


class ShareGroupManager:
    """Handles the share groups of a shard."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._states = StatePartitions(around)
        self._heartbeats = Heartbeats(around, self._states)
        self._replays = Replays(around, self._states)
        self.offsets = ShareOffsets(self._heartbeats, self._states)
        self.heartbeat = self._heartbeats.heartbeat

    @property
    def replays(self) -> Mapping[type[Message], Callable[[Any, Any], None]]:
        """See GroupManager."""
        return self._replays.by_key

    def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Handle ShareGroupDescribe, for committed share groups."""
        described = []
        for group_id in group_ids:
            try:
                group = share_group(self._around.store.committed_group(group_id))
            except ApiError as error:
                described.append(DescribedGroup(group_id=group_id, error_code=code(error.name), error_message=error.message))
            else:
                described.append(group.describe(simple.NAME, self._states.image))
        return described

    def on_initialized(self, group_id: str, topics: TopicNumbers) -> CoordinatorResult[None]:
        """Record that the share coordinator has initialized partitions."""
        return CoordinatorResult(self._states.initialized_record(group_id, topics))

    def on_uninitialized(self, group_id: str, topics: TopicNumbers) -> CoordinatorResult[None]:
        """Record that the share coordinator could not initialize partitions."""
        return CoordinatorResult(self._states.uninitialized_record(group_id, topics))

    def initialized_partitions(self, group_id: str) -> dict[bytes, tuple[int, ...]]:
        """Return the partitions of a group that the share coordinator has initialized."""
        info = self._states.get(group_id)
        return {} if info is None else {topic_id: state.partitions for topic_id, state in info.initialized.items()}

    def clean_up_deleted_topics(self, topic_ids: Collection[bytes]) -> CoordinatorResult[None]:
        """Remove the share state of deleted topics."""
        return CoordinatorResult(self._states.clean_up_deleted_topics(topic_ids))

    def on_loaded(self) -> None:
        """Start the session timers of all members."""
        for group_id in self._around.store.ids():
            group = self._around.store.get(group_id)
            if isinstance(group, ShareGroup):
                for member in group.ordered_members():
                    self._heartbeats.schedule_session(group_id, member.member_id)

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Drop the cached hashes of changed topics. The manager of consumer groups informs the groups."""
        self._heartbeats.topic_hashes.forget_changed(delta, image)

    def on_unloaded(self) -> None:
        """Do nothing: share groups have no pending responses."""
