"""Durations and CSV files of offsets, as Java and Kafka's tool read them."""

from __future__ import annotations

import pytest

from kops.client.coordinators.resets import csv_rows, parse_duration_ms, read_csv
from kops.errors import DecodeError, UsageError
from kops.records.log_offsets import TopicPartition


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT1S", 86_401_000),
        ("pt1.5s", 1500),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("PT-1.25S", -1250),
        ("PT1.2345S", 1234),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text, "--by-duration") == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "PT1D", "P1H", "PT1H1H", "PT1.5M"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="--by-duration"):
        parse_duration_ms(text, "--by-duration")


def test_files_of_one_group_and_of_several() -> None:
    plan = {"g,1": {TopicPartition("t", 0): 5}, "a": {TopicPartition("t", 1): 7, TopicPartition("s", 0): 1}}
    assert csv_rows(plan, with_group=True) == [("a", "s", 0, 1), ("a", "t", 1, 7), ("g,1", "t", 0, 5)]
    assert read_csv('a,s,0,1\n\na,t,1,7\n"g,1",t,0,5\n', [], "f") == plan
    assert read_csv("s,0,1\nt,1,7\n", ["a"], "f") == {"a": plan["a"]}
    assert read_csv("b,s,0,1\n", ["a"], "f") == {"b": {TopicPartition("s", 0): 1}}


@pytest.mark.parametrize(
    ("text", "groups", "why"),
    [
        ("t,0,1\n", [], "f:1: 3 fields, but group,topic,partition,offset is needed; name the group with --group if the file has none"),
        ("t,0,1\n", ["a", "b"], "f:1: 3 fields"),
        ("t,0,1\nt,1\n", ["a"], "f:2: 2 fields, but topic,partition,offset is needed"),
        ("t,x,1\n", ["a"], "f:1: partition and offset must be numbers: x, 1"),
        ("t,0,1.5\n", ["a"], "f:1: partition and offset must be numbers: 0, 1.5"),
    ],
)
def test_broken_files(text: str, groups: list[str], why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read_csv(text, groups, "f")
