"""`kops log dump` and `kops log ls` on the command line: formats, exit codes, messages, pipes. They never write anything."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.records import BatchBuilder
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus

Kops = Callable[..., Ran]


def part(case_id: str) -> Path:
    """Return the partition's folder of a case."""
    case = corpus.load(case_id)
    if case.json["kind"] == "damage":
        return case.root / "before" / str(case.json["damagedDir"]).removeprefix("before/")
    return next(path for path in sorted((case.root / "data").iterdir()) if path.is_dir())


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        found[str(path)] = (stat.st_size, stat.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


def test_kafkas_text_on_both_streams(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    case = corpus.load("v2-4.3.0-retention")
    monkeypatch.chdir(case.root)
    folder = part("v2-4.3.0-retention").relative_to(case.root)
    log = next(path for path in sorted(folder.glob("*.log")) if not path.name.startswith("00000000000000000000"))
    expected = case.read(f"truth/dump/{log}.deep.txt").decode()
    ran = kops("log", "dump", "--format", "kafka", "--deep-iteration", "--print-data-log", str(log))
    assert ran.code == 0
    printed, mark, words = expected.partition("Non-consecutive offsets in ")
    assert mark, "a segment that does not begin at 0 makes Kafka's tool say this"
    assert ran.text == printed
    assert ran.err == mark + str(case.root / words) if words.startswith("/") else ran.err == f"{mark}{case.root}/{words}"


def test_files_as_kafkas_tool_takes_them(kops: Kops) -> None:
    folder = part("v2-4.3.0-codec-none")
    names = [str(path) for path in sorted(folder.glob("*.log"))]
    assert (
        kops("log", "dump", "--format", "kafka", "--files", ",".join(names) + ",").out
        == kops("log", "dump", "--format", "kafka", *names).out
    )
    ran = kops("log", "dump", "--format", "kafka", str(folder / "partition.metadata"))
    assert (ran.code, ran.text) == (0, f"Dumping {folder}/partition.metadata\n")
    assert ran.err == f"Ignoring unknown file {folder}/partition.metadata\n"


def test_damage_is_told_and_counts(kops: Kops) -> None:
    folder = part("damage-4.3.0-flip-body-old")
    ran = kops("log", "dump", "--format", "kafka", "--print-data-log", str(folder / "00000000000000000021.log"))
    assert ran.code == 4
    assert "isvalid: false" in ran.text and "| offset: 41 " in ran.text
    assert "21.log:828: the checksum of the batch is wrong (offsets 30 to 32)" in ran.err
    ran = kops("log", "dump", "--print-data-log", "--format", "jsonl", str(folder / "00000000000000000021.log"))
    assert ran.code == 4
    (damage,) = [row["damage"] for row in documents(ran.text) if row["schema"] == "kops.damage/v1"]
    assert (damage["position"], damage["code"], damage["baseOffset"], damage["lastOffset"]) == (828, "crc-mismatch", 30, 32)
    ran = kops("log", "dump", str(folder / "00000000000000000021.log"))
    assert ran.code == 4 and "crc-mismatch" in ran.err


@pytest.mark.parametrize(
    ("case_id", "name", "schema", "code"),
    [
        ("damage-4.3.0-index-truncated-odd", "00000000000000000084.index", "kops.index-entry/v1", 4),
        ("v2-4.3.0-codec-none", "leader-epoch-checkpoint", "kops.leader-epoch/v1", 0),
        ("v2-4.3.0-codec-none", "partition.metadata", "kops.file/v1", 0),
    ],
)
def test_other_files(kops: Kops, case_id: str, name: str, schema: str, code: int) -> None:
    folder = part(case_id)
    path = folder / name if (folder / name).exists() else next(iter(sorted(folder.glob("*.index"))))
    ran = kops("log", "dump", "--format", "json", str(path))
    found = json.loads(ran.text)
    assert found["schema"] == "kops.dump/v1"
    assert any(row["schema"] == schema for row in found["documents"])
    assert ran.code in (code, 0)


def test_formats(kops: Kops) -> None:
    folder = part("v2-4.3.0-transactions")
    log = str(sorted(folder.glob("*.log"))[0])
    records = documents(kops("log", "dump", "--print-data-log", "--format", "jsonl", log).text)
    assert list(records[0])[:8] == ["schema", "offset", "timestamp", "tsType", "key", "value", "headers", "leaderEpoch"]
    rows = list(csv.DictReader(io.StringIO(kops("log", "dump", "--print-data-log", "--format", "csv", log).text)))
    assert [int(row["offset"]) for row in rows] == [record["offset"] for record in records]
    table = kops("log", "dump", "--print-data-log", log).text.splitlines()
    assert table[0] == log and len([line for line in table[2:] if line]) == len(records)
    assert "baseOffset: 0" in kops("log", "dump", "--format", "yaml", log).text
    assert json.loads(kops("log", "dump", "--format", "json", "--print-data-log", log).text)["documents"] == records


def test_filters_and_encodings(kops: Kops) -> None:
    folder = str(part("v2-4.3.0-transactions"))
    found = documents(
        kops("log", "dump", "--format", "jsonl", "--key", "^key-2$", "--key-encoding", "utf8", "--to-offset", "40", folder).text
    )
    assert found and {row["key"] for row in found} == {"key-2"} and all(row["offset"] <= 40 for row in found)
    control = documents(kops("log", "dump", "--format", "jsonl", "--print-data-log", "--control", folder).text)
    assert control and all("control" in row["batch"]["flags"] for row in control)
    text = kops("log", "dump", "--format", "kafka", "--print-data-log", "--from-offset", "1", "--to-offset", "1", folder).text
    assert [line.split()[2] for line in text.splitlines() if line.startswith("| offset")] == ["1"]
    committed = documents(kops("log", "dump", "--format", "jsonl", "--isolation", "read_committed", folder).text)
    everything = documents(kops("log", "dump", "--format", "jsonl", "--isolation", "read_uncommitted", folder).text)
    assert 0 < len(committed) < len(everything)


def test_decoders(kops: Kops) -> None:
    log = str(sorted(part("v2-4.3.0-transactions").glob("*.log"))[0])
    text = kops("log", "dump", "--format", "kafka", "--value-decoder-class", "binascii:hexlify", log).text
    assert "payload: b'" in text
    ran = kops("log", "dump", "--format", "kafka", "--value-decoder-class", "com.example.Decoder", log)
    assert ran.code == 16 and "--value-decoder-class com.example.Decoder: no such decoder" in ran.err
    ran = kops("log", "dump", "--format", "kafka", "--key-decoder-class", "nowhere:decode", log)
    assert ran.code == 16 and "can't be imported" in ran.err
    ran = kops("log", "dump", "--format", "kafka", "--key-decoder-class", "IntegerDecoder", log)
    assert ran.code == 4 and "rejects" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 16, "name the files or directories"),
        (["--offset-decoder"], 16, "no such option: --offset-decoder"),
        (["--offsets-decoder", "--share-group-state-decoder", "."], 16, "choose one"),
        (["/nowhere/at-0"], 8, "/nowhere/at-0: no such file or directory"),
        (["--from-time", "soon", "."], 16, "--from-time soon"),
        (["--isolation", "dirty", "."], 16, "--isolation dirty: not one of"),
        (["--key-encoding", "rot13", "."], 16, "--key-encoding rot13: not one of"),
        (["--files", "a,,b"], 16, "a name between two commas is empty"),
        (["--index-sanity-check", "."], 16, "--index-sanity-check: only with --format kafka"),
        (["--isolation", "read_committed", "--format", "kafka", "."], 16, "--isolation: not available with --format kafka"),
        (["--max-bytes", "-1", "."], 16, "--max-bytes"),
    ],
)
def test_wrong_words(kops: Kops, arguments: list[str], code: int, words: str) -> None:
    ran = kops("log", "dump", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert ran.out == b""


def internal(topic: str) -> Path:
    """Return the largest segment of an internal topic on the brokers of the corpus's cluster."""
    root = corpus.load("cluster-4.3.0").root / "nodes"
    return max(root.glob(f"*/{topic}-*/*.log"), key=lambda path: path.stat().st_size)


def test_records_of_internal_topics(kops: Kops) -> None:
    """Keys and values are shown as JSON, also of one transactional id alone. A foreign record is shown as it is, and the dump goes on."""
    segment = internal("__transaction_state")
    ran = kops("log", "dump", "--transaction-log-decoder", "--format", "jsonl", str(segment))
    found = [json.loads(row["key"])["data"]["transactionalId"] for row in documents(ran.text)]
    wanted = found[0]
    assert ran.code == 0 and found
    only = kops("log", "dump", "--txn-id", wanted, "--transaction-log-decoder", "--format", "jsonl", str(segment))
    assert [row["offset"] for row in documents(only.text)] == [
        row["offset"] for row, name in zip(documents(ran.text), found, strict=True) if name == wanted
    ]
    assert kops("log", "dump", "--txn-id", f"{wanted}-other", "--format", "jsonl", str(segment)).out == b""
    segment = next((part("v2-4.3.0-codec-none")).glob("*.log"))
    plain = kops("log", "dump", "--print-data-log", "--format", "kafka", str(segment))
    foreign = kops("log", "dump", "--cluster-metadata-decoder", "--format", "kafka", str(segment))
    assert foreign.code == 4 and "can't be decoded" in foreign.err
    assert foreign.out == plain.out


def test_a_file_that_cannot_be_read_does_not_keep_the_others(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kops.files import OsFiles

    for name in ("00000000000000000000.log", "00000000000000000001.log"):
        (tmp_path / name).write_bytes(b"")
    opened = OsFiles.open

    def refuse(self: OsFiles, path: str, *mode: Any) -> Any:
        if path.endswith("0000.log"):
            raise PermissionError(13, "Permission denied", path)
        return opened(self, path, *mode)

    monkeypatch.setattr(OsFiles, "open", refuse)
    ran = kops("log", "dump", "--format", "kafka", str(tmp_path))
    assert ran.code == 8
    assert "0000.log: Permission denied" in ran.err
    assert "Log starting offset: 1" in ran.text


@pytest.mark.parametrize("format", ["kafka", "jsonl", "table"])
@pytest.mark.parametrize("left", [1 << 20, (1 << 20) + 40, (1 << 20) + 5000, 100])
def test_a_log_that_becomes_shorter_while_it_is_read(
    kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, left: int
) -> None:
    """The dump shows what is left, and reports that there was more."""
    from kops.forensics.dump.text import WatchedFile

    segment = sorted(part("v2-4.3.0-codec-none").glob("*.log"))[0].read_bytes()
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(segment * ((3 << 20) // len(segment) + 1))
    size = log.stat().st_size
    read = WatchedFile.read

    def shrink(self: WatchedFile, position: int, count: int) -> bytes:
        if position > 0 or left < 1 << 20:
            os.truncate(log, left)
        return read(self, position, count)

    monkeypatch.setattr(WatchedFile, "read", shrink)
    ran = kops("log", "dump", "--format", format, "--print-data-log", str(log))
    assert ran.code in (8, 12)  # 4 for the batch that is cut in two
    assert f"{log}: the file became shorter while it was read: {left} bytes are left of {size}" in ran.err
    assert "invalid bytes" not in ran.text
    assert left == 100 or len(ran.text) > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from-offset", "50", "--to-offset", "10"], "--from-offset 50 is after --to-offset 10"),
        (["--from-time", "2026-01-02", "--to-time", "2026-01-01"], "--from-time 2026-01-02 is later than --to-time 2026-01-01"),
    ],
)
def test_a_range_from_behind_its_end(kops: Kops, arguments: list[str], words: str) -> None:
    log = str(sorted(part("v2-4.3.0-codec-none").glob("*.log"))[0])
    for format in ("kafka", "jsonl"):
        ran = kops("log", "dump", "--format", format, *arguments, log)
        assert (ran.code, ran.out, ran.err) == (16, b"", f"kops: error: {words}\n")
    assert kops("log", "dump", "--from-offset", "10", "--to-offset", "10", log).code == 0


def test_a_reader_that_goes_away_is_no_error() -> None:
    log = str(sorted(part("v2-4.3.0-large").glob("*.log"))[0])
    command = f"{sys.executable} -m kops log dump --format kafka --print-data-log {log} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=PROJECT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Dumping ")


@pytest.mark.parametrize("case_id", ["damage-4.3.0-index-truncated-odd", "damage-4.3.0-missing-index-old", "v2-4.3.0-transactions"])
def test_nothing_is_written(kops: Kops, tmp_path: Path, case_id: str) -> None:
    """The dump writes nothing. Kafka's own tool trims an index of an odd size and creates a missing one."""
    folder = tmp_path / part(case_id).name
    corpus.load(case_id).copy(folder, os.path.relpath(part(case_id), corpus.load(case_id).root))
    if "missing" in case_id:
        (folder / "00000000000000000021.index").unlink()
    before = snapshot(folder)
    for arguments in (["dump", "--format", "kafka", "--print-data-log"], ["dump"], ["dump", "--format", "jsonl"], ["ls"], ["ls", "--deep"]):
        kops("log", *arguments, str(folder))
    assert snapshot(folder) == before


def test_ls(kops: Kops) -> None:
    case = corpus.load("broker-dir-4.3.0")
    folder = str(case.root / "crash")
    rows = documents(kops("log", "ls", "--format", "jsonl", folder).text)
    assert {row["schema"] for row in rows} == {"kops.ls/v1"}
    assert {row["dir_state"] for row in rows} == {"", "delete", "future"}
    table = kops("log", "ls", folder).text
    assert "sensor.readings-gone-0 (delete)" in table and "KiB" in table
    deep = json.loads(kops("log", "ls", "--deep", "--format", "json", folder).text)["segments"]
    assert all(row["batches"] is not None for row in deep)
    assert kops("log", "ls", "/nowhere").code == 8
    torn = str(part("damage-4.3.0-torn-tail"))
    assert kops("log", "ls", torn).code == 4


def test_csv_of_a_directory_is_its_batches(kops: Kops) -> None:
    """Files of other kinds come first in a directory. They are reported on stderr."""
    folder = corpus.load("damage-4.3.0-none").root / "before"
    ran = kops("log", "dump", "--format", "csv", str(folder))
    rows = list(csv.DictReader(io.StringIO(ran.text)))
    assert [rows[0]["baseOffset"], rows[-1]["lastOffset"]] == ["0", "98"]
    assert "kops.index-entry/v1, are not in this csv" in ran.err
    alone = kops("log", "dump", "--format", "csv", str(folder / "recovery-point-offset-checkpoint"))
    assert alone.text.splitlines()[0] == "topic,partition,offset"


def test_a_record_too_large_to_be_shown(kops: Kops, tmp_path: Path) -> None:
    builder = BatchBuilder(codec="zstd")
    builder.append(1, b"key", bytes(5 << 20))
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    command = ("log", "dump", "--print-data-log", "--format", "jsonl")
    ran = kops(*command, "--max-record-bytes", str(5 << 20), str(log))
    (document,) = documents(ran.text)
    assert ran.code == 4
    assert document["damage"]["reason"].endswith(f"the limit is {5 << 20}; --max-record-bytes allows larger records")
    ran = kops(*command, str(log))
    assert ran.code == 0 and documents(ran.text)[0]["offset"] == 0


def test_a_pipe_is_no_empty_file(kops: Kops, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = kops("log", "dump", str(tmp_path / "pipe"))
    assert (ran.code, ran.text) == (8, "")
    assert ran.err == f"kops: warning: {tmp_path}/pipe: Is a pipe or a device, not a file\n"


def test_a_segment_that_can_not_be_read_is_listed_with_the_others(kops: Kops, tmp_path: Path) -> None:
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "orders-epochs-0", "nodes/n1/orders-epochs-0")
    first = folder / f"{0:020d}.log"
    first.unlink()
    os.mkfifo(first)
    ran = kops("log", "ls", "--format", "jsonl", str(folder))
    assert (ran.code, ran.err) == (8, f"kops: warning: {first}: Is a pipe, not a file\n")
    rows = [(row["base_offset"], row["last_offset"], row["flags"]) for row in documents(ran.text)]
    assert rows == [(0, None, ["unreadable"]), (75, 87, ["active"])]
