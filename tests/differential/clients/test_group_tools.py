"""Kafka 4.3.0's tools for groups on three nodes of kops and on three of Apache Kafka: the same text, ids and times masked."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops.protocol import messages
from tests.differential.clients.test_tools import PATIENCE_S, Scenario, comparable
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient

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


class ShareMember:
    """A member of a share group that only sends heartbeats."""

    def __init__(self, nodes: KopsNodes, group: str) -> None:
        self.nodes, self.group = nodes, group
        self.id = "5e0c2f5e-6a6e-4a2f-8f6b-0d6a3f1f9d11"
        self.epoch = 0

    def _coordinator(self) -> str:
        with RawClient(self.nodes.bootstrap.split(",")[0]) as client:
            answer = client.ask(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 6)
        assert isinstance(answer, messages.FindCoordinatorResponse)
        return f"{answer.coordinators[0].host}:{answer.coordinators[0].port}"

    def heartbeat(self, topics: list[str] | None = None) -> messages.ShareGroupHeartbeatResponse:
        """One heartbeat, until a coordinator answers it."""
        request = messages.ShareGroupHeartbeatRequest(self.group, self.id, self.epoch, subscribed_topic_names=topics)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            address = self._coordinator()
            if not address.endswith(":-1"):
                with RawClient(address, client_id="share") as client:
                    answer = client.ask(request, 1)
                assert isinstance(answer, messages.ShareGroupHeartbeatResponse)
                if not answer.error_code:
                    self.epoch = answer.member_epoch
                    return answer
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def join(self, topic: str) -> None:
        """Join, and stay until there are partitions to read: then their state is initialized."""
        answer = self.heartbeat([topic])
        deadline = time.monotonic() + PATIENCE_S
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert time.monotonic() < deadline, "no assignment"
            time.sleep(0.1)
            answer = self.heartbeat()

    def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.heartbeat()


def share_groups(scenario: Scenario) -> None:
    """kafka-share-groups: all its commands, for groups that are missing, have a member, are empty."""
    run = scenario.run
    run("topics", "--create", "--topic", "shared", "--replica-assignment", "1:2:3,2:3:1")
    scenario.until(lambda text: "shared" in text, "topics", "--list")
    for partition in range(2):
        run("console-producer", "--topic", "shared", "--property", "parse.key=true", stdin=f"key{partition}\tvalue\n" * 5)
    run("share-groups", "--list")
    for what in ((), ("--members",), ("--state",), ("--offsets", "--verbose")):
        run("share-groups", "--describe", "--group", "none", *what)
    run("share-groups", "--delete", "--group", "none")
    run("share-groups", "--delete-offsets", "--group", "none", "--topic", "shared")
    member = ShareMember(scenario.nodes, "s1")
    member.join("shared")
    one = ("share-groups", "--group", "s1")
    run("share-groups", "--list")
    run("share-groups", "--list", "--state")
    for what in ((), ("--offsets", "--verbose"), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")):
        run(*one, "--describe", *what)
    run(*one, "--delete")
    run(*one, "--reset-offsets", "--topic", "shared", "--to-earliest", "--execute")
    run(*one, "--delete-offsets", "--topic", "shared")
    member.leave()
    scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
    run(*one, "--describe")
    for how in (("--to-earliest",), ("--to-latest",), ("--to-datetime", "2020-01-01T00:00:00.000")):
        run(*one, "--reset-offsets", "--topic", "shared", *how, "--dry-run")
    run(*one, "--reset-offsets", "--topic", "shared:1", "--to-earliest", "--execute")
    run(*one, "--describe")
    run(*one, "--reset-offsets", "--all-topics", "--to-latest", "--execute")
    run(*one, "--describe", "--offsets", "--verbose")
    run(*one, "--reset-offsets", "--topic", "nothing", "--to-earliest", "--execute")
    run("share-groups", "--group", "s2", "--reset-offsets", "--topic", "shared", "--to-earliest", "--execute")
    run("share-groups", "--describe", "--all-groups")
    run(*one, "--delete-offsets", "--topic", "shared", "--topic", "nothing")
    run(*one, "--describe")
    run(*one, "--delete")
    run("share-groups", "--delete", "--group", "s1", "--group", "s2")
    run("share-groups", "--list")
    run("consumer-groups", "--list")
    run("topics", "--delete", "--topic", "shared")
    scenario.until(lambda text: "shared" not in text, "topics", "--list")


def masked(lines: list[str]) -> list[str]:
    """Without what differs between two clusters; rows in any order."""
    found = []
    for line in lines:
        for pattern, replacement in MASKS:
            line = pattern.sub(replacement, line)
        found.append(line.strip())
    return sorted(found)


@pytest.fixture(scope="module")
def two_clusters(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KopsNodes]]:
    """Of kops and of Apache Kafka; not the shared ones, whose topics others list: these get __consumer_offsets."""
    real = KopsNodes(tmp_path_factory.mktemp("real"))
    cluster = RealCluster(oracle, real.work / "run", [real.prepare(node_id) for node_id in real.ids]).start()
    try:
        with KopsNodes(tmp_path_factory.mktemp("kops")) as nodes:
            yield [nodes, real]
    finally:
        cluster.kill()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [groups, share_groups])
def test_group_tools(oracle: Oracle, two_clusters: list[KopsNodes], tmp_path: Path, steps: Callable[[Scenario], None]) -> None:
    tools = KafkaTools(oracle)
    told = []
    for nodes in two_clusters:
        scenario = Scenario(tools, nodes, tmp_path)
        steps(scenario)
        told.append([(command, masked(comparable(command, text, nodes, tmp_path))) for command, text in scenario.told])
    different = []
    for (command, ours), (_, theirs) in zip(*told, strict=True):
        different += [command, *difflib.unified_diff(theirs, ours, "real", "kops", lineterm="", n=0)] if ours != theirs else []
    assert not different, "\n".join(different)
