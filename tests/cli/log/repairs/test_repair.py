"""`kops log repair` and `kops log recover` on the command line: output, exit codes, rejections."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.cli.commands.log.recover import resume_line
from kops.files import OsFiles
from kops.forensics.repair.run import locked
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus

Kops = Callable[..., Ran]
TWO_FLIPS = "damage-4.3.0-two-flips"
UNDAMAGED = "damage-4.3.0-none"
TAIL = "damage-4.3.0-zero-tail"
INDEX = "damage-4.3.0-index-garbage-old"


def log_dir(case_id: str, target: Path) -> str:
    return str(corpus.load(case_id).copy(target / "log", "before"))


def contents(folder: str | Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def document(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_plan_then_repair_then_clean(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    before = contents(path)
    plan = kops("log", "repair", path)
    assert plan.code == 4
    assert contents(path) == before
    assert "rewrite-log" in plan.text
    assert "nothing was written" in plan.err
    assert kops("log", "repair", "-n", path, "--format", "jsonl").text.count("\n") == 6
    done = kops("log", "repair", "-y", path)
    assert done.code == 1
    assert "journal: " in done.err
    assert kops("log", "verify", "--level", "full", path).code == 0
    again = kops("log", "repair", "-y", path)
    assert (again.code, again.text) == (0, "")
    assert "nothing to do" in again.err


def test_rollback(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    before = contents(path)
    (journal,) = document(kops("log", "repair", "-y", path, "--format", "json"))["journals"]
    assert Path(journal).parent == Path(path + ".kops-journal")
    assert contents(path) != before
    folder = kops("log", "repair", "--rollback", str(Path(journal).parent))
    assert folder.code == 8
    assert f"not the journal of a repair; the journals in it are {Path(journal).name}" in folder.err
    log = next(Path(path).rglob("00000000000000000021.log"))
    repaired = log.read_bytes()
    log.write_bytes(repaired + b"x")
    refused = kops("log", "repair", "--rollback", journal)
    assert refused.code == 8
    assert "changed since the repair" in refused.err
    log.write_bytes(repaired)
    assert kops("log", "repair", "--rollback", journal).code == 1
    assert contents(path) == before
    assert kops("log", "repair", "--rollback", journal).code == 0


def test_the_document(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    found = document(kops("log", "repair", "-n", path, "--format", "json"))
    assert found["schema"] == "kops.repair/v1"
    assert found["mode"] == "plan"
    (plan,) = found["plans"]
    assert {"action", "path", "why", "lossless", "size", "kept_bytes"} == set(plan["steps"][0])
    assert [problem["code"] for problem in plan["findings"]] == ["batch-crc-mismatch", "batch-crc-mismatch"]
    assert found["left"] == found["journals"] == []


@pytest.mark.parametrize(("case_id", "code"), [(UNDAMAGED, 0), (INDEX, 1), (TAIL, 1), (TWO_FLIPS, 4)])
def test_preen(kops: Kops, case_id: str, code: int, tmp_path: Path) -> None:
    path = log_dir(case_id, tmp_path)
    ran = kops("log", "repair", "-p", path)
    assert ran.code == code
    if code == 4:
        assert "held back" in ran.err
    assert kops("log", "repair", "-y", path).code == (1 if code == 4 else 0)


def test_one_partition_and_a_journal_elsewhere(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    assert kops("log", "repair", "-y", path + "/clicks-two-flips-0", "--journal", str(tmp_path / "journals")).code == 1
    assert [each.name for each in (tmp_path / "journals").iterdir()] == ["log.kops-journal"]
    assert kops("log", "verify", "--level", "full", path).code == 0


def test_nothing_while_a_broker_runs(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    before = contents(path)
    with locked(OsFiles(), path):
        ran = kops("log", "repair", "-y", path)
        assert ran.code == 8
        assert "stop the broker first" in ran.err
        assert kops("log", "repair", "-n", path).code == 4
    assert contents(path) == before


def test_a_journal_that_was_changed_is_named(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    assert kops("log", "repair", "-y", path).code == 1
    (journal,) = Path(path + ".kops-journal").iterdir()
    (journal / "journal.jsonl").write_bytes((journal / "journal.jsonl").read_bytes()[:100])
    for arguments in (("-n", path), ("-y", path), ("--rollback", str(journal))):
        ran = kops("log", "repair", *arguments)
        assert ran.code == 8
        assert ran.err.startswith(f"kops: error: {journal}/journal.jsonl: line 1: not JSON. The journal of this repair was changed")
    journal.rename(tmp_path / "away")
    assert kops("log", "repair", "-y", path).code == 0


def test_wrong_usage(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(UNDAMAGED, tmp_path)
    for arguments in (
        (),
        ("-n", "-y", path),
        ("--rollback", path, path),
        (next(str(log) for log in Path(path).rglob("*.log")),),
    ):
        assert kops("log", "repair", *arguments).code == 16
    assert kops("log", "repair", str(tmp_path / "missing")).code == 8
    assert kops("log", "repair", "--rollback", path).code == 8
    (tmp_path / "empty").mkdir()
    assert kops("log", "repair", str(tmp_path / "empty")).code == 16


@pytest.mark.parametrize(("case_id", "code"), [(UNDAMAGED, 0), (TAIL, 1), (TWO_FLIPS, 64)])
def test_recover_exit_codes(kops: Kops, case_id: str, code: int, tmp_path: Path) -> None:
    path = log_dir(case_id, tmp_path)
    before = contents(path)
    ran = kops("log", "recover", path, "--out", str(tmp_path / "out"))
    assert ran.code == code
    assert contents(path) == before
    assert kops("log", "recover", path, "--out", str(tmp_path / "out")).code == 16
    assert kops("log", "recover", path, "--out", str(tmp_path / "out"), "--resume").code == code
    assert kops("log", "recover", path, "--out", str(tmp_path / "out"), "--force").code == code
    both = kops("log", "recover", path, "--out", str(tmp_path / "out"), "--resume", "--force")
    assert (both.code, "give only one of --resume and --force" in both.err) == (16, True)


def test_recover_prints_what_is_lost(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(TWO_FLIPS, tmp_path)
    table = kops("log", "recover", path, "--out", str(tmp_path / "out"))
    assert "21-23, 87-89" in table.text
    found = document(kops("log", "recover", path, "--out", str(tmp_path / "json"), "--as", "jsonl", "--format", "json"))
    assert found["schema"] == "kops.recover/v1"
    (entry,) = found["partitions"]
    assert (entry["lost"], entry["records"], entry["complete"]) == ([[21, 23], [87, 89]], 93, True)
    lines = (tmp_path / "json" / "clicks-two-flips-0.jsonl").read_text().splitlines()
    assert len(lines) == 93
    assert {json.loads(line)["schema"] for line in lines} == {"kops.record/v1"}
    assert list(json.loads(lines[0]))[:8] == ["schema", "offset", "timestamp", "tsType", "key", "value", "headers", "leaderEpoch"]


def _with_a_directory(path: Path, name: str) -> Path:
    """Make a log directory with a directory in the place of one of its files, and without another file."""
    corpus.load("broker-damage-4.3.0-none").copy(path, "before/disk1")
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    (path / name / "kept").write_bytes(b"x")
    (path / "orders-0" / "00000000000000000015.index").unlink()
    return path / name


def test_a_directory_in_the_place_of_records_is_named_and_the_rest_is_repaired(kops: Kops, tmp_path: Path) -> None:
    path = tmp_path / "log"
    place = _with_a_directory(path, "orders-0/00000000000000000030.log")
    ran = kops("log", "repair", "-n", str(path))
    assert ran.code == 4
    assert f"{place}: is a directory, so the file that belongs there can't be written" in ran.err
    assert f"left: log-file-missing {place}: " in ran.err
    assert "00000000000000000015.index" in ran.text
    assert str(place) not in ran.text
    assert kops("log", "repair", "-y", str(path)).code == 5
    assert (path / "orders-0" / "00000000000000000015.index").is_file()
    assert (place / "kept").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name", ["00000000000000000030.index", "00000000000000000030.timeindex", "leader-epoch-checkpoint", "partition.metadata"]
)
def test_a_directory_in_the_place_of_what_can_be_rebuilt_is_taken_away(kops: Kops, tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    place = _with_a_directory(path, f"orders-0/{name}")
    plan = kops("log", "repair", "-n", str(path))
    assert (plan.code, str(place) in plan.text, (place / "kept").read_bytes()) == (4, True, b"x")
    assert kops("log", "repair", "-y", str(path)).code == 1
    assert place.is_file()
    assert kops("log", "verify", str(path)).code == 0


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_directory_in_place_of_a_brokers_file_is_removed_first(kops: Kops, tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    corpus.load("broker-damage-4.3.0-none").copy(path, "before/disk1")
    (path / name).unlink()
    (path / name).mkdir()
    plan = kops("log", "repair", "-n", str(path))
    assert (plan.code, plan.text.count("remove-foreign-directory")) == (4, 1)
    assert kops("log", "repair", "-y", str(path)).code == 5
    assert not (path / name).exists()
    again = kops("log", "repair", "-y", str(path))
    if name == "meta.properties":  # nothing else on this disk says which cluster it belongs to
        assert (again.code, "left: meta-properties-missing" in again.err) == (4, True)
    else:
        assert (again.code, (path / name).is_file()) == (1, True)


def test_a_directory_in_a_snapshots_place_is_passed_over(kops: Kops, tmp_path: Path) -> None:
    path = tmp_path / "log"
    corpus.load("broker-damage-4.3.0-none").copy(path, "before/disk1")
    wrong, right = (path / "orders-0" / f"000000000000000000{base}.snapshot" for base in (15, 30))
    wrong.unlink()
    wrong.mkdir()
    before = right.read_bytes()
    right.write_bytes(b"garbage")
    assert kops("log", "repair", "-y", str(path)).code == 1
    assert right.read_bytes() == before


def test_recover_wrong_usage(kops: Kops, tmp_path: Path) -> None:
    path = log_dir(UNDAMAGED, tmp_path)
    out = str(tmp_path / "out")
    for arguments in (
        (path,),
        (path, "--out", out, "--as", "xml"),
        (path, "--out", out, "--keep-gaps", "--renumber"),
        (path, "--out", path),
    ):
        assert kops("log", "recover", *arguments).code == 16
    assert kops("log", "recover", str(tmp_path / "missing"), "--out", out).code == 8
    (tmp_path / "empty").mkdir()  # an empty mount, say: nothing was recovered from it
    ran = kops("log", "recover", str(tmp_path / "empty"), "--out", out)
    assert (ran.code, "not a log directory or a partition directory, and contains none" in ran.err) == (16, True)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_leaves_whole_partitions_and_says_how_to_go_on(tmp_path: Path) -> None:
    source = corpus.load(TWO_FLIPS).root / "before" / "clicks-two-flips-0"
    for number in range(300):
        (tmp_path / "log" / f"t-{number}").mkdir(parents=True)
        for log in source.glob("*.log"):
            (tmp_path / "log" / f"t-{number}" / log.name).symlink_to(log)
    out = tmp_path / "out"
    rest = [str(tmp_path / "log"), "--out", str(out), "--no-leftovers"]
    command = [sys.executable, "-m", "kops", "log", "recover", *rest]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "kops-recover.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode & 32, errors
    assert f"kops log recover --resume {shlex.join(rest)}" in errors
    whole = [path for path in out.iterdir() if path.is_dir()]
    assert whole and not [path for path in whole if path.name.endswith(".kops-partial")]
    report = json.loads((out / "kops-recover.json").read_text())
    assert {entry["partition"] for entry in report["partitions"]} == {path.name for path in whole}
    assert all(len(list(Path(entry["output"]).iterdir())) == 21 for entry in report["partitions"] if entry["complete"])
    assert sum(not entry["complete"] for entry in report["partitions"]) <= 1


def test_the_command_that_resumes_has_all_options() -> None:
    line = resume_line("kops log recover", ["/a b"], "/out", "jsonl", renumber=True, no_leftovers=True, more=["--master", "local[2]"])
    assert line == "kops log recover --resume '/a b' --out /out --as jsonl --renumber --no-leftovers --master 'local[2]'"
