"""A stream of a cluster under load. The query fails, its process is killed, a broker is killed. Every committed record arrives once.

One test runs in Spark with two processes. The other needs no Spark, so restarts cost nothing and there are many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.spark.stream.tailing import Query, damages
from tests.support.corpus import PROJECT
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import WAIT_S, Acknowledged, admin, create_topic, read_all

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(900)]
SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.segment.bytes": 1_048_576,
    "min.insync.replicas": 2,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class Load(threading.Thread):
    """A thread that writes records to `orders` and transactions to `paid`, until `stop`. Every other transaction is aborted."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged = Acknowledged(bootstrap)
        self.transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "load", "transaction.timeout.ms": 60_000})
        self.paid: list[tuple[str, int, int, str]] = []
        self.stopped = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.transactional.init_transactions(WAIT_S)
            number = 0
            # It writes less as time passes, so that a stream on a busy machine reaches the end.
            while not self.stopped.wait(0.05 if number < 60 else 1):
                self.acknowledged.send("orders", 20, size=1000, mark=f"{number}-")
                self._transaction(number, commits=number % 2 == 0)
                number += 1
            self.acknowledged.flush()
        except BaseException as error:
            self.failure = error
            raise

    def _transaction(self, number: int, *, commits: bool) -> None:
        sent: list[tuple[str, int, int, str]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.append(("paid", message.partition() or 0, message.offset() or 0, (message.value() or b"").decode()))

        self.transactional.begin_transaction()
        for each in range(5):
            self.transactional.produce("paid", f"{number}-{each}-{commits}".encode(), on_delivery=delivered)
        end = self.transactional.commit_transaction if commits else self.transactional.abort_transaction
        while True:
            try:
                end(WAIT_S)
                self.paid += sent if commits else []
                return
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    end, commits = self.transactional.abort_transaction, False
                elif not error.args[0].retriable():
                    raise

    def end(self) -> None:
        """End the load after everything has been acknowledged."""
        self.stopped.set()
        self.join(WAIT_S)
        assert not self.is_alive() and self.failure is None, self.failure


class Stream:
    """The process with the query."""

    def __init__(self, log_dirs: Path, work: Path) -> None:
        self.out = work / "out"
        self.out.mkdir(exist_ok=True)
        self.log = work / "stream.log"
        command = [sys.executable, "-m", "tests.spark.stream.stream_process", str(log_dirs), str(work / "checkpoint"), str(self.out)]
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> None:
        """Kill it with kill -9, together with its JVM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)

    def batches(self) -> int:
        """Return how many micro-batches have been written."""
        return len(list(self.out.glob("*.json")))

    def rows(self) -> list[Any]:
        """Return all rows that have been written."""
        return [tuple(row) for path in sorted(self.out.glob("*.json")) for row in json.loads(path.read_text())]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds, while the stream runs."""
        deadline = time.monotonic() + 2 * WAIT_S
        while not holds():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"{self.batches()} batches, {len(self.rows())} rows\n{self.log.read_text()[-3000:]}"
            time.sleep(0.3)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[KopsNodes]:
    with KopsNodes(tmp_path / "nodes", 3, settings=SETTINGS) as started:
        for topic, partitions in (("orders", 3), ("paid", 1)):
            create_topic(started.bootstrap, topic, partitions, 3)
        yield started


@pytest.fixture
def load(nodes: KopsNodes) -> Iterator[Load]:
    load = Load(nodes.bootstrap)
    load.start()
    yield load
    load.stopped.set()
    load.join(WAIT_S)
    load.transactional.close()


def leader(nodes: KopsNodes) -> int:
    """Return the leader of a partition."""
    return int(admin(nodes.bootstrap).list_topics(timeout=WAIT_S).topics["orders"].partitions[0].leader)


def committed(nodes: KopsNodes, load: Load) -> list[Any]:
    """Return what a consumer with read_committed gets after the end of the load."""
    orders = [("orders", partition, offset, (value or b"").decode()) for partition, offset, _, value in read_all(nodes.bootstrap, "orders")]
    acknowledged = {(partition, offset) for partition, offset, _, _ in load.acknowledged.rows["orders"]}
    assert len(acknowledged) > 100 and acknowledged <= {(row[1], row[2]) for row in orders}
    assert len(load.paid) >= 10
    return sorted([*orders, *load.paid])


def test_restarts_and_a_broker_that_is_killed(nodes: KopsNodes, load: Load, tmp_path: Path) -> None:
    chance = random.Random(5)
    query = Query(tmp_path / "nodes" / "node-*", subscribe="orders,paid", isolation="read_committed", maxOffsetsPerTrigger="200")
    deadline = time.monotonic() + 2 * WAIT_S

    def read_until(rows: int) -> None:
        while len(query.rows) < rows:
            query.batch(commits=chance.random() < 0.7)
            if chance.random() < 0.2:
                query.restart()
            assert time.monotonic() < deadline and load.failure is None, (len(query.rows), rows, load.failure)

    read_until(300)
    victim = leader(nodes)
    nodes.kill(victim)
    read_until(len(query.rows) + 300)
    nodes.start(victim)
    read_until(len(query.rows) + 100)
    load.end()
    expected = committed(nodes, load)
    read_until(len(expected))
    assert damages(query.rows) == []
    assert sorted((row["topic"], row["partition"], row["offset"], row["value"].decode()) for row in query.rows) == expected


def test_a_query_and_a_process_that_are_killed(nodes: KopsNodes, load: Load, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "nodes" / "node-*", tmp_path)
    try:
        stream.until(lambda: stream.batches() >= 2)
        stream.kill()
        nodes.kill(victim := leader(nodes))
        seen = stream.batches()
        stream = Stream(tmp_path / "nodes" / "node-*", tmp_path)
        stream.until(lambda: stream.batches() > seen)
        nodes.start(victim)
        load.end()
        expected = committed(nodes, load)
        stream.until(lambda: len(stream.rows()) >= len(expected))
    finally:
        stream.kill()
    found = stream.rows()
    assert [row for row in found if row[4] is not None] == []
    assert sorted(row[:4] for row in found) == expected
    assert (stream.out / "failed").exists()
