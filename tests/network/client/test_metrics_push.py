"""Clients push their metrics to a broker that asks for them (KIP-714), and not to one that does not."""

from __future__ import annotations

import asyncio
import gzip
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import kops
import kops.aio
from kops.client.faces.pushing import Pusher
from kops.client.metrics.sensors import MetricName, Metrics
from kops.client.network import NetworkClient
from kops.client.node import Node
from kops.client.settings import ClientSettings
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.records.compression import GZIP
from tests.support.nodes.scripted_cluster import QUICK, ScriptedCluster
from tests.support.patience import until

COORDINATOR_NOT_AVAILABLE = 15
INSTANCE = bytes(range(16))
CLIENTS: list[object] = []  # those of `client_of`
REQUESTED = [f"org.apache.kafka.{kind}.connection." for kind in ("producer", "consumer", "admin.client")]


def asking(cluster: ScriptedCluster) -> None:
    """Let the brokers ask for metrics every 20 ms, compressed."""
    subscription = GetTelemetrySubscriptionsResponse(
        client_instance_id=INSTANCE,
        subscription_id=7,
        accepted_compression_types=[GZIP, 4],
        push_interval_ms=20,
        telemetry_max_bytes=1 << 20,
        delta_temporality=True,
        requested_metrics=REQUESTED,
    )
    cluster.script(GetTelemetrySubscriptionsRequest, lambda context, message: subscription)
    cluster.script(PushTelemetryRequest, lambda context, message: PushTelemetryResponse())
    cluster.script(InitProducerIdRequest, lambda context, message: InitProducerIdResponse(producer_id=1, producer_epoch=0))
    none = Coordinator(key="g", node_id=-1, error_code=COORDINATOR_NOT_AVAILABLE)
    cluster.script(FindCoordinatorRequest, lambda context, message: FindCoordinatorResponse(coordinators=[none]))


def pushes(cluster: ScriptedCluster) -> list[PushTelemetryRequest]:
    return cluster.requests(1, PushTelemetryRequest)


def check(cluster: ScriptedCluster, kind: str) -> None:
    """Check the pushes of a client that has been closed."""
    found = pushes(cluster)
    assert [one.terminating for one in found] == [False] * (len(found) - 1) + [True]
    assert {(one.client_instance_id, one.subscription_id, one.compression_type) for one in found} == {(INSTANCE, 7, GZIP)}
    for one in found:
        data = gzip.decompress(one.metrics)
        assert f"org.apache.kafka.{kind}.connection.count".encode() in data
        assert b"request" not in data
    asked = cluster.requests(1, GetTelemetrySubscriptionsRequest)
    assert [one.client_instance_id for one in asked] == [bytes(16)]


@contextmanager
def client_of(kind: str, settings: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """Provide what a program does with a client: the one without a thread works only then."""
    plain = {name: value for name, value in settings.items() if name != "linger.ms"}
    if kind == "producer":
        with kops.Producer(settings) as producer:
            CLIENTS.append(producer)
            yield lambda: producer.partitions_for("t")
    elif kind == "consumer":
        with kops.Consumer(plain) as consumer:
            CLIENTS.append(consumer)
            yield lambda: consumer.partitions_for("t")
    elif kind == "share":
        with closing(kops.ShareConsumer(plain, group_id="g")) as member:
            member.subscribe(["t"])
            CLIENTS.append(member)
            yield member.metrics
            member.unsubscribe()
    else:
        with kops.Admin(plain, enable_metrics_push=True) as admin:
            admin.list_topics()
            CLIENTS.append(admin)
            yield admin.metrics


PREFIXES = {"producer": "producer", "consumer": "consumer", "share": "consumer", "admin": "admin.client"}


@pytest.mark.parametrize("kind", PREFIXES)
def test_pushes_until_the_end(kind: str) -> None:
    with ScriptedCluster(1) as cluster:
        asking(cluster)
        cluster.topics["t"] = [1]
        settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, **QUICK}
        with client_of(kind, settings) as act:
            until(lambda: bool(act()) and len(pushes(cluster)) > 2)
        until(lambda: pushes(cluster)[-1].terminating)
        check(cluster, PREFIXES[kind])


def test_asyncio() -> None:
    async def main(servers: str) -> None:
        async with kops.aio.Producer({"bootstrap.servers": servers, **QUICK}) as producer:
            await producer.partitions_for("t")
            deadline = time.monotonic() + 60
            while len(pushes(cluster)) < 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    with ScriptedCluster(1) as cluster:
        asking(cluster)
        cluster.topics["t"] = [1]
        asyncio.run(main(cluster.bootstrap))
        until(lambda: pushes(cluster)[-1].terminating)
        check(cluster, "producer")


def test_a_client_that_sends_in_every_turn() -> None:
    """In Java, NetworkClient.poll looks after a request is written, and before the client sends the next one."""
    with ScriptedCluster(1) as cluster:
        asking(cluster)
        values = {"bootstrap.servers": cluster.bootstrap, "enable.metrics.push": True}
        metrics = Metrics("busy", 2, 30_000)
        network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap}))
        metrics.gauge("producer-metrics", "connection-count", lambda now_ms: 1)
        node = Node(1, "127.0.0.1", cluster.servers[1].port())
        pusher = Pusher(values, metrics, network, lambda: [node], dict, lambda: None)
        answers: list[object] = []
        deadline = time.monotonic() + 60
        while len(pushes(cluster)) < 3:
            assert time.monotonic() < deadline
            network.send(node, MetadataRequest(topics=[]), answers.append)
            wait_ms = pusher.turn()
            network.poll(min(wait_ms, 20))
        pusher.finish()
        until(lambda: pushes(cluster)[-1].terminating)
        check(cluster, "producer")
        network.close()


@pytest.mark.parametrize("patience_ms", [0, 60_000])
def test_the_last_push_follows_earlier_answers(patience_ms: float) -> None:
    """A broker that can't send an answer, because the client has gone, reads no further request of its connection."""
    may_answer = threading.Event()

    def answer_late(context: object, message: DescribeClusterRequest) -> DescribeClusterResponse:
        may_answer.wait(60)
        return DescribeClusterResponse()

    with ScriptedCluster(1) as cluster:
        asking(cluster)
        cluster.script(DescribeClusterRequest, answer_late)
        values = {"bootstrap.servers": cluster.bootstrap, "enable.metrics.push": True}
        metrics = Metrics("late", 2, 30_000)
        metrics.gauge("producer-metrics", "connection-count", lambda now_ms: 1)
        network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": cluster.bootstrap}))
        node = Node(1, "127.0.0.1", cluster.servers[1].port())
        pusher = Pusher(values, metrics, network, lambda: [node], dict, lambda: None)
        answers: list[object] = []

        def turn() -> bool:
            network.poll(min(pusher.turn(), 20))
            return bool(answers) and bool(pushes(cluster))

        network.send(node, MetadataRequest(topics=[]), answers.append)
        until(turn)
        pusher.begin_to_end()
        until(lambda: turn() and not pusher.is_behind())
        network.send(node, DescribeClusterRequest(), answers.append)
        network.poll(0)
        assert pusher.is_behind()
        later = threading.Timer(0.2 if patience_ms else 60, may_answer.set)
        later.start()
        pusher.finish(patience_ms)
        assert len(answers) == (2 if patience_ms else 1)
        later.cancel()
        may_answer.set()
        until(lambda: pushes(cluster)[-1].terminating)
        check(cluster, "producer")
        network.close()


FACES: dict[str, tuple[Any, Any]] = {
    "producer": (kops.Producer, kops.aio.Producer),
    "consumer": (kops.Consumer, kops.aio.Consumer),
    "share": (kops.ShareConsumer, kops.aio.ShareConsumer),
    "admin": (kops.Admin, kops.aio.Admin),
}


def instance_id(kind: str, timeout: float, settings: dict[str, Any], *, is_async: bool) -> str | None:
    """Return the instance id of a client that does nothing else."""
    given = {"enable.metrics.push": True, **QUICK, **settings}
    if kind != "producer":
        del given["linger.ms"]
    if kind == "share":
        given["group.id"] = "g"
    blocking, asynchronous = FACES[kind]
    found: str | None
    if not is_async:
        with blocking(given) as client:
            found = client.client_instance_id(timeout)
            assert found == client.client_instance_id(0)  # it stays
        return found

    async def main() -> str | None:
        async with asynchronous(given) as client:
            first: str | None = await client.client_instance_id(timeout)
            assert first == await client.client_instance_id(0)
        return first

    return asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", FACES)
def test_the_instance_id(kind: str, is_async: bool) -> None:
    """As in Java: no answer in time is no id, and a client that pushes nothing has none to wait for."""
    with ScriptedCluster(1) as cluster:
        asking(cluster)
        servers = {"bootstrap.servers": cluster.bootstrap}
        assert instance_id(kind, 60, servers, is_async=is_async) == uuid_text(INSTANCE)
        with pytest.raises(kops.UsageError, match=r"enable\.metrics\.push"):
            instance_id(kind, 60, {**servers, "enable.metrics.push": False}, is_async=is_async)
        with pytest.raises(kops.UsageError, match="timeout=-1"):
            instance_id(kind, -1, servers, is_async=is_async)
        cluster.unknown_apis |= {71, 72}
        started = time.monotonic()
        assert instance_id(kind, 0.3, servers, is_async=is_async) is None
        assert time.monotonic() - started >= 0.3
    assert instance_id(kind, 0.05, servers, is_async=is_async) is None  # nobody listens


@pytest.mark.parametrize("kind", PREFIXES)
def test_metrics_of_the_program(kind: str) -> None:
    """They are pushed too. As in Java, only an admin client lets its own ones be replaced and removed."""
    prefix = PREFIXES[kind]

    def last() -> bytes:
        """Return the metrics of a push after now."""
        before = len(pushes(cluster))
        until(lambda: bool(act()) and len(pushes(cluster)) > before + 1)
        return gzip.decompress(pushes(cluster)[-1].metrics)

    with ScriptedCluster(1) as cluster:
        asking(cluster)
        cluster.topics["t"] = [1]
        settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "client.id": "me", **QUICK}
        with client_of(kind, settings) as act:
            until(lambda: bool(act()) and len(pushes(cluster)) > 0)
            client: Any = CLIENTS[-1]
            own = f"org.apache.kafka.{prefix}.connection.count".encode()
            mine = f"org.apache.kafka.{prefix}.connection.mine".encode()
            assert mine not in last()
            group = f"{prefix.replace('.', '-')}-metrics"
            client.register_metric_for_subscription(group, "connection-mine", lambda: 4242)
            client.register_metric_for_subscription("shop", "unwanted", lambda: 1)
            client.register_metric_for_subscription(group, "connection-count", lambda: 4711, tags={"client-id": "me"})
            data = last()
            assert mine in data
            assert struct.pack("<d", 4242) in data
            assert b"unwanted" not in data
            assert (struct.pack("<d", 4711) in data) == (kind == "admin")
            client.unregister_metric_from_subscription(group, "connection-mine")
            client.unregister_metric_from_subscription(group, "connection-count", tags={"client-id": "me"})
            data = last()
            assert mine not in data
            assert (own in data) == (kind != "admin")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_no_push(is_wanted: bool) -> None:
    """The settings turn it off, or the broker does not know the API, as kops and Kafka without a reporter of metrics."""
    with ScriptedCluster(1) as cluster:
        asking(cluster)
        if is_wanted:
            cluster.unknown_apis |= {71, 72}
        cluster.topics["t"] = [1]
        with kops.Producer({"bootstrap.servers": cluster.bootstrap, "enable.metrics.push": is_wanted, **QUICK}) as producer:
            producer.partitions_for("t")
            name = MetricName("producer-metrics", "request-total", (("client-id", producer._driver.client_id),))
            assert producer.metrics()[name] >= 2
        assert cluster.requests(1, GetTelemetrySubscriptionsRequest) == pushes(cluster) == []
