"""Filters that are pushed down: fewer bytes are read, and the rows that remain are the same. No Spark session is needed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from kops.files.any_files import AnyFiles
from kops.records import BatchBuilder
from kops.spark.source import data_source
from kops.spark.source.data_source import KafkaLogReader
from kops.spark.source.options import options_table, read_options
from kops.storage.segment_files.offset_index import build_offset_index, write_offset_index
from kops.storage.segment_files.time_index import build_time_index, write_time_index

PROJECT = Path(__file__).resolve().parent.parent.parent.parent


class CountedFile:
    """A file that counts the bytes that are read from it."""

    def __init__(self, file: Any, count: list[int]) -> None:
        self._file = file
        self._count = count

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def size(self) -> int:
        return int(self._file.size())

    def read(self, position: int, size: int) -> bytes:
        data: bytes = self._file.read(position, size)
        self._count.append(len(data))
        return data


class CountedFiles:
    """The file system with a count of the bytes that are read."""

    def __init__(self) -> None:
        self.files = AnyFiles()
        self.count: list[int] = []

    def open(self, path: str) -> CountedFile:
        return CountedFile(self.files.open(path), self.count)

    def read_all(self, path: str) -> bytes:
        data = self.files.read_all(path)
        self.count.append(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.files, name)


class Reading:
    """The rows that a query reads, and how many bytes it reads for them."""

    def __init__(self, path: Path, *filters: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
        files = CountedFiles()
        for name in ("driver_files", "task_files"):
            monkeypatch.setattr(data_source, name, lambda: files)
        options = read_options({"path": str(path), "mode": "batches"})
        reader = KafkaLogReader(options, ("baseOffset", "lastOffset", "maxTimestamp"))
        assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies them, too"
        tasks = reader.partitions()
        self.planning = sum(files.count)
        files.count.clear()
        self.rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        self.bytes = sum(files.count)


BATCHES = 24
BATCH_RECORDS = 10
SEGMENT_RECORDS = BATCHES * BATCH_RECORDS


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a partition of four segments of 24 batches of 64 KiB, with a record each second and the indexes that a broker writes."""
    folder = tmp_path_factory.mktemp("logs") / "orders-0"
    folder.mkdir()
    for base in range(0, 4 * SEGMENT_RECORDS, SEGMENT_RECORDS):
        data, entries, times = bytearray(), [], []
        for offset in range(base, base + SEGMENT_RECORDS, BATCH_RECORDS):
            builder = BatchBuilder(base_offset=offset, partition_leader_epoch=0)
            for number in range(offset, offset + BATCH_RECORDS):
                builder.append(number * 1000, b"key", bytes(6500))
            entries.append((offset + BATCH_RECORDS - 1, len(data)))
            times.append(((offset + BATCH_RECORDS - 1) * 1000, offset + BATCH_RECORDS - 1))
            data += builder.build()
        (folder / f"{base:020}.log").write_bytes(data)
        (folder / f"{base:020}.index").write_bytes(write_offset_index(build_offset_index(base, entries[1:])))
        (folder / f"{base:020}.timeindex").write_bytes(write_time_index(build_time_index(base, times)))
    return folder


def size_of(log: Path) -> int:
    return sum(each.stat().st_size for each in log.glob("*.log"))


def rows_between(rows: list[Any], low: int, high: int) -> list[Any]:
    """Return the batches that have an offset of `low <= offset < high`."""
    return [row for row in rows if row["lastOffset"] >= low and row["baseOffset"] < high]


@pytest.mark.parametrize(("low", "high"), [(0, 5), (100, 101), (235, 245), (500, 700), (959, 960), (960, 1000)])
def test_offsets_choose_segments_and_the_bytes_in_them(log: Path, monkeypatch: pytest.MonkeyPatch, low: int, high: int) -> None:
    whole = Reading(log, monkeypatch=monkeypatch)
    assert whole.bytes >= size_of(log)
    filters = (GreaterThanOrEqual(("offset",), low), LessThan(("offset",), high))
    some = Reading(log, *filters, monkeypatch=monkeypatch)
    wanted = rows_between(whole.rows, low, high)
    assert rows_between(some.rows, low, high) == wanted
    batch = size_of(log) / (4 * BATCHES)
    # There may be one more batch on each side, and for at most two segments the index and the batches at the cuts.
    assert some.bytes <= (len(wanted) + 4) * batch
    assert some.planning <= 6 * batch


def test_offsets_in_a_list(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Reading(log, In(("offset",), (300, 310, 320)), monkeypatch=monkeypatch)
    assert {row["baseOffset"] for row in some.rows} >= {300, 310, 320}
    assert some.bytes < size_of(log) / 8


def test_times_leave_segments_out(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entry of a time index decides, except in the active segment."""
    whole = Reading(log, monkeypatch=monkeypatch)
    since = datetime.fromtimestamp(600, UTC)
    some = Reading(log, GreaterThanOrEqual(("timestamp",), since), monkeypatch=monkeypatch)
    assert [row for row in some.rows if row["maxTimestamp"] >= since] == [row for row in whole.rows if row["maxTimestamp"] >= since]
    assert some.bytes < size_of(log) * 0.55
    assert some.planning < 4096


def test_topics_and_partitions_leave_everything_else_out(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for condition in (EqualTo(("topic",), "payments"), In(("partition",), (1, 2))):
        none = Reading(log, condition, monkeypatch=monkeypatch)
        assert (none.rows, none.bytes, none.planning) == ([], 0, 0)


@pytest.mark.parametrize("damage", ["index", "timeindex", "batch"])
def test_what_cannot_be_trusted_is_read(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    copy = tmp_path / "orders-0"
    shutil.copytree(log, copy)
    name = f"{240:020}"
    if damage == "batch":
        data = bytearray((copy / f"{name}.log").read_bytes())
        data[len(data) // 2] ^= 1  # in the batch at offset 360, where a query begins
        (copy / f"{name}.log").write_bytes(data)
    else:
        path = copy / f"{name}.{damage}"
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
        path.write_bytes(data)
    whole = Reading(copy, monkeypatch=monkeypatch)
    filters = (
        GreaterThanOrEqual(("offset",), 363),
        LessThan(("offset",), 420),
        GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(0, UTC)),
    )
    some = Reading(copy, *filters, monkeypatch=monkeypatch)
    wanted = rows_between([row for row in whole.rows if row["maxTimestamp"]], 363, 420)
    assert len(wanted) >= 5
    assert rows_between([row for row in some.rows if row["maxTimestamp"]], 363, 420) == wanted


def test_the_options_are_those_of_the_document() -> None:
    assert options_table() in (PROJECT / "docs" / "spark.md").read_text()
