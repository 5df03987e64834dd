"""How long it takes until one message is acknowledged: `python -m tests.bench.nodes.ack_latency [--tree NAME=PATH]… [--kafka] [--rounds N]
[--messages N] [--rate N] [--json FILE]`.

librdkafka sends one message of 100 B and waits for its acknowledgement before it sends the next one, with acks=all, three replicas and one
partition. `--tree` adds a cluster of another checkout of kops, `--kafka` one of Apache Kafka 4.3.0. All clusters run at the same time and
take short turns, so that a busy moment affects all of them. Compare the lowest turn, which a busy machine disturbs least, and the median
one.

The first table has latencies in microseconds, for the turn with the lowest median and for the median turn. The second one has the cost of a
message for the three nodes: CPU microseconds, and how often a node gave up its core to wait. With `--rate`, messages are sent at that rate
instead, whether the last one is acknowledged or not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.cluster import PATIENCE_S, RECORD_SIZE, Client, kafka_java, quantile, until
from tests.bench.data import CACHE
from tests.support.corpus import PROJECT
from tests.support.kafka.kafka_nodes import KafkaNodes
from tests.support.nodes.kops_nodes import KopsNodes

TOPIC: Final = "acknowledged"
WARM_MESSAGES: Final = 1_000
WARM_MESSAGES_OF_A_JVM: Final = 30_000
QUANTILES: Final = (0.5, 0.9, 0.99)


class TreeNodes(KopsNodes):
    """Nodes of the kops in another checkout, which has its own compiled modules."""

    def __init__(self, work: Path, tree: Path) -> None:
        super().__init__(work)
        work.mkdir()
        self.tree = tree


@dataclass(slots=True)
class Turn:
    """One turn of a cluster. Latencies and CPU are in microseconds, the other values are counts per message."""

    quantiles: list[float]
    cpu_us: float
    waits: float
    preempted: float


@dataclass(slots=True)
class Contender:
    """A cluster, its producer and the results of its turns."""

    name: str
    nodes: KopsNodes
    producer: Producer | None = None
    turns: list[Turn] = field(default_factory=list)

    def warm_up(self, messages: int) -> None:
        """Create the topic and send messages that do not count."""
        client = Client(self.nodes)
        client.wait_for_brokers()
        client.create_topic(TOPIC)
        until(lambda: client.produce(TOPIC))
        settings = {"bootstrap.servers": self.nodes.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self.producer = Producer(settings)
        self.producer.list_topics(TOPIC, timeout=PATIENCE_S)
        send(self.producer, messages, 0)

    def take_turn(self, messages: int, rate: float) -> None:
        """Send messages and record their latencies and their cost."""
        assert self.producer is not None
        before = usage(self.nodes)
        taken = send(self.producer, messages, rate)
        cpu_ns, waits, preempted = (after - start for after, start in zip(usage(self.nodes), before, strict=True))
        quantiles = [quantile(taken, part) * 1e6 for part in QUANTILES]
        self.turns.append(Turn(quantiles, cpu_ns / 1000 / messages, waits / messages, preempted / messages))


def send(producer: Producer, messages: int, rate: float) -> list[float]:
    """Return the seconds from the call to the acknowledgement of each message. Raises RuntimeError if one is not acknowledged."""
    taken: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        taken.append(message.latency())

    started = time.perf_counter()
    for number in range(messages):
        while rate and (left := started + number / rate - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(TOPIC, b"v" * RECORD_SIZE, partition=0, on_delivery=delivered)
        while not rate and len(taken) <= number:
            producer.poll(PATIENCE_S)
    producer.flush(PATIENCE_S)
    if len(taken) != messages:
        raise RuntimeError(f"{len(taken)} of {messages} messages were acknowledged")
    return taken


def usage(nodes: KopsNodes) -> tuple[int, int, int]:
    """Return the CPU nanoseconds of the nodes' threads, how often they waited for something, and how often they lost their core to
    others.
    """
    cpu_ns = waits = preempted = 0
    for process in set(nodes.processes.values()):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            counts = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            waits += int(counts["voluntary_ctxt_switches"])
            preempted += int(counts["nonvoluntary_ctxt_switches"])
    return cpu_ns, waits, preempted


def show(contenders: Sequence[Contender]) -> None:
    """Print both tables."""
    print(f"{'latency, µs':<12} {'p50':>7} {'p90':>7} {'p99':>7}   median turn: {'p50':>7} {'p90':>7} {'p99':>7}")
    for each in contenders:
        best = min(each.turns, key=lambda turn: turn.quantiles[0]).quantiles
        median = [statistics.median(values) for values in zip(*(turn.quantiles for turn in each.turns), strict=True)]
        print(f"{each.name:<12} {' '.join(f'{value:7.0f}' for value in best)} {'':>15} {' '.join(f'{value:7.0f}' for value in median)}")
    print(f"{'a message':<12} {'CPU µs, lowest':>15} {'median':>7} {'waits':>7} {'core lost':>10}")
    for each in contenders:
        cpu = [turn.cpu_us for turn in each.turns]
        waits, lost = (
            statistics.median(values) for values in ([turn.waits for turn in each.turns], [turn.preempted for turn in each.turns])
        )
        print(f"{each.name:<12} {min(cpu):15.0f} {statistics.median(cpu):7.0f} {waits:7.2f} {lost:10.2f}")


def main(arguments: Sequence[str]) -> None:
    """Start the clusters, let them take turns and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH", help="another checkout with compiled modules")
    parser.add_argument("--kafka", action="store_true", help="a warm cluster of Apache Kafka beside them")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--messages", type=int, default=500, help="of a turn")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; one at a time without")
    parser.add_argument("--dir", type=Path, default=CACHE, help="where the nodes have their directories")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    # Keep the bytecode of modules, as an installed package does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    asked.dir.mkdir(parents=True, exist_ok=True)
    trees = [("kops", PROJECT), *((name, Path(path)) for name, _, path in (each.partition("=") for each in asked.tree))]
    with ExitStack() as ended:
        work = Path(tempfile.mkdtemp(prefix="ack-", dir=asked.dir))
        ended.callback(shutil.rmtree, work)
        contenders = [Contender(name, ended.enter_context(TreeNodes(work / name, tree))) for name, tree in trees]
        for each in contenders:
            each.warm_up(WARM_MESSAGES)
        if asked.kafka:
            (work / "kafka").mkdir()
            kafka = Contender("kafka", ended.enter_context(KafkaNodes(work / "kafka", java=kafka_java())))
            contenders.append(kafka)
            kafka.warm_up(WARM_MESSAGES_OF_A_JVM)
        for number in range(asked.rounds):
            for each in contenders if number % 2 == 0 else reversed(contenders):
                each.take_turn(asked.messages, asked.rate)
        show(contenders)
    if asked.json is not None:
        asked.json.write_text(json.dumps({each.name: [asdict(turn) for turn in each.turns] for each in contenders}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
