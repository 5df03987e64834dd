"""`kops scan carve` writes the same as `kops log carve`, byte for byte, also when tasks run twice or a run is interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.forensics.carve import fragments
from kops.forensics.carve.ranges import read_range
from kops.forensics.carve.run import CarveReport, carve
from kops.forensics.recover.pieces import write_piece
from kops.forensics.recover.task import recover_partition
from kops.forensics.verify.run import verify
from kops.spark.jobs.lost.carve import RANGES, scan_carve
from tests.spark.jobs.test_scan_kept import Here, Twice
from tests.spark.scan_commands import Commands
from tests.support.images import DiskImage, some_log
from tests.unit.forensics.carve.test_ranges import random_image

JOB = "kops.spark.jobs.lost.carve"
pytestmark = pytest.mark.timeout(1200)  # a session of its own


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Provide two images that are read in many windows. They have parts of the same logs."""
    monkeypatch.setattr(fragments, "WINDOW", 1 << 10)
    return [random_image(seed).write(tmp_path / f"disk-{seed}.img") for seed in (1, 2)]


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a directory. The state names the directory, so it is without that."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data.replace(str(folder).encode(), b"OUT") for name, data in found.items()}


def noted(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any], about: Callable[..., Any]) -> list[Any]:
    """Let the job call this function, and return the list of what the calls are about."""
    seen: list[Any] = []

    def call(*values: Any) -> Any:
        seen.append(about(*values))
        return function(*values)

    monkeypatch.setattr(f"{JOB}.{name}", call)
    return seen


def document(report: CarveReport) -> Any:
    """Return a report without the names of directories."""
    return json.loads(json.dumps(report.to_json()).replace(report.out, "OUT"))


@pytest.mark.parametrize("hint", [None, pytest.param("orders-3", marks=pytest.mark.slow)])
def test_the_same_as_log_carve(hint: str | None, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task runs twice, and the largest log is written by several."""
    here = Twice(monkeypatch)
    ours = carve(images, tmp_path / "log", topic_hint=hint)
    theirs = scan_carve(here, images, tmp_path / "scan", topic_hint=hint, task_bytes=3000)
    assert document(theirs) == document(ours)
    assert len(ours.logs) > 5 and ours.nested and ours.damaged
    assert tree(tmp_path / "scan") == tree(tmp_path / "log")
    assert sorted(path.name for path in (tmp_path / "scan").iterdir()) == sorted(path.name for path in (tmp_path / "log").iterdir())
    assert here.answers > 20


def test_segments_of_a_large_log_are_written_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "WINDOW", 1 << 12)
    monkeypatch.setattr("kops.forensics.recover.write._MAX_SIZE", 8000)
    image = DiskImage(3)
    for base in range(0, 240, 30):
        image.piece(some_log(base, 10, producer=base // 60, sequence=base % 60, epoch=base // 100))
        image.foreign(700)
    image.write(tmp_path / "image")
    here = Twice(monkeypatch)
    seen = noted(monkeypatch, "write_piece", write_piece, lambda *values: values[3].segment.base_offset)
    ours = carve([tmp_path / "image"], tmp_path / "log")
    theirs = scan_carve(here, [tmp_path / "image"], tmp_path / "scan", task_bytes=5000)
    assert not theirs.failed, theirs.logs
    assert len(set(seen)) > 2 and len(seen) == 2 * len(set(seen))
    assert document(theirs) == document(ours)
    assert tree(tmp_path / "scan") == tree(tmp_path / "log")
    assert [each.code for each in verify([tmp_path / "scan"], "full").findings if each.severity == "error"] == []


def test_an_interrupted_run_is_resumed(images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a range had is not read again, and a log that is complete is not written again."""
    here = Here(monkeypatch)
    carve(images, tmp_path / "log")
    read: list[tuple[str, int]] = []
    written: list[str] = []

    def reading(files: Any, one: Any, look: Any) -> Any:
        if len(read) == 7:
            raise KeyboardInterrupt
        read.append((one.image, one.start))
        return read_range(files, one, look)

    def writing(files: Any, out_files: Any, order: Any, job: Any, *values: Any) -> Any:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(job.name)
        return recover_partition(files, out_files, order, job, *values)

    monkeypatch.setattr(f"{JOB}.read_range", reading)
    monkeypatch.setattr(f"{JOB}.recover_partition", writing)
    out = tmp_path / "scan"
    with pytest.raises(KeyboardInterrupt):
        scan_carve(here, images, out, task_bytes=3000)
    assert len(list((out / RANGES).iterdir())) == 7
    later = noted(monkeypatch, "read_range", read_range, lambda _, one, look: (one.image, one.start, one.before is None))
    with pytest.raises(KeyboardInterrupt):
        scan_carve(here, images, out, task_bytes=3000, resume=True)
    again = {(image, start) for image, start, is_first in later if is_first}
    assert again and not again & set(read)
    monkeypatch.setattr(f"{JOB}.read_range", None)
    last = noted(monkeypatch, "recover_partition", recover_partition, lambda *values: values[3].name)
    scan_carve(here, images, out, resume=True)
    assert last and not set(last) & set(written)
    assert tree(out) == tree(tmp_path / "log")


@pytest.mark.slow
def test_a_log_that_can_not_be_written(images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are written, and `--resume` writes this one."""
    here, out = Here(monkeypatch), tmp_path / "scan"
    ours = carve(images, tmp_path / "log")

    def failing(files: Any, out_files: Any, order: Any, job: Any, attempt: str, *values: Any) -> Any:
        return recover_partition(files, out_files, order, job, "x" * 300 if job.name == "carved-2" else attempt, *values)

    monkeypatch.setattr(f"{JOB}.recover_partition", failing)
    report = scan_carve(here, images, out)
    assert [each.name for each in report.logs if each.failure] == ["carved-2"] and report.failed
    assert "name too long" in str(report.logs[2].failure)
    assert sorted(each.name for each in out.iterdir() if each.is_dir() and each.name.startswith("carved")) == sorted(
        each.name for each in ours.logs if each.name != "carved-2"
    )
    monkeypatch.setattr(f"{JOB}.recover_partition", recover_partition)
    again = scan_carve(here, images, out, resume=True)
    assert document(again) == document(ours)
    assert tree(out) == tree(tmp_path / "log")


@pytest.mark.slow
def test_the_command_line(commands: Commands, images: list[Path], tmp_path: Path) -> None:
    """Texts, rows and exit codes are those of `kops log carve`, in a real session."""
    small = ("--task-bytes", "4194304")
    for form in ("json", "table", "csv"):
        ours = commands("log", "carve", *images, "--out", tmp_path / "out", "--format", form)
        shutil.rmtree(tmp_path / "out")
        theirs = commands("scan", "carve", *images, "--out", tmp_path / "out", "--format", form, *small)
        assert (theirs.code, theirs.text, theirs.err) == (ours.code, ours.text, ours.err)
        shutil.rmtree(tmp_path / "out")
    commands("scan", "carve", f"{tmp_path}/disk-*.img", "--out", tmp_path / "out")
    again = commands("scan", "carve", *images, "--out", tmp_path / "out")
    assert (again.code, "--resume continues" in again.err) == (16, True)
    assert commands("scan", "carve", *images, "--out", tmp_path / "out", "--resume").code == ours.code
    assert commands("scan", "carve", tmp_path, "--out", tmp_path / "other").code == 16
    assert commands("scan", "carve", tmp_path / "nosuch", "--out", tmp_path / "other").code == 8


@pytest.mark.slow
def test_a_data_frame(spark: Any, images: list[Path], tmp_path: Path) -> None:
    import kops.spark

    ours = carve(images, tmp_path / "log")
    kops.spark.carve(spark, [str(each) for each in images], tmp_path / "scan").createOrReplaceTempView("carved")
    found = spark.sql("select log, records, size(gaps) as gaps from carved order by log").collect()
    assert [tuple(row) for row in found] == sorted((log.name, log.records, len(log.gaps)) for log in ours.logs)
    listed = spark.read.json(f"{tmp_path}/scan/kops-carve.fragments.jsonl")
    assert listed.where("state = 'kept'").count() == sum(len(log.sources) for log in ours.logs)
