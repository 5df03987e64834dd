"""Plans of reassignments: Kafka's JSON, what moves from where to where, and which replicas are throttled for it."""

from __future__ import annotations

import json

import pytest

from kops.client import reassignment
from kops.client.metadata import Metadata
from kops.client.partitions import Reassignment, Replica
from kops.client.reassignment import Move, Plan, moves, parse_plan, parse_topics_to_move, plan_text, throttled_replicas
from kops.client.topics import PartitionInfo, TopicInfo, match_infos, match_topics
from kops.errors import DecodeError, NotFoundError, UsageError
from kops.records.log_offsets import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TEXT = (
    '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["/d1","any"]},'
    '{"topic":"a","partition":1,"replicas":[3],"log_dirs":["any"]}]}'
)


def test_a_plan_is_written_as_it_was_read() -> None:
    plan = parse_plan(TEXT, "f")
    assert plan == Plan({A0: [1, 2], A1: [3]}, {Replica("a", 0, 1): "/d1"})
    assert plan_text(plan) == TEXT


class StandingClock:
    """A client that only knows the time. A turn takes as long as it may."""

    metadata = Metadata([("localhost", 9092)], max_age_ms=0)

    def __init__(self) -> None:
        self.time_ms = 0.0

    def now_ms(self) -> float:
        return self.time_ms

    def turn(self, timeout_ms: float) -> None:
        self.time_ms += timeout_ms


@pytest.mark.parametrize(("lag_ms", "state"), [(0, "completed"), (300, "completed"), (60_000, "differs")])
def test_a_broker_that_lags_is_asked_again(monkeypatch: pytest.MonkeyPatch, lag_ms: int, state: str) -> None:
    clock = StandingClock()

    def describe(*_: object) -> dict[str, TopicInfo]:
        replicas = [2, 3] if clock.time_ms >= lag_ms else [1, 2]
        return {"a": TopicInfo("a", "", False, [PartitionInfo(0, 2, 5, replicas, replicas, [])])}

    monkeypatch.setattr(reassignment, "list_reassignments", lambda *_: {})
    monkeypatch.setattr(reassignment, "describe_topics", describe)
    found = reassignment.verify(clock, Plan({A0: [2, 3]}, {}), preserve_throttles=True)  # type: ignore[arg-type]
    assert found.partitions[A0].state == state
    assert clock.time_ms <= 1000


def test_log_dirs_may_be_left_out() -> None:
    assert parse_plan('{"partitions": [{"topic": "a", "partition": 0, "replicas": [2]}]}', "f") == Plan({A0: [2]}, {})


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], "it contains no partitions"),
        ([{"topic": "a", "partition": 0, "replicas": []}], '"replicas" of a-0 is not a list of broker ids'),
        ([{"topic": "a", "partition": 0, "replicas": ["1"]}], '"replicas" of a-0 is not a list of broker ids'),
        ([{"topic": "a", "partition": 0, "replicas": [1, 1]}], "a broker appears twice among the replicas of a-0"),
        ([{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": []}], '"log_dirs" of a-0 needs one path'),
        ([{"topic": "a", "partition": 0, "replicas": [1]}] * 2, "a-0 appears twice"),
        ([{"topic": "a", "partition": 0}], '"replicas" of .* is not an array'),
    ],
)
def test_plans_that_make_no_sense_say_why(partitions: list[object], words: str) -> None:
    with pytest.raises(DecodeError, match=f"f: {words}"):
        parse_plan(json.dumps({"version": 1, "partitions": partitions}), "f")


def test_the_file_of_topics_to_move() -> None:
    assert parse_topics_to_move('{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}', "f") == ["a", "b"]
    with pytest.raises(DecodeError, match="a topic appears twice"):
        parse_topics_to_move('{"topics": [{"topic": "a"}, {"topic": "a"}]}', "f")


def test_moves_know_what_is_under_way() -> None:
    # As in Kafka's ReassignPartitionsUnitTest.testMoveMap, sources are where the records are now.
    ongoing = {A0: Reassignment([1, 2, 4], [4], [1]), B0: Reassignment([5, 6], [6], [])}
    found = moves(ongoing, {A0: [2, 5], A1: [3, 4]}, {A0: [1, 2], A1: [3, 1]})
    assert found == {A0: Move({1, 2}, {5}), B0: Move({5}, {6}), A1: Move({1, 3}, {4})}
    assert throttled_replicas(found) == {"a": ("0:1,0:2,1:1,1:3", "0:5,1:4"), "b": ("0:5", "0:6")}


def test_topics_by_name_and_by_regular_expression() -> None:
    there = ["a.b", "a_b", "orders", "orders-2", "__consumer_offsets"]
    assert match_topics(there, ["a.b"]) == ["a.b"]  # exactly that name, not its meaning as a regular expression
    assert match_topics(there, ["a.b?", "orders.*"]) == ["a.b", "a_b", "orders", "orders-2"]
    assert match_topics(there, ["orders,a_b"]) == ["a_b", "orders"]
    infos = {name: TopicInfo(name, "", name.startswith("__")) for name in there}
    assert match_infos(infos, [], exclude_internal=True) == ["a.b", "a_b", "orders", "orders-2"]
    assert match_infos(infos, [], exclude_internal=False) == match_topics(there, [])
    assert match_topics([], []) == []
    with pytest.raises(NotFoundError, match="no such topic: order"):
        match_topics(there, ["order"])
    with pytest.raises(UsageError, match="neither a topic nor a regular expression"):
        match_topics(there, ["["])
