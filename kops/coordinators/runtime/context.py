"""One shard in the runtime: its state, its open batch, and the events that wait for commits.

Source: Kafka's CoordinatorRuntime.CoordinatorContext, CoordinatorState, CoordinatorBatch. Records are replayed, at the offsets that they
will have, before they are appended. If the append fails, the state is reverted to the beginning of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from kops.coordinators.runtime.events import DeferredEvent, DeferredEventQueue, EventQueue, complete_all, failure_of
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.playback import ReplayedShard
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.shard import CoordinatorShard
from kops.coordinators.runtime.shard_timer import ScheduleWrite, ShardExecutor, ShardTimer
from kops.coordinators.runtime.surroundings import (
    NO_GUARD,
    UNKNOWN_TRANSACTION_VERSION,
    Background,
    Cancellable,
    CoordinatorLoader,
    LoadSummary,
    Log,
    PartitionWriter,
    Timers,
)
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.errors import ApiError, KopsError
from kops.records.build import BatchBuilder, end_txn_marker, write_record
from kops.records.log_offsets import TopicPartition
from kops.timeline import Timeline

S = TypeVar("S", bound=CoordinatorShard)
MakeShard = Callable[[TopicPartition, Timeline, CoordinatorTimer, CoordinatorExecutor], S]
NO_PRODUCER: Final = -1
_BATCH_HEADER_BYTES: Final = 61
_COMPRESSION_MARGIN: Final = 1.05
_RECORD_OVERHEAD_AT_MOST: Final = 32
"""The size of attributes and number of headers, and of the longest varints for the sizes of record, key and value, the offset and the
timestamp."""


class CoordinatorState(Enum):
    """The state of a shard in the runtime."""

    INITIAL = "INITIAL"
    LOADING = "LOADING"
    ACTIVE = "ACTIVE"
    CLOSED = "CLOSED"
    FAILED = "FAILED"


_BEFORE: Final = {
    CoordinatorState.LOADING: (CoordinatorState.INITIAL, CoordinatorState.FAILED),
    CoordinatorState.ACTIVE: (CoordinatorState.ACTIVE, CoordinatorState.LOADING),
    CoordinatorState.CLOSED: tuple(CoordinatorState),
    CoordinatorState.FAILED: (CoordinatorState.LOADING, CoordinatorState.ACTIVE),
}


class Engine(Generic[S]):
    """The objects that all shards of a runtime share. If `append_linger_ms` is None, a batch ends with the loop's turn."""

    __slots__ = (
        "append_linger_ms",
        "background",
        "codec",
        "events",
        "image",
        "loader",
        "log",
        "make_shard",
        "now_ms",
        "timers",
        "writer",
    )

    def __init__(
        self,
        writer: PartitionWriter,
        loader: CoordinatorLoader,
        make_shard: MakeShard[S],
        timers: Timers,
        background: Background,
        now_ms: Callable[[], int],
        append_linger_ms: int | None,
        codec: int | str,
        log: Log,
        events: EventQueue,
        image: Callable[[], CoordinatorImage],
    ) -> None:
        self.writer = writer
        self.loader = loader
        self.make_shard = make_shard
        self.timers = timers
        self.background = background
        self.now_ms = now_ms
        self.append_linger_ms = append_linger_ms
        self.codec = codec
        self.log = log
        self.events = events
        self.image = image


class _Batch:
    """The open batch of a shard, which collects records until it is flushed."""

    def __init__(self, base_offset: int, max_bytes: int, guard: Any, builder: BatchBuilder, append_time_ms: int) -> None:
        self.base_offset = self.next_offset = base_offset
        self.max_bytes = max_bytes
        self.guard = guard
        self.builder = builder
        self.append_time_ms = append_time_ms
        self.linger: Cancellable | None = None
        self.waiting: list[DeferredEvent] = []

    def _written_bytes(self) -> int:
        size = self.builder.uncompressed_size
        return _BATCH_HEADER_BYTES + (int(size * _COMPRESSION_MARGIN) if self.builder.codec else size)

    @property
    def is_full(self) -> bool:
        """Whether no other record fits."""
        return self.builder.count > 0 and self.max_bytes <= self._written_bytes()

    def has_room_for(self, size: int) -> bool:
        """Whether this many bytes still fit."""
        written = self._written_bytes()
        return self.max_bytes >= written + size and (self.max_bytes > written or not self.builder.count)

    def has_room_for_record(self, timestamp_ms: int, key: bytes, value: bytes | None) -> bool:
        """Whether a record still fits. An empty batch takes any record."""
        if self.is_full:
            return False
        builder = self.builder
        if not builder.count:
            return True
        record = write_record(builder.count, timestamp_ms - (builder.base_timestamp or 0), key, value)
        return self.max_bytes >= self._written_bytes() + len(record)


class ShardContext(Generic[S]):
    """One shard of a runtime."""

    def __init__(self, key: TopicPartition, engine: Engine[S], schedule_write: ScheduleWrite) -> None:
        self.key = key
        self.name = f"{key.topic}-{key.partition}"
        self.epoch = -1
        self.state = CoordinatorState.INITIAL
        self.coordinator: ReplayedShard[S] | None = None
        self.timer = ShardTimer(engine.timers, schedule_write, engine.log)
        self.executor = ShardExecutor(engine.background, schedule_write, engine.log)
        self.deferred = DeferredEventQueue(engine.log)
        self._engine = engine
        self._batch: _Batch | None = None
        self._high_watermark: int | None = None
        self._is_listening = False

    @property
    def active(self) -> ReplayedShard[S]:
        """Return the shard. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR if it is not active."""
        if self.state is CoordinatorState.ACTIVE and self.coordinator is not None:
            return self.coordinator
        raise ApiError("COORDINATOR_LOAD_IN_PROGRESS" if self.state is CoordinatorState.LOADING else "NOT_COORDINATOR")

    @property
    def settled_shard(self) -> S | None:
        """The shard if it is active and everything that it has written is committed."""
        coordinator = self.coordinator
        if self.state is not CoordinatorState.ACTIVE or coordinator is None or self._has_pending_writes(coordinator):
            return None
        return coordinator.shard

    def _has_pending_writes(self, coordinator: ReplayedShard[S]) -> bool:
        is_open = self._batch is not None and self._batch.builder.count > 0
        return is_open or coordinator.last_committed_offset < coordinator.last_written_offset

    def ready(self) -> S:
        """Return the shard, prepared for an operation: its changes belong to the next record. Raises ApiError like `active`."""
        coordinator = self.active
        coordinator.prepare(coordinator.last_written_offset if self._batch is None else self._batch.next_offset)
        return coordinator.shard

    # states -----------------------------------------------------------------------------------------------------------------------

    def transition_to(self, state: CoordinatorState) -> None:
        """Change the state, and do the first work of the new state."""
        assert self.state in _BEFORE[state], f"Cannot transition from {self.state.name} to {state.name}"
        self.state = state
        match state:
            case CoordinatorState.LOADING:
                timeline = Timeline()
                shard = self._engine.make_shard(self.key, timeline, self.timer, self.executor)
                self.coordinator = ReplayedShard(shard, timeline)
                self._load(self.coordinator)
            case CoordinatorState.ACTIVE:
                assert self.coordinator is not None
                self._engine.writer.register_listener(self.key, self._on_high_watermark)
                self._is_listening = True
                self.coordinator.prepare(self.coordinator.last_written_offset)
                self.coordinator.on_loaded(self._engine.image())
            case _:
                self._unload()

    def _load(self, coordinator: ReplayedShard[S]) -> None:
        engine, epoch = self._engine, self.epoch

        def complete(summary: LoadSummary | None, error: KopsError | None) -> None:
            if self.coordinator is not coordinator or self.state is not CoordinatorState.LOADING:
                engine.log.info("Ignored load completion from %s because context is in %s state.", self.name, self.state.name)
                return
            if error is None:
                error = failure_of(lambda: self.transition_to(CoordinatorState.ACTIVE), engine.log, f"Loading {self.name}")
            if error is not None:
                engine.log.error("Failed to load metadata from %s with epoch %d due to %s.", self.name, epoch, error)
                self.transition_to(CoordinatorState.FAILED)
            elif summary is not None:
                engine.log.info(
                    "Finished loading of metadata from %s with epoch %d in %dms. Loaded %d records which total to %d bytes.",
                    self.name,
                    epoch,
                    summary.duration_ms,
                    summary.record_count,
                    summary.size_bytes,
                )

        def done(summary: LoadSummary | None, error: KopsError | None) -> None:
            if not engine.events.is_closed:
                engine.events.run_last(f"CompleteLoad(tp={self.name}, epoch={epoch})", lambda: complete(summary, error))

        engine.loader.load(self.key, coordinator).when_done(done)

    def _unload(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._engine.writer.deregister_listener(self.key, self._on_high_watermark)
        self.timer.cancel_all()
        self.executor.cancel_all()
        self.deferred.fail_all(ApiError("NOT_COORDINATOR"))
        self._fail_batch(ApiError("NOT_COORDINATOR"))
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            error = failure_of(coordinator.shard.on_unloaded, self._engine.log, f"Unloading {self.name}")
            if error is not None:
                self._engine.log.error("Failed to unload coordinator for %s due to %s.", self.name, error)

    # the high watermark -----------------------------------------------------------------------------------------------------------

    def _on_high_watermark(self, offset: int) -> None:
        is_waiting = self._high_watermark is not None
        self._high_watermark = offset
        if not is_waiting and not self._engine.events.is_closed:
            self._engine.events.run_first("HighWatermarkUpdate", self._apply_high_watermark)

    def _apply_high_watermark(self) -> None:
        offset, self._high_watermark = self._high_watermark, None
        if offset is not None and self.state is CoordinatorState.ACTIVE and self.coordinator is not None:
            self.coordinator.update_last_committed_offset(offset)
            self.deferred.complete_up_to(offset)

    # batches ----------------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Append the open batch. Raises ApiError after it has failed the events of the batch."""
        batch = self._batch
        if batch is None:
            return
        error = failure_of(lambda: self._write(batch), self._engine.log, f"Writing records to {self.name}")
        if error is not None:
            self._engine.log.error("Writing records to %s failed due to: %s.", self.name, error)
            self._fail_batch(error)
            raise error

    def _write(self, batch: _Batch) -> None:
        if not batch.builder.count:
            # The batch is empty if an atomic write did not fit into it.
            self._fail_batch(ApiError("UNKNOWN_SERVER_ERROR", "Record batch was empty"))
            return
        coordinator = self.active
        offset = self._engine.writer.append(self.key, batch.guard, batch.builder.build(), UNKNOWN_TRANSACTION_VERSION)
        coordinator.update_last_written_offset(offset)
        if offset != batch.next_offset:
            self._engine.log.error(
                "The state machine of the coordinator %s is out of sync with the underlying log. The last written offset returned is %d "
                "while the coordinator expected %d. The coordinator will be reloaded in order to re-synchronize the state machine.",
                self.name,
                offset,
                batch.next_offset,
            )
            self.transition_to(CoordinatorState.FAILED)
            self.transition_to(CoordinatorState.LOADING)
            raise ApiError("NOT_COORDINATOR")
        self.deferred.add(offset, batch.waiting)
        self._free_batch()

    def _free_batch(self) -> None:
        if self._batch is not None and self._batch.linger is not None:
            self._batch.linger.cancel()
        self._batch = None

    def _fail_batch(self, error: KopsError) -> None:
        batch = self._batch
        if batch is not None:
            if self.coordinator is not None:
                self.coordinator.revert_last_written_offset(batch.base_offset)
            self._free_batch()
            complete_all(batch.waiting, error, self._engine.log)

    def _flush_due(self, batch: _Batch) -> None:
        """Flush the batch, unless it has already been flushed."""

        def flush() -> None:
            if self._batch is batch:
                self.flush()

        if not self._engine.events.is_closed and self._batch is batch:
            self._engine.events.run_last("FlushBatch", flush)

    def _open_batch(self, producer_id: int, producer_epoch: int, guard: Any, now_ms: int) -> _Batch:
        if self._batch is not None:
            return self._batch
        engine, is_transactional = self._engine, producer_id != NO_PRODUCER
        builder = BatchBuilder(
            codec=engine.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            transactional=is_transactional,
        )
        batch = _Batch(self.active.last_written_offset, engine.writer.max_batch_bytes(self.key), guard, builder, now_ms)
        if engine.append_linger_ms is None:
            if not is_transactional:
                engine.timers.call_soon(lambda: self._flush_due(batch))
        elif engine.append_linger_ms > 0:
            batch.linger = engine.timers.call_later(engine.append_linger_ms, lambda: self._flush_due(batch))
        self._batch = batch
        return batch

    def _flush_if_complete(self, now_ms: int) -> None:
        batch, linger_ms = self._batch, self._engine.append_linger_ms
        if batch is not None and (
            batch.builder.transactional
            or (linger_ms is not None and now_ms - batch.append_time_ms >= linger_ms)
            or not batch.has_room_for(0)
        ):
            self.flush()

    # writing ----------------------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        event: DeferredEvent,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        guard: Any = NO_GUARD,
        replays: bool = True,
        is_atomic: bool = True,
    ) -> None:
        """Replay and append records; `event` completes when they are committed. After an ApiError the caller completes the event."""
        if not records:
            self._wait_for_pending_writes(event)
            return
        now_ms = self._engine.now_ms()
        if producer_id != NO_PRODUCER:
            is_atomic = True
            self.flush()
        batch = self._open_batch(producer_id, producer_epoch, guard, now_ms)
        written = [(record.key_bytes(), record.value_bytes()) for record in records]
        # The exact size of the records matters only near the limit.
        if (
            is_atomic
            and not batch.has_room_for(_BATCH_HEADER_BYTES + _size_at_most(written))
            and not batch.has_room_for(_BATCH_HEADER_BYTES + _size(written))
        ):
            # The record may still fit into its own batch when it is compressed.
            self.flush()
            batch = self._open_batch(producer_id, producer_epoch, guard, now_ms)
        for index, record in enumerate(records):
            key, value = written[index]
            if not is_atomic and not batch.has_room_for_record(now_ms, key, value):
                self.flush()
                batch = self._open_batch(producer_id, producer_epoch, guard, now_ms)
            if replays and not self._replay(batch, record, producer_id, producer_epoch, event):
                return
            batch.builder.append(now_ms, key, value)
            batch.next_offset += 1
        batch.waiting.append(event)
        self._flush_if_complete(now_ms)

    def _replay(self, batch: _Batch, record: CoordinatorRecord, producer_id: int, producer_epoch: int, event: DeferredEvent) -> bool:
        """Replay a record. If that fails, the whole batch fails. Returns whether it succeeded."""
        coordinator, offset = self.active, batch.next_offset
        error = failure_of(lambda: coordinator.replay(offset, producer_id, producer_epoch, record), self._engine.log, "Replaying")
        if error is None:
            return True
        self._engine.log.error("Replaying record %s to %s failed due to: %s.", record, self.name, error)
        batch.waiting.append(event)
        self._fail_batch(error)
        return False

    def _wait_for_pending_writes(self, event: DeferredEvent) -> None:
        coordinator = self.active
        if self._batch is not None and self._batch.builder.count:
            self._batch.waiting.append(event)
        elif coordinator.last_committed_offset < coordinator.last_written_offset:
            self.deferred.add(coordinator.last_written_offset, [event])
        else:
            event.complete(None)

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        transaction_version: int,
        event: DeferredEvent,
    ) -> None:
        """Append a transaction's end marker; `event` completes when it is committed. After an ApiError the caller completes the event."""
        self.flush()
        coordinator = self.active
        before = coordinator.last_written_offset

        def write() -> None:
            coordinator.replay_end_transaction_marker(before, producer_id, producer_epoch, is_commit)
            marker = end_txn_marker(
                0,
                self._engine.now_ms(),
                commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
            offset = self._engine.writer.append(self.key, NO_GUARD, marker, transaction_version)
            coordinator.update_last_written_offset(offset)
            self.deferred.add(offset, [event])

        error = failure_of(write, self._engine.log, f"Writing a transaction marker to {self.name}")
        if error is not None:
            coordinator.revert_last_written_offset(before)
            event.complete(error)


def _size_at_most(records: Sequence[tuple[bytes, bytes | None]]) -> int:
    return sum(_RECORD_OVERHEAD_AT_MOST + len(key) + len(value or b"") for key, value in records)


def _size(records: Sequence[tuple[bytes, bytes | None]]) -> int:
    return sum(len(write_record(index, 0, key, value)) for index, (key, value) in enumerate(records))
