"""Records of a topic through Spark: by kops from the files of a broker, and by Spark's own Kafka connector from that broker.

    python -m tests.bench.connector MIB MASTER ROUNDS

A real broker of Apache Kafka has the topic, with four partitions: 100 B values in batches of 16 KiB, from Kafka's producer-perf-test. kops
reads its files by `kops.spark.records` and by `format("kafkalog")`. All give the same seven columns to Spark's `noop` sink, by turns, in
one warm session with the settings of kops; the connector has its own defaults. The CPU is that of the driver, its JVM and the Python
workers. The broker's is told separately: it works only for the connector.

Prints one JSON list: for each source (name, CPU seconds, wall seconds, CPU seconds of the broker, records). Each run is told on stderr.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from kops.spark import records, register, spark_session
from tests.bench.spark import TICK, WARM, tree_cpu_s
from tests.support.kafka.kafka_jars import CONNECTOR, CONNECTOR_VERSION, kafka_jars
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

TOPIC: Final = "bench"
PARTITIONS: Final = 4
RECORD_SIZE: Final = 100
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
SCHEMA: Final = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
"""Spark does not tell a source in Python which columns are selected, so the schema does."""


def fill(oracle: Oracle, broker: RealBroker, count: int) -> None:
    """Create the topic and send the records."""
    oracle.create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
    arguments = ["--topic", TOPIC, "--num-records", str(count), "--record-size", str(RECORD_SIZE), "--throughput", "-1"]
    settings = (f"bootstrap.servers={broker.bootstrap}", "acks=all", "batch.size=16384", "linger.ms=5")
    ran = oracle.run("org.apache.kafka.tools.ProducerPerformance", [*arguments, "--producer-props", *settings])
    if f"{count} records sent" not in ran.text:
        raise RuntimeError(f"producer-perf: {ran.error}\n{ran.text[-2000:]}")


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of one process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / TICK


def measured(work: Callable[[], object], broker: int) -> tuple[float, float, float]:
    """Return the CPU seconds of Spark, wall seconds, and CPU seconds of the broker."""
    ours, theirs, started = tree_cpu_s(broker), process_cpu_s(broker), time.perf_counter()
    work()
    wall = time.perf_counter() - started
    return tree_cpu_s(broker) - ours, wall, process_cpu_s(broker) - theirs


def compare(spark: Any, broker: RealBroker, folder: Path, count: int, rounds: int) -> list[tuple[str, float, float, float, int]]:
    """Read the topic by turns."""
    register(spark)
    connector = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    frames = {
        "kops.spark.records": records(spark, [str(path) for path in folder.glob(f"{TOPIC}-*")], COLUMNS),
        "kafkalog": spark.read.format("kafkalog").schema(SCHEMA).load(f"{folder}/{TOPIC}-*"),
        "Spark's connector": connector.option("subscribe", TOPIC).load(),
    }
    assert broker.process is not None
    work: dict[str, Callable[[], object]] = {}
    for name, frame in frames.items():
        found = frame.count()
        if found != count:
            raise RuntimeError(f"{name}: {found} records of {count}")
        work[name] = partial(frame.select(*COLUMNS).write.format("noop").mode("overwrite").save)
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in work}
    for number in range(WARM + rounds):
        for name, each in work.items():
            figures = measured(each, broker.process.pid)
            print(number, name, *(f"{value:.2f}" for value in figures), file=sys.stderr, flush=True)
            if number >= WARM:
                taken[name].append(figures)
    medians = {name: [statistics.median(values) for values in zip(*runs, strict=True)] for name, runs in taken.items()}
    return [(name, cpu, wall, of_broker, count) for name, (cpu, wall, of_broker) in medians.items()]


def main() -> None:
    """Start the broker, fill it, and compare."""
    size, master, rounds = int(sys.argv[1]) << 20, sys.argv[2], int(sys.argv[3])
    count = size // RECORD_SIZE
    jars = ",".join(str(path) for path in sorted(kafka_jars(CONNECTOR_VERSION, CONNECTOR).glob("*.jar")))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "disk"
        with Oracle() as oracle, RealBroker(oracle, Path(temporary) / "run", log_dirs=[folder], heap="1g") as broker:
            fill(oracle, broker, count)
            spark = spark_session(master, settings={"spark.driver.memory": "2g", "spark.jars": jars})
            figures = compare(spark, broker, folder, count, rounds)
            spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
