"""The responses of Metadata and DescribeTopicPartitions for an image are byte for byte those of the real KRaftMetadataCache."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kops.metadata.image.metadata_cache import MetadataCache
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.records import write_record
from kops.protocol.messages import DescribeTopicPartitionsRequest, FeatureLevelRecord, MetadataResponse
from kops.protocol.messages.describe_topic_partitions_request import Cursor, TopicRequest
from tests.differential.metadata.test_metadata_image import RealImages, replay_both
from tests.support.kafka.manual_jvm import constant, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.requests.metadata_records import RecordSource

LISTENERS = ("PLAINTEXT", "SSL", "INTERNAL", "NONE")


class RealCache:
    """KRaftMetadataCache with an image."""

    def __init__(self, oracle: Oracle, image: Any) -> None:
        self.oracle = oracle
        self.cache = oracle.java_class("org.apache.kafka.metadata.KRaftMetadataCache")(1, None)
        self.cache.setImage(image)

    def listener(self, name: str) -> Any:
        """Return a listener's name."""
        return self.oracle.java_class("org.apache.kafka.common.network.ListenerName")(name)

    def encoded(self, message: Any, version: int) -> bytes:
        """Return a response's bytes."""
        written = self.oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor(
            message, self.oracle.short(version)
        )
        buffer = written.buffer()
        return bytes(buffer.array())[: buffer.limit()]

    def metadata(self, names: list[str], listener: str, version: int) -> bytes:
        """Return the topics of a Metadata response."""
        wanted = self.oracle.jvm.java.util.LinkedHashSet(names)
        told = self.cache.getTopicMetadata(wanted, self.listener(listener), version == 0, version >= 6)
        response = self.oracle.java_class("org.apache.kafka.common.message.MetadataResponseData")()
        for topic in told.toArray():
            response.topics().add(topic)
        return self.encoded(response, version)

    def described(self, names: list[str], listener: str, start: int, limit: int, ignore_missing: bool) -> bytes:
        """Return a DescribeTopicPartitions response."""
        first = proxy(self.oracle, "java.util.function.Function", constant(self.oracle, start))
        topics = self.oracle.jvm.java.util.ArrayList(names).iterator()
        return self.encoded(self.cache.describeTopicResponse(topics, self.listener(listener), first, limit, ignore_missing), 0)


@pytest.fixture(scope="module")
def caches(oracle: Oracle) -> list[tuple[MetadataImage, RealCache]]:
    """Provide a few images."""
    real = RealImages(oracle)
    made = []
    for seed in range(3):
        source, ours, theirs = RecordSource(seed), EMPTY, real.empty
        source.delta, delta = MetadataDelta(ours), real.delta(theirs)
        version = FeatureLevelRecord("metadata.version", 30)
        source.delta.replay(version)
        delta.replay(real.message(write_record(version, 0)))
        replay_both(real, source, delta, 250)
        ours = source.delta.apply(MetadataProvenance(seed, 1, 1, True))
        made.append((ours, RealCache(oracle, real.apply(delta, seed))))
    return made


def test_metadata(caches: list[tuple[MetadataImage, RealCache]]) -> None:
    """All topics and some unknown ones, at each listener, in a version for each rule, give the same responses."""
    sizes = []
    for image, real in caches:
        names = [*sorted(image.topics.by_name), "absent", "not a name"]
        for listener in LISTENERS:
            for version in (0, 1, 5, 7, 13):
                options = {"error_unavailable_endpoints": version == 0, "error_unavailable_listeners": version >= 6}
                ours = MetadataResponse(topics=MetadataCache(image).topic_metadata(names, listener, **options)).encode(version)
                assert ours == real.metadata(names, listener, version)
                sizes.append(len(ours))
    assert min(sizes) > 500


def test_describe_topic_partitions(caches: list[tuple[MetadataImage, RealCache]]) -> None:
    """Limits and cursors give the same responses at each listener, with named topics and with all."""
    rng = random.Random(3)
    for image, real in caches:
        names = sorted(image.topics.by_name)
        for listener in LISTENERS:
            for limit in (1, 2, 3, 7, 2000):
                asked = sorted([*rng.sample(names, 4), "absent", "not a name"]) if rng.random() < 0.5 else []
                cache = MetadataCache(image)
                request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in asked], limit)
                ours = cache.describe_topic_partitions(request, listener, max_partitions=2000)
                assert ours.encode(0) == real.described(asked or names, listener, 0, limit, not asked)
                cursor = Cursor(rng.choice(names), rng.randrange(4))
                request = DescribeTopicPartitionsRequest([TopicRequest(cursor.topic_name)], limit, cursor)
                ours = cache.describe_topic_partitions(request, listener, max_partitions=2000)
                assert ours.encode(0) == real.described([cursor.topic_name], listener, cursor.partition_index, limit, False)


def test_look_ups(caches: list[tuple[MetadataImage, RealCache]]) -> None:
    """Look-ups of brokers, leaders and replicas agree."""
    for image, real in caches:
        ours = MetadataCache(image)
        for listener in LISTENERS:
            java = real.listener(listener)
            for mine, theirs in ((ours.alive_brokers, "getAliveBrokerNodes"), (ours.broker_nodes, "getBrokerNodes")):
                nodes = getattr(real.cache, theirs)(java).toArray()
                assert {(node.id, node.host, node.port, node.rack, node.is_fenced) for node in mine(listener)} == {
                    (node.id(), node.host(), node.port(), node.rack(), node.isFenced()) for node in nodes
                }
            for topic in sorted(image.topics.by_name)[:6]:
                place = real.oracle.jvm.org.apache.kafka.common.TopicPartition(topic, 0)
                assert set(ours.replica_endpoints(topic, 0, listener)) == set(real.cache.getPartitionReplicaEndpoints(place, java))
                leader, found = ours.leader_endpoint(topic, 0, listener), real.cache.getPartitionLeaderEndpoint(topic, 0, java)
                assert (None if leader is None else leader.id) == (found.get().id() if found.isPresent() else None)
        for broker_id in range(6):
            epoch = real.cache.getAliveBrokerEpoch(broker_id)
            assert ours.alive_broker_epoch(broker_id) == (epoch.get() if epoch.isPresent() else None)
            assert ours.is_broker_fenced(broker_id) == real.cache.isBrokerFenced(broker_id)
            assert ours.is_broker_shutting_down(broker_id) == real.cache.isBrokerShuttingDown(broker_id)
