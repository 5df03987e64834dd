"""Every job of `kops scan` over a generated cluster of three brokers with 200 partitions. The test knows what is wrong in them.

`--gib N` makes the records larger, so that all brokers together have about N GiB.
"""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles
from kops.records import Batch, scan
from tests.spark.jobs.generated_cluster import (
    BEHIND,
    BROKERS,
    COMMITTED,
    DAMAGED,
    DIVERGED,
    END,
    FIRST_MS,
    GAP,
    HANGING,
    LOST,
    RECORDS,
    STEP_MS,
    TOPIC,
    Generated,
)
from tests.spark.scan_commands import Commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PARTITIONS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Generated:
    gib = pytestconfig.getoption("--gib")
    size = 20 if gib is None else int(gib * (1 << 30)) // (len(BROKERS) * PARTITIONS * END)
    found = Generated(tmp_path_factory.mktemp("cluster") / "data", PARTITIONS, size)
    found.write()
    return found


def offsets_of(number: int) -> list[int]:
    """Return the offsets of records in a partition that some replica has intact."""
    found = [offset for offset in range(END) if number % 20 != LOST or not RECORDS <= offset < 2 * RECORDS]
    return found + list(range(END, END + RECORDS)) if number % 20 in (HANGING, COMMITTED) else found


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({int(row["partition"]) for row in rows if row["topic"] == TOPIC})


def test_verify(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "verify", "--format", "jsonl", *cluster.brokers)
    damaged = {(2, number, 2) for number in cluster.of_kind(DAMAGED)} | {
        (broker, number, 1) for number in cluster.of_kind(LOST) for broker in BROKERS
    }
    expected = {(str(cluster.brokers[broker - 1] / f"{TOPIC}-{number}"), place * RECORDS) for broker, number, place in damaged}
    assert ran.code == 4
    assert {(str(Path(row["file"]).parent), row["base_offset"]) for row in ran.lines} == expected
    assert {row["code"] for row in ran.lines} == {"batch-crc-mismatch"}
    assert len(ran.lines) == len(expected)


def test_diff(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "diff", "--replicas", "--format", "json", *cluster.brokers)
    document = ran.document
    about = {each["partition"]: each for each in document["partitions"] if each["topic"] == TOPIC}
    assert ran.code == 4
    first = {number: each["first_divergence"] for number, each in about.items()}
    assert {
        number: each["offset"] for number, each in first.items() if each is not None and each["code"] == "replica-diverged"
    } == dict.fromkeys(cluster.of_kind(DIVERGED), END - RECORDS)
    codes: dict[str, set[str]] = {}
    for row in document["findings"]:
        codes.setdefault(Path(row["file"]).parent.name, set()).add(row["code"])
    for kind, code in ((DIVERGED, "replica-diverged"), (DAMAGED, "replica-damaged"), (LOST, "replica-damaged")):
        assert {name for name, some in codes.items() if code in some} >= {f"{TOPIC}-{number}" for number in cluster.of_kind(kind)}
    ends = {number: {replica["broker"]: replica["end_offset"] for replica in each["replicas"]} for number, each in about.items()}
    assert {number for number, each in ends.items() if len(set(each.values())) > 1} == set(cluster.of_kind(BEHIND))
    assert {ends[number][1] for number in cluster.of_kind(BEHIND)} == {END - RECORDS}
    assert {name for name, some in codes.items() if "replica-diverged" in some} == {
        f"{TOPIC}-{number}" for number in cluster.of_kind(DIVERGED)
    }


def test_stats(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "stats", "--format", "jsonl", "--topic", TOPIC, *cluster.brokers)
    assert ran.code == 4
    assert len(ran.lines) == len(BROKERS) * PARTITIONS
    for row in ran.lines:
        kind, broker = row["partition"] % 20, row["broker"]
        damaged = int((kind == DAMAGED and broker == 2) or kind == LOST)
        batches = 5 - damaged - (kind == BEHIND and broker == 1) + (kind == HANGING) + 2 * (kind == COMMITTED)
        assert (row["batches"], row["damaged"], row["open_transactions"]) == (batches, damaged, int(kind == HANGING))
        assert row["commits"] == (kind == COMMITTED)


def test_producers(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "producers", "--format", "jsonl", *cluster.brokers)
    rows = [row for row in ran.lines if row["topic"] == TOPIC]
    broken = sorted(row["partition"] for row in rows if row["gaps"])
    assert broken == sorted([*cluster.of_kind(GAP), *cluster.of_kind(LOST)])
    assert not any(row["duplicates"] or row["epochs_back"] for row in rows)
    assert sum(row["records"] for row in rows) == sum(len(offsets_of(number)) for number in range(PARTITIONS))
    assert sorted(row["partition"] for row in rows if row["transactional"]) == sorted(
        [*cluster.of_kind(HANGING), *cluster.of_kind(COMMITTED)]
    )


def test_keys(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "keys", "--format", "jsonl", "--topic", TOPIC, *cluster.brokers)
    expected = Counter(f"key-{offset % 3}" for number in range(PARTITIONS) for offset in offsets_of(number))
    assert {base64.b64decode(row["key"]).decode(): row["records"] for row in ran.lines} == dict(expected)


def test_grep(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "grep", "--format", "jsonl", "--topic", TOPIC, "--value", " other", *cluster.brokers)
    found = [(row["partition"], row["offset"]) for row in ran.lines]
    assert found == [(number, offset) for number in cluster.of_kind(DIVERGED) for offset in range(END - RECORDS, END)]
    assert ran.err.count("left out: the checksum is wrong") == len(cluster.of_kind(LOST)), "of each partition one replica is read"


def test_timeline(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "timeline", "--every", "1h", "--format", "jsonl", "--topic", TOPIC, *cluster.brokers)
    appends = Counter[int]()
    for row in ran.lines:
        if row["event"] == "appends":
            appends[row["partition"]] += row["records"]
    assert dict(appends) == {number: len(offsets_of(number)) for number in range(PARTITIONS)}
    later = [row for row in ran.lines if row["event"] == "leader-epoch" and row["leader_epoch"] == 1]
    assert [(row["partition"], row["offset"], row["time"]) for row in sorted(later, key=lambda row: int(row["partition"]))] == [
        (number, END - RECORDS, FIRST_MS + (END - RECORDS) * STEP_MS) for number in cluster.of_kind(DIVERGED)
    ]
    assert numbers([row for row in ran.lines if row["event"] == "commit"]) == cluster.of_kind(COMMITTED)


def test_transactions_and_offsets(cluster: Generated, commands: Commands) -> None:
    ran = commands("scan", "txns", "--format", "jsonl", *cluster.brokers)
    assert [(row["partition"], row["state"], row["first_offset"]) for row in ran.lines] == [
        (number, "hanging", END) for number in cluster.of_kind(HANGING)
    ]
    ran = commands("scan", "offsets", "--format", "jsonl", *cluster.brokers)
    more = {HANGING: RECORDS, COMMITTED: RECORDS + 1}
    assert {row["partition"]: row["lag"] for row in ran.lines} == {
        number: END - 10 + more.get(number % 20, 0) for number in range(PARTITIONS)
    }


def test_recover(cluster: Generated, commands: Commands, tmp_path: Path) -> None:
    out = tmp_path / "rescue"
    ran = commands("scan", "recover", "--format", "json", *cluster.brokers, "--out", out)
    report = ran.document
    rows = {row["partition"]: row for row in report["partitions"]}
    assert ran.code & 64
    lost = {name: row["lost"] for name, row in rows.items() if row["lost"]}
    assert lost == {f"{TOPIC}-{number}": [[RECORDS, 2 * RECORDS - 1]] for number in cluster.of_kind(LOST)}
    assert {name for name, row in rows.items() if row["conflicts"]} == {f"{TOPIC}-{number}" for number in cluster.of_kind(DIVERGED)}
    files = OsFiles(read_only=True)
    for number in range(PARTITIONS):
        found = []
        for log in sorted((out / f"{TOPIC}-{number}").glob("*.log")):
            with files.open(str(log)) as file:
                for item in scan(file):
                    assert isinstance(item, Batch)
                    if not item.is_control:
                        found += [(record.offset, bytes(record.value or b"").rstrip(b".")) for record in item.records()]
        is_other = number % 20 == DIVERGED
        expected = [
            (offset, b"%d/%d%s" % (number, offset, b" other" if is_other and offset >= END - RECORDS else b""))
            for offset in offsets_of(number)
        ]
        assert found == expected
