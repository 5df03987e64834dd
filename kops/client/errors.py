"""The errors of the clients: classes with Kafka's names, and how a program can react to each.

Source: Kafka's org.apache.kafka.common.errors, and TransactionManager.maybeTransitionToErrorState, which decides what is fatal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from kops.errors import ApiError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_FATAL: Final = frozenset(
    (
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNSUPPORTED_VERSION",
    )
)


class KafkaError(ApiError):
    """An error of a broker, or of the client itself. `name` is that of Kafka's error code, or of the class if there is no such code."""

    code_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    _is_fatal: bool | None = None  # what the producer has decided, if it has

    def __init__(self, message: str = "", name: str | None = None) -> None:
        super().__init__(name or self.code_name, message or by_name(name or self.code_name).words)

    def __reduce__(self) -> tuple[Callable[..., KafkaError], tuple[object, ...]]:
        """Let an error be sent to another process, whatever arguments its class needs."""
        return _restored, (type(self), self.args, self.__dict__)

    def marked(self, *, fatal: bool) -> Self:
        """Set whether the producer can go on after this error, because that may depend on the request. Returns the error itself."""
        self._is_fatal = fatal
        return self

    def reworded(self, message: str) -> KafkaError:
        """Return the same error with another message."""
        return error_named(self.name, message)

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later. The producer has already retried it for as long as its settings allow."""
        return by_name(self.name).retriable

    @property
    def fatal(self) -> bool:
        """Whether the producer can no longer be used. Close it, and create a new one."""
        return self.name in _FATAL if self._is_fatal is None else self._is_fatal

    @property
    def abortable(self) -> bool:
        """Whether a transactional producer can abort its transaction and continue."""
        return not self.fatal


def _restored(kind: type[KafkaError], args: tuple[object, ...], state: dict[str, object]) -> KafkaError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class KafkaTimeoutError(KafkaError):
    """No answer, no metadata or no memory in time (TimeoutException)."""

    code_name = "REQUEST_TIMED_OUT"


class BufferExhaustedError(KafkaTimeoutError):
    """`buffer.memory` was full for `max.block.ms` (BufferExhaustedException)."""


class RecordTooLargeError(KafkaError):
    """A record is larger than the client or the broker accepts (RecordTooLargeException)."""

    code_name = "MESSAGE_TOO_LARGE"


class InvalidTopicError(KafkaError):
    """The name of the topic is not allowed (InvalidTopicException)."""

    code_name = "INVALID_TOPIC_EXCEPTION"


class TopicAuthorizationError(KafkaError):
    """The producer may not write to the topic (TopicAuthorizationException)."""

    code_name = "TOPIC_AUTHORIZATION_FAILED"


class ClusterAuthorizationError(KafkaError):
    """The producer may not write idempotently (ClusterAuthorizationException)."""

    code_name = "CLUSTER_AUTHORIZATION_FAILED"


class ProducerFencedError(KafkaError):
    """Another producer has taken the producer's place (ProducerFencedException)."""

    code_name = "PRODUCER_FENCED"


class OutOfOrderSequenceError(KafkaError):
    """The broker misses earlier records of this producer (OutOfOrderSequenceException)."""

    code_name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class UnknownProducerIdError(OutOfOrderSequenceError):
    """The broker has no state of this producer (UnknownProducerIdException)."""

    code_name = "UNKNOWN_PRODUCER_ID"


class InvalidProducerEpochError(KafkaError):
    """The producer's epoch is old: its transaction timed out, or another producer has taken its place (InvalidProducerEpochException)."""

    code_name = "INVALID_PRODUCER_EPOCH"


class InvalidPidMappingError(KafkaError):
    """The coordinator has another producer id for the transactional id, or none (InvalidPidMappingException)."""

    code_name = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTxnStateError(KafkaError):
    """The transaction's state on the coordinator does not allow the request (InvalidTxnStateException)."""

    code_name = "INVALID_TXN_STATE"


class TransactionAbortableError(KafkaError):
    """The transaction can't be committed. Abort it, and the producer can go on (TransactionAbortableException)."""

    code_name = "TRANSACTION_ABORTABLE"


class TransactionalIdAuthorizationError(KafkaError):
    """The producer may not use the transactional id (TransactionalIdAuthorizationException)."""

    code_name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class GroupAuthorizationError(KafkaError):
    """The client may not use the group (GroupAuthorizationException)."""

    code_name = "GROUP_AUTHORIZATION_FAILED"


class FencedInstanceIdError(KafkaError):
    """Another member of the group now has the `group.instance.id` (FencedInstanceIdException)."""

    code_name = "FENCED_INSTANCE_ID"


class InvalidRecordError(KafkaError):
    """The broker rejected the record (InvalidRecordException)."""

    code_name = "INVALID_RECORD"


class UnsupportedVersionError(KafkaError):
    """The broker is too old for the request (UnsupportedVersionException)."""

    code_name = "UNSUPPORTED_VERSION"


class TopicExistsError(KafkaError):
    """There is already a topic with this name (TopicExistsException)."""

    code_name = "TOPIC_ALREADY_EXISTS"


class UnknownTopicOrPartitionError(KafkaError):
    """There is no such topic or partition (UnknownTopicOrPartitionException)."""

    code_name = "UNKNOWN_TOPIC_OR_PARTITION"


class UnknownTopicIdError(KafkaError):
    """There is no topic with this id (UnknownTopicIdException)."""

    code_name = "UNKNOWN_TOPIC_ID"


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not possible (InvalidPartitionsException)."""

    code_name = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(KafkaError):
    """The replication factor is not possible (InvalidReplicationFactorException)."""

    code_name = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignmentError(KafkaError):
    """The replicas of a partition are not possible (InvalidReplicaAssignmentException)."""

    code_name = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigurationError(KafkaError):
    """A setting is not allowed (InvalidConfigurationException)."""

    code_name = "INVALID_CONFIG"


class InvalidRequestError(KafkaError):
    """The request makes no sense to the broker (InvalidRequestException)."""

    code_name = "INVALID_REQUEST"


class PolicyViolationError(KafkaError):
    """A policy of the cluster forbids it (PolicyViolationException)."""

    code_name = "POLICY_VIOLATION"


class GroupIdNotFoundError(KafkaError):
    """There is no such group (GroupIdNotFoundException)."""

    code_name = "GROUP_ID_NOT_FOUND"


class GroupNotEmptyError(KafkaError):
    """The group has members (GroupNotEmptyException)."""

    code_name = "NON_EMPTY_GROUP"


class _OwnError(KafkaError):
    """An error for which Kafka has no error code."""

    retriable = property(lambda self: False)
    fatal = property(lambda self: bool(self._is_fatal))

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, self.code_name, message)

    def reworded(self, message: str) -> KafkaError:
        """Return the same error with another message."""
        return type(self)(message)


class SerializationError(_OwnError):
    """A key or a value can't be serialized (SerializationException)."""

    code_name = "SERIALIZATION"


class ProducerClosedError(_OwnError):
    """The producer is closed, or was closed before the record was delivered."""

    code_name = "PRODUCER_CLOSED"


class TransactionAbortedError(_OwnError):
    """The transaction was aborted before the record was sent (TransactionAbortedException)."""

    code_name = "TRANSACTION_ABORTED"


class CommitFailedError(_OwnError):
    """The offsets were not committed, because the consumer is no longer a member of the group or its generation is old
    (CommitFailedException)."""

    code_name = "COMMIT_FAILED"


class AdminClosedError(_OwnError):
    """The admin client is closed, or was closed before the answer."""

    code_name = "ADMIN_CLOSED"


class BatchRejectedError(_OwnError):
    """The record is valid, but another one in its batch was rejected, so none was written."""

    code_name = "BATCH_REJECTED"


_CLASSES: Final[dict[str, type[KafkaError]]] = {
    one.code_name: one
    for one in (
        KafkaTimeoutError,
        RecordTooLargeError,
        InvalidTopicError,
        TopicAuthorizationError,
        ClusterAuthorizationError,
        ProducerFencedError,
        OutOfOrderSequenceError,
        UnknownProducerIdError,
        InvalidProducerEpochError,
        InvalidPidMappingError,
        InvalidTxnStateError,
        TransactionAbortableError,
        TransactionalIdAuthorizationError,
        GroupAuthorizationError,
        FencedInstanceIdError,
        InvalidRecordError,
        UnsupportedVersionError,
        TopicExistsError,
        UnknownTopicOrPartitionError,
        UnknownTopicIdError,
        InvalidPartitionsError,
        InvalidReplicationFactorError,
        InvalidReplicaAssignmentError,
        InvalidConfigurationError,
        InvalidRequestError,
        PolicyViolationError,
        GroupIdNotFoundError,
        GroupNotEmptyError,
    )
}


def error_named(name: str, message: str = "") -> KafkaError:
    """Return the error for the name of Kafka's code."""
    return _CLASSES.get(name, KafkaError)(message, name)
