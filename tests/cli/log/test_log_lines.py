"""`kops log export`, `import`, `append` and `truncate` on the command line."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError
from kops.files import OsFiles
from kops.forensics.lines.exported import exported_partitions
from kops.forensics.lines.salvaged import ExportSource
from kops.forensics.plans.journal import locked
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus

Kops = Callable[..., Ran]
UNDAMAGED = "damage-4.3.0-none"
TWO_FLIPS = "damage-4.3.0-two-flips"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Provide a partition with 99 records in a log directory after a clean stop."""
    case = corpus.load(UNDAMAGED)
    return case.copy(tmp_path / "log", "before") / "payments-none-0"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def records(kops: Kops, partition: Path) -> list[dict[str, Any]]:
    ran = kops("log", "dump", "--print-data-log", "--format", "jsonl", str(partition))
    assert ran.code == 0
    return [json.loads(line) for line in ran.text.splitlines()]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_lines(path: Path, documents: list[Any]) -> str:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


# export and import --------------------------------------------------------------------------------------------------------------------


def test_export_import_export(kops: Kops, partition: Path, tmp_path: Path) -> None:
    before = contents(partition)
    file, other = str(tmp_path / "export.jsonl"), str(tmp_path / "again.jsonl")
    assert kops("log", "export", str(partition), "-o", file).code == 0
    assert contents(partition) == before
    ran = kops("log", "import", file, "--out", str(tmp_path / "new" / "logs"), "--format", "json")
    assert ran.code == 0
    report = json.loads(ran.text)
    assert report["schema"] == "kops.import/v1"
    (entry,) = report["partitions"]
    assert (entry["name"], entry["segments"], entry["records"], entry["last_offset"]) == ("payments-none-0", 5, 99, 98)
    assert kops("log", "export", entry["output"], "-o", other).code == 0
    assert Path(other).read_bytes() == Path(file).read_bytes()
    assert kops("log", "verify", "--level", "full", entry["output"]).code == 0
    again = kops("log", "import", file, "--out", str(tmp_path / "new" / "logs"))
    assert again.code == 16
    assert "exists" in again.err


def test_an_epoch_without_a_batch_is_kept(kops: Kops, partition: Path, tmp_path: Path) -> None:
    """A leader that wrote nothing has an entry in leader-epoch-checkpoint, and one whose first batches were compacted away a lower one.
    An export that lacks these lines, as older ones do, is still taken."""
    lines = [json.loads(line) for line in kops("log", "export", str(partition)).text.splitlines()]
    batches = [line for line in lines if line["schema"] == "kops.export-batch/v1"]
    epochs = [(0, 0), (2, batches[2]["baseOffset"]), (5, batches[4]["baseOffset"] + 1), (6, 99), (7, 120)]
    later = next(number for number, batch in enumerate(batches) if batch["baseOffset"] > epochs[2][1])
    for number, batch in enumerate(batches):
        batch["leaderEpoch"] = 0 if number < 2 else 2 if number < later else 5
    first = write_lines(tmp_path / "first.jsonl", lines)
    assert kops("log", "import", first, "--out", str(tmp_path / "first")).code == 0
    checkpoint = tmp_path / "first" / partition.name / "leader-epoch-checkpoint"
    assert len(read_leader_epoch_checkpoint(checkpoint.read_bytes())) == 3
    checkpoint.write_bytes(write_leader_epoch_checkpoint(starmap(EpochEntry, epochs)))
    second = str(tmp_path / "second.jsonl")
    assert kops("log", "export", str(checkpoint.parent), "-o", second).code == 0
    told = [json.loads(line) for line in Path(second).read_text().splitlines() if "kops.export-epoch/v1" in line]
    assert [(line["leaderEpoch"], line["startOffset"]) for line in told] == epochs[2:]
    assert kops("log", "import", second, "--out", str(tmp_path / "second")).code == 0
    again = tmp_path / "second" / partition.name / "leader-epoch-checkpoint"
    assert again.read_bytes() == checkpoint.read_bytes()


def test_import_with_the_topics_settings_gives_the_files(kops: Kops, partition: Path, tmp_path: Path) -> None:
    interval = corpus.load(UNDAMAGED).json["config"]["index.interval.bytes"]
    file = str(tmp_path / "export.jsonl")
    assert kops("log", "export", "--raw", str(partition), "-o", file).code == 0
    out = tmp_path / "logs"
    assert kops("log", "import", file, "--out", str(out), "--config", f"index.interval.bytes={interval}").code == 0
    assert contents(out / partition.name) == contents(partition)
    assert sorted(path.name for path in out.iterdir()) == [partition.name]


def test_export_tells_damage(kops: Kops, tmp_path: Path) -> None:
    case = corpus.load(TWO_FLIPS)
    path = case.copy(tmp_path / "log", "before")
    ran = kops("log", "export", str(path / Path(case.json["damagedDir"]).name))
    assert ran.code == 68
    assert "not exported: " in ran.err
    damage = [json.loads(line) for line in ran.text.splitlines() if "kops.damage/v1" in line]
    assert len(damage) == 2
    file = tmp_path / "export.jsonl"
    file.write_text(ran.text)
    assert kops("log", "import", str(file), "--out", str(tmp_path / "new")).code == 64


def test_export_refuses_what_is_not_kafkas(kops: Kops, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.txt").write_text("none")
    for name, words in (("empty", "not a log directory or a partition directory"), ("words.txt", "not a name that Kafka gives its files")):
        ran = kops("log", "export", str(tmp_path / name))
        assert (ran.code, ran.text) == (16, "")
        assert words in ran.err


def test_a_line_that_makes_no_sense_is_named(kops: Kops, partition: Path, tmp_path: Path) -> None:
    lines = kops("log", "export", str(partition)).text.splitlines()
    batches = [i for i, line in enumerate(lines) if "kops.export-batch/v1" in line]
    wrong = {
        "line 3 is not JSON": [*lines[:2], "{", *lines[3:]],
        "line 2 is not a JSON object": [lines[0], "[]"],
        "line 1: a segment without a partition": lines[1:],
        "line 1 has no 'schema', so it is not an export; kops log append takes plain records": ['{"value": "eA=="}'],
        "line 2: a record without a batch": [lines[0], lines[batches[0] + 1]],
        "line 2: kops.other/v1 is not a line of an export": [lines[0], '{"schema": "kops.other/v1"}'],
        "'../x-0' is not the name of a partition": [json.dumps(json.loads(lines[0]) | {"name": "../x-0"})],
        "'baseOffset'": [*lines[: batches[1]], lines[batches[1]].replace("baseOffset", "offset"), *lines[batches[1] + 1 :]],
        "the batch of offset 0": [*lines[: batches[1]], *lines[: batches[1]][2:]],
    }
    for number, (words, text) in enumerate(wrong.items()):
        file = tmp_path / "wrong.jsonl"
        file.write_text("\n".join(text) + "\n")
        ran = kops("log", "import", str(file), "--out", str(tmp_path / f"out{number}"))
        assert ran.code & 8, words
        assert words in ran.err
        assert not (tmp_path / "x-0").exists()
    # Everything before the line is there, complete.
    assert kops("log", "verify", "--level", "full", str(tmp_path / "out7")).code == 0
    assert records(kops, tmp_path / "out7" / partition.name)


def test_import_is_interrupted(tmp_path: Path, partition: Path, kops: Kops) -> None:
    lines = kops("log", "export", str(partition)).text.splitlines(keepends=True)
    command = [sys.executable, "-m", "kops", "log", "import", "-", "--out", str(tmp_path / "new")]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("".join(lines[:60]).encode() + b'{"schema": "kops.rec')
        process.stdin.flush()
        log = tmp_path / "new" / partition.name
        while not log.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=120)
    assert process.returncode == 32, words
    assert kops("log", "verify", "--level", "full", str(log)).code == 0


# append -------------------------------------------------------------------------------------------------------------------------------


def test_append(kops: Kops, partition: Path, tmp_path: Path) -> None:
    marker = (partition.parent / ".kafka_cleanshutdown").read_bytes()
    added = [
        {"offset": 5, "timestamp": 1_700_000_000_123, "key": b64(b"k"), "value": b64(b"v"), "headers": [["h", b64(b"1")], ["n", None]]},
        {"key": None, "value": None},
        {"schema": "kops.record/v1", "value": b64(b"x" * 100), "timestamp": 1},
        {"schema": "kops.record/v1", "value": b64(b"marker"), "control": {"type": "COMMIT"}},
    ]
    file = write_lines(tmp_path / "records.jsonl", added)
    ran = kops("log", "append", file, "--to", str(partition), "--format", "json", "--batch-size", "50", "--leader-epoch", "7")
    assert ran.code == 0
    report = json.loads(ran.text)
    assert report["schema"] == "kops.append/v1"
    assert (report["records"], report["batches"], report["first_offset"], report["last_offset"]) == (3, 1, 99, 101)
    got = records(kops, partition)[-3:]
    assert [record["offset"] for record in got] == [99, 100, 101]
    assert [(record["key"], record["value"]) for record in got] == [(b64(b"k"), b64(b"v")), (None, None), (None, b64(b"x" * 100))]
    assert got[0]["timestamp"] == 1_700_000_000_123
    assert got[0]["headers"] == [["h", b64(b"1")], ["n", None]]
    assert got[1]["timestamp"] > 1_700_000_000_123
    assert {record["leaderEpoch"] for record in got} == {7}
    assert kops("log", "verify", "--level", "full", str(partition.parent)).code == 0
    assert (partition.parent / ".kafka_cleanshutdown").read_bytes() == marker
    assert not (partition.parent / ".lock").exists()


def test_append_an_export_compressed(kops: Kops, partition: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "export.jsonl")
    assert kops("log", "export", str(partition), "-o", file).code == 0
    ran = kops("log", "append", file, "--to", str(partition), "--compression", "zstd", "--batch-size", "2000")
    assert ran.code == 0
    got = records(kops, partition)
    assert len(got) == 198
    keys = ("key", "value", "timestamp", "headers")
    assert [[record[key] for key in keys] for record in got[:99]] == [[record[key] for key in keys] for record in got[99:]]
    assert {record["batch"]["codec"] for record in got[99:]} == {"zstd"}


def test_append_into_a_new_folder_needs_one(kops: Kops, partition: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "records.jsonl", [{"value": "hi"}])
    assert kops("log", "append", file, "--to", str(tmp_path / "none-0"), "--value-encoding", "utf8").code == 8
    (tmp_path / "new-3").mkdir()
    assert kops("log", "append", file, "--to", str(tmp_path / "new-3"), "--value-encoding", "utf8").code == 0
    (record,) = records(kops, tmp_path / "new-3")
    assert (record["offset"], record["value"], record["leaderEpoch"]) == (0, b64(b"hi"), 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 is not JSON"),
        ('{"value": "!"}', "line 2 is not a record"),
        ('{"value": 7}', "line 2 is not a record"),
        ('{"key": "=="}', "line 2"),
    ],
)
@pytest.mark.parametrize("batch_size", ["1", "16384"])
def test_append_names_the_line_and_keeps_those_before(
    line: str, words: str, batch_size: str, kops: Kops, partition: Path, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps({"value": b64(b"one")}) + "\n" + line + "\n")
    ran = kops("log", "append", str(file), "--to", str(partition), "--batch-size", batch_size)
    assert ran.code == 8
    assert words in ran.err
    assert len(records(kops, partition)) == 100
    assert (partition.parent / ".kafka_cleanshutdown").exists()
    assert kops("log", "verify", "--level", "full", str(partition.parent)).code in (0, 4)


def test_append_is_refused(kops: Kops, partition: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "records.jsonl", [{"value": b64(b"x" * 2000)}])
    before = contents(partition.parent)
    with locked(OsFiles(), str(partition.parent)):
        assert kops("log", "append", file, "--to", str(partition)).code == 8
    assert contents(partition.parent) == before
    assert kops("log", "append", file, "--to", str(partition), "--compression", "rar").code == 16
    assert kops("log", "append", file, "--to", str(partition), "--config", "no.such=1").code == 16
    ran = kops("log", "append", file, "--to", str(partition), "--config", "max.message.bytes=1000")
    assert ran.code == 8
    assert "exceeds the maximum configured" in ran.err
    assert len(records(kops, partition)) == 99


def test_append_leaves_a_log_alone_that_a_start_would_cut(kops: Kops, tmp_path: Path) -> None:
    case = corpus.load(TWO_FLIPS)
    path = case.copy(tmp_path / "log", "before")
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    before = contents(path)
    file = write_lines(tmp_path / "records.jsonl", [{"value": b64(b"x")}])
    ran = kops("log", "append", file, "--to", str(path / Path(case.json["damagedDir"]).name))
    assert ran.code == 8
    assert "repair it first" in ran.err
    assert contents(path) == before


# truncate -----------------------------------------------------------------------------------------------------------------------------


def test_truncate_and_back(kops: Kops, partition: Path) -> None:
    log_dir = partition.parent
    before = contents(log_dir)
    for arguments in (("-n",), ()):
        plan = kops("log", "truncate", str(partition), "--to", "50", *arguments)
        assert plan.code == 0
        assert "nothing was written" in plan.err
        assert "offsets 48 to 98 go: 51 records in 17 batches" in plan.err
        assert "offset 50 is in the batch that begins at 48" in plan.err
    assert contents(log_dir) == before
    done = kops("log", "truncate", str(partition), "--to", "50", "--yes", "--format", "json")
    assert done.code == 64
    report = json.loads(done.text)
    assert (report["schema"], report["new_end_offset"], report["records"]) == ("kops.truncate/v1", 48, 51)
    assert [record["offset"] for record in records(kops, partition)] == list(range(48))
    assert kops("log", "verify", "--level", "full", str(log_dir)).code == 0
    assert "payments-none 0 48" in (log_dir / "recovery-point-offset-checkpoint").read_text()
    again = kops("log", "truncate", str(partition), "--to", "48", "--yes")
    assert again.code == 0
    assert "nothing to cut" in again.err
    assert kops("log", "repair", "--rollback", report["journal"]).code == 1
    assert contents(log_dir) == before


def test_truncate_takes_the_cleaners_checkpoint_back(kops: Kops, partition: Path) -> None:
    """Otherwise records that are appended after the cut would count as clean."""
    checkpoint = partition.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\npayments-none 0 90\nother 0 70\n")
    assert kops("log", "truncate", str(partition), "--to", "50", "--yes").code == 64
    active = max(int(path.stem) for path in partition.glob("*.log"))
    assert 0 < active <= 48
    assert checkpoint.read_text() == f"0\n2\npayments-none 0 {active}\nother 0 70\n"


def test_truncate_is_refused(kops: Kops, partition: Path) -> None:
    before = contents(partition.parent)
    with locked(OsFiles(), str(partition.parent)):
        assert kops("log", "truncate", str(partition), "--to", "50", "--yes").code == 8
    assert kops("log", "truncate", str(partition), "--to", "50", "--yes", "-n").code == 16
    assert kops("log", "truncate", str(partition.parent / "none-0"), "--to", "50").code == 8
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\npayments-none 0 10\n")
    ran = kops("log", "truncate", str(partition), "--to", "9")
    assert ran.code == 16
    assert "begins at offset 10" in ran.err
    checkpoint.write_bytes(before["log-start-offset-checkpoint"])
    assert contents(partition.parent) == before


def test_truncate_to_the_start(kops: Kops, partition: Path) -> None:
    assert kops("log", "truncate", str(partition), "--to", "0", "--yes").code == 64
    assert records(kops, partition) == []
    assert kops("log", "verify", "--level", "full", str(partition.parent)).code == 0


OUTPUTS = {"recover": ["--out", "out"], "compact": ["--out", "out"], "export": ["-o", "out"], "why-deleted": [], "undelete": ["-n"]}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_directory_that_cannot_be_listed_adds_8(kops: Kops, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has is missing from the output, although everything that was read is intact."""
    node = corpus.load("cluster-4.3.0").root / "nodes" / "n1"
    original = OsFiles.list

    def list_(self: OsFiles, path: str) -> list[str]:
        if path.endswith("sensor.readings-multi-0"):
            raise PermissionError(13, "Permission denied", path)
        return original(self, path)

    monkeypatch.setattr(OsFiles, "list", list_)
    ran = kops("log", command, str(node), *(str(tmp_path / one) if one == "out" else one for one in OUTPUTS[command]))
    assert ran.code == 8
    assert f"kops: warning: {node}/sensor.readings-multi-0: Permission denied\n" in ran.err


def test_an_export_that_lacks_records_is_not_imported(kops: Kops, partition: Path, tmp_path: Path) -> None:
    """A batch whose header promises more records than it has could not be read at all."""
    lines = kops("log", "export", str(partition)).text.splitlines(keepends=True)
    head = next(number for number, line in enumerate(lines, 1) if "export-batch" in line and json.loads(line)["count"] > 2)
    words = f"line {head}: {{}}, but the batch has {json.loads(lines[head - 1])['count']}; the export is cut, or lines of it are missing"
    for name, left in (("cut", lines[: head + 1]), ("filtered", [*lines[:head], *lines[head + 1 :]])):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(left))
        ran = kops("log", "import", str(file), "--out", str(tmp_path / name))
        follow = "1 record follows" if name == "cut" else f"{json.loads(lines[head - 1])['count'] - 1} records follow"
        assert ran.code == 8
        assert ran.err.endswith(f"kops: error: {file}: {words.format(follow)}\n")
        with pytest.raises(DecodeError, match="the export is cut"):
            deque(batch for part in exported_partitions(str(file)) for batch in part.batches())


def batch_starts(lines: list[str]) -> list[int]:
    """The numbers of the lines, from 0, that begin a batch."""
    return [number for number, line in enumerate(lines) if "kops.export-batch/v1" in line]


def test_an_export_that_is_cut_between_two_batches_is_noticed(kops: Kops, partition: Path, tmp_path: Path) -> None:
    lines = kops("log", "export", str(partition)).text.splitlines(keepends=True)
    last = json.loads(lines[-1])
    assert last == {"schema": "kops.export-end/v1", "partitions": 1, "segments": 5, "batches": 33, "records": 99, "damaged": 0}
    starts = batch_starts(lines)
    for name, end in (("some", starts[4]), ("all", len(lines) - 1), ("none", 1)):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(lines[:end]))
        ran = kops("log", "import", str(file), "--out", str(tmp_path / name))
        assert ran.code == 8
        assert f"kops: error: {file}: the export is cut: its last line (kops.export-end/v1) is missing" in ran.err
        made = tmp_path / name / partition.name
        wanted = {"some": json.loads(lines[starts[4]])["baseOffset"], "all": 99, "none": 0}[name]
        ends = f"ends with offset {wanted - 1}" if wanted else "is empty"
        assert f"imported: {len([at for at in starts if at < end])} batches, {wanted} records in 1 partition; {made} {ends}\n" in ran.err
        if wanted:
            assert [record["offset"] for record in records(kops, made)] == list(range(wanted))
        with pytest.raises(DecodeError, match="its last line"):
            exported_partitions(str(file))
    (tmp_path / "empty.jsonl").write_text("")
    ran = kops("log", "import", str(tmp_path / "empty.jsonl"), "--out", str(tmp_path / "empty"))
    assert (ran.code, "is empty, so it is no export" in ran.err) == (8, True)


def test_an_export_that_lacks_batches_is_noticed(kops: Kops, partition: Path, tmp_path: Path) -> None:
    lines = kops("log", "export", str(partition)).text.splitlines(keepends=True)
    starts = batch_starts(lines)
    file = tmp_path / "filtered.jsonl"
    file.write_text("".join([*lines[: starts[1]], *lines[starts[3] :]]))
    ran = kops("log", "import", str(file), "--out", str(tmp_path / "out"))
    assert ran.code == 8
    words = "the export had 33 batches, 99 records, but before this line there are 31 batches, 93 records"
    assert f"{file}: line {len(lines) - (starts[3] - starts[1])}: {words}; lines of it are missing or repeated" in ran.err


def test_exports_of_the_first_shape_and_several_in_a_file(kops: Kops, partition: Path, tmp_path: Path) -> None:
    """The partitions of the first shape have no log start offset, and nothing ends an export."""
    lines = kops("log", "export", "--raw", str(partition)).text.splitlines()
    first = json.loads(lines[0])
    assert (first["schema"], first["logStartOffset"]) == ("kops.export-partition/v2", 0)
    old = [json.dumps({"schema": "kops.export-partition/v1", "name": "old-0", "topicId": None}), *lines[1:-1]]
    other = [json.dumps(first | {"name": "other-0"}), *lines[1:]]
    for name, text, parts in (("old", old, 1), ("both", [*old, *other], 2), ("two", [*lines, *other], 2)):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(text) + "\n")
        ran = kops("log", "import", str(file), "--out", str(tmp_path / name))
        assert (ran.code, ran.err) == (0, "")
        assert len(exported_partitions(str(file))) == parts
        assert len(list((tmp_path / name).glob("*/*.log"))) == 5 * parts
    made, log = tmp_path / "old" / "old-0", f"{0:020d}.log"
    assert (made / log).read_bytes() == (partition / log).read_bytes()


def test_the_log_start_offset_comes_back(kops: Kops, partition: Path, tmp_path: Path) -> None:
    """Records below it were deleted, even if their segment is still there. A consumer must not get them back."""
    log_dir = partition.parent
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\npayments-none 0 7\n")
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 7\n")
    file = tmp_path / "export.jsonl"
    assert kops("log", "export", "--raw", str(log_dir), "-o", str(file)).code == 0
    assert json.loads(file.read_text().splitlines()[0])["logStartOffset"] == 7
    out = tmp_path / "out"
    out.mkdir()
    (out / "log-start-offset-checkpoint").write_text("0\n1\nother 3 12\n")
    assert (
        json.loads(kops("log", "import", str(file), "--out", str(out), "--format", "json").text)["partitions"][0]["log_start_offset"] == 7
    )
    written = read_offset_checkpoint((out / "log-start-offset-checkpoint").read_bytes())
    assert written == {("other", 3): 12, ("payments-none", 0): 7}
    made = out / partition.name
    assert (made / "leader-epoch-checkpoint").read_bytes() == (partition / "leader-epoch-checkpoint").read_bytes()
    assert (made / f"{0:020d}.log").read_bytes() == (partition / f"{0:020d}.log").read_bytes()
    [started] = json.loads(kops("log", "forecast", str(made), "--format", "json").text)["partitions"]
    assert (started["log_start_offset"], started["log_end_offset"], started["lost"]) == (7, 99, [])
    (part,) = exported_partitions(str(file))
    assert [record.offset for record in ExportSource(part, "t").records(0)] == list(range(7, 99))
    # A part of a log has no start of its own.
    ran = kops("log", "export", str(partition / f"{0:020d}.log"))
    assert json.loads(ran.text.splitlines()[0])["logStartOffset"] is None


def test_an_export_without_its_log_start_offset(kops: Kops, partition: Path) -> None:
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    checkpoint.unlink()
    checkpoint.mkdir()
    ran = kops("log", "export", str(partition))
    words = f"{checkpoint}: Is a directory; the log start offset of {partition.name} is not in the export"
    assert (ran.code, ran.err) == (8, f"kops: warning: {words}\n")
    assert json.loads(ran.text.splitlines()[0])["logStartOffset"] is None
    assert json.loads(ran.text.splitlines()[-1])["records"] == 99


WRONG_STARTS = {"-1": -1, "text": "7", "true": True}


@pytest.mark.parametrize("start", WRONG_STARTS.values(), ids=WRONG_STARTS)
def test_a_log_start_offset_that_makes_no_sense(kops: Kops, partition: Path, tmp_path: Path, start: object) -> None:
    lines = kops("log", "export", str(partition)).text.splitlines(keepends=True)
    file = tmp_path / "export.jsonl"
    file.write_text("".join([json.dumps(json.loads(lines[0]) | {"logStartOffset": start}) + "\n", *lines[1:]]))
    ran = kops("log", "import", str(file), "--out", str(tmp_path / "out"))
    assert (ran.code, f"line 1: a log can't start at offset {start}" in ran.err) == (8, True)


# plain words --------------------------------------------------------------------------------------------------------------------------

UNLOADABLE: dict[str, tuple[str, bytes, str]] = {
    "no offset": ("x.log", b"", "the name of the file x.log does not begin with an offset (NumberFormatException)"),
    "epochs": ("leader-epoch-checkpoint", b"0\n1\n0 x\n", "leader-epoch-checkpoint: "),
    "topic id": ("partition.metadata", b"version: 0\ntopic_id", "partition.metadata: "),
}


@pytest.mark.parametrize("command", ["append", "truncate"])
@pytest.mark.parametrize("name,data,words", UNLOADABLE.values(), ids=UNLOADABLE)
def test_a_log_that_no_broker_can_load(
    kops: Kops, partition: Path, tmp_path: Path, command: str, name: str, data: bytes, words: str
) -> None:
    """The message is for somebody who does not read Java."""
    (partition / name).write_bytes(data)
    before = contents(partition.parent)
    file = write_lines(tmp_path / "records.jsonl", [{"value": b64(b"x")}])
    ran = (
        kops("log", "append", file, "--to", str(partition)) if command == "append" else kops("log", "truncate", str(partition), "--to", "9")
    )
    assert ran.code == 8
    (line,) = ran.err.splitlines()
    assert line.startswith(f"kops: error: {partition}: a broker can't load this log: ")
    assert words in line
    assert line.endswith("; kops log repair may mend it")
    assert not re.search(r"java\.|org\.apache|For input string", line)
    assert contents(partition.parent) == before
