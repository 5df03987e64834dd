"""Applies new metadata to a broker: the first image starts its logs and replicas, later ones change them.

Source: Kafka's BrokerMetadataPublisher, BrokerRegistrationTracker and TopicConfigHandler. Kafka's loader thread blocks while logs are
loaded. Here side threads load them, and updates of the metadata wait in order meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kops.errors import KopsError
from kops.metadata.image.parts.configs import ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.metadata.image.batch_loader import Manifest
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicsDelta

log = logging.getLogger(__name__)


class Replicas(Protocol):
    """The part of `ReplicaManager` that is needed here."""

    def apply_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Lead, follow and stop replicas as the metadata says."""

    def update_topic_config(self, topic: str) -> None:
        """Apply changed settings of a topic."""


class BrokerPublisher:
    """The publisher of one broker. `start_logs(image, done)` loads the logs and calls `done`, at once or later, when the replicas may be
    started.

    `on_topics` is called when topics have changed and the replicas know it: coordinators come and go with the leaders of their topics.
    `on_broker_configs` and `on_topic_configs` are called when settings of brokers or of a topic have changed, `on_first_publish` when the
    first image has been applied. `on_metadata` is called at the end of every change.
    """

    def __init__(
        self,
        cache: MetadataCache,
        replicas: Replicas,
        *,
        start_logs: Callable[[MetadataImage, Callable[[], None]], None],
        on_topics: Callable[[TopicsDelta, MetadataImage], None],
        on_broker_configs: Callable[[MetadataImage], None],
        on_topic_configs: Callable[[str], None],
        on_metadata: Callable[[MetadataDelta, MetadataImage], None],
        on_first_publish: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._replicas = replicas
        self._start_logs = start_logs
        self._on_topics = on_topics
        self._on_broker_configs = on_broker_configs
        self._on_topic_configs = on_topic_configs
        self._on_metadata = on_metadata
        self._on_first_publish = on_first_publish
        self._waiting: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        self._is_started = self._is_loading = self._is_closed = False

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """See `kops.metadata.image.loader.Publisher`."""
        if self._is_closed:
            return
        if self._is_loading:
            self._waiting.append((delta, image))
        elif self._is_started:
            self._publish(delta, image)
        else:
            self._start(delta, image)

    def close(self) -> None:
        """Apply nothing more, not even waiting updates."""
        self._is_closed = True
        self._waiting.clear()

    def _start(self, delta: MetadataDelta, image: MetadataImage) -> None:
        log.info("Publishing initial metadata at offset %d with metadata.version %s.", image.offset, image.features.metadata_version)
        self._cache.image = image
        self._is_loading = True
        # Broker settings must be applied before the logs are loaded: they are the defaults of topic settings.
        self._on_broker_configs(image)

        def loaded() -> None:
            if self._is_closed:
                return
            self._is_started = True
            self._is_loading = False
            self._publish(delta, image)
            self._on_first_publish()
            while self._waiting:
                self._publish(*self._waiting.popleft())

        self._start_logs(image, loaded)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._cache.image = image
        if delta.has("topics"):
            with _told(f"Error applying topics delta up to {image.offset}"):
                self._replicas.apply_delta(delta.topics, image)
            with _told(f"Error updating the coordinators up to {image.offset}"):
                self._on_topics(delta.topics, image)
        if delta.has("configs"):
            self._publish_configs(delta, image)
        with _told(f"Error updating the coordinators up to {image.offset}"):
            self._on_metadata(delta, image)

    def _publish_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        resources = list(delta.configs.changes)
        for resource in resources:
            if resource.type is ResourceType.TOPIC:
                log.info("Updating topic %s with new configuration : %s", resource.name, dict(image.configs.of(*resource)))
                with _told(f"Error updating topic {resource.name} up to {image.offset}"):
                    self._replicas.update_topic_config(resource.name)
                    self._on_topic_configs(resource.name)
        if any(resource.type is ResourceType.BROKER for resource in resources):
            with _told(f"Error updating brokers up to {image.offset}"):
                self._on_broker_configs(image)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Log errors. As in Kafka, the broker continues with its old state, and a failure does not prevent other updates."""
    try:
        yield
    except (KopsError, OSError):
        log.exception("%s", what)


class BrokerRegistrationTracker:
    """Makes the broker register again if its registration lacks directories that the present metadata.version supports."""

    def __init__(self, node_id: int, resend: Callable[[], None]) -> None:
        self._node_id = node_id
        self._resend = resend

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """See `kops.metadata.image.loader.Publisher`."""
        is_changed = delta.has("cluster") and delta.cluster.changed_brokers.get(self._node_id) is not None
        if not is_changed and delta.metadata_version_change is None:
            return
        broker = image.cluster.brokers.get(self._node_id)
        version = image.features.metadata_version
        if broker is not None and version is not None and version.has_directory_assignment and not broker.directories:
            log.info("Current directory set is empty, but the metadata.version supports JBOD. Resending the broker registration.")
            self._resend()
