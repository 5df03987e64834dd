"""What a record in a batch of the metadata log may have. Kafka's nodes end at any other one (RecordsIterator)."""

from __future__ import annotations

import pytest

from kops.errors import DecodeError
from kops.metadata.raft.log.control_records import check_control_record, control_batch, kraft_version, leader_change, snapshot_header
from kops.metadata.raft.log.entries import data_value
from kops.metadata.records import read_record, write_record
from kops.protocol.messages import FeatureLevelRecord, RegisterBrokerRecord
from kops.protocol.messages.register_broker_record import BrokerEndpoint
from kops.protocol.messages.voters_record import KRaftVersionFeature, Voter, VotersRecord
from kops.protocol.primitives import varint
from kops.records import Batch, Record
from kops.records.build import build_batch

VALUE = write_record(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)


def data_batch(*records: tuple[int, bytes | None, bytes | None, list[tuple[str | bytes, bytes | None]]]) -> Batch:
    """Return a batch of (time, key, value, headers)."""
    made = [Record(offset, time, "CreateTime", key, value, headers) for offset, (time, key, value, headers) in enumerate(records)]
    return Batch(build_batch(made), 0)


def test_the_records_that_nodes_write() -> None:
    batch = data_batch((5, None, VALUE, []), (5, None, VALUE, []))
    assert [data_value(batch, record) for record in batch.records()] == [VALUE, VALUE]
    control = control_batch([leader_change(1, [1], [1]), kraft_version(1), snapshot_header(7)], base_offset=0, epoch=1, now_ms=5)
    batch = Batch(control, 0)
    assert [check_control_record(batch, record) for record in batch.records()] == ["LEADER_CHANGE", "KRAFT_VERSION", "SNAPSHOT_HEADER"]


@pytest.mark.parametrize(
    ("key", "value", "headers", "reason"),
    [
        (b"", VALUE, [], "it has a key"),
        (None, None, [], "the value is missing"),
        (None, b"", [], "the value is empty"),
        (None, VALUE, [("a", b"b")], "it has headers"),
    ],
)
def test_other_records(key: bytes | None, value: bytes | None, headers: list[tuple[str | bytes, bytes | None]], reason: str) -> None:
    batch = data_batch((5, key, value, headers))
    with pytest.raises(DecodeError, match=reason):
        data_value(batch, batch.records()[0])


def test_a_record_with_a_time_of_its_own() -> None:
    batch = data_batch((5, None, VALUE, []), (6, None, VALUE, []))
    first, second = batch.records()
    assert data_value(batch, first) == VALUE
    with pytest.raises(DecodeError, match="its timestamp is not that of its batch"):
        data_value(batch, second)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\0", "unknown control record type COMMIT"),
        (b"\0\0\0\x63", b"\0\0", "unknown control record type 99"),
        (b"\0\0\0\3", b"\0\0\0", "the bytes end"),
        (b"\0\0\0\3", None, "has no value"),
        (b"", b"\0\0", "has no key"),
        (b"\0\0\0\5", b"\0\0\0\7\0", "kraft.version 7 is unknown"),
        (b"\0\0\0\6", VotersRecord(0, [Voter(1, bytes(16), [], KRaftVersionFeature(3, 1))]).encode(0), "3 to 1, which is no range"),
    ],
)
def test_other_control_records(key: bytes, value: bytes | None, reason: str) -> None:
    batch = data_batch((5, key, value, []))
    with pytest.raises(DecodeError, match=reason):
        check_control_record(batch, batch.records()[0])


def test_a_version_above_the_newest_is_read_like_the_newest() -> None:
    later = VALUE[:2] + varint(9) + VALUE[3:]
    assert read_record(later) == (read_record(VALUE)[0], 9)
    with pytest.raises(DecodeError, match="too large"):
        read_record(VALUE[:2] + varint(2**15) + VALUE[3:])
    value = write_record(RegisterBrokerRecord(broker_id=7, end_points=[BrokerEndpoint("A", "host", 1, 0)]), 4)
    with pytest.raises(DecodeError, match="RegisterBrokerRecord has no version 5"):
        read_record(value[:2] + varint(5) + value[3:])
