"""Filters of records, times and encodings."""

from __future__ import annotations

from typing import Any

import pytest

from kops.errors import UsageError
from kops.forensics.dump.filters import RecordFilter, check_encoding, encode_bytes, parse_headers, parse_key, parse_time
from kops.records import Batch, BatchBuilder, Record

RECORD = Record(10, 5000, "CreateTime", b"eu-1", b"v", [("source", b"web"), ("empty", None)])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("-1", -1),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text, "--from-time") == milliseconds


def test_wrong_words_name_the_option() -> None:
    with pytest.raises(UsageError, match="--from-time yesterday: neither"):
        parse_time("yesterday", "--from-time")
    with pytest.raises(UsageError, match=r"--key \(: not a regular expression"):
        parse_key("(", "--key")
    with pytest.raises(UsageError, match="--key-encoding utf16: not one of utf8, hex, base64"):
        check_encoding("utf16", "--key-encoding")


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, True),
        ({"from_offset": 10, "to_offset": 10}, True),
        ({"from_offset": 11}, False),
        ({"to_offset": 9}, False),
        ({"from_time": 5000, "to_time": 5000}, True),
        ({"from_time": 5001}, False),
        ({"to_time": 4999}, False),
        ({"key": parse_key("^eu", "--key")}, True),
        ({"key": parse_key("us", "--key")}, False),
        ({"headers": parse_headers(["source=web", "empty"])}, True),
        ({"headers": parse_headers(["source=app"])}, False),
        ({"headers": parse_headers(["missing"])}, False),
    ],
)
def test_records(fields: dict[str, Any], matches: bool) -> None:
    assert RecordFilter(**fields).record_matches(RECORD) is matches


def test_a_null_key_never_matches() -> None:
    record = Record(0, 0, "CreateTime", None, None)
    assert not RecordFilter(key=parse_key("", "--key")).record_matches(record)


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, True),
        ({"from_offset": 102}, True),
        ({"from_offset": 103}, False),
        ({"to_offset": 100}, True),
        ({"to_offset": 99}, False),
        ({"from_time": 1002}, True),
        ({"from_time": 1003}, False),
        ({"producer_id": 7, "producer_epoch": 2, "leader_epoch": 4}, True),
        ({"producer_id": 8}, False),
        ({"producer_epoch": 1}, False),
        ({"leader_epoch": 3}, False),
        ({"control": False}, True),
        ({"control": True}, False),
    ],
)
def test_batches(fields: dict[str, Any], matches: bool) -> None:
    builder = BatchBuilder(base_offset=100, producer_id=7, producer_epoch=2, base_sequence=0, partition_leader_epoch=4)
    for index in range(3):
        builder.append(1000 + index, None, b"")
    assert RecordFilter(**fields).batch_may_match(Batch(builder.build())) is matches


def test_encodings() -> None:
    data = b"\xff\x00a"
    assert encode_bytes(data, "hex") == "ff0061"
    assert encode_bytes(data, "base64") == "/wBh"
    assert encode_bytes(data, "utf8") == "\ufffd\x00a"
    assert encode_bytes(None, "hex") is None
