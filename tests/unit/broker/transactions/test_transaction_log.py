"""A partition of the transaction log is loaded to its end, and served when all of it is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kops.broker.transactions.transaction_log import TransactionLogLoader
from kops.coordinators.transactions.transaction_log import TRANSACTION_STATE_TOPIC, key_bytes, value_bytes
from kops.errors import KopsError
from kops.records import Batch, BatchBuilder
from kops.records.log_offsets import TopicPartition
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from tests.support.parts.groups.transacting import World

KEY = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


class Loop:
    """A loop whose calls wait until the test runs them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call_soon(self, run: Callable[[], object]) -> None:
        self.calls.append(run)

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()


class Partition:
    """A leader with one batch in its log, and listeners of the high watermark."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.log_start_offset, self.log_end_offset, self.high_watermark = 0, batch.next_offset, 0
        self.leader_log: Partition | None = self
        self.listeners: list[Callable[[int], object]] = []
        self.add_high_watermark_listener = self.listeners.append
        self.remove_high_watermark_listener = self.listeners.remove

    def read(self, offset: int, size: int, isolation: object, *, min_one_batch: bool) -> Any:
        return SimpleNamespace(records=SimpleNamespace(batches=lambda: [self.batch]))

    def move_to(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        for listener in list(self.listeners):
            listener(high_watermark)


def loading() -> tuple[World, Loop, Partition, TransactionLogLoader]:
    """Return a coordinator, and a log in which two records decide the commit of an id's transaction."""
    world = World()
    world.elect().init()
    world.add((1000, 0), ("a", 0))
    known = world.manager.get("t")
    assert known is not None
    builder = BatchBuilder()
    for state in ("ONGOING", "PREPARE_COMMIT"):
        target = known.metadata._target(getattr(type(known.metadata.state), state))
        builder.append(world.now_ms, key_bytes("t"), value_bytes(target, 2))
    world.coordinator.resign(0, 3)
    loop, partition = Loop(), Partition(Batch(builder.build()))
    replicas: Any = SimpleNamespace(logs=SimpleNamespace(get_log=lambda key: partition), hosted=SimpleNamespace(online={KEY: partition}))
    return world, loop, partition, TransactionLogLoader(cast("Any", loop), replicas, world.manager)


def test_markers_wait_until_the_decision_is_committed() -> None:
    world, loop, partition, loader = loading()
    load = world.coordinator.begin_load(0, 4)
    loader.start(load, lambda: world.coordinator.end_load(load))
    loop.run()
    partition.move_to(1)
    loop.run()
    assert world.init() == (-1, -1, "COORDINATOR_LOAD_IN_PROGRESS")
    assert world.markers.pending_count == 0
    partition.move_to(2)
    loop.run()
    assert world.state() == "PrepareCommit"
    assert world.markers.pending_count == 1
    assert partition.listeners == []


def test_a_committed_log_is_served_at_once() -> None:
    world, loop, partition, loader = loading()
    partition.high_watermark = 2
    load = world.coordinator.begin_load(0, 4)
    loader.start(load, lambda: world.coordinator.end_load(load))
    loop.run()
    assert world.markers.pending_count == 1


def test_another_leader_ends_the_wait() -> None:
    world, loop, partition, loader = loading()
    load = world.coordinator.begin_load(0, 4)
    loader.start(load, lambda: world.coordinator.end_load(load))
    loop.run()
    world.coordinator.resign(0, 5)
    partition.move_to(1)
    partition.move_to(2)
    loop.run()
    assert partition.listeners == []
    assert world.init() == (-1, -1, "NOT_COORDINATOR")


@pytest.mark.parametrize(
    "error", [LoadError("Input/output error", exception="java.io.IOException"), KafkaStorageError("The log is offline.")]
)
def test_a_log_that_cannot_be_read_does_not_end_the_loop(error: KopsError, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, everything that was read before counts."""
    world, loop, partition, loader = loading()

    def batches() -> Iterator[Batch]:
        yield partition.batch
        raise error

    found = SimpleNamespace(records=SimpleNamespace(batches=batches))
    partition.read = lambda *_, **__: found  # type: ignore[method-assign]
    load = world.coordinator.begin_load(0, 4)
    loader.start(load, lambda: world.coordinator.end_load(load))
    loop.run()
    assert "Error loading transactions from transaction log __transaction_state-0" in caplog.text
    assert world.state() == "PrepareCommit"
