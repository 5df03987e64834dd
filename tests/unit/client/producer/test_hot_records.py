"""The records of an open batch: both variants write what `write_record` writes, and tell when somebody else has to decide."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from kops.records.batch import BATCH_OVERHEAD
from kops.records.build import write_record
from kops.records.varint import write_varint
from tests.support.hot import hot, variants

NAME = "kops.client.producer.core._hot_records"


@pytest.fixture(params=variants())
def module(request: pytest.FixtureRequest) -> ModuleType:
    """Provide a variant of the module."""
    return hot(NAME, request.param)


def test_a_record_is_that_of_write_record(module: ModuleType) -> None:
    rng = random.Random(1)
    records = module.OpenRecords("batch", 10_000_000, is_compressed=False, ratio=1.0)
    records.append(write_record(0, 0, None, b""), 1000, None)
    expected, largest = [write_record(0, 0, None, b"")], 0
    for _ in range(3000):
        count, delta = records.count, rng.choice((0, 1, 63, 64, 4095))
        key = rng.choice((None, b"", b"k" * rng.randrange(200)))
        value = rng.choice((None, b"", b"v" * rng.choice((1, 62, 63, 64, 3000))))
        delivery = module.Delivery()
        before = records.estimate
        assert records.add(1000 + delta, key, value, delivery) == module.TOLD  # no partitioner has given it room
        expected.append(write_record(count, delta, key, value))
        largest = max(largest, len(expected[-1]))
        assert records.added == records.estimate - before == len(expected[-1])
        assert (delivery.batch, delivery.index, delivery.timestamp) == ("batch", count, 1000 + delta)
        assert (delivery.key_size, delivery.value_size) == tuple(-1 if one is None else len(one) for one in (key, value))
    assert b"".join(records.parts) == b"".join(expected)
    assert (records.size, records.largest) == (len(b"".join(expected)), largest)
    assert records.max_timestamp == 1000 + 4095


def test_the_first_record_is_that_of_write_record(module: ModuleType) -> None:
    for key in (None, b"", b"k" * 64):
        for value in (None, b"", b"v" * 3000):
            records = module.OpenRecords("batch", 10, is_compressed=False, ratio=1.0)  # an empty batch takes a record of any size
            delivery = module.Delivery()
            assert records.begin(1000, key, value, delivery) != module.REFUSED
            assert b"".join(records.parts) == write_record(0, 0, key, value)
            assert (records.base_timestamp, records.max_timestamp, records.count) == (1000, 1000, 1)
            assert (delivery.batch, delivery.index) == ("batch", 0)
            assert records.begin(1000, key, value, module.Delivery()) == module.REFUSED  # it is not the first
    closed = module.OpenRecords("batch", 10, is_compressed=False, ratio=1.0)
    closed.is_closed = True
    assert closed.begin(1000, None, b"v", module.Delivery()) == module.REFUSED
    assert module.OpenRecords("batch", 10, is_compressed=False, ratio=1.0).begin(0, None, b"v" * 5000, module.Delivery()) == module.REFUSED


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, (1 << 20) - 1, 1 << 20, (1 << 27) - 1, 1 << 27])
def test_the_size_of_a_field_with_its_length(module: ModuleType, size: int) -> None:
    assert module.size_with_length(bytes(size)) == len(write_varint(size)) + size
    assert module.size_with_length(None) == 1


def test_what_it_leaves_to_others(module: ModuleType) -> None:
    def refuses(timestamp: int = 1000, key: bytes | None = None, value: bytes | None = b"v", *, count: int = 1, limit: int = 5000) -> bool:
        records = module.OpenRecords(None, limit, is_compressed=False, ratio=1.0)
        for index in range(count):
            records.append(write_record(index, 0, None, b"v"), 1000, None)
        return bool(records.add(timestamp, key, value, module.Delivery()) == module.REFUSED)

    assert not refuses()
    assert refuses(count=0)  # the first record sets the times
    assert refuses(999) and refuses(1000 + 4096)  # before the first, or much later
    assert refuses(value=b"v" * 4065) and refuses(key=b"k" * 4000, value=b"v" * 64)
    room = BATCH_OVERHEAD + 2 * len(write_record(0, 0, None, b"v"))
    assert not refuses(limit=room) and refuses(limit=room - 1)


def test_when_somebody_has_to_look(module: ModuleType) -> None:
    records = module.OpenRecords(None, BATCH_OVERHEAD + 40, is_compressed=False, ratio=1.0)
    size = len(write_record(0, 0, None, b"v"))
    records.append(write_record(0, 0, None, b"v"), 1000, None)
    records.room = 2 * size
    assert records.add(1000, None, b"v", module.Delivery()) == module.ADDED
    assert records.add(1000, None, b"v", module.Delivery()) == module.TOLD  # the partitioner decides now
    assert (records.produced, records.is_full) == (2 * size, False)
    records.produced = 0
    assert records.add(1000, None, b"v", module.Delivery()) == module.ADDED
    assert records.add(1000, None, b"v" * (40 - 4 * size - size + 1), module.Delivery()) == module.TOLD
    assert records.is_full
    assert records.add(1000, None, b"v", module.Delivery()) == module.REFUSED


def test_a_compressed_batch_is_estimated(module: ModuleType) -> None:
    records = module.OpenRecords(None, BATCH_OVERHEAD + 100, is_compressed=True, ratio=0.1)
    records.append(write_record(0, 0, None, b"v"), 1000, None)
    records.room = 1000
    assert records.add(1000, None, b"", module.Delivery()) == module.ADDED
    assert (records.estimate, records.added) == (BATCH_OVERHEAD + 1, 1)  # at least 1, so that it is not taken for a refusal
    assert records.add(1000, None, b"v" * 100, module.Delivery()) == module.REFUSED  # uncompressed it may not fit
