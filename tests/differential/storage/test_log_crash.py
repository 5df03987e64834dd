"""Logs after a crash, opened by Kafka's own UnifiedLog and by kops's: the same log, the same files, the same rejection.

The states come from `tests.support.logs.twins.crash_log`. They follow kops's order of writing, and Kafka's, which may leave other files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kops.files import MemoryFiles
from kops.files.crash import LOSSES
from kops.records import BatchBuilder
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.support.kafka.oracle import Oracle
from tests.support.logs.twins.crash_log import CONFIG, DIRECTORY, History, batches_of, kafkas_order, read_checkpoint
from tests.support.logs.twins.twin_logs import Refused, Twin

SETTINGS = {
    "internal.segment.bytes": str(CONFIG.internal_segment_bytes),
    "index.interval.bytes": str(CONFIG.index_interval_bytes),
    "segment.index.bytes": str(CONFIG.segment_index_bytes),
    "file.delete.delay.ms": str(CONFIG.file_delete_delay_ms),
    "retention.bytes": str(CONFIG.retention_bytes),
    "retention.ms": str(CONFIG.retention_ms),
}


class End(NamedTuple):
    """How both ended: rejected with Kafka's exception, or with this many offsets missing between two batches."""

    refusal: str | None
    missing: int


def states(seed: int, points: int) -> Iterator[tuple[str, int, MemoryFiles]]:
    """Yield what crashes leave of one history, and the time then (ms)."""
    history = History(seed)
    history.run(40)
    dice = random.Random(seed)
    for at in sorted(dice.sample(range(history.begin, len(history.files.operations) + 1), points)):
        yield f"seed {seed}, killed at {at}", history.now, history.files.killed(at, dice.randrange(400))
        for loss in dice.sample(LOSSES, 2):
            yield f"seed {seed}, {loss} at {at}", history.now, history.files.after_power_loss(loss, seed, at)


def open_both(oracle: Oracle, directory: Path, now_ms: int, disk: MemoryFiles, where: str) -> End:
    """Open what is left, append to it and stop. Both are compared after each step."""
    directory.mkdir()
    twin = Twin(oracle, directory, now_ms)
    twin.history.append(where)
    for side in (twin.real, twin.kops):
        side.directory.mkdir()
        for name in disk.list(DIRECTORY) if disk.exists(DIRECTORY) else ():
            (side.directory / name).write_bytes(disk.read_all(f"{DIRECTORY}/{name}"))
    start, recovery_point = (read_checkpoint(disk, name) for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT))
    opened = twin.do("open", SETTINGS, start, recovery_point, False, open_afterwards=False)
    if isinstance(opened, Refused):
        return End(opened.java_class, 0)
    twin.compare_state()
    batches = batches_of(twin.kops.log)
    missing = sum(following[0] - batch[1] - 1 for batch, following in pairwise(batches))
    twin.do("run_tasks")
    builder = BatchBuilder()
    builder.append(now_ms, None, b"after the crash")
    twin.do("append_leader", builder.build(), 1 << 20, "CLIENT", None, -1)
    twin.do("roll", None)
    twin.do("flush", True)
    twin.advance(100)
    twin.do("run_tasks")
    twin.do("close", open_afterwards=False)
    return End(None, missing)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_crash_leaves_opens_alike(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    for number, (where, now_ms, disk) in enumerate(states(seed, points=3)):
        assert open_both(oracle, tmp_path / str(number), now_ms, disk, where) == End(None, 0)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_what_many_crashes_leave_opens_alike(oracle: Oracle, tmp_path: Path, seed_count: int | None) -> None:
    for seed in range(100, 100 + (seed_count or 12)):
        for number, (where, now_ms, disk) in enumerate(states(seed, points=4)):
            assert open_both(oracle, tmp_path / f"{seed}-{number}", now_ms, disk, where) == End(None, 0)


@pytest.mark.slow
def test_kafkas_order_of_writing_leaves_gaps_and_logs_that_cannot_be_loaded(oracle: Oracle, tmp_path: Path) -> None:
    """That is why kops writes in another order. Both load alike what that order leaves."""
    ends = set()
    with kafkas_order():
        for seed in (20, 21, 22):
            for number, (where, now_ms, disk) in enumerate(states(seed, points=12)):
                ends.add(open_both(oracle, tmp_path / f"{seed}-{number}", now_ms, disk, where))
    assert any(end.missing for end in ends)
    assert any(end.refusal == "CorruptRecordException" for end in ends)
