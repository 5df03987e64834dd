"""The records that a share consumer returns, and how they are made from those of a log.

Source: Kafka's ConsumerRecord (deliveryCount), Deserializers, RecordDeserializationException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kops.client.consumer.errors import RecordDeserializationError
from kops.records.log_offsets import TopicPartition
from kops.records.record import Header, Record

if TYPE_CHECKING:
    from kops.client.consumer.deserializers import Deserializer


class ShareRecord(NamedTuple):
    """One record. `delivery_count` says how often it was delivered, including this time.

    `timestamp` is in ms since the epoch (-1: none). `leader_epoch` is None if the batch has none. `headers` are pairs of key and value.
    `key` and `value` are what the deserializers return; the sizes are those of their bytes (-1: null).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int | None
    key_size: int
    value_size: int
    delivery_count: int


class Deserializers:
    """The deserializers of keys and values."""

    def __init__(self, key: Deserializer, value: Deserializer) -> None:
        self._key = key
        self._value = value

    def read(self, topic: str, partition: int, record: Record, delivery_count: int) -> ShareRecord:
        """Return a record for the program. Raises RecordDeserializationError."""
        headers = tuple(record.headers or ())
        key, value = record.key, record.value
        origin = "key"
        try:
            # As in Kafka, a deserializer does not see null.
            found_key = None if key is None else self._key(topic, headers, key)
            origin = "value"
            found_value = None if value is None else self._value(topic, headers, value)
        except Exception as error:
            raise RecordDeserializationError(
                f"the {origin} of {topic}-{partition} at offset {record.offset} can't be deserialized, so the record was released: {error}",
                origin,
                TopicPartition(topic, partition),
                record.offset,
                record.timestamp,
                record.timestamp_type,
                key,
                value,
                headers,
            ) from error
        return ShareRecord(
            topic,
            partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            found_key,
            found_value,
            headers,
            record.leader_epoch,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            delivery_count,
        )
