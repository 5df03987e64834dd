"""The effect of changes of topics on one broker: what it leads, follows, deletes (Kafka LocalReplicaChanges, TopicDelta.localChanges)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kops.metadata.image.parts.topics import TopicDelta, TopicsDelta
    from kops.metadata.partition_registration import PartitionRegistration

TopicPartition = tuple[str, int]


class LocalPartition(NamedTuple):
    """A partition of which the broker has a replica."""

    topic_id: bytes
    registration: PartitionRegistration


@dataclass(slots=True)
class LocalReplicaChanges:
    """The broker's part of a TopicsDelta; keys are (topic, partition).

    `deletes`: the broker is no longer a replica, or the topic is gone. `leaders`: it leads, and the partition epoch has changed.
    `elected_leaders`: the leaders whose leader epoch has changed. `followers`: it is a replica and does not lead, and the partition epoch
    has changed. `topic_ids`: the ids of all these topics by name. `directory_ids`: (topic id, topic, partition) → directory, for new
    partitions and changed directories.
    """

    deletes: set[TopicPartition] = field(default_factory=set)
    elected_leaders: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    leaders: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    followers: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    directory_ids: dict[tuple[bytes, str, int], bytes] = field(default_factory=dict)


def local_changes(delta: TopicsDelta, broker_id: int) -> LocalReplicaChanges:
    """Return the changes on which this broker has to act."""
    changes = LocalReplicaChanges()
    for topic in delta.changed_topics.values():
        for number, after in topic.partition_changes.items():
            _add_partition(changes, broker_id, topic, number, after)
    for deleted in delta.deleted_topics():
        changes.deletes.update((deleted.name, number) for number, before in deleted.partitions.items() if broker_id in before.replicas)
    return changes


def _add_partition(changes: LocalReplicaChanges, broker_id: int, topic: TopicDelta, number: int, after: PartitionRegistration) -> None:
    name, topic_id = topic.image.name, topic.image.id
    before = topic.image.partitions.get(number)
    was_replica = before is not None and broker_id in before.replicas
    if broker_id not in after.replicas:
        if was_replica:
            changes.deletes.add((name, number))
        return
    if before is None or before.partition_epoch != after.partition_epoch:
        local = LocalPartition(topic_id, after)
        changes.topic_ids.setdefault(name, topic_id)
        if after.leader != broker_id:
            changes.followers[name, number] = local
        else:
            changes.leaders[name, number] = local
            if before is None or before.leader_epoch != after.leader_epoch:
                changes.elected_leaders[name, number] = local
    if before is None or (was_replica and before.directory(broker_id) != after.directory(broker_id)):
        changes.directory_ids[topic_id, name, number] = after.directory(broker_id)
