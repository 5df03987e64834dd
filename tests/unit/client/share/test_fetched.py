"""Fetched records: matched with the acquired offsets, in pieces, with gaps, and with records that can't be delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kops.client.consumer.errors import RecordDeserializationError
from kops.client.errors import KafkaError, TopicAuthorizationError
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.fetched import CompletedFetch, DeliveryError, FetchBuffer
from kops.client.share.core.inflight import ShareFetch
from kops.client.share.core.records import Deserializers
from kops.protocol.errors import by_name
from kops.protocol.messages.share_fetch_response import AcquiredRecords, PartitionData
from kops.records import Record, build_batch

PART = TopicIdPartition(bytes(16), 0, "t")


def plain(topic: str, headers: Sequence[Any], data: bytes | None) -> bytes | None:
    return data


def batch(*offsets: int, **more: Any) -> bytes:
    records = [Record(offset, 1, "CreateTime", None, b"%d" % offset) for offset in offsets]
    return bytes(build_batch(records, **more))


class Buffer:
    """A buffer, and what is collected from it."""

    def __init__(self, deserialize: Callable[..., Any] = plain) -> None:
        self.wanted = 0
        self.buffer = FetchBuffer(self.want)
        self.deserializers = Deserializers(plain, deserialize)

    def want(self) -> None:
        self.wanted += 1

    def add(self, records: bytes = b"", *acquired: tuple[int, int], error: str = "NONE", partition: int = 0) -> None:
        data = PartitionData(partition, by_name(error).code, records=records)
        data.acquired_records = [AcquiredRecords(first, last, 1) for first, last in acquired]
        self.buffer.add([CompletedFetch(1, PART._replace(partition=partition), data, None)])

    def collect(self, limit: int = 500) -> ShareFetch:
        return self.buffer.collect(self.deserializers, limit, checks_crcs=True)

    def offsets(self, limit: int = 500) -> list[int]:
        return [one.offset for one in self.collect(limit).records()]


def gaps(fetch: ShareFetch) -> dict[int, int]:
    return {offset: kind for one in fetch.take_acknowledgements().values() for offset, kind in one.acknowledgements.types.items()}


def test_acquired_records_alone_are_returned() -> None:
    buffer = Buffer()
    buffer.add(batch(0, 1, 2, 3) + batch(4, 5), (1, 2), (5, 5))
    assert buffer.offsets() == [1, 2, 5]
    assert buffer.collect().is_empty


def test_a_batch_is_never_divided() -> None:
    buffer = Buffer()
    buffer.add(batch(0, 1, 2) + batch(3, 4), (0, 4))
    buffer.add(batch(9), (9, 9), partition=1)
    assert buffer.offsets(2) == [0, 1, 2]
    assert buffer.offsets(2) == [3, 4]
    assert buffer.offsets(2) == [9]


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    buffer = Buffer()
    buffer.add(batch(1, 3), (0, 4))
    fetch = buffer.collect()
    assert [one.offset for one in fetch.records()] == [1, 3]
    assert gaps(fetch) == {0: 0, 2: 0, 4: 0}


def test_an_offset_that_was_acquired_twice_is_returned_once() -> None:
    buffer = Buffer()
    buffer.add(batch(0, 1, 2), (0, 1), (1, 2))
    assert buffer.offsets() == [0, 1, 2]


def test_headers_are_a_tuple_as_in_a_consumers_records() -> None:
    buffer = Buffer()
    buffer.add(bytes(build_batch([Record(0, 1, "CreateTime", None, b"v", [("h", b"1")]), Record(1, 1, "CreateTime", None, b"v")])), (0, 1))
    assert [one.headers for one in buffer.collect().records()] == [(("h", b"1"),), ()]


def test_a_record_that_can_not_be_deserialized_is_released() -> None:
    def number(topic: str, headers: Sequence[Any], data: bytes) -> int:
        if data == b"1":
            raise ValueError("one")
        return int(data)

    buffer = Buffer(number)
    buffer.add(batch(0, 1, 2), (0, 2))
    assert buffer.offsets() == [0]
    with pytest.raises(DeliveryError) as caught:
        buffer.collect()
    assert isinstance(caught.value.error, RecordDeserializationError)
    assert caught.value.error.offset == 1
    caught.value.fetch.acknowledge_failed("t", 0, 1, AcknowledgeType.REJECT)
    assert gaps(caught.value.fetch) == {1: AcknowledgeType.REJECT}
    assert buffer.offsets() == [2]


def test_a_damaged_batch_is_rejected() -> None:
    buffer = Buffer()
    damaged = bytearray(batch(1, 2))
    damaged[-1] ^= 1
    buffer.add(batch(0) + damaged + batch(3), (0, 1), (3, 3))
    assert buffer.offsets() == [0]
    with pytest.raises(DeliveryError) as caught:
        buffer.collect()
    assert caught.value.error.name == "CORRUPT_MESSAGE"
    assert gaps(caught.value.fetch) == {1: AcknowledgeType.REJECT}
    assert buffer.offsets() == [3]


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR"])
def test_errors_that_pass(error: str) -> None:
    buffer = Buffer()
    buffer.add(error=error)
    assert buffer.collect().is_empty
    assert buffer.wanted == (error in ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID"))


def test_errors_are_raised_after_the_records_before_them() -> None:
    buffer = Buffer()
    buffer.add(batch(0), (0, 0))
    buffer.add(error="TOPIC_AUTHORIZATION_FAILED", partition=1)
    buffer.add(error="CORRUPT_MESSAGE", partition=2)
    assert buffer.offsets() == [0]
    with pytest.raises(TopicAuthorizationError):
        buffer.collect()
    with pytest.raises(KafkaError, match="t-2 can't be fetched"):
        buffer.collect()
    assert buffer.collect().is_empty
