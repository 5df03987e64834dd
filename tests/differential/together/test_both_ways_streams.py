"""Kafka Streams 4.3.0 keeps running with `exactly_once_v2` while the node behind it stops and starts as the other implementation on the
same disk: kops, Apache Kafka after `kill -9`, kops again after a clean stop.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka.mixed_cluster import MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.word_count import (
    EACH_LINE,
    GROUP_SETTINGS,
    INPUT,
    OUTPUT,
    check_counts,
    random_lines,
    word_count,
    write,
)
from tests.support.nodes.librdkafka import CommittedCount, create_topic
from tests.support.nodes.soaks.soaking import CLEAN_EXITS

pytestmark = [pytest.mark.slow, pytest.mark.java]

NODE = 1
SESSION_MS = 45_000
"""Kafka's default. A node may take seconds to start, and no member is killed here. Apache Kafka's client does not survive the end of its
session at any moment: if it then asks for the offsets of a new task, the answer UNKNOWN_MEMBER_ID ends the program."""
SETTINGS = {
    name.replace(".", "_"): str(value) for name, value in {**GROUP_SETTINGS, "group.streams.session.timeout.ms": SESSION_MS}.items()
}
EACH_TIME = 200


def test_each_word_is_counted_once(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    lines = random_lines(3 * EACH_TIME)
    with MixedCluster(oracle, tmp_path / "nodes", {NODE: ("kops", "broker,controller")}, **SETTINGS) as cluster:
        for topic, partitions in ((INPUT, 2), (OUTPUT, 1)):
            create_topic(cluster.bootstrap, topic, partitions, 1)
        counts = CommittedCount(cluster.bootstrap, OUTPUT)
        with word_count(tmp_path, cluster.bootstrap, "streams", replicas=1) as program:
            write(cluster.bootstrap, lines[:EACH_TIME])
            program.until(lambda: counts.so_far() > EACH_TIME)  # in the middle of the work
            cluster.kill(NODE)
            turn(cluster)
            write(cluster.bootstrap, lines[EACH_TIME : 2 * EACH_TIME])
            program.until(lambda: counts.so_far() > 2 * EACH_LINE * EACH_TIME - EACH_TIME)
            assert cluster.stop(NODE) in CLEAN_EXITS, cluster.output(NODE)[-3000:]
            turn(cluster)
            write(cluster.bootstrap, lines[2 * EACH_TIME :])
            program.until(lambda: counts.so_far() >= EACH_LINE * len(lines))
            assert program.stop() == 143
        counts.close()
        check_counts(cluster.bootstrap, lines)


def turn(cluster: MixedCluster) -> None:
    """Start the node as the other implementation."""
    cluster.turn(NODE)
    cluster.start(NODE)
    cluster.wait(NODE)
