"""`kops scan recover` writes the same as `kops log recover`, also when tasks die, and a notebook gets it as a DataFrame."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kops.forensics.recover.run import recover
from tests.spark.scan_commands import Commands
from tests.support import corpus
from tests.support.logs.three_replicas import three_damaged
from tests.support.rings import sample

pytestmark = pytest.mark.timeout(1200)  # a session of its own, and workers that are killed
CASES = [case_id for case_id in corpus.cases("damage") if "4.3.0" in case_id]


def cluster(root: Path, case_ids: list[str]) -> list[str]:
    """Return the log directories of three brokers: a partition for each case, damaged in all three at different places."""
    for case_id in case_ids:
        case = corpus.load(case_id)
        folder = posixpath.basename(case.json["damagedDir"])
        contents, _ = three_damaged(case)
        for number, content in enumerate(contents):
            path = root / f"broker-{number}" / folder
            path.mkdir(parents=True)
            for name, data in content.items():
                (path / name).write_bytes(data)
    return [str(root / f"broker-{number}") for number in range(3)]


def tree(path: Path) -> dict[str, bytes]:
    """Return every file but the report."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file() and file.parent != path}


def rows(report: Any, out: Path) -> list[dict[str, Any]]:
    """Return the rows of a report, with outputs relative to the output directory."""
    return [{**row, "output": str(Path(row["output"]).relative_to(out))} for row in report.to_json()["partitions"]]


@pytest.mark.parametrize("some", [pytest.param(True, id="some"), pytest.param(False, id="all", marks=pytest.mark.slow)])
def test_the_same_as_log_recover(spark: Any, tmp_path: Path, some: bool) -> None:
    from kops.spark.jobs.recover import scan_recover

    case_ids = sorted(sample(__name__, CASES))[:2] if some else CASES
    paths = cluster(tmp_path / "cluster", case_ids)
    expected = recover(paths, tmp_path / "log")
    plan = scan_recover(spark, paths, tmp_path / "scan", plan=True)
    assert not (tmp_path / "scan").exists()
    report = scan_recover(spark, paths, tmp_path / "scan", task_bytes=1 if some else 1 << 20)
    assert rows(report, tmp_path / "scan") == rows(expected, tmp_path / "log") == rows(plan, tmp_path / "scan")
    assert tree(tmp_path / "scan") == tree(tmp_path / "log") != {}
    assert sorted(path.name for path in (tmp_path / "scan").iterdir()) == sorted(path.name for path in (tmp_path / "log").iterdir())
    written = json.loads((tmp_path / "scan" / "kops-recover.json").read_bytes())
    assert written["partitions"] == json.loads(json.dumps(report.to_json()["partitions"]))


@pytest.mark.slow
def test_a_second_run_keeps_what_is_there(spark: Any, tmp_path: Path) -> None:
    from kops.errors import UsageError
    from kops.spark.jobs.recover import scan_recover

    paths = cluster(tmp_path / "cluster", CASES[:6])
    out = tmp_path / "out"
    first = scan_recover(spark, paths, out)
    before = tree(out)
    with pytest.raises(UsageError, match="not empty"):
        scan_recover(spark, paths, out)
    gone = Path(first.partitions[2].output)
    shutil.rmtree(gone)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.log")}
    again = scan_recover(spark, paths, out, resume=True)
    assert again.to_json() == first.to_json()
    assert tree(out) == before
    assert {path for path, time in times.items() if path.stat().st_mtime_ns != time} == set()
    assert list(gone.glob("*.log"))


@pytest.mark.slow
def test_a_partition_that_can_not_be_written_does_not_stop_the_others(spark: Any, tmp_path: Path) -> None:
    """In a directory as deep as this one, its path is longer than the system allows."""
    from kops.spark.jobs.recover import scan_recover

    paths = cluster(tmp_path / "cluster", CASES[:2])
    folder = min(path for path in Path(paths[0]).iterdir())
    long = "t" * 249 + "-0"
    shutil.copytree(folder, folder.parent / long)
    out = tmp_path
    while len(str(out)) < 3900:
        out = out / ("d" * min(200, 3900 - len(str(out))))
    report = scan_recover(spark, paths, out)
    failed = [entry for entry in report.partitions if entry.failure is not None]
    assert [entry.name for entry in failed] == [long]
    assert report.failed and "name too long" in str(failed[0].failure)
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(
        entry.name for entry in report.partitions if entry.failure is None
    )
    assert len(report.partitions) == 3
    as_lines = scan_recover(spark, paths, tmp_path / "lines", shape="jsonl")
    assert not as_lines.failed


@pytest.mark.slow
def test_a_data_frame(spark: Any, tmp_path: Path) -> None:
    from kops.spark import recover as recover_frame

    paths = cluster(tmp_path / "cluster", CASES[:3])
    frame = recover_frame(spark, paths, tmp_path / "out", shape="parquet")
    frame.createOrReplaceTempView("recovered")
    found = spark.sql("select partition, records, size(damaged) as places, lost.first as lost from recovered order by partition").collect()
    expected = json.loads((tmp_path / "out" / "kops-recover.json").read_bytes())["partitions"]
    assert [(row.partition, row.records, row.places) for row in found] == [
        (row["partition"], row["records"], len(row["damaged"])) for row in sorted(expected, key=lambda row: str(row["partition"]))
    ]
    assert [row.lost for row in found] == [
        [first for first, _ in row["lost"]] for row in sorted(expected, key=lambda row: str(row["partition"]))
    ]
    records = spark.read.parquet(*(row["output"] for row in expected))
    assert records.count() == sum(row["records"] for row in expected)


KILLER = '''
import os, signal, sys
from pathlib import Path

import kops.spark.jobs.recover as jobs
from kops.files import FaultyFiles, OsFiles
from kops.forensics.recover.pieces import finish_partition, write_piece
from kops.forensics.recover.task import recover_partition
from kops.spark import spark_session
from kops.spark.jobs.tasks import TASK_BYTES


def dying(name, output, marks):
    """The first attempt kills its Python worker in the middle of writing, the second one before it renames its output."""
    tried = len(list(Path(marks).glob(name + ".*")))
    Path(marks, f"{name}.{tried}").touch()

    class Dying(FaultyFiles):
        def step(self, what, part=None):
            self.operations.append(what)
            if (tried == 0 and len(self.operations) == 5) or (tried == 1 and what.startswith("rename") and what.endswith(output)):
                os.kill(os.getpid(), signal.SIGKILL)

    return OsFiles(read_only=True), Dying(OsFiles()), str(tried)


def one(work, *, order, run, marks=sys.argv[1]):
    job, merged, pieces = work
    files, out_files, tried = dying(job.name + ("" if merged is None else "~end"), job.name, marks)
    if merged is None:
        return recover_partition(files, out_files, order, job, tried)
    return finish_partition(files, out_files, order, job, merged, pieces, run, tried)


def piece(work, *, order, marks=sys.argv[1]):
    base = work.segment.base_offset
    files, out_files, tried = dying(f"{work.job}~{base}", f"{base:020d}.log", marks)
    return write_piece(files, out_files, order, work, tried)


jobs._one, jobs._write_piece = one, piece
spark = spark_session("local[2,9]", "killed", light=True)
for name, size in (("whole", TASK_BYTES), ("pieces", 1)):
    report = jobs.scan_recover(spark, sys.argv[3:], f"{sys.argv[2]}-{name}", task_bytes=size)
    assert all(entry.complete for entry in report.partitions), report
spark.stop()
'''


@pytest.mark.slow
@pytest.mark.java
def test_a_task_that_is_killed_in_the_middle_is_done_again(tmp_path: Path) -> None:
    paths = cluster(tmp_path / "cluster", CASES[:3])
    expected = recover(paths, tmp_path / "log")
    script, marks = tmp_path / "killer.py", tmp_path / "marks"
    script.write_text(KILLER)
    marks.mkdir()
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, str(script), str(marks), str(out), *paths], capture_output=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    tries = [path.name.rpartition(".")[0] for path in marks.iterdir()]
    # A partition that shares a task with another one is read again with it.
    names = {entry.name for entry in expected.partitions}
    bases = {f"{path.parent.name}~{int(path.stem)}" for path in (tmp_path / "log").rglob("*.log")}
    assert {name for name in tries if tries.count(name) >= 3} == {*names, *(f"{name}~end" for name in names), *bases}, tries
    for kind in ("whole", "pieces"):
        found = tmp_path / f"out-{kind}"
        assert tree(found) == tree(tmp_path / "log")
        assert sorted(path.name for path in found.iterdir()) == sorted(path.name for path in (tmp_path / "log").iterdir())


@pytest.mark.slow
def test_the_command_line(commands: Commands, tmp_path: Path) -> None:
    """Texts, rows and exit codes are those of `kops log recover`."""
    for name, case_ids in (("lossy", ["damage-4.3.0-two-flips"]), ("whole", ["damage-4.3.0-none"])):
        paths = cluster(tmp_path / name, case_ids)
        paths = paths[:1] if name == "lossy" else paths
        for form in ("json", "table"):
            ours = commands("log", "recover", *paths, "--out", tmp_path / f"{name}-{form}", "--format", form, "--force")
            plan = commands("scan", "recover", "-n", *paths, "--out", tmp_path / f"{name}-{form}", "--format", form)
            theirs = commands("scan", "recover", *paths, "--out", tmp_path / f"{name}-{form}", "--format", form, "--force")
            assert ours.code == (64 if name == "lossy" else 1)
            assert (theirs.code, theirs.text, theirs.err) == (plan.code, plan.text, plan.err) == (ours.code, ours.text, ours.err)
    again = commands("scan", "recover", *paths, "--out", tmp_path / "whole-json")
    assert (again.code, "--resume continues" in again.err) == (16, True)
    assert commands("scan", "recover", *paths, "--out", tmp_path / "whole-json", "--resume").code == 1
    assert commands("scan", "recover", *paths, "--out", tmp_path / "x", "--as", "csv").code == 16
    assert commands("scan", "recover", paths[0], "--out", f"{paths[0]}/inside").code == 16
