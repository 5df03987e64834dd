"""New metadata at a broker: the first image starts it. What comes while its logs are loaded waits."""

from __future__ import annotations

from collections.abc import Callable

from kops.broker.life.publishers import BrokerPublisher, BrokerRegistrationTracker
from kops.errors import UsageError
from kops.metadata.image.batch_loader import Manifest
from kops.metadata.image.metadata_cache import MetadataCache
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.image.parts.topics import TopicsDelta
from kops.protocol.declaration import Message
from kops.protocol.messages import ConfigRecord, FeatureLevelRecord, RegisterBrokerRecord, TopicRecord

TOPIC, BROKER = 2, 4


class World:
    """A publisher, and the calls to its broker."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.did: list[str] = []
        self.coordinated: list[int] = []
        self.told: list[int] = []
        self.image = EMPTY
        self.loaded: Callable[[], None] | None = None
        self.fails = False
        self.publisher = BrokerPublisher(
            self.cache,
            self,
            start_logs=self.start_logs,
            on_topics=lambda _delta, image: self.coordinated.append(image.offset),
            on_broker_configs=lambda image: self.did.append(f"broker configs {image.offset}"),
            on_topic_configs=lambda topic: self.did.append(f"throttles of {topic}"),
            on_metadata=lambda _delta, image: self.told.append(image.offset),
            on_first_publish=lambda: self.did.append("first"),
        )
        self.tracker = BrokerRegistrationTracker(1, lambda: self.did.append("register"))

    def start_logs(self, image: MetadataImage, done: Callable[[], None]) -> None:
        self.did.append(f"load {image.offset}")
        self.loaded = done

    def apply_delta(self, delta: TopicsDelta, image: MetadataImage) -> None:
        self.did.append(f"topics {image.offset}: {sorted(topic.image.name for topic in delta.changed_topics.values())}")

    def update_topic_config(self, topic: str) -> None:
        if self.fails or topic == "refused":
            raise UsageError("no")
        self.did.append(f"settings of {topic}")

    def publish(self, *records: Message) -> list[str]:
        """Publish new metadata, and return the calls that it caused."""
        self.did.clear()
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        provenance = MetadataProvenance(self.image.offset + 1, 1, 0, True)
        self.image = delta.apply(provenance)
        for publisher in (self.publisher, self.tracker):
            publisher.on_metadata_update(delta, self.image, Manifest(provenance, is_snapshot=False))
        return self.did

    def finish_loading(self) -> list[str]:
        """Finish the loading of the logs, and return the calls that it caused."""
        assert self.loaded is not None
        self.did.clear()
        self.loaded()
        return self.did


def topic(name: str) -> TopicRecord:
    """Return a topic without partitions."""
    return TopicRecord(name=name, topic_id=name.encode() * 16)


def test_the_first_image_starts_the_broker_and_the_next_ones_wait_for_it() -> None:
    world = World()
    assert world.publish(topic("a"), ConfigRecord(TOPIC, "a", "retention.ms", "5")) == ["broker configs 0", "load 0"]
    assert world.cache.image.offset == 0
    assert world.publish(topic("b")) == []
    assert world.publish(ConfigRecord(BROKER, "", "log.retention.ms", "5")) == []
    assert world.finish_loading() == [
        "topics 0: ['a']",
        "settings of a",
        "throttles of a",
        "first",
        "topics 1: ['b']",
        "broker configs 2",
    ]
    assert world.cache.image.offset == 2
    assert world.publish(topic("c"), ConfigRecord(BROKER, "7", "log.retention.ms", "5")) == ["topics 3: ['c']", "broker configs 3"]
    assert world.cache.image.offset == 3
    assert world.coordinated == [0, 1, 3]
    assert world.told == [0, 1, 2, 3]


def test_what_a_part_refuses_does_not_end_the_broker() -> None:
    world = World()
    world.publish()
    world.finish_loading()
    world.fails = True
    assert world.publish(topic("a"), ConfigRecord(TOPIC, "a", "retention.ms", "5")) == ["topics 1: ['a']"]
    assert world.publish(topic("b")) == ["topics 2: ['b']"]


def test_what_one_topic_may_not_have_keeps_nothing_from_others() -> None:
    world = World()
    world.publish()
    world.finish_loading()
    settings = [ConfigRecord(TOPIC, name, "retention.ms", "5") for name in ("refused", "a")]
    did = world.publish(*map(topic, ("refused", "a")), *settings, ConfigRecord(BROKER, "", "log.retention.ms", "5"))
    assert did == ["topics 1: ['a', 'refused']", "settings of a", "throttles of a", "broker configs 1"]


def test_a_closed_publisher_does_nothing() -> None:
    world = World()
    world.publish(topic("a"))
    world.publish(topic("b"))
    world.publisher.close()
    assert world.finish_loading() == []
    assert world.publish(topic("c")) == []


def test_a_broker_registers_again_where_the_cluster_has_come_to_know_directories() -> None:
    world = World()
    world.publisher.close()
    old, new = (FeatureLevelRecord("metadata.version", level) for level in (14, 17))
    assert world.publish(old, RegisterBrokerRecord(broker_id=1, broker_epoch=1)) == []
    assert world.publish(new) == ["register"]
    assert world.publish(topic("a")) == []
    assert world.publish(RegisterBrokerRecord(broker_id=2, broker_epoch=2)) == []
    assert world.publish(RegisterBrokerRecord(broker_id=1, broker_epoch=3)) == ["register"]
    assert world.publish(RegisterBrokerRecord(broker_id=1, broker_epoch=4, log_dirs=[b"d" * 16])) == []
