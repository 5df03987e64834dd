"""A partition that is recovered in several tasks is the same as one that is recovered at once: over the damaged corpus, without Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kops.files import Files, OsFiles
from kops.forensics.plans.items import Item, stream_items
from kops.forensics.recover import pieces
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Reading, read_part
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.partition import Job
from kops.forensics.recover.pieces import Merged, Piece, PieceResult, finish_partition, merge_partition, write_piece
from kops.forensics.recover.report import RecoveredPartition
from kops.forensics.recover.task import Order, begin_results, end_results, plan_partition, recover_partition
from kops.forensics.verify.parts import Part
from kops.records import Batch, BatchBuilder, scan
from kops.records.build import end_txn_marker
from tests.support import corpus
from tests.support.logs.three_replicas import three_damaged
from tests.support.rings import sample

pytestmark = pytest.mark.timeout(900)
FILES, OUT = OsFiles(read_only=True), OsFiles()
CASES = corpus.cases("damage")


def parts(path: str, rng: random.Random) -> list[Part]:
    """Cut a file before some of its intact batches, as `split_segment` does at index entries."""
    with FILES.open(path) as file:
        size = file.size()
        cuts = [item.position for item in scan(file) if isinstance(item, Batch) and item.position and rng.random() < 0.4]
    return [Part(0, path, low, high) for low, high in zip([0, *cuts], [*cuts, size], strict=True)]


def in_pieces(order: Order, job: Job, rng: random.Random, step: int, *, again: bool = False) -> tuple[RecoveredPartition, Merged, int]:
    """Recover a partition as tasks do, each step with files of its own. `again`: some steps run twice."""
    readings: list[list[Reading | None]] = []
    for source in job.sources:
        found = [part for path in source.paths for part in parts(path, rng)]
        readings.append([read_part(PatientFiles(FILES), part, step) for part in found])
    merged = merge_partition(FILES, order, job, readings, step)
    results: list[PieceResult] = []
    for number, segment in enumerate(merged.segments):
        piece = Piece(job.name, segment, merged.gone, "run")
        for attempt in range(1 + again):
            result = write_piece(FILES, OUT, order, piece, f"{number}-{attempt}")
        results.append(result)
    divided = sum(len(each) for each in readings)
    return finish_partition(FILES, OUT, order, job, merged, results, "run", "last"), merged, divided


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def compare(folder: Path, paths: list[Path], seed: int, name: str) -> Iterator[tuple[Merged, int]]:
    """Recover all partitions below the paths in both ways."""
    rng = random.Random(seed)
    jobs, *_ = find_jobs([str(path) for path in paths], str(folder / "whole"), FILES)
    for job in jobs:
        orders = [Order(str(folder / kind), "segment") for kind in ("whole", "pieces")]
        for order in orders:
            Path(order.out).mkdir(parents=True)
            begin_results(OUT, order, [job.name], ())
        expected = recover_partition(FILES, OUT, orders[0], job, "one")
        step = rng.choice((0, 1, 3, 10, 100))
        entry, merged, divided = in_pieces(orders[1], job, rng, step, again=seed % 3 == 0)
        for order in orders:
            end_results(OUT, order)
        row, wanted = entry.to_json(), expected.to_json()
        assert {**row, "output": ""} == {**wanted, "output": ""}, name
        assert tree(folder / "pieces") == tree(folder / "whole"), name
        planned, _, _ = in_pieces(Order(str(folder / "pieces"), "segment", is_plan=True), job, rng, step)
        assert planned.to_json() == plan_partition(FILES, Order(str(folder / "pieces"), "segment", is_plan=True), job).to_json(), name
        yield merged, divided
        shutil.rmtree(folder / "whole")
        shutil.rmtree(folder / "pieces")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of partitions that could not be completed in pieces."""
    names: list[str] = []

    def recover(files: Files, out_files: Files, order: Order, job: Job, *more: Any) -> RecoveredPartition:
        names.append(job.name)
        return recover_partition(files, out_files, order, job, *more)

    monkeypatch.setattr(pieces, "recover_partition", recover)
    return names


@pytest.mark.once
@pytest.mark.parametrize("some", [pytest.param(True, id="some"), pytest.param(False, id="all", marks=pytest.mark.slow)])
def test_three_damaged_replicas_of_each_case(tmp_path: Path, at_once: list[str], some: bool) -> None:
    segments = divided = 0
    for number, case_id in enumerate(sorted(sample(__name__, CASES))[:4] if some else CASES[::3]):
        case = corpus.load(case_id)
        root = tmp_path / f"{number}"
        contents, _ = three_damaged(case)
        for broker, content in enumerate(contents):
            path = root / f"broker-{broker}" / case.json["damagedDir"].rpartition("/")[2]
            path.mkdir(parents=True)
            for name, data in content.items():
                (path / name).write_bytes(data)
        for merged, parts_read in compare(root / "out", [root / f"broker-{broker}" for broker in range(3)], number, case_id):
            segments += len(merged.segments)
            divided += parts_read
        if number % 3 == 0:
            segments += sum(len(merged.segments) for merged, _ in compare(root / "out", [root / "broker-0"], number, case_id))
    assert segments > (4 if some else 60) and divided > 10
    assert len(at_once) < segments // 20


def transactions(seed: int) -> bytes:
    """Return a log with transactions of three producers, open and ended, some of which contradict each other."""
    rng = random.Random(seed)
    found = b""
    for offset in range(80):
        producer = rng.randrange(3)
        about = {"producer_id": producer, "producer_epoch": rng.choice((0, 0, 0, 1))}
        kind = rng.random()
        if kind < 0.2:
            found += end_txn_marker(offset, offset, commit=kind < 0.1, coordinator_epoch=0, **about)
            continue
        fields: dict[str, Any] = {**about, "base_sequence": offset} if kind < 0.9 else {}
        transactional = kind < (0.9 if seed % 4 else 0.88)
        builder = BatchBuilder(
            base_offset=offset, partition_leader_epoch=offset // 25, transactional=bool(fields) and transactional, **fields
        )
        builder.append(offset, b"k", b"v" * rng.randrange(30))
        found += builder.build()
    return found


@pytest.mark.once
def test_transactions_over_segments(tmp_path: Path, at_once: list[str], pytestconfig: pytest.Config) -> None:
    seeds = pytestconfig.getoption("--seeds") or 8
    indexes = 0
    for seed in range(seeds):
        folder = tmp_path / f"{seed}" / "broker" / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(transactions(seed))
        items = [item for item in stream_items(FILES, str(folder / f"{0:020d}.log")) if isinstance(item, Item)]
        data = (folder / f"{0:020d}.log").read_bytes()
        cuts = [0, *sorted(random.Random(seed).sample(range(1, len(items)), 4)), len(items)]
        for low, high in pairwise(cuts):
            (folder / f"{items[low].base:020d}.log").write_bytes(data[items[low].position : items[high - 1].end])
        for merged, _ in compare(tmp_path / f"{seed}" / "out", [tmp_path / f"{seed}" / "broker"], seed, f"seed {seed}"):
            assert len(merged.segments) == 5
            written = [path.suffix for path in (tmp_path / f"{seed}" / "out" / "pieces").rglob("*")]
            indexes += written.count(".txnindex")
            assert written.count(".log") == 5
    assert indexes > seeds
    assert 0 < len(at_once) < seeds // 2, "transactions contradict each other in some of the logs"


def test_a_disk_that_fails_is_a_failure_of_the_partition(tmp_path: Path) -> None:
    folder = tmp_path / "broker" / "t-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(transactions(1))
    (job,), *_ = find_jobs([str(tmp_path / "broker")], str(tmp_path / "out"), FILES)
    order = Order(str(tmp_path / "out"), "segment")
    (tmp_path / "out").mkdir()
    begin_results(OUT, order, [job.name], ())
    merged = merge_partition(
        FILES, order, job, [[read_part(PatientFiles(FILES), part, 0) for part in parts(job.sources[0].paths[0], random.Random(1))]], 0
    )
    (folder / f"{0:020d}.log").unlink()
    result = write_piece(FILES, OUT, order, Piece(job.name, merged.segments[0], {}, "run"), "0")
    entry = finish_partition(FILES, OUT, order, job, merged, [result], "run", "last")
    assert entry.failure is not None and "No such file" in entry.failure and not entry.complete
    end_results(OUT, order)
    assert tree(tmp_path / "out") == {}
