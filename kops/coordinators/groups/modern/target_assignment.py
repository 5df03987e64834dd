"""Computes a new target assignment for a group (Kafka's TargetAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kops.coordinators.groups.assignors.java_maps import JavaMap, text_hash
from kops.coordinators.groups.assignors.spec import GroupSpec, MemberSpec, PartitionCount, Partitions
from kops.coordinators.groups.modern.group import M, ModernGroup, same_partitions
from kops.coordinators.groups.modern.subscriptions import Names
from kops.coordinators.runtime.image import CoordinatorImage

Assign = Callable[[GroupSpec, PartitionCount], Mapping[str, Partitions]]
"""An assignor. Raises AssignorError."""


class TargetAssignment(NamedTuple):
    """The members whose assignments changed, in the order of their records, and all assignments."""

    changed: Mapping[str, Partitions]
    members: Mapping[str, Partitions]


def build_target_assignment(
    group: ModernGroup[M],
    assign: Assign,
    image: CoordinatorImage,
    subscribed_topics: Callable[[M], Names],
    *,
    is_homogeneous: bool,
    updated: Mapping[str, M | None],
    static_members: Mapping[str, str],
    assignable: Mapping[bytes, Collection[int]] | None = None,
) -> TargetAssignment:
    """Compute the assignment of the group's members. `updated` has changed members, and None for members that leave. Raises
    AssignorError."""
    resolve = _Resolver(image)
    specs: JavaMap[str, MemberSpec] = JavaMap(text_hash)

    def add(member: M, assignment_of: str) -> None:
        names = subscribed_topics(member)
        partitions = group.target_assignment(assignment_of)
        specs[member.member_id] = MemberSpec(member.rack_id, member.instance_id, resolve.ids(names), len(names), partitions)

    for member in group.ordered_members():
        add(member, member.member_id)
    for member_id, new in updated.items():
        if new is None:
            specs.discard(member_id)
        else:
            previous = None if new.instance_id is None else static_members.get(new.instance_id)
            add(new, member_id if previous is None else previous)
    members = specs.to_dict()
    assigned = assign(GroupSpec(members, is_homogeneous, group.owners, assignable), resolve.partition_count)
    before = group.target_assignments
    changed: dict[str, Partitions] = {}
    for member_id in members:
        old, partitions = before.get(member_id), assigned.get(member_id, {})
        if old is None or not same_partitions(old, partitions):
            changed[member_id] = partitions
    return TargetAssignment(changed, assigned)


class _Resolver:
    """The ids of topics, each looked up once (Kafka's TopicIds.CachedTopicResolver)."""

    def __init__(self, image: CoordinatorImage) -> None:
        self._image = image
        self._ids: dict[str, bytes | None] = {}

    def ids(self, names: Names) -> dict[bytes, None]:
        """Return the ids of those topics that exist."""
        found: dict[bytes, None] = {}
        for name in names:
            if name not in self._ids:
                topic = self._image.topic(name)
                self._ids[name] = None if topic is None else topic.id
            topic_id = self._ids[name]
            if topic_id is not None:
                found[topic_id] = None
        return found

    def partition_count(self, topic_id: bytes) -> int:
        """Return the number of partitions of a topic, or -1 if it does not exist."""
        topic = self._image.topic_by_id(topic_id)
        return -1 if topic is None else topic.partition_count
