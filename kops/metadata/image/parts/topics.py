"""Topics and their partitions (Kafka TopicsImage, TopicImage, TopicsDelta, TopicDelta)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kops.metadata.image.parts.changes import contradiction
from kops.metadata.image.parts.shared_map import SharedMap
from kops.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kops.protocol.messages import ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic, with its `partitions` by number."""

    name: str
    id: bytes
    partitions: SharedMap[int, PartitionRegistration] = field(default_factory=SharedMap)


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by id and by name."""

    by_id: SharedMap[bytes, TopicImage] = field(default_factory=SharedMap)
    by_name: SharedMap[str, TopicImage] = field(default_factory=SharedMap)

    def partition(self, topic_id: bytes, partition: int) -> PartitionRegistration | None:
        """Return a partition, or None if there is none."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)


class TopicDelta:
    """The changes that records make to one topic. `image` is the previous topic, without partitions if it is new."""

    def __init__(self, image: TopicImage) -> None:
        self.image = image
        self.partition_changes: dict[int, PartitionRegistration] = {}
        # Partition → kinds of elections since the image, for the metrics of the active controller.
        self.unclean_elections: dict[int, int] = {}
        self.elr_elections: dict[int, int] = {}

    def replay_partition(self, record: PartitionRecord) -> None:
        """Replay a partition, which replaces any earlier one."""
        before = self.partition(record.partition_id)
        if before is not None:
            self._count_elections(record.partition_id, before, record.leader, record.leader_recovery_state)
        self.partition_changes[record.partition_id] = PartitionRegistration.from_record(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """Replay a change of a partition. Raises DecodeError if there is no such partition."""
        before = self.partition(record.partition_id)
        if before is None:
            raise contradiction(f"Unable to find partition {uuid_text(record.topic_id)}:{record.partition_id}")
        self._count_elections(record.partition_id, before, record.leader, record.leader_recovery_state)
        self.partition_changes[record.partition_id] = before.merge(record)

    def clear_elr(self) -> None:
        """Remove the eligible leader replicas of all partitions. A partition that had some gets a new epoch."""
        for number, partition in [*self.partition_changes.items(), *self.image.partitions.items()]:
            current = self.partition_changes.get(number, partition)
            if current.elr or current.last_known_elr:
                cleared = replace(current, elr=(), last_known_elr=(), partition_epoch=current.partition_epoch + 1)
                self.partition_changes[number] = cleared

    def partition(self, number: int) -> PartitionRegistration | None:
        """Return the partition after the changes."""
        return self.partition_changes.get(number) or self.image.partitions.get(number)

    def apply(self) -> TopicImage:
        """Return the topic with the changes."""
        return replace(self.image, partitions=self.image.partitions.changed(self.partition_changes))

    def _count_elections(self, number: int, before: PartitionRegistration, leader: int, recovery_state: int) -> None:
        if recovery_state == LeaderRecoveryState.RECOVERING:
            self.unclean_elections[number] = self.unclean_elections.get(number, 0) + 1
        if leader in before.elr:
            self.elr_elections[number] = self.elr_elections.get(number, 0) + 1


class TopicsDelta:
    """The changes that records make to the topics.

    `changed_topics` includes new topics. `deleted_topic_ids` has only topics of the image: a topic that was created and deleted since
    leaves no trace.
    """

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed_topics: dict[bytes, TopicDelta] = {}
        self.deleted_topic_ids: set[bytes] = set()
        self.created_topics: dict[str, bytes] = {}

    def replay_topic(self, record: TopicRecord) -> None:
        """Replay a topic, which has no partitions yet."""
        self.changed_topics[record.topic_id] = TopicDelta(TopicImage(record.name, record.topic_id))
        self.created_topics[record.name] = record.topic_id

    def replay_partition(self, record: PartitionRecord) -> None:
        """Replay a partition. Raises DecodeError if there is no such topic."""
        self._topic(record.topic_id).replay_partition(record)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Replay a change of a partition. Raises DecodeError if there is no such topic or partition."""
        self._topic(record.topic_id).replay_change(record)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Remove the eligible leader replicas of the named topic, or of all topics without a name. Raises DecodeError if there is no such
        topic."""
        if not record.topic_name:
            for each in dict.fromkeys([*self.image.by_id, *self.created_topics.values()]):
                self._clear_elr(each)
            return
        topic_id = self.created_topics.get(record.topic_name)
        if topic_id is None:
            topic = self.image.by_name.get(record.topic_name)
            if topic is None:
                raise contradiction(f"Unable to clear elr for topic with name {record.topic_name}: no such topic found.")
            topic_id = topic.id
        self._clear_elr(topic_id)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Remove a topic, and return its name. Raises DecodeError if there is none."""
        delta = self.changed_topics.pop(record.topic_id, None)
        topic = self.image.by_id.get(record.topic_id)
        if delta is None and topic is None:
            raise contradiction(f"Unable to delete topic with id {uuid_text(record.topic_id)}: no such topic found.")
        if topic is not None:
            self.deleted_topic_ids.add(record.topic_id)
        if delta is None:
            assert topic is not None
            return topic.name
        self.created_topics.pop(delta.image.name, None)
        return delta.image.name

    def topic_was_deleted(self, name: str) -> bool:
        """Whether the image's topic of this name was deleted, even if there is a new one of the same name."""
        topic = self.image.by_name.get(name)
        return topic is not None and topic.id in self.deleted_topic_ids

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        self.deleted_topic_ids.update(topic_id for topic_id in self.image.by_id if topic_id not in self.changed_topics)

    def apply(self) -> TopicsImage:
        """Return the image with the changes."""
        deleted = [self.image.by_id[topic_id] for topic_id in sorted(self.deleted_topic_ids)]
        changed = [delta.apply() for delta in self.changed_topics.values()]
        by_id: dict[bytes, TopicImage | None] = {topic.id: None for topic in deleted}
        by_name: dict[str, TopicImage | None] = {topic.name: None for topic in deleted}
        by_id.update({topic.id: topic for topic in changed})
        by_name.update({topic.name: topic for topic in changed})
        return TopicsImage(self.image.by_id.changed(by_id), self.image.by_name.changed(by_name))

    def deleted_topics(self) -> Iterator[TopicImage]:
        """Return the image's topics that were deleted."""
        return (self.image.by_id[topic_id] for topic_id in sorted(self.deleted_topic_ids))

    def _topic(self, topic_id: bytes) -> TopicDelta:
        delta = self.changed_topics.get(topic_id)
        if delta is None:
            topic = self.image.by_id.get(topic_id)
            if topic is None:
                raise contradiction(f"Missing topic id {uuid_text(topic_id)}")
            delta = self.changed_topics[topic_id] = TopicDelta(topic)
        return delta

    def _clear_elr(self, topic_id: bytes) -> None:
        if topic_id not in self.deleted_topic_ids:
            self._topic(topic_id).clear_elr()
