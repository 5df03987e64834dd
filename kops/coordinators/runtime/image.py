"""The part of the cluster's metadata that coordinators use (Kafka's CoordinatorMetadataImage and CoordinatorMetadataDelta).

The broker provides views of its metadata image. Topic ids are 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class TopicView(Protocol):
    """One topic."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def id(self) -> bytes:
        """The topic's id."""

    @property
    def partition_count(self) -> int:
        """The number of its partitions."""

    def partition_racks(self, partition: int) -> Sequence[str]:
        """The known racks of a partition's replicas."""


class CoordinatorImage(Protocol):
    """The metadata at an offset. It is immutable; each change creates a new image."""

    @property
    def version(self) -> int:
        """The offset of the metadata."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no metadata yet."""

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""

    def topic(self, name: str) -> TopicView | None:
        """The topic with this name, or None."""

    def topic_by_id(self, topic_id: bytes) -> TopicView | None:
        """The topic with this id, or None."""


class CoordinatorDelta(Protocol):
    """The changes from the previous image to the newest one."""

    @property
    def created_topic_ids(self) -> Iterable[bytes]:
        """The ids of created topics."""

    @property
    def changed_topic_ids(self) -> Iterable[bytes]:
        """The ids of created and changed topics."""

    @property
    def deleted_topic_ids(self) -> Iterable[bytes]:
        """The ids of deleted topics."""
