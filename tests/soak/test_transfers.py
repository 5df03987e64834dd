"""Transactions and groups on three nodes that are killed, paused and restarted: transfers are whole or not there, copies are exact, a group
sees everything. Also where one of the nodes is Apache Kafka's, so that coordinators move from one implementation to the other.

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
}
MIXED = {1: ("kops", "broker,controller"), 2: ("kafka", "broker,controller"), 3: ("kops", "broker,controller")}
MIXED_SETTINGS = {"min.insync.replicas": 2, "broker.heartbeat.interval.ms": 500, "log.segment.bytes": 1_048_576}
DEFAULT_MINUTES = 0.6
MIXED_MINUTES = 0.4
CATCH_UP_S = 120
LEAST = 50


class NodesOnly(Disturber):
    """Nodes are disturbed, topics are not."""

    def kinds(self) -> list[Callable[[], None]]:
        return [self.kill, self.kill, self.pause, self.restart]


class NodesAndLeaders(NodesOnly):
    """The same, and preferred leaders are elected: a coordinator goes back to a node that has just come back."""

    def __init__(self, cluster: MixedCluster, tools: KafkaTools, seed: int) -> None:
        self.cluster = cluster
        self.tools = tools
        super().__init__(cluster, [], seed)

    def kinds(self) -> list[Callable[[], None]]:
        return [*super().kinds(), self.elect]

    def elect(self) -> None:
        """Ask the preferred replicas to lead; those that are not in sync refuse."""
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
    """Transfers, copies and counts while the nodes are disturbed, and what must be true at the end."""
    deadline = time.monotonic() + 60 * minutes
    for topic in (TRANSFERS, COPIES):
        create_topic(nodes.bootstrap, topic, PARTITIONS, REPLICAS)
    transfers = [Transfers(number, nodes.bootstrap, seed) for number in range(2)]
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
    """Until as many records are copied as there are; a copy whose answer was lost is not counted, so what is there decides."""
    deadline = time.monotonic() + CATCH_UP_S
    while len(committed(copier.bootstrap, COPIES, wait_for_stable(copier.bootstrap, COPIES))) < len(seen):
        assert time.monotonic() < deadline, f"{copier} of {len(seen)}"
        time.sleep(0.5)


def wait_for_counters(counters: list[CounterOfAll], seen: list[tuple[int, bytes]]) -> None:
    """Until the group has seen everything."""
    deadline = time.monotonic() + CATCH_UP_S
    wanted = {value for _, value in seen}
    while missing := wanted - set().union(*(set(one.seen) for one in counters)):
        assert time.monotonic() < deadline, f"{len(missing)} records were never seen by the group"
        time.sleep(0.2)
