"""The transaction coordinator compared with Kafka's TransactionCoordinator: random requests, failing appends, markers, time and changes of
the leader.

Both must give the same answers, append the same bytes, ask brokers for the same markers, and describe each id alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.coordinators.transactions.config import TransactionConfig
from kops.coordinators.transactions.state import TransactionStateError
from kops.coordinators.transactions.state_manager import PartitionLoad
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import DescribeTransactionsResponse, ListTransactionsResponse, WriteTxnMarkersRequest
from kops.records import Batch, BytesSource, scan
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.java_transactions import JavaCoordinator, JavaTransactions
from tests.support.parts.groups.transacting import Append, Node, World, answer_of

NOW_MS: Final = 1_700_000_000_000
IDS: Final = ("t", "my-txn", "überweisung")
PARTITIONS: Final = [TopicPartition(topic, number) for topic in ("orders", "stock", "__consumer_offsets") for number in range(7)]
APPEND_ERRORS: Final = (
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
    "NOT_LEADER_OR_FOLLOWER",
    "KAFKA_STORAGE_ERROR",
    "MESSAGE_TOO_LARGE",
    "INVALID_PRODUCER_EPOCH",
)
MARKER_ERRORS: Final = (
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "UNSUPPORTED_VERSION",
    "INVALID_PRODUCER_EPOCH",
    "TRANSACTION_COORDINATOR_FENCED",
)
STATES: Final = ("Empty", "Ongoing", "CompleteCommit", "Nonsense")


class Twins:
    """Our coordinator and Kafka's, of one partition of the log, with one clock."""

    def __init__(self, made: JavaTransactions, rng: random.Random) -> None:
        self.rng = rng
        self.made, self.java = made, made.java
        self.clock = ManualClock(made.oracle, NOW_MS)
        version, two_phase = rng.choice([0, 1, 2, 2]), rng.random() < 0.2
        self.theirs = JavaCoordinator(made, self.clock, version=version, two_phase_commit=two_phase, max_batch=150)
        self.ours = World(TransactionConfig(two_phase_commit_enable=two_phase), version, NOW_MS)
        self.ours.log.is_parking, self.ours.log.max_size = True, 150
        self.errors = self.theirs.errors
        self.epoch = 0
        self.seen: Counter[str] = Counter()
        self.hosts: dict[int, Any] = {}
        self.waiting: list[tuple[Any, list[Any], Callable[[Any], Any]]] = []
        self.load: PartitionLoad | None = None
        self.data = b""
        for partition in PARTITIONS:
            self.lead(partition, Node(1))
        self.move()

    # steps of both ------------------------------------------------------------------------------------------------------------

    def both(self, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        """Call both. Either both succeed or both fail."""
        failure: list[str] = []
        try:
            theirs()
        except Py4JJavaError as error:
            failure.append(str(error.java_exception.getClass().getSimpleName()))
        if failure:
            with pytest.raises((TransactionStateError, ApiError)):  # an ApiError where a version can't write a field
                ours()
        else:
            ours()

    def compare(self, told: Any, ours: list[Any], read: Callable[[Any], Any]) -> None:
        """Compare what the callbacks got since the last comparison."""
        theirs = [read(one) for one in list(told.getClass().getField("told").get(told))]
        assert ours == theirs
        self.seen.update(f"{one}"[:60] for one in ours)

    def named(self, error: Any) -> str:
        return str(error.name())

    def init(self) -> None:
        name, timeout_ms = self.rng.choice([*IDS, *IDS, *IDS, "", None]), self.rng.choice([1000, 60_000, 60_000, 900_000, 0, 900_001])
        expected = None if name is None else self.rng.choice([None, None, self.producer(name)])
        two_phase, keeps = self.rng.random() < 0.1, self.rng.random() < 0.03
        wanted = None
        if expected is not None:
            wanted = self.java.make("common.utils.ProducerIdAndEpoch", self.java.long(expected[0]), self.java.short(expected[1]))
        told = self.theirs.told()
        got: list[Any] = []
        self.both(
            lambda: self.ours.coordinator.init_producer_id(
                name, timeout_ms, expected, got.append, enables_two_phase_commit=two_phase, keeps_prepared=keeps
            ),
            lambda: self.theirs.coordinator.handleInitProducerId(
                name, timeout_ms, two_phase, keeps, self.theirs.option(wanted), told, self.theirs.local
            ),
        )
        self.waiting.append((told, got, lambda one: (one.producerId(), one.producerEpoch(), self.named(one.error()))))

    def producer(self, name: str) -> tuple[int, int]:
        """Draw the producer of an id: the current one, a former one, or one that never existed."""
        try:
            known = self.ours.manager.get(name)
        except ApiError:
            known = None
        if known is None:
            return 1000, 0
        metadata = known.metadata
        producer_id, epoch = metadata.producer_id, metadata.producer_epoch
        return self.rng.choice(
            [(producer_id, max(epoch, 0))] * 8
            + [(producer_id, max(epoch - 1, 0)), (producer_id, epoch + 1 if epoch < 2**15 - 1 else epoch), (producer_id + 1, max(epoch, 0))]
            + [(max(metadata.previous_producer_id, 0), 2**15 - 2)]
        )

    def key(self, partition: TopicPartition) -> Any:
        return self.java.make("common.TopicPartition", *partition)

    def add(self) -> None:
        name = self.rng.choice([*IDS, ""]) if self.rng.random() < 0.1 else self.rng.choice(IDS)
        partitions = self.rng.sample(PARTITIONS, self.rng.choice([1, 1, 2, 5, 15]))
        producer_id, epoch = self.producer(name)
        version = self.rng.choice([0, 2])
        keys = self.made.oracle.jvm.java.util.HashSet()
        for partition in partitions:
            keys.add(self.key(partition))
        told = self.theirs.told()
        got: list[Any] = []
        if self.rng.random() < 0.25:
            errors = self.ours.coordinator.verify_partitions(name, producer_id, epoch, partitions)
            producer = self.java.long(producer_id), self.java.short(epoch)
            self.theirs.coordinator.handleVerifyPartitionsInTransaction(name, *producer, keys, told)
            (result,) = list(told.getClass().getField("told").get(told))
            theirs = {
                TopicPartition(topic.name(), each.partitionIndex()): by_code(each.partitionErrorCode()).name
                for topic in list(result.topicResults().toArray())
                for each in list(topic.resultsByPartition().toArray())
            }
            assert errors == theirs
            self.seen.update(errors.values())
            return
        self.both(
            lambda: self.ours.coordinator.add_partitions(name, producer_id, epoch, partitions, version, got.append),
            lambda: self.theirs.coordinator.handleAddPartitionsToTransaction(
                name, self.java.long(producer_id), self.java.short(epoch), keys, told, self.tv(version), self.theirs.local
            ),
        )
        self.waiting.append((told, got, self.named))

    def tv(self, version: int) -> Any:
        return getattr(self.theirs.versions, f"TV_{version}")

    def end(self) -> None:
        name, is_commit, version = self.rng.choice([*IDS, *IDS, *IDS, ""]), self.rng.random() < 0.5, self.rng.choice([0, 2, 2])
        producer_id, epoch = self.producer(name)
        result = getattr(self.made.oracle.java_class(f"{KAFKA}common.requests.TransactionResult"), "COMMIT" if is_commit else "ABORT")
        told = self.theirs.told()
        got: list[Any] = []
        self.both(
            lambda: self.ours.coordinator.end_transaction(
                name, producer_id, epoch, version, lambda *answer: got.append(answer), is_commit=is_commit
            ),
            lambda: self.theirs.coordinator.handleEndTransaction(
                name, self.java.long(producer_id), self.java.short(epoch), result, self.tv(version), told, self.theirs.local
            ),
        )
        self.waiting.append((told, got, lambda one: (self.named(one[0]), one[1], one[2])))

    # the log --------------------------------------------------------------------------------------------------------------------

    def appends(self) -> list[list[Any]]:
        return [list(one) for one in list(self.theirs.replicas.getClass().getField("appends").get(self.theirs.replicas))]

    def end_append(self) -> None:
        """End the oldest waiting append."""
        if not self.ours.log.waiting:
            return
        error = "NONE" if self.rng.random() < 0.85 else self.rng.choice(APPEND_ERRORS)
        self.both(lambda: self.ours.log.end_next(error), lambda: self.theirs.replicas.end(getattr(self.errors, error)))

    # time, leaders, changes -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        self.clock.now_ms += self.rng.choice([1, 500, 30_000, 60_001, 604_800_000 if self.rng.random() < 0.3 else 5])
        self.ours.now_ms = self.clock.now_ms

    def abort_timed_out(self) -> None:
        told = self.theirs.told()
        got: list[Any] = []
        told.give()
        # Kafka takes the ids in the order of a ConcurrentHashMap. With a single overdue id, the order does not matter.
        if len(self.ours.manager.timed_out()) > 1:
            return
        self.both(
            lambda: self.ours.coordinator.abort_timed_out(lambda _which: lambda *answer: got.append(answer)),
            lambda: self.theirs.coordinator.abortTimedOutTransactions(told),
        )
        self.waiting.append((told, got, lambda one: (self.named(one[0]), one[1], one[2])))

    def expire(self) -> None:
        self.both(self.ours.manager.remove_expired, self.theirs.manager.removeExpiredTransactionalIds)

    def lead(self, partition: TopicPartition, node: Node | None) -> None:
        jvm = self.made.oracle.jvm
        if node is None:
            leader = jvm.java.util.Optional.empty()
        elif node.id < 0:
            leader = jvm.java.util.Optional.of(self.made.oracle.java_class(f"{KAFKA}common.Node").noNode())
        else:
            leader = jvm.java.util.Optional.of(self.java.make("common.Node", node.id, node.host, node.port))
        self.theirs.cache.getClass().getField("leaders").get(self.theirs.cache).put(f"{partition.topic}-{partition.partition}", leader)
        self.ours.leaders[partition] = node

    def change_leader(self) -> None:
        self.lead(self.rng.choice(PARTITIONS), self.rng.choice([Node(1), Node(2), Node(3), Node(-1), None]))

    def fail_ids(self) -> None:
        """Take the producer ids away, or bring them back."""
        is_out = self.ours.next_producer_id < 0
        value = 5000 + 100 * self.epoch + self.rng.randrange(90) if is_out else -1
        self.ours.next_producer_id = value
        self.theirs.ids.setNext(self.java.long(value))

    def exhaust(self) -> None:
        """Use up almost all epochs of an id."""
        name = self.rng.choice(IDS)
        try:
            known = self.ours.manager.get(name)
        except ApiError:
            return
        if known is None or known.metadata.producer_epoch < 0 or known.metadata.pending is not None:
            return
        epoch = 2**15 - self.rng.choice([2, 3])
        known.metadata.producer_epoch = epoch
        theirs = self.theirs.manager.getTransactionState(name).toOption().get().get()
        theirs.transactionMetadata().setProducerEpoch(self.java.short(epoch))

    def markers(self) -> None:
        """Let brokers answer the requests for markers, perhaps only when this is no longer the coordinator."""
        ours = {request.broker.id: request for request in self.ours.markers.take_requests()}
        theirs = {get_field(each, "destination").id(): each for each in list(self.theirs.markers.generateRequests().toArray())}
        assert ours.keys() == theirs.keys()
        if self.rng.random() < 0.1:
            self.move()
        for broker_id in sorted(ours):
            request, asked = ours[broker_id], theirs[broker_id]
            data = get_field(asked, "request").build().data()
            message = WriteTxnMarkersRequest.decode(self.java.message_bytes(data, 2), 2)
            assert _marks(message) == _marks(request.message())
            error = "NONE" if self.rng.random() < 0.7 else self.rng.choice(MARKER_ERRORS)
            is_lost = self.rng.random() < 0.1
            answer = answer_of(request, error)
            body = None if is_lost else self.theirs.response(answer, 2)
            header = self.java.make(
                "common.requests.RequestHeader",
                self.made.oracle.java_class(f"{KAFKA}common.protocol.ApiKeys").WRITE_TXN_MARKERS,
                self.java.short(2),
                "me",
                1,
            )
            response = self.java.make(
                "clients.ClientResponse", header, None, "1", self.java.long(0), self.java.long(0), is_lost, None, None, body
            )
            self.both(
                partial(self.ours.markers.on_answer, request, None if is_lost else answer),
                partial(get_field(asked, "handler").onComplete, response),
            )

    def move(self) -> None:
        """Give the partition a new leader, which reads what was written, or will do so later."""
        self.epoch += 2
        if self.load is not None or (self.epoch > 2 and self.rng.random() < 0.5):
            self.resign(self.epoch - 1)
        self.data = b"".join(batch for _, batch in self.ours.log.written)
        buffer = self.made.oracle.java_class("java.nio.ByteBuffer").wrap(self.data)
        found = self.made.new(self.made.log)
        found.setRecords(self.made.oracle.java_class(f"{KAFKA}common.record.internal.MemoryRecords").readableRecords(buffer))
        self.theirs.replicas.setLog(found)
        self.load = self.ours.coordinator.begin_load(0, self.epoch)
        self.theirs.coordinator.onElection(0, self.epoch)
        if self.rng.random() < 0.7:
            self.end_load()

    def end_load(self) -> None:
        """Let the leader finish reading."""
        load, self.load = self.load, None
        if load is None:
            return
        for batch in scan(BytesSource(self.data)):
            assert isinstance(batch, Batch)
            for record in batch.records():
                assert record.key is not None
                load.read(record.key, record.value)
        self.ours.coordinator.end_load(load)
        self.theirs.scheduler.run_due()

    def step_down(self) -> None:
        """Take the partition away, or even its replica. Nobody leads it until it moves."""
        self.epoch += 1
        self.resign(self.epoch if self.rng.random() < 0.7 else None)

    def resign(self, epoch: int | None) -> None:
        self.ours.coordinator.resign(0, epoch)
        self.theirs.coordinator.onResignation(0, self.theirs.option(epoch))
        if self.load is not None:
            self.end_load()

    def shut_down(self) -> None:
        """Stop answering questions."""
        self.ours.coordinator.is_active = False
        self.theirs.set_active(False)
        self.list()
        self.check()

    # comparing --------------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the answers so far, the appends, and the descriptions of the ids."""
        for told, got, read in self.waiting:
            self.compare(told, [tuple(one) if isinstance(one, tuple) else one for one in got], read)
        self.waiting = [each for each in self.waiting if not each[1]]
        theirs = self.appends()
        # Kafka goes through all ids in the order of a ConcurrentHashMap. kops does not keep that order.
        wanted = [(one[0], canonical(bytes(one[1]))) for one in theirs]
        waiting = self.ours.log.waiting
        found = [(each.timeout_ms, canonical(each.batch)) for each in waiting]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
        if found != wanted:
            by_what: dict[Any, list[Append]] = {}
            for what, each in zip(found, waiting, strict=True):
                by_what.setdefault(what, []).append(each)
            waiting[:] = [by_what[what].pop(0) for what in wanted]
        for name in (*IDS, "absent", ""):
            answer = DescribeTransactionsResponse(transaction_states=[self.ours.coordinator.describe(name)])
            described = self.java.make("common.message.DescribeTransactionsResponseData")
            described.transactionStates().add(self.theirs.coordinator.handleDescribeTransactions(name))
            assert answer.encode(0) == self.java.message_bytes(described, 0), name

    def list(self) -> None:
        """List transactions with filters. The filter by producer is left out, because its Longs do not get through to Scala from here."""
        states = set(self.rng.sample(STATES, self.rng.choice([0, 1, 2])))
        duration_ms, pattern = self.rng.choice([-1, -1, 0, 1000]), self.rng.choice([None, "", "t", ".*t.*", "my-[a-z]+"])
        empty = self.made.oracle.jvm.scala.collection.immutable.HashSet()
        wanted = empty
        for state in sorted(states):
            wanted = wanted.incl(state)
        theirs = self.theirs.coordinator.handleListTransactions(empty, wanted, self.java.long(duration_ms), pattern)
        told = ListTransactionsResponse.decode(self.java.message_bytes(theirs, 2), 2)
        ours = self.ours.coordinator.list_transactions((), sorted(states), duration_ms, pattern)
        assert ours.encode(2) == told.encode(2)


def canonical(data: bytes) -> Any:
    """Return the bytes of a batch, or for several tombstones its size and its records in any order."""
    (batch,) = scan(BytesSource(data))
    assert isinstance(batch, Batch)
    records = batch.records()
    return data if len(records) == 1 else (len(data), frozenset((record.key, record.value, record.timestamp) for record in records))


def _marks(request: WriteTxnMarkersRequest) -> list[Any]:
    return sorted(
        (
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
            sorted((topic.name, number) for topic in marker.topics for number in topic.partition_indexes),
        )
        for marker in request.markers
    )


def live(made: JavaTransactions, seed: int, steps: int) -> Counter[str]:
    """Run one life of both, and return how often each answer occurred."""
    rng = random.Random(seed)
    twins = Twins(made, rng)
    kinds = [twins.init] * 8 + [twins.add] * 6 + [twins.end] * 6 + [twins.end_append] * 14 + [twins.markers] * 5
    kinds += [twins.advance, twins.abort_timed_out, twins.expire, twins.change_leader, twins.exhaust, twins.list]
    kinds += [twins.move, twins.end_load, twins.end_load, twins.step_down] if rng.random() < 0.5 else []
    kinds += [twins.fail_ids] if rng.random() < 0.3 else []
    for number in range(steps):
        kind = rng.choice(kinds)
        try:
            kind()
            twins.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}, {kind.__name__}: {error}") from error
    twins.shut_down()
    return twins.seen


@pytest.mark.smoke
def test_random_requests(made: JavaTransactions) -> None:
    seen: Counter[str] = Counter()
    for seed in range(2):
        seen += live(made, seed, 45)
    for error in ("CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING", "NONE"):
        assert any(error in what for what in seen), (error, seen)


@pytest.mark.slow
def test_many_random_requests(made: JavaTransactions, seed_count: int | None) -> None:
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 3)):
        seen += live(made, seed, 200)
    for error in ("INVALID_TXN_STATE", "PRODUCER_FENCED"):
        assert any(error in what for what in seen), error
