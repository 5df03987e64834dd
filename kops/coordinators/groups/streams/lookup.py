"""Streams groups by id, and the settings of one (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.lookup import maybe_delete_empty_classic_group
from kops.coordinators.groups.group import Group
from kops.coordinators.groups.modern.metadata_hash import TopicHashes
from kops.coordinators.groups.streams.assignors.sticky import NUM_STANDBY_REPLICAS
from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError


class GroupLookup:
    """Look-ups that all modules for streams groups share."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.topic_hashes = TopicHashes()

    @property
    def image(self) -> CoordinatorImage:
        """The newest metadata."""
        image = self.around.image
        assert image is not None, "the shard is not loaded"
        return image

    def group(self, group_id: str) -> StreamsGroup:
        """Return a streams group. Raises ApiError GROUP_ID_NOT_FOUND."""
        return _streams_group(self.around.store.group(group_id))

    def committed_group(self, group_id: str) -> StreamsGroup:
        """Return a committed streams group. Raises ApiError GROUP_ID_NOT_FOUND."""
        return _streams_group(self.around.store.committed_group(group_id))

    def group_of_heartbeat(self, group_id: str, records: list[CoordinatorRecord], *, create: bool) -> StreamsGroup:
        """Return the group of a member. With `create`, it may be new; it is stored when its records are replayed.

        It replaces an empty classic group.
        """
        group = self.around.store.get(group_id)
        if group is None and not create:
            raise ApiError("GROUP_ID_NOT_FOUND", f"Streams group {group_id} not found.")
        if group is None or (create and maybe_delete_empty_classic_group(self.around, group, records)):
            return StreamsGroup(self.around.timeline, group_id)
        return _streams_group(group)

    def persisted_group(self, group_id: str, *, create: bool) -> StreamsGroup | None:
        """Return the group of a record. With `create`, create a missing group, and replace one that only stores offsets."""
        store = self.around.store
        group = store.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None and not create:
            return None
        if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Group {group_id} is not a streams group.")
        made = StreamsGroup(self.around.timeline, group_id)
        store.put(made)
        return made

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session time-out of members."""
        return self.around.group_setting(group_id, "streams.session.timeout.ms", self.around.config.group_streams_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of members."""
        return self.around.group_setting(group_id, "streams.heartbeat.interval.ms", self.around.config.group_streams_heartbeat_interval_ms)

    def initial_rebalance_delay_ms(self, group_id: str) -> int:
        """Return the delay of the first assignment, in which more members may join."""
        default = self.around.config.group_streams_initial_rebalance_delay_ms
        return self.around.group_setting(group_id, "streams.initial.rebalance.delay.ms", default)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the shortest time between two target assignments."""
        return self.around.group_setting(
            group_id, "streams.assignment.interval.ms", self.around.config.group_streams_assignment_interval_ms
        )

    def assignment_configs(self, group_id: str) -> dict[str, str]:
        """Return the settings of the assignor."""
        count = self.around.group_setting(group_id, "streams.num.standby.replicas", self.around.config.group_streams_num_standby_replicas)
        return {NUM_STANDBY_REPLICAS: str(count)}


def _streams_group(group: Group) -> StreamsGroup:
    if isinstance(group, StreamsGroup):
        return group
    raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group.group_id} is not a streams group.")
