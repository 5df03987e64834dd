"""When a client gives up a request or closes a connection: at its deadline, whatever else happens. The clock is the test's."""

from __future__ import annotations

import time

from kops.client.network import NetworkClient
from kops.client.node import Node
from kops.client.settings import ClientSettings
from kops.errors import ApiError
from kops.protocol.messages import DescribeClusterRequest, MetadataRequest, MetadataResponse
from tests.support.nodes.scripted_cluster import ScriptedCluster


class Clock:
    """The client's time, which a test moves."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000.0

    def __call__(self) -> float:
        return self.now_ms


def connected(cluster: ScriptedCluster, clock: Clock, **settings: str) -> tuple[NetworkClient, Node]:
    """Return a client that has a connection to the only node."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap, **given}), now_ms=clock)
    node = Node(1, "127.0.0.1", cluster.servers[1].port())
    assert isinstance(answer_of(network, node), MetadataResponse)
    return network, node


def answer_of(network: NetworkClient, node: Node) -> object:
    """Ask, and wait for the answer."""
    answers: list[object] = []
    network.send(node, MetadataRequest(topics=[]), answers.append)
    deadline = time.monotonic() + 60
    while not answers and time.monotonic() < deadline:
        network.poll(20)
    return answers[0]


def test_an_unused_connection_is_closed() -> None:
    clock = Clock()
    with ScriptedCluster() as cluster:
        network, node = connected(cluster, clock, connections_max_idle_ms="9000")
        assert network.next_event_ms() <= clock.now_ms + 9001
        clock.now_ms += 8999
        assert isinstance(answer_of(network, node), MetadataResponse)  # used again
        clock.now_ms += 9000
        network.poll(0)
        assert network.versions(node) is not None
        clock.now_ms += 1
        network.poll(0)
        assert network.versions(node) is None
        assert isinstance(answer_of(network, node), MetadataResponse)  # a new one
        network.close()


def test_an_unused_connection_may_stay_for_ever() -> None:
    clock = Clock()
    with ScriptedCluster() as cluster:
        network, node = connected(cluster, clock, connections_max_idle_ms="-1")
        clock.now_ms += 10**9
        network.poll(0)
        assert network.versions(node) is not None
        network.close()


def test_the_earliest_deadline_counts() -> None:
    clock = Clock()
    answers: list[object] = []
    with ScriptedCluster() as cluster:
        cluster.script(DescribeClusterRequest, lambda context, message: None)
        network, node = connected(cluster, clock, connections_max_idle_ms="100000")
        network.send(node, DescribeClusterRequest(), answers.append, timeout_ms=7000)
        network.send(node, DescribeClusterRequest(), answers.append, timeout_ms=2000)  # later, but due earlier
        network.poll(0)
        assert network.next_event_ms() <= clock.now_ms + 2000
        clock.now_ms += 1999
        network.poll(0)
        assert not answers
        clock.now_ms += 1
        network.poll(0)
        # One connection has the answers in order, so the other request is lost with it.
        assert [one.name for one in answers if isinstance(one, ApiError)] == ["REQUEST_TIMED_OUT"] * 2
        assert network.next_event_ms() == float("inf")
        network.close()
