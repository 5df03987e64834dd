"""The metrics of clients against those of Kafka's clients: values of sensors, and the names, groups and tags."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import kops
from kops.admin import AlterConfigOp, ConfigResource
from kops.client.metrics.otlp import telemetry_name, telemetry_tags
from kops.client.metrics.sensors import MetricName, Metrics, Stat
from kops.client.metrics.telemetry import Telemetry
from kops.protocol.messages import GetTelemetrySubscriptionsResponse, PushTelemetryRequest, PushTelemetryResponse
from tests.support.kafka.oracle import Oracle

Name = tuple[str, str, tuple[tuple[str, str], ...]]
PLAIN = {
    "x-avg": (Stat.AVG, "Avg"),
    "x-max": (Stat.MAX, "Max"),
    "x-min": (Stat.MIN, "Min"),
    "x-rate": (Stat.RATE, "Rate"),
    "x-total": (Stat.TOTAL, "CumulativeSum"),
    "x-count": (Stat.COUNT, "CumulativeCount"),
    "x-last": (Stat.LAST, "Value"),
}


@pytest.mark.parametrize("seed", range(3))
def test_values_of_sensors(oracle: Oracle, seed: int) -> None:
    """Both record the same at the same times, with pauses longer than all windows."""
    rng = random.Random(seed)
    samples, window_ms = rng.choice([1, 2, 5]), 1000
    package = oracle.jvm.org.apache.kafka.common.metrics
    config = package.MetricConfig().samples(samples).timeWindow(window_ms, oracle.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    theirs = {name: getattr(package.stats, kind)() for name, (_, kind) in PLAIN.items()}
    theirs["x-events"] = package.stats.Rate(package.stats.WindowedCount())
    metrics = Metrics("me", samples, window_ms)
    sensor = metrics.sensor("g", {**{name: stat for name, (stat, _) in PLAIN.items()}, "x-events": Stat.COUNT_RATE})
    now_ms = 0
    for _ in range(60):
        now_ms += rng.choice([0, 1, 90, 400, 1000, 1500, 7000])
        if rng.random() < 0.7:
            value = float(rng.randrange(-50, 1000))
            sensor.record(value, now_ms)
            for stat in theirs.values():
                stat.record(config, value, now_ms)
        else:
            ours = metrics.values(now_ms)
            for name, stat in theirs.items():
                expected, found = stat.measure(config, now_ms), ours[metrics.name("g", name)]
                assert found == pytest.approx(expected, nan_ok=True), (name, now_ms)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1) as cluster:
        yield cluster.bootstrap_servers


def of_java(client: Any) -> set[Name]:
    """Return the names of the metrics of a client of Kafka."""
    return {(one.group(), one.name(), tuple(sorted(dict(one.tags()).items()))) for one in client.metrics().keySet().toArray()}


def numbers_of(client: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the metrics of a client of Kafka that are numbers, with their names."""
    for entry in client.metrics().entrySet().toArray():
        if entry.getKey().group() != "app-info":
            yield entry.getKey(), entry.getValue()


def wanted(names: Iterable[Name]) -> set[Name]:
    """Return the names without those that kops does not have: texts about the program, and queues between the threads of a consumer."""
    return {
        name
        for name in names
        if name[0] != "app-info"
        and not any(part in name[1] for part in ("event-queue", "events-expired", "unsent-requests", "network-thread"))
    }


@pytest.mark.slow
def test_names_of_an_admin_client(oracle: Oracle, servers: str) -> None:
    settings = {"bootstrap.servers": servers, "client.id": "c"}
    theirs = oracle.jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    theirs.describeCluster().nodes().get()
    with kops.Admin(settings) as ours:
        ours.describe_cluster()
        # Both ask only the node of the first answer again, whose number may be that of the bootstrap server or of the broker.
        for _ in range(2):
            theirs.describeCluster().nodes().get()
            ours.describe_cluster()
        assert set(ours.metrics()) == wanted(of_java(theirs))
        values = {name[:2]: value for name, value in ours.metrics().items()}
    theirs.close()
    assert values["admin-client-metrics", "request-total"] >= 3
    assert values["admin-client-metrics", "connection-count"] >= 1
    assert values["admin-client-node-metrics", "request-latency-max"] >= values["admin-client-node-metrics", "request-latency-avg"] >= 0


@pytest.mark.slow
def test_names_of_a_producer(oracle: Oracle, servers: str) -> None:
    kafka = oracle.jvm.org.apache.kafka
    settings = {"bootstrap.servers": servers, "client.id": "c"}
    serializer = kafka.common.serialization.ByteArraySerializer
    theirs = kafka.clients.producer.KafkaProducer(settings, serializer(), serializer())
    with kops.Producer(settings) as ours:
        for topic in ("plain", "with.dot"):
            theirs.send(kafka.clients.producer.ProducerRecord(topic, b"x")).get()
            ours.send(topic, b"x").result(60)
        assert set(ours.metrics()) == wanted(of_java(theirs))
        values = {name[:2]: value for name, value in ours.metrics().items() if len(name.tags) == 1}
    theirs.close()
    assert values["producer-metrics", "record-send-total"] == 2
    assert values["producer-metrics", "records-per-request-avg"] == 1
    assert values["producer-metrics", "metadata-wait-time-ns-total"] > 0
    assert values["producer-metrics", "connection-count"] >= 1
    assert values["producer-metrics", "request-latency-max"] >= values["producer-metrics", "request-latency-avg"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_names_of_a_consumer(oracle: Oracle, servers: str, protocol: str) -> None:
    kafka, count = oracle.jvm.org.apache.kafka, 30
    settings = {"bootstrap.servers": servers, "client.id": "c", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    deserializer = kafka.common.serialization.ByteArrayDeserializer
    topics = [f"{protocol}-plain", f"{protocol}.with.dot"]
    with kops.Producer({"bootstrap.servers": servers}) as producer:
        for topic in topics:
            for _ in range(count // 2):
                producer.send(topic, b"x")
    theirs = kafka.clients.consumer.KafkaConsumer({**settings, "group.id": f"java-{protocol}"}, deserializer(), deserializer())
    theirs.subscribe(topics)
    left = count
    while left > 0:
        left -= theirs.poll(oracle.jvm.java.time.Duration.ofMillis(500)).count()
    theirs.poll(oracle.jvm.java.time.Duration.ofMillis(0))  # now the answers are read to their ends
    theirs.commitSync()
    with kops.Consumer({**settings, "group.id": f"kops-{protocol}"}) as ours:
        ours.subscribe(topics)
        left = count
        while left > 0:
            left -= len(ours.poll(0.5))
        ours.poll(0)
        ours.commit()
        found = ours.metrics()
        assert set(found) == wanted(of_java(theirs))
    theirs.close()
    values = {name[:2]: value for name, value in found.items() if len(name.tags) == 1}
    assert values["consumer-fetch-manager-metrics", "records-consumed-total"] == count
    assert values["consumer-fetch-manager-metrics", "records-lag-max"] == 0
    assert values["consumer-fetch-manager-metrics", "records-lead-min"] == count // 2
    assert values["consumer-coordinator-metrics", "commit-total"] == 1
    assert values["consumer-coordinator-metrics", "rebalance-total"] >= 1
    assert values["consumer-coordinator-metrics", "assigned-partitions"] == 2
    assert 0 <= values["consumer-metrics", "poll-idle-ratio-avg"] <= 1


@pytest.mark.slow
def test_names_of_a_share_consumer(oracle: Oracle, servers: str) -> None:
    kafka, count = oracle.jvm.org.apache.kafka, 10
    with kops.Admin({"bootstrap.servers": servers}) as admin:
        earliest = AlterConfigOp.set("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource.group(name): [earliest] for name in ("java-share", "kops-share")}).all()
    with kops.Producer({"bootstrap.servers": servers}) as producer:
        for _ in range(count):
            producer.send("shared", b"x")
    settings = {"bootstrap.servers": servers, "client.id": "c"}
    deserializer = kafka.common.serialization.ByteArrayDeserializer
    theirs = kafka.clients.consumer.KafkaShareConsumer({**settings, "group.id": "java-share"}, deserializer(), deserializer())
    theirs.subscribe(["shared"])
    left = count
    while left > 0:
        left -= theirs.poll(oracle.jvm.java.time.Duration.ofMillis(500)).count()
    theirs.commitSync()
    with kops.ShareConsumer({**settings, "group.id": "kops-share"}) as ours:
        ours.subscribe(["shared"])
        left = count
        while left > 0:
            left -= len(ours.poll(0.5))
        ours.commit_sync()
        ours.poll(0)
        found = ours.metrics()
        assert set(found) == wanted(of_java(theirs))
    java = {(one.group(), one.name()): float(metric.metricValue()) for one, metric in numbers_of(theirs) if one.tags().size() == 1}
    theirs.close()
    values = {name[:2]: value for name, value in found.items() if len(name.tags) == 1}
    group = "consumer-share-fetch-manager-metrics"
    for name, value in (("records-consumed-total", count), ("acknowledgements-send-total", count), ("acknowledgements-error-total", 0)):
        assert values[group, name] == java[group, name] == value, name
    assert values[group, "bytes-consumed-total"] == java[group, "bytes-consumed-total"] > 0
    assert values[group, "fetch-total"] > 0
    assert values["consumer-share-coordinator-metrics", "heartbeat-total"] >= 1
    assert values["consumer-share-coordinator-metrics", "rebalance-total"] >= 1
    assert 0 <= values["consumer-share-metrics", "poll-idle-ratio-avg"] <= 1


@pytest.mark.parametrize("is_delta", [False, True])
def test_bytes_of_opentelemetry(oracle: Oracle, is_delta: bool) -> None:
    """Kafka's own parser reads what is pushed."""
    metrics = Metrics("me")
    total = metrics.sensor("producer-topic-metrics", {"record-send-total": Stat.TOTAL}, {"topic": "t" * 200, "node-id": "x"})
    metrics.gauge("producer-metrics", "batch-size-avg", lambda now_ms: 1.5)
    telemetry = Telemetry(metrics, lambda: {"client_rack": "r", "transactional_id": "ü"}, lambda: 0.0, 1000)
    names = ["org.apache.kafka.producer."]
    subscription = GetTelemetrySubscriptionsResponse(
        client_instance_id=b"i" * 16, push_interval_ms=1, requested_metrics=names, delta_temporality=is_delta
    )
    telemetry.request(0, 1000)
    telemetry.answered(subscription, 0)
    utils = oracle.java_class("org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils")
    for at_ms, value, expected, since_ms in ((2000, 5, 5, 1000), (3000, 2, 2 if is_delta else 7, 2000 if is_delta else 1000)):
        total.record(value, 0)
        request = telemetry.request(0, at_ms)
        assert isinstance(request, PushTelemetryRequest)
        telemetry.answered(PushTelemetryResponse(), 0)
        parsed = utils.deserializeMetricsData(oracle.jvm.java.nio.ByteBuffer.wrap(request.metrics))
        assert parsed.getSerializedSize() == len(request.metrics)
        found = {}
        for resource in parsed.getResourceMetricsList():
            labels = {one.getKey(): one.getValue().getStringValue() for one in resource.getResource().getAttributesList()}
            assert labels == {"client_rack": "r", "transactional_id": "ü"}
            metric = resource.getScopeMetrics(0).getMetrics(0)
            found[metric.getName()] = metric
        average, sent = (found[f"org.apache.kafka.producer.{name}"] for name in ("batch.size.avg", "topic.record.send.total"))
        assert len(found) == 2
        point = average.getGauge().getDataPoints(0)
        assert (point.getAsDouble(), point.getTimeUnixNano(), point.getAttributesCount()) == (1.5, at_ms * 1_000_000, 0)
        point = sent.getSum().getDataPoints(0)
        assert sent.getSum().getIsMonotonic()
        assert sent.getSum().getAggregationTemporality().toString() == f"AGGREGATION_TEMPORALITY_{'DELTA' if is_delta else 'CUMULATIVE'}"
        assert (point.getAsDouble(), point.getStartTimeUnixNano()) == (expected, since_ms * 1_000_000)
        assert {one.getKey(): one.getValue().getStringValue() for one in point.getAttributesList()} == {"topic": "t" * 200, "node_id": "x"}


def test_names_in_opentelemetry(oracle: Oracle) -> None:
    convention = oracle.java_class("org.apache.kafka.common.telemetry.internals.TelemetryMetricNamingConvention")
    strategy = convention.getClientTelemetryMetricNamingStrategy("org.apache.kafka")
    for group in ("producer-metrics", "consumer-fetch-manager-metrics", "kafka-metrics-count", "consumer-share-metrics", "X-metrics-Y"):
        name = MetricName(group, "Some-name-avg", (("client-id", "c"), ("node-id", "n")))
        java = oracle.jvm.org.apache.kafka.common.MetricName(name.name, group, "", dict(name.tags))
        theirs = strategy.metricKey(java)
        assert telemetry_name(name) == theirs.name()
        assert telemetry_tags(name) == {key: value for key, value in dict(theirs.tags()).items() if key != "client_id"}
