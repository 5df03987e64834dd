"""Values for Kafka's coordinator classes in the oracle's JVM: messages and records as bytes, and a metadata image."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.messages.partition_record import PartitionRecord
from kops.protocol.messages.register_broker_record import RegisterBrokerRecord
from kops.protocol.messages.remove_topic_record import RemoveTopicRecord
from kops.protocol.messages.topic_record import TopicRecord
from kops.protocol.record_values import write_framed
from tests.support.kafka.oracle import Oracle

KAFKA = "org.apache.kafka."


class JavaCoordinators:
    """Kafka's values for the classes of the coordinators."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.accessor = oracle.java_class(f"{KAFKA}common.protocol.ByteBufferAccessor")
        self.wrap = oracle.java_class("java.nio.ByteBuffer").wrap
        self.to_buffer = oracle.java_class(f"{KAFKA}common.protocol.MessageUtil").toByteBufferAccessor
        self._shorts: dict[int, Any] = {}

    def make(self, name: str, *args: Any) -> Any:
        """Return a new object of one of Kafka's classes."""
        return self.oracle.java_class(KAFKA + name)(*args)

    def short(self, number: int) -> Any:
        """Return a Java short. Each number is made once."""
        if number not in self._shorts:
            self._shorts[number] = self.oracle.short(number)
        return self._shorts[number]

    def long(self, number: int) -> Any:
        """Return a Java long, even if the number is small."""
        return self.oracle.java_class("java.lang.Long").valueOf(str(number))

    def uuid(self, value: bytes) -> Any:
        """Return a Uuid."""
        return self.oracle.java_class(f"{KAFKA}common.Uuid").fromString(base64.urlsafe_b64encode(value).decode().rstrip("="))

    def message(self, message: Message, version: int) -> Any:
        """Return a request or response of kops as Kafka's object."""
        made = self.oracle.java_class(f"{KAFKA}common.message.{type(message).__name__}Data")
        return made(self.accessor(self.wrap(message.encode(version))), self.short(version))

    def message_bytes(self, message: Any, version: int) -> bytes:
        """Return the written bytes of a message of Kafka."""
        return bytes(self.to_buffer(message, self.short(version)).buffer().array())

    def records(self, records: Any, serde: Any) -> list[tuple[bytes, bytes | None]]:
        """Return the written keys and values of CoordinatorRecords."""
        found = []
        for record in records.toArray():
            value = serde.serializeValue(record)
            found.append((bytes(serde.serializeKey(record)), None if value is None else bytes(value)))
        return found

    def image(self, topics: Mapping[str, tuple[bytes, int]], racks: Sequence[str | None] = ()) -> Any:
        """Return a CoordinatorMetadataImage with topics: their ids and numbers of partitions.

        With `racks` it has brokers in these racks, with ids from 0, and partition n has n + 1 replicas.
        """
        images = f"{KAFKA}image."
        empty = self.oracle.java_class(f"{images}MetadataImage").EMPTY
        delta = self.oracle.jvm.org.apache.kafka.image.MetadataDelta.Builder().setImage(empty).build()
        for broker_id, rack in enumerate(racks):
            delta.replay(self._metadata_record(RegisterBrokerRecord(broker_id, rack=rack, fenced=False), 0))
        for name, (topic_id, count) in topics.items():
            delta.replay(self._metadata_record(TopicRecord(name=name, topic_id=topic_id), 0))
            for partition in range(count):
                replicas = list(range(partition + 1)) if racks else [1]
                delta.replay(
                    self._metadata_record(PartitionRecord(partition, topic_id, replicas=replicas, isr=replicas, leader=replicas[0]), 0)
                )
        return self._applied(delta, 10)

    def changed_image(
        self, before: Any, old: Mapping[str, tuple[bytes, int]], new: Mapping[str, tuple[bytes, int]], version: int
    ) -> tuple[Any, Any]:
        """Return a CoordinatorMetadataDelta that creates, deletes and extends topics, and the image after it."""
        images = self.oracle.jvm.org.apache.kafka.image
        delta = images.MetadataDelta.Builder().setImage(self._plain_image(before)).build()
        for name, (topic_id, _) in old.items():
            if name not in new or new[name][0] != topic_id:
                delta.replay(self._metadata_record(RemoveTopicRecord(topic_id), 0))
        for name, (topic_id, count) in new.items():
            start = old[name][1] if name in old and old[name][0] == topic_id else 0
            if not start:
                delta.replay(self._metadata_record(TopicRecord(name=name, topic_id=topic_id), 0))
            for partition in range(start, count):
                delta.replay(self._metadata_record(PartitionRecord(partition, topic_id, replicas=[1], isr=[1], leader=1), 0))
        image = self._applied(delta, version)
        return self.make("coordinator.common.runtime.KRaftCoordinatorMetadataDelta", delta), image

    def _applied(self, delta: Any, version: int) -> Any:
        provenance = self.oracle.java_class(f"{KAFKA}image.MetadataProvenance")(self.long(version), 1, self.long(version), True)
        return self.make("coordinator.common.runtime.KRaftCoordinatorMetadataImage", delta.apply(provenance))

    @staticmethod
    def _plain_image(image: Any) -> Any:
        field = image.getClass().getDeclaredField("metadataImage")
        field.setAccessible(True)
        return field.get(image)

    def _metadata_record(self, message: Message, version: int) -> Any:
        value = write_framed(message, version)
        serde = self.oracle.java_class(f"{KAFKA}metadata.MetadataRecordSerde").INSTANCE
        return serde.read(self.accessor(self.wrap(value)), len(value)).message()
