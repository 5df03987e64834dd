"""Transactions and groups on three nodes that are killed, paused and restarted. Each transfer is complete or absent, copies are exact, and
a group sees every record. In one test a node is one of Apache Kafka, so that coordinators move between the two implementations.

`pytest -m slow tests/soak/test_transfers.py --minutes 20 --seeds 7` is a longer run with another seed. A failure prints what happened to
the nodes, and the seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.test_soak import SETTINGS
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.mixed_cluster import MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import create_topic
from tests.support.nodes.soaks.soaking import REPLICAS, Disturber, Nodes, check_words, wait_in_sync
from tests.support.nodes.soaks.transfers import (
    COPIES,
    PARTITIONS,
    TRANSFERS,
    Copier,
    CounterOfAll,
    LibraryTransfers,
    Transfers,
    Worker,
    check_transfers,
    committed,
    wait_for_stable,
)

pytestmark = [pytest.mark.slow, pytest.mark.cores]
COORDINATORS = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # A member that could not leave keeps its partitions for a session, which is 45 seconds by default.
    "group.consumer.session.timeout.ms": 15_000,
    "group.consumer.min.session.timeout.ms": 15_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
MIXED = {1: ("kops", "broker,controller"), 2: ("kafka", "broker,controller"), 3: ("kops", "broker,controller")}
MIXED_SETTINGS = {"min.insync.replicas": 2, "broker.heartbeat.interval.ms": 500, "log.segment.bytes": 1_048_576}
DEFAULT_MINUTES = 0.75
MIXED_MINUTES = 0.5
CATCH_UP_S = 120
LEAST = 50


class NodesOnly(Disturber):
    """A Disturber of the nodes that leaves topics alone."""

    def kinds(self) -> list[Callable[[], None]]:
        return [self.kill, self.kill, self.pause, self.restart]


class NodesAndLeaders(NodesOnly):
    """A NodesOnly that also elects the preferred leaders, so that a coordinator returns to a node that has just come back."""

    def __init__(self, cluster: MixedCluster, tools: KafkaTools, seed: int) -> None:
        self.cluster = cluster
        self.tools = tools
        super().__init__(cluster, [], seed)

    def kinds(self) -> list[Callable[[], None]]:
        return [*super().kinds(), self.elect]

    def elect(self) -> None:
        """Elect the preferred leaders. Replicas that are not in sync are not elected."""
        self._tell("preferred leaders are elected")
        where = ("--bootstrap-server", self.cluster.bootstrap)
        self.tools.run("leader-election", *where, "--election-type", "preferred", "--all-topic-partitions")


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transfers_are_whole_and_copied_once(protocol: str, tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261125 if seed_count is None else seed_count
    with KopsNodes(tmp_path, REPLICAS, settings={**SETTINGS, **COORDINATORS}) as nodes:
        run_transfers(nodes, NodesOnly(nodes, [], seed), protocol, seed, DEFAULT_MINUTES if minutes is None else minutes)


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("protocol", ["consumer"])
def test_coordinators_of_both_kinds(protocol: str, oracle: Oracle, tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261126 if seed_count is None else seed_count
    settings = {name.replace(".", "_"): str(value) for name, value in {**MIXED_SETTINGS, **COORDINATORS}.items()}
    with MixedCluster(oracle, tmp_path, MIXED, **settings) as cluster:
        disturber = NodesAndLeaders(cluster, KafkaTools(oracle), seed)
        run_transfers(cluster, disturber, protocol, seed, MIXED_MINUTES if minutes is None else minutes)


def run_transfers(nodes: Nodes, disturber: Disturber, protocol: str, seed: int, minutes: float) -> None:
    """Run transfers, copies and counters while the nodes are disturbed, and check the result."""
    deadline = time.monotonic() + 60 * minutes
    for topic in (TRANSFERS, COPIES):
        create_topic(nodes.bootstrap, topic, PARTITIONS, REPLICAS)
    transfers = [kind(number, nodes.bootstrap, seed) for number, kind in enumerate((Transfers, LibraryTransfers))]
    copier = Copier(nodes.bootstrap, protocol)
    counters = [CounterOfAll(number, nodes.bootstrap, protocol) for number in range(2)]
    workers: list[Worker] = [*transfers, copier, *counters]
    for worker in workers:
        worker.start()
    try:
        while time.monotonic() < deadline or len(disturber.kills) < len(nodes.ids):
            disturber.disturb()
        wait_in_sync(nodes, TRANSFERS)
        for one in transfers:
            one.end()
        seen = committed(nodes.bootstrap, TRANSFERS, wait_for_stable(nodes.bootstrap, TRANSFERS))
        check_transfers(transfers, seen)
        wait_for_copies(copier, seen)
        wait_for_counters(counters, seen)
        for worker in (copier, *counters):
            worker.end()
        copies = committed(nodes.bootstrap, COPIES, wait_for_stable(nodes.bootstrap, COPIES))
        assert Counter(copies) == Counter(seen)
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", disturber.life(), *map(str, workers)]))
        raise
    assert sum(len(one.committed) for one in transfers) > LEAST
    check_words(nodes)


def wait_for_copies(copier: Copier, seen: list[tuple[int, bytes]]) -> None:
    """Wait until every record is copied. The committed copies are counted in the topic, because the copier does not count a copy whose
    answer was lost.
    """
    deadline = time.monotonic() + CATCH_UP_S
    while len(committed(copier.bootstrap, COPIES, wait_for_stable(copier.bootstrap, COPIES))) < len(seen):
        assert time.monotonic() < deadline, f"{copier} of {len(seen)}"
        time.sleep(0.5)


def wait_for_counters(counters: list[CounterOfAll], seen: list[tuple[int, bytes]]) -> None:
    """Wait until the group has seen every record."""
    deadline = time.monotonic() + CATCH_UP_S
    wanted = {value for _, value in seen}
    while missing := wanted - set().union(*(set(one.seen) for one in counters)):
        assert time.monotonic() < deadline, f"{len(missing)} records were never seen by the group"
        time.sleep(0.2)
