"""A coordinator's log is read to its end in pieces, and its state is committed up to the high watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kops.broker.coordinators.loader import COMMIT_INTERVAL_OFFSETS, LogLoader
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.surroundings import LoadSummary
from kops.errors import ApiError, KopsError
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.protocol.registry import GROUP_RECORDS
from kops.records import Batch, BatchBuilder, end_txn_marker
from kops.records.log_offsets import TopicPartition
from kops.storage.failures.load_errors import LoadError

KEY = TopicPartition("__consumer_offsets", 0)


class Clock:
    """A loop whose clock advances a little with every look at it."""

    def __init__(self, step_ms: float) -> None:
        self.step_ms = step_ms
        self.time_ms = 0.0
        self.calls: list[Callable[[], object]] = []

    def monotonic_ms(self) -> float:
        self.time_ms += self.step_ms
        return self.time_ms

    def call_soon(self, run: Callable[[], object]) -> None:
        self.calls.append(run)

    def run(self) -> int:
        """Run everything, and return the number of calls."""
        count = 0
        while self.calls:
            self.calls.pop(0)()
            count += 1
        return count


@dataclass
class Log:
    """A log of whole batches."""

    batches: list[Batch] = field(default_factory=list)
    high_watermark: int = 0
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.log_start_offset

    def add(self, data: bytes) -> None:
        self.batches.append(Batch(data))

    def read(self, offset: int, size: int, isolation: object, *, min_one_batch: bool) -> Any:
        found = next((batch for batch in self.batches if batch.next_offset > offset), None)
        return SimpleNamespace(size=found.size if found else 0, records=SimpleNamespace(batches=lambda: iter([found])))


class Playback:
    """A playback that records its calls."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.settled: list[bool] = []
        self.fails = False

    def settle(self, is_settled: bool) -> None:
        self.settled.append(is_settled)

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        if self.fails:
            raise ZeroDivisionError("a bug")
        assert isinstance(record.key, OffsetCommitKey)
        self.did.append((offset, producer_id, record.key.group, record.value is not None))

    def replay_end_transaction_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.did.append((offset, producer_id, is_commit))

    def update_last_written_offset(self, offset: int) -> None:
        self.did.append(f"written {offset}")

    def update_last_committed_offset(self, offset: int) -> None:
        self.did.append(f"committed {offset}")


def batch(first: int, count: int, **settings: Any) -> bytes:
    builder = BatchBuilder(base_offset=first, **settings)
    for number in range(first, first + count):
        record = CoordinatorRecord(OffsetCommitKey(f"g{number}", "t", 0), OffsetCommitValue(offset=1), 3)
        builder.append(0, record.key_bytes(), record.value_bytes())
    return builder.build()


@dataclass
class World:
    """A loader of one log."""

    log: Log = field(default_factory=Log)
    clock: Clock = field(default_factory=lambda: Clock(0))
    playback: Playback = field(default_factory=Playback)
    is_leader: bool = True

    def __post_init__(self) -> None:
        world = self

        class Hosted:
            @property
            def log(self) -> Log:
                return world.log

            @property
            def leader_log(self) -> Log | None:
                return world.log if world.is_leader else None

        self.hosted: Any = SimpleNamespace(online={KEY: Hosted()})
        clock, hosted = cast("Any", self.clock), cast("Any", self.hosted)
        self.loader = LogLoader(clock, hosted, GROUP_RECORDS, 1000)

    def load(self) -> Promise[LoadSummary]:
        return self.loader.load(KEY, self.playback)


def test_records_and_markers_and_how_far_they_are_committed() -> None:
    world = World()
    world.log.add(batch(0, 2))
    world.log.add(batch(2, 1, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0))
    world.log.add(end_txn_marker(3, 0, commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0))
    builder = BatchBuilder(base_offset=4)
    builder.append(0, CoordinatorRecord(OffsetCommitKey("gone", "t", 0)).key_bytes(), None)
    world.log.add(builder.build())
    world.log.high_watermark = 3
    promise = world.load()
    assert not world.playback.did, "not before its turn"
    world.clock.run()
    assert promise.result()[:2] == (5, sum(one.size for one in world.log.batches))
    assert world.playback.did == [
        (0, -1, "g0", True),
        (1, -1, "g1", True),
        (2, 7, "g2", True),
        "written 3",
        "committed 3",
        (3, 7, True),
        "written 4",
        (4, -1, "gone", False),
        "written 5",
    ]
    assert world.playback.settled == [True, True, False, False]


def test_long_logs_are_committed_on_the_way() -> None:
    world = World()
    for first in range(0, 20_000, 5000):
        world.log.add(batch(first, 5000))
    world.log.high_watermark = 20_000
    world.load()
    world.clock.run()
    told = [did for did in world.playback.did if isinstance(did, str)]
    assert COMMIT_INTERVAL_OFFSETS == 16_384
    assert told == ["written 20000", "committed 20000"]
    world.log.high_watermark = 30_000
    world.playback.did.clear()
    world.load()
    world.clock.run()
    told = [did for did in world.playback.did if isinstance(did, str)]
    assert told == ["written 20000", "committed 20000"], "the interval is over at its last batch"


def test_other_work_comes_in_between() -> None:
    world = World(clock=Clock(3))
    world.log.add(batch(0, 3000))
    promise = world.load()
    assert world.clock.run() > 3
    assert promise.result().record_count == 3000


def test_unknown_types_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    builder = BatchBuilder()
    builder.append(0, b"\x7f\x00what", b"\x00\x00")
    world.log.add(builder.build())
    world.log.add(batch(1, 1))
    assert _ended(world) == "NONE"
    assert [did for did in world.playback.did if isinstance(did, tuple)] == [(1, -1, "g1", True)]
    assert "unknown record type 32512" in caplog.text


def _ended(world: World) -> str:
    promise = world.load()
    world.clock.run()
    try:
        promise.result()
    except ApiError as error:
        return error.name
    except KopsError as error:
        return str(error)
    return "NONE"


def _broken(world: World) -> None:
    builder = BatchBuilder()
    builder.append(0, b"\x00\x01\x00", b"\x00\x00")
    world.log.batches = [Batch(builder.build())]


def _unreadable(world: World) -> None:
    """Make the disk fail after the first batch, while the file is read."""
    (first,) = world.log.batches

    def batches() -> Iterator[Batch]:
        yield first
        raise LoadError("Input/output error", exception="java.io.IOException")

    found = SimpleNamespace(size=first.size, records=SimpleNamespace(batches=batches))
    world.log.read = lambda *_, **__: found  # type: ignore[method-assign]


def _cases() -> Iterator[Any]:
    yield pytest.param(lambda world: setattr(world.playback, "fails", True), "UNKNOWN_SERVER_ERROR", id="a record that cannot be replayed")
    yield pytest.param(lambda world: setattr(world, "is_leader", False), "NOT_LEADER_OR_FOLLOWER", id="led elsewhere")
    yield pytest.param(lambda world: world.hosted.online.clear(), "NOT_LEADER_OR_FOLLOWER", id="no log")
    yield pytest.param(_unreadable, "Input/output error (IOException)", id="a file that cannot be read")
    yield pytest.param(lambda world: world.loader.close(), "Coordinator loader is closed.", id="closed")


@pytest.mark.parametrize(("change", "expected"), list(_cases()))
def test_failures(change: Callable[[World], object], expected: str) -> None:
    world = World()
    world.log.add(batch(0, 2))
    change(world)
    assert _ended(world) == expected


def test_a_record_that_cannot_be_read() -> None:
    world = World()
    _broken(world)
    assert "Deserializing the record at offset 0 of __consumer_offsets-0 failed" in _ended(world)
