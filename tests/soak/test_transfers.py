"""Transactions and groups on three nodes that are killed, paused and restarted: transfers are whole or not there, copies are exact, a group
sees everything.

`pytest -m slow tests/soak/test_transfers.py --minutes 20 --seeds 7` is a longer one, of another seed. A failure tells what happened to the
nodes, and the seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.test_soak import SETTINGS
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import create_topic
from tests.support.nodes.soaking import REPLICAS, Disturber, check_words, wait_in_sync
from tests.support.nodes.transfers import (
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
DEFAULT_MINUTES = 0.6
CATCH_UP_S = 120
LEAST = 50


class NodesOnly(Disturber):
    """Nodes are disturbed, topics are not."""

    def kinds(self) -> list[Callable[[], None]]:
        return [self.kill, self.kill, self.pause, self.restart]


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transfers_are_whole_and_copied_once(protocol: str, tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261125 if seed_count is None else seed_count
    deadline = time.monotonic() + 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    with KopsNodes(tmp_path, REPLICAS, settings={**SETTINGS, **COORDINATORS}) as nodes:
        for topic in (TRANSFERS, COPIES):
            create_topic(nodes.bootstrap, topic, PARTITIONS, REPLICAS)
        transfers = [Transfers(number, nodes.bootstrap, seed) for number in range(2)]
        copier = Copier(nodes.bootstrap, protocol)
        counters = [CounterOfAll(number, nodes.bootstrap, protocol) for number in range(2)]
        workers: list[Worker] = [*transfers, copier, *counters]
        disturber = NodesOnly(nodes, [], seed)
        for worker in workers:
            worker.start()
        try:
            while time.monotonic() < deadline:
                disturber.disturb()
            wait_in_sync(nodes, TRANSFERS)
            for worker in transfers:
                worker.end()
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
