"""Hash values from Kafka's own tests, and the partition of records without a key."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.client.producer.partitioners import BuiltInPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(text: bytes, value: int) -> None:
    assert murmur2(text) == value % (1 << 32)


def test_keys_stay_where_they_are() -> None:
    assert [partition_for_key(key, 4) for key in (b"", b"a", b"b", b"key-17")] == [
        (murmur2(key) & 0x7FFFFFFF) % 4 for key in (b"", b"a", b"b", b"key-17")
    ]
    assert partition_for_key(b"anything", 1) == 0


def partitioner(rng: random.Random, *partitions: int) -> BuiltInPartitioner:
    """Return a partitioner with batches of 100 bytes."""
    return BuiltInPartitioner(100, lambda: rng.randrange(1 << 31), lambda: partitions, lambda: len(partitions))


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    drawn = iter([0, 1, 2])
    sticky = BuiltInPartitioner(100, lambda: next(drawn), lambda: [4, 5, 6], lambda: 3)
    assert sticky.current() == 4
    assert not sticky.produced(99, may_switch=True)
    assert not sticky.produced(1, may_switch=False)  # enough, but the batch could take more
    assert sticky.current() == 4
    assert sticky.produced(1, may_switch=True)
    assert sticky.current() == 5
    assert sticky.produced(200, may_switch=False)  # twice as much is always enough
    assert sticky.current() == 6


def test_shorter_queues_are_chosen_more_often() -> None:
    own = partitioner(random.Random(7), 0, 1, 2)
    # Kafka's example: queues of 0, 3 and 1 batches are chosen 4, 1 and 3 times out of 8.
    own.load([0, 3, 1], [0, 1, 2], 3)
    found: Counter[int] = Counter()
    for _ in range(8000):
        found[own.current()] += 1
        own.produced(200, may_switch=True)
    assert all(abs(found[partition] - 1000 * share) < 150 for partition, share in ((0, 4), (1, 1), (2, 3)))
