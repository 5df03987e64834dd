"""A log that loses its process or its power at any operation: what was flushed is there, and what is there was written."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kops.files.crash import LOSSES, Fault, Operation
from kops.storage.load_errors import KafkaStorageError
from kops.storage.local_log import LocalLog
from kops.storage.mapped_index import MappedIndex, MappedOffsetIndex
from tests.support.crash_log import LOG_DIR, History


def crash_everywhere(seed: int, *, steps: int = 40, points: int | None = None, losses: int = 2, posix: bool = False) -> None:
    """One history, with crashes behind its operations (`points` of them, None: behind each), each with a kill and some power losses."""
    history = History(seed, posix=posix)
    history.run(steps)
    dice = random.Random(seed)
    places = range(history.begin, len(history.files.operations) + 1)
    for at in places if points is None else sorted(dice.sample(places, points)):
        history.check(history.files.killed(at, dice.randrange(400)), at, killed=True)
        for loss in dice.sample(LOSSES, losses):
            history.check(history.files.after_power_loss(loss, seed, at), at)


@pytest.mark.parametrize("seed", range(20))
def test_crashes_here_and_there(seed: int) -> None:
    crash_everywhere(seed, points=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_crashes_behind_every_operation(seed: int) -> None:
    crash_everywhere(seed, losses=3)


def unflushed(log: LocalLog, offset: int) -> None:
    """A flush that forces nothing."""


def unforced(index: MappedOffsetIndex) -> None:
    """A force that only writes."""
    index.flush()


def only_the_active_segment(log: LocalLog, offset: int) -> None:
    """A flush that forgets the segments before the last."""
    log.segments.active.flush()
    log.files.sync_dir(log.directory)


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [(LocalLog, "flush", unflushed), (MappedIndex, "force", unforced), (LocalLog, "flush", only_the_active_segment)],
    ids=["recovery-point-before-the-flush", "indexes-not-forced", "older-segments-not-flushed"],
)
def test_the_test_sees(owner: type, name: str, planted: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError):
        for seed in range(40):
            crash_everywhere(seed, points=10, losses=3)


def fails_once(kind: str, ending: str, error: int, *, after: int) -> Callable[[Operation], Fault | None]:
    """An operation on a file of this ending fails, the first one behind number `after`; of a write half is done."""
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
    # The marker of the aborted transaction is in the log, so its offset is taken.
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
