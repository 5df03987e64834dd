"""The runtime of coordinators over a simulated log and clock: states, batches, commits, failures, transactions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kops.coordinators.runtime.context import CoordinatorState
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.errors import ApiError, KopsError
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.records.log_offsets import TopicPartition
from kops.timeline import Timeline, TimelineDict
from tests.support.coordinators.manual_runtime import EmptyImage, ManualRuntime

KEY = TopicPartition("__consumer_offsets", 3)


class Shard:
    """A shard with texts by group id. A value of `bad` cannot be replayed."""

    def __init__(self, key: TopicPartition, timeline: Timeline, timer: CoordinatorTimer, executor: CoordinatorExecutor) -> None:
        self.texts: TimelineDict[str, str] = TimelineDict(timeline)
        self.timer = timer
        self.executor = executor
        self.events: list[object] = []

    def on_loaded(self, image: CoordinatorImage) -> None:
        self.events.append("loaded")

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        self.events.append(image)

    def on_unloaded(self) -> None:
        self.events.append("unloaded")

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        if record.value.metadata == "bad":
            raise ZeroDivisionError("a bug")
        self.texts[record.key.group] = record.value.metadata
        self.events.append((offset, producer_id, record.key.group))

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.texts["marker"] = f"{producer_id} {is_commit}"

    def committed(self) -> dict[str, str]:
        return dict(self.texts.committed_items())


def record(group: str, text: str = "x") -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group, "t", 0), OffsetCommitValue(metadata=text), 3)


def writing(*records: CoordinatorRecord, **settings: Any) -> Callable[[Shard], CoordinatorResult[str]]:
    return lambda shard: CoordinatorResult(records, f"wrote {len(records)}", **settings)


def error_of(promise: Promise[Any]) -> str:
    assert promise.is_done
    try:
        promise.result()
    except KopsError as error:
        return error.name if isinstance(error, ApiError) else type(error).__name__
    return "NONE"


@pytest.fixture
def made() -> ManualRuntime:
    manual = ManualRuntime(Shard)
    manual.activate(KEY)
    return manual


def write(manual: ManualRuntime, *records: CoordinatorRecord, **settings: Any) -> Promise[str]:
    return manual.runtime.schedule_write_operation("write", KEY, writing(*records, **settings))


def present(manual: ManualRuntime) -> dict[str, str]:
    return manual.runtime.schedule_read_operation("read", KEY, lambda shard: dict(shard.texts)).result()


def committed(manual: ManualRuntime) -> dict[str, str]:
    return manual.runtime.schedule_read_operation("read", KEY, Shard.committed).result()


def test_states_of_a_shard() -> None:
    manual = ManualRuntime(Shard)
    runtime = manual.runtime
    assert error_of(write(manual, record("g"))) == "NOT_COORDINATOR"
    runtime.schedule_load_operation(KEY, 5)
    assert runtime.state_of(KEY) is CoordinatorState.LOADING
    assert error_of(write(manual, record("g"))) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert error_of(runtime.schedule_read_operation("read", KEY, Shard.committed)) == "COORDINATOR_LOAD_IN_PROGRESS"
    runtime.schedule_load_operation(KEY, 6)
    assert len(manual.loader.loads) == 1, "it is being loaded already"
    manual.loader.finish(7)
    assert runtime.active_coordinators == [KEY]
    runtime.schedule_load_operation(KEY, 6)
    runtime.schedule_load_operation(KEY, 7)
    assert not manual.loader.loads
    shard = runtime.schedule_read_operation("read", KEY, lambda shard: shard).result()
    runtime.schedule_unload_operation(KEY, 7)
    assert runtime.active_coordinators == [KEY], "the epoch is not newer"
    runtime.schedule_unload_operation(KEY, 8)
    assert runtime.state_of(KEY) is None
    assert shard.events == ["loaded", "unloaded"]
    assert not manual.log.listeners
    runtime.schedule_unload_operation(KEY, None)


def test_a_failed_load_can_be_tried_again() -> None:
    manual = ManualRuntime(Shard)
    manual.runtime.schedule_load_operation(KEY, 1)
    manual.loader.fail(ApiError("NOT_LEADER_OR_FOLLOWER"))
    assert manual.runtime.state_of(KEY) is CoordinatorState.FAILED
    assert error_of(write(manual, record("g"))) == "NOT_COORDINATOR"
    manual.runtime.schedule_load_operation(KEY, 1)
    assert not manual.loader.loads, "only in a new epoch"
    manual.activate(KEY, 2)
    assert manual.runtime.state_of(KEY) is CoordinatorState.ACTIVE


def test_the_end_of_an_old_load_is_ignored() -> None:
    manual = ManualRuntime(Shard)
    manual.runtime.schedule_load_operation(KEY, 1)
    manual.runtime.schedule_unload_operation(KEY, None)
    manual.runtime.schedule_load_operation(KEY, 2)
    manual.loader.finish()
    assert manual.runtime.state_of(KEY) is CoordinatorState.LOADING
    manual.loader.finish()
    assert manual.runtime.state_of(KEY) is CoordinatorState.ACTIVE


def test_a_response_waits_for_the_high_watermark(made: ManualRuntime) -> None:
    first, second = write(made, record("a"), record("b")), write(made, record("c"))
    empty = write(made)
    assert not made.log.batches, "the batch is open until the turn ends"
    made.timers.turn()
    assert made.log.counts == [3]
    assert present(made) == {"a": "x", "b": "x", "c": "x"}
    assert committed(made) == {}
    assert not first.is_done
    late = write(made)
    made.log.commit(2)
    made.timers.turn()
    assert not first.is_done, "its batch is not committed"
    assert committed(made) == {"a": "x", "b": "x"}
    made.log.commit(3)
    assert not first.is_done, "who moves the high watermark is not interrupted"
    made.timers.turn()
    assert (first.result(), second.result(), empty.result(), late.result()) == ("wrote 2", "wrote 1", "wrote 0", "wrote 0")
    assert write(made).result() == "wrote 0", "nothing is pending"
    assert made.timers.planned_count == 0, "no time-out is left"


def test_a_shard_is_settled_while_nothing_waits_in_it(made: ManualRuntime) -> None:
    def is_settled() -> bool:
        return made.runtime.settled_shard(KEY) is not None

    assert is_settled()
    assert made.runtime.settled_shard(TopicPartition("__consumer_offsets", KEY.partition + 1)) is None
    write(made, record("a"))
    assert not is_settled(), "a batch is open"
    made.timers.turn()
    assert not is_settled(), "it is not committed"
    made.log.commit(1)
    assert not is_settled(), "the high watermark is not applied"
    made.timers.turn()
    assert is_settled()
    inside: list[bool] = []
    made.runtime.schedule_read_operation("read", KEY, lambda shard: inside.append(is_settled()))
    assert inside == [False], "an event runs"
    made.runtime.schedule_unload_operation(KEY, 2)
    assert not is_settled()


def test_a_closed_runtime_has_no_settled_shard(made: ManualRuntime) -> None:
    made.runtime.close()
    assert made.runtime.settled_shard(KEY) is None


def test_a_write_that_waits_for_its_commit_keeps_no_records(made: ManualRuntime) -> None:
    written = record("g")
    before = sys.getrefcount(written)
    promise = made.runtime.schedule_write_operation("write", KEY, lambda shard: CoordinatorResult([written], "wrote 1"))
    made.timers.turn()
    assert not promise.is_done
    assert len(made.log.batches) == 1
    assert sys.getrefcount(written) == before
    made.log.commit(1)
    made.timers.turn()
    assert promise.result() == "wrote 1"


def test_a_failed_append_takes_the_state_back(made: ManualRuntime) -> None:
    kept = write(made, record("a", "old"))
    made.timers.turn()
    seen: list[KopsError | None] = []
    append: Promise[None] = Promise()
    append.when_done(lambda value, error: seen.append(error))
    made.log.failures.append(ApiError("NOT_ENOUGH_REPLICAS"))
    lost = [write(made, record("a", "new"), append_promise=append), write(made, record("b"))]
    made.timers.turn()
    assert [error_of(promise) for promise in lost] == ["NOT_ENOUGH_REPLICAS"] * 2
    assert error_of(append) == "NOT_ENOUGH_REPLICAS"
    assert len(seen) == 1
    assert present(made) == {"a": "old"}
    again = write(made, record("b"))
    made.timers.turn()
    made.log.commit(2)
    made.timers.turn()
    assert (kept.result(), again.result()) == ("wrote 1", "wrote 1")
    assert committed(made) == {"a": "old", "b": "x"}


def test_a_record_that_cannot_be_replayed_fails_its_batch(made: ManualRuntime) -> None:
    first = write(made, record("a"))
    assert error_of(write(made, record("b"), record("c", "bad"))) == "UNKNOWN_SERVER_ERROR"
    assert error_of(first) == "UNKNOWN_SERVER_ERROR"
    assert present(made) == {}
    made.timers.turn()
    assert not made.log.batches


def test_an_operation_that_raises(made: ManualRuntime) -> None:
    def refuse(shard: Shard) -> CoordinatorResult[str]:
        raise ApiError("UNKNOWN_MEMBER_ID")

    def fail(shard: Shard) -> CoordinatorResult[str]:
        raise ZeroDivisionError("a bug")

    assert error_of(made.runtime.schedule_write_operation("write", KEY, refuse)) == "UNKNOWN_MEMBER_ID"
    assert error_of(made.runtime.schedule_write_operation("write", KEY, fail)) == "UNKNOWN_SERVER_ERROR"
    assert error_of(made.runtime.schedule_read_operation("read", KEY, fail)) == "UNKNOWN_SERVER_ERROR"
    assert made.timers.planned_count == 0


def test_a_write_times_out(made: ManualRuntime) -> None:
    promise = write(made, record("a"))
    made.timers.advance(4999)
    assert not promise.is_done
    made.timers.advance(1)
    assert error_of(promise) == "REQUEST_TIMED_OUT"
    with pytest.raises(ApiError, match=r"CoordinatorWriteEvent\(name=write\) timed out after 5000ms"):
        promise.result()
    assert present(made) == {"a": "x"}, "it is written all the same"
    made.log.commit(1)
    made.timers.turn()
    assert committed(made) == {"a": "x"}


def test_unloading_fails_what_waits(made: ManualRuntime) -> None:
    appended = write(made, record("a"))
    made.timers.turn()
    open_ = write(made, record("b"))
    made.runtime.schedule_unload_operation(KEY, 2)
    assert error_of(appended) == error_of(open_) == "NOT_COORDINATOR"
    made.timers.turn()
    assert made.log.counts == [1]
    assert made.timers.planned_count == 0


def test_close(made: ManualRuntime) -> None:
    waiting = write(made, record("a"))
    made.runtime.close()
    assert made.loader.is_closed
    assert error_of(waiting) == error_of(write(made, record("b"))) == "NOT_COORDINATOR"
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        made.runtime.schedule_load_operation(KEY, 3)
    made.runtime.close()
    made.timers.advance(10_000)


def test_linger() -> None:
    manual = ManualRuntime(Shard, append_linger_ms=10)
    manual.activate(KEY)
    write(manual, record("a"))
    manual.timers.advance(9)
    write(manual, record("b"))
    assert manual.log.counts == []
    manual.timers.advance(1)
    assert manual.log.counts == [2]
    manual.timers.advance(100)
    assert manual.log.counts == [2]


def test_no_linger() -> None:
    manual = ManualRuntime(Shard, append_linger_ms=0)
    manual.activate(KEY)
    write(manual, record("a"))
    write(manual, record("b"), record("c"))
    assert manual.log.counts == [1, 2]


def test_batches_are_cut_at_the_largest_size() -> None:
    manual = ManualRuntime(Shard, max_batch_bytes=300)
    manual.activate(KEY)
    atomic = write(manual, *(record(f"g{index}") for index in range(20)))
    manual.timers.turn()
    assert error_of(atomic) == "RECORD_LIST_TOO_LARGE"
    assert present(manual) == {}
    loose = write(manual, *(record(f"g{index}") for index in range(20)), is_atomic=False)
    manual.timers.turn()
    assert manual.log.end == 20
    assert len(manual.log.batches) > 2
    manual.log.commit(20)
    manual.timers.turn()
    assert loose.result() == "wrote 20"
    write(manual, record("h0"), record("h1"), record("h2"))
    write(manual, record("i0"), record("i1"), record("i2"))
    manual.timers.turn()
    assert manual.log.counts[-2:] == [3, 3], "what is atomic does not begin in a batch in which it does not fit"


def test_a_part_that_fails_keeps_the_part_that_was_written() -> None:
    manual = ManualRuntime(Shard, max_batch_bytes=300)
    manual.activate(KEY)
    records = [record(f"g{index}") for index in range(19)] + [record("last", "bad")]
    assert error_of(write(manual, *records, is_atomic=False)) == "UNKNOWN_SERVER_ERROR"
    assert len(present(manual)) == manual.log.end > 0


def test_a_log_that_is_elsewhere_is_read_again(made: ManualRuntime) -> None:
    made.log.skew = 1
    promise = write(made, record("a"))
    made.timers.turn()
    assert error_of(promise) == "NOT_COORDINATOR"
    assert made.runtime.state_of(KEY) is CoordinatorState.LOADING
    made.log.skew = 0
    made.loader.finish(2)
    assert present(made) == {}
    write(made, record("b"))
    made.timers.turn()
    assert made.log.end == 3


def test_a_transaction(made: ManualRuntime) -> None:
    runtime = made.runtime
    plain = write(made, record("a"))
    promise = runtime.schedule_transactional_write_operation("txn", KEY, "id", 7, 2, writing(record("b"), is_atomic=False), 5)
    question, verification = made.log.verifications.pop()
    assert question == (KEY, "id", 7, 2, 5)
    assert not made.log.batches
    verification.complete("guard")
    assert made.log.counts == [1, 1], "a batch of its own, at once"
    assert made.log.guards == [None, "guard"]
    batch = made.log.batches[1]
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (True, 7, 2, 0)
    pending = write(made, record("c"))
    ended = runtime.schedule_transaction_completion("end", KEY, 7, 2, 9, True, 2)
    assert made.log.counts == [1, 1, 1, 1]
    assert made.log.versions == [-1, -1, -1, 2]
    assert made.log.batches[-1].is_control
    assert present(made)["marker"] == "7 True"
    assert "marker" not in committed(made)
    made.log.commit(4)
    made.timers.turn()
    assert ended.result() is None
    assert (plain.result(), promise.result(), pending.result()) == ("wrote 1",) * 3
    assert committed(made)["marker"] == "7 True"


def test_a_transaction_that_is_refused(made: ManualRuntime) -> None:
    runtime = made.runtime
    promise = runtime.schedule_transactional_write_operation("txn", KEY, "id", 7, 2, writing(record("b")), 5)
    made.log.verifications.pop()[1].fail(ApiError("INVALID_TXN_STATE"))
    assert error_of(promise) == "INVALID_TXN_STATE"
    made.log.failures.append(ApiError("INVALID_PRODUCER_EPOCH"))
    assert error_of(runtime.schedule_transaction_completion("end", KEY, 7, 2, 9, False, 2)) == "INVALID_PRODUCER_EPOCH"
    assert present(made) == {}
    waiting = runtime.schedule_transaction_completion("end", KEY, 7, 2, 9, False, 2)
    made.timers.advance(5000)
    with pytest.raises(ApiError, match=r"CoordinatorCompleteTransactionEvent\(name=end\) timed out after 5000ms"):
        waiting.result()


def test_timers_write(made: ManualRuntime) -> None:
    timer = made.runtime.schedule_read_operation("read", KEY, lambda shard: shard.timer).result()
    runs: list[str] = []

    def run(name: str) -> Callable[[], CoordinatorResult[None]]:
        def operation() -> CoordinatorResult[None]:
            runs.append(name)
            if name == "refused":
                raise ApiError("UNKNOWN_SERVER_ERROR")
            return CoordinatorResult([record(name)])

        return operation

    timer.schedule("k", 100, run("overridden"))
    timer.schedule("k", 200, run("a"))
    timer.schedule_if_absent("k", 10, run("absent"))
    timer.schedule("cancelled", 10, run("cancelled"))
    timer.cancel("cancelled")
    made.timers.advance(199)
    assert (runs, timer.is_scheduled("k")) == ([], True)
    made.timers.advance(1)
    assert (runs, timer.is_scheduled("k"), present(made)) == (["a"], False, {"a": "x"})
    timer.schedule("once", 10, run("refused"), retry=False)
    timer.schedule("again", 20, run("refused"), retry_backoff_ms=50)
    made.timers.advance(20)
    assert runs == ["a", "refused", "refused"]
    made.timers.advance(50)
    assert runs == ["a", "refused", "refused", "refused"]
    made.runtime.schedule_unload_operation(KEY, None)
    made.timers.advance(1000)
    assert len(runs) == 4


def test_work_aside(made: ManualRuntime) -> None:
    executor = made.runtime.schedule_read_operation("read", KEY, lambda shard: shard.executor).result()
    seen: list[object] = []

    def operation(result: int | None, error: KopsError | None) -> CoordinatorResult[None]:
        seen.append((result, error))
        return CoordinatorResult([record(f"r{result}")])

    assert executor.schedule("k", lambda: 5, operation)
    assert not executor.schedule("k", lambda: 6, operation)
    task, done = made.tasks.pop()
    done(task(), None)
    assert (seen, executor.is_scheduled("k"), present(made)) == ([(5, None)], False, {"r5": "x"})
    executor.schedule("k", lambda: 7, operation)
    executor.cancel("k")
    made.tasks.pop()[1](7, None)
    assert len(seen) == 1


def test_metadata_reaches_active_shards(made: ManualRuntime) -> None:
    made.runtime.schedule_load_operation(TopicPartition(KEY.topic, 4), 1)
    image: Any = EmptyImage()
    made.runtime.on_metadata_update(image, image)
    assert made.runtime.schedule_read_operation("read", KEY, lambda shard: shard.events).result() == ["loaded", image]
    assert [error_of(promise) for promise in made.runtime.schedule_read_all_operation("all", Shard.committed)] == [
        "NONE",
        "COORDINATOR_LOAD_IN_PROGRESS",
    ]
    written = made.runtime.schedule_write_all_operation("all", writing())
    assert [error_of(promise) for promise in written] == ["NONE", "COORDINATOR_LOAD_IN_PROGRESS"]
