"""Three kops brokers and three nodes of Apache Kafka 4.3.0, measured with the same questions in one run: `python -m tests.bench.cluster
[--rounds N] [--size MIB] [--dir DIR] [--json FILE] [QUESTION…]`.

Both clusters have the same server.properties (combined nodes, static quorum, Kafka's timeouts) and formatted directories. Kafka's nodes run
as its scripts start them, with C2, G1 and a heap of 1 GiB. Both clusters run at the same time and take turns, so that a busy moment affects
both. An idle node of either kind needs a few per cent of a core at most. One JVM is the client of both for throughput. It is warm before
the first turn that counts. The CPU is that of the three nodes. Topics have three replicas, records have 100 B, and acks is all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from kops.environment import find_java
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.protocol.messages.describe_quorum_request import PartitionData, TopicData
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.metadata_response import MetadataResponsePartition
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.build import BatchBuilder
from tests.bench.data import CACHE
from tests.support.kafka.kafka_jars import kafka_jars
from tests.support.kafka.kafka_nodes import KafkaNodes
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

MIB: Final = 1024 * 1024
PATIENCE_S: Final = 120
PAUSE_S: Final = 0.002
WARM_S: Final = 30
RECORD_SIZE: Final = 100
CLIENT_JVM: Final = "-XX:TieredStopAtLevel=4 -Xmx3g"
KAFKA_JVM: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
SENT = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, .*?(\d+) ms 50th.*?(\d+) ms 99th"
)


def kafka_java() -> list[str]:
    """Return the command for a JVM as kafka-server-start.sh starts it."""
    return [str(find_java().java), *KAFKA_JVM, "-cp", f"{kafka_jars()}/*"]


@dataclass(slots=True)
class Answer:
    """The figures of a question for all rounds, by cluster."""

    question: str
    unit: str
    figures: dict[str, list[float]] = field(default_factory=dict)
    is_more_better: bool = False

    def add(self, name: str, value: float) -> None:
        """Add a figure of one round."""
        self.figures.setdefault(name, []).append(value)

    def line(self) -> str:
        """Return a line with the medians, how many times better kops is, and the spread."""
        kops, kafka = (statistics.median(self.figures.get(name, [float("nan")])) for name in ("kops", "kafka"))
        better = (kops / kafka if self.is_more_better else kafka / kops) if kops and kafka else float("nan")
        spread = "; ".join(f"{name} {min(each):.4g}-{max(each):.4g}" for name, each in self.figures.items() if len(each) > 1)
        return f"{self.question:<44} {kops:10.4g} {kafka:10.4g} {self.unit:<12} {better:6.2f}x  {spread}"


class Client:
    """A client that sends raw requests to a cluster whose nodes may be starting or dead."""

    def __init__(self, nodes: KopsNodes) -> None:
        self.nodes = nodes
        self._clients: dict[int, RawClient] = {}

    def ask(self, node_id: int, message: Any, version: int) -> Any:
        """Return the answer of a node, or None if it does not answer."""
        client = self._clients.setdefault(node_id, RawClient(f"127.0.0.1:{self.nodes.ports[node_id]}"))
        try:
            return client.ask(message, version)
        except OSError:
            client.close()
            return None

    def wait_for_brokers(self) -> None:
        """Wait until every living node knows all living nodes."""
        alive = set(self.nodes.processes)

        def known(node_id: int) -> bool:
            found = self.ask(node_id, MetadataRequest(topics=[]), 12)
            return isinstance(found, MetadataResponse) and {broker.node_id for broker in found.brokers} >= alive

        until(lambda: all(known(node_id) for node_id in alive))

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic whose partitions have three replicas."""
        node_id = next(iter(self.nodes.processes))

        def created() -> bool:
            response = self.ask(node_id, CreateTopicsRequest([CreatableTopic(topic, partitions, 3)], timeout_ms=30_000), 7)
            codes = [one.error_code for one in response.topics] if isinstance(response, CreateTopicsResponse) else []
            return [by_code(code).name for code in codes] in (["NONE"], ["TOPIC_ALREADY_EXISTS"])

        until(created)

    def partition(self, topic: str) -> MetadataResponsePartition | None:
        """Return the first partition as a living node knows it, or None."""
        return next(iter(self.partitions(topic)), None)

    def partitions(self, topic: str) -> list[MetadataResponsePartition]:
        """Return the partitions as a living node knows them."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = self.ask(next(iter(self.nodes.processes)), request, 12)
        return found.topics[0].partitions if isinstance(found, MetadataResponse) and found.topics else []

    def produce(self, topic: str) -> bool:
        """Produce a record and return whether all in-sync replicas have acknowledged it."""
        partition = self.partition(topic)
        if partition is None or partition.leader_id not in self.nodes.processes:
            return False
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, RECORD)])])
        response = self.ask(partition.leader_id, request, 9)
        return isinstance(response, ProduceResponse) and response.responses[0].partition_responses[0].error_code == 0

    def produce_to_each(self, topic: str, missing: set[int]) -> bool:
        """Produce a record to each partition in `missing` and remove those that have acknowledged it. Return whether none is left."""
        by_leader: dict[int, list[int]] = {}
        for partition in self.partitions(topic):
            if partition.partition_index in missing and partition.leader_id in self.nodes.processes:
                by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
        for leader_id, numbers in by_leader.items():
            data = [PartitionProduceData(number, RECORD) for number in numbers]
            response = self.ask(leader_id, ProduceRequest(None, -1, 30_000, [TopicProduceData(topic, partition_data=data)]), 9)
            if isinstance(response, ProduceResponse):
                answers = response.responses[0].partition_responses
                missing.difference_update(answer.index for answer in answers if answer.error_code == 0)
        return not missing

    def controller(self) -> int:
        """Return the id of the active controller."""
        request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
        response = self.ask(next(iter(self.nodes.processes)), request, 2)
        assert isinstance(response, DescribeQuorumResponse)
        return response.topics[0].partitions[0].leader_id


def batch(count: int) -> bytes:
    """Return a batch of records of 100 B."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(time.time_ns() // 1_000_000, None, b"v" * RECORD_SIZE)
    return builder.build()


RECORD: Final = batch(1)


def until(holds: Callable[[], bool]) -> None:
    """Wait, with short pauses, until the condition is true. Raises TimeoutError after two minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(PAUSE_S)


def cpu_s(nodes: KopsNodes) -> float:
    """Return the CPU seconds of a cluster's processes since their start."""
    ticks = 0
    for process in set(nodes.processes.values()):
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_mib(nodes: KopsNodes) -> float:
    """Return the memory of a cluster's processes. Shared memory counts once."""
    kib = 0
    for process in set(nodes.processes.values()):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


class Run:
    """Both clusters, the JVM that is their client, and the answers."""

    def __init__(self, oracle: Oracle, work: Path, *, size: int, rounds: int) -> None:
        self.oracle = oracle
        self.work = work
        self.size = size
        self.rounds = rounds
        self.clusters: dict[str, KopsNodes] = {}
        self.answers: list[Answer] = []
        self._topics = 0

    def answer(self, question: str, unit: str, *, is_more_better: bool = False) -> Answer:
        """Add a row."""
        made = Answer(question, unit, is_more_better=is_more_better)
        self.answers.append(made)
        return made

    def stop(self) -> None:
        """Stop all nodes."""
        for nodes in self.clusters.values():
            nodes.__exit__()

    def turns(self, rounds: int) -> Iterable[tuple[int, str, KopsNodes]]:
        """Yield the clusters in turn. The first one changes from round to round."""
        names = list(self.clusters)
        for number in range(rounds):
            for name in names if number % 2 == 0 else reversed(names):
                yield number, name, self.clusters[name]

    def topic(self, nodes: KopsNodes) -> str:
        """Create a topic."""
        self._topics += 1
        name = f"bench-{self._topics}"
        client = Client(nodes)
        client.create_topic(name)
        until(lambda: client.produce(name))
        return name

    def cold_start(self) -> None:
        """Measure the time from the start of the nodes to the first record that all replicas have. The nodes of the last start keep
        running.
        """
        wall, cpu = self.answer("cold start to the first acks=all record", "s"), self.answer("... CPU", "CPU s")
        idle = self.answer("memory (PSS) of three nodes then", "MiB")
        for number in range(self.rounds):
            for name in ("kops", "kafka"):
                folder = self.work / f"{name}-{number}"
                folder.mkdir(parents=True)
                nodes = KopsNodes(folder) if name == "kops" else KafkaNodes(folder, java=kafka_java())
                for node_id in nodes.ids:
                    nodes.format(node_id)
                started = time.perf_counter()
                for node_id in nodes.ids:
                    nodes.start(node_id)
                self.clusters[name] = nodes
                client = Client(nodes)
                client.wait_for_brokers()
                client.create_topic("first")
                until(lambda client=client: client.produce("first"))  # type: ignore[misc]
                wall.add(name, time.perf_counter() - started)
                cpu.add(name, cpu_s(nodes))
                idle.add(name, pss_mib(nodes))
                if number < self.rounds - 1:
                    self.clusters.pop(name).__exit__()
                    shutil.rmtree(folder)

    def produce(self, batch_size: int) -> None:
        """Run Kafka's producer at full speed on one partition. The first turn of each cluster is not counted."""
        kib = batch_size // 1024
        speed = self.answer(f"produce, {kib} KiB batches", "MB/s", is_more_better=True)
        cpu = self.answer("... CPU of the nodes", "CPU s a GB")
        p50, p99 = self.answer("... p50 under this load", "ms"), self.answer("... p99", "ms")
        count = self.size // RECORD_SIZE
        for number, name, nodes in self.turns(self.rounds + 1):
            topic, before = self.topic(nodes), cpu_s(nodes)
            sent = self.perf(nodes, topic, count, batch_size)
            if number:
                speed.add(name, float(sent[3]) * MIB / 1e6)
                cpu.add(name, (cpu_s(nodes) - before) / (count * RECORD_SIZE / 1e9))
                p50.add(name, float(sent[5]))
                p99.add(name, float(sent[6]))

    def perf(self, nodes: KopsNodes, topic: str, count: int, batch_size: int) -> re.Match[str]:
        """Run ProducerPerformance and return its last line."""
        settings = (f"bootstrap.servers={nodes.bootstrap}", "acks=all", f"batch.size={batch_size}", "linger.ms=5")
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_SIZE), "--throughput", "-1"]
        ran = self.oracle.run("org.apache.kafka.tools.ProducerPerformance", [*arguments, "--producer-props", *settings])
        found = list(SENT.finditer(ran.text))
        if not found or int(found[-1][1]) != count:
            raise RuntimeError(f"producer-perf: {ran.error}\n{ran.text[-2000:]}")
        return found[-1]

    def consume(self) -> None:
        """Run Kafka's consumer, assigned to the partition, from the beginning. The first turn of each cluster is not counted."""
        speed = self.answer("consume", "MB/s", is_more_better=True)
        cpu = self.answer("... CPU of the nodes", "CPU s a GB")
        count = 4 * self.size // RECORD_SIZE
        topics = {name: self.topic(nodes) for name, nodes in self.clusters.items()}
        for name, nodes in self.clusters.items():
            self.perf(nodes, topics[name], count, 65_536)
        for number, name, nodes in self.turns(self.rounds + 1):
            before = cpu_s(nodes)
            taken = self.read(nodes, topics[name], count)
            if number:
                speed.add(name, count * RECORD_SIZE / 1e6 / taken)
                cpu.add(name, (cpu_s(nodes) - before) / (count * RECORD_SIZE / 1e9))

    def read(self, nodes: KopsNodes, topic: str, count: int) -> float:
        """Return the seconds from the first poll to the last record."""
        jvm = self.oracle.jvm
        kind = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {"bootstrap.servers": nodes.bootstrap, "key.deserializer": kind, "value.deserializer": kind, "max.poll.records": 20_000}
        settings["enable.auto.commit"] = "false"
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self.oracle.properties(settings))
        parts = jvm.java.util.List.of(jvm.org.apache.kafka.common.TopicPartition(topic, 0))
        wait = jvm.java.time.Duration.ofMillis(1000)
        try:
            consumer.assign(parts)
            consumer.seekToBeginning(parts)
            started, left = time.perf_counter(), count
            while left > 0:
                left -= consumer.poll(wait).count()
            return time.perf_counter() - started
        except Py4JJavaError as error:
            raise RuntimeError(f"consumer: {error.java_exception.toString()}") from None
        finally:
            consumer.close()

    def latency(self, seconds: int = 5) -> None:
        """Send 1,000 messages per second with librdkafka, each on its own, in short turns, so that other load on the machine affects both
        clusters.

        Both clusters are warm before. A JVM needs tens of thousands of requests of this kind, whatever it did before.
        """
        p50, p99 = (self.answer(f"latency at 1,000 messages/s, {name}", "ms") for name in ("p50", "p99"))
        rare = self.answer("... p99.9 of all turns together", "ms")
        cpu = self.answer("... CPU of the nodes", "CPU s a s")
        topics = {name: self.topic(nodes) for name, nodes in self.clusters.items()}
        for name, nodes in self.clusters.items():
            paced(nodes.bootstrap, topics[name], WARM_S)
        all_turns: dict[str, list[float]] = {name: [] for name in self.clusters}
        for _, name, nodes in self.turns(2 * self.rounds):
            before, started = cpu_s(nodes), time.perf_counter()
            taken = paced(nodes.bootstrap, topics[name], 1 + seconds)[1000:]
            cpu.add(name, (cpu_s(nodes) - before) / (time.perf_counter() - started))
            all_turns[name] += taken
            p50.add(name, quantile(taken, 0.5) * 1000)
            p99.add(name, quantile(taken, 0.99) * 1000)
        for name, taken in all_turns.items():
            rare.add(name, quantile(taken, 0.999) * 1000)

    def idle_partitions(self, count: int = 1000, seconds: int = 5) -> None:
        """Send 1,000 messages per second to a partition, alone and then among many idle partitions."""
        topics = {name: self.topic(nodes) for name, nodes in self.clusters.items()}
        for name, nodes in self.clusters.items():
            paced(nodes.bootstrap, topics[name], WARM_S)
        for where in ("alone", f"among {count} idle partitions"):
            p50, p99 = (self.answer(f"1,000 messages/s {where}, {part}", "ms") for part in ("p50", "p99"))
            cpu = self.answer("... CPU of the nodes", "CPU s a s")
            for _, name, nodes in self.turns(self.rounds):
                before, started = cpu_s(nodes), time.perf_counter()
                taken = paced(nodes.bootstrap, topics[name], 1 + seconds)[1000:]
                cpu.add(name, (cpu_s(nodes) - before) / (time.perf_counter() - started))
                p50.add(name, quantile(taken, 0.5) * 1000)
                p99.add(name, quantile(taken, 0.99) * 1000)
            for nodes in self.clusters.values() if where == "alone" else ():
                client = Client(nodes)
                client.create_topic("idle", count)
                missing = set(range(count))
                until(lambda: client.produce_to_each("idle", missing))  # noqa: B023

    def idle(self, question: str = "CPU of three idle nodes", seconds: int = 10) -> None:
        """Measure the CPU of idle nodes."""
        cpu = self.answer(question, "CPU s a s")
        before = {name: cpu_s(nodes) for name, nodes in self.clusters.items()}
        time.sleep(seconds)
        for name, nodes in self.clusters.items():
            cpu.add(name, (cpu_s(nodes) - before[name]) / seconds)

    def memory(self) -> None:
        """Measure the memory after all the work so far."""
        after = self.answer("memory (PSS) of three nodes after the load", "MiB")
        for name, nodes in self.clusters.items():
            after.add(name, pss_mib(nodes))

    def partitions(self, count: int = 1000) -> None:
        """Create a topic with many partitions. Measures the time until each has accepted a record with acks=all, and their cost after
        that.
        """
        wall, cpu = self.answer(f"{count} partitions x 3 created and written", "s"), self.answer("... CPU of the nodes", "CPU s")
        total, memory = self.answer("... memory (PSS) of the nodes with them", "MiB"), self.answer("... what they added to it", "MiB")
        for name, nodes in self.clusters.items():
            client = Client(nodes)
            before, size, started = cpu_s(nodes), pss_mib(nodes), time.perf_counter()
            client.create_topic("many", count)
            missing = set(range(count))
            until(lambda: client.produce_to_each("many", missing))  # noqa: B023
            wall.add(name, time.perf_counter() - started)
            cpu.add(name, cpu_s(nodes) - before)
            total.add(name, pss_mib(nodes))
            memory.add(name, pss_mib(nodes) - size)
        self.idle("... CPU of the idle nodes with them")

    def producers(self, count: int = 100, rounds: int = 30) -> None:
        """Produce on many connections, on each one batch of 16 KiB with acks=all after the other. The first rounds are not counted."""
        speed = self.answer(f"{count} producers at once, 16 KiB batches", "MB/s", is_more_better=True)
        slowest, cpu = self.answer("... slowest answer", "ms"), self.answer("... CPU of the nodes", "CPU s a GB")
        data = batch(16_384 // (RECORD_SIZE + 10))
        for name, nodes in self.clusters.items():
            topic = self.topic(nodes)
            partition = Client(nodes).partition(topic)
            assert partition is not None
            request = ProduceRequest(None, -1, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, data)])])
            with ExitStack() as ended:
                address = f"127.0.0.1:{nodes.ports[partition.leader_id]}"
                clients = [ended.enter_context(RawClient(address)) for _ in range(count)]
                in_turn(clients, request, 3)
                before, started = cpu_s(nodes), time.perf_counter()
                slowest.add(name, in_turn(clients, request, rounds) * 1000)
                megabytes = rounds * count * len(data) / 1e6
                speed.add(name, megabytes / (time.perf_counter() - started))
                cpu.add(name, (cpu_s(nodes) - before) / (megabytes / 1000))

    def fail_over(self) -> None:
        """Kill a leader that is not the controller with kill -9. Measures how long no record is acknowledged, and how long the node takes
        to be in sync again.
        """
        gap, back = self.answer("fail-over of a leader (kill -9)", "s"), self.answer("... in sync again after its start", "s")
        for name, nodes in self.clusters.items():
            client = Client(nodes)
            controller = client.controller()
            topic, leader = self.topic(nodes), controller
            while leader == controller:
                topic = self.topic(nodes)
                found = client.partition(topic)
                leader = controller if found is None else found.leader_id
            until(lambda: client.produce(topic))  # noqa: B023
            started = time.perf_counter()
            nodes.kill(leader)
            until(lambda: client.produce(topic))  # noqa: B023
            gap.add(name, time.perf_counter() - started)
            started = time.perf_counter()
            nodes.start(leader)
            until(lambda: len(getattr(client.partition(topic), "isr_nodes", ())) == len(nodes.ids))  # noqa: B023
            back.add(name, time.perf_counter() - started)


def in_turn(clients: Sequence[RawClient], request: ProduceRequest, rounds: int) -> float:
    """Let all clients send, and then read all answers. Return the seconds of the longest round."""
    longest = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        for client in clients:
            client.send(request, 9)
        for client in clients:
            response = client.receive()
            if not isinstance(response, ProduceResponse) or response.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"not acknowledged: {response}")
        longest = max(longest, time.perf_counter() - started)
    return longest


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which this proportion of the values lies."""
    return sorted(values)[int(len(values) * part)]


def paced(bootstrap: str, topic: str, seconds: int) -> list[float]:
    """Send 1,000 messages per second and return the seconds from produce to acknowledgement of each."""
    from confluent_kafka import KafkaError, Message, Producer

    taken: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        taken.append(message.latency())

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=PATIENCE_S)
    started = time.perf_counter()
    for number in range(seconds * 1000):
        while (left := started + number / 1000 - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(topic, b"v" * RECORD_SIZE, partition=0, on_delivery=delivered)
    producer.flush(PATIENCE_S)
    if len(taken) != seconds * 1000:
        raise RuntimeError(f"{len(taken)} of {seconds * 1000} messages were acknowledged")
    return taken


QUESTIONS: dict[str, Callable[[Run], None]] = {
    "idle": Run.idle,
    "idle-partitions": Run.idle_partitions,
    "produce-16k": lambda run: run.produce(16 * 1024),
    "produce-256k": lambda run: run.produce(256 * 1024),
    "consume": Run.consume,
    "latency": Run.latency,
    "producers": Run.producers,
    "memory": Run.memory,
    "partitions": Run.partitions,
    "fail-over": Run.fail_over,
}


def main(arguments: Sequence[str]) -> None:
    """Print the table and, with `--json`, write the figures of all rounds to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; all without")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128, help="MiB of records a turn of produce")
    parser.add_argument("--dir", type=Path, default=CACHE, help="where the nodes have their directories")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    # Keep the bytecode of modules, as an installed package does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["_JAVA_OPTIONS"] = CLIENT_JVM
    from tests.support.kafka.oracle import Oracle

    oracle = Oracle()
    del os.environ["_JAVA_OPTIONS"]
    asked.dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="cluster-", dir=asked.dir))
    run = Run(oracle, work, size=asked.size * MIB, rounds=asked.rounds)
    with oracle, ExitStack() as ended:
        ended.callback(shutil.rmtree, work)
        ended.callback(run.stop)
        print(f"{'':<44} {'kops':>10} {'kafka':>10} {'':<12} {'better':>7}  spread")
        shown = 0
        for ask in (Run.cold_start, *(QUESTIONS[name] for name in asked.questions or QUESTIONS)):
            ask(run)
            for answer in run.answers[shown:]:
                print(answer.line(), flush=True)
            shown = len(run.answers)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(answer) for answer in run.answers], indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
