"""Clusters of kops and Apache Kafka 4.3.0 under load, whose nodes are killed, paused and restarted at random. No acknowledged record is
lost, none is duplicated, order is kept, and all replicas have the same bytes.

`pytest -m slow tests/soak/test_mixed_soak.py --minutes 20 --seeds 7` is a longer run with another seed. A failure prints what happened to
the nodes, and the seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.mixed_cluster import MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.nodes.librdkafka import create_topic
from tests.support.nodes.soaks.soaking import (
    PARTITIONS,
    REPLICAS,
    TIMEOUT_S,
    TOPIC,
    Disturber,
    Sender,
    check_read_back,
    check_replicas_equal,
    check_words,
    wait_in_sync,
)

pytestmark = [pytest.mark.slow, pytest.mark.cores]
CLUSTERS = {
    "kafka-controller": {1: ("kafka", "controller"), 2: ("kops", "broker"), 3: ("kafka", "broker"), 4: ("kops", "broker")},
    "kops-controller": {1: ("kops", "controller"), 2: ("kops", "broker"), 3: ("kafka", "broker"), 4: ("kops", "broker")},
    "quorum": {1: ("kops", "broker,controller"), 2: ("kafka", "broker,controller"), 3: ("kops", "broker,controller")},
}
SETTINGS = {"min_insync_replicas": "2", "log_segment_bytes": "1048576", "broker_heartbeat_interval_ms": "500"}
SENDERS = 2
DEFAULT_MINUTES = 0.6


class MixedDisturber(Disturber):
    """A Disturber that also moves replicas and changes leaders while all nodes are running. A move may still be in progress when the next
    node is killed.
    """

    def __init__(self, cluster: MixedCluster, tools: KafkaTools, senders: list[Sender], seed: int) -> None:
        super().__init__(cluster, senders, seed)
        self.cluster = cluster
        self.tools = tools
        self.longest_pause_s = 10.0

    def kinds(self) -> list[Callable[[], None]]:
        return [*super().kinds(), self.kill, self.kill, self.move, self.move, self.elect]

    def move(self) -> None:
        """Give one partition two or three replicas, in another order."""
        number = self._draw.randrange(self.senders[0].partitions)
        self._reassign({number: self._draw.sample(self.cluster.brokers, self._draw.choice((2, REPLICAS)))})

    def elect(self) -> None:
        """Elect the preferred leaders. Replicas that are not in sync are not elected."""
        self._tell("preferred leaders are elected")
        where = ("--bootstrap-server", self.cluster.bootstrap)
        self.tools.run("leader-election", *where, "--election-type", "preferred", "--all-topic-partitions")

    def settle(self) -> None:
        """Give every partition a replica on every broker, and elect the preferred leaders."""
        replicas = {number: self._draw.sample(self.cluster.brokers, REPLICAS) for number in range(self.senders[0].partitions)}
        self._reassign(replicas)
        deadline = time.monotonic() + TIMEOUT_S
        while (found := {number: one for number, (_, one, _) in self.cluster.partitions(TOPIC).items()}) != replicas:
            assert time.monotonic() < deadline, f"wanted {replicas}, is {found}"
            time.sleep(0.5)
        wait_in_sync(self.cluster, TOPIC)
        self.elect()
        wait_in_sync(self.cluster, TOPIC)

    def _reassign(self, replicas: dict[int, list[int]]) -> None:
        self._tell(f"replicas are to be {replicas}")
        plan = self.cluster.root / "plan.json"
        partitions = [{"topic": TOPIC, "partition": number, "replicas": to} for number, to in replicas.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        arguments = ("--bootstrap-server", self.cluster.bootstrap, "--reassignment-json-file", plan, "--execute", "--additional")
        deadline = time.monotonic() + TIMEOUT_S
        # The tool rejects brokers that are fenced for a moment.
        while "Successfully started partition reassignment" not in (said := self.tools.run("reassign-partitions", *arguments)):
            assert time.monotonic() < deadline, said
            time.sleep(0.5)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("kind", CLUSTERS)
def test_nothing_acknowledged_is_lost(kind: str, oracle: Oracle, tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261122 if seed_count is None else seed_count
    with MixedCluster(oracle, tmp_path, CLUSTERS[kind], **SETTINGS) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, REPLICAS)
        senders = [Sender(number, cluster.bootstrap) for number in range(SENDERS)]
        disturber = MixedDisturber(cluster, KafkaTools(oracle), senders, seed)
        deadline = time.monotonic() + 60 * (DEFAULT_MINUTES if minutes is None else minutes)
        for sender in senders:
            sender.start()
        try:
            while time.monotonic() < deadline or len(disturber.kills) < len(cluster.ids):
                disturber.disturb()
            disturber.settle()
            for sender in senders:
                sender.end()
            count = check_read_back(cluster, senders)
            wait_in_sync(cluster, TOPIC)
            check_words(cluster)
            for node in cluster.ids:
                cluster.kill(node)
            check_replicas_equal(cluster, senders[0].partitions)
        except BaseException as error:
            error.add_note(f"{kind}, seed {seed}\n" + disturber.life())
            raise
        assert count > 1_000
