"""Records of every format and codec are what a real consumer got, and every rebuilt batch is the one that Kafka wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.records import Batch, BatchBuilder, BytesSource, Columns, Damage, empty_batch, file_batches, scan, scan_columns
from kops.records.isolation import aborted_transactions, read_committed, read_uncommitted
from kops.records.record import read_control_record
from tests.support import corpus

FORMATS = corpus.cases("format")


def logs(root: Path) -> list[Path]:
    return sorted(root.glob("*.log"))


def good_batches(folder: Path) -> Iterator[Batch]:
    for path in logs(folder):
        for item in scan(BytesSource(path.read_bytes())):
            assert isinstance(item, Batch), f"{path.name}: {item}"
            yield item


def partitions(case: corpus.Case) -> list[Path]:
    return [path for path in sorted((case.root / "data").iterdir()) if path.is_dir() and logs(path)]


@pytest.mark.parametrize("case_id", FORMATS)
def test_records_are_what_a_consumer_got(case_id: str) -> None:
    case = corpus.load(case_id)
    compared = 0
    for folder in partitions(case):
        batches = list(good_batches(folder))
        for isolation in ("read_uncommitted", "read_committed"):
            name = f"truth/records/{folder.name}.{isolation}"
            if not (case.root / f"{name}.meta.json").exists():
                assert isolation == "read_committed" and all(batch.magic < 2 for batch in batches), "only old consumers know one level"
                continue
            meta = case.lines(f"{name}.meta.json")[0]
            truth = f"{name}.jsonl" if (case.root / f"{name}.jsonl").exists() else f"truth/records/{folder.name}.read_uncommitted.jsonl"
            if isolation == "read_committed":
                visible = read_committed(batches, aborted_transactions(batches), meta["endOffset"])
            else:
                visible = read_uncommitted(batches)
            records = (corpus.as_truth(record) for batch in visible for record in batch.records())
            assert [record for record in records if record["offset"] >= meta["beginningOffset"]] == case.lines(truth)
            compared += 1
    assert compared


@pytest.mark.parametrize("case_id", FORMATS)
def test_nothing_is_wrong_with_a_sound_log(case_id: str) -> None:
    for folder in partitions(corpus.load(case_id)):
        for batch in good_batches(folder):
            assert batch.check() == []
            batch.ensure_valid()
            if batch.is_control:
                assert [read_control_record(record).type for record in batch.records()] in (["ABORT"], ["COMMIT"])


@pytest.mark.parametrize("case_id", FORMATS)
def test_three_ways_through_a_file_agree(case_id: str) -> None:
    for folder in partitions(corpus.load(case_id)):
        for path in logs(folder):
            source = BytesSource(path.read_bytes())
            facts = [(batch.position, batch.size, batch.last_offset, batch.max_timestamp) for batch in good_batches_of(source)]
            assert [(batch.position, batch.size, batch.last_offset, batch.max_timestamp) for batch in file_batches(source)] == facts
            for window in (1 << 20, 700, 61):
                found: list[tuple[int, ...]] = []
                for columns in scan_columns(source, window=window):
                    assert isinstance(columns, Columns)
                    found += zip(columns.positions, columns.sizes, columns.last_offsets, columns.max_timestamps, strict=True)
                assert found == facts


def good_batches_of(source: BytesSource) -> list[Batch]:
    found = []
    for item in scan(source, window=500):
        assert isinstance(item, Batch)
        found.append(item)
    return found


def rebuilt(batch: Batch, codec: str) -> bytes:
    records = batch.records()
    if not records:
        return empty_batch(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            timestamp=batch.max_timestamp,
            timestamp_type=batch.timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=batch.partition_leader_epoch,
            transactional=batch.is_transactional,
            control=batch.is_control,
        )
    builder = BatchBuilder(
        magic=batch.magic,
        codec=codec,
        base_offset=batch.base_offset,
        timestamp_type=batch.timestamp_type,
        log_append_time=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        partition_leader_epoch=batch.partition_leader_epoch,
        delete_horizon_ms=batch.delete_horizon_ms,
    )
    builder.base_timestamp = batch.base_timestamp if batch.magic > 1 else None
    for record in records:
        builder.append_record(record)
    return builder.build(last_offset=batch.last_offset)


@pytest.mark.parametrize("case_id", [name for name in FORMATS if not name.endswith(("retention", "empty"))])
def test_a_batch_rebuilt_is_what_kafka_wrote(case_id: str) -> None:
    for folder in partitions(corpus.load(case_id)):
        for batch in good_batches(folder):
            again = Batch(rebuilt(batch, batch.codec), 0, batch.position)
            assert again.crc_ok
            if batch.timestamp_type == "LogAppendTime":
                # The producer's own timestamps and flags are still inside, but a reader never gets them.
                assert [record[:8] for record in again.records()] == [record[:8] for record in batch.records()]
            elif not batch.compressed:
                assert bytes(again.data()) == bytes(batch.data())
            else:
                assert again.records() == batch.records()
                assert (again.base_offset, again.last_offset, again.max_timestamp) == (
                    batch.base_offset,
                    batch.last_offset,
                    batch.max_timestamp,
                )


EXOTIC = [f"exotic-{name}" for name in ("codecs", "codecs-large", "control", "edges", "horizon", "mixed", "v0", "v1")]


def as_batch_truth(batch: Batch) -> dict[str, Any]:
    return {
        "position": batch.position,
        "sizeInBytes": batch.size,
        "magic": batch.magic,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "compression": batch.codec,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "leaderEpoch": batch.partition_leader_epoch,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "checksum": batch.crc,
        "valid": batch.crc_ok,
    }


@pytest.mark.parametrize("name", EXOTIC)
def test_exotic_batches_are_what_kafka_reads(name: str) -> None:
    case = corpus.load("exotic-batches")
    batches = list(good_batches(case.root / "data" / f"{name}-0"))
    assert [as_batch_truth(batch) for batch in batches] == case.lines(f"truth/records/{name}.batches.jsonl")
    records = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": record.sequence,
            "key": corpus.encoded(record.key),
            "value": corpus.encoded(record.value),
            "headers": [[key, corpus.encoded(value)] for key, value in record.headers],
        }
        for batch in batches
        for record in batch.records()
    ]
    assert records == case.lines(f"truth/records/{name}.records.jsonl")


def test_no_exotic_file_is_left_out() -> None:
    folder = corpus.load("exotic-batches").root / "truth/records"
    assert sorted(path.name.removesuffix(".batches.jsonl") for path in folder.glob("*.batches.jsonl")) == sorted(EXOTIC)


def test_every_control_record_is_understood() -> None:
    case = corpus.load("exotic-batches")
    found = [
        read_control_record(record)
        for batch in good_batches(case.root / "data" / "exotic-control-0")
        if batch.is_control
        for record in batch.records()
    ]
    kinds = {record.type for record in found}
    assert kinds >= {"COMMIT", "ABORT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}
    assert [record.coordinator_epoch for record in found if record.type == "COMMIT"] == [77]


@pytest.mark.parametrize("case_id", [name for name in corpus.cases("damage") if "-4.3.0-" in name])
def test_a_scan_of_damage_finds_every_intact_batch(case_id: str) -> None:
    """`offsetsIntactOnDisk` has the offsets whose whole batch is still in some log, byte for byte."""
    case = corpus.load(case_id)
    found: set[int] = set()
    for path in logs(case.root / case.json["damagedDir"]):
        source = BytesSource(path.read_bytes())
        end = 0
        for item in scan(source):
            assert item.position == end, "batches and damages stand without a gap"
            end += item.length if isinstance(item, Damage) else item.size
            if isinstance(item, Batch):
                found.update(range(item.base_offset, item.last_offset + 1))
        assert end == source.size()
    intact = {offset for first, last in case.json["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    assert intact <= found
