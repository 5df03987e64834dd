"""Records as Arrow columns, made without an object for each record. The rows are the same as those made of `Batch.records`."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kops.errors import DecodeError
from kops.files import OsFiles
from kops.forensics.verify.parts import Part
from kops.records import Batch, BatchBuilder, scan
from kops.spark.source.record_columns import RecordColumns
from kops.spark.source.rows import Source, Wanted, columns_of, header_text, microseconds, read_parts
from kops.spark.source.schemas import TIMESTAMP_TYPES
from tests.support import corpus

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CASES = [case for kind in ("format", "damage") for case in corpus.cases(kind)]


def _rows(path: str, size: int) -> list[dict[str, Any]]:
    work = [(Part(0, path, 0, size), Source(path, "t", 3, 0, "live", size))]
    found = read_parts(OsFiles(read_only=True), work, Wanted("records", columns_of("records")))
    return [row for batch in found for row in batch.to_pylist() if row["damage"] is None]


def _expected(path: str) -> list[dict[str, Any]]:
    rows = []
    with OsFiles(read_only=True).open(path) as file:
        for batch in scan(file):
            if not isinstance(batch, Batch):
                continue
            try:
                records = batch.records()
            except DecodeError:
                continue
            for record in records:
                headers = [{"key": header_text(key), "value": value} for key, value in record.headers]
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "t",
                        "partition": 3,
                        "offset": record.offset,
                        "timestamp": microseconds(record.timestamp),
                        "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
                        "headers": headers or None,
                        "leaderEpoch": batch.partition_leader_epoch if batch.magic == 2 else None,
                        "isControl": batch.is_control,
                        "path": path,
                        "broker": None,
                        "damage": None,
                    }
                )
    return rows


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "timestamp": None if row["timestamp"] is None else (row["timestamp"] - EPOCH) // timedelta(microseconds=1)} for row in rows
    ]


@pytest.mark.parametrize("case_id", CASES)
def test_columns_are_the_records(case_id: str) -> None:
    for log in sorted(corpus.load(case_id).root.rglob("*.log")):
        assert _plain(_rows(str(log), log.stat().st_size)) == _expected(str(log))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_keys_values_and_headers_of_all_kinds(codec: str, tmp_path: Any) -> None:
    """Keys and values are null, empty or filled, and some records have headers. One batch has records without a timestamp."""
    log = tmp_path / "00000000000000000000.log"
    data, offset = b"", 0
    for number in range(40):
        builder = BatchBuilder(codec=codec, base_offset=offset, partition_leader_epoch=number // 10)
        for each in range(number % 7 + 1):
            key = [None, b"", b"k" * number][(number + each) % 3]
            value = [None, b"", b"v" * (number * each)][(number // 3 + each) % 3]
            headers = [("h", b"x"), ("", None)] if number % 5 == 0 and each % 2 else []
            builder.append(-1 if number == 9 and each else 1_700_000_000_000 + number, key, value, headers)
        offset += builder.count
        data += builder.build()
    log.write_bytes(data)
    assert _plain(_rows(str(log), len(data))) == _expected(str(log))


def test_which_batches_need_no_window() -> None:
    def batch(codec: str, count: int) -> bytes:
        builder = BatchBuilder(codec=codec, base_offset=7, partition_leader_epoch=0)
        for number in range(count):
            builder.append(number, None, b"v")
        return builder.build()

    plain = batch("none", 3)
    wrong = bytearray(plain)
    wrong[57:61] = (4).to_bytes(4, "big")  # the count
    for data, is_held in ((plain, True), (plain[:-1], False), (bytes(wrong), False), (batch("lz4", 3), False)):
        columns = RecordColumns(["offset", "value"], {})
        assert columns.add_held(Batch(data, 0, 0)) is is_held
        assert columns.rows == (3 if is_held else 0)
        if is_held:
            assert columns.take().to_pydict() == {"offset": [7, 8, 9], "value": [b"v"] * 3}


def test_without_librt_the_remedy_is_told() -> None:
    code = """
import sys
sys.modules["librt.strings"] = None
from kops.files import OsFiles
from kops.forensics.verify.parts import Part
from kops.spark.source.rows import Source, Wanted, read_parts
list(read_parts(OsFiles(read_only=True), [(Part(0, "x", 0, 0), Source("x", "t", 3, 0, "live", 0))], Wanted("records", ("offset",))))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    remedy = "kops.errors.MissingDependencyError: rows of records need librt.strings: pip install 'kops[spark]'"
    assert done.returncode == 1 and done.stderr.strip().splitlines()[-1] == remedy, done.stderr
