"""Kafka 4.3.0's tools for groups on three nodes of kops and on three of Apache Kafka: the same text, ids and times masked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.clients.test_tools import Scenario, comparable
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes.kops_nodes import KopsNodes

MASKS = [
    (re.compile(r"[\w.]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "member"),
    (re.compile(r" +"), " "),
    (re.compile(r"broker-\d \(\d\)"), "coordinator"),
]


def groups(scenario: Scenario) -> None:
    """kafka-console-consumer in a group, kafka-consumer-groups."""
    run = scenario.run
    run("topics", "--create", "--topic", "paid", "--replica-assignment", "1:2:3,2:3:1")
    scenario.until(lambda text: "paid" in text, "topics", "--list")
    for partition in range(2):
        run("console-producer", "--topic", "paid", "--property", "parse.key=true", stdin=f"key{partition}\tvalue\n" * 5)
    run("consumer-groups", "--describe", "--group", "none")
    run("consumer-groups", "--delete", "--group", "none")
    reading = ("--topic", "paid", "--group", "g1", "--from-beginning")
    run("console-consumer", *reading, "--max-messages", "10", "--timeout-ms", "20000")
    scenario.until(lambda text: "Empty" in text, "consumer-groups", "--describe", "--group", "g1", "--state")
    run("console-consumer", *reading, "--timeout-ms", "2000")
    one = ("consumer-groups", "--group", "g1")
    run("consumer-groups", "--list")
    run("consumer-groups", "--list", "--state")
    run("consumer-groups", "--list", "--type", "classic")
    scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
    run(*one, "--describe")
    run(*one, "--describe", "--offsets", "--verbose")
    run(*one, "--describe", "--members")
    for how in (("--to-earliest",), ("--shift-by", 2), ("--to-offset", 1), ("--to-latest",), ("--to-offset", 99)):
        run(*one, "--reset-offsets", "--topic", "paid", *how, "--dry-run")
    run(*one, "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
    run(*one, "--reset-offsets", "--all-topics", "--to-current", "--export")
    run(*one, "--describe")
    run(*one, "--delete-offsets", "--topic", "paid:0")
    run(*one, "--delete-offsets", "--topic", "none")
    run(*one, "--delete")
    run("consumer-groups", "--list")
    run("topics", "--delete", "--topic", "paid")
    scenario.until(lambda text: "paid" not in text, "topics", "--list")


def masked(lines: list[str]) -> list[str]:
    """Without what differs between two clusters; rows in any order."""
    found = []
    for line in lines:
        for pattern, replacement in MASKS:
            line = pattern.sub(replacement, line)
        found.append(line.strip())
    return sorted(found)


@pytest.fixture
def two_clusters(oracle: Oracle, tmp_path: Path) -> Iterator[list[KopsNodes]]:
    """Of kops and of Apache Kafka; not the shared ones, whose topics others list: these get __consumer_offsets."""
    (tmp_path / "real").mkdir()
    real = KopsNodes(tmp_path / "real")
    cluster = RealCluster(oracle, real.work / "run", [real.prepare(node_id) for node_id in real.ids]).start()
    try:
        (tmp_path / "kops").mkdir()
        with KopsNodes(tmp_path / "kops") as nodes:
            yield [nodes, real]
    finally:
        cluster.kill()


@pytest.mark.slow
def test_group_tools(oracle: Oracle, two_clusters: list[KopsNodes], tmp_path: Path) -> None:
    tools = KafkaTools(oracle)
    told = []
    for nodes in two_clusters:
        scenario = Scenario(tools, nodes, tmp_path)
        groups(scenario)
        told.append([(command, masked(comparable(command, text, nodes, tmp_path))) for command, text in scenario.told])
    different = []
    for (command, ours), (_, theirs) in zip(*told, strict=True):
        different += [command, *difflib.unified_diff(theirs, ours, "real", "kops", lineterm="", n=0)] if ours != theirs else []
    assert not different, "\n".join(different)
