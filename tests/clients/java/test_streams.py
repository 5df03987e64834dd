"""Kafka Streams 4.3.0 on three nodes: its word count, exactly once, although it and a coordinator are killed in the middle of the work."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.kafka.kafka_jars import APPLICATIONS
from tests.support.kafka.programs.java_programs import JavaProgram
from tests.support.kafka.programs.share_scenarios import coordinator_of
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import CommittedCount, create_topic, read_to_end

pytestmark = [pytest.mark.slow, pytest.mark.java]

INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
WORDS = ("order", "paid", "sent", "late", "lost", "found", "back")
PATIENCE_S = 120
SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "group.min.session.timeout.ms": 500,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "group.streams.min.heartbeat.interval.ms": 300,
    "group.streams.heartbeat.interval.ms": 300,
    "group.streams.min.session.timeout.ms": 500,
    "group.streams.session.timeout.ms": 2000,
    "group.streams.initial.rebalance.delay.ms": 500,
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[KopsNodes]:
    """Provide a cluster for one test, because the program's topics have fixed names."""
    (tmp_path / "nodes").mkdir()
    with KopsNodes(tmp_path / "nodes", settings=SETTINGS) as nodes:
        yield nodes


def write(bootstrap: str, lines: list[str]) -> Counter[str]:
    """Write lines to the input. Return how often each word is in them."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, line in enumerate(lines):
        producer.produce(INPUT, line.encode(), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return Counter(word for line in lines for word in line.split())


def coordinator(nodes: KopsNodes, group: str) -> int:
    """Return the node that coordinates a group."""
    port = int(coordinator_of(nodes.bootstrap, group).rpartition(":")[2])
    return next(node_id for node_id, own in nodes.ports.items() if own == port)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_word_count_exactly_once(nodes: KopsNodes, tmp_path: Path, protocol: str) -> None:
    """Each word is counted from 1 to its number. No count is missing, and none comes twice. A streams group also loses its coordinator."""
    for topic, partitions in ((INPUT, 2), (OUTPUT, 1)):
        create_topic(nodes.bootstrap, topic, partitions, 3)
    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "application.id": "word-count",
        "processing.guarantee": "exactly_once_v2",
        "group.protocol": protocol,
        "state.dir": tmp_path / "state",
        "replication.factor": 3,
        "commit.interval.ms": 100,
        "consumer.session.timeout.ms": 2000,
        "consumer.heartbeat.interval.ms": 300,
        "consumer.max.poll.records": 20,
    }
    properties = tmp_path / "streams.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    dice = random.Random(1)
    lines = [" ".join(dice.choices(WORDS, k=5)) for _ in range(1000)]
    counts = CommittedCount(nodes.bootstrap, OUTPUT)
    with JavaProgram(tmp_path, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties, jars=(APPLICATIONS,)) as program:
        expected = write(nodes.bootstrap, lines[:600])
        program.until(lambda: counts.so_far() > 300)
        program.kill()
        assert counts.so_far() < 5 * len(lines)
        expected += write(nodes.bootstrap, lines[600:])
        before = counts.so_far()
        program.start()
        if protocol == "streams":
            program.until(lambda: counts.so_far() > before)
            nodes.kill(coordinator(nodes, "word-count"))
        program.until(lambda: counts.so_far() >= 5 * len(lines))
        assert program.stop() == 143  # Java's exit code after a hook that SIGTERM has started
    counts.close()
    seen: dict[str, list[int]] = defaultdict(list)
    for message in read_to_end(nodes.bootstrap, OUTPUT, [0]):
        seen[(message.key() or b"").decode()].append(int.from_bytes(message.value() or b"", "big"))
    assert dict(seen) == {word: list(range(1, count + 1)) for word, count in expected.items()}
