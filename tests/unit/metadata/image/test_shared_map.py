"""Maps that share their unchanged parts."""

from __future__ import annotations

import random

from kops.metadata.image.parts.shared_map import SharedMap


def test_it_is_a_map_after_any_changes() -> None:
    """It behaves like a dict through growth, replacement and removal, with keys of every kind. Older maps do not change."""
    rng = random.Random(1)
    keys: list[object] = [f"topic-{number}" for number in range(300)] + list(range(-5, 300))
    keys += [rng.randbytes(16) for _ in range(300)] + [(2, f"topic-{number}") for number in range(300)] + [(("user", None),), ""]
    expected: dict[object, int] = {}
    made: SharedMap[object, int] = SharedMap()
    history = []
    for step in range(200):
        changes = {rng.choice(keys): rng.choice([None, step, step]) for _ in range(rng.randrange(1, 40))}
        made = made.changed(changes)
        expected = {key: value for key, value in (expected | changes).items() if value is not None}
        history.append((made, dict(expected)))
    assert len(expected) > 600
    for older, values in history[::20]:
        assert older == values
        assert len(older) == len(values)
        assert all(older[key] == older.get(key) == value and key in older for key, value in values.items())
        assert not any(key in older for key in keys if key not in values)


def test_a_change_copies_little() -> None:
    """Of ten thousand values, all but one percent are in the same dicts as before."""
    large = SharedMap({f"topic-{number}": number for number in range(10_000)})
    changed = large.changed({"topic-77": -1, "new": 1})
    shared = {id(shard) for shard in large._shards} & {id(shard) for shard in changed._shards}
    assert sum(len(shard) for shard in changed._shards if id(shard) in shared) > 9_900
    assert changed["topic-77"] == -1
    assert large["topic-77"] == 77
    assert "new" not in large


def test_no_change_is_the_same_map() -> None:
    one = SharedMap({"a": 1})
    assert one.changed({}) is one
    assert one.changed({"b": None}) == one


def test_the_order_does_not_depend_on_the_process() -> None:
    """The first keys are the same in every process, whatever PYTHONHASHSEED is."""
    many = SharedMap({f"topic-{number}": number for number in range(1000)})
    assert list(many)[:3] == ["topic-6", "topic-18", "topic-66"]
