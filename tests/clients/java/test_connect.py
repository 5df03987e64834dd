"""Kafka Connect 4.3.0 on three nodes. A distributed worker copies a file into a topic, exactly once, and the topic into another file.

The worker is killed in the middle of its work. A source is exactly once (KIP-618); a sink writes uncommitted records again.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.kafka_jars import APPLICATIONS, BROKER
from tests.support.kafka.programs.java_programs import JavaProgram
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import CommittedCount, create_topic, read_to_end
from tests.support.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.java]

SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "group.min.session.timeout.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
TOPIC = "lines"
COUNT = 1500
PATIENCE_S = 60


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide a cluster for the tests of this module."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings=SETTINGS) as nodes:
        yield nodes


class Worker(JavaProgram):
    """A distributed worker and its REST interface."""

    def __init__(self, work: Path, nodes: KopsNodes) -> None:
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        settings: dict[str, object] = {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "copying",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": self.address,
            "plugin.discovery": "service_load",
            "consumer.isolation.level": "read_committed",
            "offset.flush.interval.ms": 300,
            "offset.storage.partitions": 2,
            "status.storage.partitions": 2,
            # A killed worker is soon given up, and its tasks do not wait for it.
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "consumer.session.timeout.ms": 2000,
            "consumer.heartbeat.interval.ms": 300,
            "scheduled.rebalance.max.delay.ms": 0,
            # A worker that starts reads the offsets to their end. So it waits for the transaction that the killed one has left open.
            "producer.transaction.timeout.ms": 3000,
        }
        for name in ("offset", "config", "status"):
            settings |= {f"{name}.storage.topic": f"connect-{name}", f"{name}.storage.replication.factor": 3}
        properties = work / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        super().__init__(work, "org.apache.kafka.connect.cli.ConnectDistributed", properties, jars=(BROKER, APPLICATIONS))

    def ask(self, path: str, body: dict[str, object] | None = None) -> Any:
        """Send GET, or PUT with a body. Return None if the worker does not answer yet, or cannot answer now."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data, {"Content-Type": "application/json"}, method="GET" if data is None else "PUT"
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            assert error.code in (404, 409, 500, 503), error.read()  # it starts, or rebalances
            return None
        except (urllib.error.URLError, ConnectionError):
            return None

    def runs(self, connector: str) -> bool:
        """Return whether a connector and its task run."""
        status = self.ask(f"/connectors/{connector}/status") or {"tasks": []}
        return [task["state"] for task in status["tasks"]] == ["RUNNING"] and status["connector"]["state"] == "RUNNING"


def test_a_file_is_copied_once(nodes: KopsNodes, tmp_path: Path) -> None:
    """Each line is in the topic once and in order, and in the sink's file."""
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    # The source holds back a kilobyte until more comes after it, so the last lines may never be in the topic.
    lines = [f"line {number}" for number in range(COUNT + 200)]
    source.write_text("".join(f"{line}\n" for line in lines[:1000]))
    create_topic(nodes.bootstrap, TOPIC, 1, 3)
    seen = CommittedCount(nodes.bootstrap, TOPIC)
    with Worker(tmp_path, nodes) as worker:
        worker.until(lambda: worker.ask("/connectors") == [])
        made = {"connector.class": "FileStreamSource", "file": str(source), "topic": TOPIC, "batch.size": 20, "tasks.max": 1}
        made |= {"exactly.once.support": "required", "transaction.boundary": "poll"}
        worker.until(lambda: worker.ask("/connectors/source/config", made) is not None)
        copied = {"connector.class": "FileStreamSink", "file": str(sink), "topics": TOPIC, "tasks.max": 1}
        worker.until(lambda: worker.ask("/connectors/sink/config", copied) is not None)
        worker.until(lambda: seen.so_far() > 200)
        worker.kill()
        assert seen.so_far() < COUNT
        with open(source, "a") as file:
            file.writelines(f"{line}\n" for line in lines[1000:])
        worker.start()
        worker.until(lambda: seen.so_far() >= COUNT)
        worker.until(lambda: lines[COUNT - 1] in sink.read_text().splitlines())
        worker.until(lambda: worker.runs("source") and worker.runs("sink"))
        assert worker.stop() == 143  # Java's exit code after a hook that SIGTERM has started
    seen.close()
    found = [(message.value() or b"").decode() for message in read_to_end(nodes.bootstrap, TOPIC, [0])]
    assert found == lines[: len(found)] and len(found) >= COUNT
    assert list(dict.fromkeys(sink.read_text().splitlines()))[:COUNT] == lines[:COUNT]
