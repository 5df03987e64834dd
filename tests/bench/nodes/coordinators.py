"""Groups and transactions on three kops brokers and on three nodes of Apache Kafka 4.3.0, measured with the same questions in one run:
`python -m tests.bench.nodes.coordinators [--rounds N] [--seconds S] [--warm S] [--groups N] [--embedded] [--only NAME] [--dir DIR]
[--json FILE] [QUESTION…]`.

The nodes are those of `tests.bench.cluster`. The internal topics have their defaults: 50 partitions, three replicas. All clients are
Kafka's own, in one JVM for all clusters (`CoordinatorClient.java` in this directory, which java compiles when it starts). It is warm
before the first turn that counts. Clusters take turns, and the CPU is that of the three nodes. With `--embedded` there is a third cluster,
`kops.Cluster` in a process of its own, with the same settings and the others as it makes them.

`replay` measures how long a single node needs to load a partition of `__consumer_offsets` with a million commits. The partition is copied
into the node's directory while the node is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from kops.environment import find_java
from tests.bench.cluster import PATIENCE_S, RECORD_SIZE, Answer, Client, cpu_s, kafka_java, pss_mib, until
from tests.bench.data import CACHE
from tests.bench.nodes.ack_latency import usage
from tests.bench.nodes.embedded_cluster import EmbeddedCluster
from tests.bench.nodes.idle_members import SESSION_MS, IdleMembers
from tests.bench.nodes.offsets_log import COMMITS, load_figures, offline_figures
from tests.support.kafka.kafka_jars import kafka_jars
from tests.support.kafka.kafka_nodes import KafkaNodes
from tests.support.nodes.kops_nodes import KopsNodes

SOURCE: Final = Path(__file__).with_name("CoordinatorClient.java")
INTERNAL_TOPICS: Final = {
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 50,
}
DEFAULT_DELAY_MS: Final = 3000
SESSIONS: Final = {"group.consumer.session.timeout.ms": SESSION_MS, "group.consumer.max.session.timeout.ms": SESSION_MS}
KINDS: Final[Mapping[str, Callable[[Path, Mapping[str, object]], KopsNodes]]] = {
    "kops": lambda folder, settings: KopsNodes(folder, settings=settings),
    "kafka": lambda folder, settings: KafkaNodes(folder, settings=settings, java=kafka_java()),
    "embedded": lambda folder, settings: EmbeddedCluster(folder, settings=settings),
}
PROTOCOLS: Final = ("classic", "consumer")
MEMBERS: Final = 3
BATCH_RECORDS: Final = 150


class JavaClient:
    """The JVM with Kafka's clients. `heap` must be enough for a thousand consumers."""

    def __init__(self, heap: str = "4g", *options: str) -> None:
        command = [
            str(find_java().java),
            f"-Xmx{heap}",
            *options,
            "-Xss256k",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ]
        self._process = subprocess.Popen(
            [*command, "-cp", f"{kafka_jars()}/*", str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: object) -> list[float]:
        """Run a command and return its figures. Raises RuntimeError with the output of Kafka's client."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.startswith("ok "):
            raise RuntimeError(f"{words}: {line or 'the JVM has ended'}")
        return [float(word) for word in line.split()[1:]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class Run:
    """The clusters, their client, and the answers. With `only`, just this cluster runs, for example under a profiler."""

    def __init__(
        self,
        client: JavaClient,
        work: Path,
        *,
        rounds: int,
        seconds: float,
        warm_s: float = 20,
        idle_groups: int = 100,
        only: str | None = None,
        embedded: bool = False,
    ) -> None:
        self.client = client
        self.work = work
        self.rounds = rounds
        self.seconds = seconds
        self.warm_s = warm_s
        self.idle_groups = idle_groups
        self.names = [only] if only else [name for name in KINDS if name != "embedded" or embedded]
        self.clusters: dict[str, KopsNodes] = {}
        self.answers: list[Answer] = []
        self._delay_ms: int | None = None
        self._made = 0

    def start(self, delay_ms: int) -> None:
        """Start three nodes of each kind with this `group.initial.rebalance.delay.ms`, on empty directories. Stops the nodes that were
        running before.
        """
        if self._delay_ms == delay_ms:
            return
        self.stop()
        self._delay_ms = delay_ms
        settings: Mapping[str, object] = {**INTERNAL_TOPICS, **SESSIONS, "group.initial.rebalance.delay.ms": delay_ms}
        for name in self.names:
            folder = self.work / f"{name}-{delay_ms}"
            folder.mkdir(parents=True)
            nodes = self.clusters[name] = KINDS[name](folder, settings)
            for node_id in nodes.ids:
                nodes.start(node_id)
        for name, nodes in self.clusters.items():
            Client(nodes).wait_for_brokers()
            # This creates the internal topics and sends each kind of request to the JVMs.
            for protocol in PROTOCOLS:
                self.join(name, protocol)
            self.transactions_of(name, 1, 1)

    def stop(self) -> None:
        """Stop all nodes."""
        for nodes in self.clusters.values():
            nodes.__exit__()
        self.clusters.clear()

    def show_logs(self, lines: int = 40) -> None:
        """Print the ends of the nodes' logs, because their directory is removed after an error."""
        for path in sorted(self.work.rglob("*.out")):
            ends = path.read_text(errors="replace").splitlines()[-lines:]
            print(f"== {path.relative_to(self.work)}", *ends, sep="\n", file=sys.stderr)

    def answer(self, question: str, unit: str, *, is_more_better: bool = False) -> Answer:
        """Add a row."""
        made = Answer(question, unit, is_more_better=is_more_better)
        self.answers.append(made)
        return made

    def turns(self, rounds: int) -> list[tuple[int, str, KopsNodes]]:
        """Return the clusters in turn. The first one changes from round to round."""
        names = list(self.clusters)
        return [(number, name, self.clusters[name]) for number in range(rounds) for name in (names if number % 2 == 0 else reversed(names))]

    def new_name(self, kind: str) -> str:
        """Return an unused name."""
        self._made += 1
        return f"{kind}-{self._made}"

    def topic(self, nodes: KopsNodes, partitions: int = 1) -> str:
        """Create a topic."""
        name, client = self.new_name("topic"), Client(nodes)
        client.create_topic(name, partitions)
        missing = set(range(partitions))
        until(lambda: client.produce_to_each(name, missing))
        return name

    # questions --------------------------------------------------------------------------------------------------------------------

    def transactions_of(self, name: str, producers: int, seconds: float) -> list[float]:
        """Return the transactions per second and the p50 and p99 of a commit."""
        nodes = self.clusters[name]
        return self.client.ask("transactions", nodes.bootstrap, self.topic(nodes), self.new_name("id"), producers, seconds)

    def transactions(self, producers: int) -> None:
        """Run transactions of 10 records of 100 B with acks=all, as many as possible."""
        self.start(0)
        who = "one producer" if producers == 1 else f"{producers} producers"
        rate = self.answer(f"transactions of 10 x 100 B, {who}", "1/s", is_more_better=True)
        p50, p99 = self.answer("... p50 of a commit", "ms"), self.answer("... p99", "ms")
        cpu = self.answer("... CPU of the nodes", "ms each")
        for name in self.clusters:
            self.transactions_of(name, producers, self.warm_s)
        for _, name, nodes in self.turns(self.rounds):
            before = usage(nodes)[0]
            found = self.transactions_of(name, producers, self.seconds)
            for row, value in zip((rate, p50, p99), found, strict=True):
                row.add(name, value)
            cpu.add(name, (usage(nodes)[0] - before) / 1e6 / max(found[0] * self.seconds, 1))

    def join(self, name: str, protocol: str) -> float:
        """Return the milliseconds until each of three members of a new group has a partition."""
        nodes = self.clusters[name]
        topic = self.topic(nodes, MEMBERS)
        return self.client.ask("join", nodes.bootstrap, topic, self.new_name("group"), protocol, MEMBERS, MEMBERS)[0]

    def joins(self, delay_ms: int) -> None:
        """Let three consumers join a group at the same time."""
        self.start(delay_ms)
        for protocol in PROTOCOLS:
            row = self.answer(f"three consumers join, {protocol}, initial delay {delay_ms} ms", "ms")
            for number, name, _ in self.turns(2 * self.rounds + 1):
                taken = self.join(name, protocol)
                if number:
                    row.add(name, taken)

    def consume(self, count: int = 2_000_000, times: int = 6) -> None:
        """Let a consumer subscribe to a topic and read `count` records from its beginning, and again, because one reading takes half a
        second and differs by a third from the next. Records that are not read keep its last fetch from waiting for more."""
        self.start(0)
        topics = {name: self.topic(nodes) for name, nodes in self.clusters.items()}
        for name, nodes in self.clusters.items():
            fill(nodes, topics[name], count + count // 20)
        for protocol in PROTOCOLS:
            row = self.answer(f"a consumer of a group, {protocol}", "records/s", is_more_better=True)
            seen = [self.answer("... its fetches", ""), self.answer("... its mean wait for one", "ms"), self.answer("... mean size", "B")]
            cpu = self.answer("... CPU of the nodes", "ms")
            for number, name, nodes in self.turns(self.rounds + 1):
                before = usage(nodes)[0]
                found = self.client.ask("consume", nodes.bootstrap, topics[name], self.new_name("group"), protocol, count, times)
                if number:
                    for each, value in zip((row, *seen), found, strict=True):
                        each.add(name, value)
                    cpu.add(name, (usage(nodes)[0] - before) / 1e6)

    def commits(self, groups: int = 50) -> None:
        """Let groups commit an offset, and the next one as soon as it is committed."""
        self.start(0)
        rate = self.answer(f"commits of {groups} groups", "1/s", is_more_better=True)
        p50, p99 = self.answer("... p50 of a commit", "ms"), self.answer("... p99", "ms")
        cpu = self.answer("... CPU of the nodes", "ms each")
        topics = {name: self.topic(nodes) for name, nodes in self.clusters.items()}
        for name, nodes in self.clusters.items():
            self.client.ask("commits", nodes.bootstrap, topics[name], self.new_name("group"), groups, self.warm_s)
        for _, name, nodes in self.turns(self.rounds):
            before = usage(nodes)[0]
            found = self.client.ask("commits", nodes.bootstrap, topics[name], self.new_name("group"), groups, self.seconds)
            for row, value in zip((rate, p50, p99), found, strict=True):
                row.add(name, value)
            cpu.add(name, (usage(nodes)[0] - before) / 1e6 / max(found[0] * self.seconds, 1))

    def idle(self, members: int = 10) -> None:
        """Measure what the heartbeats of idle groups, at the default intervals, cost the nodes."""
        self.start(DEFAULT_DELAY_MS)
        groups = self.idle_groups
        spans = max(self.seconds, 20)
        without = self.answer("CPU of the nodes without groups", "% of a core")
        time.sleep(self.warm_s)  # The first seconds of a node cost more than the others.
        for name, nodes in self.clusters.items():
            without.add(name, idle_percent(nodes, lambda: time.sleep(spans)))
        for protocol in PROTOCOLS:
            row = self.answer(f"... what {groups} idle groups x {members} add, {protocol}", "% of a core")
            for name, nodes in self.clusters.items():
                topic = self.topic(nodes, members)
                with IdleMembers(nodes, topic, self.new_name("group"), protocol, groups, members) as idle:
                    idle.beat(self.warm_s)
                    for _ in range(self.rounds):
                        row.add(name, idle_percent(nodes, lambda: idle.beat(spans)) - without.figures[name][0])

    def replay(self) -> None:
        """Load a partition of `__consumer_offsets` with a million commits."""
        wall = self.answer(f"a node loads {COMMITS:,} commits", "s")
        cpu, memory = self.answer("... its CPU, with its start", "CPU s"), self.answer("... its memory (PSS) then", "MiB")
        for _ in range(self.rounds):
            for name in self.names:
                if name == "embedded":  # the question is about a single node
                    continue
                folder = self.work / self.new_name(f"{name}-replay")
                folder.mkdir()
                nodes = KopsNodes(folder, 1) if name == "kops" else KafkaNodes(folder, 1, java=kafka_java())
                with ExitStack() as ended:
                    ended.callback(nodes.__exit__)
                    wall.add(name, load_figures(nodes))
                    cpu.add(name, cpu_s(nodes))
                    memory.add(name, pss_mib(nodes))
                shutil.rmtree(folder)
        offline, cpu = self.answer("... kops log offsets", "s"), self.answer("... its CPU", "CPU s")
        peak = self.answer("... its memory", "MiB")
        for _ in range(self.rounds):
            taken, taken_cpu, mib = offline_figures()
            offline.add("kops", taken)
            cpu.add("kops", taken_cpu)
            peak.add("kops", mib)


def fill(nodes: KopsNodes, topic: str, count: int) -> None:
    """Write records of 100 B in batches of the same size to both clusters: 16 KiB, as a Java producer fills them.

    Without a limit the faster of two clusters gets smaller batches. A fetch of 1 MiB that ends within a large one sends a part in vain.
    """
    from confluent_kafka import Producer

    batches = {"batch.num.messages": BATCH_RECORDS, "linger.ms": 5000}
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "queue.buffering.max.messages": 200_000, **batches})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, b"v" * RECORD_SIZE, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(PATIENCE_S):
        raise RuntimeError("not all records were acknowledged")


def idle_percent(nodes: KopsNodes, wait: Callable[[], object]) -> float:
    """Return the CPU of the nodes while something runs, in per cent of a core."""
    before, started = usage(nodes)[0], time.perf_counter()
    wait()
    return (usage(nodes)[0] - before) / 1e7 / (time.perf_counter() - started)


def line(answer: Answer) -> str:
    """Return the line of an answer, even if only one cluster has figures. The embedded cluster is compared with Kafka's, too."""
    if {"kops", "kafka"} <= answer.figures.keys():
        if "embedded" not in answer.figures:
            return answer.line()
        embedded, kafka = (statistics.median(answer.figures[name]) for name in ("embedded", "kafka"))
        better = embedded / kafka if answer.is_more_better else kafka / embedded
        return f"{answer.line()}; embedded {embedded:.4g} {better:.2f}x"
    return f"{answer.question:<52} " + ", ".join(f"{name} {statistics.median(each):.4g}" for name, each in answer.figures.items())


QUESTIONS: dict[str, Callable[[Run], None]] = {
    "join-delayed": lambda run: run.joins(DEFAULT_DELAY_MS),
    "join": lambda run: run.joins(0),
    "transactions": lambda run: run.transactions(1),
    "transactions-10": lambda run: run.transactions(10),
    "commits": Run.commits,
    "consume": Run.consume,
    "idle": Run.idle,
    "replay": Run.replay,
}


def main(arguments: Sequence[str]) -> None:
    """Print the table and, with `--json`, write the figures of all rounds to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; all without")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of a turn")
    parser.add_argument("--warm", type=float, default=20, help="seconds before the first turn that counts")
    parser.add_argument("--groups", type=int, default=100, help="groups of ten that are idle")
    parser.add_argument("--only", choices=tuple(KINDS), help="one of the clusters")
    parser.add_argument("--embedded", action="store_true", help="kops.Cluster in one process, as a third cluster")
    parser.add_argument("--dir", type=Path, default=CACHE, help="where the nodes have their directories")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    # Keep the bytecode of modules, as an installed package does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the nodes end, too
    asked.dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="coordinators-", dir=asked.dir))
    with ExitStack() as ended:
        ended.callback(shutil.rmtree, work)
        run = Run(
            ended.enter_context(JavaClient()),
            work,
            rounds=asked.rounds,
            seconds=asked.seconds,
            warm_s=asked.warm,
            idle_groups=asked.groups,
            only=asked.only,
            embedded=asked.embedded,
        )
        ended.callback(run.stop)
        print(f"{time.strftime('%Y-%m-%d %H:%M')}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        shown = 0
        for name in asked.questions or QUESTIONS:
            try:
                QUESTIONS[name](run)
            except RuntimeError:
                run.show_logs()
                raise
            for answer in run.answers[shown:]:
                print(line(answer), flush=True)
            shown = len(run.answers)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(answer) for answer in run.answers], indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
