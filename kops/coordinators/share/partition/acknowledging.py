"""Handles acknowledged records, records of a member that leaves, and expired locks. Source: SharePartition.

An acknowledgement or release begins changes of state, which the persister's answer completes. An expired lock changes the state at once,
whatever the persister answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.partition.cache import InFlightCache
from kops.coordinators.share.partition.in_flight import NO_MEMBER, AcquisitionLock, AcquisitionLocks, InFlightBatch, InFlightState
from kops.coordinators.share.partition.record_state import ACKNOWLEDGEMENTS, RENEW, STATE_OF_ACKNOWLEDGEMENT, RecordState
from kops.coordinators.share.partition.settings import SharePartitionSettings
from kops.errors import ApiError

ACQUIRED = RecordState.ACQUIRED
NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
REFUSED = "Unable to acknowledge records for the batch"
IN_CHANGE = "The record state is invalid. The acknowledgement of delivery could not be completed."


class AcknowledgementBatch(NamedTuple):
    """Offsets first to last, and either one acknowledge type for all of them or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_at(self, offset: int) -> int:
        """Return the acknowledge type of an offset."""
        return self.types[offset - self.first_offset] if len(self.types) > 1 else self.types[0]


class StateChange(NamedTuple):
    """A change that waits for the persister, and the batch that is written for it."""

    state: InFlightState
    batch: StateBatch


class Acknowledging:
    """The changes of one request. If it fails in the middle, the caller must undo the changes so far (`end_changes`)."""

    def __init__(self, cache: InFlightCache, locks: AcquisitionLocks, settings: SharePartitionSettings) -> None:
        self._cache = cache
        self._locks = locks
        self._settings = settings
        self.changes: list[StateChange] = []

    def acknowledge(self, member_id: str, batch: AcknowledgementBatch) -> None:
        """Begin the changes of one batch of a request. Raises ApiError, possibly after some changes have begun."""
        if not ACKNOWLEDGEMENTS.issuperset(batch.types):
            raise ApiError("INVALID_REQUEST", f"Invalid acknowledge type: {list(batch.types)}")
        start_offset = self._cache.start_offset
        if batch.last_offset < start_offset:
            return
        self._cache.cut(batch.first_offset, batch.last_offset + 1)
        for known in self._known(batch):
            if known.last_offset < start_offset:
                continue
            whole = known.whole
            if whole is not None:
                self._check_whole(whole, member_id)
            is_part = not known.is_within(batch.first_offset, batch.last_offset) or len(batch.types) > 1
            if whole is None or is_part or self._cache.starts_within(known.first_offset, known.last_offset):
                if whole is not None and whole.state is not ACQUIRED:
                    raise ApiError(
                        "INVALID_RECORD_STATE", "The batch cannot be acknowledged. The subset batch is not in the acquired state."
                    )
                known.split(self._locks)
                self._acknowledge_records(member_id, batch, known)
            else:
                self._acknowledge_whole(member_id, batch.types[0], known, whole)

    def release(self, member_id: str) -> None:
        """Begin to release all records that a member has acquired."""
        cache = self._cache
        cache.cut()
        for batch in cache.batches:
            whole = batch.whole
            is_own = whole is not None and whole.state is ACQUIRED and whole.member_id == member_id
            if is_own and cache.starts_within(batch.first_offset, batch.last_offset):
                batch.split(self._locks)
            if batch.whole is None:
                for offset, state in batch.states():
                    if state.state is ACQUIRED and state.member_id in (member_id, NO_MEMBER):
                        self._release(state, offset, offset, "Unable to release acquired records for the offset")
            elif batch.whole.state is ACQUIRED and batch.whole.member_id in (member_id, NO_MEMBER):
                self._release(batch.whole, batch.first_offset, batch.last_offset, "Unable to release acquired records for the batch")

    def end_changes(self, *, are_written: bool) -> None:
        """Complete the changes if they are written, otherwise undo them."""
        cache = self._cache
        for state, batch in self.changes:
            state.end_change(is_written=are_written)
            if state.state is RecordState.AVAILABLE:
                cache.must_search = True
            if not are_written and RecordState(batch.delivery_state).is_terminal and not state.state.is_terminal:
                cache.delivery_complete_count -= cache.in_flight_within(batch.first_offset, batch.last_offset)

    def _known(self, batch: AcknowledgementBatch) -> list[InFlightBatch]:
        """Return the batches in flight to which an acknowledgement applies."""
        cache = self._cache
        floor = cache.batches.floor(batch.first_offset)
        if floor is None:
            if not cache.starts_within(batch.first_offset, batch.last_offset):
                raise ApiError("INVALID_RECORD_STATE", "Batch record not found. The request batch offsets are not found in the cache.")
            floor = cache.batches.floor(cache.start_offset)
        found = [] if floor is None else cache.batches.between(floor[0], batch.last_offset)
        if not found:
            raise ApiError("UNKNOWN_SERVER_ERROR")  # Kafka ends with a NullPointerException
        if found[-1].last_offset < batch.first_offset:
            raise ApiError("INVALID_REQUEST", "Batch record not found. The first offset in request is past acquired records.")
        if batch.last_offset > found[-1].last_offset:
            raise ApiError("INVALID_REQUEST", "Batch record not found. The last offset in request is past acquired records.")
        return found

    def _check_whole(self, whole: InFlightState, member_id: str) -> None:
        if whole.member_id == NO_MEMBER:
            raise ApiError("INVALID_RECORD_STATE", NOT_ACQUIRED)
        if whole.member_id != member_id:
            raise ApiError("INVALID_RECORD_STATE", "Member is not the owner of batch record")
        if whole.is_changing:
            raise ApiError("INVALID_RECORD_STATE", IN_CHANGE)

    def _acknowledge_records(self, member_id: str, batch: AcknowledgementBatch, known: InFlightBatch) -> None:
        for offset, state in known.states(max(batch.first_offset, self._cache.start_offset), batch.last_offset):
            if state.state is not ACQUIRED:
                raise ApiError("INVALID_RECORD_STATE", "The offset cannot be acknowledged. The offset is not acquired.")
            if state.is_changing:
                raise ApiError("INVALID_RECORD_STATE", IN_CHANGE)
            if state.member_id != member_id:
                raise ApiError("INVALID_RECORD_STATE", "Member is not the owner of offset")
            acknowledgement = batch.type_at(offset)
            if acknowledgement == RENEW:
                self._renew(member_id, state, offset, offset)
            else:
                self._change(state, STATE_OF_ACKNOWLEDGEMENT[acknowledgement], offset, offset, REFUSED)
                self._cache.delivery_complete_count += state.state.is_terminal

    def _acknowledge_whole(self, member_id: str, acknowledgement: int, known: InFlightBatch, whole: InFlightState) -> None:
        if whole.state is not ACQUIRED:
            raise ApiError("INVALID_RECORD_STATE", NOT_ACQUIRED)
        if acknowledgement == RENEW:
            self._renew(member_id, whole, known.first_offset, known.last_offset)
            return
        state = STATE_OF_ACKNOWLEDGEMENT[acknowledgement]
        self._change(whole, state, known.first_offset, known.last_offset, REFUSED)
        if whole.state.is_terminal:
            self._cache.delivery_complete_count += known.count

    def _renew(self, member_id: str, state: InFlightState, first_offset: int, last_offset: int) -> None:
        if not self._settings.is_renew_enabled:
            raise ApiError("INVALID_RECORD_STATE", "Renewing acquisition locks is not enabled for the group.")
        state.unlock()
        state.set_lock(self._locks.lock(member_id, first_offset, last_offset))

    def _release(self, state: InFlightState, first_offset: int, last_offset: int, failure: str) -> None:
        """Make undelivered records available again, or archive them if they are no longer in the log."""
        is_gone = last_offset < self._cache.start_offset
        self._change(state, RecordState.ARCHIVED if is_gone else RecordState.AVAILABLE, first_offset, last_offset, failure)
        if state.state.is_terminal:
            self._cache.delivery_complete_count += self._cache.in_flight_within(first_offset, last_offset)

    def _change(self, state: InFlightState, new: RecordState, first_offset: int, last_offset: int, failure: str) -> None:
        if not state.start_change(new, self._settings.max_delivery_count):
            raise ApiError("INVALID_RECORD_STATE", failure)
        self.changes.append(StateChange(state, StateBatch(first_offset, last_offset, state.delivery_count, state.state)))


def expire(cache: InFlightCache, locks: AcquisitionLocks, settings: SharePartitionSettings, lock: AcquisitionLock) -> list[StateBatch]:
    """Handle an expired lock: its records become available again, or are archived. Returns the batches to write."""
    cache.cut()
    floor = cache.batches.floor(lock.first_offset)
    if floor is None:
        return []
    written: list[StateBatch] = []
    for batch in cache.batches.between(floor[0], lock.last_offset):
        is_acquired = batch.whole is not None and batch.whole.state is ACQUIRED
        if is_acquired and cache.starts_within(batch.first_offset, batch.last_offset):
            batch.split(locks)
        if batch.whole is not None:
            states = [(batch.first_offset, batch.last_offset, batch.whole)]
        else:
            states = [(offset, offset, state) for offset, state in batch.states(lock.first_offset, lock.last_offset)]
        for first_offset, last_offset, state in states:
            if state.state is not ACQUIRED:
                continue
            is_gone = last_offset < cache.start_offset
            if not state.update(RecordState.ARCHIVED if is_gone else RecordState.AVAILABLE, settings.max_delivery_count, NO_MEMBER):
                continue
            written.append(StateBatch(first_offset, last_offset, state.delivery_count, state.state))
            state.unlock()
            if state.state is not RecordState.ARCHIVED:
                cache.must_search = True
            if state.state.is_terminal:
                cache.delivery_complete_count += cache.in_flight_within(first_offset, last_offset)
    return written
