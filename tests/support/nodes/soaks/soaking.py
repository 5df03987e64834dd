"""Load on a cluster of processes while it is disturbed, and checks afterwards.

Every record names its producer, its partition and its number there: `<producer>:<partition>:<number>`. Producers are idempotent and wait
for all in-sync replicas. So every record that was acknowledged is read back exactly once, in the order in which its producer sent the
records of a partition. Only counts are kept, because an hour's records would not fit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewPartitions

from kops.storage.formats.names import partition_dir_name
from tests.support.nodes.librdkafka import admin, create_topic, read_all, read_rows

TIMEOUT_S = 180
PATIENCE_S = 600
TOPIC = "orders"
CHURN = "again"
REPLICAS = 3
PARTITIONS = 3
MOST_PARTITIONS = 8
PAUSE_S = 0.002
RECORD_BYTES = 120
CLEAN_EXITS = (0, 128 + signal.SIGTERM)
"""The exit codes of kops, and of a JVM that is asked to stop."""
FAULTS = ("Traceback", "Encountered fatal fault", "Encountered metadata loading fault", "Encountered metadata publishing fault")
"""What a node never prints, however it is treated.

The first is for kops, the others are for Kafka's fault handlers, which check what other nodes sent.
"""
Key = tuple[int, int]
"""A producer and a partition."""
T = TypeVar("T")


class Nodes(Protocol):
    """Processes of one cluster: `KopsNodes`, or a `MixedCluster` of both kinds."""

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""

    @property
    def ids(self) -> Sequence[int]:
        """The ids of all nodes."""

    @property
    def brokers(self) -> Sequence[int]:
        """The nodes that have logs."""

    @property
    def processes(self) -> Mapping[int, subprocess.Popen[bytes]]:
        """The running processes of kops."""

    def process(self, node_id: int) -> subprocess.Popen[bytes]:
        """Return a running process."""

    def log_dir(self, node_id: int) -> Path:
        """Return a node's log directory."""

    def start(self, node_id: int) -> None:
        """Start a node's process."""

    def wait(self, node_id: int) -> None:
        """Wait until a node serves."""

    def stop(self, node_id: int) -> int:
        """Stop a node as an administrator does. Return its exit code."""

    def kill(self, node_id: int) -> None:
        """Kill a node with kill -9."""

    def output(self, node_id: int) -> str:
        """Return what a node has printed."""


class Sending(threading.Thread):
    """One producer, which sends to all partitions in turn until it is ended, and what became of its records.

    Records in `unanswered` may have been written or not.
    """

    def __init__(self, number: int) -> None:
        super().__init__(name=f"sender-{number}", daemon=True)
        self.number = number
        self.partitions = PARTITIONS
        self.sent: Counter[int] = Counter()
        self.acknowledged: Counter[int] = Counter()
        self.unanswered: dict[int, set[int]] = defaultdict(set)
        self.errors: list[str] = []
        self._ended = threading.Event()

    def __str__(self) -> str:
        state = "sends" if self.is_alive() else "ended"
        return f"sender {self.number} {state}, sent {dict(self.sent)}, acknowledged {dict(self.acknowledged)}, errors {self.errors[-1:]}"

    @property
    def may_repeat(self) -> bool:
        """Whether records may be there again."""
        return False

    def end(self) -> None:
        """Stop sending, and wait until all records have their answer."""
        raise NotImplementedError


class Sender(Sending):
    """One idempotent producer of librdkafka.

    A node that was killed remembers only the last batch of each producer, as in Kafka, because snapshots have no more. If it leads again
    before its client has retried, it refuses the batches before that (OUT_OF_ORDER_SEQUENCE_NUMBER), and librdkafka gives up its producer
    id. Then another producer continues with the next records. The records without an answer may have been written or not.
    """

    def __init__(self, number: int, bootstrap: str) -> None:
        super().__init__(number)
        self.producer_ids = 1
        self._servers = bootstrap
        self._is_out_of_order = False
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 1000 * PATIENCE_S,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )

    def __str__(self) -> str:
        return f"{super().__str__()}, producer ids {self.producer_ids}, in its queue {len(self._producer)}"

    def run(self) -> None:
        """Send records. Those that a full queue or an unknown partition refuses are sent later."""
        while not self._ended.is_set():
            for partition in range(self.partitions):
                value = f"{self.number}:{partition}:{self.sent[partition]}".ljust(RECORD_BYTES).encode()
                try:
                    self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                except (BufferError, KafkaException):
                    self._poll(0.05)
                else:
                    self.sent[partition] += 1
            self._poll(PAUSE_S)
            if self._is_out_of_order:
                self._go_on()

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            if not error.args[0].fatal():  # each record reports this, too
                raise

    def _go_on(self) -> None:
        """Continue with another producer id."""
        self._producer.purge()
        self._flush()
        self._producer = self._new_producer()
        self._is_out_of_order = False
        self.producer_ids += 1
        self.errors.clear()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        partition, number = (int(part) for part in value.split(b":")[1:])
        if error is None:
            self.acknowledged[partition] += 1
            return
        self.unanswered[partition].add(number)
        self.errors.append(f"partition {partition}, record {number}: {error}")
        self._is_out_of_order |= error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _flush(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records of sender {self.number} were never answered"

    def end(self) -> None:
        """Stop sending, and wait until all records have their answer."""
        self._ended.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        self._flush()
        if self._is_out_of_order:
            self.errors.clear()


class Deck(Generic[T]):
    """Random draws in which nothing comes again before all the others have come."""

    def __init__(self, things: Sequence[T], rng: random.Random) -> None:
        self._things = things
        self._rng = rng
        self._left: list[T] = []

    def draw(self) -> T:
        """Return the next one."""
        self._left = self._left or self._rng.sample(self._things, len(self._things))
        return self._left.pop()


class Disturber:
    """Disturbances of the nodes, drawn from a seed. At most one node is away at a time, so that the others can continue."""

    def __init__(self, nodes: Nodes, senders: Sequence[Sending], seed: int) -> None:
        self.nodes = nodes
        self.senders = senders
        self.told: list[str] = []
        self.kills: Counter[int] = Counter()
        self.longest_pause_s = 6.0
        self._draw = random.Random(seed)
        self._kinds = Deck(self.kinds(), self._draw)
        self._killed = Deck(nodes.ids, self._draw)
        self._lives = 0
        self._began = time.monotonic()

    def kinds(self) -> list[Callable[[], None]]:
        """Return what may happen. More frequent kinds are listed more often."""
        return [self.kill, self.kill, self.pause, self.restart, self.add_partition, self.make_again]

    def life(self) -> str:
        """Return what has happened, and how far the senders are."""
        return "\n".join([*self.told, *map(str, self.senders)])

    def disturb(self) -> None:
        """Run one disturbance to its end."""
        self._kinds.draw()()
        time.sleep(self._draw.uniform(0.2, 1.5))

    def _tell(self, what: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:.1f} s: {what}")

    def kill(self) -> None:
        """Kill a node with kill -9, and start it a little later."""
        node = self._killed.draw()
        self._tell(f"kill -9 of node {node}")
        self.kills[node] += 1
        self.nodes.kill(node)
        time.sleep(self._draw.uniform(0.0, 4.0))
        self.nodes.start(node)
        self.nodes.wait(node)
        self._tell(f"node {node} is back")

    def restart(self) -> None:
        """Stop a node cleanly and start it."""
        node = self._draw.choice(self.nodes.ids)
        self._tell(f"restart of node {node}")
        code = self.nodes.stop(node)
        assert code in CLEAN_EXITS, f"node {node} ended with {code}:\n{self.nodes.output(node)[-3000:]}"
        self.nodes.start(node)
        self.nodes.wait(node)

    def pause(self) -> None:
        """Pause the process for a while, which may be long enough to be taken for dead."""
        node = self._draw.choice(self.nodes.ids)
        process = self.nodes.process(node)
        self._tell(f"node {node} is paused")
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._draw.uniform(0.5, self.longest_pause_s))
        process.send_signal(signal.SIGCONT)

    def add_partition(self) -> None:
        """Add one partition, which all senders use from then on."""
        count = self.senders[0].partitions + 1
        if count > MOST_PARTITIONS:
            return
        self._tell(f"{count} partitions")
        insist(lambda: self._grow(count), KafkaError.INVALID_PARTITIONS)
        for sender in self.senders:
            sender.partitions = count

    def _grow(self, count: int) -> None:
        client = admin(self.nodes.bootstrap)
        client.create_partitions([NewPartitions(TOPIC, count)], operation_timeout=60)[TOPIC].result(TIMEOUT_S)

    def make_again(self) -> None:
        """Delete a topic and create it again under its name. It has no records of its former life."""
        self._tell(f"{CHURN} is made again")
        if self._lives:
            insist(self._delete, KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._lives += 1
        mark = f"life {self._lives}".encode()
        self._create_once_deleted()
        producer = Producer({"bootstrap.servers": self.nodes.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(20):
            producer.produce(CHURN, mark, partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0
        found = [value for *_, value in read_all(self.nodes.bootstrap, CHURN)]
        assert found == [mark] * 20, f"{CHURN} holds {found}"

    def _delete(self) -> None:
        client = admin(self.nodes.bootstrap)  # its futures end when it is deleted
        client.delete_topics([CHURN], operation_timeout=60)[CHURN].result(TIMEOUT_S)

    def _create_once_deleted(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                create_topic(self.nodes.bootstrap, CHURN, 2, REPLICAS)
            except KafkaException as error:
                if may_be_asked_again(error):
                    insist(lambda: create_topic(self.nodes.bootstrap, CHURN, 2, REPLICAS), KafkaError.TOPIC_ALREADY_EXISTS)
                    return
                # A broker may not have the deletion yet.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return


def may_be_asked_again(error: KafkaException) -> bool:
    """Return whether the client had no answer, or one that may be different a little later.

    Nodes may be away, or the machine may be overloaded.
    """
    code: int = error.args[0].code()
    return code < 0 or bool(error.args[0].retriable())


def insist(ask: Callable[[], object], *done: int) -> None:
    """Repeat an administrator's request until it has an answer. `done` has the errors that mean that an earlier request was carried out."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            ask()
        except KafkaException as error:
            if error.args[0].code() in done:
                return
            if not may_be_asked_again(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def wait_in_sync(nodes: Nodes, topic: str) -> None:
    """Wait until every partition has a leader and all its replicas in sync."""
    deadline = time.monotonic() + TIMEOUT_S
    client = admin(nodes.bootstrap)
    while True:
        partitions = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        behind = {number: one.isrs for number, one in partitions.items() if len(one.isrs) < REPLICAS or one.leader < 0}
        if not behind:
            return
        assert time.monotonic() < deadline, f"partitions of {topic} never came in sync: {behind}"
        time.sleep(0.2)


def check_read_back(nodes: Nodes, senders: Sequence[Sending]) -> int:
    """Check that all acknowledged records are there, once, and in each sender's order. Return the number of records."""
    for one in senders:
        assert not one.errors, one.errors[:5]
        for partition, sent in one.sent.items():
            assert sent == one.acknowledged[partition] + len(one.unanswered[partition])
    following: Counter[Key] = Counter()
    count = 0
    for partition, offset, _, value in read_rows(nodes.bootstrap, TOPIC):
        assert value is not None
        sender, named, number = (int(part) for part in value.split(b":"))
        where = f"partition {partition}, offset {offset}: record {number} of sender {sender}"
        assert named == partition, f"{where} is one of partition {named}"
        expected = following[sender, partition]
        if number < expected and senders[sender].may_repeat:
            continue
        assert number >= expected, f"{where} comes after its record {expected - 1}: again, or late"
        lost = set(range(expected, number)) - senders[sender].unanswered[partition]
        assert not lost, f"{where} comes after its record {expected - 1}: {len(lost)} are gone, or late"
        following[sender, partition] = number + 1
        count += 1
    for one in senders:
        for partition, sent in one.sent.items():
            expected = following[one.number, partition]
            lost = set(range(expected, sent)) - one.unanswered[partition]
            assert not lost, f"sender {one.number}, partition {partition}: the last {len(lost)} are gone, from {min(lost)} on"
    return count


def check_replicas_equal(nodes: Nodes, partitions: int) -> None:
    """Check that the logs of all replicas have the same bytes. The nodes must be stopped."""
    for partition in range(partitions):
        logs = {node: log_bytes(nodes.log_dir(node) / partition_dir_name(TOPIC, partition)) for node in nodes.brokers}
        first = next(iter(logs.values()))
        assert first, f"{TOPIC}-{partition} is empty"
        assert all(log == first for log in logs.values()), (
            f"{TOPIC}-{partition}: sizes { ({node: len(log) for node, log in logs.items()}) }"
        )


def check_words(nodes: Nodes) -> None:
    """Check that no node has printed a sign of an impossible state."""
    for node in nodes.ids:
        output = nodes.output(node)
        for words in FAULTS:
            position = output.find(words)
            assert position < 0, f"node {node}: …{output[max(position - 1000, 0) : position + 3000]}"


def log_bytes(folder: Path) -> bytes:
    """Return a partition's segments, one after another."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def held(nodes: Nodes) -> dict[int, tuple[int, int, int]]:
    """Return node of kops → KiB of anonymous memory, open files, threads.

    Files of logs do not count, because there are as many as there are segments.
    """
    found = {}
    for node, process in nodes.processes.items():
        folder = Path("/proc") / str(process.pid)
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        memory = int(status["RssAnon"].split()[0])
        found[node] = memory, sum(not _is_log(path) for path in (folder / "fd").iterdir()), int(status["Threads"])
    return found


def _is_log(descriptor: Path) -> bool:
    try:
        target = os.readlink(descriptor)
    except FileNotFoundError:
        return True  # closed meanwhile
    return target.endswith((".log", ".index", ".timeindex"))
