"""Parked operations: by key, by time, and many of them. Also what produce, fetch and DeleteRecords wait for."""

from __future__ import annotations

import tracemalloc
import weakref

import pytest

from kops.errors import ApiError
from kops.records.log_offsets import Isolation, LogOffsetMetadata, TopicPartition
from kops.replication.leading.fetch import FetchInfo, FetchParams
from kops.replication.leading.partition import Partition
from kops.replication.leading.replica import ReplicaState
from kops.replication.waiting.delayed import (
    AwaitedDeletion,
    AwaitedFetch,
    DelayedDeleteRecords,
    DelayedFetch,
    DelayedProduce,
    PartitionResponse,
    Purgatories,
)
from kops.replication.waiting.purgatory import DelayedOperation, DelayedOperationPurgatory, OperationTimer
from tests.support.parts.replicating import TP, MemoryLog, Registration, World, values


class Waiting(DelayedOperation):
    """An operation that completes when `is_enough` is set."""

    __slots__ = ("events", "is_enough")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.is_enough = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.is_enough and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


class Clock:
    now_ms = 1_000


def test_by_key_and_by_time() -> None:
    clock = Clock()
    timer = OperationTimer(lambda: clock.now_ms)
    purgatory = DelayedOperationPurgatory[Waiting](timer)
    at_once, by_key, by_time = Waiting(10), Waiting(10), Waiting(20)
    at_once.is_enough = True
    assert purgatory.try_complete_else_watch(at_once, ["a"])
    assert not purgatory.try_complete_else_watch(by_key, ["a", "b"])
    assert not purgatory.try_complete_else_watch(by_time, ["b"])
    assert (purgatory.watched_count, purgatory.delayed_count, len(timer), timer.next_due_ms) == (3, 2, 2, 1_010)
    assert purgatory.check_and_complete("a") == 0
    by_key.is_enough = True
    assert purgatory.check_and_complete("c") == 0
    assert purgatory.check_and_complete("b") == 1
    assert (purgatory.watched_count, purgatory.delayed_count, timer.next_due_ms) == (2, 1, 1_020)
    assert purgatory.check_and_complete("a") == 0
    clock.now_ms = 1_019
    assert timer.run_due() == 0
    clock.now_ms = 1_020
    assert timer.run_due() == 1
    assert (by_key.events, by_time.events) == (["complete"], ["complete", "expired"])
    assert (purgatory.delayed_count, len(timer), timer.next_due_ms) == (0, 0, None)
    assert not by_time.force_complete()


def test_a_completion_may_come_back() -> None:
    """The answer to one operation may complete others of the same key, and park new ones."""
    purgatory = DelayedOperationPurgatory[Waiting](OperationTimer(lambda: 0))
    second, parked = Waiting(5), Waiting(5)

    class First(Waiting):
        __slots__ = ()

        def on_complete(self) -> None:
            second.is_enough = True
            purgatory.check_and_complete("a")
            purgatory.try_complete_else_watch(parked, ["a"])

    first = First(5)
    purgatory.try_complete_else_watch(second, ["a"])
    purgatory.try_complete_else_watch(first, ["a"])
    first.is_enough = True
    purgatory.check_and_complete("a")
    assert (second.events, parked.is_completed, purgatory.delayed_count, purgatory.watched_count) == (["complete"], False, 1, 1)


def test_a_hundred_thousand_cost_little() -> None:
    """Each takes a few hundred bytes, and the memory is freed although none of their keys is looked at again."""
    timer = OperationTimer(lambda: 0)
    purgatory = DelayedOperationPurgatory[Waiting](timer)
    operations = [Waiting(30_000) for _ in range(100_000)]
    for number, operation in enumerate(operations[10_000:]):
        purgatory.try_complete_else_watch(operation, [number % 50_000, "all"])
    tracemalloc.start()
    for number, operation in enumerate(operations[:10_000]):
        purgatory.try_complete_else_watch(operation, [number, "all"])
    assert tracemalloc.get_traced_memory()[0] < 400 * 10_000
    tracemalloc.stop()
    assert len(timer) == len(operations)
    for operation in operations:
        operation.force_complete()
    assert (len(timer), purgatory.delayed_count, timer.next_due_ms) == (0, 0, None)
    for number in range(2_000):
        purgatory.check_and_complete(number)
    while purgatory.watched_count > 100_000:
        late = Waiting(1)
        purgatory.try_complete_else_watch(late, ["another"] * 1_000)
        late.force_complete()
    assert purgatory.check_and_complete("all") == 0


def parked_produce(partition: Partition, required_offset: int) -> tuple[DelayedProduce, list[str]]:
    answers: list[str] = []

    def get(key: TopicPartition) -> Partition:
        if key != TP:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION")
        return partition

    statuses = {
        TP: PartitionResponse("NONE", 0, -1, 0, required_offset),
        TopicPartition("failed", 0): PartitionResponse("MESSAGE_TOO_LARGE"),
    }
    return DelayedProduce(100, statuses, get, lambda done: answers.extend(status.error for status in done.values())), answers


def leading() -> tuple[World, Partition]:
    world = World()
    partition = world.partition()
    partition.make_leader(Registration(1, 5, 7, isr=[1, 2], replicas=[1, 2]), MemoryLog)
    partition.append_records_to_leader(values(1, 2), -1)
    return world, partition


def follow(world: World, partition: Partition, offset: int) -> None:
    params = FetchParams(2, 20, 0, 1, 1000, Isolation.LOG_END)
    partition.fetch_records(params, FetchInfo(offset, 0, 1000, 5), world.now_ms, 1000, min_one_batch=True, update_fetch_state=True)


def test_a_produce_waits_for_replication() -> None:
    world, partition = leading()
    produce, answers = parked_produce(partition, 2)
    assert not produce.try_complete()
    follow(world, partition, 1)
    assert not produce.try_complete()
    follow(world, partition, 2)
    assert produce.try_complete()
    assert answers == ["NONE", "MESSAGE_TOO_LARGE"]


def test_a_produce_that_is_not_replicated_in_time() -> None:
    _, partition = leading()
    produce, answers = parked_produce(partition, 2)
    produce.force_complete()
    produce.on_expiration()
    assert (answers, produce.expired) == (["REQUEST_TIMED_OUT", "MESSAGE_TOO_LARGE"], 1)


def test_a_produce_whose_leader_goes() -> None:
    _, partition = leading()
    produce, answers = parked_produce(partition, 2)
    partition.make_follower(Registration(2, 6, 8), MemoryLog)
    assert produce.try_complete()
    assert answers[0] == "NOT_LEADER_OR_FOLLOWER"


def fetch_of(partition: Partition, offset: int, *, min_bytes: int = 1, fetched_epoch: int | None = None) -> DelayedFetch:
    params = FetchParams(-1, -1, 100, min_bytes, 1000, Isolation.HIGH_WATERMARK)
    start = LogOffsetMetadata(offset, 0, offset * 20)
    status = AwaitedFetch(start, FetchInfo(offset, -1, 1000, 5, fetched_epoch))
    return DelayedFetch(params, {TP: status}, lambda key: partition, lambda partition, replica_id: False, lambda: None)


def test_a_fetch_waits_for_enough_bytes() -> None:
    world, partition = leading()
    assert not fetch_of(partition, 0).try_complete()
    follow(world, partition, 2)
    assert fetch_of(partition, 0, min_bytes=40).try_complete()
    assert not fetch_of(partition, 0, min_bytes=41).try_complete()
    # Beyond the end: the log was cut.
    assert fetch_of(partition, 3, min_bytes=41).try_complete()


def test_a_fetch_does_not_wait_where_it_is_of_no_use() -> None:
    world, partition = leading()
    follow(world, partition, 2)
    assert not fetch_of(partition, 2).try_complete()
    assert fetch_of(partition, 2, fetched_epoch=4).try_complete()
    assert fetch_of(partition, 2, fetched_epoch=6).try_complete()
    assert not fetch_of(partition, 2, fetched_epoch=5).try_complete()
    rolled = fetch_of(partition, 0, min_bytes=1000)
    rolled.statuses = {TP: AwaitedFetch(LogOffsetMetadata(0, -5, 0), FetchInfo(0, -1, 1000, 5))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogOffsetMetadata, "on_older_segment", lambda self, other: True)
        assert rolled.try_complete()
    partition.make_follower(Registration(2, 6, 8), MemoryLog)
    assert fetch_of(partition, 2).try_complete()


def test_a_throttled_follower_waits() -> None:
    _, partition = leading()
    params = FetchParams(2, 20, 100, 1, 1000, Isolation.LOG_END)
    status = AwaitedFetch(LogOffsetMetadata(0, 0, 0), FetchInfo(0, 0, 1000, 5))
    parked = DelayedFetch(params, {TP: status}, lambda key: partition, lambda partition, replica_id: replica_id == 2, lambda: None)
    assert not parked.try_complete()


def test_deletions_wait_for_all_live_replicas() -> None:
    world, partition = leading()
    follow(world, partition, 2)
    timer = OperationTimer(lambda: world.now_ms)
    deletions = DelayedOperationPurgatory[DelayedDeleteRecords](timer)
    purgatories = Purgatories(DelayedOperationPurgatory(timer), DelayedOperationPurgatory(timer), deletions)
    deleted = partition.delete_records(1)
    answers: list[tuple[str, int]] = []
    statuses = {TP: AwaitedDeletion(deleted.requested_offset, deleted.low_watermark, "NONE")}
    operation = DelayedDeleteRecords(
        100, statuses, lambda key: partition, lambda done: answers.extend((each.error, each.low_watermark) for each in done.values())
    )
    assert not deletions.try_complete_else_watch(operation, [TP])
    assert purgatories.delayed_delete_count == 1
    replica = partition.get_replica(2)
    assert replica is not None
    replica.state = ReplicaState(1, replica.end, last_fetch_time_ms=replica.state.last_fetch_time_ms)
    purgatories.check_and_complete_all(TP)
    assert (answers, purgatories.delayed_delete_count) == ([("NONE", 1)], 0)
    gone = DelayedDeleteRecords(100, {TP: AwaitedDeletion(1, 0, "NONE")}, lambda key: partition, lambda done: None)
    partition.make_follower(Registration(2, 6, 8), MemoryLog)
    assert gone.try_complete()
    assert gone.statuses[TP].error == "NOT_LEADER_OR_FOLLOWER"
    late = DelayedDeleteRecords(100, {TP: AwaitedDeletion(1, 0, "NONE")}, lambda key: partition, lambda done: None)
    late.force_complete()
    late.on_expiration()
    assert (late.expired, late.statuses[TP].error) == (1, "REQUEST_TIMED_OUT")


def test_a_timer_does_not_keep_the_requests_of_completed_operations() -> None:
    world, partition = leading()
    timer = OperationTimer(lambda: world.now_ms)
    produces = DelayedOperationPurgatory[DelayedProduce](timer)
    fetches = DelayedOperationPurgatory[DelayedFetch](timer)
    answers: list[str] = []

    class Request:
        def answer(self, statuses: dict[TopicPartition, PartitionResponse]) -> None:
            answers.extend(each.error for each in statuses.values())

    request = Request()
    alive = weakref.ref(request)
    produce = DelayedProduce(1000, {TP: PartitionResponse("NONE", required_offset=100)}, lambda key: partition, request.answer)
    produces.watch(produce, [TP])
    status = AwaitedFetch(LogOffsetMetadata(0, 0, 0), FetchInfo(0, 0, 1000, 5))
    params = FetchParams(2, 20, 100, 1, 1000, Isolation.LOG_END)
    fetch = DelayedFetch(params, {TP: status}, lambda key: partition, lambda partition, replica_id: False, lambda: None)
    fetches.watch(fetch, [TP])
    del request
    assert alive() is not None
    produce.force_complete()
    fetch.force_complete()
    assert answers == ["REQUEST_TIMED_OUT"]
    produce.on_expiration()
    assert produce.expired == 1
    assert (alive(), fetch.statuses) == (None, {})
