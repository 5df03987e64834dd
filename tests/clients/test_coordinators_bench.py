"""The client of `tests.bench.nodes.coordinators` returns figures for each of its commands, and its idle members send heartbeats. This is a
short run on kops only: three processes, and the embedded cluster.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.cluster import Answer, Client, until
from tests.bench.nodes.ack_latency import usage
from tests.bench.nodes.coordinators import PROTOCOLS, JavaClient, fill, line
from tests.bench.nodes.embedded_cluster import EmbeddedCluster
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
        assert client.ask("consume", servers, "written", "reading", "classic", 400, 2)[0] > 0
        for protocol in PROTOCOLS:
            with IdleMembers(nodes, "read", f"idle-{protocol}", protocol, 2, 2) as idle:
                assert idle.beat(SECONDS) > 0
        with pytest.raises(RuntimeError, match="IllegalArgumentException: sing"):
            client.ask("sing", servers)
        with EmbeddedCluster(tmp_path / "embedded", settings=SETTINGS) as embedded:
            check_embedded(embedded, client)
        assert embedded.processes == {}


def check_embedded(nodes: EmbeddedCluster, client: JavaClient) -> None:
    """The three nodes serve in one process, which counts once."""
    cluster, before = Client(nodes), usage(nodes)[0]
    cluster.wait_for_brokers()
    cluster.create_topic("written", 3)
    missing = {0, 1, 2}
    until(lambda: cluster.produce_to_each("written", missing))
    assert {one.leader_id for one in cluster.partitions("written")} == set(nodes.ids) == set(nodes.ports)
    assert client.ask("commits", nodes.bootstrap, "written", "committing", 3, SECONDS)[0] > 0
    (process,) = set(nodes.processes.values())
    threads = [Path(f"/proc/{process.pid}/task/{one.name}/schedstat") for one in Path(f"/proc/{process.pid}/task").iterdir()]
    used = usage(nodes)[0]
    assert before < used <= sum(int(one.read_text().split()[0]) for one in threads)


def test_the_embedded_cluster_is_compared_with_kafka() -> None:
    rate = Answer("rate", "1/s", {"kops": [20.0], "kafka": [10.0], "embedded": [30.0]}, is_more_better=True)
    assert line(rate).endswith("2.00x  ; embedded 30 3.00x")
    delay = Answer("delay", "ms", {"kops": [20.0], "kafka": [10.0], "embedded": [5.0]})
    assert line(delay).endswith("0.50x  ; embedded 5 2.00x")
