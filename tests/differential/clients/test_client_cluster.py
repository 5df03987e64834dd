"""kops's client on three nodes of Apache Kafka 4.3.0: a leader that is killed under load, descriptions of replicas, reassignments,
elections.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.cli.main import main
from tests.cli.conftest import PROJECT
from tests.differential.conftest import RealThree
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes.kops_nodes import KopsNodes

pytestmark = pytest.mark.slow
COUNT, TIMEOUT_S = 20_000, 180


class Cluster:
    """Three real nodes, and kops's commands on them."""

    def __init__(self, nodes: KopsNodes, real: RealCluster, capsys: pytest.CaptureFixture[bytes]) -> None:
        self.nodes = nodes
        self.real = real
        self._capsys = capsys

    def on(self, *arguments: str, code: int = 0) -> bytes:
        """Run a command, and return its output."""
        ended = main([*arguments, "-b", self.nodes.bootstrap])
        captured = self._capsys.readouterr()
        assert ended == code, captured.out + captured.err
        return captured.out

    def code(self, *arguments: str) -> int:
        """Return the exit code of a command."""
        ended = main([*arguments, "-b", self.nodes.bootstrap])
        self._capsys.readouterr()
        return ended

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.on(*arguments, "--format", "jsonl").splitlines()]

    def picked(self, names: list[str], *arguments: str) -> list[dict[str, Any]]:
        """Return some fields of the rows."""
        return [{name: row[name] for name in names} for row in self.rows(*arguments)]

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        (document,) = json.loads(self.on("topic", "describe", topic, "--format", "json"))["topics"]
        found: list[dict[str, Any]] = document["partitions"]
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.3)


def test_three_nodes_of_kafka(oracle: Oracle, real_three: RealThree, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    cluster = Cluster(real_three.nodes, real_three.cluster, capsysbinary)
    cluster.on("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    quorum = json.loads(cluster.on("quorum", "describe", "--format", "json"))
    assert sorted(quorum["voters"]) == [1, 2, 3]
    same_facts(cluster, KafkaTools(oracle))
    killed = kill_a_leader_under_load(cluster)
    expected = [{"partition": index, "not_in_sync": [killed]} for index in range(6)]
    cluster.until(lambda: cluster.picked(["partition", "not_in_sync"], "partition", "under-replicated", "orders") == expected)
    same_facts(cluster, KafkaTools(oracle))
    bring_back(cluster, killed)
    move(cluster, tmp_path)
    cluster.on("topic", "delete", "orders", "small")
    cluster.until(lambda: cluster.rows("topic", "list") == [])


def same_facts(cluster: Cluster, tools: KafkaTools) -> None:
    """Check that kafka-topics and kops report the same, as soon as the brokers that they ask know the same."""
    ask = ("topics", "--bootstrap-server", cluster.nodes.bootstrap, "--describe")
    pattern = r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)\s+Elr: ?(\S*)\s+LastKnownElr: ?(\S*)"

    def agree() -> bool:
        theirs = re.findall(pattern, tools.run(*ask, "--topic", "orders"))
        ours = [
            tuple(",".join(map(str, one[name])) if isinstance(one[name], list) else str(one[name]) for name in FIELDS)
            for one in cluster.partitions("orders")
        ]
        count = len(re.findall("Partition:", tools.run(*ask, "--under-replicated-partitions")))
        return len(theirs) == 6 and theirs == ours and count == len(cluster.rows("partition", "under-replicated"))

    cluster.until(agree)


FIELDS = ("partition", "leader", "replicas", "isr", "elr", "last_known_elr")


def kill_a_leader_under_load(cluster: Cluster) -> int:
    """Kill a node while records are written. Each record must be there once, in its partition's order. Return the killed node."""
    victim: int = cluster.partitions("orders")[0]["leader"]
    command = [sys.executable, "-m", "kops", "topic", "produce", "orders", "-b", cluster.nodes.bootstrap, "--format", "jsonl"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(COUNT):
            process.stdin.write(b"%d\n" % number)
            if number == COUNT // 3:
                process.stdin.flush()
                node = next(node for node in cluster.real.nodes if node.properties.stem == str(victim))
                node.kill()
        process.stdin.close()
        said = process.stdout.read()
        assert process.wait(TIMEOUT_S) == 0, said
    records = [
        json.loads(line)
        for line in cluster.on("topic", "consume", "orders", "--from-beginning", "-e", "--value-encoding", "utf8").splitlines()
    ]
    assert sorted(int(record["value"]) for record in records) == list(range(COUNT))
    for partition in range(6):
        values = [int(record["value"]) for record in records if record["partition"] == partition]
        assert values == sorted(values)
    return victim


def bring_back(cluster: Cluster, node_id: int) -> None:
    node = next(node for node in cluster.real.nodes if node.properties.stem == str(node_id))
    node.start()
    cluster.until(lambda: not cluster.rows("partition", "under-replicated"))
    cluster.rows("partition", "elect", "--all-topic-partitions")
    cluster.until(lambda: all(one["leader"] == one["replicas"][0] for one in cluster.partitions("orders")))


def move(cluster: Cluster, folder: Path) -> None:
    """Move partitions to two brokers with a throttle, which must be gone afterwards. Cancel another move."""
    plan = str(folder / "plan.json")
    cluster.on("topic", "create", "small", "--replica-assignment", "1:2,2:1")
    text = {"version": 1, "partitions": [{"topic": "small", "partition": one, "replicas": [3, 1]} for one in (0, 1)]}
    Path(plan).write_text(json.dumps(text))
    cluster.on("partition", "reassign", "execute", "-f", plan, "--throttle", "100000")
    # A broker that lags behind the controller still reports the old replicas for a moment. verify then exits with 1, because no move is
    # under way.
    cluster.until(lambda: cluster.code("partition", "reassign", "verify", "-f", plan) == 0)
    cluster.until(lambda: {row["state"] for row in cluster.rows("partition", "reassign", "verify", "-f", plan)} == {"completed"})
    cluster.until(lambda: [one["replicas"] for one in cluster.partitions("small")] == [[3, 1], [3, 1]])

    def settings() -> object:
        (document,) = json.loads(cluster.on("topic", "describe", "small", "--format", "json"))["topics"]
        return document["overrides"]

    cluster.until(lambda: settings() == {})
    assert cluster.rows("partition", "reassign", "list") == []
