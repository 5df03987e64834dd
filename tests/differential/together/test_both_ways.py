"""One cluster that kops and Apache Kafka 4.3.0 start in turn, on the same directories with the same settings, and without changes in
between.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.cluster.launch import UpRequest, bring_up, take_down
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.layout.ports import find_base
from kops.forensics.verify.run import verify
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes import librdkafka as kafka

# Three JVMs on a small machine don't answer within the two seconds that kops's own nodes have.
SETTINGS = {"broker.session.timeout.ms": "18000", "offsets.topic.num.partitions": "3", "log.cleaner.dedupe.buffer.size": "2097152"}
CONFIGS = {"retention.ms": "86400000", "segment.bytes": "1048576", "min.insync.replicas": "2"}


class Expected:
    """What the cluster must contain. It grows with each owner of the directories."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.rows: dict[str, list[kafka.Row]] = {}

    def grow(self, bootstrap: str, who: str) -> None:
        """Let the next owner make a topic, change settings, and write to all topics."""
        name = f"by-{who}"
        kafka.create_topic(bootstrap, name, 3, 3, CONFIGS)
        self.topics[name] = 3
        self.configs[name] = dict(CONFIGS)
        kafka.set_config(bootstrap, "TOPIC", name, max_message_bytes="2000000")
        self.configs[name]["max.message.bytes"] = "2000000"
        for codec in ("none", "lz4", "zstd"):
            sent = kafka.Acknowledged(bootstrap, **{"compression.type": codec})
            for topic in self.topics:
                sent.send(topic, 300, size=2000, mark=f"{who}-{codec}-")
            sent.flush()
            for topic, rows in sent.rows.items():
                self.rows.setdefault(topic, []).extend(rows)

    def check(self, bootstrap: str) -> None:
        """Check that all topics, settings and acknowledged records are there, and nothing else."""
        there = kafka.topics(bootstrap)
        assert {name: len(partitions) for name, partitions in there.items()} == self.topics
        assert all(replicas == [1, 2, 3] for partitions in there.values() for _, replicas in partitions)
        configs = kafka.own_configs(bootstrap, "TOPIC", list(self.topics))
        assert configs == self.configs
        for topic in self.topics:
            assert kafka.read_all(bootstrap, topic) == sorted(self.rows[topic]), topic


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True], ids=["clean", "killed"])
def test_kops_and_kafka_take_over_each_others_cluster(oracle: Oracle, tmp_path: Path, kill: bool) -> None:
    directory = ClusterDirectory(str(tmp_path / "data"))
    expected = Expected()
    bootstrap = bring_up(directory, UpRequest(3, find_base(3), SETTINGS)).bootstrap_servers
    try:
        expected.grow(bootstrap, "kops")
        expected.check(bootstrap)
    finally:
        take_down(directory, kill=kill)

    real = RealCluster(oracle, tmp_path / "real", [Path(directory.properties_path(node_id)) for node_id in directory.node_ids()])
    real.start()
    try:
        expected.check(bootstrap)
        expected.grow(bootstrap, "kafka")
        expected.check(bootstrap)
    finally:
        if kill:
            real.kill()
        else:
            real.stop()

    bring_up(directory, UpRequest())
    try:
        expected.check(bootstrap)
        expected.grow(bootstrap, "kops-again")
        expected.check(bootstrap)
    finally:
        take_down(directory)
    report = verify([directory.log_dir(node_id) for node_id in directory.node_ids()], level="full")
    assert [finding for finding in report.findings if finding.severity != "info"] == []
