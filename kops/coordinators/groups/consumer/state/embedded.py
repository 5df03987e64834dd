"""The data of consumers inside classic requests: a version, then a subscription or an assignment (Kafka's ConsumerProtocol, Utils)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.modern.group import partitions_from_lists
from kops.coordinators.runtime.image import CoordinatorImage
from kops.errors import DecodeError, KopsError
from kops.protocol.declaration import Message
from kops.protocol.messages.consumer_group_heartbeat_request import TopicPartitions
from kops.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

M = TypeVar("M", bound=Message)
_HIGHEST_VERSION: Final = 3


class SchemaError(KopsError):
    """The data is not that of a consumer (Kafka's SchemaException)."""


def version_of(data: bytes) -> int:
    """Return the version at the beginning. Raises SchemaError."""
    if len(data) < 2:
        raise SchemaError("Buffer underflow while parsing consumer protocol's header")
    return int.from_bytes(data[:2], "big", signed=True)


def _read(declared: type[M], data: bytes, what: str) -> M:
    version = version_of(data)
    if version < 0:
        raise SchemaError(f"Unsupported {what} version: {version}")
    try:
        return declared.read(data, min(version, _HIGHEST_VERSION), 2)[0]
    except DecodeError as error:
        raise SchemaError(f"Buffer underflow while parsing consumer protocol's {what}") from error


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's metadata. Raises SchemaError."""
    return _read(ConsumerProtocolSubscription, data, "subscription")


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment. Raises SchemaError."""
    return _read(ConsumerProtocolAssignment, data, "assignment")


def partitions_of(assignment: ConsumerProtocolAssignment, image: CoordinatorImage) -> Partitions:
    """Return the assigned partitions of topics that exist."""
    found: dict[bytes, list[int]] = {}
    for given in assignment.assigned_partitions:
        topic = image.topic(given.topic)
        if topic is not None:
            found[topic.id] = given.partitions
    return partitions_from_lists(found)


def owned_topics(subscription: ConsumerProtocolSubscription, image: CoordinatorImage) -> list[TopicPartitions]:
    """Return the partitions that a member reports as owned, for topics that exist."""
    found = []
    for given in subscription.owned_partitions:
        topic = image.topic(given.topic)
        if topic is not None:
            found.append(TopicPartitions(topic.id, given.partitions))
    return found


def assignment_bytes(partitions: Mapping[bytes, Iterable[int]], image: CoordinatorImage, version: int) -> bytes:
    """Encode an assignment for consumers, without deleted topics. Raises SchemaError."""
    if version < 0:
        raise SchemaError(f"Unsupported assignment version: {version}")
    version = min(version, _HIGHEST_VERSION)
    found = []
    for topic_id, numbers in partitions.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            found.append(TopicPartition(topic.name, list(numbers)))
    return version.to_bytes(2, "big") + ConsumerProtocolAssignment(found).encode(version)
