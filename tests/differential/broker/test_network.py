"""Parts of the network against Kafka's own classes, and a real broker as a peer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.broker.network.connection_limits import Rate
from kops.broker.network.memory_pool import MemoryPool
from kops.broker.network.peer import Peer
from kops.errors import ApiError
from kops.protocol import api_keys
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.connections.node_versions import NodeVersions
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kops.protocol.messages.api_versions_response import ApiVersion
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.networking import LoopThread


@pytest.mark.parametrize(("bound", "samples", "window_s"), [(2, 11, 1), (1, 2, 1), (4, 3, 2)])
def test_rates_and_what_they_delay(oracle: Oracle, bound: int, samples: int, window_s: int) -> None:
    rng = random.Random(bound)
    metrics = oracle.jvm.org.apache.kafka.common.metrics
    config = metrics.MetricConfig().timeWindow(window_s, oracle.jvm.java.util.concurrent.TimeUnit.SECONDS).samples(samples)
    theirs = metrics.stats.Rate()
    ours = Rate(bound, window_count=samples, window_ms=window_s * 1000)
    now_ms = 1_700_000_000_000
    delays = 0
    for _ in range(400):
        now_ms += round(rng.choice((1, 20, 100, 333, 1000, 2500, 13_000)) * 10 / bound) if rng.random() < 0.08 else 0
        if rng.random() < 0.1:
            ours.take_back(now_ms)
            theirs.record(config, -1.0, now_ms)
            continue
        delay_ms = ours.record(now_ms)
        theirs.record(config, 1.0, now_ms)
        value = theirs.measure(config, now_ms)
        # QuotaUtils.throttleTime
        expected = oracle.jvm.java.lang.Math.round((value - bound) / bound * theirs.windowSize(config, now_ms)) if value > bound else 0
        assert delay_ms == expected
        delays += bool(delay_ms)
    assert 40 < delays < 350


@pytest.mark.parametrize(
    ("initial_ms", "max_ms", "multiplier"), [(50, 1000, 2), (100, 100, 2), (100, 20, 2), (10_000, 30_000, 2), (0, 7, 2), (1, 9999, 3)]
)
def test_exponential_backoff(oracle: Oracle, initial_ms: int, max_ms: int, multiplier: int) -> None:
    theirs = oracle.jvm.org.apache.kafka.common.utils.ExponentialBackoff(initial_ms, multiplier, max_ms, 0.0)
    ours = ExponentialBackoff(initial_ms, max_ms, lambda: 0.5, multiplier=multiplier, jitter=0)
    assert [ours.delay_ms(attempts) for attempts in range(20)] == [theirs.backoff(attempts) for attempts in range(20)]


def test_memory_pool(oracle: Oracle) -> None:
    rng = random.Random(5)
    theirs = oracle.jvm.org.apache.kafka.common.memory.SimpleMemoryPool(1000, 700, False, None)
    ours = MemoryPool(1000)
    held: list[tuple[int, Any]] = []
    refused = 0
    for _ in range(300):
        if held and rng.random() < 0.4:
            size, buffer = held.pop(rng.randrange(len(held)))
            theirs.release(buffer)
            ours.release(size)
        else:
            size = rng.randint(1, 700)
            buffer = theirs.tryAllocate(size)
            assert ours.try_allocate(size) == (buffer is not None)
            if buffer is None:
                refused += 1
            else:
                held.append((size, buffer))
        assert ours.available == theirs.availableMemory()
    assert refused > 20


def test_the_latest_usable_version(oracle: Oracle) -> None:
    java_class = oracle.jvm.org.apache.kafka.clients.NodeApiVersions
    keys = oracle.jvm.org.apache.kafka.common.protocol.ApiKeys
    rng = random.Random(11)
    failed = 0
    for api in rng.sample([api for api in api_keys.API_KEYS if api_keys.Listener.BROKER in api.listeners], 25):
        first = rng.randint(0, 8)
        last = first + rng.randint(0, 6)
        theirs = java_class.create(oracle.short(api.key), oracle.short(first), oracle.short(last))
        ours = NodeVersions(ApiVersionsResponse(api_keys=[ApiVersion(api.key, first, last)]))
        wanted = rng.randint(0, 6)
        for allowed in (None, range(wanted, wanted + 1 + rng.randint(0, 5))):
            bounds = (oracle.short(allowed.start), oracle.short(allowed.stop - 1)) if allowed is not None else ()
            try:
                expected: object = theirs.latestUsableVersion(keys.forId(api.key), *bounds)
            except Py4JJavaError as error:
                expected = error.java_exception.getMessage()
            try:
                found: object = ours.latest(api.key, allowed)
            except ApiError as error:
                assert error.name == "UNSUPPORTED_VERSION"
                found = error.message
                failed += 1
            assert found == expected
    assert 5 < failed < 45


@pytest.mark.slow
def test_a_peer_that_is_a_real_broker(oracle: Oracle, tmp_path: Path) -> None:
    thread = LoopThread()
    try:
        with RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk"]) as broker:
            host, _, port = broker.bootstrap.rpartition(":")
            oracle.create_topic(broker.bootstrap, "orders", partitions=3)
            peer = thread.call(lambda: Peer(thread.loop, host, int(port), draw=random.random))
            results: list[Message | ApiError] = []

            def done(result: Message | ApiError) -> None:
                results.append(result)
                if len(results) == 100:
                    thread.loop.stop()

            for _ in range(100):
                thread.call(lambda: peer.send(MetadataRequest(topics=None), done))
            thread.join()
            for result in results:
                assert isinstance(result, MetadataResponse)
                assert [(topic.name, len(topic.partitions)) for topic in result.topics if not topic.is_internal] == [("orders", 3)]
            assert peer.versions is not None
            assert peer.versions.latest(api_keys.BY_NAME["Metadata"].key) == 13
            assert peer.versions.finalized_feature("metadata.version") > 20
            peer.close()
    finally:
        thread.close()
