"""The findings do not depend on how the work is divided: the whole, in parts, in several processes, through another file system."""

from __future__ import annotations

import os
import pickle
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.errors import KopsError, NotFoundError, UsageError
from kops.files import MemoryFiles, OsFiles
from kops.forensics.findings.finding import Finding
from kops.forensics.inventory.tree import open_paths
from kops.forensics.verify import jobs as verify_jobs
from kops.forensics.verify.facts.facts import FULL, LEVELS, SegmentFacts, join_facts, scan_segment_facts
from kops.forensics.verify.facts.index import IndexSamples
from kops.forensics.verify.groups import Groups, verify_groups
from kops.forensics.verify.partition import SegmentResult, SegmentTask, check_indexes, load_index, verify_segment
from kops.forensics.verify.run import VerifyPlan, check_plan, plan_verify, verify
from kops.forensics.verify.workers import spread
from kops.records import Batch, scan
from tests.support import corpus
from tests.support.logs.verifying import folder

DAMAGED = [case for case in corpus.cases("damage") if case.startswith("damage-4.3.0")]


def split_segment(task: SegmentTask, files: OsFiles, starts: list[int]) -> SegmentResult:
    """Verify one segment in parts that begin at `starts`. The parts go through pickle, as between processes."""
    index = load_index(files, task.index_path, "index", task.base_offset)
    time_index = load_index(files, task.time_index_path, "timeindex", task.base_offset)

    def part(start: int, end: int) -> SegmentFacts:
        with files.open(task.path) as source:
            facts = scan_segment_facts(source, start, end, task.level, index=index, time_index=time_index)
        sent: SegmentFacts = pickle.loads(pickle.dumps(facts))
        return sent

    ends = [*starts[1:], task.size]
    facts = join_facts([part(start, end) for start, end in zip(starts, ends, strict=True)], part)
    findings, spacing = check_indexes(task, facts, index, time_index)
    facts.samples = IndexSamples()
    return SegmentResult(task, facts, findings, spacing)


def split_verify(plan: VerifyPlan, files: OsFiles, choose: random.Random, *, at_batches: bool) -> list[Finding]:
    """Return the findings of a plan whose segments are each read in up to five parts."""
    results = {}
    for task in plan.tasks:
        with files.open(task.path) as source:
            good = [item.position for item in scan(source) if isinstance(item, Batch)]
        places = good if at_batches else list(range(task.size))
        cuts = sorted(choose.sample([place for place in places if place], min(4, max(len(places) - 1, 0)))) if places else []
        results[task.path] = split_segment(task, files, [0, *cuts])
    return check_plan(plan, results, files)


@pytest.mark.parametrize("at_batches", [True, False], ids=["at-batches", "anywhere"])
@pytest.mark.parametrize("case_id", [*DAMAGED, "v2-4.3.0-transactions", "v2-4.3.0-compacted", "v1-0.10.2.2-codec-gzip", "cluster-4.3.0"])
def test_parts_give_the_same_findings(case_id: str, at_batches: bool) -> None:
    """Parts may begin at batches, or anywhere, as with a wrong index."""
    files = OsFiles(read_only=True)
    root = folder(case_id) if case_id.startswith("damage") else corpus.load(case_id).root
    for level in ("crc", FULL):
        whole = verify([root], level)
        choose = random.Random(f"{case_id} {level}")
        split = split_verify(plan_verify([root], level, files), files, choose, at_batches=at_batches)
        assert split == whole.findings


@pytest.mark.parametrize("level", LEVELS)
def test_processes_give_the_same_report(level: str) -> None:
    """Two and three worker processes give the same report."""
    roots = [folder("damage-4.3.0-two-flips"), folder("damage-4.3.0-index-garbage-old"), corpus.load("v2-4.3.0-transactions").root]
    alone = verify(roots, level)
    for jobs in (2, 3):
        assert verify(roots, level, jobs=jobs).to_json() == alone.to_json()


@pytest.mark.parametrize("case_id", [*DAMAGED, "v2-4.3.0-transactions", "cluster-4.3.0"])
def test_segments_cut_among_processes_give_the_same_report(case_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are so small that every segment with an index entry is divided."""
    monkeypatch.setattr(verify_jobs, "PART_BYTES", 256)
    monkeypatch.setattr(verify_jobs, "LEAST_PART_BYTES", 256)
    root = folder(case_id) if case_id.startswith("damage") else corpus.load(case_id).root
    for level in ("crc", FULL):
        assert verify([root], level, jobs=2).to_json() == verify([root], level).to_json()


@pytest.mark.parametrize(("level", "most"), [("quick", 9), ("crc", 1), ("deep", 9), (FULL, 1)])
def test_groups_of_log_directories_give_the_same_report(level: str, most: int) -> None:
    """Log directories of clusters and damaged brokers, a directory of directories, partitions and files named by themselves."""
    files = OsFiles(read_only=True)
    nodes = corpus.load("cluster-4.3.0").root / "nodes"
    brokers = [corpus.load(case).root / "before" for case in corpus.cases("broker-damage")[::18]]
    loose = [folder("damage-4.3.0-two-flips"), folder("damage-4.3.0-index-garbage-old")]
    alone = [next(corpus.load(case).root.rglob(name)) for case, name in (("v2-4.3.0-transactions", "*.log"), ("v2-4.3.0-large", "*.index"))]
    paths = [alone[0], *brokers[:3], loose[0], nodes, *brokers[3:], loose[1], alone[1], brokers[0]]
    read: list[str] = []

    def reader(which: str, tasks: list[SegmentTask]) -> dict[str, SegmentResult]:
        read.append(which)
        return {task.path: verify_segment(task, files) for task in tasks}

    groups = Groups(paths, level, files, most)
    assert len(groups) > 4, "one log directory after the other"
    expected = verify(paths, level)
    assert verify_groups(groups, level, reader, files).to_json() == expected.to_json()
    assert read == [f"{number} of {len(read)}" for number in range(1, len(read) + 1)]
    assert len({found.code for found in expected.findings}) > (9 if level == FULL else 4)

    paths.append(next(loose[1].rglob("*.index")))
    groups = Groups(paths, level, files, most)
    assert len(groups) == 1, "a file and its log directory are judged together"
    assert verify_groups(groups, level, reader, files).to_json() == verify(paths, level).to_json()


def test_wrong_paths_are_told_before_groups_are_read(tmp_path: Path) -> None:
    files = OsFiles(read_only=True)
    good = corpus.load("cluster-4.3.0").root / "nodes"
    (tmp_path / "empty").mkdir()
    for path, error, why in ((tmp_path / "empty", UsageError, "contains none"), (tmp_path / "none", NotFoundError, "no such file")):
        with pytest.raises(error, match=why):
            Groups([good, path], "crc", files, 1)
    with pytest.raises(UsageError, match="unknown level 'all'"):
        Groups([good], "all", files)


def test_a_worker_that_dies_is_told() -> None:
    """A worker may be killed from outside, as the kernel does when memory is short."""
    with pytest.raises(KopsError, match="worker process died"):
        list(spread(lambda item: os.kill(os.getpid(), signal.SIGKILL), [1, 2, 3], 2))


def test_workers_that_die_before_all_items_are_given_out_are_told() -> None:
    def places() -> Iterator[int]:
        yield 0
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        yield 1

    with pytest.raises(KopsError, match="worker process died"):
        list(spread(lambda item: os.kill(os.getpid(), signal.SIGKILL), [1, 2], 1, places()))


def test_workers_answer_each_item_once() -> None:
    """There are more items than workers, and answers are larger than a pipe's buffer."""
    found = sorted(spread(lambda item: (item, bytes(item) * 300_000), list(range(9)), 3))
    assert found == [(item, bytes(item) * 300_000) for item in range(9)]


def test_other_files_give_the_same_findings() -> None:
    """The same bytes in memory give the same findings."""
    root = folder("damage-4.3.0-zero-page-active")
    files = MemoryFiles()
    files.mkdir("/data")
    for path in sorted(root.rglob("*")):
        target = "/data/" + path.relative_to(root).as_posix()
        if path.is_dir():
            files.mkdir(target)
        else:
            files.write_all(target, path.read_bytes())
    in_memory = verify(["/data"], FULL, files=files)
    on_disk = verify([root], FULL)
    strip = [(found.code, Path(found.file).name, found.position, found.detail) for found in on_disk.findings]
    assert [(found.code, Path(found.file).name, found.position, found.detail) for found in in_memory.findings] == strip


def test_samples_cover_everything_once() -> None:
    """The samples n/t together cover everything. The same sample always has the same segments."""
    root = corpus.load("cluster-4.3.0").root / "nodes"
    everything = {entry.path for entry in open_paths([root]).all_files() if entry.kind == "log" and not entry.suffix}
    read: list[str] = []
    for number in (1, 2, 3):
        report = verify([root], "quick", sample=f"{number}/3")
        assert report.stopped == "sample"
        read += sorted(everything - set(report.left_out))
        assert report.segments == len(everything) - len(report.left_out)
        assert verify([root], "quick", sample=f"{number}/3").left_out == report.left_out
    assert sorted(read) == sorted(everything)
    half = verify([root], "quick", sample="50%")
    assert 0 < half.segments < len(everything)


def test_a_sample_says_nothing_on_what_it_did_not_read() -> None:
    """A segment whose neighbours were left out does not count as a gap."""
    root = corpus.load("damage-4.3.0-none").root / "before"
    for number in range(1, 6):
        report = verify([root], FULL, sample=f"{number}/5")
        assert report.segments == 1
        assert not report.has_problems


def test_no_time_left() -> None:
    """If the time limit is over at once, `verify` reads nothing and says where to continue. From there it reads everything."""
    root = corpus.load("damage-4.3.0-none").root / "before"
    report = verify([root], "crc", max_duration=1e-9)
    assert (report.segments, report.stopped, len(report.left_out)) == (0, "time", 5)
    assert report.resume_from == report.left_out[0]
    rest = verify([root], "crc", resume_from=report.resume_from)
    assert (rest.segments, rest.stopped, rest.left_out) == (5, "", [])
