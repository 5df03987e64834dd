"""The state that coordinators hold at one time, and checks after another broker or another implementation continues with it.

flight = InFlight(oracle, cluster.bootstrap)
flight.open("first")        # groups with members, transactions of every kind
...                         # coordinators move, or all nodes stop and others start on their directories
flight.finish()             # members go on without a rebalance; producers commit, abort, are fenced
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kops.client.coordinators.transactions import TransactionDescription, describe_transactions
from kops.cluster.questions import client_of
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_consumers import ShareConsumer, configure_group
from tests.support.kafka.programs.share_consumers import until as until_taken
from tests.support.nodes.librdkafka import admin, values_to_end
from tests.support.nodes.soaks.soaking import may_be_asked_again
from tests.support.nodes.soaks.streams_in_flight import GROUP as STREAMERS
from tests.support.nodes.soaks.streams_in_flight import SETTINGS as STREAMS_SETTINGS
from tests.support.nodes.soaks.streams_in_flight import StreamsInFlight
from tests.support.patience import until

EVENTS = "events"
TASKS = "tasks"
"""The topic that the share group reads."""
LEDGER = "ledger"
PROTOCOLS = ("classic", "consumer")
COPIERS = "copiers"
"""A group without members. Its offsets are committed in transactions."""
WAIT_S = 60
EACH_TIME = 20
SESSION_MS = 60_000
"""Longer than it takes to start JVMs on a loaded machine, so no member or producer expires."""
TRANSACTION_MS = 600_000
COORDINATORS = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "2",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "2",
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_initial_rebalance_delay_ms": "0",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_heartbeat_interval_ms": "500",
    "group_share_min_heartbeat_interval_ms": "500",
    "group_share_assignment_interval_ms": "0",
    "group_streams_session_timeout_ms": str(SESSION_MS),
    **STREAMS_SETTINGS,
}
"""Settings of the nodes."""


class Member(threading.Thread):
    """A member of a group that reads `events` and commits what it has read. `assignments` counts its rebalances."""

    def __init__(self, bootstrap: str, group: str, number: int) -> None:
        super().__init__(daemon=True, name=f"{group}-{number}")
        self.seen: list[bytes] = []
        self.assignments = 0
        self.partitions = 0
        self._ending = threading.Event()
        own = {"session.timeout.ms": SESSION_MS} if group == "classic" else {"group.protocol": group}
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0, **own}
        self._consumer = Consumer({**settings, "auto.commit.interval.ms": 100, "reconnect.backoff.max.ms": 500})

    def run(self) -> None:
        self._consumer.subscribe([EVENTS], on_assign=self._assigned, on_revoke=self._revoked)
        while not self._ending.is_set():
            self.seen += [one.value() or b"" for one in self._consumer.consume(100, 0.1) if one.error() is None]
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1  # the client takes them by itself
        self.partitions += len(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions -= len(partitions)

    def end(self) -> None:
        """Commit and leave."""
        self._ending.set()
        self.join(WAIT_S)
        assert not self.is_alive()


class InFlight:
    """Groups and transactions of one cluster. The topics `events` (two partitions), `ledger` and `tasks` (one) must exist."""

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.java = JavaProducer(oracle, bootstrap)
        self.sharers = Sharers(oracle, bootstrap)
        self.streams = StreamsInFlight(bootstrap, EVENTS)
        self.good, self.bad, self.preparing = (self.producer(name) for name in ("good", "bad", "preparing"))
        self.zombie: Producer | None = None
        self.left: Producer | None = None
        self.successor = self.producer("fenced")
        self.written: list[bytes] = []
        self.committed: list[str] = []
        self.position = 0
        self.mark = ""
        self.stable = 0
        self.members = [Member(bootstrap, group, number) for group in PROTOCOLS for number in range(2)]
        for member in self.members:
            member.start()
        until(lambda: all(member.partitions == 1 for member in self.members), told=lambda: [one.partitions for one in self.members])
        self._assignments = [member.assignments for member in self.members]

    def producer(self, name: str) -> Producer:
        """Return a transactional producer that is ready. It fences the one before it."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
        made = Producer({**settings, "log_level": 0, "reconnect.backoff.max.ms": 500})
        made.init_transactions(WAIT_S)
        return made

    def open(self, mark: str) -> None:
        """Let members read and commit, leave transactions open, and fence one producer."""
        self.mark = mark
        self.check_groups()
        self.sharers.take(mark)
        self.streams.open()
        self.stable = self.end_offset(IsolationLevel.READ_COMMITTED)
        self.position += 1
        self._write(self.good, "good")
        self._write(self.bad, "bad")
        self.java.begin(f"{mark}-java", self.position)
        self.left = self.producer("left")
        self._write(self.left, "left")
        self.zombie = self.successor
        self._write(self.zombie, "zombie")
        self.successor = self.producer("fenced")
        self.check_held()

    def prepare(self, topic: str, take_away: Callable[[], None]) -> None:
        """Prepare a transaction to commit, but remove the partition of `topic` in between, so that no marker can be written to it."""
        self.preparing.begin_transaction()
        for name in (topic, LEDGER):
            self.preparing.produce(name, f"{self.mark}-prepared".encode(), partition=0)
        assert self.preparing.flush(WAIT_S) == 0
        take_away()
        self.preparing.commit_transaction(WAIT_S)
        self.committed.append(f"{self.mark}-prepared")
        state = self.state("preparing")
        assert state.startswith("PrepareCommit"), state

    def check_held(self) -> None:
        """Check that readers of committed records reach the first open transaction and no further. With a new leader, they may reach it a
        little later.
        """

        def is_reached() -> bool:
            found = self.end_offset(IsolationLevel.READ_COMMITTED)
            assert found <= self.stable, f"readers come to {found}, but a transaction is open at {self.stable}"
            return found == self.stable

        until(is_reached, told=lambda: f"readers do not come to {self.stable}")
        until(lambda: self.end_offset(IsolationLevel.READ_UNCOMMITTED) > self.stable, told=lambda: "the open transactions are gone")

    def finish(self) -> None:
        """Check that all transactions end as they should."""
        self.check_held()
        self.good.commit_transaction(WAIT_S)
        self.bad.abort_transaction(WAIT_S)
        self.java.commit()
        assert self.zombie is not None
        try:
            self.zombie.commit_transaction(WAIT_S)
        except KafkaException as error:
            assert error.args[0].fatal(), error
        else:
            raise AssertionError("a fenced producer has committed")
        # The producer's next life ends what it has left.
        assert self.left is not None
        self.left = self.producer("left")
        self._write(self.successor, "successor")
        self.successor.commit_transaction(WAIT_S)
        self.committed += [f"{self.mark}-{name}" for name in ("good", "java", "successor")]
        until(lambda: self._values() == sorted(self.committed), told=lambda: f"{self._values()}, not {sorted(self.committed)}")
        ends = [self.end_offset(level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)]
        assert ends[0] == ends[1]
        assert self.offsets(COPIERS)[0] == self.position
        self.sharers.finish()
        self.streams.finish()
        self.check_groups()

    def check_groups(self) -> None:
        """Write, and wait until both groups have read it.

        No record is read twice, and no member gets other partitions.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(EACH_TIME):
            self.written.append(f"{self.mark}-{len(self.written)}".encode())
            producer.produce(EVENTS, self.written[-1], partition=number % 2)
        assert producer.flush(WAIT_S) == 0
        for group in PROTOCOLS:
            members = [one for one in self.members if one.name.startswith(group)]
            until(lambda: sum(len(one.seen) for one in members) >= len(self.written), told=lambda: self._missing(members))  # noqa: B023
            assert Counter(value for one in members for value in one.seen) == Counter(self.written), group
        assert [member.assignments for member in self.members] == self._assignments, "there was a rebalance"

    def end(self) -> None:
        """Let the members leave, and check that each group's offsets are the ends of the partitions."""
        for member in self.members:
            member.end()
        wanted = len(self.written) // 2
        for group in PROTOCOLS:
            assert self.offsets(group) == [wanted, wanted], group
        position = self.streams.end()
        assert self.offsets(STREAMERS) == [position, position]
        self.java.close()

    def offsets(self, group: str) -> list[int]:
        """Return the offsets that a group has committed."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            return [one.offset for one in consumer.committed([TopicPartition(EVENTS, number) for number in range(2)], WAIT_S)]
        finally:
            consumer.close()

    def state(self, name: str) -> str:
        """Return the state of a transactional id, and its epoch."""
        with client_of(self.bootstrap, timeout_ms=30_000) as client:
            found = describe_transactions(client, [name])[name]
        assert isinstance(found, TransactionDescription), found
        return f"{found.state} {found.producer_epoch}"

    def end_offset(self, level: IsolationLevel, topic: str = LEDGER) -> int:
        """Return the end offset for readers with an isolation level, as soon as the partition's leader tells it."""
        client = admin(self.bootstrap)
        deadline = time.monotonic() + WAIT_S
        while True:
            [future] = client.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=level).values()
            try:
                return int(future.result(WAIT_S).offset)
            except KafkaException as error:
                if not may_be_asked_again(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _write(self, made: Producer, name: str) -> None:
        made.begin_transaction()
        made.produce(LEDGER, f"{self.mark}-{name}".encode(), partition=0)
        assert made.flush(WAIT_S) == 0

    def _missing(self, members: Sequence[Member]) -> str:
        seen = {value for one in members for value in one.seen}
        return f"{members[0].name}: {sorted(set(self.written) - seen)} were not read, {len(self.written)} written"

    def _values(self) -> list[str]:
        return values_to_end(self.bootstrap, LEDGER, [0])


class Sharers:
    """A share group.

    Of six records one is accepted, one rejected and one released. The others are still acquired when the coordinators change.
    """

    COUNT = 6

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self._oracle = oracle
        self._bootstrap = bootstrap
        self._member: ShareConsumer | None = None
        self._mark = ""
        self._released_at = 0
        configure_group(oracle, bootstrap, "sharers", {"share.auto.offset.reset": "earliest"})

    def take(self, mark: str) -> None:
        """Write, acquire, and acknowledge some of the records."""
        self._mark = mark
        values: list[tuple[bytes | None, bytes | None]] = [(None, f"{mark}-{number}".encode()) for number in range(self.COUNT)]
        self._oracle.produce(self._bootstrap, TASKS, 0, values)
        self._member = self._new()
        is_settled = False
        while not is_settled:
            found = until_taken(self._member, lambda taken: len(taken) == self.COUNT)
            for one, kind in zip(found, ("ACCEPT", "REJECT", "RELEASE"), strict=False):
                self._member.acknowledge(one, kind)
            self._released_at = found[2].delivery_count
            is_settled = self._commit(self._member)

    def finish(self) -> None:
        """Check that the records that were neither accepted nor rejected come again, the released one with its count. Then accept them."""
        assert self._member is not None
        self._member.abandon()
        with self._new() as member:
            wanted = {f"{self._mark}-{number}" for number in range(2, self.COUNT)}
            counts: dict[str, int] = {}
            settled: set[str] = set()
            deadline = time.monotonic() + WAIT_S
            while settled != wanted:
                assert time.monotonic() < deadline and counts.keys() <= wanted, f"{counts}, not {wanted}"
                taken = member.poll()
                for one in taken:
                    counts.setdefault(one.value, one.delivery_count)
                    member.acknowledge(one, "ACCEPT")
                if self._commit(member):
                    settled |= {one.value for one in taken}
            assert counts[f"{self._mark}-2"] == self._released_at + 1
            assert member.poll() == []

    @staticmethod
    def _commit(member: ShareConsumer) -> bool:
        """Send the acknowledgements. Returns False if the machine stood still for longer than a record stays acquired, 30 s: then the
        records come again.
        """
        errors = member.commit()
        assert errors in ([], ["InvalidRecordStateException"]), errors
        return not errors

    def _new(self) -> ShareConsumer:
        return ShareConsumer(self._oracle, self._bootstrap, "sharers", TASKS)


class JavaProducer:
    """Kafka's own producer. Its epoch grows with every transaction (transactions of version 2)."""

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self._oracle = oracle
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        settings = {"bootstrap.servers": bootstrap, "key.serializer": serializer, "value.serializer": serializer}
        more = {"transactional.id": "java", "transaction.timeout.ms": TRANSACTION_MS, "linger.ms": 0, "max.block.ms": 1000 * WAIT_S}
        self._made: Any = oracle.java_class("org.apache.kafka.clients.producer.KafkaProducer")(oracle.properties({**settings, **more}))
        self._made.initTransactions()

    def begin(self, value: str, position: int) -> None:
        """Write in a transaction, and commit a position of the copiers."""
        self._made.beginTransaction()
        record = self._oracle.java_class("org.apache.kafka.clients.producer.ProducerRecord")
        self._made.send(record(LEDGER, 0, None, value.encode())).get()
        offsets = self._oracle.jvm.java.util.HashMap()
        key = self._oracle.java_class("org.apache.kafka.common.TopicPartition")(EVENTS, 0)
        offsets[key] = self._oracle.java_class("org.apache.kafka.clients.consumer.OffsetAndMetadata")(position)
        group = self._oracle.java_class("org.apache.kafka.clients.consumer.ConsumerGroupMetadata")(COPIERS)
        self._made.sendOffsetsToTransaction(offsets, group)

    def commit(self) -> None:
        """Commit the transaction."""
        self._made.commitTransaction()

    def close(self) -> None:
        """Close the client."""
        self._made.close(self._oracle.java_class("java.time.Duration").ofSeconds(0))
