"""A coordinator as a part of a broker: it has the partitions of an internal topic, is created when it is first needed, and follows
elections and new metadata. Those of groups and of share state are such coordinators.

Source: Kafka's GroupCoordinatorService and ShareCoordinatorService (startup, shutdown, onElection, onResignation, onMetadataUpdate).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from kops.broker.coordinators.image_views import DeltaView, ImageView
from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.coordinators.runtime.runtime import CoordinatorRuntime
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.records.log_offsets import TopicPartition

CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""The codecs of internal topics by the number in the broker's settings."""
_NO_LINGER_OF_ITS_OWN: Final = -1


class Service(Protocol):
    """What answers the requests."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any]:
        """The shards of the partitions."""


S = TypeVar("S", bound=Service)


class CoordinatorOnDemand(ABC, Generic[S]):
    """A coordinator whose service is created by its first use. A subclass names its topic, and the setting with the topic's partitions."""

    topic: ClassVar[str]
    partitions_key: ClassVar[str]

    def __init__(self, loop: Loop, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache) -> None:
        self._loop = loop
        self._config = config
        self._replicas = replicas
        self._cache = cache
        self._partition_count = 0
        self._service: S | None = None
        self._view: ImageView | None = None
        """What the shards see of the metadata."""
        self.is_active = False

    def startup(self) -> None:
        """Start. The number of partitions is that of the topic or, before it exists, that of the settings."""
        count = self._cache.partition_count(self.topic)
        self._partition_count = self._config[self.partitions_key] if count is None else count
        self.is_active = True

    def shutdown(self) -> None:
        """Stop. Waiting requests get NOT_COORDINATOR."""
        self.is_active = False
        if self._service is not None:
            self._service.runtime.close()

    @property
    def service(self) -> S:
        """Return the service. Raises ApiError COORDINATOR_NOT_AVAILABLE before the start and after the stop."""
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        if self._service is None:
            self._service = self._make_service()
            self._service_made()
        return self._service

    def apply(self, delta: TopicsDelta) -> None:
        """Load the partitions that this broker leads after a change of topics, and unload those that it no longer leads."""
        changed = any(topic.image.name == self.topic for topic in delta.changed_topics.values())
        if not changed and not delta.topic_was_deleted(self.topic):
            return
        from kops.metadata.image.coordinator_changes import coordinator_changes
        from kops.records.log_offsets import TopicPartition

        changes = coordinator_changes(delta, self.topic, self._config.node_id)
        for partition, epoch in changes.resigned:
            if self._service is not None:
                self._resigned(self._service, TopicPartition(self.topic, partition), epoch)
        for partition, leader_epoch in changes.elected:
            self.service.runtime.schedule_load_operation(TopicPartition(self.topic, partition), leader_epoch)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass new metadata to the shards, and deleted topics to the service."""
        service = self._service
        if service is None or not self.is_active:
            return
        if self._view is not None and not delta.has("topics"):
            self._view.advance(image)
            return
        self._view = ImageView(image)
        service.runtime.on_metadata_update(DeltaView(delta), self._view)
        if delta.has("topics") and delta.topics.deleted_topic_ids:
            self._topics_deleted(service, delta.topics)

    @abstractmethod
    def _make_service(self) -> S:
        """Create the service, and `_view` with it."""

    def _service_made(self) -> None:
        """Start what the service does by itself."""

    def _resigned(self, service: S, key: TopicPartition, epoch: int | None) -> None:
        """Unload a partition that this broker no longer leads. `epoch` is that of the new leader, None without a replica here."""
        service.runtime.schedule_unload_operation(key, epoch)

    @abstractmethod
    def _topics_deleted(self, service: S, topics: TopicsDelta) -> None:
        """Tell the service which topics were deleted."""


def own_linger_ms(setting: int) -> int | None:
    """Return how long a write waits for others, None (-1 in the settings) if a batch ends with the loop's turn."""
    return None if setting == _NO_LINGER_OF_ITS_OWN else setting
