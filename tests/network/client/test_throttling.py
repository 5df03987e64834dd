"""A broker that throttles a client gets no request for that time (KIP-219)."""

from __future__ import annotations

import itertools
import time

import pytest

import kops
from kops.broker.network.channel import RequestContext
from kops.client.network import NetworkClient
from kops.client.node import Node
from kops.client.settings import ClientSettings
from kops.errors import ApiError
from kops.protocol.messages import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse
from tests.support.nodes.scripted_cluster import ScriptedCluster

THROTTLE_MS = 150


class Times:
    """Answers requests for metadata with a throttle time, and notes when each request came."""

    def __init__(self, cluster: ScriptedCluster, count: int) -> None:
        self.times: list[float] = []
        self._cluster = cluster
        self._left = count
        cluster.script(MetadataRequest, self._answer)

    def _answer(self, context: RequestContext, message: MetadataRequest) -> MetadataResponse:
        self.times.append(time.monotonic())
        answer = self._cluster.metadata(message)
        if self._left:
            self._left -= 1
            answer.throttle_time_ms = THROTTLE_MS
        return answer


def drive(network: NetworkClient, answers: list[object], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(answers) < count:
        assert time.monotonic() < deadline
        network.poll(50)


@pytest.mark.parametrize("throttle_ms, is_obeyed", [(THROTTLE_MS, True), (0, False)])
def test_a_connection_waits(throttle_ms: int, is_obeyed: bool) -> None:
    with ScriptedCluster(1) as cluster:
        seen = Times(cluster, 1 if is_obeyed else 0)
        settings = ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap})
        network = NetworkClient(settings)
        answers: list[object] = []
        node = Node(1, "127.0.0.1", cluster.servers[1].port())
        network.send(node, MetadataRequest(topics=[]), answers.append)
        drive(network, answers, 1)
        is_ready, retry_ms = network.is_ready(node), network.retry_ms(node)
        if not is_obeyed or time.monotonic() < seen.times[0] + throttle_ms / 1000:  # a busy machine may be later than that
            assert is_ready is not is_obeyed
            assert (retry_ms < float("inf")) is is_obeyed
        network.send(node, MetadataRequest(topics=[]), answers.append)
        drive(network, answers, 2)
        assert network.is_ready(node)
        assert seen.times[1] - seen.times[0] >= throttle_ms / 1000 - 0.01
        network.close()


def test_a_version_that_the_broker_delays_itself_is_not_obeyed() -> None:
    """DescribeCluster has a throttle time, but Kafka's clients do not obey it."""
    with ScriptedCluster(1) as cluster:
        cluster.script(DescribeClusterRequest, lambda context, message: DescribeClusterResponse(throttle_time_ms=60_000))
        network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap}))
        answers: list[object] = []
        node = Node(1, "127.0.0.1", cluster.servers[1].port())
        for count in (1, 2):
            network.send(node, DescribeClusterRequest(), answers.append)
            drive(network, answers, count)
        assert network.is_ready(node)
        network.close()


def test_a_request_that_waits_too_long_fails() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.script(MetadataRequest, lambda context, message: MetadataResponse(throttle_time_ms=600_000))
        network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap}))
        answers: list[object] = []
        node = Node(1, "127.0.0.1", cluster.servers[1].port())
        network.send(node, MetadataRequest(topics=[]), answers.append)
        drive(network, answers, 1)
        network.send(node, MetadataRequest(topics=[]), answers.append, timeout_ms=20)
        drive(network, answers, 2)
        assert isinstance(answers[1], ApiError)
        network.close()


def test_calls_of_an_admin_client_wait() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.topics["t"] = [1]
        seen = Times(cluster, 1000)
        with kops.Admin({"bootstrap.servers": cluster.bootstrap, "retry.backoff.ms": 1}) as admin:
            for _ in range(3):
                assert list(admin.list_topics()) == ["t"]
        gaps = [later - earlier for earlier, later in itertools.pairwise(seen.times)]
        # The first answers come by the connection to the bootstrap address, the later ones by that to the broker.
        assert sum(gap >= THROTTLE_MS / 1000 - 0.01 for gap in gaps) >= 2
