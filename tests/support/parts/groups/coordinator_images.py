"""Metadata for coordinators in tests: topics with ids and numbers of partitions (kops.coordinators.runtime.image)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One topic."""

    name: str
    id: bytes
    partition_count: int

    def partition_racks(self, partition: int) -> Sequence[str]:
        """Return no racks."""
        return ()


class Image:
    """An image with these topics."""

    def __init__(self, topics: Mapping[str, tuple[bytes, int]], version: int = 10) -> None:
        self.version = version
        self._by_name = {name: Topic(name, *topic) for name, topic in topics.items()}
        self._by_id = {topic.id: topic for topic in self._by_name.values()}

    @property
    def is_empty(self) -> bool:
        """Whether it has no topic."""
        return not self._by_name

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._by_name

    def topic(self, name: str) -> Topic | None:
        """Return the topic with a name."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with an id."""
        return self._by_id.get(topic_id)


@dataclass(frozen=True)
class Delta:
    """The changes between two images."""

    created_topic_ids: Sequence[bytes]
    changed_topic_ids: Sequence[bytes]
    deleted_topic_ids: Sequence[bytes]

    @classmethod
    def between(cls, old: Image, new: Image) -> Delta:
        """Return the topics that are new, have changed, or are gone."""
        before, after = ({topic.id: topic for topic in map(image.topic, image.topic_names()) if topic} for image in (old, new))
        created = [topic_id for topic_id in after if topic_id not in before]
        changed = [topic_id for topic_id, topic in after.items() if before.get(topic_id) != topic]
        return cls(created, changed, [topic_id for topic_id in before if topic_id not in after])
