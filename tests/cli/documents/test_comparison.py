"""The weaknesses of Apache Kafka's own dump tool (the README's table): each line is a test of kops on the command line.

The tests build the log: segments of 64 batches of about 10 kB, 16 records each, with indexes as a broker writes them.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kops as package
from kops.cli.running.exit_codes import CLEAN, FIXED, LOST, PROBLEMS
from tests.cli.conftest import Ran

Kops = Callable[..., Ran]
BATCHES = 64
RECORDS = 16
PER_SEGMENT = BATCHES * RECORDS
START_MS = 1_700_000_000_000
SHAPE = struct.Struct(">qi")


def segment(base_offset: int) -> bytes:
    """Build 64 batches, with offsets from `base_offset` on."""
    rng = random.Random(base_offset)
    data = b""
    for number in range(BATCHES):
        builder = package.BatchBuilder(base_offset=base_offset + number * RECORDS, partition_leader_epoch=0)
        for record in range(RECORDS):
            timestamp = START_MS + base_offset + number * RECORDS + record
            builder.append(timestamp, b"key", rng.randbytes(610))
        data += builder.build()
    return data


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a partition of three segments with indexes."""
    folder = tmp_path_factory.mktemp("healthy") / "orders-0"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number * PER_SEGMENT:020d}.log").write_bytes(segment(number * PER_SEGMENT))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    package.rebuild_indexes(folder, everything=True)
    shutil.rmtree(folder.parent.with_name(folder.parent.name + ".kops-journal"))
    return folder


@pytest.fixture
def orders(healthy: Path, tmp_path: Path) -> Path:
    """Provide a copy to damage."""
    return shutil.copytree(healthy, tmp_path / "data" / "orders-0")


def log_of(folder: Path, number: int) -> Path:
    return folder / f"{number * PER_SEGMENT:020d}.log"


def batches_of(path: Path) -> list[package.Batch]:
    return [item for item in package.scan_file(path) if isinstance(item, package.Batch)]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def findings(kops: Kops, folder: Path, code: int, level: str = "full") -> list[dict[str, Any]]:
    """Return what `verify` finds (without infos), and check its exit code."""
    ran = kops("log", "verify", "--level", level, "--format", "json", str(folder))
    assert ran.code == code, ran.text
    found: list[dict[str, Any]] = json.loads(ran.text)["findings"]
    return [each for each in found if each["severity"] != "info"]


def salvaged(kops: Kops, folder: Path, out: Path) -> int:
    """Return how many batches `recover` finds in the directory of one segment."""
    ran = kops("log", "recover", str(folder), "--out", str(out), "--format", "json")
    assert ran.code in (FIXED, LOST)
    [partition] = json.loads(ran.text)["partitions"]
    assert sum(len(batches_of(path)) for path in (out / "orders-0").glob("*.log")) >= partition["batches"]
    return int(partition["batches"])


def test_a_healthy_log_is_clean_at_every_level(kops: Kops, orders: Path) -> None:
    for level in ("quick", "crc", "deep", "full"):
        assert findings(kops, orders, CLEAN, level) == []


def test_a_flipped_byte_is_one_finding_with_file_position_and_offsets(kops: Kops, orders: Path) -> None:
    path = log_of(orders, 1)
    hit = batches_of(path)[20]
    overwrite(path, hit.position + 5000, bytes([path.read_bytes()[hit.position + 5000] ^ 1]))
    [found] = findings(kops, orders, PROBLEMS)
    assert (found["code"], found["file"], found["position"], found["length"]) == ("batch-crc-mismatch", str(path), hit.position, hit.size)
    assert (found["base_offset"], found["last_offset"], found["records"]) == (hit.base_offset, hit.last_offset, RECORDS)
    assert findings(kops, path, PROBLEMS, "crc")[0]["position"] == hit.position


def test_an_impossible_batch_length_costs_one_batch_at_most(kops: Kops, orders: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        log_of(orders, number).unlink()
    path = log_of(orders, 0)
    hit = batches_of(path)[20]
    overwrite(path, hit.position + 8, struct.pack(">i", 0x7FFFFFFF))
    assert any(found["position"] == hit.position for found in findings(kops, orders, PROBLEMS))
    assert salvaged(kops, orders, tmp_path / "out") >= BATCHES - 1


def test_behind_a_hole_of_zeroes_reading_goes_on(kops: Kops, orders: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        log_of(orders, number).unlink()
    path = log_of(orders, 0)
    first = batches_of(path)[25]
    overwrite(path, first.position, bytes(40_000))
    assert any(found["code"] == "zeroed-range" for found in findings(kops, orders, PROBLEMS))
    hit = -(-40_000 // first.size)
    assert hit == 4
    assert salvaged(kops, orders, tmp_path / "out") == BATCHES - hit == 60


def test_a_missing_segment_is_a_gap(kops: Kops, orders: Path) -> None:
    for path in orders.glob(f"{PER_SEGMENT:020d}.*"):
        path.unlink()
    found = findings(kops, orders, PROBLEMS)
    assert [(each["base_offset"], each["last_offset"]) for each in found if "gap" in each["code"]] == [(PER_SEGMENT, 2 * PER_SEGMENT - 1)]


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_wrong_index_entries_are_found_and_rebuilt_byte_for_byte(kops: Kops, orders: Path, kind: str) -> None:
    path = log_of(orders, 0).with_suffix(f".{kind}")
    written = path.read_bytes()
    size = {"index": 8, "timeindex": 12}[kind]
    # Two neighbours change places. The index is not monotonic any more, but Kafka's sanity check looks only at the last entry.
    overwrite(path, 4 * size, written[5 * size : 6 * size] + written[4 * size : 5 * size])
    assert any(found["file"] == str(path) for found in findings(kops, orders, PROBLEMS))
    assert kops("log", "index", "check", str(orders)).code == PROBLEMS
    assert kops("log", "index", "rebuild", "--yes", str(orders)).code == FIXED
    assert path.read_bytes() == written
    assert kops("log", "index", "check", str(orders)).code == CLEAN
    assert findings(kops, orders, CLEAN) == []


def test_the_index_of_a_truncated_log(kops: Kops, orders: Path) -> None:
    path = log_of(orders, 2)
    with open(path, "r+b") as file:
        file.truncate(batches_of(path)[30].position)
    found = findings(kops, orders, PROBLEMS)
    assert {each["file"] for each in found} >= {str(path.with_suffix(".index"))}


def test_a_healthy_segment_whose_base_offset_is_not_zero(kops: Kops, orders: Path) -> None:
    path = log_of(orders, 1)
    assert findings(kops, path, CLEAN, "deep") == []
    ran = kops("log", "dump", "--print-data-log", "--format", "jsonl", str(path))
    assert ran.code == CLEAN
    assert [json.loads(line)["offset"] for line in ran.text.splitlines()] == list(range(PER_SEGMENT, 2 * PER_SEGMENT))


def test_what_kafkas_tool_calls_unknown_is_decoded(kops: Kops, orders: Path) -> None:
    deleted = log_of(orders, 0).rename(orders / "00000000000000000000.log.deleted")
    for name, words in (
        (deleted.name, '"lastOffset": 15'),
        ("leader-epoch-checkpoint", '"epoch": 0'),
        ("partition.metadata", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ):
        ran = kops("log", "dump", "--format", "jsonl", str(orders / name))
        assert (ran.code, words in ran.text) == (CLEAN, True), ran.text
    assert kops("log", "dump", str(orders.parent)).code == CLEAN


def test_recover_keeps_what_a_brokers_start_would_throw_away(kops: Kops, orders: Path, tmp_path: Path) -> None:
    path = log_of(orders, 1)
    hit = batches_of(path)[20]
    overwrite(path, hit.position + 5000, bytes([path.read_bytes()[hit.position + 5000] ^ 1]))
    ran = kops("log", "forecast", "--assume", "crash", "--recovery-point", "0", "--format", "json", str(orders))
    [start] = json.loads(ran.text)["partitions"]
    assert start["lost"] == [[hit.base_offset, 3 * PER_SEGMENT - 1]]
    assert start["lost_though_intact"] == [[hit.last_offset + 1, 3 * PER_SEGMENT - 1]]
    assert salvaged(kops, orders, tmp_path / "out") == 3 * BATCHES - 1
