"""What commands ask of the leaders of partitions, and the batches that a replay sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kops.client.client import Client
from kops.client.coordinators.transactions import describe_producers
from kops.client.leaders.offsets import delete_records, list_offsets
from kops.client.offsets import LATEST, ListedOffset
from kops.client.replay.rounds import Entry
from kops.client.replay.sending import BatchSender
from kops.client.replay.state import State, TargetState
from kops.errors import ApiError, KopsError, UnreachableError
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    DeleteRecordsRequest,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.describe_producers_response import PartitionResponse, TopicResponse
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from kops.records.log_offsets import TopicPartition
from kops.records.record import Header, Record
from kops.records.scanning.scanner import read_batches
from tests.support.nodes.scripted_cluster import ScriptedCluster
from tests.support.patience import with_more_time

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
UNKNOWN, NOT_LEADER, TOO_LARGE, INVALID = 3, 6, 10, 87


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(2) as made:
        made.topics["a"] = [1]
        yield made


ASKED: dict[str, Callable[[Client, TopicPartition], Any]] = {
    "list": lambda client, key: list_offsets(client, {key: LATEST})[key],
    "delete": lambda client, key: delete_records(client, {key: 5})[key],
    "producers": lambda client, key: describe_producers(client, [key])[key],
}


@pytest.mark.parametrize("name", ASKED)
def test_what_does_not_exist_is_told_at_once(cluster: ScriptedCluster, name: str) -> None:
    with cluster.client() as client:
        partition, topic = ASKED[name](client, A1), ASKED[name](client, B0)
    assert isinstance(partition, ApiError) and str(partition) == "there is no such partition"
    assert isinstance(topic, ApiError) and topic.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert not any(cluster.requests(1, kind) for kind in (ListOffsetsRequest, DeleteRecordsRequest, DescribeProducersRequest))
    assert sum(bool(message.topics) for node in (1, 2) for message in cluster.requests(node, MetadataRequest)) == 2


def test_a_topic_that_was_deleted_meanwhile_is_told_at_once(cluster: ScriptedCluster) -> None:
    def gone(_: object, message: Message) -> Message:
        del cluster.topics["a"]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("a", [ListOffsetsPartitionResponse(0, UNKNOWN)])])

    cluster.script(ListOffsetsRequest, gone)
    with cluster.client() as client:
        found = list_offsets(client, {A0: LATEST})[A0]
    assert isinstance(found, ApiError) and found.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert len(cluster.requests(1, ListOffsetsRequest)) == 1


def test_a_chosen_broker_without_the_partition_is_asked_once(cluster: ScriptedCluster) -> None:
    row = PartitionResponse(0, UNKNOWN, None, [])
    cluster.script(DescribeProducersRequest, lambda *_: DescribeProducersResponse(topics=[TopicResponse("a", [row])]))
    with cluster.client() as client:
        found = describe_producers(client, [A0], broker_id=2)[A0]
    assert isinstance(found, ApiError) and found.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert [len(cluster.requests(node, DescribeProducersRequest)) for node in (1, 2)] == [0, 1]


@pytest.mark.parametrize("name", ASKED)
def test_a_leader_that_can_not_be_reached_is_named(cluster: ScriptedCluster, name: str) -> None:
    cluster.topics["a"] = [2]
    brokers = cluster.metadata(MetadataRequest(topics=[])).brokers
    cluster.stop(2)

    def metadata(_: object, message: MetadataRequest) -> Message:
        response = cluster.metadata(message)
        response.brokers = brokers
        return response

    def ask(timeout_s: float) -> str:
        with cluster.hurried(default_api_timeout_ms=int(timeout_s * 1000)) as client, pytest.raises(UnreachableError) as error:
            ASKED[name](client, A0)
        return str(error.value)

    cluster.script(MetadataRequest, metadata)
    address = f"{brokers[1].host}:{brokers[1].port}"
    text = with_more_time(0.3, ask, lambda told: told.startswith("broker 2"))
    assert text.startswith(f"broker 2 at {address} cannot be reached: ")


def test_what_a_partition_waits_for_is_told_with_its_name(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kops.client.admin.core.keyed.WAITING_MS", 0)
    cluster.topics["a"] = [-1, 1]
    row = ListOffsetsPartitionResponse(partition_index=1, offset=9)
    cluster.script(ListOffsetsRequest, lambda *_: ListOffsetsResponse(topics=[ListOffsetsTopicResponse("a", [row])]))

    def ask(timeout_s: float) -> tuple[list[str], ListedOffset | ApiError, ListedOffset | ApiError]:
        told: list[str] = []
        with cluster.hurried(default_api_timeout_ms=int(timeout_s * 1000)) as client:
            client.on_wait = told.append
            found = list_offsets(client, dict.fromkeys((A0, A1), LATEST))
        return told, found[A0], found[A1]

    told, without, led = with_more_time(0.2, ask, lambda answer: answer[2] == ListedOffset(9, -1, -1))
    assert told == ["a-0: it has no leader"]
    assert isinstance(without, ApiError) and str(without) == "it has no leader"
    assert led == ListedOffset(9, -1, -1)


# replay


def entries(*values: bytes) -> list[Entry]:
    """Return records, of which the second has a header."""
    headers: list[list[Header]] = [[("h", b"x")] if offset == 1 else [] for offset in range(len(values))]
    return [Entry("log", Record(offset, 1000 + offset, "create", None, value, headers[offset])) for offset, value in enumerate(values)]


def test_a_batch_of_a_replay_is_sent_once_with_the_numbers_of_the_state(cluster: ScriptedCluster) -> None:
    codes, seen = [TOO_LARGE, NOT_LEADER, INVALID, 0], []

    def answer(_: object, message: ProduceRequest) -> Message:
        (topic,) = message.topic_data
        (one,) = topic.partition_data
        (batch,) = read_batches(bytes(one.records or b""))  # type: ignore[arg-type]
        seen.append((batch.producer_id, batch.producer_epoch, batch.base_sequence, [row.value for row in batch.records()]))
        row = PartitionProduceResponse(index=0, error_code=codes[len(seen) - 1], base_offset=70)
        return ProduceResponse(responses=[TopicProduceResponse(name="a", topic_id=topic.topic_id, partition_responses=[row])])

    cluster.script(ProduceRequest, answer)
    state = State({}, producer_id=7, producer_epoch=2, targets={A0: TargetState(sequence=5)})
    found = []
    with cluster.client({"batch.size": "100", "max.request.size": "200"}) as client:
        sender = BatchSender(client, state)
        for size in (300, 300, 10, 10):
            found.append(sender.send({A0: entries(b"a" * size, b"b", b"c")})[A0])
            state.targets[A0].sequence += 3
        assert sender.sent_bytes > 600
    assert [one if isinstance(one, int) else getattr(one, "name", one) for one in found] == [
        "MESSAGE_TOO_LARGE",
        "NOT_LEADER_OR_FOLLOWER",
        "INVALID_RECORD",
        70,
    ]
    assert seen == [(7, 2, sequence, [b"a" * size, b"b", b"c"]) for sequence, size in ((5, 300), (8, 300), (11, 10), (14, 10))]


def test_a_replay_creates_no_topic(cluster: ScriptedCluster) -> None:
    state = State({}, producer_id=7, producer_epoch=2, targets={B0: TargetState()})

    def send(timeout_s: float) -> KopsError:
        with cluster.hurried(default_api_timeout_ms=int(timeout_s * 1000)) as client, pytest.raises(KopsError) as error:
            BatchSender(client, state).send({B0: entries(b"x")})
        return error.value

    error = with_more_time(0.1, send, lambda error: isinstance(error, ApiError))
    assert isinstance(error, ApiError) and (error.name, str(error)) == ("UNKNOWN_TOPIC_OR_PARTITION", "no such topic: b")
    asked = [message for node in (1, 2) for message in cluster.requests(node, MetadataRequest) if message.topics]
    assert asked and not any(message.allow_auto_topic_creation for message in asked)
