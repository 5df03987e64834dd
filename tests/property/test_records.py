"""Every built batch is read back. Every cut or damage is reported, and the batches next to it are found."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kops.records import Batch, BatchBuilder, BytesSource, Columns, Damage, Record, build_batch, scan, scan_columns
from kops.records.record import Header

BYTES = st.none() | st.binary(max_size=80)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)
TIMESTAMPS = st.integers(-1, (1 << 62)) | st.integers(1_600_000_000_000, 1_800_000_000_000)


@st.composite
def batches(draw: st.DrawFn, base_offset: int | None = None) -> tuple[dict[str, Any], list[Record], bytes]:
    """Draw a batch. Return its fields, the expected records and its bytes."""
    magic = draw(st.sampled_from((0, 1, 2, 2, 2)))
    codec = draw(st.sampled_from(("none", "gzip", "snappy", "lz4") + (("zstd",) if magic == 2 else ())))
    append = magic > 0 and draw(st.booleans())
    fields: dict[str, Any] = {"magic": magic, "codec": codec, "timestamp_type": "LogAppendTime" if append else "CreateTime"}
    fields["base_offset"] = draw(st.integers(1, 1 << 50)) if base_offset is None else base_offset
    if append:
        fields["log_append_time"] = draw(TIMESTAMPS)
    if magic == 2:
        fields["partition_leader_epoch"] = draw(st.integers(-1, 1 << 30))
        if draw(st.booleans()):
            fields |= {
                "producer_id": draw(st.integers(0, 1 << 60)),
                "producer_epoch": draw(st.integers(0, 32767)),
                "base_sequence": draw(st.integers(0, 0x7FFFFFFF)),
                "transactional": draw(st.booleans()),
            }
        if draw(st.integers(0, 9)) == 0:
            fields["delete_horizon_ms"] = draw(st.integers(0, 1 << 50))
    builder = BatchBuilder(**fields)
    records = []
    offset = fields["base_offset"]
    for _ in range(draw(st.integers(1, 6)) if magic == 2 or codec != "none" else 1):
        timestamp, key, value = draw(TIMESTAMPS), draw(BYTES), draw(BYTES)
        headers: list[Header] = list(draw(HEADERS)) if magic == 2 else []
        builder.append(timestamp, key, value, headers, offset=offset)
        kind = "NoTimestampType" if magic == 0 else fields["timestamp_type"]
        seen = -1 if magic == 0 else fields["log_append_time"] if append else timestamp
        sequence = fields.get("base_sequence", -1)
        if sequence >= 0:
            sequence = (sequence + offset - fields["base_offset"]) & 0x7FFFFFFF
        epoch = fields.get("partition_leader_epoch", -1)
        records.append(Record(offset, seen, kind, key, value, headers, sequence, None if epoch < 0 else epoch))
        offset += draw(st.integers(1, 200)) if magic == 2 or codec != "none" else 1
    return fields, records, builder.build()


def fields_of(records: list[Record]) -> list[tuple[object, ...]]:
    """Return the fields of the records without size and attributes."""
    return [tuple(record)[:8] for record in records]


@settings(deadline=None)
@given(batches())
def test_a_batch_comes_back(made: tuple[dict[str, Any], list[Record], bytes]) -> None:
    fields, records, data = made
    batch = Batch(data)
    assert batch.size == len(data) and batch.crc_ok and batch.check() == []
    assert fields_of(batch.records()) == fields_of(records)
    assert (batch.magic, batch.codec, batch.base_offset, batch.last_offset) == (
        fields["magic"],
        fields["codec"],
        records[0].offset,
        records[-1].offset,
    )
    assert batch.delete_horizon_ms == fields.get("delete_horizon_ms")
    assert batch.is_transactional == fields.get("transactional", False)
    expected = fields["log_append_time"] if batch.timestamp_type == "LogAppendTime" else max(record.timestamp for record in records)
    assert batch.max_timestamp == (expected if fields["magic"] else -1)


@settings(deadline=None)
@given(batches())
def test_records_read_can_be_built_again(made: tuple[dict[str, Any], list[Record], bytes]) -> None:
    fields, _, data = made
    records = Batch(data).records()
    again = build_batch(records, **fields)
    assert fields_of(Batch(again).records()) == fields_of(records)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    parts, offset = [], draw(st.integers(1, 1 << 40))
    for _ in range(draw(st.integers(1, 5))):
        _, records, data = draw(batches(base_offset=offset))
        parts.append(data)
        offset = records[-1].offset + draw(st.integers(1, 5))
    return parts


def covered(data: bytes, window: int) -> list[Batch | Damage]:
    """Return the items of a scan. Each begins where the one before it ends, and the columns match them."""
    items = list(scan(BytesSource(data), window=window))
    end = 0
    for item in items:
        assert item.position == end
        end += item.length if isinstance(item, Damage) else item.size
    assert end == len(data)
    flat: list[tuple[int, int, str]] = []
    for found in scan_columns(BytesSource(data), window=window):
        if isinstance(found, Columns):
            flat += [(position, size, "good") for position, size in zip(found.positions, found.sizes, strict=True)]
        else:
            flat.append((found.position, found.length, found.code))
    assert flat == [
        (item.position, item.length, item.code) if isinstance(item, Damage) else (item.position, item.size, "good") for item in items
    ]
    return items


@settings(deadline=None)
@given(logs(), st.data())
def test_every_cut_leaves_the_batches_before_it(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    items = covered(whole[:cut], data.draw(st.sampled_from((61, 200, 1 << 20))))
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    good = [item for item in items if isinstance(item, Batch)]
    assert [item.end for item in good] == [end for end in ends[1:] if end <= cut]
    torn = [item for item in items if isinstance(item, Damage)]
    assert [item.code for item in torn] == ([] if cut in ends else ["torn-tail"])


@settings(deadline=None)
@given(logs(), st.data())
def test_a_damaged_batch_costs_no_other(parts: list[bytes], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(parts) - 1))
    wrong = bytearray(parts[number])
    at = data.draw(st.integers(16, len(wrong) - 1))
    change = data.draw(st.binary(min_size=1, max_size=12))
    wrong[at : at + len(change)] = bytes(a ^ b for a, b in zip(wrong[at : at + len(change)], change, strict=False))
    items = covered(b"".join([*parts[:number], bytes(wrong), *parts[number + 1 :]]), 1 << 20)
    good = [bytes(item.data()) for item in items if isinstance(item, Batch)]
    for other, part in enumerate(parts):
        assert other == number or part in good


@settings(deadline=None, max_examples=50)
@given(logs(), st.binary(min_size=18, max_size=300), st.data())
def test_rubbish_between_batches_costs_none(parts: list[bytes], rubbish: bytes, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(parts)))
    items = covered(b"".join([*parts[:number], rubbish, *parts[number:]]), 1 << 20)
    assert [bytes(item.data()) for item in items if isinstance(item, Batch)] == parts
