"""A load that is interrupted or meets a failing disk. The error is reported, and the next load gives the same result as an undisturbed
one.
"""

from __future__ import annotations

import errno

import pytest

from kops.config.topic import TopicConfig
from kops.files import Crash, FaultyFiles, Files, MemoryFiles
from kops.storage.failures.load_errors import LoadError
from kops.storage.start.loader import LoadedLog, load_partition
from tests.support import corpus
from tests.support.logs.twins import loading

OLD_DAMAGE = "damage-4.3.0-flip-body-old"
CASES = ("damage-4.3.0-torn-tail", "damage-4.3.0-missing-all-indexes", "damage-4.3.0-leftover-swap")


def damaged(case_id: str) -> tuple[MemoryFiles, str, int]:
    """Return the files of the case in memory, the path of its directory, and the time of its run."""
    case = corpus.load(case_id)
    source = case.root / case.json["damagedDir"]
    directory = f"/{source.name}"
    files = MemoryFiles()
    files.mkdir(directory)
    for path in source.iterdir():
        files.write_all(f"{directory}/{path.name}", path.read_bytes())
    return files, directory, case.json["clockMs"]


def load(files: Files, directory: str, now_ms: int) -> LoadedLog:
    config = TopicConfig(index_interval_bytes=256, segment_index_bytes=1200)
    return load_partition(files, directory, config, clean_shutdown=False, now_ms=now_ms, producer_id_expiration_ms=2**31 - 1)


def state(log: LoadedLog) -> tuple[object, ...]:
    """Return the essential state: offsets, records, epochs and producers."""
    return (
        log.log_start_offset,
        log.log_end_offset,
        [(segment.base_offset, segment.log.source.read(0, segment.size)) for segment in log.segments],
        log.epochs.entries,
        sorted(log.producers.producers),
    )


def operations(case_id: str) -> int:
    files, directory, now_ms = damaged(case_id)
    counted = FaultyFiles(files)
    load(counted, directory, now_ms).close()
    return len(counted.operations)


@pytest.mark.parametrize("case_id", CASES)
def test_a_crash_at_any_step_changes_nothing_in_the_end(case_id: str) -> None:
    files, directory, now_ms = damaged(case_id)
    expected = state(load(files, directory, now_ms))
    steps = operations(case_id)
    assert steps > 20
    for step in range(1, steps + 1):
        files, directory, now_ms = damaged(case_id)
        with pytest.raises(Crash):
            load(FaultyFiles(files, at=step), directory, now_ms).close()
        assert state(load(files, directory, now_ms)) == expected, step


def test_a_crash_before_later_segments_are_given_up_keeps_them() -> None:
    """As in Kafka, the truncated segment is valid after the crash, and loading does not look for a gap after it."""
    files, directory, now_ms = damaged(OLD_DAMAGE)
    cut = load(files, directory, now_ms).segments.active.base_offset
    ends = set()
    for step in range(1, operations(OLD_DAMAGE) + 1):
        files, directory, now_ms = damaged(OLD_DAMAGE)
        with pytest.raises(Crash):
            load(FaultyFiles(files, at=step), directory, now_ms).close()
        log = load(files, directory, now_ms)
        ends.add(log.log_end_offset)
        assert cut in log.segments
    assert ends == {30, 99}


@pytest.mark.parametrize("case_id", [*CASES, OLD_DAMAGE])
def test_a_failing_disk_is_an_error_of_the_log_directory(case_id: str) -> None:
    for step in range(1, operations(case_id) + 1):
        files, directory, now_ms = damaged(case_id)
        try:
            log = load(FaultyFiles(files, at=step, error=errno.EIO), directory, now_ms)
            log.close()
        except LoadError as error:
            assert error.kind == "log-dir-offline"
        else:
            # Kafka's recovery also catches an I/O error, empties the segment and drops the segments after it.
            assert "segment-emptied" in [action.kind for action in log.actions]


def test_ours_is_the_only_write() -> None:
    """The read-only base below the overlay is never written to. It would raise an error."""
    files = loading.overlay()
    case = corpus.load("damage-4.3.0-zero-page-old")
    load(files, str(case.root / case.json["damagedDir"]), case.json["clockMs"]).close()
    assert files.changes(str(case.root / case.json["damagedDir"]))
