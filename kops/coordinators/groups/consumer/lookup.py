"""Consumer groups by id, and the settings of one (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kops.coordinators.groups.assignors import range_assignor, uniform
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.group import Group
from kops.coordinators.groups.modern.metadata_hash import TopicHashes
from kops.coordinators.groups.modern.target_assignment import Assign
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorImage
from kops.errors import ApiError
from kops.protocol.json_text import uuid_text

ASSIGNORS: Final[Mapping[str, Assign]] = {uniform.NAME: uniform.assign, range_assignor.NAME: range_assignor.assign}


class GroupLookup:
    """Look-ups that all modules for consumer groups share."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.topic_hashes = TopicHashes()
        self.default_assignor = around.config.group_consumer_assignors[0]

    @property
    def image(self) -> CoordinatorImage:
        """The newest metadata."""
        image = self.around.image
        assert image is not None, "the shard is not loaded"
        return image

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises ApiError GROUP_ID_NOT_FOUND."""
        return _consumer_group(self.around.store.group(group_id))

    def committed_group(self, group_id: str) -> ConsumerGroup:
        """Return a committed consumer group. Raises ApiError GROUP_ID_NOT_FOUND."""
        return _consumer_group(self.around.store.committed_group(group_id))

    def persisted_group(self, group_id: str, *, create: bool) -> ConsumerGroup | None:
        """Return the group of a record. With `create`, create a missing group, and replace one that only stores offsets."""
        store = self.around.store
        group = store.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None and not create:
            return None
        if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Group {group_id} is not a consumer group")
        made = ConsumerGroup(self.around.timeline, group_id)
        store.put(made)
        return made

    def new_member_id(self) -> str:
        """Return an id for a member that has none (Kafka's Uuid.randomUuid, whose text does not begin with a hyphen)."""
        while True:
            text = uuid_text(bytes.fromhex(self.around.new_id().replace("-", "")))
            if not text.startswith("-"):
                return text

    def assignor(self, name: str) -> Assign:
        """Return the assignor with this name. As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if this broker does not have it."""
        assign = ASSIGNORS.get(name) if name in self.around.config.group_consumer_assignors else None
        if assign is None:
            raise ApiError("UNKNOWN_SERVER_ERROR")
        return assign

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session time-out of members."""
        return self.around.group_setting(group_id, "consumer.session.timeout.ms", self.around.config.group_consumer_session_timeout_ms)

    def session_and_interval_ms(self, group_id: str) -> tuple[int, int]:
        """Return the session time-out and the heartbeat interval of members."""
        around, config = self.around, self.around.config
        session_ms, interval_ms = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        settings = around.group_settings(group_id)  # Looked up once, because every heartbeat needs both.
        if settings is None:
            return session_ms, interval_ms
        own_session_ms, own_interval_ms = settings.get("consumer.session.timeout.ms"), settings.get("consumer.heartbeat.interval.ms")
        return (
            session_ms if own_session_ms is None else int(own_session_ms),
            interval_ms if own_interval_ms is None else int(own_interval_ms),
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the shortest time between two target assignments."""
        return self.around.group_setting(
            group_id, "consumer.assignment.interval.ms", self.around.config.group_consumer_assignment_interval_ms
        )


def _consumer_group(group: Group) -> ConsumerGroup:
    if isinstance(group, ConsumerGroup):
        return group
    raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group.group_id} is not a consumer group.")
