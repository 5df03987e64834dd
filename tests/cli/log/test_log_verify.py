"""`kops log verify` and `kops log index` on the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.cli.running.exit_codes import CLEAN, FAILED, FIXED, INTERRUPTED, PROBLEMS, USAGE
from kops.files import OsFiles
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus
from tests.support.logs.verifying import folder

Kops = Callable[..., Ran]


def damaged(kind: str, tmp_path: Path) -> Path:
    """Return a writable copy of a damaged log directory."""
    target = tmp_path / "kafka"
    shutil.copytree(folder(f"damage-4.3.0-{kind}"), target, copy_function=corpus.copy_writable)
    return target


def test_clean(kops: Kops) -> None:
    """A clean log gives exit code 0 and one line."""
    ran = kops("log", "verify", str(folder("damage-4.3.0-none")))
    assert ran.code == CLEAN
    assert ran.text == "clean in 5 segments, 33 batches, 99 records, 9.2 KiB (level crc)\n"


def test_a_flipped_bit(kops: Kops) -> None:
    """A flipped bit gives exit code 4, and one line with its position and the number of lost offsets."""
    ran = kops("log", "verify", str(folder("damage-4.3.0-flip-body-old")))
    assert ran.code == PROBLEMS
    first, last = ran.text.splitlines()
    assert "/00000000000000000021.log:828 batch-crc-mismatch [30-32, 3 records]: " in first
    assert last.startswith("1 error, 0 warnings in 5 segments, 32 batches, 96 records, ")


def test_json(kops: Kops) -> None:
    """The JSON document follows the contract."""
    root = folder("damage-4.3.0-missing-middle-segment")
    ran = kops("log", "verify", "--format", "json", "--level", "full", str(root))
    document = json.loads(ran.out)
    assert ran.code == PROBLEMS
    assert list(document)[:2] == ["schema", "paths"]
    assert document["schema"] == "kops.verify/v1"
    assert document["paths"] == [str(root)]
    assert {"segments", "batches", "records", "bytes", "findings"} <= set(document)
    (found,) = document["findings"]
    assert list(found) == ["severity", "code", "file", "position", "length", "base_offset", "last_offset", "records", "detail", "fix"]
    assert (found["severity"], found["code"], found["base_offset"], found["last_offset"]) == ("error", "segment-gap", 21, 41)


def test_other_formats(kops: Kops) -> None:
    """jsonl and csv have one line per finding. Messages go to stderr."""
    root = str(folder("damage-4.3.0-two-flips"))
    lines = [json.loads(line) for line in kops("log", "verify", "--format", "jsonl", root).out.splitlines()]
    assert [line["code"] for line in lines] == ["batch-crc-mismatch"] * 2
    ran = kops("log", "verify", "--format", "csv", root)
    rows = list(csv.DictReader(io.StringIO(ran.text)))
    assert [row["position"] for row in rows] == [str(line["position"]) for line in lines]
    assert "2 errors" in ran.err
    assert "code: batch-crc-mismatch" in kops("log", "verify", "--format", "yaml", root).text
    assert "kops log recover" in kops("log", "verify", "--format", "wide", root).text


def test_infos_are_shown_when_asked_for(kops: Kops) -> None:
    """`-v` shows infos. Without it they are only counted."""
    root = str(corpus.load("broker-dir-4.3.0").root / "crash")
    assert "infos (-v shows)" in kops("log", "verify", root).text
    assert "index-preallocated" in kops("log", "verify", "-v", root).text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--level", "deeper"), "quick, crc, deep, full"),
        (("--sample", "7"), "n/t"),
        (("--max-duration", "soon"), "15m"),
        (("--resume-from", "nowhere.log"), "nowhere.log"),
    ],
)
def test_usage(kops: Kops, arguments: tuple[str, ...], words: str) -> None:
    """The error names a wrong value and the values that are allowed."""
    ran = kops("log", "verify", *arguments, str(folder("damage-4.3.0-none")))
    assert ran.code == USAGE
    assert words in ran.err


def test_a_path_that_is_not_there(kops: Kops) -> None:
    """A path that does not exist gives exit code 8."""
    ran = kops("log", "verify", "/no/such/dir")
    assert ran.code == FAILED
    assert "/no/such/dir" in ran.err


def test_single_files(kops: Kops) -> None:
    """A single `.log` is verified alone: its damage is reported, but not that its neighbours and side files are missing."""
    root = next(folder("damage-4.3.0-flip-body-old").glob("*-0"))
    ran = kops("log", "verify", "--format", "json", "--level", "full", str(root / f"{21:020d}.log"))
    document = json.loads(ran.out)
    assert [found["code"] for found in document["findings"]] == ["batch-crc-mismatch"]
    assert document["segments"] == 1
    ran = kops("log", "verify", str(root / f"{0:020d}.log"), str(root / f"{84:020d}.log"))
    assert ran.code == CLEAN


@pytest.mark.parametrize(
    ("kind", "name", "codes"),
    [
        ("index-garbage-old", f"{21:020d}.index", {"index-disorder"}),
        ("index-wrong-middle-entry", f"{21:020d}.index", {"index-disorder"}),
        ("timeindex-truncated-odd", f"{21:020d}.timeindex", {"index-size-odd"}),
        ("txnindex-garbage", f"{48:020d}.txnindex", {"transaction-index-malformed"}),
        ("txnindex-truncated", f"{0:020d}.txnindex", {"transaction-index-malformed"}),
        ("snapshot-corrupt-last", f"{99:020d}.snapshot", {"snapshot-malformed"}),
        ("leader-epoch-malformed", "leader-epoch-checkpoint", {"leader-epoch-file-malformed"}),
        ("partition-metadata-malformed", "partition.metadata", {"partition-metadata-malformed"}),
        ("none", f"{21:020d}.index", set()),
        ("none", f"{21:020d}.timeindex", set()),
        ("none", f"{99:020d}.snapshot", set()),
        ("none", "leader-epoch-checkpoint", set()),
    ],
)
def test_single_side_files(kops: Kops, kind: str, name: str, codes: set[str]) -> None:
    """An index is checked against the log beside it, any other file by itself."""
    path = next(folder(f"damage-4.3.0-{kind}").glob(f"*-0/{name}"))
    ran = kops("log", "verify", "--format", "json", str(path))
    found = {each["code"] for each in json.loads(ran.out)["findings"]}
    assert codes <= found and bool(codes) == bool(found)
    assert ran.code == (PROBLEMS if codes else CLEAN)


def wait_until_open(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait until the process has opened the file (if the system can tell), or for three seconds."""
    descriptors = Path(f"/proc/{process.pid}/fd")
    deadline = time.monotonic() + (60 if descriptors.is_dir() else 3)
    while time.monotonic() < deadline and process.poll() is None:
        if descriptors.is_dir() and str(path) in {os.readlink(each) for each in descriptors.iterdir() if os.path.lexists(each)}:
            return
        time.sleep(0.05)


def test_ctrl_c_keeps_what_is_known(tmp_path: Path) -> None:
    """The exit code is 32, plus 4 if a problem was found by then. The report covers what was read and says how to continue."""
    first = tmp_path / "a-0"
    shutil.copytree(next(folder("damage-4.3.0-flip-body-old").glob("*-0")), first)
    big = tmp_path / "b-0"
    big.mkdir()
    with open(big / f"{0:020d}.log", "wb") as file:
        file.truncate(40 << 30)  # a hole of zeroes: many seconds of reading
    command = [sys.executable, "-m", "kops", "log", "verify", "--jobs", "1", "--format", "json", str(first), str(big)]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until_open(process, big / f"{0:020d}.log")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED | PROBLEMS
    document = json.loads(out)
    assert [found["code"] for found in document["findings"]] == ["batch-crc-mismatch"]
    assert document["stopped"] == "interrupted"
    assert document["left_out"] == [str(big / f"{0:020d}.log")]
    assert f"--resume-from {big}" in err.decode()


def test_a_run_that_checked_nothing_does_not_say_clean(kops: Kops, tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    log = tmp_path / "a-0" / f"{0:020d}.log"
    log.write_bytes(bytes(100))
    ran = kops("log", "verify", "--max-duration", "1e-9", str(tmp_path / "a-0"))
    assert ran.text.splitlines() == ["nothing was checked (level crc); 1 segment left out"]
    assert f"--resume-from {log}" in ran.err


# index --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "index-empty-old",
        "index-garbage-active",
        "index-garbage-last-entry",
        "index-garbage-old",
        "index-truncated-entries",
        "index-truncated-odd",
        "index-wrong-middle-entry",
        "index-zero-tail",
        "missing-index-old",
        "missing-timeindex-old",
        "timeindex-empty-old",
        "timeindex-garbage-old",
        "timeindex-last-before-first",
        "timeindex-truncated-entries",
        "timeindex-truncated-odd",
        "txnindex-garbage",
        "txnindex-missing",
        "txnindex-truncated",
        "txnindex-wrong-version",
    ],
)
def test_rebuild_is_what_the_broker_wrote(kops: Kops, tmp_path: Path, kind: str) -> None:
    """`index check` finds the damage (4), a plan writes nothing, and rebuild repairs it byte for byte (1). Then check is clean (0), and
    nothing is left to do (0).
    """
    root = damaged(kind, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert kops("log", "index", "check", str(root)).code == PROBLEMS
    assert kops("log", "index", "diff", str(root)).code == CLEAN
    assert kops("log", "index", "rebuild", "-n", str(root)).code == PROBLEMS
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert kops("log", "index", "rebuild", "--yes", str(root)).code == FIXED
    clean = folder(f"damage-4.3.0-{kind}", "clean")
    wanted = {path.relative_to(clean): path.read_bytes() for path in clean.rglob("*") if path.is_file()}
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()} == wanted
    assert kops("log", "index", "check", str(root)).code == CLEAN
    assert kops("log", "index", "rebuild", "--yes", str(root)).code == CLEAN


def test_rebuild_can_be_undone(kops: Kops, tmp_path: Path) -> None:
    """The journal that it names undoes the rebuild."""
    root = damaged("index-garbage-old", tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ran = kops("log", "index", "rebuild", "--yes", "--format", "json", str(root))
    (journal,) = json.loads(ran.out)["journals"]
    assert kops("log", "repair", "--rollback", journal).code == FIXED
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_rebuild_refuses_while_a_broker_runs(kops: Kops, tmp_path: Path) -> None:
    """If a broker holds the lock, the exit code is 8 and nothing is written."""
    root = damaged("index-garbage-old", tmp_path)
    index = next(root.glob(f"*/{21:020d}.index"))
    before = index.read_bytes()
    with OsFiles().lock(str(root)):
        ran = kops("log", "index", "rebuild", "--yes", str(root))
    assert ran.code & FAILED
    assert "lock" in ran.err
    assert index.read_bytes() == before


def test_rebuild_asks(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, the command needs --yes or -n."""
    root = damaged("index-garbage-old", tmp_path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        ran = kops("log", "index", "rebuild", str(root))
    assert ran.code == USAGE
    assert "--yes" in ran.err


def test_rebuild_everything(kops: Kops, tmp_path: Path) -> None:
    """`--all` with another interval writes other entries, which are equally good."""
    root = damaged("none", tmp_path)
    assert kops("log", "index", "rebuild", "--yes", str(root)).code == CLEAN
    assert kops("log", "index", "rebuild", "--all", "--yes", "--index-interval-bytes", "1000", str(root)).code == FIXED
    assert kops("log", "index", "check", str(root)).code == CLEAN
    differences = json.loads(kops("log", "index", "diff", "--index-interval-bytes", "256", "--format", "json", str(root)).out)[
        "differences"
    ]
    assert differences and all((each["existing"] is None) != (each["rebuilt"] is None) for each in differences)


def test_rebuild_up_to_the_damage(kops: Kops, tmp_path: Path) -> None:
    """A damaged log gives an index up to the damage, and the command reports that."""
    root = damaged("flip-body-old", tmp_path)
    (next(root.glob("*-0")) / f"{21:020d}.index").unlink()
    ran = kops("log", "index", "rebuild", "--yes", str(root))
    assert ran.code & FIXED
    assert "the log is damaged at 828" in ran.err


def test_a_files_index_is_not_rebuilt(kops: Kops) -> None:
    """Only indexes of partitions and log directories can be rebuilt, not those of a single file."""
    for kind in ("log", "index"):
        path = next(folder("damage-4.3.0-none").glob(f"*-0/{0:020d}.{kind}"))
        ran = kops("log", "index", "rebuild", "-n", str(path))
        assert ran.code == USAGE
        assert f"{path}: is a file; name its partition directory" in ran.err


def test_a_log_directory_without_partitions_has_no_index_to_rebuild(kops: Kops, tmp_path: Path) -> None:
    """The log directory of a new broker has no index to rebuild, and its check is clean, too."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    for command in (("check",), ("rebuild", "-n"), ("rebuild", "--all", "-y")):
        assert kops("log", "index", *command, str(tmp_path)).code == CLEAN


def test_names_are_shown_on_one_line(kops: Kops, tmp_path: Path) -> None:
    """A finding is one line whatever a name contains. Nothing in a name moves the cursor."""
    for command in (("verify",), ("index", "check"), ("dump",)):
        place = tmp_path / f"a\nb\x1b[31m-{command[-1]}"
        place.mkdir()
        damaged("index-garbage-old", place)
        ran = kops("log", *command, str(place))
        assert "a\\nb\\x1b[31m" in ran.text
        assert not [line for line in ran.text.splitlines() if line.startswith("b")]
        assert "\x1b" not in ran.text


def test_a_path_without_anything_of_kafkas_is_never_clean(kops: Kops, tmp_path: Path) -> None:
    good = corpus.load("damage-4.3.0-none").copy(tmp_path / "node" / "log", "before")
    (tmp_path / "empty").mkdir()
    (tmp_path / "disks").mkdir()
    (tmp_path / "disks" / "one").symlink_to(good)
    (tmp_path / "copied.log").write_bytes(b"x")
    for command in (("verify",), ("index", "check"), ("index", "diff"), ("ls",), ("dump",)):
        for path in ("node", "disks", "node/log/payments-none-0"):
            assert kops("log", *command, str(tmp_path / path)).code == 0
        for paths in (["empty"], ["node", "empty"]):
            ran = kops("log", *command, *(str(tmp_path / path) for path in paths))
            assert ran.code == 16
            assert f"{tmp_path / 'empty'}: not a log directory or a partition directory, and contains none" in ran.err
        if command not in (("ls",), ("dump",)):
            ran = kops("log", *command, str(tmp_path / "copied.log"))
            assert ran.code == 16
            assert "not a name that Kafka gives its files" in ran.err


def test_a_file_that_cannot_be_read_adds_8(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is verified. The exit code says that something could not be done."""
    target = damaged("none", tmp_path)
    unreadable = sorted(target.glob("*/*.log"))[0]
    original = OsFiles.open

    def open_(self: OsFiles, path: str, *mode: str) -> object:
        if path == str(unreadable):
            raise PermissionError(13, "Permission denied", path)
        return original(self, path, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(OsFiles, "open", open_)
    ran = kops("log", "verify", str(target))
    assert ran.code == PROBLEMS | FAILED
    assert "Permission denied" in ran.text
    assert "in 4 segments" in ran.text
    ran = kops("log", "index", "check", str(target))
    assert ran.code == PROBLEMS | FAILED
    assert "Permission denied" in ran.text
    ran = kops("log", "index", "diff", str(target))
    assert ran.code == FAILED
    assert f"{unreadable}: Permission denied" in ran.err


def test_what_a_broker_deletes_meanwhile_is_told_as_such(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is gone after it was listed is no file that can't be read. One that is gone during the listing was never there."""
    target = damaged("none", tmp_path)
    first, *_, last = sorted(target.glob("*/*.log"))
    stat, open_ = OsFiles.stat, OsFiles.open

    def late_stat(self: OsFiles, path: str) -> object:
        if path == str(first.with_suffix(".timeindex")):
            os.unlink(path)
        return stat(self, path)

    def late_open(self: OsFiles, path: str, *mode: str) -> object:
        if path == str(last):
            os.unlink(path)
        return open_(self, path, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(OsFiles, "stat", late_stat)
    monkeypatch.setattr(OsFiles, "open", late_open)
    first.with_suffix(".link").symlink_to(tmp_path / "nowhere")
    ran = kops("log", "verify", "--format", "json", str(target))
    found = {Path(each["file"]).name: each["code"] for each in json.loads(ran.text)["findings"] if each["severity"] != "info"}
    assert found == {
        last.name: "file-changed",
        first.with_suffix(".link").name: "file-unreadable",
        first.stem + ".timeindex": "time-index-missing",
    }
    assert ran.code == PROBLEMS | FAILED  # the broken link


@pytest.mark.parametrize("kind", ["log", "index"])
@pytest.mark.parametrize("flags", [(), ("--all",)])
def test_indexes_are_rebuilt_beside_a_file_that_cannot_be_read(
    kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, flags: tuple[str, ...]
) -> None:
    """Indexes that depend on the file stay as they were, which is reported once. All others are repaired, in this partition and in the
    others.
    """
    target = damaged("none", tmp_path)
    indexes = {path: path.read_bytes() for path in sorted(target.glob("*/*index"))}
    refused = next(target.glob(f"*/00000000000000000021.{kind}"))

    def refusing(original: Callable[..., object]) -> Callable[..., object]:
        def refuse(self: OsFiles, path: str, *mode: str) -> object:
            if path == str(refused):
                raise PermissionError(13, "Permission denied", path)
            return original(self, path, *mode)

        return refuse

    for method in ("open", "read_all"):  # when compiled, neither of the two calls the other by its name
        monkeypatch.setattr(OsFiles, method, refusing(getattr(OsFiles, method)))
    lost = [path for path in indexes if path.suffix == ".timeindex" and path.stem != refused.stem]
    for path in lost:
        path.unlink()
    ran = kops("log", "index", "rebuild", "--yes", *flags, str(target))
    assert ran.code == FIXED | PROBLEMS | FAILED
    assert ran.err.count("Permission denied") == 1
    assert f"left: file-unreadable {refused}: Permission denied" in ran.err
    assert {path: path.read_bytes() for path in indexes} == indexes
    assert lost
