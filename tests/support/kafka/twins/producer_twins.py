"""The core of kops's producer and Kafka's Sender, RecordAccumulator and TransactionManager, in the same dialogue with scripted brokers.

Both get the same records, calls, answers and times. After each step their requests, the outcomes of records and calls, and their states
must be the same. `retry.backoff.ms` is 0, because Kafka's pauses are random.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kops.client.errors import BatchRejectedError, CommitFailedError, KafkaError, TransactionAbortedError
from kops.client.node import Node
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.links import Outgoing
from kops.client.producer.core.producer import Entry, ProducerCore, Step
from kops.client.producer.core.states import Pending, State
from kops.client.producer.faces.transacting import read_offsets
from kops.client.producer.options import ProducerOptions
from kops.errors import ApiError, UsageError
from kops.protocol.api_keys import API_KEYS, Listener
from kops.protocol.connections.node_versions import FinalizedFeatures, NodeVersions
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kops.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult
from kops.protocol.messages.api_versions_response import ApiVersion, FinalizedFeatureKey
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic
from kops.records.scanning.scanner import read_batches
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_producer import JavaProducer, Sent

START_MS: Final = 10**12
TOPICS: Final = {"a": [1, 2, 1], "b": [2]}
_REQUESTS: Final = {
    one.API_KEY: one
    for one in (
        ProduceRequest,
        FindCoordinatorRequest,
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        EndTxnRequest,
        TxnOffsetCommitRequest,
    )
}
_STATES: Final = {
    State.UNINITIALIZED: "UNINITIALIZED",
    State.INITIALIZING: "INITIALIZING",
    State.READY: "READY",
    State.IN_TRANSACTION: "IN_TRANSACTION",
    State.COMMITTING: "COMMITTING_TRANSACTION",
    State.ABORTING: "ABORTING_TRANSACTION",
    State.ABORTABLE_ERROR: "ABORTABLE_ERROR",
    State.FATAL_ERROR: "FATAL_ERROR",
}
_INVALID_TRANSITION: Final = "Invalid transition attempted"
_ITS_OWN_BUGS: Final = (
    "Trying to get txnPartitionEntry",  # a batch that expired in flight is written after the end of the transaction
    '"this.key" is null',  # NOT_COORDINATOR for the InitProducerId of a producer without transactions
    _INVALID_TRANSITION,  # the look-up of a coordinator, or InitProducerId, answers TRANSACTION_ABORTABLE: kops has mostly failed for good
)
"""Kafka's thread throws an exception here, in every turn or with a partition that stays muted. A life ends with it."""
_OWN: Final = {
    TransactionAbortedError: "TransactionAbortedException",
    CommitFailedError: "CommitFailedException",
    BatchRejectedError: "KafkaException",
    UsageError: "IllegalStateException",
}


def topic_id(name: str) -> bytes:
    """Return the id of a topic."""
    return name.encode().ljust(16, b"\1")


def api_versions(epoch: int, transaction_version: int, *, init_version: int = 5, has_ids: bool = True) -> ApiVersionsResponse:
    """Return what a node reports. `init_version` is the latest version of InitProducerId. Nodes of old versions know no topic ids."""
    keys = []
    for api in API_KEYS:
        if Listener.BROKER in api.listeners and api.versions:
            versions = api.advertised_versions(Listener.BROKER)
            last = versions.stop - 1
            if api.key == InitProducerIdRequest.API_KEY:
                last = min(last, init_version)
            elif api.key == ProduceRequest.API_KEY and not has_ids:
                last = 12
            keys.append(ApiVersion(api_key=api.key, min_version=versions.start, max_version=last))
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=transaction_version, min_version_level=transaction_version)
    features = [feature] if transaction_version else []
    return ApiVersionsResponse(api_keys=keys, finalized_features_epoch=epoch, finalized_features=features)


def metadata(leader_epoch: int, *, has_ids: bool, leaders: Mapping[str, list[int]] = TOPICS) -> MetadataResponse:
    """Return the topics and their leaders. The partitions have the order of Kafka's hash maps, because Kafka drains them in this order."""
    topics = [
        MetadataResponseTopic(
            name=name,
            topic_id=topic_id(name) if has_ids else bytes(16),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=leader, leader_epoch=leader_epoch, replica_nodes=[1, 2], isr_nodes=[1, 2]
                )
                for index, leader in reversed(list(enumerate(rows)))
            ],
        )
        for name, rows in leaders.items()
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=one, host=f"b{one}", port=9092) for one in (1, 2)], controller_id=1, topics=topics
    )


class _Links:
    """Connections that are always up."""

    def __init__(self) -> None:
        self.versions = NodeVersions(api_versions(-1, 0))
        self.finalized = FinalizedFeatures(-1, {})

    def learn(self, response: ApiVersionsResponse) -> None:
        self.versions = NodeVersions(response)
        if response.finalized_features_epoch > self.finalized.epoch:
            self.finalized = self.versions.finalized_features

    def is_ready(self, node: Node) -> bool:
        return True

    def load(self, node: Node) -> int:
        return 0

    def retry_ms(self, node: Node) -> float:
        return 0.0

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return min((node for node in nodes if node.id > 0), default=None)

    def is_failing(self, node: Node) -> bool:
        return False

    def latest_version(self, node: Node, api_key: int) -> int:
        return self.versions.known(api_key)

    def features(self) -> FinalizedFeatures:
        return self.finalized


def java_name(error: BaseException | None) -> str:
    """Return Kafka's exception class for an error, or an empty text for no error."""
    if error is None:
        return ""
    own = _OWN.get(type(error))
    if own is not None:
        return own
    assert isinstance(error, ApiError), error
    return by_name(error.name).exception


def is_same_error(java: str, own: str) -> bool:
    """Return whether both failed alike. Where Kafka throws its general exception, kops has one with the name of the code."""
    return java == own or (java == "KafkaException" and own not in ("", "IllegalStateException", "pending"))


class Twins:
    """Both producers. `in_flight` has the requests that wait for an answer, in order."""

    def __init__(self, oracle: Oracle, settings: Mapping[str, Any], *, has_ids: bool = True) -> None:
        base = {
            "batch.size": 300,
            "linger.ms": 5,
            "delivery.timeout.ms": 1000,
            "request.timeout.ms": 500,
            "retries": 2**31 - 1,
            "acks": -1,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "max.request.size": 100_000,
        }
        self.settings = {**base, **settings}
        self.now_ms = START_MS
        self.links = _Links()
        self.java = JavaProducer(oracle, START_MS, self.settings)
        given = {name: str(value) if name == "acks" else value for name, value in self.settings.items() if value is not None}
        times = {"retry.backoff.ms": 0, "retry.backoff.max.ms": 0, "partitioner.adaptive.partitioning.enable": False}
        options = ProducerOptions.of({"bootstrap.servers": "boot:9092", **times, **given})
        self.core = ProducerCore(options, [("boot", 9092)], self.links, lambda: 0.5)
        self.deliveries: list[Delivery] = []
        self.in_flight: list[tuple[int, Outgoing, Sent]] = []
        self.result: Pending | None = None
        self.result_call = ""
        self.trace: list[str] = []
        self.has_ended = False
        self.sent = 0
        self.has_ids = has_ids
        self.learn_versions(api_versions(-1, 0, has_ids=has_ids))
        for name in TOPICS:
            self.core.metadata.use(name, self.now_ms)
        self.learn(metadata(1, has_ids=has_ids))

    # what both learn

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Set the versions and features of the nodes."""
        self.links.learn(response)
        self.java.learn_versions(response)

    def learn(self, response: MetadataResponse) -> None:
        """Set the metadata of the topics."""
        self.metadata = response
        self.core.metadata.request(self.now_ms)
        self.core.metadata.received(response, self.now_ms)
        self.java.learn(response)

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.trace.append(f"+{ms} ms")
        self.now_ms += ms
        self.java.advance(ms)

    # what the program does

    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Send a record."""
        self.trace.append(f"send {topic}-{partition} {len(value)}")
        entry = Entry(topic, None, value, (), partition, self.now_ms, Delivery(), self.now_ms + 1)
        if self.core.advance_quickly(topic, self.now_ms, None, value, entry.delivery, partition) is None:
            step = self.core.advance(entry, self.now_ms)
            assert step in (Step.APPENDED, Step.WAKES), step
        self.deliveries.append(entry.delivery)
        assert not (said := self.java.java.append(topic, partition, self.now_ms, value)), (said, self.trace)

    def call(self, name: str) -> None:
        """Call init, begin, commit or abort. Both may refuse it."""
        transactions = self.core.transactions
        assert transactions is not None
        own = ""
        try:
            result = getattr(transactions, name)()
            if result is not None:
                self.result, self.result_call = result, name
        except (KafkaError, UsageError) as error:
            own = java_name(error)
        java = self.java.java.call(name)
        self.trace.append(f"{name}: {java}/{own}")
        assert is_same_error(java, own) or self._is_fatal, self._told(own)

    def commit_offset(self, topic: str, partition: int, offset: int, group: Any) -> None:
        """Commit an offset in the transaction. Both may refuse it."""
        transactions = self.core.transactions
        assert transactions is not None
        own = ""
        try:
            self.result, self.result_call = transactions.send_offsets(read_offsets({(topic, partition): offset}), group), "offsets"
        except (KafkaError, UsageError) as error:
            own = java_name(error)
        java = self.java.java.commitOffset(topic, partition, offset, group.group_id, group.generation_id, group.member_id)
        self.trace.append(f"offsets: {java}/{own}")
        assert is_same_error(java, own) or self._is_fatal, self._told(own)

    def see(self) -> bool:
        """Look for the result of the last call. Return whether it is there."""
        result, transactions = self.result, self.core.transactions
        assert result is not None
        assert transactions is not None
        own = "pending"
        if result.is_done:
            own = ""
            try:
                transactions.see(result)
            except KafkaError as error:
                own = java_name(error)
        java = self.java.java.see(self.result_call == "init")
        self.trace.append(f"see {self.result_call}: {java}/{own}")
        assert is_same_error(java, own) or self._is_fatal, self._told(own)
        if own != "pending":
            self.result = None
        return own != "pending"

    @property
    def _is_fatal(self) -> bool:
        """Whether kops has failed for good.

        It then keeps the first error and ends all calls, while Kafka's error may change and its calls wait.
        """
        return self.core.keeper is not None and self.core.keeper.fatal_error is not None

    # the network

    def run(self) -> None:
        """Let both send their requests, and compare these."""
        while not self.has_ended:
            own: list[Outgoing] = []
            for _ in range(3):
                self.java.java.run()
                requests, _ = self.core.turn(self.now_ms)
                for one in requests:
                    if isinstance(one.message, MetadataRequest):
                        one.answered(self.metadata, self.now_ms)
                    else:
                        own.append(one)
            java = self.java.take()
            problem, state, outcomes = self.java.report()
            if any(text in problem for text in _ITS_OWN_BUGS):
                self.trace.append(problem)
                self.has_ended = True
                is_recoverable = "from state READY to state INITIALIZING" in problem
                assert is_recoverable or _INVALID_TRANSITION not in problem or self._is_fatal, self._told("goes on")
                return
            assert not problem, self._told(problem)
            self._compare(own, java)
            if not all(sent.expects_response for sent in java):
                problem, state, outcomes = self.java.report()
            self._compare_outcomes(state, outcomes)
            if not java:
                break
        self.core.take_finished()

    def _compare(self, own: list[Outgoing], java: list[Sent]) -> None:
        own.sort(key=_place)
        java_order = sorted(
            range(len(java)), key=lambda index: (java[index].api_key == 0, java[index].node if java[index].api_key == 0 else 0)
        )
        mine = [self._seen(one) for one in own]
        theirs = [(sent.node, sent.api_key, sent.version, normal(sent)) for sent in (java[index] for index in java_order)]
        self.trace.append(f"requests {theirs}")
        assert mine == theirs, self._told(mine)
        for index, one in zip(java_order, own, strict=True):
            if java[index].expects_response:
                self.in_flight.append((self.sent + index, one, java[index]))
            else:
                self.java.answer(self.sent + index, None, 0)
                one.answered(one.message, self.now_ms)
        self.sent += len(java)
        self.in_flight.sort(key=lambda entry: entry[0])

    def _seen(self, one: Outgoing) -> tuple[int, int, int, object]:
        key = one.message.API_KEY
        assert key is not None
        version = self.links.versions.latest(key, one.versions)
        return one.node.id, key, version, normal(Sent(one.node.id, key, version, one.message.encode(version), one.expects_response))

    def answer(self, place: int, answer: Message | ApiError) -> None:
        """End a request."""
        index, outgoing, sent = self.in_flight.pop(place)
        self.trace.append(f"answer {type(outgoing.message).__name__}: {answer!r}")
        self.java.answer(index, answer, sent.version)
        outgoing.answered(answer, self.now_ms)

    # the comparison

    def _compare_outcomes(self, state_and_identity: str, outcomes: str) -> None:
        """Compare the outcomes of all records, and the states."""
        java = outcomes.split(" ") if self.deliveries else []
        own = [_outcome(one) for one in self.deliveries]
        for index, (theirs, mine) in enumerate(zip(java, own, strict=True)):
            is_same = is_same_error(theirs, mine) or (self._is_fatal and "-" not in (theirs, mine))
            assert is_same, self._told(f"record {index}: {theirs}/{mine}")
        if self.core.keeper is None:
            return
        state, *identity = state_and_identity.split(" ")
        assert [str(number) for number in self.core.keeper.identity] == identity, self._told(f"{identity}/{self.core.keeper.identity}")
        if self.core.transactions is not None:
            mine = _STATES[self.core.transactions.state]
            assert mine == state, self._told(f"{state}/{mine}")

    def _told(self, last: object) -> str:
        return "\n".join([*self.trace, f"kops: {last}"])


def _place(one: Outgoing) -> tuple[bool, int]:
    """Return the place of a request in the order.

    Requests of transactions come first, in the order in which they were sent. Those with records follow by node, because Kafka's order is
    that of a hash map.
    """
    is_produce = isinstance(one.message, ProduceRequest)
    return is_produce, one.node.id if is_produce else 0


def normal(sent: Sent) -> object:
    """Return a request without the order of its topics and partitions."""
    message: Any = _REQUESTS[sent.api_key].decode(sent.data, sent.version)
    if isinstance(message, ProduceRequest):
        rows = sorted(
            (topic.name or topic.topic_id.hex(), row.index, _summary(row.records))
            for topic in message.topic_data
            for row in topic.partition_data
        )
        return message.transactional_id, message.acks, message.timeout_ms, rows
    if isinstance(message, AddPartitionsToTxnRequest):
        return sorted((topic.name, sorted(topic.partitions)) for topic in message.v3_and_below_topics), message.v3_and_below_producer_epoch
    if isinstance(message, TxnOffsetCommitRequest):
        offsets = sorted((topic.name, row.partition_index, row.committed_offset) for topic in message.topics for row in topic.partitions)
        return message.group_id, message.producer_id, message.producer_epoch, message.member_id, message.generation_id, offsets
    return repr(message)


def _summary(data: Any) -> tuple[int, int, int, int | None, int]:
    """Return what identifies a batch. Its CRC covers everything but the first fields, which are the same for all."""
    (batch, *more) = read_batches(bytes(data))
    assert not more
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count, batch.crc


def _outcome(one: Delivery) -> str:
    if not one.done():
        return "-"
    error = one.exception()
    if error is not None:
        return java_name(error)
    found = one.metadata()
    return f"{found.offset}@{found.timestamp}"


class Life:
    """Random steps of both twins. The same seed gives the same life."""

    def __init__(self, twins: Twins, dice: random.Random, *, errors: Iterable[str], trouble: float = 0.4) -> None:
        self.twins = twins
        self.dice = dice
        self._errors = list(errors)
        self._trouble = trouble
        self._offset = 0
        self._ids = 4000
        self._epoch = 1
        self._features = 0
        self.steps = 0

    def step(self) -> bool:
        """Do one step. Return whether the life goes on."""
        twins, dice = self.twins, self.dice
        self.steps += 1
        chance = dice.random()
        transactions = twins.core.transactions
        if chance < 0.35:
            if transactions is None:
                self._send()
            else:
                self._act(transactions.state)
        elif chance < 0.75 and twins.in_flight:
            first: dict[tuple[int, bool], int] = {}
            for place, (_, outgoing, _) in enumerate(twins.in_flight):
                first.setdefault((outgoing.node.id, isinstance(outgoing.message, ProduceRequest)), place)
            place = dice.choice(list(first.values()))
            twins.answer(place, self._answer(twins.in_flight[place]))
        elif chance < 0.95:
            twins.advance(dice.choice((1, 3, 5, 10, 50)) if dice.random() < 0.95 else 700)
        elif chance < 0.97:
            self._epoch += 1
            leaders = {name: [dice.choice((1, 2)) for _ in rows] for name, rows in TOPICS.items()}
            twins.learn(metadata(self._epoch, has_ids=twins.has_ids, leaders=leaders))
        elif transactions is not None and chance < 0.98:
            self._features += 1
            twins.learn_versions(api_versions(self._features, dice.choice((0, 1, 2, 2)), has_ids=twins.has_ids))
        twins.run()
        return not twins.has_ended and not (twins.core.keeper is not None and twins.core.keeper.fatal_error is not None)

    def end(self) -> None:
        """Answer everything without errors until both are idle."""
        self._trouble = 0
        for _ in range(200):
            self.twins.advance(5)
            self.twins.run()
            if not self.twins.in_flight:
                break
            self.twins.answer(0, self._answer(self.twins.in_flight[0]))
        self.twins.run()

    # the program

    def _send(self) -> None:
        topic = self.dice.choice(list(TOPICS))
        partition = self.dice.randrange(len(TOPICS[topic]))
        for _ in range(self.dice.choice((1, 1, 2, 4))):
            self.twins.send(topic, partition, bytes(self.dice.choice((1, 10, 60, 150, 400))))

    def _act(self, state: State) -> None:
        twins, dice = self.twins, self.dice
        if twins.result is not None and dice.random() < 0.9:
            twins.see()
            return
        usual = {
            State.UNINITIALIZED: ("init",),
            State.INITIALIZING: ("init",),
            State.READY: ("begin",),
            State.IN_TRANSACTION: ("send", "send", "send", "send", "send", "offsets", "commit", "abort"),
            State.ABORTABLE_ERROR: ("abort",),
            State.COMMITTING: ("commit",),
            State.ABORTING: ("abort",),
            State.FATAL_ERROR: ("begin",),
        }[state]
        call = dice.choice(usual) if dice.random() < 0.95 else dice.choice(("init", "begin", "commit", "abort", "offsets"))
        if call == "send":
            if twins.core.transactions is not None and twins.core.transactions.is_open:
                self._send()
        elif call == "offsets":
            twins.commit_offset("a", dice.randrange(3), dice.randrange(100), dice.choice((Group("g"), Group("h", 3, "m"))))
        else:
            twins.call(call)

    # the brokers

    def _error(self) -> str:
        return self.dice.choice(self._errors) if self.dice.random() < self._trouble else "NONE"

    def _answer(self, entry: tuple[int, Outgoing, Sent]) -> Message | ApiError:
        _, outgoing, sent = entry
        dice = self.dice
        if dice.random() < self._trouble / 5:
            name = dice.choice(("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT", "UNSUPPORTED_VERSION"))
            if name != "UNSUPPORTED_VERSION" or not isinstance(outgoing.message, FindCoordinatorRequest):
                return ApiError(name)
        message: Any = outgoing.message
        if isinstance(message, ProduceRequest):
            return self._produced(message, sent.version)
        error = by_name(self._error()).code
        if isinstance(message, FindCoordinatorRequest):
            node = dice.choice((1, 2))
            found = [
                Coordinator(
                    key=key,
                    node_id=-1 if error else node,
                    host="" if error else f"b{node}",
                    port=9092,
                    error_code=error,
                    error_message=None,
                )
                for key in message.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        if isinstance(message, InitProducerIdRequest):
            self._ids += message.producer_id < 0
            epoch = 0 if message.producer_id < 0 else message.producer_epoch + 1
            return InitProducerIdResponse(error_code=error, producer_id=-1 if error else self._ids, producer_epoch=-1 if error else epoch)
        if isinstance(message, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=error)
        if isinstance(message, EndTxnRequest):
            if error or sent.version < 5:
                return EndTxnResponse(error_code=error)
            return EndTxnResponse(producer_id=message.producer_id, producer_epoch=message.producer_epoch + 1)
        if isinstance(message, AddPartitionsToTxnRequest):
            rows = [
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error) for index in topic.partitions
                    ],
                )
                for topic in message.v3_and_below_topics
            ]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
        assert isinstance(message, TxnOffsetCommitRequest)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error) for row in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    def _produced(self, message: ProduceRequest, version: int) -> ProduceResponse:
        topics = []
        for topic in message.topic_data:
            rows = []
            for one in topic.partition_data:
                name = self._error()
                self._offset += 100
                rows.append(
                    PartitionProduceResponse(
                        index=one.index,
                        error_code=by_name(name).code,
                        base_offset=-1 if name != "NONE" else self._offset,
                        log_append_time_ms=-1,
                        log_start_offset=self.dice.choice((-1, 0, self._offset))
                        if name == "UNKNOWN_PRODUCER_ID"
                        else 0
                        if name == "NONE"
                        else -1,
                    )
                )
            names: dict[str, Any] = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
            topics.append(TopicProduceResponse(partition_responses=rows, **names))
        return ProduceResponse(responses=topics)


class Group:
    """A member of a group."""

    def __init__(self, group_id: str, generation_id: int = -1, member_id: str = "") -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id: str | None = None
