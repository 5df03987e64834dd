"""Fetch: sessions, what reaches the replicas, and what the client gets in each version."""

from __future__ import annotations

import pytest

from kops.broker.apis.data.fetch import in_memory
from kops.broker.replicas.reads import FetchPartitionData
from kops.protocol.errors import by_code
from kops.protocol.messages import FetchRequest, FetchResponse
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic, ReplicaState
from kops.protocol.messages.fetch_response import NodeEndpoint, PartitionData
from kops.protocol.structure import SMALL_RECORDS_SIZE
from kops.records.log_offsets import Isolation
from kops.replication.leading.fetch import ClientMetadata, EpochEndOffset
from kops.storage.segment_files.file_records import LogView
from kops.storage.segment_files.transaction_index import AbortedTxn
from tests.support.parts.answering import C0, CLICKS, O0, O1, ORDERS, UNKNOWN_ID, Broker, Replicas

pytestmark = pytest.mark.hot

VERSIONS = FetchRequest.VERSIONS
IDS = {"orders": ORDERS, "clicks": CLICKS}


def topic(version: int, name: str, *numbers: int, offset: int = 5, epoch: int = -1) -> FetchTopic:
    fetched = [FetchPartition(number, epoch, offset, partition_max_bytes=1000) for number in numbers]
    return FetchTopic("" if version >= 13 else name, IDS.get(name, UNKNOWN_ID), fetched)


def request(version: int, *topics: FetchTopic, session: tuple[int, int] = (0, -1), replica_id: int = -1, **fields: object) -> FetchRequest:
    in_state = version >= 15
    state = ReplicaState(replica_id, 77) if in_state else ReplicaState()
    made = FetchRequest(replica_id=-1 if in_state else replica_id, replica_state=state, max_wait_ms=500, min_bytes=1, topics=list(topics))
    made.session_id, made.session_epoch = session
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def partitions(response: FetchResponse, version: int) -> dict[tuple[str | bytes, int], PartitionData]:
    return {
        (topic.topic_id if version >= 13 else topic.topic, one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def errors(response: FetchResponse, version: int) -> dict[tuple[str | bytes, int], str]:
    return {key: by_code(one.error_code).name for key, one in partitions(response, version).items()}


class Source:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, position: int, size: int) -> bytes:
        if self.data == b"broken":
            raise OSError("broken")
        return self.data[position : position + size]

    def size(self) -> int:
        return len(self.data)


def test_a_small_slice_of_a_file_is_read_for_the_response() -> None:
    view = LogView(Source(b"-" + b"r" * 9000), "file", start=1, end=1 + SMALL_RECORDS_SIZE)
    broker = Broker(Replicas(fetched={O0: FetchPartitionData("NONE", 9, 2, view)}))
    response = broker.answer(request(12, topic(12, "orders", 0)), 12, FetchResponse)
    (got,) = partitions(response, 12).values()
    assert got.records == b"r" * SMALL_RECORDS_SIZE


@pytest.mark.parametrize("data", [b"-" + b"r" * 99, b"broken"])
def test_a_slice_that_is_not_there_stays_one(data: bytes) -> None:
    """Sending the slice ends the connection, as in Kafka."""
    view = LogView(Source(data), "file", start=1, end=101)
    assert in_memory(view) is view


@pytest.mark.parametrize("version", VERSIONS)
def test_records_and_offsets(version: int) -> None:
    found = FetchPartitionData("NONE", 9, 2, b"records", last_stable_offset=8, aborted_transactions=[AbortedTxn(4, 6, 7, 8)])
    broker = Broker(Replicas(fetched={O0: found}))
    response = broker.answer(request(version, topic(version, "orders", 0), topic(version, "clicks", 0)), version, FetchResponse)
    by_id = version >= 13
    got = partitions(response, version)
    assert list(got) == [(ORDERS if by_id else "orders", 0), (CLICKS if by_id else "clicks", 0)]
    first, second = got.values()
    assert (first.high_watermark, first.last_stable_offset, bytes(first.records or b"")) == (9, 8, b"records")  # type: ignore[arg-type]
    assert first.log_start_offset == (2 if version >= 5 else -1)
    assert [(one.producer_id, one.first_offset) for one in first.aborted_transactions or ()] == [(4, 6)]
    assert second.records is not None
    assert len(second.records) == 0  # type: ignore[arg-type]
    assert second.aborted_transactions is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_replicas_are_asked(version: int) -> None:
    broker = Broker()
    asked = request(version, topic(version, "orders", 0, epoch=4), rack_id="r1" if version >= 11 else "", isolation_level=1)
    broker.answer(asked, version, FetchResponse)
    ((params, ((key, info),)),) = broker.replicas.calls
    client = ClientMetadata("r1", "someone", "PLAINTEXT") if version >= 11 else None
    epoch = 77 if version >= 15 else -1
    sizes = (params.max_wait_ms, params.min_bytes, params.max_bytes)
    assert (params.replica_id, params.replica_epoch, *sizes) == (-1, epoch, 500, 1, 55 * 1024 * 1024)
    assert (params.isolation, params.client_metadata) == (Isolation.TXN_COMMITTED, client)
    assert (key, info.fetch_offset, info.max_bytes) == (O0, 5, 1000)
    assert info.current_leader_epoch == (4 if version >= 9 else None)
    assert info.last_fetched_epoch is None
    assert info.topic_id == (ORDERS if version >= 13 else bytes(16))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_reads_to_the_logs_end(version: int) -> None:
    broker = Broker()
    broker.answer(request(version, topic(version, "orders", 0), replica_id=2), version, FetchResponse)
    params = broker.replicas.calls[0][0]
    assert (params.replica_id, params.isolation, params.is_from_follower) == (2, Isolation.LOG_END, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(version: int) -> None:
    broker = Broker()
    response = broker.answer(request(version, topic(version, "absent", 0), topic(version, "orders", 9)), version, FetchResponse)
    missing = "UNKNOWN_TOPIC_ID" if version >= 13 else "UNKNOWN_TOPIC_OR_PARTITION"
    assert list(errors(response, version).values()) == [missing, "UNKNOWN_TOPIC_OR_PARTITION"]
    assert not broker.replicas.calls


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_is_told_to_who_asked_another(version: int) -> None:
    moved = {O0: FetchPartitionData("NOT_LEADER_OR_FOLLOWER"), O1: FetchPartitionData("FENCED_LEADER_EPOCH")}
    response = Broker(Replicas(fetched=moved)).answer(request(version, topic(version, "orders", 0, 1)), version, FetchResponse)
    told = [(one.current_leader.leader_id, one.current_leader.leader_epoch) for one in partitions(response, version).values()]
    assert told == ([(2, 5), (1, 6)] if version >= 16 else [(-1, -1)] * 2)
    nodes = [NodeEndpoint(2, "host2", 9092, "r2"), NodeEndpoint(1, "host1", 9092, "r1")]
    assert response.node_endpoints == (nodes if version >= 16 else [])
    follower = request(version, topic(version, "orders", 0), replica_id=2)
    assert Broker(Replicas(fetched=moved)).answer(follower, version, FetchResponse).node_endpoints == []


def test_a_failed_disk_is_told_in_words_that_the_client_knows() -> None:
    failed = {C0: FetchPartitionData("KAFKA_STORAGE_ERROR")}
    for version, error in ((5, "NOT_LEADER_OR_FOLLOWER"), (6, "KAFKA_STORAGE_ERROR"), (18, "KAFKA_STORAGE_ERROR")):
        response = Broker(Replicas(fetched=failed)).answer(request(version, topic(version, "clicks", 0)), version, FetchResponse)
        assert list(errors(response, version).values()) == [error]


def test_divergence_and_preferred_replica() -> None:
    found = {
        O0: FetchPartitionData("NONE", diverging_epoch=EpochEndOffset(3, 17)),
        O1: FetchPartitionData("NONE", preferred_read_replica=2),
    }
    diverging, preferred = partitions(
        Broker(Replicas(fetched=found)).answer(request(12, topic(12, "orders", 0, 1)), 12, FetchResponse), 12
    ).values()
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (3, 17)
    assert preferred.preferred_read_replica == 2


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 7])
def test_a_session_tells_what_is_new(version: int) -> None:
    broker = Broker()
    first = broker.answer(request(version, topic(version, "orders", 0, 1), session=(0, 0)), version, FetchResponse)
    assert (first.session_id, len(partitions(first, version))) == (100, 2)
    nothing = broker.answer(request(version, session=(100, 1)), version, FetchResponse)
    assert (nothing.error_code, nothing.session_id, nothing.responses) == (0, 100, [])
    assert [key for key, _ in broker.replicas.calls[1][1]] == [O0, O1]
    broker.replicas.fetched = {O1: FetchPartitionData("NONE", 8, 0, b"more", last_stable_offset=8)}
    more = broker.answer(request(version, session=(100, 2)), version, FetchResponse)
    assert [number for _, number in partitions(more, version)] == [1]
    forgotten = ForgottenTopic("" if version >= 13 else "orders", ORDERS, [1])
    broker.answer(request(version, session=(100, 3), forgotten_topics_data=[forgotten]), version, FetchResponse)
    assert [key for key, _ in broker.replicas.calls[3][1]] == [O0]
    twice = broker.answer(request(version, session=(100, 3)), version, FetchResponse)
    assert by_code(twice.error_code).name == "INVALID_FETCH_SESSION_EPOCH"
    ended = broker.answer(request(version, session=(100, -1)), version, FetchResponse)
    assert (ended.error_code, ended.session_id) == (0, 0)
    gone = broker.answer(request(version, session=(100, 4)), version, FetchResponse)
    assert by_code(gone.error_code).name == "FETCH_SESSION_ID_NOT_FOUND"


def test_a_session_does_not_change_between_names_and_ids() -> None:
    broker = Broker()
    broker.answer(request(12, topic(12, "orders", 0), session=(0, 0)), 12, FetchResponse)
    response = broker.answer(request(13, session=(100, 1)), 13, FetchResponse)
    assert by_code(response.error_code).name == "FETCH_SESSION_TOPIC_ID_ERROR"


def test_sizes_are_bounded_by_the_broker() -> None:
    broker = Broker()
    broker.answer(request(12, topic(12, "orders", 0), max_bytes=2**31 - 1, min_bytes=2**31 - 1), 12, FetchResponse)
    params = broker.replicas.calls[0][0]
    assert (params.max_bytes, params.min_bytes) == (55 * 1024 * 1024, 55 * 1024 * 1024)


def test_an_isolation_level_that_there_is_not() -> None:
    response = Broker().answer(request(12, topic(12, "orders", 0), isolation_level=2), 12, FetchResponse)
    assert by_code(response.error_code).name == "UNKNOWN_SERVER_ERROR"


def test_a_parked_fetch_is_answered_later() -> None:
    broker = Broker(Replicas(is_parking=True))
    asked = broker.ask(request(12, topic(12, "orders", 0)), 12)
    assert not asked.is_answered
    broker.replicas.parked[0]()
    assert isinstance(asked.answer, FetchResponse)


@pytest.mark.parametrize("version", [12, 17])
def test_what_throttled_followers_get_is_counted(version: int) -> None:
    """The number is the size of a response with only the throttled partitions."""
    broker = Broker(Replicas(fetched={key: FetchPartitionData("NONE", 9, 2, bytes(5000)) for key in (O0, O1, C0)}))
    asked = request(version, topic(version, "orders", 0, 1), topic(version, "clicks", 0), replica_id=2)
    quota = broker.replicas.leader_quota
    broker.answer(asked, version, FetchResponse)
    assert quota.is_quota_exceeded is False
    quota.update_quota(5000)
    quota.mark_throttled("orders", [1])
    broker.answer(request(version, topic(version, "orders", 0, 1), topic(version, "clicks", 0)), version, FetchResponse)
    assert quota.is_quota_exceeded is False
    broker.answer(asked, version, FetchResponse)
    assert quota.is_quota_exceeded
    quota.update_quota(5200)
    assert quota.is_quota_exceeded is False
