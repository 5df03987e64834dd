"""Random damage of real partitions. A repair is clean and loses nothing, even when a broker loads the result. `recover` restores all intact
batches.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

import pytest

from kops.config.topic import TopicConfig
from kops.files import Files, MemoryFiles, OsFiles, OverlayFiles
from kops.forensics.plans.plan import PlannedFiles
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import plan_repair
from kops.records import Damage, scan
from kops.storage.start.loader import load_partition
from tests.support import corpus
from tests.support.logs.twins.loading import apply_operations

SOME = 12

Batches = set[tuple[int, int]]


def batches(files: Files, folder: str) -> Batches:
    """Return the last offset and checksum of every readable batch in the live logs."""
    found: Batches = set()
    for name in files.list(folder):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                found |= {(item.last_offset, item.crc) for item in scan(log) if not isinstance(item, Damage)}
    return found


def trials(case: corpus.Case) -> Iterator[tuple[int, str, OverlayFiles]]:
    """Yield the number, folder and damaged files of each trial."""
    (name,) = [path.name for path in (case.root / "base").iterdir()]
    folder = str(case.root / "base" / name)
    for number, trial in enumerate(case.lines("trials.jsonl")):
        files = OverlayFiles(OsFiles(read_only=True), now_ms=lambda: 1)
        apply_operations(files, folder, trial["ops"])
        yield number, folder, files


def check_repair(case: corpus.Case, number: int, folder: str, files: OverlayFiles, clean: Batches) -> None:
    intact = batches(files, folder) & clean
    (plan,) = plan_repair([folder], files=files)
    assert plan.left == [], number
    planned = PlannedFiles(files, plan.steps)
    after = batches(planned, folder)
    assert intact <= after, number
    end = max((last for last, _ in after), default=-1) + 1
    for point, stopped in ((0, False), (end, False), (end, True)):
        loaded = OverlayFiles(planned)
        load_partition(
            loaded,
            folder,
            TopicConfig(),
            recovery_point=point,
            clean_shutdown=stopped,
            now_ms=case.json["clockMs"],
            producer_id_expiration_ms=2147483647,
        ).close()
        assert after <= batches(loaded, folder), (number, point, stopped)


def check_recover(number: int, folder: str, files: OverlayFiles, clean: Batches) -> None:
    out = MemoryFiles()
    report = recover([folder], "/out", files=files, out_files=out)
    got = batches(out, report.partitions[0].output) if report.partitions else set()
    assert batches(files, folder) & clean <= got, number


def run(case_id: str, every: int) -> None:
    case = corpus.load(case_id)
    clean: Batches | None = None
    for number, folder, files in trials(case):
        if clean is None:
            clean = batches(OsFiles(read_only=True), folder)
        if number % every == 0:
            check_repair(case, number, folder, files, clean)
            check_recover(number, folder, files, clean)


@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_some_random_damage(case_id: str) -> None:
    run(case_id, 250 // SOME)


@pytest.mark.slow
@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_much_random_damage(case_id: str, seed_count: int | None) -> None:
    """Every third trial of the corpus. `--seeds N` runs at least N trials of each case."""
    run(case_id, 3 if seed_count is None else max(1, 250 // seed_count))
