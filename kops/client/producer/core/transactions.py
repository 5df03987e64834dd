"""The transactions of a producer: its state, its coordinators, the partitions of the transaction, and the requests that wait.

Source: Kafka's TransactionManager. With transaction version 2 (KIP-890) the first batch adds its partition, and the answer to EndTxn has
the next epoch. Older versions need AddPartitionsToTxn, and after an error InitProducerId raises the epoch.

Unlike Kafka's, a record is refused before it is in a batch if there is no transaction, and a fatal error is never replaced by a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.errors import KafkaError, KafkaTimeoutError, ProducerClosedError, TransactionAbortableError
from kops.client.producer.core.handlers import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    CoordinatorKind,
    EndTxn,
    FindCoordinator,
    InitProducerId,
)
from kops.client.producer.core.identity import Identity, SequenceKeeper
from kops.client.producer.core.states import SOURCES, Pending, RequestQueue, State
from kops.errors import UsageError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.client.node import Node
    from kops.client.producer.core.batches import ProducerBatch
    from kops.client.producer.core.handlers import Committed, GroupMember, Handler
    from kops.protocol.connections.node_versions import FinalizedFeatures
    from kops.records.log_offsets import TopicPartition

_FIRST_WITH_BUMP: Final = 3  # of InitProducerId
_NOTHING: Final = Identity()


class _Transition(NamedTuple):
    result: Pending
    state: State
    call: str


class Transactions(SequenceKeeper):
    """The transactions of one transactional id. What a program calls raises UsageError if the state does not allow it."""

    def __init__(self, transactional_id: str, timeout_ms: int, retry_backoff_ms: int, features: Callable[[], FinalizedFeatures]) -> None:
        super().__init__()
        self.is_transactional = True
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.state = State.UNINITIALIZED
        self.last_error: KafkaError | None = None
        self.coordinators: dict[CoordinatorKind, Node | None] = {CoordinatorKind.GROUP: None, CoordinatorKind.TRANSACTION: None}
        self.partitions: dict[TopicPartition, None] = {}
        self.uncommitted: dict[TopicPartition, Committed] = {}
        self.is_version_2 = False
        self.is_bump_wanted = False
        self.results = 0
        """How many results there have been. A face wakes its callers when this changes."""
        self._features = features
        self._features_epoch = -1
        self._coordinator_bumps = False
        self._has_begun = False  # on the coordinator, so it has to be ended there
        self._new: dict[TopicPartition, None] = {}
        self._being_added: dict[TopicPartition, None] = {}
        self._queue: RequestQueue[Handler] = RequestQueue()
        self._pending: _Transition | None = None

    # what a program calls

    def init(self) -> Pending:
        """Get the producer id: this fences earlier producers and ends their transactions."""
        self._raise_error()
        return self._once(State.INITIALIZING, "init_transactions", self._first_init)

    def begin(self) -> None:
        """Begin a transaction."""
        self._check_no_pending("begin_transaction")
        self._raise_error()
        self._call("begin_transaction", State.IN_TRANSACTION)

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMember) -> Pending:
        """Commit a group's offsets as a part of the transaction."""
        self._check_no_pending("send_offsets_to_transaction")
        self._raise_error()
        if self.state is not State.IN_TRANSACTION:
            raise UsageError(self._wrong_state("send_offsets_to_transaction"))
        handler: Handler
        if self.is_version_2:
            handler = CommitOffsets(self, offsets, group)
            self._has_begun = True
        else:
            handler = AddOffsets(self, offsets, group)
        self.enqueue(handler)
        return handler.result

    def commit(self) -> Pending:
        """Commit the transaction, once all its records are written."""

        def start() -> Pending:
            self._raise_error()
            self._call("commit_transaction", State.COMMITTING)
            return self._end(is_commit=True)

        return self._once(State.COMMITTING, "commit_transaction", start)

    def abort(self) -> Pending:
        """Abort the transaction. Records that were not sent yet fail."""

        def start() -> Pending:
            if self.state is not State.ABORTABLE_ERROR:
                self._raise_error()
            self._call("abort_transaction", State.ABORTING)
            self._new.clear()
            return self._end(is_commit=False)

        return self._once(State.ABORTING, "abort_transaction", start)

    def late(self, result: Pending, max_block_ms: int, reason: str = "") -> KafkaTimeoutError:
        """Return the error for a call whose outcome is not known after max.block.ms."""
        if result.operation == "TxnOffsetCommit" or result.operation == "AddOffsetsToTxn":
            hint = "abort the transaction, or go on waiting with a commit"
        else:
            hint = "the same call may be repeated"
        words = f"no answer within {max_block_ms} ms; {hint}"
        return KafkaTimeoutError(f"{words}: {reason}" if reason else words).marked(fatal=False)

    def see(self, result: Pending) -> None:
        """Take note of a result, as the call that waited for it. Raises its error."""
        is_first = self._pending is not None and self._pending.result is result and self._pending.call == "init_transactions"
        result.see()
        if is_first:
            self._look_at_features(is_first=True)

    def check_record(self) -> None:
        """Raise an error if no record may be sent now."""
        self._raise_error()
        self._check_no_pending("send")
        if self.state is not State.IN_TRANSACTION:
            raise UsageError(self._wrong_state("send"))
        if not self.has_identity:
            raise UsageError("send: not allowed, because init_transactions has not succeeded; close the producer and create a new one")

    @property
    def is_open(self) -> bool:
        """Whether records may be sent."""
        return self.state is State.IN_TRANSACTION and self.has_identity

    def add_partition(self, key: TopicPartition) -> None:
        """Make a partition a part of the transaction, because a record for it is in a batch."""
        if key in self.partitions:
            return
        self._entry(key)
        if self.is_version_2:
            self.partitions[key] = None
            self._has_begun = True
        elif key not in self._being_added:
            self._new[key] = None

    def _first_init(self) -> Pending:
        self._call("init_transactions", State.INITIALIZING)
        return self._init(_NOTHING, is_bump=False)

    def _init(self, identity: Identity, *, is_bump: bool) -> Pending:
        handler = InitProducerId(self, identity, is_bump=is_bump)
        self.enqueue(handler)
        return handler.result

    def _end(self, *, is_commit: bool) -> Pending:
        if self._new:
            self._add_new_partitions()
        handler = EndTxn(self, is_commit=is_commit)
        self._look_at_features(is_first=False)
        self.enqueue(handler)
        if self.is_bump_wanted:
            return self._init(self.identity, is_bump=True) if self.has_identity else self._first_init()
        return handler.result

    def _look_at_features(self, *, is_first: bool) -> None:
        """Use transaction version 2 as soon as the cluster has it. A producer that switches needs a new epoch."""
        features = self._features()
        if self._features_epoch >= features.epoch:
            return
        self._features_epoch = features.epoch
        was_version_2 = self.is_version_2
        self.is_version_2 = features.levels.get("transaction.version", 0) >= 2
        if self.is_version_2 and not was_version_2 and not is_first:
            self.is_bump_wanted = True

    # the order of calls

    def _once(self, state: State, call: str, start: Callable[[], Pending]) -> Pending:
        """Return the result of a call. A call that timed out and is repeated has the same result."""
        if self._pending is not None:
            if self._pending.result.is_seen:
                self._pending = None
            elif self._pending.state is not state:
                raise UsageError(self._must_repeat(call, self._pending))
            else:
                return self._pending.result
        result = start()
        self._pending = _Transition(result, state, call)
        return result

    def _check_no_pending(self, call: str) -> None:
        if self._pending is not None:
            if not self._pending.result.is_seen:
                raise UsageError(self._must_repeat(call, self._pending))
            self._pending = None

    def _must_repeat(self, call: str, pending: _Transition) -> str:
        return f"{call}: not now: the call of {pending.call} before it timed out; repeat that first"

    def _wrong_state(self, call: str) -> str:
        hint = {
            State.UNINITIALIZED: "; call init_transactions first",
            State.READY: "; call begin_transaction first",
        }.get(self.state, "")
        if call == "init_transactions":
            hint = "; a producer calls it once, before its first transaction"
        return f"{call}: not allowed, because the producer of transactional.id={self.transactional_id} is {self.state.value}{hint}"

    def _raise_error(self) -> None:
        """Raise the error that the transaction or the producer has failed with."""
        error = self.last_error
        if error is None:
            return
        is_fatal = self.state is State.FATAL_ERROR
        then = "the producer can't be used any more" if is_fatal else "the transaction must be aborted"
        raise error.reworded(f"{then}: {error}").marked(fatal=is_fatal) from error

    def _call(self, call: str, target: State) -> None:
        """Change the state because the program asked for it. Raises UsageError."""
        if self.state not in SOURCES[target]:
            raise UsageError(self._wrong_state(call))
        self._enter(target)

    def _enter(self, target: State, error: KafkaError | None = None) -> None:
        """Change the state. From a state that does not allow it the producer fails, because its own books are wrong."""
        if self.state not in SOURCES[target]:
            if self.state is State.FATAL_ERROR:
                return
            error = KafkaError(f"a transaction can't change from '{self.state.value}' to '{target.value}'", "INVALID_TXN_STATE")
            target = State.FATAL_ERROR
        self.state = target
        self.last_error = error
        if target is State.FATAL_ERROR and error is not None:
            self.fatal_error = error.marked(fatal=True)

    # what the requests report

    @property
    def is_completing(self) -> bool:
        """Whether a commit or an abort is on its way."""
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def is_ongoing(self) -> bool:
        """Whether there is a transaction that has not ended."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR)

    @property
    def may_have_begun(self) -> bool:
        """Whether the coordinator may have a transaction that has not ended."""
        return self._has_begun or bool(self._being_added)

    @property
    def must_bump(self) -> bool:
        """Whether the client has to raise the epoch after an error."""
        return self._coordinator_bumps and not self.is_version_2

    @property
    def can_abort(self) -> bool:
        """Whether the producer can go on after a lost sequence number."""
        return self._coordinator_bumps or self.is_version_2

    @property
    def has_requests(self) -> bool:
        """Whether requests wait."""
        return bool(self._queue)

    def enqueue(self, handler: Handler) -> None:
        """Let a request wait for its turn."""
        self._queue.add(handler)

    def find_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Forget a coordinator, and look it up again."""
        self.coordinators[kind] = None
        self.enqueue(FindCoordinator(self, kind, key))

    def reached_coordinator(self, init_producer_id: int) -> None:
        """Take note of the latest version of InitProducerId that the coordinator knows, -1 if that is not known."""
        self._coordinator_bumps = init_producer_id >= _FIRST_WITH_BUMP

    def succeed(self, result: Pending) -> None:
        """Give a call its result."""
        result.done()
        self.results += 1

    def fail(self, result: Pending, error: KafkaError) -> None:
        """Give a call its error."""
        result.fail(error)
        self.results += 1

    def fail_for_good(self, error: KafkaError) -> None:
        """The producer can't go on."""
        if self.state is not State.FATAL_ERROR:
            self._enter(State.FATAL_ERROR, error.marked(fatal=True))
        if self._pending is not None:
            self.fail(self._pending.result, error)
        for handler in self._queue:
            self.fail(handler.result, error)

    def fail_transaction(self, error: KafkaError) -> None:
        """The transaction can't be committed. If it is being aborted, that goes on."""
        if self.state is not State.ABORTING:
            self._enter(State.ABORTABLE_ERROR, error.marked(fatal=False))

    def note(self, error: KafkaError) -> None:
        """Record the error of a record: it fails the producer or the transaction (maybeTransitionToErrorState)."""
        if error.fatal:
            self.fail_for_good(error)
            return
        if error.retriable or error.name == "INVALID_TXN_STATE":
            wrapped = TransactionAbortableError(f"a record was not written: {error}")
            wrapped.__cause__ = error
            error = wrapped
        if self.must_bump and not self.is_completing:
            self.is_bump_wanted = True
        self.fail_transaction(error)

    def identified(self, producer_id: int, epoch: int, *, is_bump: bool) -> None:
        """Take the producer id of an answer."""
        self.identity = Identity(producer_id, epoch)
        self._enter(State.READY)
        if is_bump:
            self._reset_sequences()

    def answered_partitions(self, keys: Iterable[TopicPartition]) -> None:
        """The coordinator has answered for these partitions."""
        for key in keys:
            self._being_added.pop(key, None)

    def added_partitions(self, keys: Iterable[TopicPartition]) -> None:
        """These partitions are a part of the transaction."""
        self.partitions.update(dict.fromkeys(keys))
        self._has_begun = True

    def added_offsets(self, commit: Handler) -> None:
        """The group's offsets are a part of the transaction: now they can be committed."""
        self.enqueue(commit)
        self._has_begun = True

    def ended(self, producer_id: int, epoch: int) -> None:
        """The transaction has ended. The answer may have a new epoch."""
        if producer_id != -1:
            self.identity = Identity(producer_id, epoch)
            self._reset_sequences()
        self._reset()

    def _reset(self) -> None:
        self._enter(State.INITIALIZING if self.is_bump_wanted else State.READY)
        self.is_bump_wanted = False
        self._has_begun = False
        self._new.clear()
        self._being_added.clear()
        self.partitions.clear()

    def _reset_sequences(self) -> None:
        self._partitions.clear()
        self._unresolved.clear()

    # the sender's side

    def resolve(self) -> None:
        """Look for batches of which it is unknown whether they were written."""
        self._resolve()

    def take_request(self, *, has_batches: bool) -> Handler | None:
        """Return the next request to send, or None (nextRequest)."""
        if self._new:
            self._add_new_partitions()
        handler = self._queue.peek()
        if handler is None or (isinstance(handler, EndTxn) and has_batches):
            return None
        self._queue.take()
        if self._refuses(handler):
            return None
        if isinstance(handler, EndTxn) and not self._has_begun:
            self.succeed(handler.result)
            self._reset()
            handler = self._queue.take()
        return handler

    def _refuses(self, handler: Handler) -> bool:
        """Fail a request because the transaction has failed. The search for a coordinator goes on: the abort needs it."""
        if self.last_error is None or self.state not in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            return False
        if self.state is State.ABORTABLE_ERROR and isinstance(handler, FindCoordinator):
            return False
        self.fail(handler.result, self.last_error)
        return True

    def _add_new_partitions(self) -> None:
        self._being_added |= self._new
        self._new.clear()
        self.enqueue(AddPartitions(self, list(self._being_added)))

    def uninitialize(self, error: KafkaError) -> None:
        """Begin anew, because the producer may get the permission later (Sender.shouldHandleAuthorizationError)."""
        for handler in self._queue:
            handler.abortable(error)
        self._enter(State.UNINITIALIZED)
        if self._pending is not None:
            self.fail(self._pending.result, error)

    def close(self) -> None:
        """Fail all that waits, because the producer is closed by force."""
        error = ProducerClosedError("the producer was closed before the transaction ended")
        for handler in self._queue:
            handler.fatal(error)
        if self._pending is not None and not self._pending.result.is_done:
            self.fail(self._pending.result, error)

    # sequence numbers

    def may_drain(self, key: TopicPartition, first: ProducerBatch) -> bool:
        """Whether the first batch of a partition may be sent."""
        return key in self.partitions and super().may_drain(key, first)

    def may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether a batch should be sent again after this error."""
        key = batch.partition
        entry = self._entry(key)
        if error.name == "UNKNOWN_PRODUCER_ID":
            if log_start_offset == -1 or batch.was_reset:
                return True
            if entry.last_acked_offset < log_start_offset:
                entry.start_at_zero(self.identity)  # retention has deleted all that was written
                return True
        elif error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            is_next = batch.base_sequence - entry.last_acked_sequence == 1
            if key not in self._unresolved and (batch.was_reset or not is_next):
                return True
        return by_name(error.name).retriable

    def _close_gap(self, batch: ProducerBatch) -> None:
        if batch.partition in self._partitions:
            self._partitions[batch.partition].close_gap(batch)

    def _found_gap(self, key: TopicPartition) -> None:
        error = KafkaError(
            f"it is unknown whether expired records of {key.topic}-{key.partition} were written", "OUT_OF_ORDER_SEQUENCE_NUMBER"
        )
        if not self.can_abort:
            self.fail_for_good(error)
            return
        if self.must_bump:
            self.is_bump_wanted = True
        self.fail_transaction(error)
