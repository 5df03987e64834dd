"""What a consumer makes of fetched bytes: records of every format, damage that it names, and errors of partitions."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from kops.client.consumer.core.collecting import Collector, CompletedFetch, Deserializers
from kops.client.consumer.deserializers import BYTES
from kops.client.consumer.errors import CorruptRecordError, OffsetOutOfRangeError
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.metadata import ConsumerMetadata
from kops.client.consumer.parts.state import Kind, Phase, Position, Subscriptions
from kops.client.consumer.records import ConsumerRecord
from kops.client.errors import KafkaError
from kops.client.metadata import Leader
from kops.protocol.errors import by_name
from kops.protocol.messages.fetch_response import AbortedTransaction, PartitionData
from kops.records import Record, build_batch
from kops.records.log_offsets import TopicPartition
from tests.support import corpus

pytestmark = pytest.mark.hot
KEY = TopicPartition("t", 0)
FORMATS = [name for group in ("v0", "v1", "v2") for name in corpus.cases(group)]


class Reader:
    """A consumer that reads one partition from an offset on, without a network."""

    def __init__(self, offset: int = 0, **settings: Any) -> None:
        given = {"bootstrap.servers": "x:1", "max.poll.records": 10_000, "auto.offset.reset": "none", **settings}
        self.options = ConsumerOptions.of(given)
        self.subscriptions = Subscriptions(self.options.reset)
        self.subscriptions.set_kind(Kind.ASSIGNED)
        self.subscriptions.assign([KEY])
        self.state = self.subscriptions.partitions[KEY]
        self.state.seek(Position(offset, None, Leader(1, 5)))
        self.metadata = ConsumerMetadata([("x", 1)], self.options, lambda: 0.5, self.subscriptions)
        self.completed: deque[CompletedFetch] = deque()
        self.collector = Collector(self.options, self.metadata, self.subscriptions, self.completed, Deserializers(BYTES, BYTES))

    def answer(self, records: bytes = b"", error: str = "NONE", **more: Any) -> None:
        """Take the answer of a broker at the position."""
        assert self.state.position is not None
        data = PartitionData(error_code=by_name(error).code, records=records, **more)
        self.completed.append(CompletedFetch(KEY, data, self.state.position.offset))

    def poll(self) -> Sequence[ConsumerRecord]:
        """Return records until there are no more."""
        found: list[ConsumerRecord] = []
        while self.completed:
            found += self.collector.collect(0) or ()
        return found


@pytest.mark.parametrize("case_id", FORMATS)
def test_every_format_and_codec(case_id: str) -> None:
    """The truth is what a consumer of Kafka got from the same files."""
    case = corpus.load(case_id)
    for truth in sorted((case.root / "truth" / "records").glob("*.jsonl")):
        name, isolation, _ = truth.name.rsplit(".", 2)
        expected = [json.loads(line) for line in truth.read_text().splitlines()]
        logs = sorted((case.root / "data" / name).glob("*.log"))
        if isolation == "read_committed":
            continue  # the broker names the aborted transactions
        start = expected[0]["offset"] if expected else int(logs[0].stem)  # DeleteRecords leaves earlier ones in the files
        reader = Reader(start)
        reader.answer(b"".join(log.read_bytes() for log in logs))
        names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
        records = [Record(**{name: getattr(one, name) for name in names}) for one in reader.poll()]
        assert [corpus.as_truth(record) for record in records] == expected


def batch(first: int, count: int, **more: Any) -> bytes:
    return build_batch([Record(first + index, 1000, "CreateTime", None, b"%d" % index) for index in range(count)], **more)


class TestDamage:
    def test_the_place_is_named_and_can_be_passed(self) -> None:
        good, bad, rest = batch(0, 3), bytearray(batch(3, 4)), batch(7, 2)
        bad[-1] ^= 1
        reader = Reader()
        reader.answer(good + bytes(bad) + rest)
        records = reader.collector.collect(0)
        assert records is not None
        assert [one.offset for one in records] == [0, 1, 2]  # what comes before the damage
        for _ in range(2):  # again and again, until the program does something
            with pytest.raises(CorruptRecordError, match=r"t-0, the batch at offset 3: .*; seek past it to continue") as found:
                reader.collector.collect(0)
            assert (found.value.partition, found.value.offset) == (KEY, 3)
        reader.state.seek(Position(7, None, Leader(1, 5)))
        assert reader.poll() == []  # the old answer is of no use
        reader.answer(good + bytes(bad) + rest)
        reader.completed.clear()
        reader.answer(rest)
        assert [one.offset for one in reader.poll()] == [7, 8]

    def test_checksums_are_not_checked(self) -> None:
        bad = bytearray(batch(0, 4))
        bad[17] ^= 1  # the checksum itself
        reader = Reader(**{"check.crcs": False})
        reader.answer(bytes(bad))
        assert [one.offset for one in reader.poll()] == [0, 1, 2, 3]

    def test_an_answer_without_a_whole_batch(self) -> None:
        reader = Reader()
        reader.answer(batch(0, 4)[:-1])
        with pytest.raises(KafkaError, match="no complete batch at offset 0") as found:
            reader.collector.collect(0)
        assert found.value.name == "MESSAGE_TOO_LARGE"

    def test_the_broker_finds_damage(self) -> None:
        reader = Reader(9)
        reader.answer(error="CORRUPT_MESSAGE")
        with pytest.raises(CorruptRecordError) as found:
            reader.collector.collect(0)
        assert found.value.offset == 9


class TestErrors:
    @pytest.mark.parametrize("name", [
        "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID",
    ])  # fmt: skip
    def test_the_leader_is_looked_up_and_the_replica_left(self, name: str) -> None:
        reader = Reader()
        reader.state.prefer(2, 1e9)
        reader.metadata.cluster.is_wanted = False
        reader.answer(error=name)
        assert reader.poll() == []
        assert reader.state.replica is None

    def test_out_of_range_at_a_replica_is_tried_at_the_leader(self) -> None:
        reader = Reader(7)
        reader.state.prefer(2, 1e9)
        reader.answer(error="OFFSET_OUT_OF_RANGE")
        assert reader.poll() == []
        assert (reader.state.phase, reader.state.replica) == (Phase.FETCHING, None)
        reader.answer(error="OFFSET_OUT_OF_RANGE")
        with pytest.raises(OffsetOutOfRangeError, match="t-0: the position 7 is out of range"):
            reader.collector.collect(0)

    @pytest.mark.parametrize("name", ["UNKNOWN_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR"])
    def test_errors_that_change_nothing(self, name: str) -> None:
        reader = Reader()
        reader.state.prefer(2, 1e9)
        reader.answer(error=name)
        assert reader.poll() == []
        assert reader.state.replica == 2

    @pytest.mark.parametrize("name", ["TOPIC_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION"])
    def test_others_are_raised(self, name: str) -> None:
        reader = Reader()
        reader.answer(error=name)
        with pytest.raises(KafkaError) as found:
            reader.collector.collect(0)
        assert found.value.name == name

    def test_an_answer_for_another_position_is_dropped(self) -> None:
        reader = Reader()
        reader.answer(batch(0, 3))
        reader.state.seek(Position(2, None, Leader(1, 5)))
        assert reader.poll() == []


class TestReplicas:
    def test_a_preferred_replica_has_a_time(self) -> None:
        reader = Reader(**{"metadata.max.age.ms": 500})
        reader.answer(preferred_read_replica=3, high_watermark=0)
        assert reader.poll() == []
        assert reader.state.read_replica(500) == 3
        assert reader.state.read_replica(501) is None  # then the leader is asked again


def test_aborted_records_are_left_out() -> None:
    data = batch(0, 2, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True) + batch(2, 2)
    aborted = [AbortedTransaction(producer_id=4, first_offset=0)]
    for isolation, offsets in (("read_committed", [2, 3]), ("read_uncommitted", [0, 1, 2, 3])):
        settings: dict[str, Any] = {"isolation.level": isolation}
        reader = Reader(**settings)
        reader.answer(data, aborted_transactions=aborted)
        assert [one.offset for one in reader.poll()] == offsets
