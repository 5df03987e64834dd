"""Which offsets a stream reads next: limits, epochs, and the form of offsets in a checkpoint. No Spark is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kops.errors import UsageError
from kops.files import MemoryFiles
from kops.spark.tail.planning import Limits, View, can_serve, next_positions, ranges
from kops.spark.tail.positions import Position, Positions, read_positions
from kops.storage.segments.epoch_cache import LeaderEpochFileCache

A, B = ("a", 0), ("b", 3)
EPOCHS = ((1, 0), (4, 10), (6, 25))


def view(end: int, *, start: int = 0, bound: int | None = None, epochs: tuple[tuple[int, int], ...] = ()) -> View:
    return View("id", start, end, end if bound is None else bound, epochs)


def weigh(_: object, begin: int, end: int) -> int:
    return 10 * (end - begin)


def cut(_: object, begin: int, size: int) -> int:
    return begin + size // 10


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), [1000, 10]),
        (Limits(offsets=101), [100, 1]),
        (Limits(offsets=2), [1, 1]),  # no partition is starved
        (Limits(offsets=5000), [1000, 10]),
        (Limits(bytes=1010), [100, 1]),
        (Limits(bytes=5), [1, 1]),
        (Limits(offsets=101, bytes=505), [50, 1]),
        (Limits(offsets=50, bytes=100_000), [49, 1]),
    ],
)
def test_limits_are_divided_by_what_partitions_have(limits: Limits, expected: list[int]) -> None:
    start = Positions({A: Position(0), B: Position(0)}, {"a": "id", "b": "id"})
    end = next_positions(start, {A: view(1000), B: view(10)}, limits, weigh, cut).end
    assert [end.at[key].offset for key in (A, B)] == expected


def test_nothing_new_is_the_same_object() -> None:
    start = Positions({A: Position(7, 4)}, {"a": "id"})
    assert next_positions(start, {A: view(9, bound=7, epochs=EPOCHS)}, Limits(), weigh, cut).end is start
    assert next_positions(start, {A: view(9, bound=3, epochs=((4, 0),))}, Limits(), weigh, cut).end is start, "the bound is behind: wait"


@pytest.mark.parametrize("epoch", range(7))
def test_the_end_of_an_epoch_is_that_of_a_broker(epoch: int) -> None:
    cache = LeaderEpochFileCache(MemoryFiles(), "/")
    for entry in EPOCHS:
        cache.assign(*entry)
    assert View("", 0, 40, 40, EPOCHS).end_of_epoch(epoch) == cache.end_offset_for(epoch, 40)


@pytest.mark.parametrize(
    ("position", "begin"),
    [
        (Position(8, 1), None),
        (Position(10, 1), None),
        (Position(12, 1), 10),  # epoch 1 ended at 10 here
        (Position(30, 4), 25),
        (Position(41, 6), 40),
        (Position(20, 5), None),  # the log has no epoch 5
        (Position(40, 6), None),
        (Position(3, 0), 0),
    ],
)
def test_where_a_log_that_was_cut_goes_on(position: Position, begin: int | None) -> None:
    step = next_positions(Positions({A: position}, {"a": "id"}), {A: view(40, epochs=EPOCHS)}, Limits(), weigh, cut)
    told = [loss.first for loss in step.losses]
    if position == Position(20, 5):
        assert told == [None] and step.end.begins == {A: 20}
    else:
        assert told == ([] if begin is None else [begin])
        assert step.end.begins == ({} if begin is None else {A: begin})


def test_a_repeated_range_is_the_same_with_its_loss() -> None:
    start = Positions({A: Position(30, 4)}, {"a": "id"})
    step = next_positions(start, {A: view(40, epochs=EPOCHS)}, Limits(offsets=3), weigh, cut)
    again = read_positions(json.loads(json.dumps(step.end.document())))
    assert again == step.end
    (first,) = ranges(start, again)
    assert (first.begin, first.end, first.epoch) == (25, 28, 6)
    assert first.loss == step.losses[0]


@pytest.mark.parametrize(
    ("replica", "serves"),
    [
        (view(40, epochs=EPOCHS), True),
        (view(28, epochs=EPOCHS), True),
        (view(27, epochs=EPOCHS), False),
        (view(40, start=26, epochs=EPOCHS), False),
        (view(40, epochs=EPOCHS[:2]), False),
        (view(40, epochs=(*EPOCHS, (7, 27))), False),
        (View("other", 0, 40, 40, EPOCHS), False),
        (view(40), True),  # it knows no epochs
    ],
)
def test_which_replica_has_a_range(replica: View, serves: bool) -> None:
    start = Positions({A: Position(25, 4)}, {"a": "id"})
    (wanted,) = ranges(start, Positions({A: Position(28, 6)}, {"a": "id"}))
    assert can_serve(replica, wanted) == serves


def test_offsets_as_json() -> None:
    positions = Positions({A: Position(5, 2), ("a", 11): Position(0), B: Position(9)}, {"a": "x"}, {A: 3}, {("c", 1): Position(4, 1)})
    document = {
        "a": {"0": 5, "11": 0},
        "b": {"3": 9},
        "@ids": {"a": "x"},
        "@epochs": {"a": {"0": 2}, "c": {"1": 1}},
        "@begins": {"a": {"0": 3}},
        "@gone": {"c": {"1": 4}},
    }
    assert positions.document() == document
    assert read_positions(document) == positions
    wrongs: list[dict[str, Any]] = [{"a": 1}, {"a": {"0": True}}, {"a": {"x": 1}}, {"@ids": {"a": 1}}, {"@more": {}}, {"@gone": 4}]
    for wrong in wrongs:
        with pytest.raises(UsageError):
            read_positions(wrong)
