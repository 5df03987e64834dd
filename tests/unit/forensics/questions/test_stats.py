"""`kops.forensics.questions.stats`: numbers of a log with everything in it, and of logs in parts."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kops.files import OsFiles
from kops.forensics.inventory.tree import open_paths
from kops.forensics.questions.distinct import EXACT_LIMIT, Distinct
from kops.forensics.questions.stats import LogStats, total_row
from kops.records import Batch, BytesSource, Damage, Record, build_batch, end_txn_marker, scan
from tests.support import corpus

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def batch(*offsets: int, at: int = NOW_MS - HOUR_MS, value: bytes | None = b"value", **fields: object) -> bytes:
    """Return a batch with a record at each offset. The keys are `k<offset modulo 3>`."""
    headers: list[tuple[str | bytes, bytes | None]] = [] if fields.get("magic") == 1 else [("h", b"x")]
    records = [Record(offset, at, "CreateTime", b"k%d" % (offset % 3), value, headers) for offset in offsets]
    return build_batch(records, **fields)


def stats_of(data: bytes, *, deep: bool = False) -> LogStats:
    found = LogStats(NOW_MS, deep)
    for item in scan(BytesSource(data)):
        found.add(item)
    return found


def test_a_log_with_everything_in_it() -> None:
    parts = [
        batch(0, 1, 2),
        batch(3, 4, at=NOW_MS - 3 * HOUR_MS, codec="gzip"),
        batch(10, 11, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        batch(12, at=NOW_MS + 1, value=None),
        end_txn_marker(13, NOW_MS, commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0),
        batch(14, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True),
        batch(15, timestamp_type="LogAppendTime", log_append_time=NOW_MS),
    ]
    row = stats_of(b"".join(parts), deep=True).to_row()
    assert (row["batches"], row["records"], row["bytes"]) == (7, 11, sum(map(len, parts)))
    assert (row["first_offset"], row["last_offset"], row["gaps"], row["missing_offsets"]) == (0, 15, 1, 5)
    assert (row["codecs"], row["records_per_batch"]) == (["gzip", "none"], 1.6)
    assert (row["steps_back"], row["largest_step_back_ms"]) == (2, 2 * HOUR_MS)
    assert (row["future_batches"], row["append_time_batches"]) == (1, 1)
    assert (row["producers"], row["idempotent_batches"], row["transactional_batches"], row["control_batches"]) == (2, 3, 3, 1)
    assert (row["commits"], row["aborts"], row["open_transactions"]) == (1, 0, 1)
    assert (row["keys"], row["null_keys"], row["tombstones"], row["headers"]) == (3, 0, 1, 10)
    assert (row["key_bytes"], row["value_bytes"]) == (20, 45)
    plain = stats_of(batch(3, 4, at=NOW_MS - 3 * HOUR_MS)).bytes
    [gzip, none] = row["by_codec"]
    assert (gzip["plain_bytes"], none["plain_bytes"], none["ratio"]) == (plain, none["bytes"], 1.0)
    assert row["estimated"] == []


def test_without_deep_the_records_are_not_read() -> None:
    data = bytearray(batch(0, 1, codec="gzip"))
    row = stats_of(bytes(data)).to_row()
    assert (row["records"], row["keys"], row["ratio"], row["tombstones"]) == (2, None, None, None)


def test_damage_is_no_gap_and_in_no_other_number() -> None:
    broken = bytearray(batch(3, 4))
    broken[70] ^= 1
    found = stats_of(batch(0, 1, 2) + bytes(broken) + batch(5, 6))
    row = found.to_row()
    assert (row["damaged"], row["damaged_bytes"], row["gaps"], row["records"], row["batches"]) == (1, len(broken), 0, 5, 2)


def test_compressed_sets_of_the_old_formats_are_counted_record_by_record() -> None:
    data = b"".join(batch(*range(start, start + 4), magic=1, codec="gzip") for start in (0, 4))
    row = stats_of(data).to_row()
    assert (row["batches"], row["records"], row["gaps"], row["first_offset"], row["last_offset"]) == (2, 8, 0, 0, 7)


def items_of_the_corpus() -> Iterable[list[Batch | Damage]]:
    files = OsFiles(read_only=True)
    cases = [corpus.load("cluster-4.3.0").root / "nodes" / "n1", corpus.load("v1-0.10.2.2-codec-gzip").root / "data"]
    cases += [corpus.load(name).root / "before" for name in ("damage-4.3.0-two-flips", "damage-4.3.0-hole-in-active")]
    for case in cases:
        for partition in open_paths([case], files).partitions():
            found: list[Batch | Damage] = []
            for segment in partition.live_segments:
                assert segment.log is not None
                with files.open(segment.log.path) as file:
                    found += list(scan(file))
            if found:
                yield found


@pytest.mark.parametrize("deep", [False, True])
def test_parts_merge_to_the_whole(deep: bool) -> None:
    randomly = random.Random(5)
    logs = 0
    for items in items_of_the_corpus():
        logs += 1
        whole = LogStats(NOW_MS, deep)
        merged = LogStats(NOW_MS, deep)
        part = LogStats(NOW_MS, deep)
        for item in items:
            whole.add(item)
            part.add(item)
            if randomly.random() < 0.4:
                merged.merge(part)
                part = LogStats(NOW_MS, deep)
        merged.merge(part)
        assert merged.to_row() == whole.to_row()
        assert merged.open == whole.open
    assert logs > 10


def test_several_logs_together() -> None:
    one, two = stats_of(batch(0, 1, 2), deep=True), stats_of(batch(10, 11, producer_id=3, producer_epoch=0, base_sequence=0), deep=True)
    row = total_row([one, two], NOW_MS, deep=True)
    assert (row["name"], row["records"], row["gaps"], row["first_offset"], row["keys"], row["producers"]) == ("total", 5, 0, None, 3, 1)


def test_distinct_values_are_exact_up_to_a_limit_and_near_above_it() -> None:
    counted, half, other = Distinct(), Distinct(), Distinct()
    for number in range(EXACT_LIMIT):
        counted.add(b"%d" % number)
        counted.add(b"%d" % number)
    assert (counted.count, counted.is_exact) == (EXACT_LIMIT, True)
    for number in range(60_000):
        half.add(b"%d" % (number + EXACT_LIMIT))
        other.add(b"%d" % number)
    counted.merge(half)
    assert not counted.is_exact
    assert abs(counted.count - 160_000) < 160_000 * 0.03
    before = counted.count
    counted.merge(other)
    assert counted.count == before
