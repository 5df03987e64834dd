"""Lines of records are the same in both variants and on every way through a batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kops.files import MemoryFiles
from kops.forensics.dump.kafka_text import KafkaDump
from kops.forensics.dump.text import DumpOptions, DumpText
from kops.records import Batch, BatchBuilder, decode
from tests.support.hot import hot, variants

NAME = "kops.forensics.dump._hot_dump"
BYTES = st.none() | st.binary(max_size=40)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draw a batch whose records mostly repeat one layout, as those of producers do, with others in between."""
    producer = draw(st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, 3, 0x7FFFFFFF - 20)]))
    builder = BatchBuilder(
        base_offset=draw(st.integers(0, 1 << 40)),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
        log_append_time=1_700_000_000_123,
    )
    timestamp = draw(st.integers(1 << 20, 1 << 41))
    for _ in range(draw(st.integers(1, 4))):
        key, value, step = draw(BYTES), draw(BYTES), draw(st.sampled_from([0, 1, 40, 9000, 3_000_000]))
        headers = draw(st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=2))
        for index in range(draw(st.integers(1, 90))):
            builder.append(timestamp, key, value[:-1] + bytes([index]) if value else value, headers)
            timestamp += step
        if draw(st.booleans()) and builder.last_offset is not None:
            builder.append(timestamp, None, None, offset=builder.last_offset + draw(st.integers(1, 100)))
        timestamp -= draw(st.sampled_from([0, 0, 5, 70_000]))
    return builder.build()


def expected(batch: Batch, contents: bool, metadata: bool) -> bytes:
    """Return the lines, made from the records that `Batch.records` returns."""
    lines = []
    for record in batch.records():
        line = ""
        if metadata:
            sizes = [-1 if field is None else len(field) for field in (record.key, record.value)]
            names = ",".join(name for name, _ in record.headers if isinstance(name, str))
            line = f"| offset: {record.offset} {record.timestamp_type}: {record.timestamp} keySize: {sizes[0]} valueSize: {sizes[1]}"
            line += f" sequence: {record.sequence} headerKeys: [{names}]"
        shown = []
        if contents:
            shown += [] if record.key is None else ["key: " + java(record.key)]
            shown += [] if record.value is None else ["payload: " + java(record.value)]
        if shown:
            line += (" " if metadata else "| ") + " ".join(shown)
        lines.append(line + "\n")
    return "".join(lines).encode()


def java(data: bytes) -> str:
    """Return the text that Java's decoder makes of bytes. It differs from Python's: three bytes of an encoded surrogate are one malformed
    sequence.
    """
    out, at = "", 0
    while at < len(data):
        if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
            at += 3 if at + 2 < len(data) and 0x80 <= data[at + 2] <= 0xBF else 2
            out += "\ufffd"
            continue
        following = next((end for end in range(at + 1, len(data)) if data[end] == 0xED and data[end + 1 : end + 2] >= b"\xa0"), len(data))
        out += data[at:following].decode("utf-8", "replace")
        at = following
    return out


def lines_of(module: Any, batch: Batch, contents: bool, metadata: bool) -> Any:
    lines = module.RecordLines(contents, metadata)
    stamped = batch.timestamp_type == "LogAppendTime"
    text = lines.batch(
        batch.buffer,
        batch.index + 61,
        batch.index + batch.size,
        batch.count,
        batch.base_offset,
        batch.max_timestamp if stamped else batch.base_timestamp,
        stamped,
        batch.base_sequence,
        batch.timestamp_type.encode(),
    )
    return text, lines


@pytest.mark.parametrize("variant", variants())
@given(data=batches(), contents=st.booleans(), metadata=st.booleans())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_lines_are_what_the_records_say(variant: str, data: bytes, contents: bool, metadata: bool) -> None:
    batch = Batch(data)
    text, lines = lines_of(hot(NAME, variant), batch, contents, metadata)
    assert text == expected(batch, contents, metadata)
    assert (lines.reason, lines.count) == ("", batch.count)
    offsets = [-1, *(record.offset for record in batch.records())]
    assert lines.gaps == {before: after for before, after in pairwise(offsets) if after != before + 1}
    assert lines.previous == offsets[-1]


@pytest.mark.parametrize("variant", variants())
@given(data=batches(), damage=st.lists(st.tuples(st.integers(61, 1 << 16), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_damaged_records_end_a_batch_at_the_same_place(variant: str, data: bytes, damage: list[tuple[int, int]]) -> None:
    """The fast way and the general way end at the same record. The text is a prefix of the lines, and no other exception is raised."""
    broken = bytearray(data)
    for position, value in damage:
        broken[61 + (position - 61) % (len(data) - 61)] = value
    batch = Batch(bytes(broken))
    module = hot(NAME, variant)
    text, lines = lines_of(module, batch, True, True)
    records, error = decode.read_some(batch, 1 << 20)
    if error is not None and len(records) == (batch.count or 0):
        records.pop()
    assert lines.count == len(records)
    assert bool(lines.reason) == (error is not None)
    starts = [b"| offset: %d %b: %d " % (record.offset, batch.timestamp_type.encode(), record.timestamp) for record in records]
    delta = module.largest_delta(batch.buffer, 61, batch.size, batch.count)
    assert (delta is None) == (error is not None)
    if delta is not None and batch.timestamp_type == "CreateTime":
        assert batch.base_timestamp + delta == max(record.timestamp for record in records)
    position = 0
    for start in starts:
        position = text.index(start, position) + len(start)


@given(data=st.binary(max_size=600))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_dumped_without_an_error_of_python(data: bytes) -> None:
    files = MemoryFiles()
    files.mkdir("/t-0")
    for name in ("0.log", "0.index", "0.timeindex", "0.txnindex", "0.snapshot", "00000000000000000000-0000000001.checkpoint"):
        files.write_all(f"/t-0/{name}", data)
        run = KafkaDump(files, DumpOptions(print_data_log=True), DumpText(lambda _: None, lambda _: None))
        run.file(f"/t-0/{name}")
        run.finish()
