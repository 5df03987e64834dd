"""Kafka Streams 4.3.0 on three nodes: its word count, exactly once, although it and a coordinator are killed in the middle of the work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.programs.share_scenarios import coordinator_of
from tests.support.kafka.programs.word_count import (
    EACH_LINE,
    GROUP,
    GROUP_SETTINGS,
    INPUT,
    OUTPUT,
    check_counts,
    random_lines,
    word_count,
    write,
)
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import CommittedCount, create_topic

pytestmark = [pytest.mark.slow, pytest.mark.java]

SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    **GROUP_SETTINGS,
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[KopsNodes]:
    """Provide a cluster for one test, because the program's topics have fixed names."""
    (tmp_path / "nodes").mkdir()
    with KopsNodes(tmp_path / "nodes", settings=SETTINGS) as nodes:
        yield nodes


def coordinator(nodes: KopsNodes, group: str) -> int:
    """Return the node that coordinates a group."""
    port = int(coordinator_of(nodes.bootstrap, group).rpartition(":")[2])
    return next(node_id for node_id, own in nodes.ports.items() if own == port)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_word_count_exactly_once(nodes: KopsNodes, tmp_path: Path, protocol: str) -> None:
    """Each word is counted from 1 to its number. No count is missing, and none comes twice. A streams group also loses its coordinator."""
    for topic, partitions in ((INPUT, 2), (OUTPUT, 1)):
        create_topic(nodes.bootstrap, topic, partitions, 3)
    lines = random_lines(1000)
    counts = CommittedCount(nodes.bootstrap, OUTPUT)
    with word_count(tmp_path, nodes.bootstrap, protocol, replicas=3) as program:
        write(nodes.bootstrap, lines[:600])
        program.until(lambda: counts.so_far() > 300)
        program.kill()
        assert counts.so_far() < EACH_LINE * len(lines)
        write(nodes.bootstrap, lines[600:])
        before = counts.so_far()
        program.start()
        if protocol == "streams":
            program.until(lambda: counts.so_far() > before)
            nodes.kill(coordinator(nodes, GROUP))
        program.until(lambda: counts.so_far() >= EACH_LINE * len(lines))
        assert program.stop() == 143  # Java's exit code after a hook that SIGTERM has started
    counts.close()
    check_counts(nodes.bootstrap, lines)
