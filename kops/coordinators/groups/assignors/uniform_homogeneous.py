"""Uniform assignment if all members subscribe to the same topics (Kafka's UniformHomogeneousAssignmentBuilder)."""

from __future__ import annotations

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, copy_capacity, uuid_hash
from kops.coordinators.groups.assignors.spec import (
    AssignorError,
    GroupSpec,
    MutablePartitions,
    PartitionCount,
    Partitions,
    deep_copy,
    first,
    frozen,
    new_numbers,
    no_topic,
)
from kops.protocol.json_text import uuid_text


def assign(spec: GroupSpec, partition_count: PartitionCount) -> dict[str, Partitions]:
    """Return the target assignment. Raises AssignorError."""
    member = first(spec.members.values())
    topic_ids = JavaSet(uuid_hash, member.subscribed_topic_ids, capacity=copy_capacity(member.subscription_size))
    if not topic_ids:
        return {}
    unassigned: list[tuple[bytes, int]] = []
    total = 0
    for topic_id in topic_ids:
        count = partition_count(topic_id)
        if count == -1:
            raise no_topic(uuid_text(topic_id))
        unassigned += ((topic_id, partition) for partition in range(count) if not spec.is_assigned(topic_id, partition))
        total += count
    kept, unfilled = _revoke(spec, topic_ids, total, unassigned)
    return _fill(kept, unfilled, unassigned)


def _revoke(
    spec: GroupSpec, topic_ids: JavaSet[bytes], total: int, unassigned: list[tuple[bytes, int]]
) -> tuple[dict[str, Partitions | MutablePartitions], list[tuple[str, int]]]:
    """Compute which partitions each member keeps and how many more it may get. Partitions above a member's quota become unassigned."""
    member_count = len(spec.members)
    minimum, extra_left = divmod(total, member_count)
    kept: dict[str, Partitions | MutablePartitions] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        quota = minimum
        has_extra = extra_left > 0
        if has_extra:
            quota += 1
        changed: MutablePartitions | None = None
        for topic_id, partitions in member.partitions.items():
            if topic_id not in topic_ids:
                changed = deep_copy(member.partitions) if changed is None else changed
                changed.discard(topic_id)
            elif len(partitions) <= quota:
                quota -= len(partitions)
            else:
                changed = deep_copy(member.partitions) if changed is None else changed
                numbers = changed[topic_id]
                for partition in partitions[quota:]:
                    numbers.discard(partition)
                    unassigned.append((topic_id, partition))
                quota = 0
                if not numbers:
                    changed.discard(topic_id)
        if quota > 0 and has_extra and member_count - index > extra_left:
            # A later member may take the extra partition.
            quota -= 1
            has_extra = False
        if quota > 0:
            unfilled.append((member_id, quota))
        if has_extra:
            extra_left -= 1
        kept[member_id] = member.partitions if changed is None else changed
    return kept, unfilled


def _fill(
    kept: dict[str, Partitions | MutablePartitions], unfilled: list[tuple[str, int]], unassigned: list[tuple[bytes, int]]
) -> dict[str, Partitions]:
    """Assign the unassigned partitions to members below their quota."""
    position = 0
    for member_id, quota in unfilled:
        found = kept[member_id]
        changed = found if isinstance(found, JavaMap) else deep_copy(found)
        kept[member_id] = changed
        for topic_id, partition in unassigned[position : position + quota]:
            changed.compute_if_absent(topic_id, new_numbers).add(partition)
            position += 1
    if position < len(unassigned):
        raise AssignorError("Partitions were left unassigned")
    return {member_id: frozen(found) if isinstance(found, JavaMap) else found for member_id, found in kept.items()}
