"""What coordinators of Kafka's classes need in the oracle's JVM: messages as bytes in and out, records as bytes, and a metadata image."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.messages.partition_record import PartitionRecord
from kops.protocol.messages.topic_record import TopicRecord
from kops.protocol.record_values import write_framed
from tests.support.kafka.oracle import Oracle

KAFKA = "org.apache.kafka."


class JavaCoordinators:
    """Kafka's values for the coordinators' classes."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.accessor = oracle.java_class(f"{KAFKA}common.protocol.ByteBufferAccessor")
        self.wrap = oracle.java_class("java.nio.ByteBuffer").wrap
        self.to_buffer = oracle.java_class(f"{KAFKA}common.protocol.MessageUtil").toByteBufferAccessor
        self._shorts: dict[int, Any] = {}

    def make(self, name: str, *args: Any) -> Any:
        """A new object of a class of Kafka's."""
        return self.oracle.java_class(KAFKA + name)(*args)

    def short(self, number: int) -> Any:
        """A Java short, made once."""
        if number not in self._shorts:
            self._shorts[number] = self.oracle.short(number)
        return self._shorts[number]

    def long(self, number: int) -> Any:
        """A Java long, also where it is small."""
        return self.oracle.java_class("java.lang.Long").valueOf(str(number))

    def uuid(self, value: bytes) -> Any:
        """A Uuid."""
        return self.oracle.java_class(f"{KAFKA}common.Uuid").fromString(base64.urlsafe_b64encode(value).decode().rstrip("="))

    def message(self, message: Message, version: int) -> Any:
        """A request or response of ours as Kafka's object."""
        made = self.oracle.java_class(f"{KAFKA}common.message.{type(message).__name__}Data")
        return made(self.accessor(self.wrap(message.encode(version))), self.short(version))

    def message_bytes(self, message: Any, version: int) -> bytes:
        """A message of Kafka's as it is written."""
        return bytes(self.to_buffer(message, self.short(version)).buffer().array())

    def records(self, records: Any, serde: Any) -> list[tuple[bytes, bytes | None]]:
        """Keys and values of CoordinatorRecords as they are written."""
        found = []
        for record in records.toArray():
            value = serde.serializeValue(record)
            found.append((bytes(serde.serializeKey(record)), None if value is None else bytes(value)))
        return found

    def image(self, topics: Mapping[str, tuple[bytes, int]]) -> Any:
        """A CoordinatorMetadataImage with topics: their ids and numbers of partitions."""
        images = f"{KAFKA}image."
        empty = self.oracle.java_class(f"{images}MetadataImage").EMPTY
        delta = self.oracle.jvm.org.apache.kafka.image.MetadataDelta.Builder().setImage(empty).build()
        for name, (topic_id, count) in topics.items():
            delta.replay(self._metadata_record(TopicRecord(name=name, topic_id=topic_id), 0))
            for partition in range(count):
                delta.replay(self._metadata_record(PartitionRecord(partition, topic_id, replicas=[1], isr=[1], leader=1), 0))
        provenance = self.oracle.java_class(f"{images}MetadataProvenance")(self.long(10), 1, self.long(10), True)
        return self.make("coordinator.common.runtime.KRaftCoordinatorMetadataImage", delta.apply(provenance))

    def _metadata_record(self, message: Message, version: int) -> Any:
        value = write_framed(message, version)
        serde = self.oracle.java_class(f"{KAFKA}metadata.MetadataRecordSerde").INSTANCE
        return serde.read(self.accessor(self.wrap(value)), len(value)).message()
