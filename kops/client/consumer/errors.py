"""The errors of a consumer: classes with Kafka's names, and what each one carries.

Source: Kafka's org.apache.kafka.clients.consumer (…Exception) and org.apache.kafka.common.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.errors import CommitFailedError as CommitFailedError  # the same classes for all clients
from kops.client.errors import FencedInstanceIdError as FencedInstanceIdError
from kops.client.errors import GroupAuthorizationError as GroupAuthorizationError
from kops.client.errors import KafkaError
from kops.client.errors import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
from kops.client.errors import error_named as _other_error
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kops.client.consumer.records import OffsetAndMetadata
    from kops.records.log_offsets import TopicPartition
    from kops.records.record import Header

LEADER_CHANGED: Final = frozenset(
    (
        "NOT_LEADER_OR_FOLLOWER",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
    )
)
"""Errors of fetched partitions after which both kinds of consumers ask for metadata (FetchCollector, ShareFetchCollector)."""
FETCHED_AGAIN: Final = frozenset(("UNKNOWN_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR"))
"""Errors of fetched partitions after which they just fetch again."""


class ConsumerError(KafkaError):
    """An error of the consumer itself, for which no broker has an error code."""

    retriable = property(lambda self: False)
    fatal = property(lambda self: False)

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, self.code_name, message)


class WakeupError(ConsumerError):
    """`wakeup` has ended a call that waits (WakeupException)."""

    code_name = "WAKEUP"


class ConsumerClosedError(ConsumerError):
    """The consumer is closed."""

    code_name = "CONSUMER_CLOSED"


class InvalidOffsetError(ConsumerError):
    """A position is not valid any more, or there is none. Seek to another one to continue (InvalidOffsetException)."""

    code_name = "OFFSET_OUT_OF_RANGE"

    def __init__(self, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(message)
        self.partitions = tuple(partitions)


class NoOffsetForPartitionError(InvalidOffsetError):
    """A partition has no committed offset, and `auto.offset.reset` is none (NoOffsetForPartitionException)."""

    code_name = "NO_OFFSET_FOR_PARTITION"


class OffsetOutOfRangeError(InvalidOffsetError):
    """The records at a position are gone or not there yet, and `auto.offset.reset` is none (OffsetOutOfRangeException).

    `offsets` are the positions by partition.
    """

    def __init__(self, message: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, offsets)
        self.offsets = dict(offsets)


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below a position by an unclean election (LogTruncationException).

    `divergent_offsets` are the first offsets that differ, by partition, where the leader knows them.
    """

    code_name = "LOG_TRUNCATION"

    def __init__(
        self, message: str, offsets: Mapping[TopicPartition, int], divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        super().__init__(message, offsets)
        self.divergent_offsets = dict(divergent_offsets)


class RecordDeserializationError(ConsumerError):
    """A deserializer has failed. `seek` to `offset + 1` to continue after the record (RecordDeserializationException).

    `origin` is "key" or "value". The fields are those of the record, with the key and the value as bytes.
    """

    code_name = "RECORD_DESERIALIZATION"

    def __init__(
        self,
        message: str,
        origin: str,
        partition: TopicPartition,
        offset: int,
        timestamp: int,
        timestamp_type: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> None:
        super().__init__(message)
        self.origin = origin
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers


class CorruptRecordError(KafkaError):
    """A batch has a wrong checksum or can't be read. Seek past it to continue (CorruptRecordException).

    `partition` and `offset` are those of the batch.
    """

    code_name = "CORRUPT_MESSAGE"
    retriable = property(lambda self: False)

    def __init__(self, message: str = "", name: str | None = None, partition: TopicPartition | None = None, offset: int = -1) -> None:
        super().__init__(message, name)
        self.partition = partition
        self.offset = offset


class RetriableCommitFailedError(ConsumerError):
    """An asynchronous commit has failed, and a later one may succeed (RetriableCommitFailedException)."""

    code_name = "RETRIABLE_COMMIT_FAILED"
    retriable = property(lambda self: True)


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing. Call `poll` until it is over, then commit again (RebalanceInProgressException)."""

    code_name = "REBALANCE_IN_PROGRESS"


class UnreleasedInstanceIdError(KafkaError):
    """Another member of the group still has the `group.instance.id` (UnreleasedInstanceIdException)."""

    code_name = "UNRELEASED_INSTANCE_ID"


class InvalidGroupIdError(ConsumerError):
    """`group.id` is missing or not allowed (InvalidGroupIdException)."""

    code_name = "INVALID_GROUP_ID"


_CLASSES: Final[dict[str, type[KafkaError]]] = {
    one.code_name: one for one in (CorruptRecordError, RebalanceInProgressError, UnreleasedInstanceIdError)
}


def error_named(name: str, message: str = "") -> KafkaError:
    """Return the error for the name of Kafka's code."""
    found = _CLASSES.get(name)
    error = _other_error(name, message) if found is None else found(message, name)
    return error.marked(fatal=True) if isinstance(error, FencedInstanceIdError) else error


def as_kafka(error: ApiError) -> KafkaError:
    """Return an error of the network or of a broker as the class that programs catch."""
    return error if isinstance(error, KafkaError) else error_named(error.name, error.message)
