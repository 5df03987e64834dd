"""State that can go back: changes are undone in order, and the committed state can be read beside the replayed one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kops.timeline import Timeline, TimelineDict, TimelineValue


def test_a_dict_goes_back_and_shows_what_is_committed() -> None:
    timeline = Timeline()
    values: TimelineDict[str, int] = TimelineDict(timeline)
    timeline.offset = 1
    values["a"] = 1
    values["b"] = 1
    timeline.forget_up_to(1)
    timeline.offset = 2
    values["a"] = 2
    del values["b"]
    values["c"] = 2
    assert dict(values) == {"a": 2, "c": 2}
    assert dict(values.committed_items()) == {"a": 1, "b": 1}
    assert (values.committed("b"), values.committed("c"), values.committed("c", 7)) == (1, None, 7)
    timeline.revert_to(1)
    assert dict(values) == dict(values.committed_items()) == {"a": 1, "b": 1}


def test_a_value_goes_back_to_what_it_was_before_any_record() -> None:
    timeline = Timeline()
    value = TimelineValue(timeline, 5)
    timeline.offset = 3
    value.value = 6
    value.value = 7
    assert (value.value, value.committed) == (7, 5)
    timeline.revert_to(2)
    assert (value.value, value.committed) == (5, 5)
    timeline.offset = 3
    value.value = 8
    timeline.forget_up_to(3)
    assert value.committed == 8


def test_random_changes_agree_with_copies() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        timeline = Timeline()
        values: TimelineDict[int, int] = TimelineDict(timeline)
        copies: dict[int, dict[int, int]] = {-1: {}}
        committed = offset = -1
        for _ in range(60):
            chosen = draw.random()
            if chosen < 0.7:
                offset += 1
                timeline.offset = offset
                for _ in range(draw.randint(0, 3)):
                    key = draw.randint(0, 4)
                    if key in values and draw.random() < 0.4:
                        del values[key]
                    else:
                        values[key] = draw.randint(0, 99)
                copies[offset] = dict(values)
            elif chosen < 0.9:
                committed = draw.randint(committed, offset)
                timeline.forget_up_to(committed)
            else:
                offset = draw.randint(committed, offset)
                timeline.revert_to(offset)
            assert dict(values) == copies[offset], seed
            assert dict(values.committed_items()) == copies[committed], seed
            assert {key: values.committed(key) for key in copies[committed]} == copies[committed], seed


def test_what_is_settled_is_not_noted() -> None:
    timeline = Timeline()
    values: TimelineDict[str, int] = TimelineDict(timeline)
    timeline.is_settled = True
    timeline.offset = 5
    values["a"] = 1
    assert values.committed("a") == 1
    timeline.is_settled = False
    timeline.offset = 6
    values["a"] = 2
    assert values.committed("a") == 1
    timeline.revert_to(4)
    assert values == {"a": 1}


def test_every_change_of_a_dict_is_noted() -> None:
    changes: list[Callable[[TimelineDict[str, int]], object]] = [
        lambda values: values.pop("a"),
        lambda values: values.pop("a", 7),
        lambda values: values.popitem(),
        lambda values: values.setdefault("c", 3),
        lambda values: values.clear(),
        lambda values: values.update({"a": 5}, d=4),
        lambda values: values.__ior__({"b": 6}),
        lambda values: values.__delitem__("b"),
    ]
    for change in changes:
        timeline, plain = Timeline(), {"a": 1, "b": 2}
        values: TimelineDict[str, int] = TimelineDict(timeline)
        values.update(plain)
        timeline.forget_up_to(-1)
        timeline.offset = 1
        change(values)
        change(plain)  # type: ignore[arg-type]  # a dict does the same
        assert dict(values) == plain
        assert dict(values.committed_items()) == {"a": 1, "b": 2}
        timeline.revert_to(0)
        assert dict(values) == {"a": 1, "b": 2}


def test_a_missing_key_of_a_dict_changes_nothing() -> None:
    values: TimelineDict[str, int] = TimelineDict(Timeline())
    for change in (lambda: values.pop("a"), values.popitem, lambda: values.__delitem__("a")):
        with pytest.raises(KeyError):
            change()
    assert values.pop("a", None) is None
    assert values.setdefault("a", 1) == values.setdefault("a", 2) == 1
