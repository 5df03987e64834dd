"""A log whose process is killed or whose machine loses power at any operation. Flushed records are there, and all records that are there
were written.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kops.files.crash import LOSSES, Fault, Operation
from kops.storage.failures.load_errors import KafkaStorageError
from kops.storage.local_log import LocalLog
from kops.storage.segments.segment import LogSegment
from tests.support.logs.twins.crash_log import LOG_DIR, History, create_first, remove_in_order, roll_first


def crash_everywhere(
    seed: int, *, steps: int = 40, points: int | None = None, losses: int = 2, posix: bool = False, within: str | None = None
) -> None:
    """Run one history and let it crash after its operations, each time with a kill and some power losses.

    `points` is the number of operations after which it crashes, or None for all. With `within`, it crashes only in steps with this name.
    """
    history = History(seed, posix=posix)
    history.run(steps)
    dice = random.Random(seed)
    begins = [history.begin, *(mark.operations for mark in history.marks)]
    steps_done = [step for step in zip(begins, history.marks, strict=False) if within in (None, step[1].step)]
    places = [at for begin, mark in steps_done for at in range(begin, mark.operations)]
    for at in places if points is None else sorted(dice.sample(places, min(points, len(places)))):
        history.check(history.files.killed(at, dice.randrange(400)), at, killed=True)
        for loss in dice.sample(LOSSES, losses):
            history.check(history.files.after_power_loss(loss, seed, at), at)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_crashes_here_and_there(seed: int) -> None:
    crash_everywhere(seed, points=8)


@pytest.mark.parametrize("seed", [20, 21, 22, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(23, 26))])
def test_crashes_where_a_sync_says_nothing_of_names(seed: int) -> None:
    crash_everywhere(seed, points=8, posix=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_crashes_behind_every_operation(seed: int) -> None:
    crash_everywhere(seed, losses=3)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives(seed_count: int | None) -> None:
    """Many crashes lose nothing. `--seeds N` runs N histories."""
    for seed in range(1000, 1000 + (25 if seed_count is None else seed_count)):
        crash_everywhere(seed, points=14, losses=len(LOSSES), posix=seed % 4 == 0)


def unflushed(log: LocalLog, offset: int) -> None:
    """A flush that syncs nothing."""


def unforced(segment: LogSegment) -> None:
    """A flush that writes the offset and time index but does not sync them."""
    segment.log.flush()
    segment.write_index_entries()
    segment.txn_index.flush()


GAP = "are missing|its batches at|can't be loaded"


@pytest.mark.parametrize(
    ("owner", "name", "planted", "within", "complaint"),
    [
        (LocalLog, "flush", unflushed, None, "is not there"),
        (LogSegment, "flush", unforced, None, "index-"),
        (LocalLog, "roll", roll_first, None, GAP),
        (LocalLog, "remove_and_delete_segments", remove_in_order, "truncate", GAP),
        (LocalLog, "create_and_delete_segment", create_first, "truncate_fully", GAP),
    ],
    ids=["recovery-point-before-flush", "indexes-not-forced", "rolled-not-forced", "truncated-front-to-back", "new-before-old-goes"],
)
def test_the_test_sees(
    owner: type, name: str, planted: Callable[..., object], within: str | None, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError, match=complaint):
        for seed in range(20, 60):
            crash_everywhere(seed, points=None if within else 10, losses=1 if within else 3, within=within)


def fails_once(kind: str, ending: str, error: int, *, after: int) -> Callable[[Operation], Fault | None]:
    """Return a fault for the first operation of this kind after number `after` on a file with this suffix. Half of a write is done."""
    done: list[Operation] = []

    def fault(operation: Operation) -> Fault | None:
        if done or operation.number <= after or operation.kind != kind or not operation.path.endswith(ending):
            return None
        done.append(operation)
        return Fault(error, len(operation.data) // 2)

    return fault


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kind", "ending", "error"),
    [
        ("write", ".log", errno.ENOSPC),
        ("write", "index", errno.EIO),
        ("write", ".snapshot", errno.ENOSPC),
        ("sync", ".log", errno.EIO),
        ("sync", ".index", errno.EIO),
        ("sync_dir", "t-0", errno.EIO),
        ("create", ".log", errno.EMFILE),
        ("rename", ".log", errno.EROFS),
    ],
)
def test_a_failing_disk_takes_the_directory_offline(kind: str, ending: str, error: int, seed: int) -> None:
    history = History(seed, fault=fails_once(kind, ending, error, after=40), restarts=False)
    with pytest.raises(KafkaStorageError) as failure:
        history.run(400)
    assert list(history.failures.offline) == [LOG_DIR], failure.value
    with pytest.raises(KafkaStorageError, match="offline"):
        history.append()
    at = len(history.files.operations)
    history.check_offline(history.files.killed(at), killed=True)
    for number, loss in enumerate(LOSSES):
        history.check_offline(history.files.after_power_loss(loss, number, at))


@pytest.mark.parametrize("seed", range(4))
def test_offsets_grow_when_an_index_fails_behind_the_log(seed: int) -> None:
    history = History(seed, fault=fails_once("write", ".txnindex", errno.EIO, after=0), restarts=False)
    with pytest.raises(KafkaStorageError):
        history.run(400)
    # The marker of the aborted transaction is in the log, so its offset is used.
    assert history.log.log_end_offset == history.marks[-1].end + 1
    assert history.failures.has_offline(LOG_DIR)
    history.check_offline(history.files.killed(), killed=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_full_disk_leaves_the_log_whole(seed: int) -> None:
    history = History(seed, restarts=False)
    history.files.space_bytes = 5000 + 100 * seed
    with pytest.raises((KafkaStorageError, OSError), match="No space left"):
        history.run(400)
    history.check_offline(history.files.killed(), killed=True)
    history.check_offline(history.files.after_power_loss("random", seed))


def test_a_rolls_task_behind_a_truncation_does_not_count_what_comes_later_as_flushed() -> None:
    history = History(1)
    for step in (history.append, history.append, history.roll, history.append):
        step()
    history.log.truncate_to(0)
    history.scheduler.run_due()
    assert history.log.recovery_point == history.log.log_end_offset == 0
