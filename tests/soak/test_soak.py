"""Three nodes under load for some minutes, which are killed, paused and restarted. No acknowledged record is lost, none is duplicated, and
order is kept.

`pytest -m slow tests/soak --minutes 60` is a longer run. A failure prints what happened to the nodes, and the seed.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import create_topic
from tests.support.nodes.soaks.library import LibraryReader, LibrarySender
from tests.support.nodes.soaks.soaking import (
    PARTITIONS,
    REPLICAS,
    TOPIC,
    Disturber,
    Sender,
    Sending,
    check_read_back,
    check_replicas_equal,
    check_words,
    held,
    wait_in_sync,
)

pytestmark = [pytest.mark.slow, pytest.mark.cores]
SETTINGS = {
    "min.insync.replicas": 2,
    "log.segment.bytes": 1_048_576,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5_000,
    # On a heavily loaded machine, a second is not enough.
    "controller.quorum.election.timeout.ms": 3_000,
    "controller.quorum.fetch.timeout.ms": 5_000,
    "controller.quorum.request.timeout.ms": 5_000,
    "initial.broker.registration.timeout.ms": 240_000,
}
SENDERS = 2  # of librdkafka; another one is the library's
SETTLE_S = 5.0
SETTLE_SHARE = 0.05
MAY_GROW_KIB = 6 * 1024
MOST_FILES = 100
MOST_THREADS = 16
DEFAULT_MINUTES = 1.0


@pytest.mark.timeout(2 * 3600)
def test_nothing_acknowledged_is_lost(tmp_path: Path, minutes: float | None, seed_count: int | None) -> None:
    seed = 20261122 if seed_count is None else seed_count
    duration_s = 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    deadline = time.monotonic() + duration_s
    with KopsNodes(tmp_path, REPLICAS, settings=SETTINGS) as nodes:
        create_topic(nodes.bootstrap, TOPIC, PARTITIONS, REPLICAS)
        senders: list[Sending] = [Sender(number, nodes.bootstrap) for number in range(SENDERS)]
        senders.append(LibrarySender(SENDERS, nodes.bootstrap))
        reader = LibraryReader(nodes.bootstrap)
        disturber = Disturber(nodes, senders, seed)
        for thread in (*senders, reader):
            thread.start()
        try:
            while time.monotonic() < deadline:
                disturber.disturb()
            wait_in_sync(nodes, TOPIC)
            # Nothing is disturbed after this point. The memory of the nodes must not grow with the records that they append.
            before = held(nodes)
            time.sleep(max(SETTLE_S, SETTLE_SHARE * duration_s))
            after = held(nodes)
            for sender in senders:
                sender.end()
            reader.end(senders)
            count = check_read_back(nodes, senders)
            wait_in_sync(nodes, TOPIC)
        except BaseException as error:
            error.add_note(f"seed {seed}\n{disturber.life()}\n{reader}")
            raise
        assert count > 1_000
        for node, (memory, files, threads) in after.items():
            assert memory - before[node][0] < MAY_GROW_KIB, f"node {node} grew from {before[node]} to {after[node]}"
            assert files < MOST_FILES and threads <= MOST_THREADS, f"node {node}: {files} files, {threads} threads"
        check_words(nodes)
        for node in nodes.ids:
            nodes.kill(node)
        check_replicas_equal(nodes, senders[0].partitions)
