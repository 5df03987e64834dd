"""The core's transactions in a dialogue with scripted brokers: order of requests, both transaction versions, errors, the end.

`tests/differential/clients/producer/test_producer_dialogues.py` compares the same core with Kafka's classes.
"""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kops.client.producer.core.handlers import CoordinatorKind
from kops.client.producer.core.links import Outgoing
from kops.client.producer.core.states import Pending, Priority, RequestQueue, State
from kops.client.producer.core.transactions import Transactions
from kops.client.producer.faces.transacting import read_group, read_offsets
from kops.errors import ApiError, UsageError
from kops.protocol.connections.node_versions import FinalizedFeatures
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    ProduceRequest,
    TxnOffsetCommitResponse,
)
from kops.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic
from tests.support.producers import Dialogue, batch_of, refused, written


class Talk(Dialogue):
    """A dialogue whose brokers answer requests of transactions as the test says, and otherwise with success. `order` has the names of the
    requests.
    """

    def __init__(self, version: int = 2, **settings: Any) -> None:
        super().__init__({"transactional.id": "x", "linger.ms": 0, **settings}, topics={"a": [1, 2]})
        self.order: list[str] = []
        self.links.finalized = FinalizedFeatures(1, {"transaction.version": version})

    @property
    def transactions(self) -> Transactions:
        """Return the transactions of the core."""
        assert self.core.transactions is not None
        return self.core.transactions

    def next_request(self) -> Outgoing:
        """Return the only request, after as many turns as it needs."""
        for _ in range(20):
            self.turn(min(self.wait_ms, 100))
            self.settle(MetadataRequest)
            if self.waiting:
                (request,) = self.waiting
                self.waiting = []
                self.order.append(type(request.message).__name__.removesuffix("Request"))
                return request
        raise AssertionError("no request")

    def go(self, *answers: Message | ApiError | str | None) -> Outgoing:
        """Answer the next requests: with an error by name, or with success (None). Return the last request."""
        for answer in answers:
            request = self.next_request()
            self.answer(request, well(request, answer) if answer is None or isinstance(answer, str) else answer)
        return request

    def ready(self) -> None:
        """Get the producer id."""
        result = self.transactions.init()
        self.go(None, None)
        self.transactions.see(result)
        self.order.clear()

    def begun(self) -> None:
        """Begin a transaction, and write one record."""
        self.ready()
        self.transactions.begin()
        self.send("a", b"v", partition=0)


def well(request: Outgoing, error: str | None) -> Message:
    """Return the answer with success, or with this error."""
    message: Any = request.message
    code = by_name(error).code if error else 0
    if isinstance(message, ProduceRequest):
        return refused(request, error) if error else written(request)
    if isinstance(message, InitProducerIdRequest):
        epoch = message.producer_epoch + 1
        return InitProducerIdResponse(error_code=code, producer_id=-1 if error else 77, producer_epoch=epoch)
    if isinstance(message, EndTxnRequest):
        is_version_2 = request.versions is not None and 5 in request.versions
        has_identity = is_version_2 and not error
        return EndTxnResponse(
            error_code=code, producer_id=77 if has_identity else -1, producer_epoch=message.producer_epoch + 1 if has_identity else -1
        )
    if isinstance(message, AddPartitionsToTxnRequest):
        rows = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=code) for one in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    name = type(message).__name__
    if name == "AddOffsetsToTxnRequest":
        return AddOffsetsToTxnResponse(error_code=code)
    if name == "TxnOffsetCommitRequest":
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code) for row in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)
    found = [Coordinator(key=key, node_id=2, host="b2", port=9092, error_code=code) for key in message.coordinator_keys]
    return FindCoordinatorResponse(coordinators=found)


def test_version_2_needs_two_requests() -> None:
    talk = Talk()
    talk.begun()
    result = talk.transactions.commit()
    request = talk.go(None)
    assert isinstance(request.message, ProduceRequest)
    assert request.message.transactional_id == "x"
    assert batch_of(request).is_transactional
    talk.go(None)
    assert talk.order == ["Produce", "EndTxn"]
    talk.transactions.see(result)
    assert talk.core.keeper is not None
    assert talk.core.keeper.identity == (77, 1)


def test_version_1_adds_partitions_and_offsets() -> None:
    talk = Talk(version=1)
    talk.begun()
    request = talk.go(None, None)
    assert request.versions is not None
    assert request.versions.stop == 12
    offsets = talk.transactions.send_offsets(read_offsets({("a", 0): 3}), read_group("g"))
    talk.go(None, None, None)
    talk.transactions.see(offsets)
    result = talk.transactions.commit()
    talk.go(None)
    talk.transactions.see(result)
    assert talk.order == ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit", "EndTxn"]
    assert talk.core.keeper is not None
    assert talk.core.keeper.identity == (77, 0)


def test_an_error_of_version_1_raises_the_epoch() -> None:
    talk = Talk(version=1)
    talk.begun()
    talk.go(None, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    with pytest.raises(KafkaError, match="the transaction must be aborted") as found:
        talk.transactions.commit()
    assert found.value.abortable
    result = talk.transactions.abort()
    talk.go(None, None)
    assert talk.order[-2:] == ["EndTxn", "InitProducerId"]
    talk.transactions.see(result)
    assert talk.core.keeper is not None
    assert talk.core.keeper.identity == (77, 1)


def test_batches_that_were_not_sent_fail_with_an_abort() -> None:
    talk = Talk(version=1)
    talk.begun()
    delivery = talk.send("a", b"w", partition=1)
    talk.transactions.abort()
    talk.turn()
    assert isinstance(delivery.exception(), TransactionAbortedError)
    assert talk.transactions.state is State.READY  # the coordinator does not know of it


@pytest.mark.parametrize("lost", ["NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"])
def test_a_lost_answer_looks_for_the_coordinator(lost: str) -> None:
    talk = Talk()
    talk.begun()
    result = talk.transactions.commit()
    talk.go(None, ApiError(lost), None, None)
    assert talk.order == ["Produce", "EndTxn", "FindCoordinator", "EndTxn"]
    talk.transactions.see(result)


@pytest.mark.parametrize("error, state, kind", [
    ("PRODUCER_FENCED", State.FATAL_ERROR, ProducerFencedError), ("INVALID_PRODUCER_EPOCH", State.FATAL_ERROR, ProducerFencedError),
    ("INVALID_TXN_STATE", State.FATAL_ERROR, KafkaError), ("TRANSACTION_ABORTABLE", State.ABORTABLE_ERROR, TransactionAbortableError),
    ("UNKNOWN_PRODUCER_ID", State.ABORTABLE_ERROR, KafkaError), ("INVALID_REQUEST", State.FATAL_ERROR, KafkaError),
])  # fmt: skip
def test_errors_of_a_commit(error: str, state: State, kind: type[KafkaError]) -> None:
    talk = Talk()
    talk.begun()
    result = talk.transactions.commit()
    talk.go(None, error)
    assert talk.transactions.state is state
    with pytest.raises(kind) as found:
        talk.transactions.see(result)
    assert found.value.fatal is (state is State.FATAL_ERROR)
    assert found.value.abortable is (state is State.ABORTABLE_ERROR)


def test_a_member_that_is_unknown_fails_the_transaction() -> None:
    talk = Talk()
    talk.begun()
    talk.go(None)
    result = talk.transactions.send_offsets(read_offsets({("a", 0): 3}), read_group("g"))
    talk.go(None, "UNKNOWN_MEMBER_ID")
    with pytest.raises(CommitFailedError, match="the offsets of group g were not committed"):
        talk.transactions.see(result)
    with pytest.raises(CommitFailedError, match="the transaction must be aborted: the offsets of group g"):
        talk.transactions.check_record()


def test_a_producer_without_permission_may_try_again() -> None:
    talk = Talk()
    result = talk.transactions.init()
    talk.go(None, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    talk.turn()
    with pytest.raises(KafkaError):
        talk.transactions.see(result)
    assert talk.transactions.state is State.UNINITIALIZED
    again = talk.transactions.init()
    talk.go(None)
    talk.transactions.see(again)


def test_a_record_that_expires_fails_the_commit() -> None:
    talk = Talk(**{"delivery.timeout.ms": 1000, "request.timeout.ms": 500})
    talk.begun()
    delivery = talk.send("a", b"w", partition=1)
    result = talk.transactions.commit()
    talk.turn()
    talk.turn(1000)
    assert isinstance(delivery.exception(), KafkaTimeoutError)
    talk.turn()
    with pytest.raises(TransactionAbortableError):
        talk.transactions.see(result)


def test_a_closing_producer_aborts() -> None:
    talk = Talk()
    talk.begun()
    talk.core.close()
    talk.go(None)
    assert not talk.core.has_ended
    request = talk.go(None)
    assert isinstance(request.message, EndTxnRequest)
    assert not request.message.committed
    assert talk.core.has_ended


def test_a_forced_close_fails_the_calls() -> None:
    talk = Talk()
    talk.begun()
    result = talk.transactions.commit()
    talk.turn()
    talk.core.force_close()
    with pytest.raises(ProducerClosedError):
        talk.transactions.see(result)
    assert talk.core.has_ended


def test_an_older_broker_is_asked_for_one_coordinator() -> None:
    talk = Talk()
    talk.transactions.init()
    request = talk.go(ApiError("UNSUPPORTED_VERSION"))
    assert request.versions is not None
    assert request.versions.start == 4
    second = talk.go(FindCoordinatorResponse(node_id=2, host="b2", port=9092))
    assert second.versions == range(1, 4)
    assert talk.transactions.coordinators[CoordinatorKind.TRANSACTION] is not None


def test_results_are_seen_once() -> None:
    talk = Talk()
    talk.ready()
    talk.transactions.begin()
    first = talk.transactions.commit()
    assert talk.transactions.commit() is first
    talk.turn()
    with pytest.raises(UsageError, match="the call of commit_transaction before it timed out; repeat that first"):
        talk.transactions.begin()
    talk.transactions.see(first)
    talk.transactions.begin()


class One:
    """A request with a priority."""

    def __init__(self, priority: Priority) -> None:
        self.priority = priority


def test_the_queue_has_the_order_of_java() -> None:
    queue: RequestQueue[One] = RequestQueue()
    added, found, other = One(Priority.ADD_PARTITIONS_OR_OFFSETS), One(Priority.FIND_COORDINATOR), One(Priority.ADD_PARTITIONS_OR_OFFSETS)
    for one in (added, found, other):
        queue.add(one)
    assert [queue.take() for _ in range(4)] == [found, other, added, None]
    assert not queue


def test_a_result_that_failed_raises() -> None:
    result = Pending("EndTxn")
    result.fail(KafkaError("no"))
    with pytest.raises(KafkaError, match="no"):
        result.see()
