"""Parts of segments: together they are the whole, they begin at batches, and bins have about equal sizes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kops.files import Mode, OsFiles
from kops.forensics.inventory.replicas import list_replicas
from kops.forensics.questions.reading import parts_of
from kops.forensics.questions.timeline import METADATA_TOPIC, Choice, events_of, read_part, wanted_events
from kops.forensics.verify.facts.facts import CRC, FULL
from kops.forensics.verify.partition import verify_segment
from kops.forensics.verify.parts import MOST_TASKS, Part, check_whole, join_parts, pack, part_bytes, split_segment
from kops.forensics.verify.parts import part_items as items
from kops.forensics.verify.parts import read_part as read_facts
from kops.forensics.verify.run import plan_verify
from kops.records import Batch, Damage, scan
from kops.spark.jobs.verify import plan_parts
from kops.spark.packed import cut, unpack
from kops.spark.source.data_source import KafkaLogReader
from kops.spark.source.options import read_options
from tests.bench.planning import Listing
from tests.support import corpus

LARGE = [case for case in corpus.cases("format") if case.endswith("-large")]


def _logs(case_id: str) -> list[Path]:
    return sorted(corpus.load(case_id).root.glob("**/*.log"))


def _seen(found: list[Batch | Damage]) -> list[tuple[str, int, int]]:
    return [(item.code, item.position, item.length) if isinstance(item, Damage) else ("batch", item.position, item.size) for item in found]


def _check(log: Path, target: int) -> int:
    files = OsFiles(read_only=True)
    index = log.with_suffix(".index")
    parts = split_segment(files, 0, str(log), log.stat().st_size, str(index) if index.exists() else None, target)
    assert [parts[0].start, parts[-1].end] == [0, log.stat().st_size]
    assert all(left.end == right.start for left, right in pairwise(parts))
    with files.open(str(log)) as file:
        whole = _seen(list(scan(file)))
        assert _seen([item for part in parts for item in items(file, part)]) == whole
    return len(parts)


@pytest.mark.parametrize("case_id", LARGE)
def test_parts_of_a_segment_are_the_whole(case_id: str) -> None:
    assert sum(_check(log, target) for log in _logs(case_id) for target in (1 << 8, 1 << 10)) >= 10


def test_parts_of_damaged_segments_are_the_whole() -> None:
    logs = [log for case_id in corpus.cases("damage") for log in sorted((corpus.load(case_id).root / "before").glob("*/*.log"))]
    assert sum(_check(log, 300) for log in logs) > 1.5 * len(logs)


@pytest.mark.parametrize("level", [CRC, FULL])
def test_a_segment_with_good_indexes_is_judged_where_it_is_read(level: str) -> None:
    """Otherwise the driver would read all indexes, one after the other. Where they are not good, it says so with the names it was given."""
    roots = [str(corpus.load(case_id).root / "before") for case_id in corpus.cases("damage")]
    files = OsFiles(read_only=True)
    judged = left = 0
    for task in plan_verify(roots, level, files).tasks:
        part = Part(0, task.path, 0, task.size)
        answer = read_facts(files, part, task)
        assert answer[1] is not None
        expected = verify_segment(task, files)
        result = check_whole(files, part, task, answer[1])
        if expected.findings:
            left += 1
            assert result is None
            result = join_parts(files, task, [answer])
        else:
            judged += 1
        assert result == expected
        assert check_whole(files, part._replace(end=task.size - 1), task, expected.facts or answer[1]) is None
    assert judged > 20 and left > 3


def test_events_of_parts_are_those_of_the_log() -> None:
    """This covers the damaged corpus and a cluster: rolls, leader epochs, sums over intervals, damage."""
    roots = [*(corpus.load(case_id).root / "before" for case_id in corpus.cases("damage")), corpus.load("cluster-4.3.0").root / "nodes"]
    files = OsFiles(read_only=True)
    divided = 0
    for replica in list_replicas(roots, files).replicas:
        if replica.directory.state or replica.directory.topic == METADATA_TOPIC:
            continue
        parts = list(parts_of(files, 0, replica, 300))
        divided += len(parts) - len(replica.directory.live_segments)
        answers = [(part, read_part(files, replica, part, 1000)) for part in parts]
        choice = Choice(1000)
        assert [str(each) for each in wanted_events(replica, choice, answers)] == [str(each) for each in events_of(files, replica, choice)]
    assert divided > 50


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 8), st.integers(1, 2000))
def test_bins_hold_every_part_once(sizes: list[int], bins: int, target: int) -> None:
    parts = [Part(number, f"{number}.log", 0, size) for number, size in enumerate(sizes)]
    packed = pack(parts, bins, target)
    assert sorted((part for content in packed for part in content), key=lambda part: part.number) == parts
    assert all(packed)
    if sizes and len(sizes) >= bins:
        loads = [sum(part.size for part in content) for content in packed]
        assert max(loads) - min(loads) <= max(sizes)


def test_a_part_is_never_small_nor_above_the_target() -> None:
    assert part_bytes(4, [100], 1 << 30, 50) == 50
    assert part_bytes(2, [100], 1 << 30, 1) == 50
    assert part_bytes(2, [10_000], 1 << 10, 1) == 1 << 10


def test_planning_many_segments_opens_none() -> None:
    """If a segment is a small part of all, reading its index would only cost time."""
    opened: list[str] = []

    class Watched(Listing):
        def open(self, path: str, mode: Mode = "r") -> Any:
            opened.append(path)
            return super().open(path, mode)

    listing = Watched(2_000)
    plan = plan_verify(["/b0"], CRC, listing)
    work = plan_parts(listing, plan.tasks, 4, 512 << 20)
    assert sum(len(each) for each in work) == len(plan.tasks) == 2_000
    assert [path for path in opened if path.endswith((".log", "index"))] == []
    few = plan_parts(listing, plan.tasks[:8], 4, 512 << 20)
    assert {path for path in opened if path.endswith(".index")} == {task.path.replace(".log", ".index") for task in plan.tasks[:8]}
    assert sum(len(each) for each in few) == 8, "empty indexes have no place to divide at"


def test_tasks_are_bounded() -> None:
    tasks = cut(range(100_000), lambda _: 1 << 30, 400)
    assert MOST_TASKS // 2 <= len(tasks) <= MOST_TASKS
    assert sum(tasks.sizes) == 100_000 << 30
    assert len(pack((Part(number, "", 0, 1 << 30) for number in range(50_000)), 400)) == MOST_TASKS


def test_segments_that_can_not_be_cut_are_begun_first(tmp_path: Path) -> None:
    """They have no index. A core that begins one at the end would work alone. The other tasks keep the order of the logs."""
    for number, size in enumerate((600, 600, 5000, 700, 9000)):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        with (folder / f"{0:020d}.log").open("wb") as log:
            log.truncate(size)
    reader = KafkaLogReader(read_options({"path": str(tmp_path), "taskBytes": "1000"}), ("offset",))
    assert [[part.size for part, _ in unpack(task.work)] for task in reader.partitions()] == [[9000], [5000], [600, 600], [700]]
