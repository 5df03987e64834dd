"""How the command line names an offset, and Kafka's JSON files."""

from __future__ import annotations

import json

import pytest

from kops.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, OffsetSpec, parse_delete_records, parse_offset
from kops.client.partitions import parse_election
from kops.errors import DecodeError, UsageError
from kops.records.log_offsets import TopicPartition


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("earliest", ("named", EARLIEST)),
        ("latest", ("named", LATEST)),
        ("max-timestamp", ("named", MAX_TIMESTAMP)),
        ("earliest-local", ("named", EARLIEST_LOCAL)),
        ("0", ("offset", 0)),
        ("17", ("offset", 17)),
        ("-5", ("before-end", 5)),
        ("@1700000000123", ("time", 1700000000123)),
        ("2023-11-14T22:13:20.123Z", ("time", 1700000000123)),
        ("2023-11-14T23:13:20.123+01:00", ("time", 1700000000123)),
        ("@2023-11-14T22:13:20.123", ("time", 1700000000123)),
        ("2023-11-14", ("time", 1699920000000)),
    ],
)
def test_offsets(text: str, spec: tuple[str, int]) -> None:
    assert parse_offset(text) == OffsetSpec(*spec)


@pytest.mark.parametrize("text", ["", "first", "1.5", "@", "@soon", "--5", "2023-13-01", "٣"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(UsageError, match=r"--time .*: not allowed; allowed: earliest, latest, max-timestamp, an offset N"):
        parse_offset(text, "--time")


def test_the_file_of_offsets_to_delete_up_to() -> None:
    text = '{"partitions": [{"topic": "a", "partition": 1, "offset": 5}, {"topic": "a", "partition": 0, "offset": -1}], "version": 1}'
    assert parse_delete_records(text, "f") == {TopicPartition("a", 1): 5, TopicPartition("a", 0): -1}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "f: not JSON"),
        ([], 'f: not a JSON object with an array "partitions"'),
        ({"partitions": 1}, 'f: not a JSON object with an array "partitions"'),
        ({"partitions": [], "version": 2}, "f: version 2 is not known; allowed: 1"),
        ({"partitions": [1]}, 'f: an element of "partitions" is not an object'),
        ({"partitions": [{"topic": "a", "partition": "0", "offset": 1}]}, 'f: "partition" of .* is not a number'),
        ({"partitions": [{"partition": 0, "offset": 1}]}, 'f: "topic" of .* is not a text'),
        ({"partitions": [{"topic": "a", "partition": True, "offset": 1}]}, "is not a number"),
        ({"partitions": [{"topic": "a", "partition": 0, "offset": 1}] * 2}, "f: a-0 appears twice"),
    ],
)
def test_files_that_make_no_sense_say_why(document: object, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        parse_delete_records(document if isinstance(document, str) else json.dumps(document), "f")


def test_the_file_of_elections() -> None:
    text = '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "b", "partition": 0}]}'
    assert parse_election(text, "f") == [TopicPartition("a", 1), TopicPartition("b", 0)]
    with pytest.raises(DecodeError, match="a-1 appears twice"):
        parse_election('{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 1}]}', "f")
