"""CoordinatorRuntime compared with Kafka's: random writes, transactions, commits, failures and timeouts give the same batches, replays and
answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.errors import ApiError, KopsError
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.records.log_offsets import TopicPartition
from kops.timeline import Timeline
from tests.support.coordinators.manual_runtime import ManualRuntime
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_runtime import PARTITION, TOPIC, JavaRuntime

KEY = TopicPartition(TOPIC, PARTITION)
STEPS = 40
ERRORS = ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR")


class Shard:
    """A shard that records all calls."""

    def __init__(self, key: TopicPartition, timeline: Timeline, timer: CoordinatorTimer, executor: CoordinatorExecutor) -> None:
        self.told: list[Any] = []

    def on_loaded(self, image: object) -> None:
        self.told.append("onLoaded")

    def on_metadata_update(self, delta: object, image: object) -> None:
        self.told.append("onMetadataUpdate")

    def on_unloaded(self) -> None:
        self.told.append("onUnloaded")

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        self.told.append((offset, producer_id))

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.told.append((producer_id, is_commit))


class Both:
    """The two runtimes, which get the same calls."""

    def __init__(self, oracle: Oracle, draw: random.Random, *, linger_ms: int | None, max_batch_bytes: int) -> None:
        self.draw = draw
        self.shards: list[Shard] = []

        def make(*args: Any) -> Shard:
            self.shards.append(Shard(*args))
            return self.shards[-1]

        self.kops = ManualRuntime(make, append_linger_ms=linger_ms, max_batch_bytes=max_batch_bytes)
        clock = ManualClock(oracle, self.kops.timers.now_ms)
        self.kafka = JavaRuntime(JavaCoordinators(oracle), clock, max_batch_bytes=max_batch_bytes, linger_ms=linger_ms, timeout_ms=5000)
        self.pending: list[tuple[Promise[Any], Any]] = []
        self.epoch = 0

    def load(self) -> None:
        """Load the partition. The load ends at once, and the log continues at its end."""
        self.epoch += 1
        self.kops.runtime.schedule_load_operation(KEY, self.epoch)
        future = self.kafka.load(self.epoch)
        self.end_load(future)

    def end_load(self, future: Any) -> None:
        self.kops.loader.finish()
        future.complete(None)
        self.kafka.turn()

    def turn(self, requests: list[Callable[[], tuple[Promise[Any], Any]]]) -> None:
        """Run requests in one turn of the loop."""
        self.pending += [request() for request in requests]
        self.kops.timers.turn()
        self.feed()
        self.kafka.turn()

    def feed(self) -> None:
        """Give Kafka's appends the outcomes of kops's appends."""
        for outcome in self.kops.log.outcomes:
            self.kafka.outcome(outcome)
        self.kops.log.outcomes.clear()

    def write(self) -> tuple[Promise[Any], Any]:
        draw = self.draw
        records = [
            CoordinatorRecord(
                OffsetCommitKey(f"g{draw.randrange(5)}", "t", number), OffsetCommitValue(metadata="x" * draw.randrange(60)), 3
            )
            for number in range(draw.choice((0, 1, 1, 2, 5, 12)))
        ]
        is_atomic, response = draw.random() < 0.6, f"wrote {len(records)}"
        producer = (draw.randrange(4), draw.randrange(2)) if draw.random() < 0.2 else None

        def operation(shard: Shard) -> CoordinatorResult[str]:
            return CoordinatorResult(records, response, is_atomic=is_atomic)

        if producer is None:
            ours = self.kops.runtime.schedule_write_operation("write", KEY, operation)
        else:
            ours = self.kops.runtime.schedule_transactional_write_operation("write", KEY, "id", *producer, operation, 5)
            self.kops.log.verifications.pop()[1].complete(None)
        return ours, self.kafka.write(records, response, is_atomic=is_atomic, producer=producer)

    def complete(self) -> tuple[Promise[Any], Any]:
        producer, is_commit = (self.draw.randrange(4), self.draw.randrange(2)), self.draw.random() < 0.5
        ours = self.kops.runtime.schedule_transaction_completion("end", KEY, *producer, 9, is_commit, 2)
        return ours, self.kafka.complete(producer, is_commit=is_commit)

    def compare(self) -> None:
        assert self.kops.log.attempts == self.kafka.batches
        told = [event for shard in self.shards for event in shard.told]
        for shard in self.shards:
            shard.told.clear()
        assert told == self.kafka.replayed()
        answers = [(_answer(ours), self.kafka.answer(theirs)) for ours, theirs in self.pending]
        assert [ours for ours, _ in answers] == [theirs for _, theirs in answers]
        self.pending = [both for both, answer in zip(self.pending, answers, strict=True) if answer[0] is None]


def _answer(promise: Promise[Any]) -> Any:
    if not promise.is_done:
        return None
    try:
        return ("value", promise.result())
    except ApiError as error:
        return ("error", error.name)
    except KopsError:
        return ("error", "UNKNOWN_SERVER_ERROR")


SETTINGS = [(None, 400), (10, 1_048_588), (None, 1_048_588), (0, 400)]


@pytest.mark.parametrize(("linger_ms", "max_batch_bytes"), SETTINGS[:2])
def test_random_steps(oracle: Oracle, linger_ms: int | None, max_batch_bytes: int) -> None:
    _live(oracle, 0, linger_ms, max_batch_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(("linger_ms", "max_batch_bytes"), SETTINGS)
def test_many_random_steps(oracle: Oracle, linger_ms: int | None, max_batch_bytes: int, seed_count: int | None) -> None:
    for seed in range(1, 1 + (seed_count or 3)):
        _live(oracle, seed, linger_ms, max_batch_bytes)


def _live(oracle: Oracle, seed: int, linger_ms: int | None, max_batch_bytes: int) -> None:
    draw = random.Random(f"{seed}-{linger_ms}-{max_batch_bytes}")
    both = Both(oracle, draw, linger_ms=linger_ms, max_batch_bytes=max_batch_bytes)
    both.turn([both.write])
    both.load()
    committed = 0
    for _ in range(STEPS):
        both.compare()
        choice = draw.random()
        if choice < 0.6:
            if draw.random() < 0.15:
                both.kops.log.failures.append(ApiError(draw.choice(ERRORS)))
            both.turn([draw.choice((both.write, both.write, both.write, both.complete)) for _ in range(draw.randrange(1, 4))])
        elif choice < 0.8 and both.kops.log.end > committed:
            committed = draw.randrange(committed, both.kops.log.end) + 1
            both.kops.log.commit(committed)
            both.kops.timers.turn()
            both.feed()
            both.kafka.commit(committed)
        elif choice < 0.97:
            ms = draw.choice((1, 5, 10, 2000, 5000))
            both.kops.timers.advance(ms)
            both.feed()
            both.kafka.advance(ms)
        else:
            both.kops.runtime.schedule_unload_operation(KEY, None)
            both.kafka.runtime.scheduleUnloadOperation(both.kafka.key, oracle.jvm.java.util.OptionalInt.empty())
            both.kafka.turn()
            both.compare()
            both.kops.log.end = committed = 0
            both.load()
    both.compare()
