"""Questions to coordinators about transactions, compared with Kafka's AddPartitionsToTxnManager: random producers, changes of the
coordinator, and answers with every error code. Both must send the same requests and tell each producer the same errors.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from py4j.java_gateway import get_field

from kops.broker.life.metrics import VERIFICATION_FAILURES, VERIFICATION_TIMES
from kops.broker.network.request_metrics import Histogram
from kops.coordinators.transactions.support import TransactionSupport, support_of_produce, support_of_txn_offset_commit
from kops.coordinators.transactions.verification import FIRST_BROKER_VERSION, TransactionVerifications, VerificationRequest
from kops.errors import ApiError
from kops.protocol.errors import ERRORS
from kops.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.java_groups import Calls
from tests.support.kafka.twins.java_transactions import JavaTransactions
from tests.support.parts.groups.transacting import Node

MANAGER: Final = f"{KAFKA}server.transaction.AddPartitionsToTxnManager"
IDS: Final = ("t", "my-txn", "überweisung", "u", "v")
PARTITIONS: Final = [TopicPartition(topic, number) for topic in ("orders", "stock", "__consumer_offsets") for number in range(4)]
LOST: Final = ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT", "UNSUPPORTED_VERSION")
SUPPORTS: Final = {
    TransactionSupport.DEFAULT_ERROR: "DEFAULT_ERROR",
    TransactionSupport.GENERIC_ERROR: "GENERIC_ERROR_SUPPORTED",
    TransactionSupport.ADD_PARTITION: "ADD_PARTITION",
}
STEPS: Final = 60
_CACHE: Final = (
    "public java.util.HashMap leaders = new java.util.HashMap(); public java.util.HashMap nodes = new java.util.HashMap();",
    "public java.util.Optional getLeaderAndIsr(String topic, int number) {"
    " return java.util.Optional.ofNullable(leaders.get(Integer.valueOf(number))); }",
    f"public java.util.Optional getAliveBrokerNode(int id, {KAFKA}common.network.ListenerName listener) {{"
    " return java.util.Optional.ofNullable(nodes.get(Integer.valueOf(id))); }",
    "public Object apply(Object name) { return leaders.get(name); }",
)


@dataclass
class Question:
    """A producer that waits for an answer."""

    told: Calls
    got: list[dict[TopicPartition, str]] = field(default_factory=list)


class Twins:
    """Both managers. Each transactional id has its own partition of the transactions' log, with the index of the id as its number."""

    def __init__(self, made: JavaTransactions, rng: random.Random) -> None:
        self.rng, self.made, self.java = rng, made, made.java
        oracle = made.oracle
        self.manager_class = oracle.java_class(MANAGER)
        self.supports = oracle.java_class(f"{MANAGER}$TransactionSupportedOperation")
        beside = "org.apache.kafka.server.transaction.AddPartitionsToTxnManager"
        interfaces = (f"{KAFKA}metadata.MetadataCache", "java.util.function.Function")
        self.cache = made.plain(made.define(f"{KAFKA}server.transaction.KopsLeaders", beside, _CACHE, *interfaces))
        self.clock = ManualClock(oracle, 1 << 40)
        properties = {
            "node.id": 1,
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": "localhost:1",
            "controller.listener.names": "C",
            "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        config = oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties(properties))
        network = made.new(made.network)
        self.theirs = self.manager_class(config, network, self.cache, self.cache, self.clock.time)
        self.leaders: dict[str, int] = {}
        self.alive: dict[int, Node] = {}
        self.times = Histogram()
        self.ours = TransactionVerifications(
            self._coordinator_of, lambda: None, now_ms=lambda: self.clock.now_ms, took=lambda ms: self.times.update((ms,))
        )
        registry = oracle.jvm.org.apache.kafka.server.metrics.KafkaYammerMetrics.defaultRegistry()
        metrics = {str(name.getMBeanName()): metric for name, metric in registry.allMetrics().items()}
        self.failures, self.time = metrics[VERIFICATION_FAILURES], metrics[VERIFICATION_TIMES]
        # The metrics belong to the whole JVM.
        self.metrics_before = self.their_metrics()
        self.questions: list[Question] = []
        self.outstanding: list[tuple[VerificationRequest, Any]] = []
        self.is_ordered = True
        """Whether the partitions of both come in the same order. Kafka's ReplicaManager has them in a HashMap."""
        self.seen: Counter[str] = Counter()
        for index, name in enumerate(IDS):
            self.map("leaders").put(name, index)
        for broker in (1, 2):
            self.start(Node(broker))
        for name in IDS:
            self.lead(name, rng.choice((1, 2)))

    def _coordinator_of(self, name: str) -> Node | None:
        return self.alive.get(self.leaders.get(name, -1))

    def map(self, name: str) -> Any:
        return self.cache.getClass().getField(name).get(self.cache)

    def start(self, node: Node) -> None:
        """Let a broker be alive at an address."""
        self.alive[node.id] = node
        self.map("nodes").put(node.id, self.java.make("common.Node", node.id, node.host, node.port))

    def end(self, broker: int) -> None:
        self.alive.pop(broker, None)
        self.map("nodes").remove(broker)

    def lead(self, name: str, broker: int | None) -> None:
        """Let a broker be the coordinator of an id. With -1 the partition has no leader, with None it does not exist."""
        index = IDS.index(name)
        if broker is None:
            self.leaders.pop(name, None)
            self.map("leaders").remove(index)
        else:
            self.leaders[name] = broker
            isr = self.made.oracle.jvm.java.util.ArrayList()
            self.map("leaders").put(index, self.java.make("metadata.LeaderAndIsr", broker, isr))

    # steps of both ----------------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        rng = self.rng
        name, producer_id, epoch = rng.choice(IDS), rng.choice((1, 2)), rng.randrange(3)
        partitions = rng.sample(PARTITIONS, rng.choice((1, 1, 2, 6)))
        support = rng.choice(list(TransactionSupport))
        question = Question(Calls(self.java, f"{MANAGER}$AppendCallback", None))
        self.questions.append(question)
        self.ours.add_or_verify(name, producer_id, epoch, partitions, support, question.got.append)
        keys = self.made.oracle.jvm.java.util.ArrayList([self.java.make("common.TopicPartition", *each) for each in partitions])
        named = getattr(self.supports, SUPPORTS[support])
        self.theirs.addOrVerifyTransaction(name, self.java.long(producer_id), self.java.short(epoch), keys, question.told.object, named)

    def take(self) -> None:
        """Let both build their requests."""
        ours = {_our_node(request): request for request in self.ours.take_requests()}
        theirs = {_node(get_field(each, "destination")): each for each in list(self.theirs.generateRequests().toArray())}
        assert ours.keys() == theirs.keys()
        for broker, request in sorted(ours.items()):
            asked = theirs[broker]
            data = get_field(asked, "request").build(self.java.short(5)).data()
            version = FIRST_BROKER_VERSION
            given = self.java.message_bytes(data, version)
            if self.is_ordered:
                assert request.message().encode(version) == given
            else:
                assert _sorted(request.message()) == _sorted(AddPartitionsToTxnRequest.decode(given, version))
            self.outstanding.append((request, asked))

    def answer(self) -> None:
        """Let a coordinator answer, or lose the request."""
        rng = self.rng
        if not self.outstanding:
            return
        request, asked = self.outstanding.pop(rng.randrange(len(self.outstanding)))
        choice = rng.random()
        given: AddPartitionsToTxnResponse | ApiError
        if choice < 0.15:
            given = ApiError(rng.choice(LOST))
        elif choice < 0.3:
            given = AddPartitionsToTxnResponse(error_code=rng.choice(CODES))
        else:
            given = AddPartitionsToTxnResponse(results_by_transaction=self.results(request))
        self.ours.on_answer(request, given)
        get_field(asked, "handler").onComplete(self.response(given))

    def results(self, request: VerificationRequest) -> list[AddPartitionsToTxnResult]:
        rng = self.rng
        found = []
        for transaction in request.message().transactions:
            if rng.random() < 0.05:
                continue  # its producers get no answer from either
            topics = [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(number, rng.choice((0, rng.choice(CODES)))) for number in topic.partitions],
                )
                for topic in transaction.topics
            ]
            found.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
        return found

    def response(self, given: AddPartitionsToTxnResponse | ApiError) -> Any:
        """Return the answer as Kafka's ClientResponse."""
        long = self.java.long
        keys = self.made.oracle.java_class(f"{KAFKA}common.protocol.ApiKeys")
        header = self.java.make("common.requests.RequestHeader", keys.ADD_PARTITIONS_TO_TXN, self.java.short(5), "me", 1)
        body = mismatch = None
        is_lost = is_late = False
        if isinstance(given, ApiError):
            is_late = given.name == "REQUEST_TIMED_OUT"
            is_lost = is_late or given.name == "NETWORK_EXCEPTION"
            if not is_lost:
                mismatch = self.java.make("common.errors.UnsupportedVersionException", "old")
        else:
            body = self.java.make("common.requests.AddPartitionsToTxnResponse", self.java.message(given, 5))
        return self.java.make("clients.ClientResponse", header, None, "1", long(0), long(0), is_lost, is_late, mismatch, None, body)

    def change(self) -> None:
        """Change a coordinator, or the address of a broker."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.6:
            self.lead(rng.choice(IDS), rng.choice((1, 1, 2, 2, 3, -1, None)))
        elif choice < 0.8:
            self.end(rng.choice((1, 2)))
        else:
            self.start(Node(rng.choice((1, 2)), rng.choice(("host", "other")), rng.choice((9092, 9093))))

    def their_metrics(self) -> tuple[int, int, float]:
        """How many partitions failed, the number of answers, and the sum of their times in ms."""
        return self.failures.count(), self.time.count(), self.time.sum()

    def compare_metrics(self) -> None:
        theirs = (now - before for now, before in zip(self.their_metrics(), self.metrics_before, strict=True))
        assert (self.ours.failure_count, self.times.count, self.times.sum) == tuple(theirs)

    def compare(self) -> None:
        """Compare what each producer was told."""
        for question in list(self.questions):
            theirs = [
                {TopicPartition(key.topic(), key.partition()): str(arguments[0].get(key).name()) for key in list(arguments[0].keySet())}
                for _, arguments in question.told.drain()
            ]
            assert question.got == theirs
            if theirs:
                self.questions.remove(question)
                self.seen.update(set(theirs[0].values()) or {"NONE"})


def _sorted(message: AddPartitionsToTxnRequest) -> list[object]:
    found: list[object] = []
    for each in message.transactions:
        topics = sorted((topic.name, sorted(topic.partitions)) for topic in each.topics)
        found.append((each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only, topics))
    return found


def _our_node(request: VerificationRequest) -> Node:
    return Node(request.broker.id, request.broker.host, request.broker.port)


def _node(node: Any) -> Node:
    return Node(node.id(), node.host(), node.port())


CODES: Final = [each.code for each in ERRORS if each.code] + [-2, 9999]


def _live(made: JavaTransactions, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    twins = Twins(made, rng)
    steps: list[Callable[[], None]] = [twins.ask] * 8 + [twins.take] * 3 + [twins.answer] * 4 + [twins.change]
    for _ in range(STEPS):
        rng.choice(steps)()
        twins.clock.now_ms += rng.choice((0, 0, 1, 7))
        twins.compare()
    twins.compare_metrics()
    return twins.seen


@pytest.mark.slow
def test_many_questions_and_answers(made: JavaTransactions, seed_count: int | None) -> None:
    """Both send the same requests, and tell each producer the same errors."""
    seen: Counter[str] = Counter()
    for seed in range(seed_count or 12):
        seen += _live(made, seed)
    assert {"NONE", "COORDINATOR_NOT_AVAILABLE", "INVALID_PRODUCER_EPOCH", "NETWORK_EXCEPTION", "INVALID_TXN_STATE"} <= set(seen)


@pytest.mark.slow
def test_every_error_code_of_a_partition_and_of_an_answer(made: JavaTransactions) -> None:
    """For each kind of client, the errors of partitions and of whole answers are told alike."""
    twins = Twins(made, random.Random(0))
    for name in IDS:
        twins.lead(name, 1)
    for support in TransactionSupport:
        twins.rng = random.Random(0)
        for is_whole in (False, True):
            question = Question(Calls(twins.java, f"{MANAGER}$AppendCallback", None))
            _ask(twins, support, question, 2 if is_whole else len(CODES))
            request, asked = twins.outstanding.pop()
            if is_whole:
                continue_with: list[Any] = [AddPartitionsToTxnResponse(error_code=code) for code in CODES]
            else:
                partitions = [AddPartitionsToTxnPartitionResult(index, code) for index, code in enumerate(CODES)]
                results = [AddPartitionsToTxnResult("t", [AddPartitionsToTxnTopicResult("orders", partitions)])]
                continue_with = [AddPartitionsToTxnResponse(results_by_transaction=results)]
            for given in continue_with:
                twins.ours.on_answer(request, given)
                get_field(asked, "handler").onComplete(twins.response(given))
            theirs = [
                {TopicPartition(key.topic(), key.partition()): str(told[0].get(key).name()) for key in list(told[0].keySet())}
                for _, told in question.told.drain()
            ]
            assert question.got == theirs
            assert len(theirs) == len(continue_with)


def _ask(twins: Twins, support: TransactionSupport, question: Question, count: int) -> None:
    """Ask both for so many partitions of one topic."""
    keys = [TopicPartition("orders", index) for index in range(count)]
    twins.ours.add_or_verify("t", 1, 0, keys, support, question.got.append)
    theirs = twins.made.oracle.jvm.java.util.ArrayList([twins.java.make("common.TopicPartition", *each) for each in keys])
    named = getattr(twins.supports, SUPPORTS[support])
    twins.theirs.addOrVerifyTransaction("t", twins.java.long(1), twins.java.short(0), theirs, question.told.object, named)
    twins.take()


@pytest.mark.slow
def test_what_each_version_supports(made: JavaTransactions) -> None:
    manager = made.oracle.java_class(MANAGER)
    for version in range(14):
        theirs = manager.produceRequestVersionToTransactionSupportedOperation(made.java.short(version)).name()
        assert SUPPORTS[support_of_produce(version)] == theirs
        theirs = manager.txnOffsetCommitRequestVersionToTransactionSupportedOperation(version).name()
        assert SUPPORTS[support_of_txn_offset_commit(version)] == theirs
