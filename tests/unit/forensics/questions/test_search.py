"""`kops.forensics.questions.search`: conditions on records, compared with a loop that looks at each record."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kops.errors import DecodeError
from kops.forensics.coordinators.records import Lost
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.questions.outcomes import Outcomes, _add
from kops.forensics.questions.search import Hit, Search, decode_json, literal_of, search
from kops.forensics.questions.values.json_path import parse_condition
from kops.records import Batch, BytesSource, Record, build_batch, end_txn_marker, scan

VALUES = [b'{"id": 1, "state": "paid"}', b'{"id": 2, "state": "failed"}', b"no json", None, b"key-7 in a value"]


def records(start: int) -> list[Record]:
    return [
        Record(
            start + place,
            1000 + start + place,
            "CreateTime",
            None if place == 3 else b"key-%d" % (start + place),
            value,
            [("h", b"v%d" % place)],
        )
        for place, value in enumerate(VALUES)
    ]


def log() -> bytes:
    """Return batches with each codec, and transactions of producer 7 (committed), 8 (aborted) and 9 (open)."""
    codecs = [build_batch(records(start), codec=codec) for start, codec in ((0, "none"), (5, "gzip"), (10, "lz4"))]
    begun = [
        build_batch(records(15 + 5 * place), producer_id=7 + place, producer_epoch=0, base_sequence=0, transactional=True)
        for place in range(3)
    ]
    ends = [
        end_txn_marker(30 + place, 2000, commit=place == 0, coordinator_epoch=0, producer_id=7 + place, producer_epoch=0)
        for place in range(2)
    ]
    return b"".join([*codecs, *begun, *ends])


LOG = log()
ALL = [record for item in scan(BytesSource(LOG)) if isinstance(item, Batch) and not item.is_control for record in item.records()]


def outcomes() -> Outcomes:
    found = Outcomes()
    for item in scan(BytesSource(LOG)):
        if isinstance(item, Batch) and item.is_control:
            _add(found, item)
    return found


def found_by(wanted: Search, data: bytes = LOG) -> list[int]:
    return [hit.record.offset for hit in search(scan(BytesSource(data)), wanted, "log", outcomes()) if isinstance(hit, Hit)]


def has(text: bytes, part: bytes | None) -> bool:
    return part is not None and re.search(text, part) is not None


@pytest.mark.parametrize(
    "wanted,fits",
    [
        (Search(), lambda record: True),
        (Search(key=re.compile(b"^key-1")), lambda record: has(b"^key-1", record.key)),
        (Search(key=re.compile(b"key-7$")), lambda record: has(b"key-7$", record.key)),
        (Search(value=re.compile(b"key-7")), lambda record: has(b"key-7", record.value)),
        (Search(value=re.compile(b"(?i)PAID|json")), lambda record: has(b"(?i)PAID|json", record.value)),
        (Search(key=re.compile(b"7"), value=re.compile(b"json")), lambda record: has(b"7", record.key) and has(b"json", record.value)),
        (Search(headers=((b"h", None),)), lambda record: True),
        (Search(headers=((b"h", re.compile(b"v[12]")),)), lambda record: record.offset % 5 in (1, 2)),
        (Search(headers=((b"other", None),)), lambda record: False),
        (Search(key=re.compile(b"key-7"), invert=True), lambda record: not has(b"key-7", record.key)),
        (Search(RecordFilter(from_offset=7, to_offset=12, control=False)), lambda record: 7 <= record.offset <= 12),
        (
            Search(RecordFilter(from_time=1020, control=False), key=re.compile(b"2")),
            lambda record: record.offset >= 20 and has(b"2", record.key),
        ),
        (Search(RecordFilter(producer_id=8, control=False)), lambda record: 20 <= record.offset < 25),
        (Search(producers=frozenset((7, 9))), lambda record: 15 <= record.offset < 20 or 25 <= record.offset < 30),
        (Search(outcomes=frozenset(("committed",))), lambda record: 15 <= record.offset < 20),
        (Search(outcomes=frozenset(("aborted", "open"))), lambda record: 20 <= record.offset < 30),
        (
            Search(outcomes=frozenset(("none",)), value=re.compile(b"paid")),
            lambda record: record.offset < 15 and has(b"paid", record.value),
        ),
        (
            Search(parts=(parse_condition("$.state=failed", ""),), decode=decode_json),
            lambda record: record.offset % 5 == 1,
        ),
        (
            Search(parts=(parse_condition("$.state=failed", ""),), decode=decode_json, invert=True),
            lambda record: record.offset % 5 != 1,
        ),
        (
            Search(parts=(parse_condition("$.state", ""), parse_condition("$.id=1", "")), decode=decode_json, key=re.compile(b"5")),
            lambda record: record.offset % 5 == 0 and has(b"5", record.key),
        ),
    ],
)
def test_the_records_are_those_that_fit(wanted: Search, fits: Callable[[Record], bool]) -> None:
    assert found_by(wanted) == [record.offset for record in ALL if fits(record)]


def test_the_search_goes_on_behind_damage() -> None:
    broken = bytearray(LOG)
    broken[80] ^= 1
    items = list(search(scan(BytesSource(bytes(broken))), Search(value=re.compile(b"paid")), "log"))
    [lost] = [item for item in items if isinstance(item, Lost)]
    assert (lost.file, lost.position, lost.base_offset, lost.last_offset) == ("log", 0, 0, 4)
    assert [item.record.offset for item in items if isinstance(item, Hit)] == [5, 10, 15, 20, 25]


def test_a_value_that_does_not_fit_its_schema_is_told() -> None:
    def decode(data: bytes) -> object:
        if not data.startswith(b"{"):
            raise DecodeError("a brace is missing")
        return {}

    items = list(search(scan(BytesSource(build_batch(records(0)))), Search(decode=decode), "log"))
    lost = [item for item in items if isinstance(item, Lost)]
    assert [(one.base_offset, one.reason) for one in lost] == [(each, "the value cannot be decoded: a brace is missing") for each in (2, 4)]
    assert [(item.record.offset, item.decoded) for item in items if isinstance(item, Hit)] == [
        (0, {}),
        (1, {}),
        (2, None),
        (3, None),
        (4, None),
    ]


@pytest.mark.parametrize(
    "pattern,literal",
    [
        (b"abc", b"abc"),
        (b"^abc$", b"abc"),
        (b"a.c", None),
        (b"abc\\$", None),
        (b"(?i)abc", None),
        (b"^$", None),
        (b"a|b", None),
        (b"", None),
    ],
)
def test_the_text_that_every_match_has(pattern: bytes, literal: bytes | None) -> None:
    assert literal_of(re.compile(pattern)) == literal
    assert literal_of(re.compile(pattern, re.IGNORECASE)) is None
