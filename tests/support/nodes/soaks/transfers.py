"""Money that moves between accounts in transactions while nodes are disturbed: producers, copiers, counters, and checks.

A transfer is one transaction of two records in two partitions, `<id>:<amount>`. The amounts have opposite signs. Some transfers are
aborted on purpose. A copier reads them in a group, writes them to another topic, and commits its positions in the same transaction. A
counter reads them in a group that commits by itself. The clients are those of librdkafka, and `kops.Producer` for `LibraryTransfers`.
"""

from __future__ import annotations

import math
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

import kops
from tests.support.nodes.librdkafka import admin, read_to_end
from tests.support.nodes.soaks.soaking import PATIENCE_S, may_be_asked_again

TRANSFERS = "transfers"
COPIES = "copies"
PARTITIONS = 3
ABORTED_SHARE = 0.15
TRANSACTION_TIMEOUT_MS = 10_000
STEP_TIMEOUT_S = 20
MAX_POLL_MS = 45_000
"""A member whose application does not ask for records for so long leaves its group. librdkafka demands at least its session timeout."""
PAUSE_S = 0.01
MOST_COPIED = 50


class Worker(threading.Thread):
    """A thread that works until it is ended. `errors` has the errors that it did not expect."""

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(daemon=True, name=name)
        self.bootstrap = bootstrap
        self.errors: list[str] = []
        self.restarts = 0
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            while not self._ending.is_set() and not self.errors:
                self.live()
        except BaseException as error:
            self.errors.append(repr(error))
            raise

    def live(self) -> None:
        """Run one life of its clients, until they cannot continue or the end has come."""
        raise NotImplementedError

    def end(self) -> None:
        """End the work."""
        self._ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self} does not end"
        assert not self.errors, f"{self}: {self.errors}"

    def producer(self) -> Producer | None:
        """Return a producer that may write, or None at the end. It fences the one of an earlier life and ends its transaction."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        made = Producer({**settings, "log_level": 0})
        while True:
            try:
                made.init_transactions(STEP_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].fatal() or not may_be_asked_again(error):
                    raise
                time.sleep(0.1)
            else:
                return made

    def __str__(self) -> str:
        return f"{self.name}: {self.restarts} lives lost"


def commit(producer: Producer) -> bool:
    """Commit, and retry until there is an answer. Return False if the transaction was aborted.

    Raises KafkaException if the outcome is unknown.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.commit_transaction(STEP_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                abort(producer)
                return False
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return True


def abort(producer: Producer) -> None:
    """Abort, and retry until there is an answer. Raises KafkaException if the producer cannot continue."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.abort_transaction(STEP_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


class Transfers(Worker):
    """A worker that makes transfers. `committed`, `aborted` and `unknown` are their ids.

    Of an unknown transfer, both records or none must be seen.
    """

    def __init__(self, number: int, bootstrap: str, seed: int) -> None:
        super().__init__(f"transfers-{number}", bootstrap)
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.unknown: set[str] = set()
        self._draw = random.Random(seed * 100 + number)

    def live(self) -> None:
        producer = self.producer()
        assert producer is not None
        while not self._ending.is_set():
            name = uuid.uuid4().hex
            try:
                is_committed = self._transfer(producer, name)
            except KafkaException:
                # It was fenced, or an answer never came. A new producer ends what this one has left.
                self.unknown.add(name)
                self.restarts += 1
                return
            (self.committed if is_committed else self.aborted).add(name)
            time.sleep(PAUSE_S)

    def _transfer(self, producer: Producer, name: str) -> bool:
        amount = self._draw.randint(1, 1000)
        source, target = self._draw.sample(range(PARTITIONS), 2)
        producer.begin_transaction()
        try:
            producer.produce(TRANSFERS, f"{name}:{-amount}".encode(), partition=source)
            producer.produce(TRANSFERS, f"{name}:{amount}".encode(), partition=target)
            if self._draw.random() < ABORTED_SHARE:
                producer.flush(STEP_TIMEOUT_S)
                abort(producer)
                return False
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            abort(producer)
            return False
        return commit(producer)

    def __str__(self) -> str:
        return f"{super().__str__()}, {len(self.committed)} committed, {len(self.aborted)} aborted, {len(self.unknown)} unknown"


class LibraryTransfers(Transfers):
    """A worker that makes transfers with `kops.Producer`."""

    def live(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        with kops.Producer(settings) as producer:
            self._insist(producer.init_transactions)
            while not self._ending.is_set():
                name = uuid.uuid4().hex
                try:
                    is_committed = self._transfer_by(producer, name)
                except kops.KafkaError:
                    self.unknown.add(name)
                    self.restarts += 1
                    return
                (self.committed if is_committed else self.aborted).add(name)
                time.sleep(PAUSE_S)

    def _transfer_by(self, producer: kops.Producer, name: str) -> bool:
        amount = self._draw.randint(1, 1000)
        source, target = self._draw.sample(range(PARTITIONS), 2)
        producer.begin_transaction()
        for partition, value in ((source, -amount), (target, amount)):
            producer.send(TRANSFERS, f"{name}:{value}".encode(), partition=partition)
        if self._draw.random() >= ABORTED_SHARE:
            try:
                self._insist(producer.commit_transaction)
            except kops.KafkaError as error:
                if not error.abortable:
                    raise
            else:
                return True
        self._insist(producer.abort_transaction)
        return False

    def _insist(self, call: Callable[[], object]) -> None:
        """Repeat a call that was not answered in time."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
            except kops.KafkaTimeoutError:
                if time.monotonic() > deadline:
                    raise
            else:
                return


def group_consumer(bootstrap: str, group: str, protocol: str = "classic", **settings: object) -> Consumer:
    """Return a consumer of committed records that begins at the first one. `protocol` is that of the group: classic or consumer."""
    common = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    # In the other protocol, the broker decides these.
    own = {"session.timeout.ms": 8_000, "heartbeat.interval.ms": 1_000} if protocol == "classic" else {"group.protocol": protocol}
    return Consumer({**common, **own, "max.poll.interval.ms": MAX_POLL_MS, "log_level": 0, **settings})


def close(life: Life, consumer: Consumer) -> None:
    """Close a consumer, which leaves its group."""
    with life.call(STEP_TIMEOUT_S):
        consumer.close()


class Life:
    """One life of a worker's clients. `is_abandoned` is set when the worker has given it up."""

    def __init__(self, hang_s: float) -> None:
        self.is_abandoned = False
        self._hang_s = hang_s
        self._due = math.inf

    @contextmanager
    def call(self, timeout_s: float) -> Iterator[None]:
        """Surround a client's call that returns within `timeout_s` whatever the nodes do."""
        self._due = time.monotonic() + timeout_s + self._hang_s
        try:
            yield
        finally:
            self._due = math.inf

    def hangs(self) -> bool:
        """Return whether a call should have returned `hang_s` ago."""
        return time.monotonic() > self._due


class Watched(Worker):
    """A worker that gives up a life in which a call of librdkafka does not return. `hung` counts these.

    librdkafka 2.16 has two such defects. Both come after a node has vanished from the metadata, so Apache Kafka's nodes show them as well.

    - consume() deadlocks if a leader vanishes that is asked for the end of an epoch (its issue 5476).
    - send_offsets_to_transaction() waits for a group's coordinator that has vanished, until any connection changes its state (its issues
      5456 and 5511).

    Only calls that do not return long after their own timeout count. Calls that return without records or with errors are the nodes'
    fault, and the worker goes on with them.
    """

    hang_s = 20.0

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name, bootstrap)
        self.hung = 0

    def live(self) -> None:
        life = Life(self.hang_s)
        thread = threading.Thread(target=self._live, args=(life,), daemon=True, name=f"{self.name} {self.restarts + self.hung}")
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if life.hangs():
                # If the call returns after all, its thread closes the clients.
                life.is_abandoned = True
                self.hung += 1
                return

    def _live(self, life: Life) -> None:
        try:
            self.work(life)
        except BaseException as error:
            self.errors.append(repr(error))
            raise

    def work(self, life: Life) -> None:
        """Work until the clients cannot continue, the life is abandoned, or the end has come."""
        raise NotImplementedError

    def goes_on(self, life: Life) -> bool:
        """Return whether a life has to continue."""
        return not self._ending.is_set() and not life.is_abandoned

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.hung} hung"


class Copier(Watched):
    """A worker that copies each committed transfer exactly once."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        super().__init__("copier", bootstrap)
        self.copied = 0
        self._protocol = protocol

    def work(self, life: Life) -> None:
        producer = self.producer()
        assert producer is not None
        consumer = group_consumer(self.bootstrap, "copiers", self._protocol, **{"enable.auto.commit": False})
        try:
            consumer.subscribe([TRANSFERS])
            while self.goes_on(life):
                self._copy(life, consumer, producer)
        except KafkaException:
            # The positions of the aborted transaction were not committed, so the next life reads the records again.
            self.restarts += 1
        finally:
            close(life, consumer)

    def _copy(self, life: Life, consumer: Consumer, producer: Producer) -> None:
        with life.call(0.5):
            read = [one for one in consumer.consume(MOST_COPIED, 0.5) if one.error() is None]
        if not read:
            return
        producer.begin_transaction()
        for message in read:
            producer.produce(COPIES, message.value(), partition=message.partition())
        with life.call(0):
            positions = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
        with life.call(STEP_TIMEOUT_S):
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), STEP_TIMEOUT_S)
        if not commit(producer):
            raise KafkaException("aborted")
        self.copied += len(read)

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.copied} copied"


class CounterOfAll(Watched):
    """A worker that reads the committed transfers in a group that commits by itself, each at least once."""

    def __init__(self, number: int, bootstrap: str, protocol: str) -> None:
        super().__init__(f"counter-{number}", bootstrap)
        self.seen: Counter[bytes] = Counter()
        self._protocol = protocol

    def work(self, life: Life) -> None:
        consumer = group_consumer(self.bootstrap, "counters", self._protocol, **{"auto.commit.interval.ms": 300})
        try:
            consumer.subscribe([TRANSFERS])
            while self.goes_on(life):
                with life.call(0.3):
                    read = consumer.consume(200, 0.3)
                self.seen.update(one.value() or b"" for one in read if one.error() is None)
        finally:
            close(life, consumer)

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.seen.total()} seen"


def ends(bootstrap: str, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    """Return the end of each partition for readers with an isolation level."""
    client = admin(bootstrap)
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    futures = client.list_offsets(asked, isolation_level=isolation)
    return {one.partition: future.result(STEP_TIMEOUT_S).offset for one, future in futures.items()}


def wait_for_stable(bootstrap: str, topic: str) -> dict[int, int]:
    """Wait until no open transaction holds back a reader of committed records. Return the ends."""
    deadline = time.monotonic() + 60 + TRANSACTION_TIMEOUT_MS / 1000
    while True:
        try:
            all_of_it, stable = (
                ends(bootstrap, topic, level) for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
            )
        except KafkaException as error:
            if not may_be_asked_again(error):
                raise
            stable, all_of_it = {}, {0: -1}
        if stable == all_of_it:
            return stable
        assert time.monotonic() < deadline, f"{topic} is held back at {stable}, its ends are {all_of_it}"
        time.sleep(0.2)


def committed(bootstrap: str, topic: str, until: dict[int, int]) -> list[tuple[int, bytes]]:
    """Return partition and value of all committed records."""
    found = read_to_end(bootstrap, topic, [number for number, end in until.items() if end])
    return [(one.partition() or 0, one.value() or b"") for one in found]


def check_transfers(transfers: Sequence[Transfers], seen: list[tuple[int, bytes]]) -> None:
    """Check that every transfer is there as a whole or not at all, and that no money is created or lost."""
    by_id: dict[str, list[int]] = {}
    for _, value in seen:
        name, _, amount = value.decode().partition(":")
        by_id.setdefault(name, []).append(int(amount))
    for name, amounts in by_id.items():
        assert len(amounts) == 2 and not sum(amounts), f"transfer {name} is seen as {amounts}"
    done = set().union(*(one.committed for one in transfers))
    refused = set().union(*(one.aborted for one in transfers))
    assert done <= set(by_id), f"{len(done - set(by_id))} committed transfers are gone"
    assert not refused & set(by_id), f"{len(refused & set(by_id))} aborted transfers are seen"
    assert set(by_id) <= done | set().union(*(one.unknown for one in transfers))
