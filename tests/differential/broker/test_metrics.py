"""A node's metrics against Kafka's own meters, histograms and MBeans."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kops.broker.apis.table import HANDLERS
from kops.broker.life.metrics import SHARE_GAUGES, share_partition_metrics
from kops.broker.life.rates import TICK_MS, Rates
from kops.broker.network.request_metrics import ApiMetrics, Histogram, RequestMetrics, error_counter, request_counts
from kops.broker.replicas.topic_stats import NAMES, BrokerTopicStats
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.cache import InFlightCache
from kops.protocol import api_keys
from kops.protocol.errors import by_code
from kops.protocol.registry import response_class
from kops.protocol.structure import parse_versions
from tests.support.kafka.oracle import Oracle
from tests.support.parts.groups.sharing import Sharing, acquired
from tests.support.parts.managing import batch
from tests.support.requests.messages import random_message

# Kafka's classes of ACLs accept no random values, and neither node serves these requests here.
ACLS = {29, 30, 31}
SERVED = sorted({*HANDLERS, *(api.key for api in api_keys.API_KEYS if api_keys.Listener.CONTROLLER in api.listeners)} - ACLS)
# See `kops.broker.replicas.topic_stats`.
NOT_COUNTED_OF_TOPICS = {
    "FetchMessageConversionsPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
    "ReassignmentBytesInPerSec",
    "ReassignmentBytesOutPerSec",
}


@pytest.mark.parametrize("seed", range(4))
def test_the_averages_that_forget(oracle: Oracle, seed: int) -> None:
    """Every tick gets random numbers, and some pauses last many ticks."""
    ewma = oracle.jvm.com.yammer.metrics.stats.EWMA
    theirs = {"OneMinuteRate": ewma.oneMinuteEWMA(), "FiveMinuteRate": ewma.fiveMinuteEWMA(), "FifteenMinuteRate": ewma.fifteenMinuteEWMA()}
    second = oracle.jvm.java.util.concurrent.TimeUnit.SECONDS
    rng = random.Random(seed)
    counts: dict[str, float] = {"n": 0}
    start = rng.random() * 1e6
    rates = Rates(start, lambda: iter([counts]))
    now, tick = start, 0
    for _ in range(80):
        now += rng.choice([rng.random() * 4_000, rng.random() * TICK_MS, rng.random() * 200_000])
        rates.on_time(now)
        while tick < (now - start) // TICK_MS:
            tick += 1
            for average in theirs.values():
                average.tick()
        if rng.random() < 0.8:
            more = rng.randrange(100_000)
            counts["n"] += more
            for average in theirs.values():
                average.update(more)
        told = rates.attributes(now)
        for name, average in theirs.items():
            assert told[f"n:{name}"] == pytest.approx(average.rate(second), rel=1e-9, abs=1e-12), (tick, name)
        assert told["n:MeanRate"] == pytest.approx(counts["n"] * 1000 / (now - start))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 500, 1028])
def test_histograms(oracle: Oracle, size: int) -> None:
    rng = random.Random(size)
    numbers = [rng.choice([0, rng.randrange(10), rng.randrange(10**6)]) for _ in range(size)]
    names = oracle.java_class("com.yammer.metrics.core.MetricName")("kops", "test", f"histogram-{size}")
    theirs = oracle.jvm.com.yammer.metrics.Metrics.newHistogram(names, False)
    ours = Histogram()
    for number in numbers:
        theirs.update(number)
    for part in (numbers[: size // 2], numbers[size // 2 :]):
        if part:
            ours.update(part)
    snapshot = theirs.getSnapshot()
    expected = {
        "Count": theirs.count(),
        "Min": theirs.min(),
        "Max": theirs.max(),
        "Mean": theirs.mean(),
        "StdDev": theirs.stdDev(),
        "50thPercentile": snapshot.getMedian(),
        "75thPercentile": snapshot.get75thPercentile(),
        "95thPercentile": snapshot.get95thPercentile(),
        "98thPercentile": snapshot.get98thPercentile(),
        "99thPercentile": snapshot.get99thPercentile(),
        "999thPercentile": snapshot.get999thPercentile(),
    }
    assert ours.attributes() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("key", SERVED)
def test_the_errors_of_an_answer(oracle: Oracle, key: int) -> None:
    """`error_counts` agrees with `AbstractResponse.errorCounts` for random responses of every API that a broker or a controller serves."""
    api = api_keys.by_key(key)
    response = response_class(api)
    java_key = oracle.jvm.org.apache.kafka.common.protocol.ApiKeys.forId(key)
    parse = oracle.jvm.org.apache.kafka.common.requests.AbstractResponse.parseResponse
    accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
    buffers = oracle.java_class("java.nio.ByteBuffer")
    for version in api.versions:
        count = error_counter(response, version)
        for seed in range(4):
            message = random_message(response, version, seed)
            _small_errors(message, version, random.Random(seed))
            buffer = accessor(buffers.wrap(message.encode(version)))
            theirs = {
                str(error.name()): int(number) for error, number in parse(java_key, buffer, oracle.short(version)).errorCounts().items()
            }
            ours: Counter[int] = Counter()
            count(message, ours)
            assert {by_code(code).name: number for code, number in ours.items()} == theirs, (version, message)


def _small_errors(struct: Any, version: int, rng: random.Random) -> None:
    """Set error codes that exist, instead of any numbers, and different names of resources."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version not in parse_versions(field.versions):
            continue
        if field.name.endswith("error_code"):
            setattr(struct, field.name, rng.choice([0, 0, 1, 3, 6, 41]))
        elif field.name == "resource_name":
            struct.resource_name = str(rng.random())
        elif field.of is not None:
            for one in value if isinstance(value, list) else [] if value is None else [value]:
                _small_errors(one, version, rng)


def beans(oracle: Oracle, prefix: str) -> dict[str, set[str]]:
    """Return the attributes of the MBeans that Kafka has registered, by name."""
    registry = oracle.jvm.org.apache.kafka.server.metrics.KafkaYammerMetrics.defaultRegistry()
    found = {}
    for name, metric in registry.allMetrics().items():
        text = str(name.getMBeanName())
        if text.startswith(prefix):
            kind = str(metric.getClass().getSimpleName())
            interface = oracle.jvm.java.lang.Class.forName(f"com.yammer.metrics.reporting.JmxReporter${kind}MBean")
            found[text] = {str(method.getName()).removeprefix("get") for method in interface.getMethods()} - {"objectName", "values"}
    return found


@pytest.mark.parametrize("api_name", ["KopsTest", "Produce"])
def test_the_names_of_request_metrics(oracle: Oracle, api_name: str) -> None:
    metrics = oracle.jvm.org.apache.kafka.network.metrics.RequestMetrics(api_name)
    metrics.requestRate(oracle.short(7)).mark()
    metrics.markErrorMeter(oracle.jvm.org.apache.kafka.common.protocol.Errors.NONE, 1)
    theirs = {
        name: attributes for name, attributes in beans(oracle, "kafka.network:type=RequestMetrics,").items() if f"={api_name}" in name
    }
    api = ApiMetrics()
    api.note((7, (0.0, 1.0, 2.0, 3.0, 4.0, 5.0), 0, 9, 1.0, 100))
    api.errors[0] += 1
    ours = RequestMetrics()
    ours.by_name[api_name] = api
    counts = request_counts([ours])
    rates = Rates(0.0, lambda: iter([counts])).attributes(1.0)
    told = {f"{name}:Count" for name in counts} | set(rates) | set(ours.histograms())
    assert told == {f"{name}:{attribute}" for name, attributes in theirs.items() for attribute in attributes - {"EventType", "RateUnit"}}


def test_the_names_of_share_metrics(oracle: Oracle) -> None:
    jvm = oracle.jvm
    prefixes = ("kafka.server:type=ShareSessionCache,", "kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec,")
    jvm.org.apache.kafka.server.share.session.ShareSessionCache(10)
    metrics = jvm.org.apache.kafka.server.share.metrics.ShareGroupMetrics(jvm.org.apache.kafka.common.utils.Time.SYSTEM)
    registry = jvm.org.apache.kafka.server.metrics.KafkaYammerMetrics.defaultRegistry()
    theirs = {name for each in registry.allMetrics() if (name := str(each.getMBeanName())).startswith(prefixes)}
    assert {name for name in SHARE_GAUGES if name.startswith(prefixes)} == theirs
    metrics.close()


def test_the_names_of_share_partition_metrics(oracle: Oracle) -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(3))
    assert acquired(sharing.member("a").fetch()) == [(0, 2, 1)]
    (share_partition,) = sharing.managers[1].partitions
    ours = share_partition_metrics(share_partition)
    prefix = "kafka.server:type=SharePartitionMetrics,name="
    assert {name.removeprefix(prefix).partition(",")[0]: value for name, value in ours.items()} == {
        "AcquisitionLockTimeoutPerSec": 0,
        "InFlightMessageCount": 3,
        "InFlightBatchCount": 1,
    }
    metrics = oracle.jvm.org.apache.kafka.server.share.metrics.SharePartitionMetrics("g", "orders", 0)
    registry = oracle.jvm.org.apache.kafka.server.metrics.KafkaYammerMetrics.defaultRegistry()
    theirs = {name for each in registry.allMetrics() if (name := str(each.getMBeanName())).startswith(prefix)}
    # A share partition itself registers its records in flight, under the same tags.
    like = f"{prefix}AcquisitionLockTimeoutPerSec,"
    assert {name for name in ours if name.startswith(like)} <= theirs
    assert len({name.partition(",")[2].partition(",")[2] for name in ours}) == 1
    metrics.close()
    sharing.loop.advance(30_000)
    assert share_partition_metrics(share_partition)[next(name for name in ours if name.startswith(like))] == 3


@pytest.mark.parametrize("group", ["orders", "a-b_c.d 1%", "", "a:b", "a,b=c", 'q"u\\o*t?e', "a\nb", "ä"])
def test_groups_in_the_names_of_metrics(oracle: Oracle, group: str) -> None:
    sanitizer = oracle.jvm.org.apache.kafka.common.utils.Sanitizer
    key, cache = SharePartitionKey(group, bytes(16), 3), InFlightCache(cast("Any", None))
    made = SimpleNamespace(key=key, topic="orders", expired_count=0, cache=cache)
    names = share_partition_metrics(cast("Any", made))
    expected = f"group={sanitizer.jmxSanitize(group)},topic=orders,partition=3"
    assert {name.split(",", 2)[2] for name in names} == {expected}


def test_the_names_of_topic_metrics(oracle: Oracle) -> None:
    stats = oracle.jvm.org.apache.kafka.storage.log.metrics.BrokerTopicStats()
    theirs = set(stats.allTopicsStats().metricMapKeySet())
    per_topic = set(stats.topicStats("kops-test").metricMapKeySet())
    ours = BrokerTopicStats()
    one = ours.of("kops-test")
    for name in NAMES:
        setattr(one, name, 1)
    told = {name: count for part in ours.metrics(1) for name, count in part.items()}
    prefix = "kafka.server:type=BrokerTopicMetrics,name="
    assert {name.removeprefix(prefix) for name in told if ",topic=" not in name} == theirs - NOT_COUNTED_OF_TOPICS
    in_topics = {name.removeprefix(prefix).partition(",")[0] for name in told if name.endswith(",topic=kops-test")}
    assert in_topics == per_topic - NOT_COUNTED_OF_TOPICS
    stats.topicStats("kops-test").bytesInRate().mark(1)
    assert f"{prefix}BytesInPerSec,topic=kops-test" in beans(oracle, "kafka.server:type=BrokerTopicMetrics,")
    stats.close()
