"""The data that members of a group exchange through the coordinator: subscriptions and assignments, as bytes that begin with a version.

Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription, ConsumerProtocolAssignment. A later version than the latest known one is
read as the latest known one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kops.client.groups.assignors import Subscription
from kops.config.values.java_hash import utf16
from kops.errors import DecodeError
from kops.protocol.record_values import write_versioned
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages import ConsumerProtocolAssignment

M = TypeVar("M", bound="Message")
PROTOCOL_TYPE = "consumer"


def write_subscription(subscription: Subscription) -> bytes:
    """Return the metadata for a member's JoinGroup."""
    from kops.protocol.messages import ConsumerProtocolSubscription
    from kops.protocol.messages.consumer_protocol_subscription import TopicPartition as Owned

    owned: dict[str, list[int]] = {}
    for key in sorted(subscription.owned, key=lambda key: (utf16(key.topic), key.partition)):
        owned.setdefault(key.topic, []).append(key.partition)
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics, key=utf16),
        user_data=subscription.user_data,
        owned_partitions=[Owned(topic, partitions) for topic, partitions in owned.items()],
        generation_id=-1 if subscription.generation is None else subscription.generation,
        rack_id=subscription.rack,
    )
    return write_versioned(message, ConsumerProtocolSubscription.VERSIONS.stop - 1)


def read_subscription(data: bytes, instance_id: str | None) -> Subscription:
    """A member's subscription. Raises DecodeError."""
    from kops.protocol.messages import ConsumerProtocolSubscription

    message = _read(ConsumerProtocolSubscription, data)
    return Subscription(
        message.topics,
        _keys((one.topic, one.partitions) for one in message.owned_partitions),
        message.generation_id if message.generation_id >= 0 else None,
        message.user_data,
        instance_id,
        message.rack_id or None,
    )


def write_assignment(keys: Sequence[TopicPartition]) -> bytes:
    """Return the assignment that the leader sends to a member in SyncGroup."""
    from kops.protocol.messages import ConsumerProtocolAssignment
    from kops.protocol.messages.consumer_protocol_assignment import TopicPartition as Assigned

    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    message = ConsumerProtocolAssignment([Assigned(topic, partitions) for topic, partitions in topics.items()], None)
    return write_versioned(message, ConsumerProtocolAssignment.VERSIONS.stop - 1)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment. Empty bytes mean none. Raises DecodeError."""
    from kops.protocol.messages import ConsumerProtocolAssignment

    if not data:
        return []
    message: ConsumerProtocolAssignment = _read(ConsumerProtocolAssignment, data)
    return _keys((one.topic, one.partitions) for one in message.assigned_partitions)


def _keys(found: Iterable[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partitions in found for partition in partitions]


def _read(kind: type[M], data: bytes) -> M:
    if len(data) < 2:
        raise DecodeError("it has no version", code="bad-message")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise DecodeError(f"version {version} is not allowed", code="bad-message")
    return kind.read(data, min(version, kind.VERSIONS.stop - 1), 2)[0]
