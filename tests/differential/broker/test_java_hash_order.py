"""HashMap's order of iteration, against java.util.HashMap itself, including trees in its buckets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kops.config.values.java_hash import HashOrder, scala_map_order, store_order
from kops.coordinators.groups.assignors.java_maps import grouped, topic_partition_hash

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle


def draw_keys(rng: random.Random) -> list[int]:
    """Draw consecutive ids, random ids, or ids of which many share a bucket."""
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


def test_shards_of_groups(oracle: Oracle) -> None:
    """Groups by the partition of their coordinator have the order of HashMap.computeIfAbsent with TopicPartition."""
    rng = random.Random(1)
    identity = oracle.java_class("java.util.function.Function").identity()
    place = oracle.java_class("org.apache.kafka.common.TopicPartition")
    for count in (1, 5, 12, 13, 30, 50, 200):
        theirs = oracle.jvm.java.util.HashMap()
        numbers = [rng.randrange(count) for _ in range(count)]
        for number in numbers:
            theirs.computeIfAbsent(place("__consumer_offsets", number), identity)
        ours = grouped(numbers, lambda number: ("__consumer_offsets", number), topic_partition_hash)
        assert str(theirs.keySet().toString()) == f"[{', '.join(f'{topic}-{number}' for topic, number in ours)}]"
        assert sorted(number for each in ours.values() for number in each) == sorted(numbers)


def test_partitions_and_ids_of_transactions(oracle: Oracle) -> None:
    """The orders are those of Scala's mutable.HashMap with Integer, and of ConcurrentHashMap with String."""
    rng = random.Random(2)
    for count in (0, 1, 11, 12, 13, 23, 24, 47, 48, 50, 100):
        numbers, names = rng.sample(range(max(count, 50)), count), [f"id-{rng.randrange(10**9)}" for _ in range(count)]
        of_scala = oracle.jvm.scala.collection.mutable.HashMap()
        of_java = oracle.jvm.java.util.concurrent.ConcurrentHashMap()
        for number, name in zip(numbers, names, strict=True):
            of_scala.put(number, "")
            of_java.put(name, "")
        assert str(of_scala.keysIterator().mkString(" ")) == " ".join(map(str, scala_map_order(numbers)))
        assert str(of_java.keySet().toString()) == f"[{', '.join(store_order(names))}]"
