"""Runs a coordinator: loads its shards, runs operations on them, writes their records, and unloads them (Kafka's CoordinatorRuntime).

Everything runs on one thread, one event after the other. A write operation sees the current state. Its response is sent when its records
and all earlier ones are committed. A read operation sees the committed state. Records are written at the end of the loop's turn,
or after `append_linger_ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kops.coordinators.runtime.context import NO_PRODUCER, CoordinatorState, Engine, MakeShard, ShardContext
from kops.coordinators.runtime.events import EventQueue, failure_of
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.shard import CoordinatorShard
from kops.coordinators.runtime.surroundings import (
    NO_GUARD,
    Background,
    Cancellable,
    CoordinatorLoader,
    Log,
    PartitionWriter,
    Timers,
)
from kops.errors import ApiError, KopsError
from kops.records.log_offsets import TopicPartition

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")
_NO_EPOCH: Final = -1


class _Pending(Generic[T]):
    """A write operation that waits for its commit. `kind` is CoordinatorWriteEvent or CoordinatorCompleteTransactionEvent.

    Of the operation's result it keeps only `response` and `append_promise`: the records are in the log.
    """

    __slots__ = ("_engine", "_timeout_ms", "_timer", "append_promise", "kind", "name", "promise", "response")

    def __init__(self, kind: str, name: str, engine: Engine[Any], timeout_ms: int) -> None:
        self.kind = kind
        self.name = name
        self.promise: Promise[T] = Promise()
        self.response: T | None = None
        self.append_promise: Promise[None] | None = None
        self._engine = engine
        self._timeout_ms = timeout_ms
        self._timer: Cancellable | None = None

    def __str__(self) -> str:
        return f"{self.kind}(name={self.name})"

    def complete(self, error: KopsError | None) -> None:
        """Complete the operation with its response, or with an error."""
        if self.promise.is_done:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        append_promise = self.append_promise
        if error is not None:
            if append_promise is not None:
                append_promise.fail(error)
            self.promise.fail(error)
            return
        if append_promise is not None:
            append_promise.complete(None)
        self.promise.complete(self.response)  # type: ignore[arg-type]

    def run(self, write: Callable[[], object]) -> None:
        """Call `write`, then wait for the commit, at most for the time-out."""
        error = failure_of(write, self._engine.log, self)
        if error is not None:
            self.complete(error)
        elif not self.promise.is_done:
            self._timer = self._engine.timers.call_later(self._timeout_ms, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if not self._engine.events.is_closed:
            error = ApiError("REQUEST_TIMED_OUT", f"{self} timed out after {self._timeout_ms}ms")
            self._engine.events.run_last(f"OperationTimeout(name={self})", lambda: self.complete(error))


class _Write(_Pending[T], Generic[S, T]):
    """A write operation on a shard."""

    __slots__ = ("_contexts", "_guard", "_key", "_operation", "_producer_epoch", "_producer_id")

    def __init__(
        self,
        name: str,
        engine: Engine[S],
        timeout_ms: int,
        contexts: dict[TopicPartition, ShardContext[S]],
        key: TopicPartition,
        operation: Callable[[S], CoordinatorResult[T]],
        producer_id: int,
        producer_epoch: int,
        guard: Any,
    ) -> None:
        super().__init__("CoordinatorWriteEvent", name, engine, timeout_ms)
        self._contexts = contexts
        self._key = key
        self._operation: Callable[[S], CoordinatorResult[T]] | None = operation
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._guard = guard

    def run_write(self) -> None:
        """Run the operation, and append its records."""
        self.run(self._write)

    def _write(self) -> None:
        context = self._contexts.get(self._key)
        if context is None:
            raise ApiError("NOT_COORDINATOR")
        operation, self._operation = self._operation, None
        assert operation is not None, "a write runs once"
        result = operation(context.ready())
        self.response, self.append_promise = result.response, result.append_promise
        context.append(
            result.records,
            self,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            guard=self._guard,
            replays=result.replay_records,
            is_atomic=result.is_atomic,
        )


class CoordinatorRuntime(Generic[S]):
    """A coordinator. `make_shard(key, timeline, timer, executor)` creates a shard. `write_timeout_ms` limits the wait for a commit."""

    def __init__(
        self,
        make_shard: MakeShard[S],
        writer: PartitionWriter,
        loader: CoordinatorLoader,
        timers: Timers,
        background: Background,
        *,
        now_ms: Callable[[], int],
        image: CoordinatorImage,
        log: Log,
        write_timeout_ms: int,
        append_linger_ms: int | None = None,
        codec: int | str = "none",
    ) -> None:
        self._image = image
        self._write_timeout_ms = write_timeout_ms
        self._contexts: dict[TopicPartition, ShardContext[S]] = {}
        self._is_running = True
        self._log = log
        self._events = EventQueue(timers, log)
        self._engine: Engine[S] = Engine(
            writer,
            loader,
            make_shard,
            timers,
            background,
            now_ms,
            append_linger_ms,
            codec,
            log,
            self._events,
            lambda: self._image,
        )

    # operations -------------------------------------------------------------------------------------------------------------------

    def schedule_write_operation(self, name: str, key: TopicPartition, operation: Callable[[S], CoordinatorResult[T]]) -> Promise[T]:
        """Run an operation that may write. The promise completes when its records are committed."""
        return self._write(name, key, operation, NO_PRODUCER, -1, NO_GUARD)

    def settled_shard(self, key: TopicPartition) -> S | None:
        """Return the shard if an operation without records would run and be answered at once, otherwise None.

        The caller may then call such an operation itself: the result is the same, without the cost of an event.
        """
        if not (self._is_running and self._events.is_idle):
            return None
        context = self._contexts.get(key)
        return None if context is None else context.settled_shard

    def schedule_write_all_operation(self, name: str, operation: Callable[[S], CoordinatorResult[T]]) -> list[Promise[T]]:
        """Run the operation in every shard on this broker."""
        return [self.schedule_write_operation(name, key, operation) for key in list(self._contexts)]

    def schedule_transactional_write_operation(
        self,
        name: str,
        key: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S], CoordinatorResult[T]],
        api_version: int,
    ) -> Promise[T]:
        """Run an operation whose records belong to a transaction, after the transaction's coordinator has verified the partition."""
        outcome: Promise[T] = Promise()

        def forward(value: T | None, error: KopsError | None) -> None:
            if error is not None:
                outcome.fail(error)
            else:
                outcome.complete(value)  # type: ignore[arg-type]

        def verified(guard: Any, error: KopsError | None) -> None:
            if error is not None:
                outcome.fail(error)
            else:
                self._write(name, key, operation, producer_id, producer_epoch, guard).when_done(forward)

        def begin() -> None:
            self._check_running()
            verifying = self._engine.writer.start_verification(key, transactional_id, producer_id, producer_epoch, api_version)
            verifying.when_done(verified)

        error = failure_of(begin, self._log, name)
        if error is not None:
            outcome.fail(error)
        return outcome

    def schedule_transaction_completion(
        self,
        name: str,
        key: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        transaction_version: int,
    ) -> Promise[None]:
        """Write the marker that ends a transaction in the partition."""
        pending: _Pending[None] = _Pending("CoordinatorCompleteTransactionEvent", name, self._engine, self._write_timeout_ms)

        def write() -> None:
            context = self._context(key)
            context.ready()
            context.complete_transaction(producer_id, producer_epoch, coordinator_epoch, is_commit, transaction_version, pending)

        return self._schedule(pending, partial(pending.run, write), pending.promise)

    def schedule_read_operation(self, name: str, key: TopicPartition, operation: Callable[[S], T]) -> Promise[T]:
        """Run an operation that reads the committed state."""
        promise: Promise[T] = Promise()
        found: list[T] = []

        def run() -> None:
            error = failure_of(lambda: found.append(operation(self._context(key).active.shard)), self._log, name)
            if error is not None:
                promise.fail(error)
            else:
                promise.complete(found[0])

        return self._schedule(f"CoordinatorReadEvent(name={name})", run, promise)

    def schedule_read_all_operation(self, name: str, operation: Callable[[S], T]) -> list[Promise[T]]:
        """Run the operation in every shard on this broker."""
        return [self.schedule_read_operation(name, key, operation) for key in list(self._contexts)]

    def _write(
        self,
        name: str,
        key: TopicPartition,
        operation: Callable[[S], CoordinatorResult[T]],
        producer_id: int,
        producer_epoch: int,
        guard: Any,
    ) -> Promise[T]:
        pending: _Write[S, T] = _Write(
            name, self._engine, self._write_timeout_ms, self._contexts, key, operation, producer_id, producer_epoch, guard
        )
        return self._schedule(pending, pending.run_write, pending.promise)

    def _schedule(self, name: object, run: Callable[[], object], promise: Promise[T]) -> Promise[T]:
        if not self._is_running:
            promise.fail(ApiError("NOT_COORDINATOR"))
        else:
            self._events.run_last(name, run)
        return promise

    def _context(self, key: TopicPartition) -> ShardContext[S]:
        context = self._contexts.get(key)
        if context is None:
            raise ApiError("NOT_COORDINATOR")
        return context

    def _check_running(self) -> None:
        if not self._is_running:
            raise ApiError("NOT_COORDINATOR")

    # shards -----------------------------------------------------------------------------------------------------------------------

    def schedule_load_operation(self, key: TopicPartition, partition_epoch: int) -> None:
        """Load the shard, because this broker leads the partition in this epoch. Raises ApiError NOT_COORDINATOR if the runtime is
        closed."""
        self._check_running()
        self._log.info("Scheduling loading of metadata from %s-%d with epoch %d", *key, partition_epoch)
        self._get_or_create(key)
        self._events.run_last(f"Load(tp={key.topic}-{key.partition}, epoch={partition_epoch})", lambda: self._load(key, partition_epoch))

    def _load(self, key: TopicPartition, partition_epoch: int) -> None:
        context = self._get_or_create(key)
        if context.epoch >= partition_epoch:
            self._log.info(
                "Ignored loading metadata from %s since current epoch %d is not below %d.", context.name, context.epoch, partition_epoch
            )
            return
        context.epoch = partition_epoch
        match context.state:
            case CoordinatorState.FAILED | CoordinatorState.INITIAL:
                context.transition_to(CoordinatorState.LOADING)
            case CoordinatorState.LOADING:
                self._log.info("The coordinator %s is already loading metadata.", context.name)
            case CoordinatorState.ACTIVE:
                self._log.info("The coordinator %s is already active.", context.name)
            case other:
                self._log.error("Cannot load coordinator %s in state %s.", context.name, other.name)

    def schedule_unload_operation(self, key: TopicPartition, partition_epoch: int | None) -> None:
        """Unload the shard, because this broker no longer leads the partition. Without an epoch, the replica was deleted. Raises ApiError
        like the load."""
        self._check_running()
        shown = _NO_EPOCH if partition_epoch is None else partition_epoch
        self._log.info("Scheduling unloading of metadata for %s-%d with epoch %d", *key, shown)
        name = f"UnloadCoordinator(tp={key.topic}-{key.partition}, epoch={shown})"
        self._events.run_last(name, lambda: self._unload(key, partition_epoch))

    def _unload(self, key: TopicPartition, partition_epoch: int | None) -> None:
        context = self._contexts.get(key)
        if context is None:
            self._log.info("Ignored unloading metadata for %s-%d since metadata was never loaded.", *key)
            return
        if partition_epoch is not None and context.epoch >= partition_epoch:
            self._log.info(
                "Ignored unloading metadata for %s in epoch %d since current epoch is %d.", context.name, partition_epoch, context.epoch
            )
            return
        try:
            context.transition_to(CoordinatorState.CLOSED)
        finally:
            del self._contexts[key]
        self._log.info("Finished unloading metadata for %s.", context.name)

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """Pass new metadata to all shards. Raises ApiError NOT_COORDINATOR if the runtime is closed."""
        self._check_running()
        self._image = image
        for key in list(self._contexts):
            self._events.run_last(f"UpdateImage(tp={key.topic}-{key.partition})", partial(self._update, key, delta, image))

    def _update(self, key: TopicPartition, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        context = self._contexts.get(key)
        if context is not None and context.state is CoordinatorState.ACTIVE:
            context.ready()
            context.active.on_metadata_update(delta, image)

    def close(self) -> None:
        """Unload all shards. Later calls raise NOT_COORDINATOR."""
        if not self._is_running:
            self._log.warning("Coordinator runtime is already shutting down.")
            return
        self._is_running = False
        self._engine.loader.close()
        self._events.close()
        for key in list(self._contexts):
            error = failure_of(partial(self._unload, key, None), self._log, f"Unloading {key.topic}-{key.partition}")
            if error is not None:
                self._log.warning("Failed to unload metadata for %s-%d due to %s.", *key, error)

    @property
    def active_coordinators(self) -> list[TopicPartition]:
        """The partitions whose shards serve requests."""
        return [key for key, context in self._contexts.items() if context.state is CoordinatorState.ACTIVE]

    def state_of(self, key: TopicPartition) -> CoordinatorState | None:
        """Return the state of a shard, or None if it is not on this broker."""
        context = self._contexts.get(key)
        return None if context is None else context.state

    def _get_or_create(self, key: TopicPartition) -> ShardContext[S]:
        context = self._contexts.get(key)
        if context is None:

            def schedule_write(name: str, operation: Callable[[], CoordinatorResult[None]]) -> Promise[None]:
                return self.schedule_write_operation(name, key, lambda shard: operation())

            context = self._contexts[key] = ShardContext(key, self._engine, schedule_write)
        return context
