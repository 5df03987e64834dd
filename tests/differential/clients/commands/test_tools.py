"""Kafka's command-line tools, of 4.3.0 and of 3.9.1, run one scenario on three nodes of kops and on three of Apache Kafka 4.3.0.

They print the same text, after addresses, directories, topic ids and times are masked.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.differential.conftest import RealThree
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.tool_texts import Scenario, comparable
from tests.support.nodes.kops_nodes import KopsNodes


def topics(scenario: Scenario) -> None:
    """Run kafka-topics."""
    run = scenario.run
    run("topics", "--create", "--topic", "orders", "--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "retention.ms=86400000")
    scenario.until(lambda text: "orders" in text, "topics", "--list")
    run("topics", "--create", "--topic", "orders", "--partitions", "2")
    run("topics", "--create", "--topic", "orders", "--partitions", "2", "--if-not-exists")
    run("topics", "--create", "--topic", "many", "--partitions", "2", "--replication-factor", "4")
    run("topics", "--create", "--topic", "bad name", "--partitions", "2")
    run("topics", "--create", "--topic", "odd", "--partitions", "1", "--config", "retention.ms=never")
    run("topics", "--create", "--topic", "odd", "--partitions", "1", "--config", "nothing.like.it=1")
    run("topics", "--create", "--topic", "a.b_c", "--replica-assignment", "1,2")
    scenario.until(lambda text: "PartitionCount: 3" in text, "topics", "--describe", "--topic", "orders")
    run("topics", "--alter", "--topic", "orders", "--partitions", "4", "--replica-assignment", "1:2:3,2:3:1,3:1:2,1:3:2")
    scenario.until(lambda text: "PartitionCount: 4" in text, "topics", "--describe", "--topic", "orders")
    run("topics", "--alter", "--topic", "orders", "--partitions", "3")
    run("topics", "--alter", "--topic", "none", "--partitions", "3")
    run("topics", "--describe")
    run("topics", "--describe", "--topics-with-overrides")
    run("topics", "--describe", "--under-replicated-partitions")
    run("topics", "--describe", "--unavailable-partitions")
    run("topics", "--describe", "--at-min-isr-partitions")
    run("topics", "--describe", "--topic", "none")
    run("topics", "--delete", "--topic", "a.b_c")
    scenario.until(lambda text: "a.b_c" not in text, "topics", "--list")
    run("topics", "--delete", "--topic", "none")


def records(scenario: Scenario) -> None:
    """Run the console producer and consumer, kafka-get-offsets, kafka-delete-records and the performance producers."""
    run = scenario.run
    for partition in range(3):  # the hash of a key chooses its partition
        lines = "".join(f"key{partition}{number}\tvalue{number}\n" for number in range(20))
        run("console-producer", "--topic", "orders", "--property", "parse.key=true", stdin=lines)
    run("console-producer", "--topic", "orders", "--request-required-acks", "1", "--compression-codec", "zstd", stdin="")
    for partition in range(4):
        consumer = ("--topic", "orders", "--partition", partition, "--offset", "earliest", "--timeout-ms", "3000")
        printed = ("--property", "print.key=true", "--property", "print.offset=true", "--property", "print.partition=true")
        run("console-consumer", *consumer, *printed, "--max-messages", "8")
    run("console-consumer", "--topic", "orders", "--partition", 0, "--offset", 5, "--max-messages", "2", "--timeout-ms", "3000")
    run("get-offsets", "--topic", "orders")
    run("get-offsets", "--topic", "orders", "--time", "earliest")
    run("topics", "--create", "--topic", "single", "--replica-assignment", "2:3")
    scenario.until(lambda text: "single" in text, "topics", "--list")
    run("console-producer", "--topic", "single", stdin="alone\n")
    run("get-offsets", "--topic", "single", "--time", "max-timestamp")
    run("get-offsets", "--topic-partitions", "orders:0-2,orders:3")
    run("get-offsets", "--topic", "none")

    def delete(name: str, *places: tuple[str, int, int]) -> None:
        partitions = [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in places]
        run("delete-records", "--offset-json-file", scenario.file(name, {"version": 1, "partitions": partitions}))

    delete("cut.json", ("orders", 0, 3), ("orders", 1, -1))
    run("get-offsets", "--topic", "orders", "--time", "earliest")
    delete("beyond.json", ("orders", 0, 1000))
    verifiable = ("--topic", "orders", "--max-messages", 5, "--acks", "-1", "--repeating-keys", "2")
    scenario.note("verifiable-producer", verifiable, scenario.tools.run_process("verifiable-producer", *scenario.server, *verifiable))
    perf = ("--topic", "orders", "--num-records", 2000, "--record-size", 50, "--throughput", "-1", "--producer-props")
    text = scenario.tools.run("producer-perf-test", *perf, f"bootstrap.servers={scenario.nodes.bootstrap}", "acks=all")
    scenario.note("producer-perf-test", perf, text)


def settings(scenario: Scenario) -> None:
    """Run kafka-configs."""
    run = scenario.run
    topic, broker = ("--entity-type", "topics", "--entity-name", "orders"), ("--entity-type", "brokers", "--entity-name")
    default = "--entity-default"
    run("configs", "--describe", *topic)
    run("configs", "--describe", *topic, "--all")
    run("configs", "--alter", *topic, "--add-config", "cleanup.policy=[compact,delete],segment.ms=100000")
    run("configs", "--alter", *topic, "--add-config", "segment.ms=no")
    run("configs", "--alter", *topic, "--add-config", "nothing.like.it=1")
    run("configs", "--alter", *topic, "--delete-config", "retention.ms")
    run("configs", "--alter", *topic, "--delete-config", "flush.ms")
    scenario.until(lambda text: "segment.ms" in text and "retention.ms" not in text, "configs", "--describe", *topic)
    run("configs", "--describe", "--entity-type", "topics")
    run("configs", "--describe", "--entity-type", "topics", "--entity-name", "none")
    run("configs", "--describe", *broker, "1", "--all")
    # Kafka 3.9.1 waits for a missing broker as long as it may: a minute by default.
    hasty = scenario.work / "hasty.properties"
    hasty.write_text("default.api.timeout.ms=5000\nrequest.timeout.ms=5000\n")
    run("configs", "--describe", *broker, "9", "--command-config", hasty)
    run("configs", "--alter", *broker, "1", "--add-config", "log.cleaner.io.max.bytes.per.second=1000000")
    # Kafka's brokers show the new source of a setting a moment before its value.
    scenario.until(lambda text: "per.second=1000000.0" in text, "configs", "--describe", *broker, "1")
    run("configs", "--alter", *broker, "1", "--add-config", "node.id=7")
    run("configs", "--alter", *broker, "1", "--add-config", "log.cleaner.threads=x")
    run("configs", "--alter", "--entity-type", "brokers", default, "--add-config", "log.retention.ms=7200000")
    scenario.until(lambda text: "7200000" in text, "configs", "--describe", "--entity-type", "brokers", default)
    scenario.until(lambda text: "log.retention.ms=7200000 " in text, "configs", "--describe", *broker, "2", "--all")
    run("configs", "--alter", "--entity-type", "brokers", default, "--add-config", "listeners=PLAINTEXT://:1")
    run("configs", "--describe", *topic)
    run("configs", "--alter", *topic, "--delete-config", "cleanup.policy")
    scenario.until(lambda text: "cleanup.policy" not in text, "configs", "--describe", *topic)
    run("configs", "--alter", "--entity-type", "brokers", default, "--delete-config", "log.retention.ms")
    run("configs", "--alter", *broker, "1", "--delete-config", "log.cleaner.io.max.bytes.per.second")
    run("configs", "--describe", "--entity-type", "brokers")
    for kind in ("users", "clients", "ips"):
        run("configs", "--describe", "--entity-type", kind)
    run("configs", "--describe", "--entity-type", "users", "--entity-name", "ann")
    # Settings of groups are left out: the tool lists the groups first, which no node answers yet.
    named = ("--entity-type", "client-metrics", "--entity-name", "mine")
    run("configs", "--describe", *named)
    run("configs", "--alter", *named, "--add-config", "interval.ms=1000,metrics=[a.,b.]")
    scenario.until(lambda text: "1000" in text, "configs", "--describe", *named)
    run("configs", "--alter", *named, "--add-config", "interval.ms=1")
    run("configs", "--alter", *named, "--delete-config", "interval.ms")


def replicas(scenario: Scenario) -> None:
    """Run kafka-reassign-partitions, kafka-leader-election and kafka-log-dirs."""
    run = scenario.run
    to_move = scenario.file("topics.json", {"version": 1, "topics": [{"topic": "orders"}]})
    run("reassign-partitions", "--topics-to-move-json-file", to_move, "--broker-list", "1", "--generate")
    moves = [{"topic": "orders", "partition": 0, "replicas": [3, 2, 1]}, {"topic": "orders", "partition": 1, "replicas": [2, 3]}]
    plan = scenario.file("plan.json", {"version": 1, "partitions": moves})
    run("reassign-partitions", "--reassignment-json-file", plan, "--execute", "--throttle", 50_000_000)
    scenario.until(lambda text: "in progress" not in text, "reassign-partitions", "--reassignment-json-file", plan, "--verify")
    run("reassign-partitions", "--list")
    run("reassign-partitions", "--reassignment-json-file", plan, "--cancel")
    unknown = scenario.file("unknown.json", {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 9]}]})
    run("reassign-partitions", "--reassignment-json-file", unknown, "--execute")
    run("topics", "--describe", "--topic", "orders")
    one = ("--topic", "orders", "--partition", 0)
    run("leader-election", "--election-type", "preferred", *one)
    scenario.until(lambda text: "Partition: 0\tLeader: 3" in text, "topics", "--describe", "--topic", "orders")
    run("leader-election", "--election-type", "preferred", *one)
    run("leader-election", "--election-type", "unclean", *one)
    run("leader-election", "--election-type", "preferred", "--topic", "none", "--partition", 0)
    run("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    run("log-dirs", "--describe", "--topic-list", "orders", "--broker-list", "1,2")
    run("log-dirs", "--describe", "--broker-list", "1,9")


def cluster(scenario: Scenario) -> None:
    """Run kafka-cluster, kafka-features, kafka-metadata-quorum and kafka-broker-api-versions."""
    run = scenario.run
    commands = [("cluster-id",), ("unregister", "--id", "9")]
    for command in [*commands, ("list-endpoints",), ("list-endpoints", "--include-fenced-brokers")][: 4 if scenario.is_newest else 2]:
        scenario.note("cluster", command, scenario.tools.run("cluster", command[0], *scenario.server, *command[1:]))
    run("features", "describe")
    run("features", "upgrade", "--feature", "transaction.version=9")
    run("features", "downgrade", "--feature", "group.version=0", "--dry-run")
    run("features", "upgrade", *(("--release-version", "4.3-IV0") if scenario.is_newest else ("--metadata", "3.9-IV0")))
    run("metadata-quorum", "describe", "--status")
    run("metadata-quorum", "describe", "--replication")
    run("broker-api-versions")


def clean_up(scenario: Scenario) -> None:
    """Restore the state before the scenario."""
    scenario.run("topics", "--delete", "--topic", "orders")
    scenario.run("topics", "--delete", "--topic", "single")
    scenario.until(lambda text: "orders" not in text and "single" not in text, "topics", "--list")


STEPS = (topics, records, settings, replicas, cluster, clean_up)


def served(lines: list[str]) -> dict[str, dict[str, str]]:
    """Return the versions that kafka-broker-api-versions prints, by broker and API."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith("broker-"):
            found[line] = apis = {}
        elif line.startswith("\t"):
            name, _, versions = line.strip().rstrip(",").partition(": ")
            apis[name] = versions
    return found


def check_same(tools: KafkaTools, kops_nodes: KopsNodes, real_nodes: KopsNodes, work: Path) -> None:
    """Run the scenario on both. Each step must print the same."""
    ours, theirs = (Scenario(tools, nodes, work) for nodes in (kops_nodes, real_nodes))
    different: list[str] = []
    for step in STEPS:
        step(ours)
        step(theirs)
        assert [command for command, _ in ours.told] == [command for command, _ in theirs.told]
        for (command, found), (_, expected) in zip(ours.told, theirs.told, strict=True):
            our_text, their_text = comparable(command, found, kops_nodes, work), comparable(command, expected, real_nodes, work)
            if command == "broker-api-versions":
                check_served(served(our_text), served(their_text))
            elif our_text != their_text:
                different += [command, *difflib.unified_diff(their_text, our_text, "real", "kops", lineterm="", n=0)]
        ours.told.clear()
        theirs.told.clear()
    assert not different, "\n".join(different)


def check_served(ours: dict[str, dict[str, str]], theirs: dict[str, dict[str, str]]) -> None:
    """Check that kops advertises only what it serves, and that everything else is the same."""
    assert ours.keys() == theirs.keys() and len(ours) == 3
    for broker, apis in ours.items():
        advertised = {name: versions for name, versions in apis.items() if versions != "UNSUPPORTED"}
        assert len(advertised) >= 25
        assert advertised.items() <= theirs[broker].items()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.3.0", "3.9.1"])
def test_tools(oracle: Oracle, kops_three: KopsNodes, real_three: RealThree, tmp_path: Path, version: str) -> None:
    if version == oracle.version:
        check_same(KafkaTools(oracle), kops_three, real_three.nodes, tmp_path)
        return
    with Oracle(version) as other:
        check_same(KafkaTools(other), kops_three, real_three.nodes, tmp_path)
