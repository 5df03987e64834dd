"""Producer snapshot, checkpoints, meta.properties, partition.metadata, quorum-state, clean stop: what Kafka accepts and rejects."""

from __future__ import annotations

import struct

import pytest

from kops.errors import DecodeError
from kops.records.crc import crc32c
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.clean_shutdown import CleanShutdown, read_clean_shutdown, write_clean_shutdown
from kops.storage.formats.kafka_uuid import ZERO_UUID, parse_uuid, uuid_bytes, uuid_text
from kops.storage.formats.leader_epoch_checkpoint import (
    EpochEntry,
    effective_epochs,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kops.storage.formats.partition_metadata import PartitionMetadata, read_partition_metadata, write_partition_metadata
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot, write_producer_snapshot
from kops.storage.formats.quorum_state import QuorumState, read_quorum_state, write_quorum_state

UUID = "Ds3iqmQAgjvEyL7G37aV-w"


def code_of(error: pytest.ExceptionInfo[DecodeError]) -> str:
    assert error.value.file == "f"
    return error.value.code


# ---- producer snapshot

PRODUCER = ProducerSnapshotEntry(7, 2, 9, 41, 4, 1_700_000_000_000, 3, -1)


def snapshot(count: int, body: bytes, version: int = 1) -> bytes:
    checked = struct.pack(">i", count) + body
    return struct.pack(">hI", version, crc32c(checked)) + checked


def test_producer_snapshot() -> None:
    body = struct.pack(">qhiqiqiq", 7, 2, 9, 41, 4, 1_700_000_000_000, 3, -1)
    assert write_producer_snapshot([PRODUCER]) == snapshot(1, body)
    assert read_producer_snapshot(snapshot(1, body)) == [PRODUCER]
    assert read_producer_snapshot(write_producer_snapshot([])) == []
    # The checksum covers what follows the entries, but nobody reads it.
    assert read_producer_snapshot(snapshot(1, body + b"more")) == [PRODUCER]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "snapshot-schema"),
        (b"\0", "snapshot-schema"),
        (b"\0\1", "snapshot-schema"),
        (snapshot(0, b"")[:9], "snapshot-schema"),
        (snapshot(0, b"", version=0), "snapshot-schema"),
        (snapshot(0, b"", version=2), "snapshot-schema"),
        (snapshot(-1, b""), "snapshot-schema"),
        (snapshot(1, bytes(45)), "snapshot-schema"),
        (snapshot(2**31 - 1, bytes(46)), "snapshot-schema"),
        (write_producer_snapshot([PRODUCER])[:-1] + b"\0", "snapshot-crc"),
        (snapshot(0, b"") + b"x", "snapshot-crc"),
    ],
)
def test_broken_producer_snapshots(data: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as error:
        read_producer_snapshot(data, file="f")
    assert code_of(error) == code


# ---- checkpoints


def test_offset_checkpoint() -> None:
    offsets = {TopicPartition("orders", 0): 42, TopicPartition("a-b", 11): -1}
    data = b"0\n2\norders 0 42\na-b 11 -1\n"
    assert write_offset_checkpoint(offsets) == data
    assert read_offset_checkpoint(data) == offsets
    assert write_offset_checkpoint({}) == b"0\n0\n"


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        (b"", {}),
        (b"0", {}),
        (b"+0\n", {}),
        (b"-0\n0", {}),
        (b"0\r\n1\rt\t0  7 \r", {("t", 0): 7}),
        (b"0\n2\nt 0 1\nt 0 2", {("t", 0): 2}),
        (b"0\n1\nt +1 +5\n", {("t", 1): 5}),
        (b"0\n1\n\xc3\xa4 0 1\n", {("ä", 0): 1}),
        ("0\n1\nt\u00a0u 0 1\n".encode(), {("t\u00a0u", 0): 1}),
        (b"0\n1\nt 0 9223372036854775807", {("t", 0): 2**63 - 1}),
    ],
)
def test_checkpoints_that_kafka_reads(data: bytes, offsets: dict[tuple[str, int], int]) -> None:
    assert read_offset_checkpoint(data) == offsets


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"\n", "malformed", 1),
        (b"x\n", "malformed", 1),
        (b" 0\n", "malformed", 1),
        (b"1\n0\n", "malformed", 1),
        (b"0\n\n", "malformed", 2),
        (b"0\n2147483648\n", "malformed", 2),
        (b"0\n1\n", "malformed", 2),
        (b"0\n0\nt 0 1\n", "malformed", 2),
        (b"0\n1\nt 0\n", "malformed", 3),
        (b"0\n1\n t 0 1\n", "malformed", 3),
        (b"0\n1\nt u 0 1\n", "malformed", 3),
        (b"0\n1\nt 0 1\n\n", "malformed", 4),
        (b"0\n1\n\xff 0 1\n", "malformed", 1),
        (b"0\n-1\n", "number", 2),
        (b"0\n1\nt x 1\n", "number", 3),
        (b"0\n2\nt 0 1\nt 0 12x\n", "number", 4),
        (b"0\n1\nt 2147483648 1\n", "number", 3),
        (b"0\n1\nt 0 9223372036854775808\n", "number", 3),
    ],
)
def test_checkpoints_that_kafka_refuses(data: bytes, code: str, line: int) -> None:
    with pytest.raises(DecodeError, match=f"line {line}") as error:
        read_offset_checkpoint(data, file="f")
    assert code_of(error) == f"checkpoint-{code}"


def test_what_comes_first_in_a_long_checkpoint_is_found_first() -> None:
    """The reader decodes 8 KiB at a time, so it reports a bad number before a bad byte far behind it."""
    lines = b"t 0 1\n" * 2000
    with pytest.raises(DecodeError) as error:
        read_offset_checkpoint(b"0\n2001\nt 0 x\n" + lines + b"\xff", file="f")
    assert code_of(error) == "checkpoint-number"
    with pytest.raises(DecodeError) as error:
        read_offset_checkpoint(b"0\n2001\n" + lines + b"\xff", file="f")
    assert code_of(error) == "checkpoint-malformed"


def test_line_ends_at_the_border_of_a_block() -> None:
    for pad in range(8180, 8200):
        topic = b"t" * pad
        assert read_offset_checkpoint(b"0\r\n2\r\n" + topic + b" 0 1\r\nu 0 2\r\n") == {(topic.decode(), 0): 1, ("u", 0): 2}


def test_leader_epochs() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 17)]
    assert write_leader_epoch_checkpoint(entries) == b"0\n2\n0 0\n3 17\n"
    assert read_leader_epoch_checkpoint(b"0\n2\n0 0\n3 17\n") == entries
    for data, code in (
        (b"0\n1\n0\n", "checkpoint-malformed"),
        (b"0\n1\n0 x\n", "checkpoint-number"),
        (b"0\n1\n0 1 2\n", "checkpoint-malformed"),
    ):
        with pytest.raises(DecodeError) as error:
            read_leader_epoch_checkpoint(data, file="f")
        assert code_of(error) == code


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(0, 0), (1, 5), (2, 9)], [(0, 0), (1, 5), (2, 9)]),
        ([(0, 0), (0, 5)], [(0, 0)]),
        ([(0, 5), (0, 0)], [(0, 0)]),
        ([(1, 5), (2, 5)], [(2, 5)]),
        ([(0, 0), (1, 5), (2, 9), (3, 4)], [(0, 0), (3, 4)]),
        ([(5, 0), (6, 9), (3, 20)], [(3, 20)]),
        ([], []),
    ],
)
def test_epochs_that_contradict_each_other(entries: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
    assert effective_epochs(EpochEntry(*entry) for entry in entries) == kept


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_epochs(entry: tuple[int, int]) -> None:
    with pytest.raises(DecodeError):
        effective_epochs([EpochEntry(*entry)])


# ---- ids


def test_uuids() -> None:
    assert uuid_text(bytes(16)) == ZERO_UUID
    assert parse_uuid(UUID) == parse_uuid(UUID + "==") == UUID
    # The unused bits of the last digit don't count.
    assert parse_uuid(UUID[:-1] + "x") == UUID
    assert uuid_text(uuid_bytes(UUID)) == UUID


@pytest.mark.parametrize(
    "text", ["", "=", "A", "AAAA", UUID + "=", UUID + "===", UUID[:-1], UUID + "AA", "+" + UUID[1:], UUID[:-1] + "ä", UUID + "A" * 9]
)
def test_texts_that_are_no_uuid(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_bytes(text)


# ---- meta.properties


def test_meta_properties() -> None:
    meta = MetaProperties(1, "c-1", 7, UUID)
    data = write_meta_properties(meta, date=1_795_259_263_000)
    assert data == f"#\n#Sat Nov 21 11:07:43 UTC 2026\nnode.id=7\ndirectory.id={UUID}\nversion=1\ncluster.id=c-1\n".encode()
    assert read_meta_properties(data) == meta
    old = MetaProperties(0, "c", 3)
    data = write_meta_properties(old, date="x")
    assert b"broker.id=3" in data
    assert read_meta_properties(data) == old
    assert read_meta_properties(b"") == MetaProperties()
    assert read_meta_properties(b"version= 1 \nnode.id=1\ncluster.id=a b\n") == MetaProperties(1, "a b", 1)
    assert read_meta_properties(b"node.id=x\nbroker.id=5") == MetaProperties(0, None, 5)


@pytest.mark.parametrize(
    "data",
    [b"version=2", b"version=x", b"version=", b"version=1\ncluster.id=a", b"version=1\nnode.id=1", b"broker.id=", b"broker.id=1 ",
     b"version=1\nnode.id=2147483648\ncluster.id=a", b"directory.id=x", b"directory.id=", b"version=-1"],
)  # fmt: skip
def test_broken_meta_properties(data: bytes) -> None:
    with pytest.raises(DecodeError) as error:
        read_meta_properties(data, file="f")
    assert code_of(error) == "meta-properties"


# ---- partition.metadata


def test_partition_metadata() -> None:
    assert write_partition_metadata(PartitionMetadata(UUID)) == f"version: 0\ntopic_id: {UUID}".encode()
    for text in (f"version: 0\ntopic_id: {UUID}", f"x:\t7\r\ny:  {UUID}:  \nrest", f"version: 5\n: {UUID}=="):
        assert read_partition_metadata(text.encode()).topic_id == UUID


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid"),
        (b"version: 0", "invalid"),
        (b"version: 0\ntopic_id: x", "invalid"),
        (b"version: 0\ntopic_id: A+" + b"A" * 20, "invalid"),
        (b"version: 0\ntopic_id", "malformed"),
        (b"version: 0\n\n", "malformed"),
        (b"version:0\n", "malformed"),
        (b"version: x\n", "malformed"),
        (b"version: -1\n", "malformed"),
        (b"version: 0\ntopic_id: " + ZERO_UUID.encode(), "malformed"),
        (b"version: 0\ntopic_id: \xff", "malformed"),
    ],
)
def test_broken_partition_metadata(data: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as error:
        read_partition_metadata(data, file="f")
    assert code_of(error) == f"partition-metadata-{code}"


# ---- quorum-state

STATIC = b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
DYNAMIC = b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


def test_quorum_state() -> None:
    static = QuorumState(0, "", 1, 7, -1, current_voters=[1])
    assert read_quorum_state(STATIC) == static
    assert write_quorum_state(static) == STATIC
    dynamic = QuorumState(1, leader_id=1, leader_epoch=7)
    assert read_quorum_state(DYNAMIC) == dynamic
    assert write_quorum_state(dynamic) == DYNAMIC
    assert read_quorum_state(STATIC + b" rest\nsecond line") == static
    assert read_quorum_state(STATIC.replace(b"[{", b"[{").replace(b'[{"voterId":1}]', b"null")).current_voters is None
    # Anything but a number is version 0 to Kafka.
    assert read_quorum_state(STATIC.replace(b'"data_version":0', b'"data_version":"1"')) == static
    assert read_quorum_state(STATIC.replace(b'"data_version":0', b'"data_version":65536.5')) == static


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"x", b"[]", b"1", b'"a"', b"null", b"{}", b'{"data_version":9}', b'{"data_version":0}', b"{" * 100_000, b"[" * 100_000,
     STATIC[:-1], STATIC.replace(b"7", b"7.0"), STATIC.replace(b"7", b'"7"'), STATIC.replace(b"7", b"2147483648"),
     STATIC.replace(b"7", b"null"),     STATIC.replace(b"7", b"true"), STATIC.replace(b"7", b"NaN"),
     STATIC.replace(b'""', b"5"), STATIC.replace(b"voterId", b"id"),
     STATIC.replace(b'[{"voterId":1}]', b"{}"), STATIC.replace(b'{"voterId":1}', b"1"), DYNAMIC.replace(b"AAAA", b"A"), DYNAMIC + b"\xff",
     DYNAMIC.replace(b'"leaderId"', b'"currentVoters":[{"voterId":1}],"leaderId"'), STATIC.replace(b"7", b"9" * 5000)],
)  # fmt: skip
def test_broken_quorum_states(data: bytes) -> None:
    with pytest.raises(DecodeError) as error:
        read_quorum_state(data, file="f")
    assert code_of(error) == "quorum-state"


@pytest.mark.parametrize(
    "state", [QuorumState(2), QuorumState(0, voted_directory_id=UUID), QuorumState(1, cluster_id="c"), QuorumState(1, current_voters=None)]
)
def test_fields_that_a_version_has_not(state: QuorumState) -> None:
    with pytest.raises(ValueError):
        write_quorum_state(state)


# ---- .kafka_cleanshutdown


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":12}', 12),
        (b'{"brokerEpoch":-1,"other":[]}', -1),
        (b' {"version":7,"brokerEpoch":"12"} rest', 12),
        (b'{"version":0,"brokerEpoch":12.9}', 12),
        (b"", None),
        (b"no json", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"brokerEpoch":null}', None),
        (b'{"brokerEpoch":true}', None),
        (b'{"brokerEpoch":{}}', None),
        (b'{"brokerEpoch":"x"}', None),
        (b'{"brokerEpoch":9223372036854775808}', None),
        (b'{"version":"x","brokerEpoch":1}', None),
        (b"\xff\xfe", None),
    ],
)
def test_clean_shutdown(data: bytes, epoch: int | None) -> None:
    mark = read_clean_shutdown(data)
    assert mark.broker_epoch == epoch
    assert (mark.problem is None) == (epoch is not None)


def test_writing_the_mark() -> None:
    assert write_clean_shutdown(CleanShutdown(46)) == b'{"version":0,"brokerEpoch":46}'
    assert write_clean_shutdown(CleanShutdown()) == b""
