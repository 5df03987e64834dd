"""The requests of a transactional producer: what each asks, and what the producer does after each error.

Source: Kafka's TransactionManager (TxnRequestHandler and its subclasses). An error that can be retried sends the request again. An error of
the coordinator's place looks for the coordinator first. All others fail the transaction (abortable) or the producer (fatal).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from kops.client.errors import (
    CommitFailedError,
    GroupAuthorizationError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationError,
    error_named,
)
from kops.client.node import Node
from kops.client.producer.core.states import Pending, Priority
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kops.client.producer.core.identity import Identity
    from kops.protocol.declaration import Message

_QUICK_RETRY_MS: Final = 20  # the first partition of a transaction waits for the end of the one before
_MOVED: Final = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_FENCED: Final = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_FIRST_BATCHED: Final = 4  # of FindCoordinator: several keys
_FIRST_WITH_MEMBER: Final = 3  # of TxnOffsetCommit
_LAST_FOR_CLIENTS: Final = 3  # of AddPartitionsToTxn


class CoordinatorKind(Enum):
    """The two coordinators that a producer needs. The values are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Committed(Protocol):
    """An offset to commit: a consumer's `OffsetAndMetadata`, or what looks like it."""

    @property
    def offset(self) -> int:
        """The next offset to read."""

    @property
    def metadata(self) -> str:
        """A text of the program."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the last record read, or None."""


class GroupMember(Protocol):
    """A member of a consumer group: a consumer's `group_metadata()`, or what looks like it."""

    @property
    def group_id(self) -> str:
        """The name of the group."""

    @property
    def generation_id(self) -> int:
        """The generation or member epoch, -1 without a consumer."""

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave, or an empty text."""

    @property
    def group_instance_id(self) -> str | None:
        """The id of a static member, or None."""


class Manager(Protocol):
    """What the requests tell the producer's transactions, and what they read of them."""

    transactional_id: str
    timeout_ms: int
    retry_backoff_ms: int
    identity: Identity
    coordinators: dict[CoordinatorKind, Node | None]
    partitions: dict[TopicPartition, None]
    uncommitted: dict[TopicPartition, Committed]
    is_version_2: bool
    is_bump_wanted: bool

    @property
    def must_bump(self) -> bool:
        """Whether the client has to raise the epoch after an error."""

    @property
    def can_abort(self) -> bool:
        """Whether the producer can go on after a lost sequence number."""

    def enqueue(self, handler: Handler) -> None:
        """Let a request wait for its turn."""

    def find_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Forget a coordinator, and look it up again."""

    def succeed(self, result: Pending) -> None:
        """Give a call its result."""

    def fail(self, result: Pending, error: KafkaError) -> None:
        """Give a call its error."""

    def fail_for_good(self, error: KafkaError) -> None:
        """The producer can't go on."""

    def fail_transaction(self, error: KafkaError) -> None:
        """The transaction can't be committed."""

    def identified(self, producer_id: int, epoch: int, *, is_bump: bool) -> None:
        """Take the producer id of an answer."""

    def answered_partitions(self, keys: Sequence[TopicPartition]) -> None:
        """The coordinator has answered for these partitions."""

    def added_partitions(self, keys: Sequence[TopicPartition]) -> None:
        """These partitions are a part of the transaction."""

    def added_offsets(self, commit: Handler) -> None:
        """The group's offsets are a part of the transaction."""

    def ended(self, producer_id: int, epoch: int) -> None:
        """The transaction has ended. The answer may have a new epoch."""


class _Then(Enum):
    """What to do after an error."""

    FIND = auto()  # look for the coordinator, then retry
    RETRY = auto()
    FENCED = auto()
    FATAL = auto()
    ABORT = auto()
    ABORT_IF_POSSIBLE = auto()  # only if the epoch can be raised
    UNEXPECTED = auto()


class Handler(ABC):
    """One request. `is_retry` is whether it has to wait before it is sent."""

    priority: Priority
    operation: ClassVar[str]
    coordinator: CoordinatorKind | None = CoordinatorKind.TRANSACTION
    versions: range | None = None
    reactions: ClassVar[Mapping[str, _Then]] = {}

    def __init__(self, manager: Manager, result: Pending | None = None) -> None:
        self.manager = manager
        self.result = result or Pending(self.operation)
        self.is_retry = False

    @property
    def key(self) -> str:
        """What the coordinator is looked up by."""
        return self.manager.transactional_id

    @property
    def retry_ms(self) -> int:
        """The pause before a retry."""
        return self.manager.retry_backoff_ms

    @abstractmethod
    def message(self) -> Message:
        """Return the request."""

    @abstractmethod
    def handle(self, response: Message) -> None:
        """Handle the response."""

    def unsupported(self, error: KafkaError) -> None:
        """Handle a broker that is too old."""
        self.fatal(error)

    # outcomes

    def fatal(self, error: KafkaError) -> None:
        """Fail the producer."""
        self.manager.fail(self.result, error)
        self.manager.fail_for_good(error)

    def abortable(self, error: KafkaError) -> None:
        """Fail the transaction."""
        self.manager.fail(self.result, error)
        self.manager.fail_transaction(error)

    def retry(self) -> None:
        """Send it again later."""
        self.is_retry = True
        self.manager.enqueue(self)

    def find_and_retry(self) -> None:
        """Look for the coordinator, and send it again later."""
        if self.coordinator is not None:
            self.manager.find_coordinator(self.coordinator, self.key)
        self.retry()

    def decide(self, name: str) -> _Then:
        """Return what to do after an error."""
        if name in _MOVED:
            return _Then.FIND
        if by_name(name).retriable:
            return _Then.RETRY
        if name in _FENCED:
            return _Then.FENCED
        return self.reactions.get(name, _Then.UNEXPECTED)

    def react(self, name: str, message: str = "") -> None:
        """Do what the error requires."""
        then = self.decide(name)
        error = error_named(name, message)
        if then is _Then.FIND:
            self.find_and_retry()
        elif then is _Then.RETRY:
            self.retry()
        elif then is _Then.FENCED:
            self.fatal(ProducerFencedError())
        elif then is _Then.ABORT or (then is _Then.ABORT_IF_POSSIBLE and self.manager.can_abort):
            if then is _Then.ABORT_IF_POSSIBLE and self.manager.must_bump:
                self.manager.is_bump_wanted = True
            self.abortable(error)
        else:
            self.fatal(error)


class InitProducerId(Handler):
    """Gets the producer id and a new epoch, which fences earlier producers. With `identity`, it raises the epoch of this producer."""

    operation = "InitProducerId"
    priority = Priority.INIT_PRODUCER_ID
    reactions: ClassVar[Mapping[str, _Then]] = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.ABORT,
        "CLUSTER_AUTHORIZATION_FAILED": _Then.ABORT,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
    }

    def __init__(self, manager: Manager, identity: Identity, *, is_bump: bool) -> None:
        super().__init__(manager)
        self._identity = identity
        self._is_bump = is_bump
        if is_bump:
            self.priority = Priority.EPOCH_BUMP

    def message(self) -> Message:
        """Return the request."""
        manager = self.manager
        return InitProducerIdRequest(
            transactional_id=manager.transactional_id,
            transaction_timeout_ms=manager.timeout_ms,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
        )

    def handle(self, response: Message) -> None:
        """Handle the response."""
        assert isinstance(response, InitProducerIdResponse)
        name = by_code(response.error_code).name
        if name == "NONE":
            self.manager.identified(response.producer_id, response.producer_epoch, is_bump=self._is_bump)
            self.manager.succeed(self.result)
        elif name == "INVALID_TRANSACTION_TIMEOUT":
            words = f"transaction.timeout.ms={self.manager.timeout_ms}: {by_name(name).words}"
            self.react(name, f"{words}; allowed: up to the brokers' transaction.max.timeout.ms")
        else:
            self.react(name)


class AddPartitions(Handler):
    """Adds partitions to the transaction, before the first batch is sent to them. With transaction version 2 there is no such request."""

    operation = "AddPartitionsToTxn"
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    versions = range(_LAST_FOR_CLIENTS + 1)
    reactions: ClassVar[Mapping[str, _Then]] = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.FATAL,
        "INVALID_TXN_STATE": _Then.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": _Then.FATAL,
        "UNKNOWN_PRODUCER_ID": _Then.ABORT_IF_POSSIBLE,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
    }

    def __init__(self, manager: Manager, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(manager)
        self._identity = manager.identity
        self._partitions = partitions
        self._is_quick = False

    @property
    def retry_ms(self) -> int:
        """The pause before a retry."""
        return min(self.manager.retry_backoff_ms, _QUICK_RETRY_MS) if self._is_quick else self.manager.retry_backoff_ms

    def message(self) -> Message:
        """Return the request."""
        topics: dict[str, list[int]] = {}
        for key in self._partitions:
            topics.setdefault(key.topic, []).append(key.partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.manager.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )

    def handle(self, response: Message) -> None:
        """Handle the response: the first error that concerns the whole request decides; those of single partitions abort."""
        assert isinstance(response, AddPartitionsToTxnResponse)
        self._is_quick = False
        keys: list[TopicPartition] = []
        refused: dict[TopicPartition, str] = {}
        for topic in response.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                name = by_code(one.partition_error_code).name
                key = TopicPartition(topic.name, one.partition_index)
                keys.append(key)
                if name == "NONE":
                    continue
                if self.decide(name) is not _Then.UNEXPECTED:
                    self._is_quick = name == "CONCURRENT_TRANSACTIONS" and not self.manager.partitions
                    self.react(name)
                    return
                refused[key] = name
        self.manager.answered_partitions(keys)
        if refused:
            self.abortable(_partition_error(refused))
        else:
            self.manager.added_partitions(keys)
            self.manager.succeed(self.result)


def _partition_error(refused: Mapping[TopicPartition, str]) -> KafkaError:
    """Return one error for partitions that could not be added. Those that the coordinator did not try have no error of their own."""
    unauthorized = sorted({key.topic for key, name in refused.items() if name == "TOPIC_AUTHORIZATION_FAILED"})
    if unauthorized:
        return TopicAuthorizationError(f"not authorized to write to {', '.join(unauthorized)}")
    names = {name for name in refused.values() if name != "OPERATION_NOT_ATTEMPTED"} or {"OPERATION_NOT_ATTEMPTED"}
    texts = ", ".join(f"{key.topic}-{key.partition} ({name})" for key, name in refused.items())
    return KafkaError(f"partitions could not be added to the transaction: {texts}", min(names))


class FindCoordinator(Handler):
    """Looks up the coordinator of the transactional id or of a group. Any node can answer."""

    operation = "FindCoordinator"
    priority = Priority.FIND_COORDINATOR
    coordinator = None
    reactions: ClassVar[Mapping[str, _Then]] = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.FATAL,
        "GROUP_AUTHORIZATION_FAILED": _Then.ABORT,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
    }

    def __init__(self, manager: Manager, kind: CoordinatorKind, key: str) -> None:
        super().__init__(manager)
        self._kind = kind
        self._key = key
        self.versions = range(_FIRST_BATCHED, FindCoordinatorRequest.VERSIONS.stop)

    @property
    def _is_batched(self) -> bool:
        return self.versions is not None and self.versions.start >= _FIRST_BATCHED

    def unsupported(self, error: KafkaError) -> None:
        """Ask a broker before 3.0 for one key."""
        if not self._is_batched:
            self.fatal(error)
            return
        self.versions = range(1, _FIRST_BATCHED)
        self.manager.enqueue(self)

    def message(self) -> Message:
        """Return the request."""
        if self._is_batched:
            return FindCoordinatorRequest(key_type=self._kind.value, coordinator_keys=[self._key])
        return FindCoordinatorRequest(key_type=self._kind.value, key=self._key)

    def handle(self, response: Message) -> None:
        """Handle the response."""
        assert isinstance(response, FindCoordinatorResponse)
        if self._is_batched and len(response.coordinators) != 1:
            self.fatal(KafkaError(f"the answer to FindCoordinator has {len(response.coordinators)} coordinators instead of one"))
            return
        found = response.coordinators[0] if self._is_batched else response
        name = by_code(found.error_code).name
        if name == "NONE":
            self.manager.coordinators[self._kind] = Node(found.node_id, found.host, found.port)
            self.manager.succeed(self.result)
        elif by_name(name).retriable:
            self.retry()
        elif name in _FENCED:
            self.fatal(error_named(name))
        elif name == "GROUP_AUTHORIZATION_FAILED":
            self.abortable(GroupAuthorizationError(f"not authorized to use group {self._key}"))
        else:
            self.react(name, found.error_message or "")


class AddOffsets(Handler):
    """Adds a group's offsets to the transaction. Brokers with transaction version 2 need no such request."""

    operation = "AddOffsetsToTxn"
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    reactions: ClassVar[Mapping[str, _Then]] = {
        "UNKNOWN_PRODUCER_ID": _Then.ABORT_IF_POSSIBLE,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.FATAL,
        "INVALID_TXN_STATE": _Then.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": _Then.FATAL,
        "GROUP_AUTHORIZATION_FAILED": _Then.ABORT,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
    }

    def __init__(self, manager: Manager, offsets: Mapping[TopicPartition, Committed], group: GroupMember) -> None:
        super().__init__(manager)
        self._identity = manager.identity
        self._offsets = offsets
        self._group = group

    def message(self) -> Message:
        """Return the request."""
        return AddOffsetsToTxnRequest(
            transactional_id=self.manager.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group_id=self._group.group_id,
        )

    def handle(self, response: Message) -> None:
        """Handle the response."""
        assert isinstance(response, AddOffsetsToTxnResponse)
        name = by_code(response.error_code).name
        if name == "NONE":
            self.manager.added_offsets(CommitOffsets(self.manager, self._offsets, self._group, self.result))
        else:
            self.react(name, f"not authorized to use group {self._group.group_id}" if name == "GROUP_AUTHORIZATION_FAILED" else "")


class CommitOffsets(Handler):
    """Commits a group's offsets as a part of the transaction."""

    operation = "TxnOffsetCommit"
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    coordinator = CoordinatorKind.GROUP
    reactions: ClassVar[Mapping[str, _Then]] = {
        "GROUP_AUTHORIZATION_FAILED": _Then.ABORT,
        "FENCED_INSTANCE_ID": _Then.ABORT,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.FATAL,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": _Then.FATAL,
    }

    def __init__(
        self, manager: Manager, offsets: Mapping[TopicPartition, Committed], group: GroupMember, result: Pending | None = None
    ) -> None:
        super().__init__(manager, result)
        self._identity = manager.identity
        self._group = group
        manager.uncommitted |= offsets
        self._offsets = dict(manager.uncommitted)
        has_member = bool(group.member_id) or group.generation_id != -1 or group.group_instance_id is not None
        last = TxnOffsetCommitRequest.VERSIONS.stop if manager.is_version_2 else TxnOffsetCommitRequest.VERSIONS.stop - 1
        self.versions = range(_FIRST_WITH_MEMBER if has_member else 0, last)

    @property
    def key(self) -> str:
        """The name of the group."""
        return self._group.group_id

    def message(self) -> Message:
        """Return the request."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for key, one in self._offsets.items():
            epoch = -1 if one.leader_epoch is None else one.leader_epoch
            row = TxnOffsetCommitRequestPartition(
                partition_index=key.partition, committed_offset=one.offset, committed_leader_epoch=epoch, committed_metadata=one.metadata
            )
            topics.setdefault(key.topic, []).append(row)
        return TxnOffsetCommitRequest(
            transactional_id=self.manager.transactional_id,
            group_id=self._group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            generation_id=self._group.generation_id,
            member_id=self._group.member_id,
            group_instance_id=self._group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

    def handle(self, response: Message) -> None:
        """Handle the response. Offsets of partitions with an error that can be retried are sent again, with those that were accepted."""
        assert isinstance(response, TxnOffsetCommitResponse)
        uncommitted = self.manager.uncommitted
        is_looking = False
        for topic in response.topics:
            for one in topic.partitions:
                name = by_code(one.error_code).name
                if name == "NONE":
                    uncommitted.pop(TopicPartition(topic.name, one.partition_index), None)
                elif name in _MOVED or name == "REQUEST_TIMED_OUT":
                    if not is_looking:
                        is_looking = True
                        self.manager.find_coordinator(CoordinatorKind.GROUP, self.key)
                elif not by_name(name).retriable:
                    self._give_up(name)
                    uncommitted.clear()
                    return
        if self.result.is_done:
            uncommitted.clear()
        elif not uncommitted:
            self.manager.succeed(self.result)
        else:
            self.retry()

    def _give_up(self, name: str) -> None:
        group = self._group.group_id
        if name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
            words = by_name(name).words
            self.abortable(CommitFailedError(f"the offsets of group {group} were not committed: {words}"))
        else:
            self.react(name, f"not authorized to use group {group}" if name == "GROUP_AUTHORIZATION_FAILED" else "")


class EndTxn(Handler):
    """Commits or aborts. It is sent when no batch is left."""

    priority = Priority.END_TXN
    operation = "EndTxn"
    reactions: ClassVar[Mapping[str, _Then]] = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Then.FATAL,
        "INVALID_TXN_STATE": _Then.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": _Then.FATAL,
        "UNKNOWN_PRODUCER_ID": _Then.ABORT_IF_POSSIBLE,
        "TRANSACTION_ABORTABLE": _Then.ABORT,
    }

    def __init__(self, manager: Manager, *, is_commit: bool) -> None:
        super().__init__(manager)
        self._identity = manager.identity
        self.is_commit = is_commit
        last = EndTxnRequest.VERSIONS.stop if manager.is_version_2 else EndTxnRequest.VERSIONS.stop - 1
        self.versions = range(last)

    def message(self) -> Message:
        """Return the request."""
        return EndTxnRequest(
            transactional_id=self.manager.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=self.is_commit,
        )

    def handle(self, response: Message) -> None:
        """Handle the response. Version 5 has the producer's next epoch."""
        assert isinstance(response, EndTxnResponse)
        name = by_code(response.error_code).name
        if name == "NONE":
            self.manager.ended(response.producer_id, response.producer_epoch)
            self.manager.succeed(self.result)
        elif name == "TRANSACTION_ABORTABLE" and not self.is_commit:
            self.fatal(error_named(name, "the transaction could not be aborted"))
        else:
            self.react(name)
