"""The groups of a shard by id, and an index by subscribed topic (from Kafka's GroupMetadataManager and BaseHashTable)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kops.config.values.java import to_int
from kops.config.values.java_hash import string_hash
from kops.coordinators.groups.group import Group
from kops.errors import ApiError
from kops.timeline import Timeline, TimelineDict

_MULTIPLIER: Final = -7046029254386353131


def table_size(entries: int) -> int:
    """The number of slots of Kafka's table after this many entries (BaseHashTable)."""
    slots = 2
    while entries * 3 > slots * 4:
        slots *= 2
    return slots


def slot_hash(key: str) -> int:
    """The 64 bits of a key whose highest ones are its slot (BaseHashTable.findSlot)."""
    return to_int(string_hash(key)) * _MULTIPLIER & 0xFFFF_FFFF_FFFF_FFFF


class GroupStore:
    """The groups. The counterparts of Kafka's getOrMaybeCreate… methods are in the rooms for each kind of group."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.groups: TimelineDict[str, Group] = TimelineDict(timeline)
        self._most = 0
        """The largest number of groups so far: a hash table never shrinks."""
        self._by_topic: TimelineDict[tuple[str, str], None] = TimelineDict(timeline)
        self._groups_of_topic: dict[str, set[str]] = {}
        """Group ids that may subscribe to a topic; `_by_topic` has the exact subscriptions."""

    def get(self, group_id: str) -> Group | None:
        """Return the group with this id, or None."""
        return self.groups.get(group_id)

    def group(self, group_id: str) -> Group:
        """Return the group with this id. Raises ApiError GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group_id} not found.")
        return group

    def committed_group(self, group_id: str) -> Group:
        """Return the committed group with this id. Raises ApiError GROUP_ID_NOT_FOUND."""
        group = self.groups.committed(group_id)
        if group is None:
            raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group_id} not found.")
        return group

    def put(self, group: Group) -> None:
        """Add a group."""
        self.groups[group.group_id] = group
        self._most = max(self._most, len(self.groups))

    def remove(self, group_id: str) -> Group | None:
        """Remove a group."""
        return self.groups.pop(group_id, None)

    def ids(self) -> list[str]:
        """The ids of all groups."""
        return list(self.groups)

    def committed_groups(self) -> Iterator[Group]:
        """The committed groups in the order of Kafka's hash table: by slot, then as they came."""
        shift = 64 - (table_size(self._most) - 1).bit_length()
        groups = [group for _, group in self.groups.committed_items()]
        groups.sort(key=lambda group: slot_hash(group.group_id) >> shift)
        return iter(groups)

    def subscribe(self, group_id: str, topic: str) -> None:
        """Record that a member of the group subscribes to the topic."""
        if (topic, group_id) not in self._by_topic:
            self._by_topic[topic, group_id] = None
            self._groups_of_topic.setdefault(topic, set()).add(group_id)

    def unsubscribe(self, group_id: str, topic: str) -> None:
        """Record that no member of the group subscribes to the topic any more."""
        self._by_topic.pop((topic, group_id), None)

    def update_subscriptions(self, group_id: str, before: Collection[str], after: Collection[str]) -> None:
        """Record that the topics of a group have changed."""
        for topic in before:
            if topic not in after:
                self.unsubscribe(group_id, topic)
        for topic in after:
            if topic not in before:
                self.subscribe(group_id, topic)

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """Return the ids of the groups that subscribe to the topic."""
        ids = self._groups_of_topic.get(topic)
        return set() if ids is None else {group_id for group_id in ids if (topic, group_id) in self._by_topic}
