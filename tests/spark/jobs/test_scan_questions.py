"""`kops scan diff|stats|producers|keys|grep|timeline`, compared with `kops log` if it has the question, else with a loop over the log."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles
from kops.forensics.inventory.replicas import list_replicas
from kops.forensics.inventory.tree import PartitionDir, open_paths
from kops.records import Batch, Record, scan
from kops.spark.jobs.producers import _rows as producer_rows
from tests.spark.scan_commands import Commands
from tests.support import corpus

NODES = corpus.load("cluster-4.3.0").root / "nodes"
ALL = [NODES / name for name in ("n1", "n2", "n3")]
N1 = NODES / "n1"


def partitions(*paths: Path) -> Iterator[PartitionDir]:
    """Yield the live partition directories below some paths."""
    for each in open_paths([str(path) for path in paths], OsFiles(read_only=True)).partitions():
        if not each.state:
            yield each


def items(partition: PartitionDir) -> Iterator[Any]:
    """Yield all batches and damage of a partition."""
    for segment in partition.live_segments:
        assert segment.log is not None
        with OsFiles(read_only=True).open(segment.log.path) as file:
            yield from scan(file)


def records(partition: PartitionDir) -> Iterator[Record]:
    """Yield the records of a partition that a consumer gets."""
    for item in items(partition):
        if isinstance(item, Batch) and not item.is_control:
            yield from item.records()


@pytest.mark.slow
def test_diff_is_that_of_kops_log(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("n1", "n2", "n3"):
        corpus.load("cluster-4.3.0").copy(tmp_path / name, f"nodes/{name}")
    log = tmp_path / "n2" / "orders-epochs-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[1900] ^= 1
    log.write_bytes(bytes(data))
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--replicas",)):
        ran = commands.same("diff", *options, "n1", "n2", "n3")
        assert ran.code == 4
        assert ran.lines
    assert commands("scan", "diff", "--task-bytes", "1", *ALL).code == commands("log", "diff", *ALL).code


@pytest.mark.slow
def test_stats_are_those_of_kops_log(commands: Commands) -> None:
    case = corpus.load("damage-4.3.0-two-flips").root / "before"
    for options in (
        ("--deep",),
        ("--total", "--topic", "orders-epochs"),
        ("--deep", "--now", "2020-01-01T00:00Z", "--topic", "__consumer_offsets"),
    ):
        commands.same("stats", *options, *ALL, case)
    ran = commands.same("stats", *ALL, case)
    assert ran.code == 4
    assert len(ran.lines) > 20
    assert {row["broker"] for row in ran.lines} >= {1, 2, 3}
    small = commands("scan", "stats", "--format", "jsonl", "--task-bytes", "100", *ALL, case)
    assert small.lines == ran.lines


@pytest.mark.slow
def test_producers_and_their_breaks(commands: Commands) -> None:
    ran = commands("scan", "producers", "--format", "jsonl", N1, corpus.load("damage-4.3.0-sequence-gap-crc-ok").root / "before")
    assert ran.code == 4
    broken = [row for row in ran.lines if row["gaps"] or row["duplicates"] or row["epochs_back"]]
    assert [(row["gaps"], row["duplicates"]) for row in broken] == [(1, 1)]
    counted: Counter[tuple[str | None, int, int]] = Counter()
    for each in partitions(N1):
        for item in items(each):
            if item.producer_id >= 0 and not item.is_control:
                counted[each.topic, each.partition, item.producer_id] += item.count
    got = {(row["topic"], row["partition"], row["producer_id"]): row["records"] for row in ran.lines}
    assert {key: got.get(key) for key in counted} == dict(counted)


def test_breaks_are_in_the_cases_that_have_some() -> None:
    """The scan covers the damaged corpus. Every topic is named after its case."""
    roots = [corpus.load(case_id).root / "before" for case_id in corpus.cases("damage")]
    broken: dict[str, Counter[str]] = {}
    producers = 0
    for replica in list_replicas(roots, OsFiles(read_only=True)).replicas:
        for row in producer_rows(replica):
            producers += "damage" not in row
            kinds = Counter({kind: row[kind] for kind in ("gaps", "duplicates", "epochs_back") if row.get(kind)})
            if kinds:
                broken[row["topic"].partition("-")[2]] = kinds
    assert broken == {
        "duplicate-batch-tail": {"duplicates": 1},
        "duplicate-batch-old": {"duplicates": 1},
        "hole-in-active": {"gaps": 1},
        "batches-swapped": {"gaps": 2, "duplicates": 1},
        "sequence-gap-crc-ok": {"gaps": 1, "duplicates": 1},
    }
    assert producers > 50


@pytest.mark.slow
def test_keys_count_what_a_loop_counts(commands: Commands) -> None:
    ran = commands("scan", "keys", "--format", "jsonl", "--top", "0", N1)
    counted: Counter[tuple[str | None, bytes | None]] = Counter()
    sizes: Counter[tuple[str | None, bytes | None]] = Counter()
    for each in partitions(N1):
        for record in records(each):
            counted[each.topic, record.key] += 1
            sizes[each.topic, record.key] += len(record.key or b"") + len(record.value or b"")
    got = {(row["topic"], None if row["key"] is None else base64.b64decode(row["key"])): row for row in ran.lines}
    assert {key: row["records"] for key, row in got.items()} == dict(counted)
    assert {key: row["bytes"] for key, row in got.items()} == dict(sizes)
    top = commands("scan", "keys", "--format", "jsonl", "--top", "3", "--topic", "orders-epochs", N1).lines
    assert [row["records"] for row in top] == sorted((n for (topic, _), n in counted.items() if topic == "orders-epochs"), reverse=True)[:3]
    wrong = commands("scan", "keys", "--topic", "no-such-topic", N1)
    assert (wrong.code, wrong.text, wrong.err) == (16, "", f"kops: error: --topic no-such-topic: no partition of it below {N1}\n")


@pytest.mark.parametrize(
    "options",
    [
        ("--max-count", "3", "--txn-id", "cluster-tx-3", "--txn-state", "open"),
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (("--key", "^key-", "--from-offset", "3"), ("--jsonpath", "$.id=11"), ("--count", "--value", "kafka"))
        ),
    ],
    ids=lambda options: options[0],
)
def test_grep_finds_what_kops_log_finds(commands: Commands, options: tuple[str, ...]) -> None:
    ran = commands.same("grep", *options, N1)
    assert ran.code == 0
    assert ran.lines


@pytest.mark.slow
def test_grep_finds_nothing_in_a_damaged_log(commands: Commands) -> None:
    damaged = commands.same("grep", "--value", "no such value", corpus.load("damage-4.3.0-two-flips").root / "before")
    assert (damaged.code, damaged.lines) == (5, [])
    assert damaged.err.count("left out: the checksum") == 2


@pytest.mark.slow
def test_the_timeline_is_that_of_kops_log(commands: Commands) -> None:
    deleted = corpus.load("v2-4.3.0-compacted").root / "data"
    for options in ((), ("--every", "1m", "--topic", "orders-epochs"), ("--event", "election", "--event", "deleted")):
        ran = commands.same("timeline", *options, N1, deleted)
        assert ran.code == 0
        assert ran.lines
    assert commands.same("timeline", corpus.load("damage-4.3.0-two-flips").root / "before").code == 4


@pytest.mark.slow
def test_a_large_partition_is_read_in_parts(commands: Commands) -> None:
    """Its events, producers, transactions, offsets, epochs and damage stay the same."""
    large = [corpus.load(each).root / "before" for each in ("damage-4.3.0-two-flips", "damage-4.3.0-hole-in-active")]
    for paths in ([N1], large, [corpus.load("v2-4.3.0-large").root / "data"]):
        whole = commands("log", "timeline", "--every", "1s", "--format", "jsonl", *paths)
        parts = commands("scan", "timeline", "--every", "1s", "--format", "jsonl", "--task-bytes", "300", *paths)
        assert parts.lines == whole.lines
        assert parts.code == whole.code
        assert_same_in_parts(commands, "producers", *paths)
    assert_same_in_parts(commands, "txns", "--empty", N1)
    assert_same_in_parts(commands, "offsets", N1)


def assert_same_in_parts(commands: Commands, *asked: object) -> None:
    """Compare a scan of whole partitions with one in parts of a few batches."""
    whole = commands("scan", *asked, "--format", "jsonl")
    parts = commands("scan", *asked, "--format", "jsonl", "--task-bytes", "300")
    assert (parts.lines, parts.code, parts.err) == (whole.lines, whole.code, whole.err)
    assert whole.lines or asked[0] == "producers"


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["parquet", "jsonl", "csv"])
def test_rows_are_written_by_the_tasks(spark: Any, commands: Commands, tmp_path: Path, shape: str) -> None:
    target = tmp_path / "out"
    options = ("--out", target, "--as", shape)
    ran = commands("scan", "producers", *options, N1)
    assert (ran.code, ran.text) == (0, "")
    expected = commands("scan", "producers", "--format", "jsonl", N1).lines
    assert ran.err == f"{len(expected)} rows written to {target}\n"
    read = {"parquet": spark.read.parquet, "jsonl": spark.read.json, "csv": lambda path: spark.read.option("header", "true").csv(path)}[
        shape
    ]
    got = [(str(row.topic), int(row.producer_id), int(row.records)) for row in read(str(target)).collect()]
    assert sorted(got) == sorted((row["topic"], row["producer_id"], row["records"]) for row in expected)
    again = commands("scan", "producers", *options, N1)
    assert (again.code, again.err) == (16, f"kops: error: --out {target}: exists; name a new directory\n")
    assert json.dumps(commands("scan", "producers", "--out", tmp_path / "x", "--as", "orc", N1).code) == "16"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stats", "keys", "producers", "grep", "timeline"])
def test_paths_that_are_wrong_or_odd(commands: Commands, tmp_path: Path, name: str) -> None:
    """A path without Kafka's files is an error. A comma in a name separates nothing. `--as` says how files are written."""
    asked = ("grep", "--key", ".") if name == "grep" else (name,)
    missing = commands("scan", *asked, tmp_path / "missing")
    assert (missing.code, missing.err) == (8, f"kops: error: {tmp_path}/missing: no such file or directory\n")
    (tmp_path / "empty").mkdir()
    assert commands("scan", *asked, tmp_path / "empty").code == 16
    assert commands("scan", *asked, "--as", "jsonl", N1).code == 16
    odd = tmp_path / "a,b"
    corpus.load("cluster-4.3.0").copy(odd, "nodes/n1")
    assert [row.get("topic") for row in commands("scan", *asked, "--format", "jsonl", odd).lines] == [
        row.get("topic") for row in commands("scan", *asked, "--format", "jsonl", N1).lines
    ]
