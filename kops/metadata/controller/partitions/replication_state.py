"""The replayed topics and partitions, and the state derived from them.

Source: the replay methods of Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kops.config.values.topic_names import has_collision_chars, unify_collision_chars
from kops.metadata.controller.partitions.partition_index import PartitionIndex, TopicIdPartition
from kops.metadata.partition_registration import PartitionRegistration
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.metadata.controller.cluster.configuration_control import ConfigurationControl
    from kops.protocol.messages import ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord


class Topic:
    """A topic and its partitions by number."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes, timeline: Timeline) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: TimelineDict[int, PartitionRegistration] = TimelineDict(timeline)


class ReplicationState:
    """All topics. Replaying an impossible record, which no controller writes, raises ValueError."""

    def __init__(self, timeline: Timeline, configs: ConfigurationControl) -> None:
        self._timeline = timeline
        self._configs = configs
        self.topics: TimelineDict[bytes, Topic] = TimelineDict(timeline)
        self._ids: TimelineDict[str, bytes] = TimelineDict(timeline)
        self._colliding: TimelineDict[str, tuple[str, ...]] = TimelineDict(timeline)
        self.imbalanced: TimelineDict[TopicIdPartition, None] = TimelineDict(timeline)
        self._reassigning: TimelineDict[TopicIdPartition, None] = TimelineDict(timeline)
        self.index = PartitionIndex(timeline)

    def named(self, name: str) -> Topic | None:
        """Return the topic of this name."""
        topic_id = self._ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def colliding_with(self, name: str) -> str | None:
        """Return a topic whose name differs only in dots and underscores, or not at all."""
        if not has_collision_chars(name):
            return None
        return next(iter(self._colliding.get(unify_collision_chars(name), ())), None)

    def reassigning(self) -> Iterable[tuple[Topic, list[int]]]:
        """Return the topics with partitions that are being reassigned, and these partitions."""
        found: dict[bytes, list[int]] = {}
        for topic_id, partition in self._reassigning:
            found.setdefault(topic_id, []).append(partition)
        return [(self.topics[topic_id], partitions) for topic_id, partitions in found.items()]

    def replay_topic(self, record: TopicRecord) -> None:
        """Replay a TopicRecord."""
        if record.name in self._ids or record.topic_id in self.topics:
            raise ValueError(f"the topic {record.name} is created twice")
        self._ids[record.name] = record.topic_id
        self.topics[record.topic_id] = Topic(record.name, record.topic_id, self._timeline)
        if has_collision_chars(record.name):
            unified = unify_collision_chars(record.name)
            self._colliding[unified] = (*self._colliding.get(unified, ()), record.name)

    def replay_partition(self, record: PartitionRecord) -> None:
        """Replay a PartitionRecord."""
        self._put(self._topic(record.topic_id), record.partition_id, PartitionRegistration.from_record(record))

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """Replay a PartitionChangeRecord."""
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise ValueError(f"partition {record.partition_id} of topic {topic.name} is changed, but was never created")
        self._put(topic, record.partition_id, partition.merge(record))

    def replay_removal(self, record: RemoveTopicRecord) -> None:
        """Replay a RemoveTopicRecord, which also removes the topic's settings."""
        topic = self._topic(record.topic_id)
        for number, partition in topic.partitions.items():
            key = TopicIdPartition(topic.id, number)
            self.index.replace(key, partition, None)
            self.imbalanced.pop(key, None)
            self._reassigning.pop(key, None)
        del self.topics[topic.id]
        del self._ids[topic.name]
        if has_collision_chars(topic.name):
            unified = unify_collision_chars(topic.name)
            others = tuple(name for name in self._colliding[unified] if name != topic.name)
            if others:
                self._colliding[unified] = others
            else:
                del self._colliding[unified]
        self._configs.forget_topic(topic.name)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Replay a ClearElrRecord for one topic or for all topics."""
        named = self.named(record.topic_name) if record.topic_name else None
        if record.topic_name and named is None:
            raise ValueError(f"the eligible leaders of {record.topic_name} are cleared, but there is no such topic")
        for topic in list(self.topics.values()) if named is None else [named]:
            for number, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    cleared = replace(partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1)
                    self._put(topic, number, cleared)

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise ValueError(f"a record names the topic {topic_id.hex()}, which does not exist")
        return topic

    def _put(self, topic: Topic, number: int, partition: PartitionRegistration) -> None:
        key = TopicIdPartition(topic.id, number)
        self.index.replace(key, topic.partitions.get(number), partition)
        topic.partitions[number] = partition
        _mark(self.imbalanced, key, wanted=not partition.has_preferred_leader)
        _mark(self._reassigning, key, wanted=partition.is_reassigning)


def _mark(marks: TimelineDict[TopicIdPartition, None], key: TopicIdPartition, *, wanted: bool) -> None:
    if wanted and key not in marks:
        marks[key] = None
    elif not wanted and key in marks:
        del marks[key]
