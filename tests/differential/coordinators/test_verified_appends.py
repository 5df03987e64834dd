"""What Produce does about a transaction before it appends, compared with Kafka's ReplicaManager.handleProduceAppend and its
AddPartitionsToTxnManager: which partitions are verified or added, retries while the last transaction ends, and the errors of the producer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest
from py4j.java_gateway import get_field

from kops.broker.transactions.verified_appends import Producer, Verified, verify_for_produce
from kops.coordinators.transactions.support import TransactionSupport, produce_error
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kops.records import build_batch
from kops.records.log_offsets import TopicPartition
from kops.records.record import Record
from kops.storage.producers.verification import NO_GUARD, VerificationGuard
from tests.differential.coordinators.test_verification import CODES, PARTITIONS, SUPPORTS, Twins
from tests.support.kafka.manual_jvm import ManualScheduler
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.java_transactions import JavaTransactions

PARTITION_RESPONSE: Final = f"{KAFKA}common.requests.ProduceResponse.PartitionResponse"
GUARD: Final = f"{KAFKA}storage.internals.log.VerificationGuard"
BACKOFF_MS: Final = 20
STEPS: Final = 50
LOG_ERRORS: Final = ("NOT_LEADER_OR_FOLLOWER", "INVALID_PRODUCER_EPOCH", "KAFKA_STORAGE_ERROR", "UNKNOWN_SERVER_ERROR")
ABORTABLE: Final = by_name("TRANSACTION_ABORTABLE").code
BUSY: Final = by_name("CONCURRENT_TRANSACTIONS").code
_REPLICAS: Final = (
    "public java.util.HashMap partitions; public java.util.ArrayList appended;",
    "public void start() { partitions = new java.util.HashMap(); appended = new java.util.ArrayList(); }",
    f"""public kafka.cluster.Partition getPartitionOrException({KAFKA}common.TopicPartition key) {{
        Object found = partitions.get(key);
        if (found instanceof RuntimeException) throw (RuntimeException) found;
        return (kafka.cluster.Partition) found;
    }}""",
    f"""public void appendRecords(long timeoutMs, short acks, boolean internal, {KAFKA}storage.internals.log.AppendOrigin origin,
            scala.collection.Map entries, scala.Function1 done, scala.Function1 stats, {KAFKA}server.common.RequestLocal local,
            scala.collection.Map guards, short version) {{
        appended.add(scala.jdk.javaapi.CollectionConverters.asJava(guards));
        java.util.HashMap responses = new java.util.HashMap();
        scala.collection.Iterator keys = entries.keysIterator();
        while (keys.hasNext()) responses.put(keys.next(), new {PARTITION_RESPONSE}({KAFKA}common.protocol.Errors.NONE));
        done.apply(responses);
    }}""",
    "public java.util.ArrayList takeAppended() { java.util.ArrayList old = appended; appended = new java.util.ArrayList(); return old; }",
)
_PARTITION: Final = (
    "public Object guard;",
    "public void set(Object made) { guard = made; }",
    f"""public {GUARD} maybeStartTransactionVerification(long id, int sequence, short epoch, boolean bump) {{
        if (guard instanceof RuntimeException) throw (RuntimeException) guard;
        return ({GUARD}) guard;
    }}""",
)
Outcome = tuple[dict[TopicPartition, tuple[str, str | None]], set[TopicPartition]]
"""The error and its text for each refused partition, and the partitions that are appended with a guard."""


class Log:
    """A leader's log that gives a guard, or fails."""

    def __init__(self, guard: VerificationGuard | ApiError) -> None:
        self._guard = guard

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        if isinstance(self._guard, ApiError):
            raise self._guard
        return self._guard


class Both:
    """Produce requests of both, over the questions of `Twins`."""

    def __init__(self, made: JavaTransactions, rng: random.Random, *, is_enabled: bool) -> None:
        self.made, self.java, self.rng = made, made.java, rng
        self.questions = Twins(made, rng)
        self.questions.is_ordered = False
        oracle = made.oracle
        self.scheduler = ManualScheduler(oracle, self.questions.clock)
        self.is_enabled = is_enabled
        self.later: list[tuple[int, Callable[[], object]]] = []
        config = SimpleNamespace(
            add_partitions_retry_backoff_ms=BACKOFF_MS, add_partitions_retry_backoff_max_ms=100, request_timeout_ms=30_000
        )
        self.service = SimpleNamespace(
            verifications=self.questions.ours,
            config=config,
            manager=SimpleNamespace(now_ms=lambda: self.questions.clock.now_ms),
            call_later=self._call_later,
        )
        self.theirs = made.new(made.define("kafka.server.KopsVerifying", "kafka.server.ReplicaManager", _REPLICAS))
        self.theirs.start()
        self._partition = made.define("kafka.cluster.KopsVerified", "kafka.cluster.Partition", _PARTITION)
        properties = {
            "node.id": 1,
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": "localhost:1",
            "controller.listener.names": "C",
            "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "transaction.partition.verification.enable": str(is_enabled).lower(),
        }
        broker = oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties(properties))
        self._set("config", broker)
        self._set("time", self.questions.clock.time)
        self._set("scheduler", self.scheduler.scheduler)
        self._set("addPartitionsToTxnConfig", self.java.make("coordinator.transaction.AddPartitionsToTxnConfig", broker))
        self._set("addPartitionsToTxnManager", oracle.java_class("scala.Option").apply(self.questions.theirs))
        oracle.java_class("kafka.server.KafkaRequestHandler").setBypassThreadCheck(True)
        self.logs: dict[TopicPartition, Log | None] = {}
        self.waiting: list[tuple[list[Outcome], Any]] = []
        self.seen: Counter[str] = Counter()

    def _call_later(self, delay_ms: int, run: Callable[[], object]) -> None:
        """Wait for a retry as long as Kafka does. kops counts the time that the coordinator took as a part of the pause."""
        assert 0 <= delay_ms <= BACKOFF_MS
        self.later.append((self.questions.clock.now_ms + BACKOFF_MS, run))

    def _set(self, name: str, value: Any) -> None:
        """Set a field that only the constructor of ReplicaManager sets."""
        field = self.theirs.getClass().getSuperclass().getDeclaredField(name)
        field.setAccessible(True)
        field.set(self.theirs, value)

    def get_partition_or_raise(self, key: TopicPartition) -> Any:
        log = self.logs[key]
        return SimpleNamespace(leader_log=log)

    # steps of both ----------------------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        """Send a Produce request for some partitions."""
        rng, oracle = self.rng, self.made.oracle
        keys = rng.sample(PARTITIONS, rng.choice((1, 2, 4)))
        self._draw_logs(keys)
        support = rng.choice(list(TransactionSupport))
        name, producer_id, epoch = rng.choice(("t", "u", "v")), rng.choice((1, 2)), rng.randrange(2)
        got: list[Outcome] = []

        def done(verified: Verified) -> None:
            refused = {key: produce_error(error, support) for key, error in verified.errors.items()}
            got.append((refused, set(verified.guards)))

        transactions: Any = SimpleNamespace(service=self.service)
        replicas: Any = self
        sequences = dict.fromkeys(keys, 5)
        producer = Producer(name, producer_id, epoch)
        verify_for_produce(transactions, replicas, producer, sequences, support, done, is_verification_enabled=self.is_enabled)
        records = build_batch(
            [Record(0, 1, "CreateTime", None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=5, transactional=True
        )
        entries = oracle.jvm.java.util.LinkedHashMap()
        memory = oracle.java_class(f"{KAFKA}common.record.internal.MemoryRecords")
        zero = oracle.java_class(f"{KAFKA}common.Uuid").ZERO_UUID
        for key in keys:
            part = self.java.make("common.TopicIdPartition", zero, self.java.make("common.TopicPartition", *key))
            entries.put(part, memory.readableRecords(self.java.wrap(records)))
        told, stats = self.made.plain(self.made.told), self.made.plain(self.made.told)
        converters = oracle.java_class("scala.jdk.javaapi.CollectionConverters")
        local = oracle.java_class(f"{KAFKA}server.common.RequestLocal").noCaching()
        operation = getattr(self.questions.supports, SUPPORTS[support])
        self.theirs.handleProduceAppend(
            self.java.long(1000), self.java.short(-1), False, name, converters.asScala(entries), told, stats, local, operation
        )
        self.waiting.append((got, told))

    def _draw_logs(self, keys: list[TopicPartition]) -> None:
        rng = self.rng
        for key in keys:
            partition = self.made.new(self._partition)
            guard: VerificationGuard | ApiError = VerificationGuard()
            theirs: Any = self.java.make("storage.internals.log.VerificationGuard")
            choice = rng.random()
            if choice < 0.15:
                guard, theirs = NO_GUARD, self.made.oracle.java_class(GUARD).SENTINEL
            elif choice < 0.25:
                guard = ApiError(rng.choice(LOG_ERRORS))
                theirs = self.questions.made.oracle.java_class(f"{KAFKA}common.protocol.Errors").valueOf(guard.name).exception()
            partition.set(theirs)
            self.logs[key] = Log(guard)
            partitions = self.theirs.getClass().getField("partitions").get(self.theirs)
            partitions.put(self.java.make("common.TopicPartition", *key), partition)

    def answer(self) -> None:
        """Let all coordinators answer what they are asked."""
        rng, questions = self.rng, self.questions
        questions.take()
        while questions.outstanding:
            request, asked = questions.outstanding.pop()
            results = []
            for transaction in request.message().transactions:
                is_busy = rng.random() < (0.97 if transaction.transactional_id == "t" else 0.3)
                topics = []
                for topic in transaction.topics:
                    codes = [BUSY if is_busy else rng.choice((0, ABORTABLE, rng.choice(CODES))) for _ in topic.partitions]
                    parts = [AddPartitionsToTxnPartitionResult(*each) for each in zip(topic.partitions, codes, strict=True)]
                    topics.append(AddPartitionsToTxnTopicResult(topic.name, parts))
                results.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
            given: AddPartitionsToTxnResponse | ApiError = AddPartitionsToTxnResponse(results_by_transaction=results)
            if rng.random() < 0.1:
                given = ApiError(rng.choice(("NETWORK_EXCEPTION", "UNSUPPORTED_VERSION")))
            questions.ours.on_answer(request, given)
            get_field(asked, "handler").onComplete(questions.response(given))

    def retry(self) -> None:
        """Move the clock to the next retry, and let both retry."""
        self.scheduler.collect()
        if not self.later:
            return
        due_ms = min(each for each, _ in self.later)
        self.questions.clock.now_ms = max(due_ms, self.questions.clock.now_ms)
        due = [run for at_ms, run in self.later if at_ms <= due_ms]
        self.later = [each for each in self.later if each[0] > due_ms]
        for run in due:
            run()
        assert self.scheduler.run_due() == len(due)
        self.seen["retries"] += len(due)

    def compare(self) -> None:
        appended = [{_key(each) for each in list(guards.keySet())} for guards in list(self.theirs.takeAppended())]
        ours_appended = []
        for got, told in list(self.waiting):
            theirs = list(told.getClass().getField("told").get(told))
            assert len(got) == len(theirs)
            if not got:
                continue
            self.waiting.remove((got, told))
            refused, guarded = got[0]
            ours_appended.append(guarded)
            assert refused == self._refused(theirs[0])
            self.seen.update(error for error, _ in refused.values())
            self.seen["done"] += 1
        assert sorted(map(sorted, ours_appended)) == sorted(map(sorted, appended))

    def _refused(self, responses: Any) -> dict[TopicPartition, tuple[str, str | None]]:
        found = self.made.oracle.java_class("scala.jdk.javaapi.CollectionConverters").asJava(responses)
        given = {_key(each.topicPartition()): found.get(each) for each in list(found.keySet())}
        return {
            key: (str(get_field(each, "error").name()), get_field(each, "errorMessage"))
            for key, each in given.items()
            if get_field(each, "error").name() != "NONE"
        }


def _key(key: Any) -> TopicPartition:
    return TopicPartition(key.topic(), key.partition())


@pytest.mark.slow
def test_many_produce_requests(made: JavaTransactions, seed_count: int | None) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seed_count or 24):
        rng = random.Random(seed)
        both = Both(made, rng, is_enabled=seed % 4 != 0)
        steps = [both.produce] * 2 + [both.answer] * 6 + [both.retry] * 6 + [both.questions.change]
        for _ in range(STEPS):
            rng.choice(steps)()
            both.compare()
        seen += both.seen
    assert {"NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE", "NOT_LEADER_OR_FOLLOWER"} <= set(seen), seen
    assert min(seen["retries"], seen["done"]) > 10, seen
