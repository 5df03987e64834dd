"""Produce: what reaches the log, what is rejected before, and what the client gets in each version."""

from __future__ import annotations

import pytest

from kops.broker.apis.data.produce_records import check_records
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import ProduceRequest, ProduceResponse
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.protocol.messages.produce_response import NodeEndpoint, PartitionProduceResponse
from kops.records.build import BatchBuilder
from kops.replication.waiting.delayed import PartitionResponse
from kops.storage.producers.verification import NO_GUARD
from tests.support.parts.answering import C0, CLICKS, O0, O1, ORDERS, UNKNOWN_ID, Broker, Replicas

VERSIONS = ProduceRequest.VERSIONS


def batch(**fields: object) -> bytes:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    builder.append(1000, b"k", b"v")
    return builder.build()


def request(*partitions: tuple[str, int, bytes | None], version: int, acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    ids = {"orders": ORDERS, "clicks": CLICKS}
    topics = [
        TopicProduceData("" if version >= 13 else name, ids.get(name, UNKNOWN_ID), [PartitionProduceData(index, records)])
        for name, index, records in partitions
    ]
    return ProduceRequest(transactional_id, acks, 1500, topics)


def partitions(response: ProduceResponse, version: int) -> dict[tuple[str | bytes, int], PartitionProduceResponse]:
    return {
        (topic.topic_id if version >= 13 else topic.name, one.index): one
        for topic in response.responses
        for one in topic.partition_responses
    }


def names(response: ProduceResponse, version: int) -> dict[tuple[str | bytes, int], str]:
    return {key: by_code(one.error_code).name for key, one in partitions(response, version).items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_appended(version: int) -> None:
    broker = Broker(Replicas(produced={O0: PartitionResponse("NONE", 42, 5000, 3)}))
    asked = request(("orders", 0, batch()), ("clicks", 0, batch()), version=version)
    response = broker.answer(asked, version, ProduceResponse)
    by_id = version >= 13
    found = partitions(response, version)
    assert list(found) == [(ORDERS if by_id else "orders", 0), (CLICKS if by_id else "clicks", 0)]
    first = found[ORDERS if by_id else "orders", 0]
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 42, 5000)
    assert first.log_start_offset == (3 if version >= 5 else -1)
    ((sizes, acks, timeout_ms, options),) = broker.replicas.calls
    assert (sizes, acks, timeout_ms) == ({O0: len(batch()), C0: len(batch())}, 1, 1500)
    ids = {"orders": ORDERS, "clicks": CLICKS} if by_id else {}
    assert options == {"internal_topics_allowed": False, "guards": {}, "topic_ids": ids}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(version: int) -> None:
    broker = Broker()
    response = broker.answer(request(("absent", 0, batch()), ("orders", 7, batch()), version=version), version, ProduceResponse)
    if version >= 13:
        assert names(response, version) == {(UNKNOWN_ID, 0): "UNKNOWN_TOPIC_ID", (ORDERS, 7): "UNKNOWN_TOPIC_OR_PARTITION"}
    else:
        assert set(names(response, version).values()) == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert all(one.base_offset == -1 for one in partitions(response, version).values())
    assert not broker.replicas.calls


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_is_told_to_who_asked_another(version: int) -> None:
    """The answer names the replica's leader, or without a replica the leader in the metadata."""
    moved = PartitionResponse("NOT_LEADER_OR_FOLLOWER")
    broker = Broker(Replicas(produced={O0: moved, O1: moved}))
    response = broker.answer(request(("orders", 0, batch()), ("orders", 1, batch()), version=version), version, ProduceResponse)
    told = [(one.current_leader.leader_id, one.current_leader.leader_epoch) for one in partitions(response, version).values()]
    assert told == ([(2, 5), (1, 6)] if version >= 10 else [(-1, -1)] * 2)
    nodes = [NodeEndpoint(2, "host2", 9092, "r2"), NodeEndpoint(1, "host1", 9092, "r1")]
    assert response.node_endpoints == (nodes if version >= 10 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_records_are_named(version: int) -> None:
    wrong = PartitionResponse("INVALID_RECORD", record_errors=((0, "no key"), (2, None)), error_message="2 records are wrong")
    response = Broker(Replicas(produced={C0: wrong})).answer(request(("clicks", 0, batch()), version=version), version, ProduceResponse)
    (one,) = partitions(response, version).values()
    assert [(each.batch_index, each.batch_index_error_message) for each in one.record_errors] == (
        [(0, "no key"), (2, None)] if version >= 8 else []
    )
    assert one.error_message == ("2 records are wrong" if version >= 8 else None)


CORRUPT_SECOND = batch() + bytes(8) + (5).to_bytes(4, "big") + bytes(5)
REFUSED = {
    "none": (None, "INVALID_RECORD"),
    "empty": (b"", "INVALID_RECORD"),
    "cut": (batch()[:-1], "INVALID_RECORD"),
    "v1": (batch(magic=1), "INVALID_RECORD"),
    "two": (batch() * 2, "INVALID_RECORD"),
    "second is none": (CORRUPT_SECOND, "CORRUPT_MESSAGE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_v2_batch_is_taken(case: str) -> None:
    records, error = REFUSED[case]
    broker = Broker()
    response = broker.answer(request(("clicks", 0, records), ("orders", 0, batch()), version=9), 9, ProduceResponse)
    assert names(response, 9) == {("orders", 0): "NONE", ("clicks", 0): error}
    assert [call[0] for call in broker.replicas.calls] == [{O0: len(batch())}]


def test_bytes_behind_the_batch_that_are_no_batch_are_left_to_the_log() -> None:
    check_records(batch() + b"tail", 9)


@pytest.mark.parametrize(("version", "error"), [(6, "UNSUPPORTED_COMPRESSION_TYPE"), (7, None)])
def test_zstd_needs_a_client_that_knows_it(version: int, error: str | None) -> None:
    records = batch(codec="zstd")
    if error is None:
        check_records(records, version)
        return
    with pytest.raises(ApiError) as raised:
        check_records(records, version)
    assert raised.value.name == error


def test_a_request_with_what_is_no_batch_fails_as_a_whole() -> None:
    wrong = bytes(8) + (5).to_bytes(4, "big") + bytes(30)
    response = Broker().answer(request(("clicks", 0, wrong), ("orders", 0, batch()), version=9), 9, ProduceResponse)
    assert set(names(response, 9).values()) == {"CORRUPT_MESSAGE"}


def test_acks_0() -> None:
    """There is no answer. Any error ends the connection, so that the client asks again."""
    assert Broker().ask(request(("clicks", 0, batch()), version=9, acks=0), 9).is_done
    assert Broker().ask(request(("clicks", 5, batch()), version=9, acks=0), 9).is_closed
    assert Broker().ask(request(("absent", 0, batch()), version=13, acks=0), 13).is_closed
    failing = Replicas(produced={C0: PartitionResponse("NOT_LEADER_OR_FOLLOWER")})
    assert Broker(failing).ask(request(("clicks", 0, batch()), version=9, acks=0), 9).is_closed
    assert (
        Broker()
        .ask(request(("clicks", 0, batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)), version=9, acks=0), 9)
        .is_closed
    )


def test_a_parked_produce_holds_no_records() -> None:
    broker = Broker(Replicas(is_parking=True))
    asked = broker.ask(request(("clicks", 0, batch()), version=9, acks=-1), 9)
    message = asked.request.message
    assert isinstance(message, ProduceRequest)
    assert [data.records for topic in message.topic_data for data in topic.partition_data] == [None]
    assert not asked.is_answered
    broker.replicas.parked[0]()
    assert asked.answer is not None


@pytest.mark.parametrize(("client_id", "allowed"), [("__admin_client", True), ("__admin", False), ("", False)])
def test_internal_topics_are_for_kafkas_admin_client(client_id: str, allowed: bool) -> None:
    broker = Broker()
    broker.answer(request(("__consumer_offsets", 0, batch()), version=9), 9, ProduceResponse, client_id=client_id)
    assert broker.replicas.calls[0][3]["internal_topics_allowed"] is allowed


def test_transactions_without_a_coordinator() -> None:
    def transactional(producer_id: int) -> bytes:
        return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    broker = Broker()
    refused = broker.answer(request(("clicks", 0, transactional(1)), version=9), 9, ProduceResponse)
    assert names(refused, 9) == {("clicks", 0): "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
    some = request(("clicks", 0, transactional(1)), ("orders", 0, batch()), version=9, transactional_id="t")
    answer = broker.answer(some, 9, ProduceResponse)
    assert names(answer, 9) == {("clicks", 0): "NOT_ENOUGH_REPLICAS", ("orders", 0): "NONE"}
    assert "COORDINATOR_NOT_AVAILABLE" in str(partitions(answer, 9)["clicks", 0].error_message)
    two = request(("clicks", 0, transactional(1)), ("orders", 0, transactional(2)), version=9, transactional_id="t")
    assert set(names(broker.answer(two, 9, ProduceResponse), 9).values()) == {"INVALID_PRODUCER_ID_MAPPING"}
    assert [call[0] for call in broker.replicas.calls] == [{O0: len(batch())}]


def test_an_open_transaction_is_not_verified() -> None:
    broker = Broker(Replicas(guard=NO_GUARD))
    open_one = batch(producer_id=1, producer_epoch=0, base_sequence=5, transactional=True)
    answer = broker.answer(request(("clicks", 0, open_one), version=12, transactional_id="t"), 12, ProduceResponse)
    assert names(answer, 12) == {("clicks", 0): "NONE"}
    assert broker.replicas.calls[0][3]["guards"] == {}
