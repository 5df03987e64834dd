"""HashMap's order of iteration, against java.util.HashMap itself, trees in its buckets included."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kops.config.values.java_hash import HashOrder

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle


def draw_keys(rng: random.Random) -> list[int]:
    """Ids in a row, at random, or such that many share a bucket."""
    count = rng.choice([5, 14, 30, 80, 200])
    step = rng.choice([16, 64, 128, 1024, 1 << 20])
    shape = rng.choice(["dense", "wide", "colliding", "mixed"])
    if shape == "dense":
        return [rng.randrange(4 * count) for _ in range(count)]
    if shape == "wide":
        return [rng.getrandbits(63) for _ in range(count)]
    if shape == "colliding":
        return [rng.randrange(count * 2) * step + rng.choice([0, 0, 0, 1]) for _ in range(count)]
    return [rng.choice([rng.randrange(2000) * 64, rng.randrange(100), rng.getrandbits(40)]) for _ in range(count)]


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(20))
def test_order(oracle: Oracle, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        theirs = oracle.jvm.java.util.HashMap()
        identity = oracle.java_class("java.util.function.Function").identity()
        ours = HashOrder()
        seen: set[int] = set()
        puts = rng.choice([0.0, 0.5, 1.0])
        for key in draw_keys(rng):
            boxed = oracle.jvm.java.lang.Long(str(key))
            if rng.random() < puts:
                theirs.put(boxed, "")
                if key not in seen:
                    ours.put(key)
            else:
                theirs.computeIfAbsent(boxed, identity)
                ours.before_compute_if_absent()
                if key not in seen:
                    ours.compute_if_absent(key)
            seen.add(key)
        assert str(list(ours)) == str(theirs.keySet().toString())
        assert len(ours) == len(seen)
