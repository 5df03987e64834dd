"""A share partition: what is acquired, acknowledged, released or locked for a while, and how its start moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.acquired import AcquiredRange, joined, slice_bounds, without
from kops.coordinators.share.partition.acquiring import AcquireRequest
from kops.coordinators.share.partition.offset_map import OffsetMap
from kops.coordinators.share.partition.persisting import PersistedState, StateWrite
from kops.coordinators.share.partition.record_state import ACCEPT, REJECT, RELEASE, RENEW, RecordState
from kops.coordinators.share.partition.settings import throttle_limit
from kops.coordinators.share.partition.share_partition import SharePartition, Surroundings
from kops.errors import ApiError
from kops.records.batch import Batch
from kops.records.build import empty_batch


class Settings:
    max_in_flight_records = 100
    max_delivery_count = 3
    record_lock_duration_ms = 1000
    is_renew_enabled = True


class Handle:
    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] | None = task

    def cancel(self) -> None:
        self.task = None


class Life:
    """A share partition of a log with batches of ten records, its timers, and its persister, which answers at once
    unless `holds` is set.
    """

    def __init__(self, state: PersistedState | None = None) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Handle]] = []
        self.writes: list[StateWrite] = []
        self.held: list[Promise[None]] = []
        self.holds = False
        self.changes = 0
        self.state = state or PersistedState(0, 0)
        key = SharePartitionKey("g", bytes(16), 0)
        surroundings = Surroundings(Settings(), self, lambda: self.now_ms, self.schedule, lambda: 7, self.changed)
        self.partition = SharePartition(key, "orders", 5, surroundings)
        self.partition.maybe_initialize().result()

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        return Promise.of(self.state)

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        self.writes.append(write)
        promise: Promise[None] = Promise()
        if self.holds:
            self.held.append(promise)
        else:
            promise.complete(None)
        return promise

    def schedule(self, delay_ms: int, task: Callable[[], None]) -> Handle:
        handle = Handle(task)
        self.timers.append((self.now_ms + delay_ms, handle))
        return handle

    def changed(self) -> None:
        self.changes += 1

    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        due = [handle for due_ms, handle in self.timers if due_ms <= self.now_ms]
        self.timers = [each for each in self.timers if each[0] > self.now_ms]
        for handle in due:
            if handle.task is not None:
                handle.task()

    def fetch(self, member_id: str = "m", limit: int = 10, *, is_record_limit: bool = False) -> list[tuple[int, ...]]:
        offset = self.partition.next_fetch_offset
        base = offset // 10 * 10
        batches = [Batch(empty_batch(base_offset=first, last_offset=first + 9)) for first in (base, base + 10)]
        return [
            tuple(each) for each in self.partition.acquire(AcquireRequest(member_id, is_record_limit, 100, limit, offset, batches)).ranges
        ]

    def acknowledge(self, first: int, last: int, *types: int, member_id: str = "m") -> Promise[None]:
        return self.partition.acknowledge(member_id, [AcknowledgementBatch(first, last, types)])

    @property
    def offsets(self) -> tuple[int, int, int]:
        cache = self.partition.cache
        return cache.start_offset, cache.end_offset, cache.delivery_complete_count


def test_what_is_accepted_moves_the_start() -> None:
    life = Life()
    assert life.fetch() == [(0, 9, 1)]
    assert life.fetch("other") == [(10, 19, 1)]
    life.acknowledge(0, 4, ACCEPT).result()
    assert life.offsets == (5, 19, 0)
    assert life.writes[-1] == StateWrite(0, 5, 0, 5, [StateBatch(offset, offset, 1, 2) for offset in range(5)])
    life.acknowledge(5, 9, ACCEPT, ACCEPT, REJECT, RELEASE, ACCEPT).result()
    assert (life.offsets, life.partition.next_fetch_offset) == ((8, 19, 1), 8)
    assert life.fetch() == [(8, 8, 2)]
    assert life.changes == 2


def test_only_the_owner_acknowledges() -> None:
    life = Life()
    life.fetch()
    for arguments, message in (
        ((0, 9, ACCEPT), "Member is not the owner of batch record"),
        ((0, 10, ACCEPT), "Batch record not found. The last offset in request is past acquired records."),
        ((0, 9, 5), "Invalid acknowledge type: [5]"),
    ):
        with pytest.raises(ApiError, match=message.replace("[", r"\[")):
            life.acknowledge(*arguments, member_id="other" if "owner" in message else "m").result()
    assert life.writes == []


def test_a_lock_runs_out_and_is_renewed() -> None:
    life = Life()
    life.fetch()
    life.wait(900)
    life.acknowledge(0, 9, RENEW).result()
    life.wait(900)
    assert life.partition.next_fetch_offset == 10
    life.wait(100)
    assert (life.partition.next_fetch_offset, life.changes) == (0, 1)
    assert life.writes[-1].batches == [StateBatch(0, 9, 1, 0)]


def test_the_last_delivery_comes_alone_and_then_the_record_is_archived() -> None:
    life = Life()
    counts = []
    for _ in range(12):
        counts.append(life.fetch())
        life.wait(1000)
    assert counts[:4] == [[(0, 9, 1)], [(0, 9, 2)], [(0, 0, 3)], [(1, 1, 3)]]
    assert life.partition.cache.start_offset == 10


def test_a_last_delivery_does_not_come_behind_others() -> None:
    life = Life()
    life.fetch()
    life.acknowledge(5, 5, RELEASE).result()
    assert life.fetch(limit=1) == [(5, 5, 2)]
    life.wait(1000)
    assert [life.fetch() for _ in range(3)] == [[(0, 4, 2)], [(5, 5, 3)], [(6, 9, 2), (10, 19, 1)]]


def test_a_write_that_fails_is_undone_unless_the_lock_has_run_out() -> None:
    life = Life()
    life.fetch()
    life.holds = True
    promise = life.acknowledge(0, 9, ACCEPT)
    assert not promise.is_done
    with pytest.raises(ApiError, match="not in the acquired state"):
        life.acknowledge(0, 9, ACCEPT).result()
    life.held.pop().fail(ApiError("FENCED_STATE_EPOCH", "old"))
    with pytest.raises(ApiError) as caught:
        promise.result()
    assert (caught.value.name, life.offsets) == ("NOT_LEADER_OR_FOLLOWER", (0, 9, 0))
    life.acknowledge(0, 9, ACCEPT)
    life.wait(1000)
    life.held.pop().fail(ApiError("NOT_COORDINATOR", "moved"))
    assert life.partition.next_fetch_offset == 0


def test_a_member_leaves() -> None:
    life = Life()
    life.fetch()
    life.fetch("other")
    life.partition.release_acquired_records("m").result()
    assert life.partition.next_fetch_offset == 0
    assert life.fetch("third", 3, is_record_limit=True) == [(0, 2, 2)]


def test_gaps_that_the_persister_does_not_know_are_read() -> None:
    life = Life(PersistedState(2, 0, [StateBatch(10, 19, 1, 2)]))
    assert (life.offsets, life.partition.next_fetch_offset) == ((0, 19, 10), 0)
    assert life.fetch() == [(0, 9, 1)]
    life.acknowledge(0, 9, ACCEPT).result()
    assert (life.offsets, life.partition.next_fetch_offset) == ((10, 19, 10), 20)
    assert life.fetch() == [(20, 29, 1)]  # from here on, gaps are gaps of the log
    life.acknowledge(20, 29, ACCEPT).result()
    assert life.offsets == (30, 30, 0)


def test_a_group_without_an_offset_begins_where_the_log_says() -> None:
    assert Life(PersistedState(0, -1)).offsets == (7, 7, 0)


def test_the_log_begins_later() -> None:
    life = Life()
    life.fetch()
    life.partition.on_log_start_offset(15)
    assert life.offsets == (15, 15, 0)
    life.wait(1000)
    assert life.writes[-1].batches == [StateBatch(0, 9, 1, 4)]


LOWEST, HIGHEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("is_record_limit", [False, True])
def test_a_state_may_name_more_offsets_than_the_log_has(is_record_limit: bool) -> None:
    """A forged state of all offsets costs no more than the records that exist."""
    life = Life(PersistedState(0, LOWEST, [StateBatch(LOWEST, HIGHEST, 0, 0)]))
    assert life.partition.next_fetch_offset == LOWEST
    life.partition.on_log_start_offset(0)
    assert life.offsets == (0, HIGHEST, 0)
    assert life.fetch("m", 20, is_record_limit=is_record_limit) == [(0, 19, 1)]
    life.acknowledge(0, 9, ACCEPT).result()
    life.acknowledge(10, 14, RELEASE).result()
    assert (life.offsets, life.partition.next_fetch_offset) == ((10, HIGHEST, 0), 10)
    life.wait(1000)  # the lock of the rest expires
    assert life.fetch("other", 5, is_record_limit=True) == [(10, 14, 2)]


@pytest.mark.parametrize("delivery_state", [RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED])
def test_a_wide_state_of_any_kind(delivery_state: RecordState) -> None:
    """The offsets and counts that are written fit into Java's types, as Kafka's own arithmetic does."""
    life = Life(PersistedState(0, LOWEST, [StateBatch(LOWEST, HIGHEST, 2, delivery_state.value)]))
    life.partition.on_log_start_offset(5)
    assert life.offsets[0] == 5
    assert life.fetch()[0][0] == 5
    life.partition.release_acquired_records("m").result()
    life.partition.on_log_start_offset(13)
    assert life.fetch("m", 3, is_record_limit=True)
    life.wait(1000)
    assert life.writes
    for write in life.writes:
        assert write.start_offset in (5, 13)
        assert -(2**31) <= write.delivery_complete_count < 2**31
        assert all(5 <= batch.first_offset <= batch.last_offset < 30 for batch in write.batches)


def test_a_wide_state_that_nobody_has_acquired() -> None:
    life = Life(PersistedState(0, LOWEST, [StateBatch(LOWEST, HIGHEST, 1, RecordState.ACQUIRED.value)]))
    life.partition.on_log_start_offset(0)
    life.partition.release_acquired_records("m").result()
    assert life.writes[-1].batches == [StateBatch(LOWEST, -1, 1, 4), StateBatch(0, HIGHEST, 1, 0)]
    assert life.fetch() == [(0, 19, 2)]


def test_a_wide_batch_of_a_compacted_log() -> None:
    last = 2**31 - 1
    batches = [Batch(empty_batch(base_offset=0, last_offset=last))]
    life = Life()
    assert life.partition.acquire(AcquireRequest("m", False, 100, 10, 0, batches)).ranges == [AcquiredRange(0, last, 1)]
    life.acknowledge(0, 4, RELEASE).result()
    assert life.partition.next_fetch_offset == 0
    life.wait(1000)
    assert life.writes[-1].batches == [StateBatch(5, last, 1, 0)]
    limited = Life()
    assert limited.partition.acquire(AcquireRequest("m", True, 100, 10, 0, batches)).ranges == [AcquiredRange(0, 9, 1)]
    limited.acknowledge(0, 9, ACCEPT).result()
    assert (limited.offsets, limited.partition.next_fetch_offset) == ((10, last, 0), 10)


def test_one_fetch_at_a_time_and_none_when_fenced() -> None:
    partition = Life().partition
    assert partition.maybe_acquire_fetch_lock(1)
    assert not partition.maybe_acquire_fetch_lock(2)
    partition.release_fetch_lock(1)
    partition.update_fetch_position(3, "there")
    assert (partition.fetch_position(3), partition.fetch_position(4)) == ("there", None)
    partition.fence()
    assert not partition.maybe_acquire_fetch_lock(2)
    with pytest.raises(ApiError, match="is fenced g-AAAAAAAAAAAAAAAAAAAAAA:orders-0"):
        partition.maybe_initialize().result()


def test_ranges() -> None:
    batches = [Batch(empty_batch(base_offset=first, last_offset=first + 4)) for first in (0, 5, 10)]
    whole = AcquiredRange(2, 13, 1)
    assert [tuple(each) for each in without([whole], batches[1:2])] == [(2, 4, 1), (10, 13, 1)]
    assert without([whole], batches) == []
    assert slice_bounds(batches, [AcquiredRange(6, 7, 1)]) == (1, 2)
    assert joined([AcquiredRange(1, 1, 2), AcquiredRange(2, 2, 2), AcquiredRange(3, 3, 1)]) == [(1, 2, 2), (3, 3, 1)]
    assert [throttle_limit(count) for count in (2, 3, 5, 6)] == [2, 2, 3, 3]


def test_states_and_maps() -> None:
    assert RecordState.AVAILABLE.may_become(RecordState.ACQUIRED)
    assert not RecordState.AVAILABLE.may_become(RecordState.ARCHIVED)
    assert not RecordState.ACKNOWLEDGED.may_become(RecordState.AVAILABLE)
    values: OffsetMap[str] = OffsetMap()
    for offset in (5, 1, 9):
        values[offset] = str(offset)
    assert (values.floor(0), values.floor(8), values.lower(5), values.higher(5), values.higher(9)) == (None, (5, "5"), 1, 9, None)
    values.remove_up_to(5)
    assert (list(values), values.first_offset, values.last, len(values)) == (["9"], 9, "9", 1)
