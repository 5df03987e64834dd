"""Hash values from Kafka's own tests, and the partition of records without a key."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.client.producer.partitioners import StickyPartitioner, choose_partition, murmur2, partition_for_key


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


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    drawn = iter([0.0, 0.5, 0.99])
    sticky = StickyPartitioner(100, lambda: next(drawn))

    def choose(draw: float) -> int:
        return int(draw * 3)

    assert sticky.partition(choose) == 0
    sticky.added(99, batch_is_ready=True)
    assert sticky.partition(choose) == 0
    sticky.added(1, batch_is_ready=False)  # enough, but the batch could take more
    assert sticky.partition(choose) == 0
    sticky.added(1, batch_is_ready=True)
    assert sticky.partition(choose) == 1
    sticky.added(200, batch_is_ready=False)  # twice as much is always enough
    assert sticky.partition(choose) == 2


def test_shorter_queues_are_chosen_more_often() -> None:
    rng = random.Random(7)
    # Kafka's example: queues of 0, 3 and 1 batches are chosen 4, 1 and 3 times out of 8.
    found = Counter(choose_partition(rng.random(), [0, 1, 2], {0: 0, 1: 3, 2: 1}) for _ in range(8000))
    assert all(abs(found[partition] - 1000 * share) < 150 for partition, share in ((0, 4), (1, 1), (2, 3)))
    even = Counter(choose_partition(rng.random(), [4, 6], {4: 2, 6: 2}) for _ in range(2000))
    assert set(even) == {4, 6}
    assert choose_partition(0.999, [3], {}) == 3
    assert choose_partition(0.999, [1, 2], None) == 2
