"""Views of a broker's metadata for coordinators (Kafka's KRaftCoordinatorMetadataImage, KRaftCoordinatorMetadataDelta)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicImage


class TopicOfImage:
    """One topic."""

    __slots__ = ("_image", "_topic")

    def __init__(self, image: MetadataImage, topic: TopicImage) -> None:
        self._image = image
        self._topic = topic

    @property
    def name(self) -> str:
        """Its name."""
        return self._topic.name

    @property
    def id(self) -> bytes:
        """Its id."""
        return self._topic.id

    @property
    def partition_count(self) -> int:
        """The number of its partitions."""
        return len(self._topic.partitions)

    def partition_racks(self, partition: int) -> Sequence[str]:
        """The known racks of a partition's replicas."""
        found = self._topic.partitions.get(partition)
        if found is None:
            return ()
        brokers = self._image.cluster.brokers
        racks = (None if broker is None else broker.rack for broker in map(brokers.get, found.replicas))
        return [rack for rack in racks if rack is not None]


class ImageView:
    """The metadata at an offset."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def advance(self, image: MetadataImage) -> None:
        """Show a later image with the same topics. So a record that changes no topic, as one that says nothing, costs no call per shard."""
        self._image = image

    @property
    def version(self) -> int:
        """The offset of the metadata."""
        return self._image.offset

    @property
    def is_empty(self) -> bool:
        """Whether there is no metadata yet."""
        return self._image.is_empty

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._image.topics.by_name.keys()

    def topic(self, name: str) -> TopicOfImage | None:
        """The topic with a name."""
        topic = self._image.topics.by_name.get(name)
        return None if topic is None else TopicOfImage(self._image, topic)

    def topic_by_id(self, topic_id: bytes) -> TopicOfImage | None:
        """The topic with an id."""
        topic = self._image.topics.by_id.get(topic_id)
        return None if topic is None else TopicOfImage(self._image, topic)


class DeltaView:
    """The changes from the previous image to the newest one."""

    __slots__ = ("_delta",)

    def __init__(self, delta: MetadataDelta) -> None:
        self._delta = delta

    @property
    def created_topic_ids(self) -> Iterable[bytes]:
        """The ids of created topics."""
        return self._delta.topics.created_topics.values() if self._delta.has("topics") else ()

    @property
    def changed_topic_ids(self) -> Iterable[bytes]:
        """The ids of created and changed topics."""
        return self._delta.topics.changed_topics.keys() if self._delta.has("topics") else ()

    @property
    def deleted_topic_ids(self) -> Iterable[bytes]:
        """The ids of deleted topics."""
        return self._delta.topics.deleted_topic_ids if self._delta.has("topics") else ()
