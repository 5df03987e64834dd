"""A batch under construction: the faster way for plain records makes the same batch. Also sizes, estimates and outcomes."""

from __future__ import annotations

import random
import sys

import pytest

from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.batches import CompressionRatios, ProducerBatch
from kops.records.compression import codec_id
from kops.records.log_offsets import TopicPartition
from kops.records.scanning.scanner import read_batches

pytestmark = pytest.mark.hot
A0 = TopicPartition("a", 0)


def fresh(codec: str, limit: int, ratio: float) -> ProducerBatch:
    return ProducerBatch(A0, 0, limit=limit, memory=limit, codec=codec_id(codec), ratio=ratio)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("seed", range(6))
def test_the_shorter_way_makes_the_same_batch(seed: int, codec: str) -> None:
    dice = random.Random(seed)
    limit, ratio, stamp = dice.choice([2000, 5000, 40_000]), dice.choice([0.3, 1.0]), 1_000_000
    long, short = fresh(codec, limit, ratio), fresh(codec, limit, ratio)
    quick = 0
    for index in range(3000):
        stamp += 5000 if index == 60 else dice.choice([0, 1, 5, -3])
        key = dice.choice([None, b"", b"k" * dice.choice([1, 63, 64, 200])])
        value = dice.choice([None, b"", b"v" * dice.choice([*[1, 63, 64, 200] * 50, 5000])])
        mine, other = Delivery(), Delivery()
        fits = long.try_append(stamp, key, value, (), mine)
        mine.describe(stamp, key, value)
        before = short.estimated_size if short.count else 0
        added = short.append_quickly(stamp, key, value, other)
        if added:
            quick += 1
            assert added == max(short.estimated_size - before, 1)
            assert (mine.timestamp, mine.key_size, mine.value_size) == (other.timestamp, other.key_size, other.value_size)
            assert mine.index == other.index
        assert fits is bool(added or short.try_append(stamp, key, value, (), other))
        for name in ("count", "estimated_size", "is_full", "max_record_size"):
            assert getattr(long, name) == getattr(short, name), name
        for name in ("largest", "max_timestamp", "base_timestamp"):
            assert getattr(long.records, name) == getattr(short.records, name), name
    assert quick
    assert long.build(CompressionRatios()) == short.build(CompressionRatios())
    assert not long.append_quickly(stamp, None, b"", Delivery())


def test_estimates_sink_slowly_and_rise_fast() -> None:
    ratios = CompressionRatios()
    ratios.observe("a", 0.2)
    assert ratios.estimate("a") == pytest.approx(0.995)
    ratios.observe("a", 1.5)
    assert ratios.estimate("a") == 1.5
    ratios.reset("a", 0.5)
    ratios.observe("a", 0.51)
    assert ratios.estimate("a") == pytest.approx(0.55)
    assert ratios.estimate("b") == 1.0


def test_the_first_record_is_always_taken() -> None:
    batch = fresh("none", 10, 1.0)
    assert batch.try_append(5, b"k", b"v" * 100, (("h", None),), Delivery())
    assert batch.is_full
    assert not batch.try_append(5, None, b"", (), Delivery())
    (read,) = read_batches(batch.build(CompressionRatios()))
    assert [(one.key, one.value, one.headers, one.timestamp) for one in read.records()] == [(b"k", b"v" * 100, [("h", None)], 5)]


def test_callbacks_come_in_the_order_of_the_records_also_after_a_split() -> None:
    batch, deliveries = fresh("none", 2000, 1.0), [Delivery() for _ in range(9)]
    told: list[Delivery] = []
    deliveries[5].add(told.append)
    for delivery in deliveries:
        assert batch.try_append(5, None, b"v" * 90, (), delivery)
    deliveries[7].add(told.append)
    deliveries[1].add(told.append)
    batch.build(CompressionRatios())
    parts = batch.split(400)
    assert len(parts) == 3 and not batch.take_watched()
    offset = 100
    for part in parts:
        assert not deliveries[offset - 100].done()
        part.complete(offset, -1)
        offset += part.count
        for delivery in part.take_watched():
            for callback in delivery.take_callbacks():
                callback(delivery)
    assert told == [deliveries[1], deliveries[5], deliveries[7]]
    assert [delivery.metadata().offset for delivery in deliveries] == list(range(100, 109))
    assert batch.is_over is False


def test_a_batch_that_gets_new_numbers_in_flight_can_be_split() -> None:
    """A new epoch renumbers the batches in flight. Then the answer MESSAGE_TOO_LARGE comes."""
    batch = fresh("gzip", 2000, 1.0)
    for _ in range(9):
        assert batch.try_append(5, None, b"v" * 90, (), Delivery())
    batch.set_identity(7, 0, 20)
    batch.build(CompressionRatios())
    batch.reset_identity(7, 1, 0)
    parts = batch.split(400)
    assert sum(part.count for part in parts) == 9
    assert [(part.producer_epoch, part.base_sequence) for part in parts[:2]] == [(1, 0), (1, parts[0].count)]


def test_a_batch_keeps_no_delivery_without_callbacks() -> None:
    batch, dropped, watched = fresh("none", 2000, 1.0), Delivery(), Delivery()
    watched.add(print)
    for delivery in (dropped, watched):
        assert batch.try_append(5, None, b"v", (), delivery)
    delivery = None  # type: ignore[assignment]
    assert sys.getrefcount(dropped) + 1 == sys.getrefcount(watched)


def test_a_failed_batch_takes_no_more_records() -> None:
    """The producer may still have it at hand when it expires."""
    batch = fresh("none", 2000, 1.0)
    assert batch.try_append(5, None, b"v", (), Delivery())
    assert batch.append_quickly(5, None, b"v", Delivery())
    batch.fail(ValueError())
    assert not batch.append_quickly(5, None, b"v", Delivery())
    assert not batch.try_append(5, None, b"v", (), Delivery())


def test_an_outcome_comes_once() -> None:
    batch, delivery = fresh("none", 100, 1.0), Delivery()
    batch.try_append(5, None, b"v", (), delivery)
    delivery.describe(5, None, b"v")
    assert batch.complete(7, -1)
    assert not batch.fail(ValueError())
    assert not batch.complete(8, -1)
    assert delivery.metadata() == ("a", 0, 7, 5, -1, 1)


def test_the_text_of_a_delivery_is_its_outcome() -> None:
    written, rejected, deliveries = fresh("none", 100, 1.0), fresh("none", 100, 1.0), (Delivery(), Delivery())
    for batch, delivery in zip((written, rejected), deliveries, strict=True):
        batch.try_append(5, None, b"v", (), delivery)
        delivery.describe(5, None, b"v")
        assert repr(delivery) == "<Delivery: not acknowledged yet>"
    written.complete(7, -1)
    rejected.fail(ValueError("too late"))
    assert repr(deliveries[0]) == f"<Delivery: {deliveries[0].metadata()!r}>"
    assert "offset=7" in repr(deliveries[0])
    assert repr(deliveries[1]) == "<Delivery: ValueError('too late')>"
