"""The word count of Kafka Streams' examples with `exactly_once_v2`: its settings, its input, and a check that each count comes once."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from tests.support.kafka.kafka_jars import APPLICATIONS
from tests.support.kafka.programs.java_programs import PATIENCE_S, JavaProgram
from tests.support.nodes.librdkafka import read_to_end

INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
EACH_LINE = 5
"""Words in a line."""
GROUP = "word-count"
GROUP_SETTINGS = {
    "group.min.session.timeout.ms": 500,
    "group.streams.min.heartbeat.interval.ms": 300,
    "group.streams.heartbeat.interval.ms": 300,
    "group.streams.min.session.timeout.ms": 500,
    "group.streams.session.timeout.ms": 5000,
    "group.streams.initial.rebalance.delay.ms": 500,
}
"""Settings of the nodes with which a killed member is missed soon."""
_WORDS = ("order", "paid", "sent", "late", "lost", "found", "back")


def word_count(work: Path, bootstrap: str, protocol: str, *, replicas: int) -> JavaProgram:
    """Return the program, not started. Its state and output are below `work`."""
    settings = {
        "bootstrap.servers": bootstrap,
        "application.id": GROUP,
        "processing.guarantee": "exactly_once_v2",
        "group.protocol": protocol,
        "state.dir": work / "state",
        "replication.factor": replicas,
        "commit.interval.ms": 100,
        "consumer.session.timeout.ms": 2000,
        "consumer.heartbeat.interval.ms": 300,
        "consumer.max.poll.records": 20,
    }
    properties = work / "streams.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return JavaProgram(work, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties, jars=(APPLICATIONS,))


def random_lines(count: int) -> list[str]:
    """Return lines of random words, the same ones each time."""
    dice = random.Random(1)
    return [" ".join(dice.choices(_WORDS, k=EACH_LINE)) for _ in range(count)]


def write(bootstrap: str, lines: Iterable[str]) -> None:
    """Write lines to both partitions of the input."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, line in enumerate(lines):
        producer.produce(INPUT, line.encode(), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


def check_counts(bootstrap: str, lines: Iterable[str]) -> None:
    """Check that the output counts each word of the input from 1 to its number: no count is missing, and none comes twice."""
    seen: dict[str, list[int]] = defaultdict(list)
    for message in read_to_end(bootstrap, OUTPUT, [0]):
        seen[(message.key() or b"").decode()].append(int.from_bytes(message.value() or b"", "big"))
    expected = Counter(word for line in lines for word in line.split())
    assert dict(seen) == {word: list(range(1, count + 1)) for word, count in expected.items()}
