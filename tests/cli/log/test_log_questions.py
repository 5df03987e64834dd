"""`kops log stats|grep|timeline|compaction` on the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.cli.running.exit_codes import CLEAN, FAILED, INTERRUPTED, NOT_FOUND, PROBLEMS, USAGE
from kops.files import OsFiles
from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]
N1 = corpus.load("cluster-4.3.0").root / "nodes" / "n1"
ASKED = {"stats": ("stats",), "grep": ("grep", "--key", "."), "compaction": ("compaction",), "timeline": ("timeline",)}


@pytest.fixture(params=ASKED)
def asked(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Provide each question, with the options that it needs."""
    return ("log", *ASKED[request.param])


def test_paths_without_kafkas_files_are_wrong_usage(kops: Kops, asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    ran = kops(*asked, str(tmp_path / "empty"))
    assert (ran.code, ran.out) == (USAGE, b"")
    assert "not a log directory or a partition directory" in ran.err
    assert kops(*asked, str(tmp_path / "note.txt")).code == USAGE
    missing = kops(*asked, str(tmp_path / "missing"))
    assert (missing.code, missing.err) == (FAILED, f"kops: error: {tmp_path}/missing: no such file or directory\n")
    unknown = kops(*asked, "--topic", "no-such", str(N1))
    assert (unknown.code, unknown.err) == (USAGE, f"kops: error: --topic no-such: no partition of it below {N1}\n")


def refuse(monkeypatch: pytest.MonkeyPatch, refused: str, error: BaseException) -> None:
    """Make `OsFiles.open` raise the error for paths that end like this."""
    original = OsFiles.open

    def open_(self: OsFiles, path: str, *mode: str) -> object:
        if path.endswith(refused):
            raise error
        return original(self, path, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(OsFiles, "open", open_)


def test_an_unreadable_segment_is_told_and_the_others_are_read(kops: Kops, asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kops(*asked, "--format", "jsonl", str(N1))
    refused = "__consumer_offsets-1/00000000000000000000.log"
    refuse(monkeypatch, refused, PermissionError(13, "Permission denied", f"{N1}/{refused}"))
    ran = kops(*asked, "--format", "jsonl", str(N1))
    assert ran.code == FAILED
    assert f"kops: error: {N1}/{refused}: Permission denied" in ran.err

    def others(text: str) -> list[Any]:
        return [row for row in map(json.loads, text.splitlines()) if (row["topic"], row["partition"]) != ("__consumer_offsets", 1)]

    assert others(whole.text)
    assert others(ran.text) == others(whole.text)


def test_ctrl_c_keeps_what_was_printed(kops: Kops, asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kops.forensics.questions.reading.AUTO_BYTES", 1 << 40)
    refuse(monkeypatch, "__transaction_state-1/00000000000000000000.log", KeyboardInterrupt())
    ran = kops(*asked, "--format", "json", str(N1))
    assert ran.code == INTERRUPTED
    assert "interrupted" in ran.err
    if asked[1] in ("stats", "grep"):  # the others print only when they have read all logs
        document = json.loads(ran.out)
        assert document["interrupted"] is True
        assert len(document["partitions" if "partitions" in document else "records"]) > 3


def test_stats(kops: Kops) -> None:
    rows = [json.loads(line) for line in kops("log", "stats", "--deep", "--format", "jsonl", str(N1)).text.splitlines()]
    table = kops("log", "stats", str(N1))
    assert table.code == CLEAN
    lines = table.text.splitlines()
    assert lines[0].split()[:3] == ["PARTITION", "SEGMENTS", "BATCHES"]
    assert [line.split()[0] for line in lines[1:]] == [*(row["name"] for row in rows), "total"]
    document = json.loads(kops("log", "stats", "--deep", "--format", "json", str(N1)).text)
    assert document["schema"] == "kops.stats/v1"
    assert document["partitions"] == [{key: row[key] for key in row if key != "schema"} for row in rows]
    assert document["total"]["records"] == sum(row["records"] for row in rows)
    [total] = [json.loads(line) for line in kops("log", "stats", "--deep", "--total", "--format", "jsonl", str(N1)).text.splitlines()]
    assert {key: total[key] for key in document["total"]} == document["total"]
    dumped = kops("log", "dump", "--print-data-log", "--format", "jsonl", str(N1 / "orders-epochs-0")).text.splitlines()
    records = [row for row in map(json.loads, dumped) if row["schema"] == "kops.record/v1"]
    [orders] = [row for row in rows if row["name"] == "orders-epochs-0"]
    assert (orders["records"], orders["keys"]) == (len(records), len({row["key"] for row in records if row["key"] is not None}))
    assert orders["tombstones"] == sum(row["value"] is None for row in records)


def test_stats_of_damage_and_of_the_future(kops: Kops) -> None:
    before = corpus.load("damage-4.3.0-two-flips").root / "before"
    ran = kops("log", "stats", "--now", "2020-01-01T00:00Z", "--format", "json", str(before))
    assert ran.code == PROBLEMS
    assert ran.err == "kops: warning: 2 damaged ranges; kops log verify shows them\n"
    total = json.loads(ran.text)["total"]
    assert (total["damaged"], total["future_batches"], total["gaps"]) == (2, total["batches"], 0)
    assert kops("log", "stats", "--now", "soon", str(before)).code == USAGE


def test_stats_in_processes_are_the_same(kops: Kops) -> None:
    for paths in ([str(N1)], [str(N1 / "orders-epochs-0" / "00000000000000000075.log")]):
        one = kops("log", "stats", "--deep", "--format", "jsonl", "--jobs", "1", *paths)
        assert kops("log", "stats", "--deep", "--format", "jsonl", "--jobs", "2", *paths).text == one.text
    assert json.loads(one.text)["first_offset"] == 75


def grepped(kops: Kops, *arguments: str) -> list[Any]:
    return [json.loads(line) for line in kops("log", "grep", "--format", "jsonl", *arguments).text.splitlines()]


def test_grep_finds_what_dump_finds(kops: Kops) -> None:
    log = str(N1 / "orders-epochs-0")
    for options in (
        ("--key", "^key-", "--from-offset", "3"),
        ("--key", "key-1", "--to-time", "2023-11-14T22:15:05Z"),
        ("--leader-epoch", "4"),
    ):
        dumped = kops("log", "dump", "--format", "jsonl", "--print-data-log", *options, log).text.splitlines()
        expected = [row for row in map(json.loads, dumped) if row.get("schema") == "kops.record/v1"]
        rows = grepped(kops, *options, log)
        assert [(row["offset"], row["key"], row["value"], row["timestamp"]) for row in rows] == [
            (row["offset"], row["key"], row["value"], row["timestamp"]) for row in expected
        ]
        assert len(rows) > 3


def test_grep_returns_what_grep_returns(kops: Kops) -> None:
    found = kops("log", "grep", "--key", "^key-11$", "--topic", "orders-epochs", str(N1))
    assert (found.code, len(found.text.splitlines())) == (CLEAN, 2)
    assert found.text.split()[:6] == ["TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE"]
    nothing = kops("log", "grep", "--key", "no such key", str(N1))
    assert (nothing.code, nothing.out, nothing.err) == (NOT_FOUND, b"", "")
    damaged = kops("log", "grep", "--value", "no such value", str(corpus.load("damage-4.3.0-two-flips").root / "before"))
    assert (damaged.code, damaged.out) == (NOT_FOUND | PROBLEMS, b"")
    assert damaged.err.count("left out: ") == 2


def test_a_pattern_in_the_place_of_a_path(kops: Kops, tmp_path: Path) -> None:
    missing = f"kops: error: {tmp_path}/key-11: no such file or directory"
    hinted = kops("log", "grep", f"{tmp_path}/key-11", str(N1))
    assert (hinted.code, hinted.err) == (FAILED, f"{missing} (kops log grep takes a pattern behind --key or --value)\n")
    assert kops("log", "grep", "--key", "11", f"{tmp_path}/key-11", str(N1)).err == f"{missing}\n"


def test_grep_counts_and_stops(kops: Kops) -> None:
    rows = grepped(kops, "--key", "key-1", str(N1))
    counts = {(row["topic"], row["partition"]): row["records"] for row in grepped(kops, "-c", "--key", "key-1", str(N1))}
    assert {key: number for key, number in counts.items() if number} == Counter((row["topic"], row["partition"]) for row in rows)
    assert 0 in counts.values()
    assert grepped(kops, "-m", "3", "--key", "key-1", str(N1)) == rows[:3]
    for most in (1, 3, len(rows), len(rows) + 1):
        assert sum(row["records"] for row in grepped(kops, "-c", "-m", str(most), "--key", "key-1", str(N1))) == min(most, len(rows))
    assert kops("log", "grep", "-c", "--key", "no such key", str(N1)).code == NOT_FOUND


def test_grep_by_transaction(kops: Kops) -> None:
    rows = grepped(kops, "--txn-id", "cluster-tx-3", "--txn-state", "open", str(N1))
    assert {(row["topic"], row["producer_id"]) for row in rows} == {("__consumer_offsets", 2001), ("sensor.readings-multi", 2001)}
    assert len(rows) == 5
    assert kops("log", "grep", "--txn-id", "cluster-tx-3", str(N1 / "orders-epochs-0")).code == USAGE
    unknown = kops("log", "grep", "--txn-id", "nobody", str(N1))
    assert (unknown.code, unknown.err) == (USAGE, "kops: error: --txn-id nobody: __transaction_state has no such transactional id\n")


def test_grep_in_values(kops: Kops, tmp_path: Path) -> None:
    log = str(N1 / "orders-epochs-0")
    [row] = grepped(kops, "--jsonpath", "$.id=11", log)
    assert (row["offset"], row["decoded"]["name"]) == (11, "n425")
    whole = grepped(kops, "--jsonpath", "id", "--jsonpath", "$.name=~^n", log)
    assert len(whole) > 5
    (tmp_path / "id.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}')
    avro = kops("log", "grep", "--avro", str(tmp_path / "id.avsc"), "--jsonpath", "$.id=7", log)
    assert avro.code == NOT_FOUND | PROBLEMS
    assert "the value cannot be decoded: " in avro.err
    assert "more values cannot be decoded" in avro.err


@pytest.mark.parametrize(
    "options,words",
    [
        (("--key", "("), "--key (: not a regular expression"),
        (("--header", "h=("), "--header h: (: not a regular expression"),
        (("--from-time", "soon"), "--from-time soon: neither"),
        (("--jsonpath", "$["), "--jsonpath $[: not a path at '['"),
        (("--txn-state", "done"), "--txn-state done: not one of committed, aborted, open, none"),
        (("--protobuf", "x.desc"), "--protobuf and --message: give both"),
        (("--invert-match",), "--invert-match: give --key, --value, --header or --jsonpath with it"),
        (("--avro", __file__), f"--avro {__file__}: not JSON"),
    ],
)
def test_wrong_conditions(kops: Kops, options: tuple[str, ...], words: str) -> None:
    ran = kops("log", "grep", *options, str(N1))
    assert (ran.code, ran.out) == (USAGE, b"")
    assert words in ran.err
    missing = kops("log", "grep", "--avro", "missing.avsc", str(N1))
    assert (missing.code, missing.err) == (FAILED, "kops: error: No such file or directory: missing.avsc\n")


def test_compaction(kops: Kops) -> None:
    data = corpus.load("v2-4.3.0-compacted").root / "data"
    ran = kops("log", "compaction", "--format", "jsonl", str(data))
    assert ran.code == CLEAN
    [row] = [json.loads(line) for line in ran.text.splitlines()]
    assert (row["verdict"], row["policy"], row["first_dirty_offset"], row["checkpoint"]) == ("nothing-dirty", "compact", 505, 505)
    assert (row["tombstones"], row["tombstones_due"], row["tombstones_new"]) == (31, 4, 27)
    early = kops("log", "compaction", "--now", "2023-11-14T22:13:20Z", "--format", "jsonl", str(data))
    assert json.loads(early.text)["tombstones_waiting"] == 4
    quick = json.loads(kops("log", "compaction", "--quick", "--format", "jsonl", str(data)).text)
    assert (quick["tombstones"], quick["clean_bytes"]) == (None, row["clean_bytes"])
    table = kops("log", "compaction", str(N1))
    assert table.err == "5 compacted; 4 partitions are not\n"
    assert table.text.splitlines()[0].split()[:4] == ["PARTITION", "VERDICT", "TURN", "RATIO"]
    file = next(data.glob("*/*.log"))
    assert (kops("log", "compaction", str(file)).err, kops("log", "compaction", "--config", "x=1", str(data)).code) == (
        f"kops: error: {file}: is a file; name log directories or partition directories\n",
        USAGE,
    )
    assert kops("log", "compaction", "--config", "nothing", str(data)).code == USAGE


def test_timeline(kops: Kops) -> None:
    ran = kops("log", "timeline", "--format", "jsonl", str(N1))
    assert ran.code == CLEAN
    rows = [json.loads(line) for line in ran.text.splitlines()]
    times = [row["time"] for row in rows if row["time"] is not None]
    assert times == sorted(times)
    counts = Counter(row["event"] for row in rows)
    ends = Counter({name: sum(row["records"] for row in rows if row["event"] == name) for name in ("commit", "abort")})
    assert f"{ends['commit']} committed, {ends['abort']} aborted" in kops("log", "txns", str(N1)).err
    total = json.loads(kops("log", "stats", "--total", "--format", "jsonl", str(N1)).text)
    control = sum(row["records"] for row in rows if row["event"] == "appends")
    assert control == total["records"] - total["control_batches"]
    body = kops("log", "timeline", "--format", "bodyfile", str(N1)).text.splitlines()
    assert len(body) == len(rows)
    assert {line.count("|") for line in body} == {10}
    few = kops("log", "timeline", "--event", "roll", "--topic", "orders-epochs", "--format", "jsonl", str(N1))
    assert (len(few.text.splitlines()), counts["roll"] > 1) == (1, True)
    assert "█" in kops("log", "timeline", str(N1)).text
    for options, words in ((("--every", "1w"), "--every 1w: not a duration"), (("--event", "x"), "--event x: not one of appends")):
        wrong = kops("log", "timeline", *options, str(N1))
        assert (wrong.code, wrong.err.startswith(f"kops: error: {words}")) == (USAGE, True)
