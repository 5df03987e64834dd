"""The memory of a scan's driver grows by little for each segment. The listing is simulated, and no Spark is needed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.verify.facts.facts import CRC
from kops.forensics.verify.groups import Groups, verify_groups
from kops.forensics.verify.partition import SegmentResult, verify_segment
from kops.forensics.verify.parts import TASK_BYTES
from kops.forensics.verify.run import plan_verify
from kops.spark.jobs.verify import plan_parts
from kops.spark.kept import Kept
from kops.spark.packed import PackedResults, pack, unpack
from tests.bench.planning import Listing, run_job, simulated
from tests.support import corpus

SEGMENTS = 1000
JOBS = ("stats", "keys", "grep", "timeline", "producers", "offsets", "txns", "diff", "recover")


def memory(work: Callable[[], object]) -> int:
    """Return how many bytes what `work` returns holds."""
    tracemalloc.start(1)
    try:
        kept = work()
        held = tracemalloc.get_traced_memory()[0]
        del kept
        return held - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_the_plan_takes_some_hundred_bytes_for_each_file() -> None:
    listing = Listing(SEGMENTS)

    def work() -> object:
        plan = plan_verify(["/b0"], CRC, listing)
        assert len(plan.tasks) == SEGMENTS
        return plan, plan_parts(listing, plan.tasks, 400, TASK_BYTES)

    work()  # what is loaded and compiled once
    assert memory(work) / SEGMENTS < 1600, "a log and two indexes: bytes for a segment"


def test_memory_does_not_grow_with_the_number_of_segments() -> None:
    """Log directories are planned, read and judged in groups. What stays of the others is their packed listing."""

    def peak(brokers: int) -> int:
        listing = Listing(brokers * 100, partitions_a_broker=2)
        tracemalloc.start(1)
        try:
            groups = Groups([f"/b{number}" for number in range(brokers)], CRC, listing, 200)
            assert len(groups) == brokers // 2
            report = verify_groups(groups, CRC, partial(simulated, listing), listing)
            assert (report.segments, report.findings) == (brokers * 100, [])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # what is loaded and compiled once
    assert (peak(16) - peak(4)) / (12 * 100) < 100, "bytes for a segment"


@pytest.mark.parametrize("job", ["records", *(pytest.param(job, marks=pytest.mark.slow) for job in JOBS)])
def test_the_driver_of_a_job_needs_little_for_each_segment(job: str) -> None:
    """The listing, the plan and the answers are packed. The stand-in for Spark has them, too, so they count twice."""

    def peak(segments: int) -> int:
        listing = Listing(segments, partitions_a_broker=5, copies=2 if job in ("diff", "recover") else 1)
        folders = [f"/b{number}" for number in range(listing.brokers)]
        tracemalloc.start(1)
        try:
            run_job(job, listing, folders)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # what is loaded and compiled once
    assert (peak(900) - peak(300)) / 600 < 1400, "bytes for a segment"


def test_a_kept_state_takes_little(tmp_path: Path) -> None:
    listing = Listing(SEGMENTS)
    kept = Kept(str(tmp_path), CRC)
    tasks = plan_verify(["/b0"], CRC, listing).tasks
    assert not any(map(kept.known, tasks))
    results = simulated(listing, "", tasks)
    kept.add(results)
    kept.keep()

    def load() -> Kept:
        return Kept(str(tmp_path), CRC)

    again = load()
    assert [again.known(task) for task in tasks] == list(results.values())
    assert memory(load) / SEGMENTS < 600, "bytes for a segment"


def test_results_are_packed_and_come_back_as_they_were(tmp_path: Path) -> None:
    case = corpus.load("cluster-4.3.0")
    case.copy(tmp_path, "nodes/n1")
    files = OsFiles(read_only=True)
    broken = next(tmp_path.glob("orders-epochs-0/*.log"))
    data = bytearray(broken.read_bytes())
    data[200] ^= 1
    broken.write_bytes(data)
    results = PackedResults()
    tasks = plan_verify([tmp_path], "full", files).tasks
    found = {task.path: verify_segment(task, files) for task in tasks}
    for result in found.values():
        results.add(result)
    assert any(result.facts is not None and result.facts.damages for result in found.values())
    assert dict(results) == found
    assert unpack(pack(list(found.values()))) == list(found.values())
    assert list(results) == list(found) and len(results) == len(found) and "elsewhere" not in results


def test_results_take_little(tmp_path: Path) -> None:
    corpus.load("cluster-4.3.0").copy(tmp_path, "nodes/n1/orders-epochs-0")
    files = OsFiles(read_only=True)
    result = verify_segment(plan_verify([tmp_path], CRC, files).tasks[0], files)
    data = pack((result.facts, result.findings, result.spacing))
    tasks = [replace(result.task, path=str(number)) for number in range(SEGMENTS)]

    def small() -> object:
        results = PackedResults()
        for task in tasks:
            results.add(SegmentResult(task, result.facts, result.findings, result.spacing))
        return results

    def whole() -> object:
        return [unpack(data) for _ in tasks]

    assert memory(small) < memory(whole) / 4
