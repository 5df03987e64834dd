"""Validation of any records. Accepted records keep their contents and get the next offsets. Rejected records break a rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kops.errors import ApiError
from kops.records import BatchBuilder, read_batches
from kops.records.validation.validate import AppendOrigin, ValidationRules, validate_records

NOW = 1_700_000_000_000
FIELDS = st.none() | st.binary(max_size=70)
RECORDS = st.lists(
    st.tuples(st.sampled_from((-1, NOW, NOW - 900, NOW - 1001, NOW + 400, NOW + 501)), FIELDS, FIELDS), min_size=1, max_size=8
)
CODECS = st.sampled_from(("none", "gzip", "snappy", "lz4"))
TARGETS = st.sampled_from(("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"))


@given(
    RECORDS,
    st.sampled_from((0, 1, 2)),
    CODECS,
    TARGETS,
    st.booleans(),
    st.sampled_from(("CreateTime", "LogAppendTime")),
    st.integers(0, 1 << 62),
)
def test_accepted_as_it_was_or_refused_for_a_reason(
    records: list[tuple[int, bytes | None, bytes | None]],
    magic: int,
    codec: str,
    target: str,
    compacted: bool,
    kind: str,
    first_offset: int,
) -> None:
    builder = BatchBuilder(magic=magic, codec=codec)
    for timestamp, key, value in records:
        builder.append(timestamp, key, value)
    data = builder.build()
    times = [timestamp if magic else -1 for timestamp, _, _ in records]
    rules = ValidationRules(
        "orders-0",
        compacted=compacted,
        timestamp_type=kind,
        timestamp_before_max_ms=1000,
        timestamp_after_max_ms=500,
        compression_type=target,
    )
    keyless = [index for index, (_, key, _) in enumerate(records) if compacted and key is None]
    late = [index for index, time in enumerate(times) if kind == "CreateTime" and time != -1 and not NOW - 1000 <= time <= NOW + 500]
    try:
        written = validate_records(
            data,
            read_batches(data),
            rules,
            first_offset=first_offset,
            now_ms=NOW,
            leader_epoch=4,
            origin=AppendOrigin.CLIENT,
        )
    except ApiError as error:
        wrong = sorted({*keyless, *late})
        found = [index for index, _ in error.record_errors]
        # Uncompressed messages of v0 and v1 are batches of one record each, and the first wrong one ends the validation.
        assert found == (wrong if magic > 1 or codec != "none" else [0])
        assert error.name == "INVALID_TIMESTAMP" if set(late) - set(keyless) and magic > 1 else error.name.startswith("INVALID_")
        return
    assert not keyless and not late
    assert [batch.crc_ok for batch in written.batches] == [True]
    (batch,) = written.batches
    assert batch.codec == {"producer": codec, "uncompressed": "none"}.get(target, target)
    assert batch.partition_leader_epoch == 4
    made = batch.records()
    assert [record.offset for record in made] == list(range(first_offset, first_offset + len(records)))
    assert written.next_offset == first_offset + len(records)
    assert [(record.key, record.value) for record in made] == [record[1:] for record in records]
    assert [record.timestamp for record in made] == (times if kind == "CreateTime" else [NOW] * len(records))
    assert written.max_timestamp == (max(times) if kind == "CreateTime" else NOW)
