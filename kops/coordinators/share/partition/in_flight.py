"""Records in flight: their state, a change of state that is being persisted, and the lock of the member that has acquired them.

Sources: InFlightState, InFlightBatch, AcquisitionLockTimerTask. A batch has one state for all its records until they differ. After that,
each record has its own state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from kops.coordinators.share.partition.record_state import RecordState
from kops.errors import ApiError

NO_MEMBER: Final = ""
AVAILABLE: Final = RecordState.AVAILABLE
ARCHIVED: Final = RecordState.ARCHIVED
MOST_RECORDS: Final = 1 << 16
"""A batch of more offsets never gets a state for each of them."""


class TimerHandle(Protocol):
    """A scheduled timer."""

    def cancel(self) -> None:
        """Cancel the timer."""


class AcquisitionLock:
    """The lock with which a member has acquired records for some time."""

    __slots__ = ("expiration_ms", "first_offset", "handle", "has_expired", "is_cancelled", "last_offset", "member_id")

    def __init__(self, member_id: str, first_offset: int, last_offset: int, expiration_ms: int) -> None:
        self.member_id = member_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.expiration_ms = expiration_ms
        self.has_expired = False
        self.is_cancelled = False
        self.handle: TimerHandle | None = None

    def cancel(self) -> None:
        """Cancel the lock, because the records are no longer acquired or have another lock."""
        self.is_cancelled = True
        if self.handle is not None:
            self.handle.cancel()


class AcquisitionLocks(Protocol):
    """Creates locks."""

    def lock(self, member_id: str, first_offset: int, last_offset: int, delay_ms: int | None = None) -> AcquisitionLock:
        """Create a lock for `delay_ms`, by default for the group's lock duration."""

    def remaining_ms(self, lock: AcquisitionLock) -> int:
        """Return the remaining time of a lock in ms."""


class _Before(NamedTuple):
    """The state before the change that is being persisted."""

    state: RecordState
    delivery_count: int
    member_id: str
    max_delivery_count: int


class InFlightState:
    """The state of one record, or of all records of a batch. `member_id` is empty if no member has acquired it."""

    __slots__ = ("_before", "_is_final", "delivery_count", "lock", "member_id", "state")

    def __init__(self, state: RecordState, delivery_count: int, member_id: str, lock: AcquisitionLock | None = None) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self._before: _Before | None = None
        self._is_final = False

    def __str__(self) -> str:
        return f"InFlightState(state={self.state.name}, deliveryCount={self.delivery_count}, memberId={self.member_id})"

    @property
    def is_changing(self) -> bool:
        """Whether a change waits for the persister."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire it now."""
        return self.state is AVAILABLE and self._before is None

    def set_lock(self, lock: AcquisitionLock) -> None:
        """Set the lock. Raises ApiError where Kafka throws: a batch that was split during a change still has its old lock."""
        if self.lock is not None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Existing acquisition lock timeout exists, cannot override.")
        self.lock = lock

    def unlock(self) -> None:
        """Cancel the lock, if any."""
        if self.lock is not None:
            self.lock.cancel()
            self.lock = None

    def update(self, state: RecordState, max_delivery_count: int, member_id: str, *, is_delivery: bool = False) -> bool:
        """Change the state at once. A record at the delivery limit is archived instead of made available. Returns False if it is not
        allowed."""
        if self.is_changing:
            return False
        if state is AVAILABLE and self.delivery_count >= max_delivery_count:
            state = ARCHIVED
        if not self.state.may_become(state):
            return False
        self.state = state
        self.delivery_count += is_delivery
        self.member_id = member_id
        return True

    def start_change(self, state: RecordState, max_delivery_count: int) -> bool:
        """Begin a change of state, which `end_change` completes. No member has the record meanwhile. Returns False if it is not allowed."""
        before = _Before(self.state, self.delivery_count, self.member_id, max_delivery_count)
        if not self.update(state, max_delivery_count, NO_MEMBER):
            return False
        self._before = before
        return True

    def end_change(self, *, is_written: bool) -> None:
        """Complete the change with the persister's answer. An unwritten change is undone, but a lock that expired meanwhile stays
        expired."""
        before, self._before = self._before, None
        if is_written or self._is_final:
            self.unlock()
            return
        assert before is not None, "no change has begun"
        if self.lock is not None and self.lock.has_expired:
            self.state = ARCHIVED if before.delivery_count >= before.max_delivery_count else AVAILABLE
            self.member_id = NO_MEMBER
            self.unlock()
        else:
            self.state, self.member_id = before.state, before.member_id

    def archive(self) -> None:
        """Archive the record permanently, whatever the result of a pending change."""
        self._is_final = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.unlock()


class InFlightBatch:
    """Records that were acquired together. Either `whole` has their state, or `records` has one for each."""

    __slots__ = ("first_offset", "last_offset", "records", "whole")

    def __init__(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = state
        self.records: list[InFlightState] | None = None

    def __str__(self) -> str:
        each = "null" if self.records is None else f"{{{', '.join(f'{offset}={state}' for offset, state in self.states())}}}"
        whole = "null" if self.whole is None else self.whole
        return f"InFlightBatch(firstOffset={self.first_offset}, lastOffset={self.last_offset}, inFlightState={whole}, offsetState={each})"

    @property
    def count(self) -> int:
        """The number of its offsets, including gaps."""
        return self.last_offset - self.first_offset + 1

    @property
    def is_wide(self) -> bool:
        """Whether it has one state for more offsets than may get states of their own."""
        return self.whole is not None and self.count > MOST_RECORDS

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether the whole batch lies between two offsets."""
        return first_offset <= self.first_offset and self.last_offset <= last_offset

    def states(self, first_offset: int = 0, last_offset: int | None = None) -> Iterator[tuple[int, InFlightState]]:
        """Yield the offsets from first to last with their states, if each record has its own state."""
        assert self.records is not None
        begin = max(first_offset, self.first_offset)
        end = self.last_offset if last_offset is None else min(last_offset, self.last_offset)
        for offset in range(begin, end + 1):
            yield offset, self.records[offset - self.first_offset]

    def state_at(self, offset: int) -> InFlightState | None:
        """Return the state of an offset, or None if it is not in the batch."""
        if self.whole is not None:
            return self.whole
        return None if offset > self.last_offset else next(self.states(offset, offset))[1]

    def split(self, locks: AcquisitionLocks) -> list[InFlightState]:
        """Give each record its own state and its own lock for the remaining time."""
        whole = self.whole
        if whole is not None:
            self.records = []
            for offset in range(self.first_offset, self.last_offset + 1):
                lock = None
                if whole.lock is not None:
                    lock = locks.lock(whole.member_id, offset, offset, locks.remaining_ms(whole.lock))
                self.records.append(InFlightState(whole.state, whole.delivery_count, whole.member_id, lock))
            whole.unlock()
            self.whole = None
        assert self.records is not None
        return self.records

    def cut(self, offset: int, locks: AcquisitionLocks) -> InFlightBatch:
        """End before `offset`, and return the rest as a batch in the same state. As with `split`, a change that is being persisted stays
        with the first part."""
        whole = self.whole
        assert whole is not None
        rest = InFlightBatch(offset, self.last_offset, InFlightState(whole.state, whole.delivery_count, whole.member_id))
        assert rest.whole is not None
        self.last_offset = offset - 1
        if whole.lock is not None:
            left_ms = locks.remaining_ms(whole.lock)
            whole.unlock()
            whole.set_lock(locks.lock(whole.member_id, self.first_offset, self.last_offset, left_ms))
            rest.whole.set_lock(locks.lock(whole.member_id, rest.first_offset, rest.last_offset, left_ms))
        return rest

    def split_at(self, last_offset: int, locks: AcquisitionLocks) -> None:
        """Split an acquired batch without a lock: records up to `last_offset` stay acquired, the others were not delivered."""
        whole = self.whole
        assert whole is not None
        self.records = []
        for offset in range(self.first_offset, self.last_offset + 1):
            if offset <= last_offset:
                lock = locks.lock(whole.member_id, offset, offset)
                self.records.append(InFlightState(whole.state, whole.delivery_count, whole.member_id, lock))
            else:
                self.records.append(InFlightState(AVAILABLE, whole.delivery_count - 1, NO_MEMBER))
        self.whole = None
