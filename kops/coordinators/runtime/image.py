"""What coordinators need to know of the cluster's metadata (Kafka's CoordinatorMetadataImage and CoordinatorMetadataDelta).

The broker gives them views of its metadata image. Topic ids are 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class TopicView(Protocol):
    """One topic."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def id(self) -> bytes:
        """Its id."""

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""

    def partition_racks(self, partition: int) -> Sequence[str]:
        """The racks of a partition's replicas, where they are known."""


class CoordinatorImage(Protocol):
    """The metadata at an offset. It never changes; a new one comes instead."""

    @property
    def version(self) -> int:
        """The offset of the metadata."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no metadata yet."""

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""

    def topic(self, name: str) -> TopicView | None:
        """The topic with a name."""

    def topic_by_id(self, topic_id: bytes) -> TopicView | None:
        """The topic with an id."""


class CoordinatorDelta(Protocol):
    """What the newest image changed. Ids and names are of changed, made and deleted topics."""

    @property
    def created_topic_ids(self) -> Iterable[bytes]:
        """Topics that are new."""

    @property
    def changed_topic_ids(self) -> Iterable[bytes]:
        """Topics that are new or have changed."""

    @property
    def deleted_topic_ids(self) -> Iterable[bytes]:
        """Topics that are gone."""
