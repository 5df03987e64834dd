"""A share partition on its leader. Source: SharePartition.

`Surroundings` provides time, timers, the persister and the log's offsets. `on_change` is called when waiting fetches may continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch, Acknowledging, expire
from kops.coordinators.share.partition.acquired import NOTHING, Acquired, aborted_batches, without
from kops.coordinators.share.partition.acquiring import AcquireRequest, acquire
from kops.coordinators.share.partition.cache import InFlightCache
from kops.coordinators.share.partition.in_flight import AcquisitionLock, TimerHandle
from kops.coordinators.share.partition.persisting import PartitionPersister, PersistedState, StateWrite, client_error
from kops.coordinators.share.partition.record_state import RecordState
from kops.coordinators.share.partition.settings import SharePartitionSettings
from kops.errors import ApiError, KopsError
from kops.protocol.json_text import uuid_text
from kops.records.batch import Batch
from kops.records.isolation import AbortedTransaction


class Stage(Enum):
    """The life cycle of a share partition."""

    EMPTY = auto()
    INITIALIZING = auto()
    ACTIVE = auto()
    FAILED = auto()
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a share partition. `initial_offset` returns where a group without a start offset begins
    (`share.auto.offset.reset`)."""

    settings: SharePartitionSettings
    persister: PartitionPersister
    now_ms: Callable[[], int]
    schedule: Callable[[int, Callable[[], None]], TimerHandle]
    initial_offset: Callable[[], int]
    on_change: Callable[[], None]


class SharePartition:
    """A partition for a share group: its records in flight."""

    def __init__(self, key: SharePartitionKey, topic: str, leader_epoch: int, surroundings: Surroundings) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.stage = Stage.EMPTY
        self.state_epoch = 0
        self.topic = topic
        self.expired_count = 0
        """The number of records whose lock has expired."""
        self._name = f"{key.group_id}-{uuid_text(key.topic_id)}:{topic}-{key.partition}"
        self._surroundings = surroundings
        self.cache = InFlightCache(self)
        self._fetch_lock: object = None
        self._fetch_position: tuple[int, object] = (-1, None)

    def maybe_initialize(self) -> Promise[None]:
        """Read the state from the persister, unless it has been read. Fails while another call reads it, and always after a failed read."""
        if self.stage is not Stage.EMPTY:
            return self._initialized()
        self.stage = Stage.INITIALIZING
        promise: Promise[None] = Promise()

        def done(state: PersistedState | None, error: KopsError | None) -> None:
            try:
                if error is not None:
                    raise client_error(error) if isinstance(error, ApiError) else error
                assert state is not None
                self._begin(state)
            except KopsError as failure:
                self.stage = Stage.FAILED
                promise.fail(failure)
            else:
                promise.complete(None)

        self._surroundings.persister.read_state(self.key, self.leader_epoch).when_done(done)
        return promise

    @property
    def next_fetch_offset(self) -> int:
        """Return the offset at which to read."""
        return self.cache.next_fetch_offset()

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch makes sense: there is room in the window, or records are available again."""
        is_at_end = self.next_fetch_offset == self.cache.end_offset + 1
        return not is_at_end or self.cache.in_flight_count < self._surroundings.settings.max_in_flight_records

    def acquire(self, request: AcquireRequest, aborted: Sequence[AbortedTransaction] = ()) -> Acquired:
        """Acquire records of fetched batches. `aborted` is given for groups that read only committed records; its records are archived."""
        if self.stage is not Stage.ACTIVE:
            return NOTHING
        acquired = acquire(self.cache, self, self._surroundings.settings, request)
        if not aborted or not acquired.ranges:
            return acquired
        gone = aborted_batches(request.batches, aborted)
        for batch in gone:
            self._archive_aborted(batch)
        left = without(acquired.ranges, gone)
        return Acquired(left, sum(each.last_offset - each.first_offset + 1 for each in left))

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> Promise[None]:
        """Acknowledge records. The promise completes when they are persisted. If one batch is invalid, nothing changes."""
        changes = self._changes()
        try:
            for batch in batches:
                changes.acknowledge(member_id, batch)
        except ApiError as error:
            changes.end_changes(are_written=False)
            return Promise.failed(error)
        return self._persisted(changes)

    def release_acquired_records(self, member_id: str) -> Promise[None]:
        """Release the records of a member whose share session ends."""
        changes = self._changes()
        try:
            changes.release(member_id)
        except ApiError as error:
            changes.end_changes(are_written=False)
            return Promise.failed(error)
        return self._persisted(changes)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Handle a moved log start, after records were deleted from the log."""
        self.cache.on_log_start_offset(log_start_offset)

    def fence(self) -> None:
        """Fence the share partition, because another broker leads the partition or the topic was deleted."""
        self.stage = Stage.FENCED

    def close(self) -> None:
        """Cancel all locks, because the broker stops."""
        self.fence()
        for batch in self.cache.batches:
            for state in (batch.whole, *(batch.records or ())):
                if state is not None:
                    state.unlock()

    def maybe_acquire_fetch_lock(self, fetch_id: object) -> bool:
        """Try to take the fetch lock: only one fetch at a time reads the log for a share partition."""
        if self.stage is not Stage.ACTIVE or self._fetch_lock is not None:
            return False
        self._fetch_lock = fetch_id
        return True

    def release_fetch_lock(self, fetch_id: object) -> None:
        """Release the fetch lock. Like Kafka, this releases it even if another fetch holds it."""
        self._fetch_lock = None

    def fetch_position(self, offset: int) -> object:
        """Return the log position of `offset` if that was looked up last. It is used to estimate how much there is to read."""
        return self._fetch_position[1] if self._fetch_position[0] == offset else None

    def update_fetch_position(self, offset: int, position: object) -> None:
        """Remember the log position of an offset."""
        self._fetch_position = (offset, position)

    def lock(self, member_id: str, first_offset: int, last_offset: int, delay_ms: int | None = None) -> AcquisitionLock:
        """See AcquisitionLocks."""
        delay_ms = self._surroundings.settings.record_lock_duration_ms if delay_ms is None else delay_ms
        lock = AcquisitionLock(member_id, first_offset, last_offset, self._surroundings.now_ms() + delay_ms)
        lock.handle = self._surroundings.schedule(delay_ms, lambda: self._expire(lock))
        return lock

    def remaining_ms(self, lock: AcquisitionLock) -> int:
        """See AcquisitionLocks."""
        return lock.expiration_ms - self._surroundings.now_ms()

    def _initialized(self) -> Promise[None]:
        match self.stage:
            case Stage.ACTIVE:
                return Promise.of(None)
            case Stage.FAILED:
                return Promise.failed(ApiError("UNKNOWN_SERVER_ERROR", f"Share partition failed to load {self._name}"))
            case Stage.INITIALIZING:
                return Promise.failed(ApiError("LEADER_NOT_AVAILABLE", f"Share partition is already initializing {self._name}"))
            case _:
                return Promise.failed(ApiError("LEADER_NOT_AVAILABLE", f"Share partition is fenced {self._name}"))

    def _begin(self, state: PersistedState) -> None:
        start_offset = self._surroundings.initial_offset() if state.start_offset == -1 else state.start_offset
        self.state_epoch = state.state_epoch
        if not self.cache.begin(start_offset, state.batches):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Failed to initialize the share partition {self._name}")
        self.stage = Stage.ACTIVE

    def _changes(self) -> Acknowledging:
        return Acknowledging(self.cache, self, self._surroundings.settings)

    def _archive_aborted(self, batch: Batch) -> None:
        self.cache.cut(batch.base_offset, batch.last_offset + 1)
        floor = self.cache.batches.floor(batch.base_offset)
        if floor is None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Batch record not found. The request batch offsets are not found in the cache.")
        known = self.cache.batches.between(floor[0], batch.last_offset)
        self.cache.archive(batch.base_offset, batch.last_offset + 1, known, RecordState.ACQUIRED)

    def _persisted(self, changes: Acknowledging) -> Promise[None]:
        """Write the changes, and complete them with the persister's answer."""
        if not changes.changes:
            return Promise.of(None)
        promise: Promise[None] = Promise()

        def done(_: None, error: KopsError | None) -> None:
            changes.end_changes(are_written=error is None)
            is_done = error is None and self.cache.move_start_offset()
            if error is None:
                promise.complete(None)
            else:
                promise.fail(error)
            if is_done:
                self._surroundings.on_change()

        self._write([change.batch for change in changes.changes]).when_done(done)
        return promise

    def _expire(self, lock: AcquisitionLock) -> None:
        lock.has_expired = True
        if lock.is_cancelled:
            return
        self.expired_count += lock.last_offset - lock.first_offset + 1
        written = expire(self.cache, self, self._surroundings.settings, lock)
        if written:
            # The records are available even if the write failed.
            self._write(written).when_done(lambda _, __: self.cache.move_start_offset())
            self._surroundings.on_change()

    def _write(self, batches: Sequence[StateBatch]) -> Promise[None]:
        cache = self.cache
        done_count = (cache.delivery_complete_count + 2**31) % 2**32 - 2**31  # as Java's int
        write = StateWrite(self.state_epoch, self.leader_epoch, cache.start_offset, done_count, batches)
        promise: Promise[None] = Promise()

        def done(_: None, error: KopsError | None) -> None:
            if error is None:
                promise.complete(None)
            elif isinstance(error, ApiError):
                promise.fail(client_error(error))
            else:
                failure = f"Failed to write the share group state for share partition {self._name}"
                promise.fail(ApiError("UNKNOWN_SERVER_ERROR", failure))

        self._surroundings.persister.write_state(self.key, write).when_done(done)
        return promise
