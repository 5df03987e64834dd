"""The client of `tests.bench.nodes.coordinators` returns figures for each of its commands, and its idle members send heartbeats. This is a
short run on kops only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.cluster import Client
from tests.bench.nodes.coordinators import PROTOCOLS, JavaClient, fill
from tests.bench.nodes.idle_members import IdleMembers
from tests.support.nodes.kops_nodes import KopsNodes

SETTINGS = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 1000}
SECONDS = 0.2


@pytest.mark.slow
def test_the_client_of_the_bench(tmp_path: Path) -> None:
    with KopsNodes(tmp_path, settings=SETTINGS) as nodes, JavaClient("512m", "-XX:TieredStopAtLevel=1") as client:
        cluster, servers = Client(nodes), nodes.bootstrap
        cluster.wait_for_brokers()
        cluster.create_topic("written", 1)
        cluster.create_topic("read", 2)
        rate, p50, p99 = client.ask("transactions", servers, "written", "id", 2, SECONDS)
        assert rate > 0
        assert 0 < p50 <= p99
        rate, p50, p99 = client.ask("commits", servers, "written", "committing", 3, SECONDS)
        assert rate > 0
        assert 0 < p50 <= p99
        assert client.ask("join", servers, "read", "joining", "classic", 2, 2)[0] > 0
        fill(nodes, "written", 1000)
        assert client.ask("consume", servers, "written", "reading", "classic", 1000)[0] > 0
        for protocol in PROTOCOLS:
            with IdleMembers(nodes, "read", f"idle-{protocol}", protocol, 2, 2) as idle:
                assert idle.beat(SECONDS) > 0
        with pytest.raises(RuntimeError, match="IllegalArgumentException: sing"):
            client.ask("sing", servers)
