"""Raw requests of all data APIs in any version to one broker, valid and invalid ones. Each step yields its name and its masked answer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AlterReplicaLogDirsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic
from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic
from kops.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic
from kops.protocol.messages.describe_producers_request import TopicRequest
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic, ReplicaState
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.build import BatchBuilder
from tests.support.kafka.two_brokers import Side

Steps = Iterator[tuple[str, Any]]
UNKNOWN_ID = bytes([9]) * 16
NOW = 1_700_000_000_000
# The records are old.
SETTINGS = {"log.retention.ms": -1}


def batch(count: int = 1, *, key: bytes | None = b"k", timestamp: int = NOW, size: int = 20, **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for number in range(count):
        builder.append(timestamp + number, key, b"v" * size)
    return builder.build()


def idempotent(sequence: int, *, count: int = 1, producer_id: int = 4000, epoch: int = 0, **fields: Any) -> bytes:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def changed(records: bytes, position: int, value: bytes) -> bytes:
    """Return data with other bytes at a place, and the checksum that fits."""
    import crc32c

    made = bytearray(records)
    made[position : position + len(value)] = value
    struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


# Produce ---------------------------------------------------------------------------------------------------------------------------


def produce(
    side: Side, version: int, *partitions: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    topics = [
        TopicProduceData("" if version >= 13 else name, side.ids.get(name, UNKNOWN_ID), [PartitionProduceData(index, records)])
        for name, index, records in partitions
    ]
    return ProduceRequest(transactional_id, acks, 5_000, topics)


def two_codecs(version: int) -> dict[str, bytes]:
    codecs = {codec: batch(3, codec=codec) for codec in ("gzip", "snappy", "lz4", "zstd")}
    return codecs | {"unknown codec": changed(batch(), 22, b"\x06")}


RECORDS: dict[str, bytes] = {
    "empty": b"",
    "short": bytes(11),
    "12 zeros": bytes(12),
    "cut": batch()[:-1],
    "with a tail": batch() + b"tail",
    "two": batch() * 2,
    "magic 1": batch(magic=1),
    "magic 0": batch(magic=0, timestamp=-1),
    "magic 3": batch()[:16] + b"\x03" + batch()[17:],
    "negative magic": batch()[:16] + b"\xff" + batch()[17:],
    "wrong checksum": batch()[:-1] + b"!",
    "negative size": batch()[:8] + b"\xff\xff\xff\xff" + batch()[12:],
    "too small a size": batch()[:8] + b"\x00\x00\x00\x05" + batch()[12:],
    "count too large": changed(batch(), 57, struct.pack(">i", 2)),
    "count too small": changed(batch(2), 57, struct.pack(">i", 1)),
    "no records": changed(batch()[:61], 57, struct.pack(">i", 0))[:8] + struct.pack(">i", 49) + changed(batch()[:61], 57, bytes(4))[12:],
    "last offset delta": changed(batch(2), 23, struct.pack(">i", 5)),
    "control": batch(control=True, producer_id=1, producer_epoch=0, base_sequence=0),
    "base offset": batch(base_offset=77),
    "far future": batch(timestamp=NOW * 2),
    "log append time": batch(timestamp_type="LogAppendTime", log_append_time=NOW),
    "no timestamp": batch(timestamp=-1),
    "negative producer id": changed(batch(), 43, struct.pack(">q", -7)),
    "negative epoch": changed(idempotent(0), 51, struct.pack(">h", -3)),
    "too large": batch(size=2_000_000),
}


def produce_records(side: Side, version: int) -> Steps:
    """Produce records of all kinds, most of them wrong, then read the log."""
    name = f"records-{version}"
    side.create(name)
    for label, records in (RECORDS | two_codecs(version)).items():
        yield label, side.ask(produce(side, version, (name, 0, records)), version)
    yield "in the log", side.ask(fetch(side, 12, (name, 0, 0)), 12)


def produce_to(side: Side, version: int) -> Steps:
    """Produce to existing and missing partitions, with all values of acks."""
    name = f"to-{version}"
    side.create(name, partitions=2)
    good = batch(3)
    for acks in (-1, 1, 2, -2, 32767):
        yield f"acks {acks}", side.ask(produce(side, version, (name, 0, good), acks=acks), version)
    yield "no topics", side.ask(produce(side, version), version)
    yield "unknown topic", side.ask(produce(side, version, ("absent", 0, good)), version)
    yield "empty name", side.ask(produce(side, version, ("", 0, good)), version)
    yield "unknown partition", side.ask(produce(side, version, (name, 2, good), (name, -1, good)), version)
    yield "some", side.ask(produce(side, version, (name, 0, good), ("absent", 0, good), (name, 1, b""), (name, 7, good)), version)
    yield "a partition twice", side.ask(produce(side, version, (name, 1, good), (name, 1, batch())), version)
    side.client.send(produce(side, version, (name, 0, good), acks=0), version, expect_response=False)
    yield "behind acks 0", side.ask(produce(side, version, (name, 0, good)), version)
    wrong = {"unknown partition": (name, 9, good), "no batch": (name, 0, b""), "no bytes of a batch": (name, 0, bytes(40))}
    for label, records in wrong.items():
        side.client.send(produce(side, version, records, acks=0), version, expect_response=False)
        yield f"acks 0 and an error: {label}", side.client.receive()
    transactional = idempotent(0, transactional=True)
    yield "transaction without id", side.ask(produce(side, version, (name, 0, transactional)), version)
    yield "id without transaction", side.ask(produce(side, version, (name, 0, good), transactional_id="t"), version)
    two = ((name, 0, transactional), (name, 1, idempotent(0, producer_id=4001, transactional=True)))
    yield "transaction of two", side.ask(produce(side, version, *two, transactional_id="t"), version)
    yield "transaction", side.ask(produce(side, version, (name, 0, transactional), (name, 1, good), transactional_id="t"), version)


def produce_idempotently(side: Side, version: int) -> Steps:
    """Produce with right and wrong sequences and epochs, and send batches twice."""
    name = f"idempotent-{version}"
    side.create(name)
    steps = [
        ("first", idempotent(0, count=3)),
        ("second", idempotent(3)),
        ("second again", idempotent(3)),
        ("first again", idempotent(0, count=3)),
        ("first with fewer", idempotent(0, count=2)),
        ("gap", idempotent(9)),
        *((f"more {sequence}", idempotent(sequence)) for sequence in range(4, 9)),
        ("too old to be known", idempotent(0, count=3)),
        ("oldest known", idempotent(4)),
        ("new epoch, wrong sequence", idempotent(5, epoch=1)),
        ("new epoch", idempotent(0, epoch=1)),
        ("old epoch", idempotent(9, epoch=0)),
        ("another producer, not from 0", idempotent(17, producer_id=5000)),
        ("another producer goes on", idempotent(18, producer_id=5000)),
        ("sequence wraps", idempotent(2**31 - 1, producer_id=5001)),
        ("behind the wrap", idempotent(0, producer_id=5001)),
        ("negative sequence", changed(idempotent(0, producer_id=5002), 53, struct.pack(">i", -1))),
    ]
    for label, records in steps:
        yield label, side.ask(produce(side, version, (name, 0, records)), version)
    yield "producers", side.ask(DescribeProducersRequest([TopicRequest(name, [0])]), 0)


TOPICS = {
    "compacted": {"cleanup.policy": "compact"},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "two-in-sync": {"min.insync.replicas": "2"},
    "small": {"max.message.bytes": "100"},
    "small-segments": {"segment.bytes": "1048576", "max.message.bytes": "3000000"},
    "past": {"message.timestamp.before.max.ms": "1000"},
    "squeezed": {"compression.type": "gzip"},
    "unsqueezed": {"compression.type": "uncompressed"},
}


def produce_by_config(side: Side, version: int) -> Steps:
    """Produce to topics whose settings change the records."""
    for name, config in TOPICS.items():
        topic = f"{name}-{version}"
        side.create(topic, config=config)
        for label, records in {
            "plain": batch(3),
            "no key": batch(3, key=None),
            "large": batch(2, size=80),
            "very large": batch(size=1_200_000),
            "lz4": batch(3, codec="lz4"),
            "no key, gzip": batch(2, key=None, codec="gzip"),
        }.items():
            for acks in (-1, 1):
                yield f"{name}, {label}, acks {acks}", side.ask(produce(side, version, (topic, 0, records), acks=acks), version)


# Fetch -----------------------------------------------------------------------------------------------------------------------------


def fetch(
    side: Side,
    version: int,
    *partitions: tuple[str, int, int],
    epoch: int = -1,
    fetched_epoch: int = -1,
    max_bytes: int = 1_000_000,
    replica_id: int = -1,
    forget: tuple[str, int] | None = None,
    **fields: Any,
) -> FetchRequest:
    """Return a Fetch request. Each of `partitions` has an offset."""
    topics = [
        FetchTopic(
            "" if version >= 13 else name,
            side.ids.get(name, UNKNOWN_ID),
            [FetchPartition(number, epoch, offset, fetched_epoch if version >= 12 else -1, -1, max_bytes)],
        )
        for name, number, offset in partitions
    ]
    request = FetchRequest(topics=topics, max_wait_ms=fields.pop("max_wait_ms", 0), min_bytes=fields.pop("min_bytes", 0))
    request.max_bytes = 50_000_000
    if version >= 15:
        request.replica_state = ReplicaState(replica_id, -1)
    else:
        request.replica_id = replica_id
    if forget is not None:
        request.forgotten_topics_data = [ForgottenTopic("" if version >= 13 else forget[0], side.ids[forget[0]], [forget[1]])]
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def filled(side: Side, name: str, *, partitions: int = 2) -> str:
    """Create a topic whose partition 0 has batches of 3, 1 and 5 records."""
    side.create(name, partitions=partitions)
    for count in (3, 1, 5):
        answer = side.ask(produce(side, 9, (name, 0, batch(count))), 9)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == "NONE", answer
    return name


def fetch_offsets(side: Side, version: int) -> Steps:
    """Fetch within and outside of the log, with all sizes, epochs and replica ids."""
    name = filled(side, f"fetch-{version}")
    for offset in (0, 1, 3, 4, 8, 9, 10, -1, 2**62):
        yield f"offset {offset}", side.ask(fetch(side, version, (name, 0, offset)), version)
    for size in (0, 1, 60, 200, -1):
        yield f"partition's size {size}", side.ask(fetch(side, version, (name, 0, 0), max_bytes=size), version)
        yield f"size {size}", side.ask(fetch(side, version, (name, 0, 0), (name, 0, 3), max_bytes=size), version)
    for isolation_level in (0, 1, 2, -1):
        yield f"isolation {isolation_level}", side.ask(fetch(side, version, (name, 0, 0), isolation_level=isolation_level), version)
    for epoch in (0, 1, -2):
        yield f"epoch {epoch}", side.ask(fetch(side, version, (name, 0, 0), (name, 1, 0), epoch=epoch), version)
    for fetched_epoch in (0, 1) if version >= 12 else ():
        yield f"fetched epoch {fetched_epoch}", side.ask(fetch(side, version, (name, 0, 4), fetched_epoch=fetched_epoch), version)
        yield f"past the end, epoch {fetched_epoch}", side.ask(fetch(side, version, (name, 0, 40), fetched_epoch=fetched_epoch), version)
    for replica_id in (1, 2, -2, -3):
        yield f"replica {replica_id}", side.ask(fetch(side, version, (name, 0, 0), replica_id=replica_id), version)
        yield f"replica {replica_id}, epoch 0", side.ask(fetch(side, version, (name, 0, 0), replica_id=replica_id, epoch=0), version)
    yield "nothing", side.ask(fetch(side, version), version)
    yield "absent", side.ask(fetch(side, version, ("absent", 0, 0), (name, 9, 0), (name, 1, 0)), version)
    yield "twice", side.ask(fetch(side, version, (name, 0, 0), (name, 0, 4)), version)
    yield "waits in vain", side.ask(fetch(side, version, (name, 0, 9), (name, 1, 0), min_bytes=1, max_wait_ms=30), version)
    yield "waits for nothing", side.ask(fetch(side, version, (name, 0, 0), min_bytes=1_000_000, max_wait_ms=30), version)
    failing = fetch(side, version, (name, 0, 99), (name, 1, 0), min_bytes=1, max_wait_ms=60_000)
    yield "does not wait for an error", side.ask(failing, version)
    small = fetch(side, version, (name, 0, 0), (name, 1, 0))
    small.max_bytes = 1
    yield "one byte", side.ask(small, version)


def fetch_sessions(side: Side, version: int) -> Steps:
    """Fetch with full, incremental, forgotten, ended and wrong sessions."""
    name = filled(side, f"session-{version}")
    other = filled(side, f"other-{version}")

    def ask(epoch: int, *partitions: tuple[str, int, int], session_id: int | None = None, **fields: Any) -> Any:
        used = session if session_id is None else session_id
        return side.ask(fetch(side, version, *partitions, session_id=used, session_epoch=epoch, **fields), version)

    session = 0
    yield "full", ask(0, (name, 0, 0), (name, 1, 0), (other, 0, 9), ("absent", 0, 0))
    session = side.session_id
    yield "as before", ask(1)
    yield "moved on", ask(2, (name, 0, 9))
    yield "nothing new", ask(3)
    side.ask(produce(side, 9, (other, 0, batch())), 9)
    yield "something new", ask(4)
    yield "forgotten", ask(5, forget=(other, 0))
    yield "after that", ask(6)
    yield "added", ask(7, (other, 1, 0))
    yield "out of range", ask(8, (name, 0, 99))
    yield "out of range again", ask(9)
    yield "in range", ask(10, (name, 0, 8))
    yield "an old epoch", ask(3)
    yield "an epoch of the future", ask(30)
    yield "unknown session", ask(1, session_id=12345)
    yield "ended", ask(-1, (name, 0, 0))
    yield "behind the end", ask(11)
    yield "new", ask(0, (name, 0, 9))
    session = side.session_id
    yield "all forgotten", ask(1, forget=(name, 0))
    yield "gone", ask(2)


# The others ------------------------------------------------------------------------------------------------------------------------


def offsets(version: int, *partitions: tuple[str, int, int], epoch: int = -1, replica_id: int = -1, isolation_level: int = 0) -> Message:
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(number, epoch, timestamp)]) for name, number, timestamp in partitions]
    return ListOffsetsRequest(replica_id, isolation_level if version >= 2 else 0, topics, 1_000)


def list_offsets(side: Side, version: int) -> Steps:
    """List offsets for all timestamps (of records, between and after them), epochs, replicas and isolation levels."""
    name = filled(side, f"offsets-{version}")
    for timestamp in (*range(-8, 2), NOW - 1, NOW, NOW + 1, NOW + 2, NOW + 4, NOW + 5, 2**62):
        yield f"timestamp {timestamp}", side.ask(offsets(version, (name, 0, timestamp), (name, 1, timestamp)), version)
    for epoch in (0, 1, -2):
        yield f"epoch {epoch}", side.ask(offsets(version, (name, 0, -1), (name, 1, -2), epoch=epoch), version)
    for replica_id in (1, 2, -2, -3):
        yield f"replica {replica_id}", side.ask(offsets(version, (name, 0, -1), replica_id=replica_id), version)
    for isolation_level in (1, 2):
        yield f"isolation {isolation_level}", side.ask(offsets(version, (name, 0, -1), isolation_level=isolation_level), version)
    yield "nothing", side.ask(offsets(version), version)
    yield "nothing, with a wrong isolation", side.ask(offsets(version, isolation_level=7), version)
    yield "absent", side.ask(offsets(version, ("absent", 0, -1), (name, 9, -1), ("", 0, -1)), version)
    yield "twice", side.ask(offsets(version, (name, 0, -1), (name, 0, -2), (name, 1, -2)), version)
    empty_topic = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [])])
    yield "a topic without partitions", side.ask(empty_topic, version)


def delete_records(side: Side, version: int) -> Steps:
    """Delete records up to offsets within and outside of the log, and read what is left."""
    name = filled(side, f"deleted-{version}")
    side.create(f"kept-{version}", config={"cleanup.policy": "compact"})

    def ask(*partitions: tuple[str, int, int]) -> Any:
        topics = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(number, offset)]) for topic, number, offset in partitions]
        return side.ask(DeleteRecordsRequest(topics, 5_000), version)

    for offset in (0, 2, 1, 10, -2, 4):
        yield f"to {offset}", ask((name, 0, offset))
    for at in (0, 3, 4):
        yield f"fetch at {at}", side.ask(fetch(side, 12, (name, 0, at)), 12)
    yield "earliest", side.ask(offsets(6, (name, 0, -2)), 6)
    yield "by time", side.ask(offsets(6, (name, 0, NOW)), 6)
    yield "to the end", ask((name, 0, -1), (name, 1, -1))
    yield "absent", ask((name, 0, 9), ("absent", 0, 1), (name, 9, 1))
    yield "twice", ask((name, 0, 9), (name, 0, 9))
    yield "compacted", ask((f"kept-{version}", 0, 0))
    yield "nothing", ask()
    side.ask(produce(side, 9, (name, 0, batch(3))), 9)
    yield "goes on", side.ask(fetch(side, 12, (name, 0, 9)), 12)


def leader_epochs(side: Side, version: int) -> Steps:
    """Look up known, older and newer epochs of leaders, with requests of such epochs."""
    name = filled(side, f"epochs-{version}")

    def ask(*partitions: tuple[str, int, int, int]) -> Any:
        topics = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(*numbers)]) for topic, *numbers in partitions]
        return side.ask(OffsetForLeaderEpochRequest(-1 if version >= 3 else -2, topics), version)

    for current in (-1, 0, 1, -2):
        for epoch in (-1, 0, 1, -2):
            yield f"{current} {epoch}", ask((name, 0, current, epoch))
            yield f"empty, {current} {epoch}", ask((name, 1, current, epoch))
    yield "absent", ask((name, 9, -1, 0), ("absent", 0, -1, 0))
    yield "nothing", ask()


def init_producer_id(side: Side, version: int) -> Steps:
    """Send InitProducerId with all possible errors. The ids are masked, as the two nodes need not return the same ones."""
    cases: dict[str, InitProducerIdRequest] = {
        "plain": InitProducerIdRequest(None, 60_000),
        "no time-out": InitProducerIdRequest(None, 0),
        "empty": InitProducerIdRequest("", 60_000),
        "too long a time-out": InitProducerIdRequest("t", 900_001),
        "time-out 0": InitProducerIdRequest("t", 0),
    }
    if version >= 3:
        cases["id without epoch"] = InitProducerIdRequest(None, 60_000, 5, -1)
        cases["epoch without id"] = InitProducerIdRequest(None, 60_000, -1, 5)
        cases["both"] = InitProducerIdRequest(None, 60_000, 5, 5)
    for label, request in cases.items():
        answer = side.ask(request, version)
        while answer["error_code"] == "COORDINATOR_LOAD_IN_PROGRESS":
            answer = side.ask(request, version)
        yield label, answer | {"producer_id": answer["producer_id"] >= 0}


def describe_log_dirs(side: Side, version: int) -> Steps:
    """Describe the log directories of topics and of nothing. Moves are impossible with one directory."""
    name = filled(side, f"dirs-{version}")
    yield "two", side.ask(DescribeLogDirsRequest([DescribableLogDirTopic(name, [0, 1])]), version)
    yield "absent", side.ask(DescribeLogDirsRequest([DescribableLogDirTopic(name, [9]), DescribableLogDirTopic("absent", [0])]), version)
    yield "nothing", side.ask(DescribeLogDirsRequest([]), version)
    everything = side.ask(DescribeLogDirsRequest(None), version)
    yield "all", [topic for one in everything["results"] for topic in one["topics"] if topic["name"] == name]


def alter_log_dirs(side: Side, version: int) -> Steps:
    """Move replicas to directories that do not exist."""
    name = filled(side, f"moved-{version}")

    def ask(path: str, topic: str, *numbers: int) -> Any:
        return side.ask(AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, list(numbers))])]), version)

    yield "no such directory", ask("/no/such/directory", name, 0, 1, 9)
    yield "absent", ask("/no/such/directory", "absent", 0)
    yield "empty path", ask("", name, 0)
    yield "nothing", side.ask(AlterReplicaLogDirsRequest([]), version)


def describe_producers(side: Side, version: int) -> Steps:
    """Describe producers of topics with and without them, and with invalid names."""
    name = filled(side, "producers")
    side.ask(produce(side, 9, (name, 1, idempotent(0, count=4))), 9)
    topics = [TopicRequest(name, [0, 1, 9]), TopicRequest("absent", [0]), TopicRequest("bad name", [0]), TopicRequest("", [0])]
    for topic in topics:
        yield topic.name, side.ask(DescribeProducersRequest([topic]), version)
    yield "all", side.ask(DescribeProducersRequest(topics), version)
    yield "nothing", side.ask(DescribeProducersRequest([]), version)


SCENARIOS: list[tuple[Callable[[Side, int], Steps], range]] = [
    (produce_records, ProduceRequest.VERSIONS),
    (produce_to, ProduceRequest.VERSIONS),
    (produce_idempotently, ProduceRequest.VERSIONS),
    (produce_by_config, range(3, 14, 5)),
    (fetch_offsets, FetchRequest.VERSIONS),
    (fetch_sessions, range(7, 19)),
    (list_offsets, ListOffsetsRequest.VERSIONS),
    (delete_records, DeleteRecordsRequest.VERSIONS),
    (leader_epochs, OffsetForLeaderEpochRequest.VERSIONS),
    (init_producer_id, range(6)),
    (describe_log_dirs, DescribeLogDirsRequest.VERSIONS),
    (alter_log_dirs, AlterReplicaLogDirsRequest.VERSIONS),
    (describe_producers, DescribeProducersRequest.VERSIONS),
]
CASES = {f"{steps.__name__}-{version}": (steps, version) for steps, versions in SCENARIOS for version in versions}
KEPT = [f"{steps.__name__}-{version}" for steps, versions in SCENARIOS for version in dict.fromkeys((versions[0], versions[-1]))]
"""The answers of Kafka that are kept."""
