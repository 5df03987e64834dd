"""A partition that tasks recover is complete or does not exist, wherever a task dies, and whatever does the same at the same time."""

from __future__ import annotations

import errno
import json
import posixpath
from collections.abc import Callable

import pytest

from kops.files import Crash, FaultyFiles, Files, MemoryFiles
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.output import REPORT_FILE
from kops.forensics.recover.partition import Job
from kops.forensics.recover.report import RecoveredPartition
from kops.forensics.recover.run import recover
from kops.forensics.recover.task import (
    RESULTS,
    Order,
    begin_results,
    end_results,
    plan_partition,
    recover_partition,
    results_so_far,
)
from kops.forensics.recover.write import PARTIAL
from kops.records import Record
from kops.records.build import build_batch
from kops.storage.formats.names import log_file_name

SHAPES = ("segment", "jsonl", "parquet")


def batch(base: int) -> bytes:
    return build_batch([Record(base + i, 1_700_000_000_000, "CreateTime", b"k", b"v%d" % (base + i)) for i in range(3)])


def input_files() -> MemoryFiles:
    """Return two damaged replicas. Together they have everything except offsets 6 to 8."""
    files = MemoryFiles()
    parts = [batch(base) for base in range(0, 15, 3)]
    for number, hurt in ((0, (1, 2)), (1, (2, 3))):
        for path in (f"/n{number}", f"/n{number}/t-0"):
            files.mkdir(path)
        log = b"".join(part[:-1] + b"\xff" if place in hurt else part for place, part in enumerate(parts))
        files.write_all(f"/n{number}/t-0/{log_file_name(0, 'log')}", log)
    return files


def prepared(shape: str) -> tuple[MemoryFiles, MemoryFiles, Order, Job]:
    files, out = input_files(), MemoryFiles()
    out.mkdir("/out")
    order = Order("/out", shape)
    (job,), skipped, unreadable = find_jobs(["/n0", "/n1"], "/out", files)
    assert not skipped and not unreadable
    begin_results(out, order, [job.name], [])
    return files, out, order, job


def contents(files: Files) -> dict[str, bytes]:
    return {path: files.read_all(path) for path in files.walk("/out") if RESULTS not in path}


def whole(shape: str) -> dict[str, bytes]:
    """Return what `kops log recover` writes."""
    files = input_files()
    recover(["/n0", "/n1"], "/out", shape=shape, files=files, out_files=files)  # type: ignore[arg-type]
    return {path: data for path, data in contents(files).items() if posixpath.basename(path) != REPORT_FILE}


def is_expected(entry: RecoveredPartition) -> bool:
    return (entry.records, entry.lost, entry.failure, entry.complete) == (12, [(6, 8)], None, True)


@pytest.mark.parametrize("shape", ["segment", "jsonl"])
def test_a_task_that_dies_anywhere_is_done_again(shape: str) -> None:
    files, out, order, job = prepared(shape)
    counting = FaultyFiles(out)
    assert is_expected(recover_partition(files, counting, order, job, "a"))
    expected = whole(shape)
    assert contents(out) == expected
    complete = 0
    for at in range(1, len(counting.operations) + 1):
        files, out, order, job = prepared(shape)
        with pytest.raises(Crash):
            recover_partition(files, FaultyFiles(out, at=at, torn=5), order, job, "a")
        output = {path: data for path, data in contents(out).items() if PARTIAL not in path}
        assert output in ({}, expected)
        complete += output == expected
        assert list(results_so_far(out, order)) == (["t-0"] if output else [])
        again = FaultyFiles(out)
        assert is_expected(recover_partition(files, again, order, job, "b"))
        assert bool(again.operations) == (not output)  # existing output is not written again
        end_results(out, order)
        assert contents(out) == expected
    assert complete == 1  # only before the last flush of the directory


@pytest.mark.parametrize("shape", SHAPES)
def test_two_attempts_at_the_same_time(shape: str) -> None:
    """The second one begins and ends just before the first one renames its result, and then its output."""
    for moment in (".json.first", PARTIAL):
        files, out, order, job = prepared(shape)

        class Late(FaultyFiles):
            def rename(self, source: str, target: str) -> None:
                if source.endswith(moment):  # noqa: B023 it is used in this round only
                    assert is_expected(recover_partition(files, out, order, job, "second"))  # noqa: B023
                self.base.rename(source, target)

        assert is_expected(recover_partition(files, Late(out), order, job, "first"))
        assert set(contents(out)) == set(whole(shape))
        if shape != "parquet":
            assert contents(out) == whole(shape)
        end_results(out, order)
        assert not out.exists(f"/out/{RESULTS}")


def test_an_attempt_that_goes_on_after_the_end_changes_nothing() -> None:
    """The task was speculative, or the driver took it for dead."""
    expected = whole("segment")
    for at in (1, 4, 9, 14):
        files, out, order, job = prepared("segment")
        fired: list[int] = []

        class Sleepy(FaultyFiles):
            def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
                self.operations.append(what)
                if len(self.operations) == at:  # noqa: B023
                    recover_partition(files, out, order, job, "second")  # noqa: B023
                    end_results(out, order)  # noqa: B023
                    fired.append(1)  # noqa: B023

        sleepy = Sleepy(out)
        recover_partition(files, sleepy, order, job, "first")
        assert fired
        assert {path: data for path, data in contents(out).items() if PARTIAL not in path} == expected


def test_a_disk_that_is_full_fails_one_partition() -> None:
    files, out, order, job = prepared("segment")
    entry = recover_partition(files, FaultyFiles(out, at=3, error=errno.ENOSPC), order, job, "a")
    assert entry.failure is not None and "space" in entry.failure
    assert not entry.complete
    assert contents(out) == {}
    assert results_so_far(out, order) == {}
    assert is_expected(recover_partition(files, out, order, job, "b"))
    assert json.dumps(results_so_far(out, order)["t-0"].to_json()) == json.dumps(recover_partition(files, out, order, job, "c").to_json())


def test_a_plan_says_what_would_be_written() -> None:
    files, out, order, job = prepared("segment")
    plan = plan_partition(files, order, job)
    assert contents(out) == {}
    assert plan.to_json() == recover_partition(files, out, order, job, "a").to_json()
    end_results(out, order)


def test_what_is_to_be_written_again_is_removed_first() -> None:
    files, out, order, job = prepared("jsonl")
    recover_partition(files, out, order, job, "a")
    begin_results(out, order, [job.name], [job.name])
    assert contents(out) != {}
    begin_results(out, order, [job.name], [])
    assert contents(out) == {}
    assert results_so_far(out, order) == {}
