"""Whole responses from an image, and invalid requests."""

from __future__ import annotations

import pytest

from kops.errors import ApiError
from kops.metadata.image.metadata_cache import NO_BROKER, MetadataCache, error_code
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.messages import (
    ConfigRecord,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FeatureLevelRecord,
    MetadataRequest,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kops.protocol.messages.describe_topic_partitions_request import Cursor, TopicRequest
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.register_broker_record import BrokerEndpoint

ORDERS, CLICKS = bytes([1]) * 16, bytes([2]) * 16


@pytest.fixture
def cache() -> MetadataCache:
    """Provide brokers 1 and 2, a fenced broker 3, and the topics `orders` with three partitions and `clicks` with one."""
    delta = MetadataDelta(EMPTY)
    delta.replay(FeatureLevelRecord("metadata.version", 30))
    delta.replay(FeatureLevelRecord("group.version", 1))
    for broker_id in (1, 2, 3):
        point = BrokerEndpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        delta.replay(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=7, end_points=[point], rack="r", fenced=broker_id == 3))
    delta.replay(TopicRecord("orders", ORDERS))
    delta.replay(TopicRecord("clicks", CLICKS))
    delta.replay(TopicRecord("empty", bytes([3]) * 16))
    for topic_id, count in ((ORDERS, 3), (CLICKS, 1)):
        for number in range(count):
            directories = [bytes(16)] * 3
            delta.replay(PartitionRecord(number, topic_id, [1, 2, 3], [1, 2], leader=1, directories=directories, partition_epoch=0))
    delta.replay(ConfigRecord(2, "orders", "retention.ms", "5"))
    return MetadataCache(delta.apply(MetadataProvenance(42, 1, 1, True)))


def asked(cache: MetadataCache, version: int, *topics: MetadataRequestTopic) -> dict[str | None, tuple[int, bytes, int]]:
    """Return the error code, the id and the number of partitions by name."""
    response = cache.metadata(MetadataRequest(topics=list(topics)), version, "PLAINTEXT", cluster_id="c", controller_id=2)
    assert [broker.node_id for broker in response.brokers] == [1, 2]
    assert (response.cluster_id, response.controller_id) == ("c", 2)
    response.encode(version)
    return {topic.name: (topic.error_code, topic.topic_id, len(topic.partitions)) for topic in response.topics}


def test_metadata_by_name(cache: MetadataCache) -> None:
    found = asked(cache, 9, *(MetadataRequestTopic(name=name) for name in ("clicks", "absent", "bad name", "empty", "clicks")))
    unknown, invalid = error_code("UNKNOWN_TOPIC_OR_PARTITION"), error_code("INVALID_TOPIC_EXCEPTION")
    assert found == {
        "clicks": (0, CLICKS, 1),
        "absent": (unknown, bytes(16), 0),
        "bad name": (invalid, bytes(16), 0),
        "empty": (unknown, bytes([3]) * 16, 0),
    }


def test_metadata_of_all_topics(cache: MetadataCache) -> None:
    """A request without a list means all topics, and in version 0 also one with an empty list. Later, an empty list means no topic."""
    everything = cache.metadata(MetadataRequest(topics=None), 12, "PLAINTEXT", cluster_id="c", controller_id=1)
    assert sorted(topic.name or "" for topic in everything.topics) == ["clicks", "orders"]
    assert asked(cache, 0).keys() == {"clicks", "orders"}
    assert asked(cache, 1) == {}


def test_metadata_by_id(cache: MetadataCache) -> None:
    found = asked(cache, 12, MetadataRequestTopic(ORDERS, None), MetadataRequestTopic(bytes([9]) * 16, None))
    assert found == {"orders": (0, ORDERS, 3), None: (error_code("UNKNOWN_TOPIC_ID"), bytes([9]) * 16, 0)}
    for topic in (MetadataRequestTopic(ORDERS, "orders"), MetadataRequestTopic(name=None)):
        with pytest.raises(ApiError) as caught:
            asked(cache, 11, topic)
        assert caught.value.name == "INVALID_REQUEST"


def test_offline_replicas_and_unavailable_brokers(cache: MetadataCache) -> None:
    """A fenced broker's replica is offline. Version 0 leaves it out and reports an error."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="clicks")])
    for version, code, replicas in ((0, error_code("REPLICA_NOT_AVAILABLE"), [1, 2]), (5, 0, [1, 2, 3])):
        (partition,) = cache.metadata(request, version, "PLAINTEXT", cluster_id="c", controller_id=1).topics[0].partitions
        assert (partition.error_code, partition.replica_nodes, partition.offline_replicas) == (code, replicas, [3])
    for version, name in ((5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")):
        (partition,) = cache.metadata(request, version, "SSL", cluster_id="c", controller_id=1).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (error_code(name), -1)


def test_describe_topic_partitions_goes_on_at_the_cursor(cache: MetadataCache) -> None:
    """The test reads all topics by name, two partitions at a time."""
    seen, cursor = [], None
    for _ in range(9):
        response = cache.describe_topic_partitions(DescribeTopicPartitionsRequest([], 2, cursor), "PLAINTEXT", max_partitions=2000)
        seen.append([(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions])
        if response.next_cursor is None:
            break
        cursor = Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [[("clicks", 0), ("orders", 0)], [("orders", 1), ("orders", 2)]]


def test_describe_topic_partitions_refuses(cache: MetadataCache) -> None:
    for cursor in (Cursor("zebra", 0), Cursor("orders", -1)):
        with pytest.raises(ApiError) as caught:
            cache.describe_topic_partitions(
                DescribeTopicPartitionsRequest([TopicRequest("orders")], 2, cursor), "PLAINTEXT", max_partitions=9
            )
        assert caught.value.name == "INVALID_REQUEST"
    response = cache.describe_topic_partitions(
        DescribeTopicPartitionsRequest([TopicRequest("orders"), TopicRequest("clicks")]),
        "PLAINTEXT",
        max_partitions=9,
        may_describe=lambda name: name == "clicks",
    )
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("clicks", 0),
        ("orders", error_code("TOPIC_AUTHORIZATION_FAILED")),
    ]


def test_describe_cluster(cache: MetadataCache) -> None:
    response = cache.describe_cluster(DescribeClusterRequest(), 2, "PLAINTEXT", cluster_id="c", controller_id=3)
    assert ([node.broker_id for node in response.brokers], response.controller_id) == ([1, 2], -1)
    response = cache.describe_cluster(DescribeClusterRequest(include_fenced_brokers=True), 2, "PLAINTEXT", cluster_id="c", controller_id=3)
    assert ([node.is_fenced for node in response.brokers], response.controller_id) == ([False, False, True], 3)
    for kind, version, name in ((2, 1, "MISMATCHED_ENDPOINT_TYPE"), (9, 1, "UNSUPPORTED_ENDPOINT_TYPE"), (9, 0, "INVALID_REQUEST")):
        request = DescribeClusterRequest(endpoint_type=kind)
        assert cache.describe_cluster(request, version, "PLAINTEXT", cluster_id="c", controller_id=1).error_code == error_code(name)


def test_small_answers(cache: MetadataCache) -> None:
    assert dict(cache.config(ResourceType.TOPIC, "orders")) == {"retention.ms": "5"}
    assert dict(cache.config(ResourceType.TOPIC, "clicks")) == {}
    assert cache.finalized_features(1) == {"metadata.version": 30, "group.version": 1, "kraft.version": 1}
    assert cache.random_alive_broker(lambda count: count - 1) == 2
    assert MetadataCache().random_alive_broker(lambda count: 0) == NO_BROKER
    assert cache.partition_count("orders") == 3
    assert cache.partition_count("absent") is None
    assert cache.topic_id("absent") == bytes(16)
