"""A client's metadata of a cluster, and when it is dropped."""

from __future__ import annotations

from kops.client.metadata import Leader, Metadata
from kops.client.node import Node
from kops.protocol.messages import MetadataResponse
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.records.log_offsets import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ID, OTHER_ID = bytes([1]) * 16, bytes([2]) * 16


def response(*leaders: tuple[int, int], topic_id: bytes = ID, error_code: int = 0) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, (leader, epoch) in enumerate(leaders)
    ]
    topic = MetadataResponseTopic(error_code=error_code, name="a", topic_id=topic_id, partitions=partitions)
    brokers = [MetadataResponseBroker(node_id=1, host="one", port=1), MetadataResponseBroker(node_id=2, host="two", port=2, rack="r")]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=2, topics=[topic])


def test_it_begins_with_the_bootstrap_servers_and_comes_back_to_them() -> None:
    metadata = Metadata([("x", 1), ("::1", 2)], max_age_ms=1000)
    assert metadata.nodes == {-1: Node(-1, "x", 1), -2: Node(-2, "::1", 2)}
    assert metadata.bootstrap_text == "x:1,[::1]:2"
    assert metadata.is_bootstrap and metadata.is_due(0)
    metadata.update(response((1, 5)), 100)
    assert metadata.nodes == {1: Node(1, "one", 1), 2: Node(2, "two", 2, "r")}
    assert (metadata.cluster_id, metadata.controller_id, metadata.is_bootstrap) == ("c", 2, False)
    assert not metadata.is_due(1099) and metadata.is_due(1100)
    metadata.rebootstrap()
    assert metadata.is_bootstrap and metadata.is_due(101) and set(metadata.nodes) == {-1, -2}
    assert metadata.leader_node(A0) is None


def test_a_broker_that_knows_no_broker_changes_nothing() -> None:
    metadata = Metadata([("x", 1)], max_age_ms=1000)
    metadata.update(MetadataResponse(), 5)
    assert metadata.is_bootstrap and set(metadata.nodes) == {-1}


def test_leaders_of_older_epochs_are_no_news() -> None:
    metadata = Metadata([("x", 1)], max_age_ms=1000)
    metadata.update(response((1, 5), (-1, 3)), 0)
    assert metadata.leader_node(A0) == Node(1, "one", 1)
    assert metadata.leader_node(A1) is None
    assert not metadata.update_leader(A0, Leader(2, 4))
    assert not metadata.update_leader(A0, Leader(1, 5))
    assert metadata.update_leader(A0, Leader(2, 6))
    metadata.update(response((1, 5), (1, 4)), 10)  # a broker that lags behind
    assert metadata.leaders == {A0: Leader(2, 6), A1: Leader(1, 4)}
    metadata.add_nodes([Node(7, "seven", 7)])
    assert metadata.update_leader(A1, Leader(7, 5)) and metadata.leader_node(A1) == Node(7, "seven", 7)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    metadata = Metadata([("x", 1)], max_age_ms=1000)
    metadata.update(response((1, 9), (1, 9)), 0)
    metadata.update(response((2, 0), topic_id=OTHER_ID), 10)
    assert metadata.leaders == {A0: Leader(2, 0)}
    assert metadata.partition_counts == {"a": 1}
    metadata.update(response(error_code=3), 20)
    assert metadata.topic_errors == {"a": "UNKNOWN_TOPIC_OR_PARTITION"}
    metadata.update(response((2, 0), topic_id=OTHER_ID), 30)
    assert metadata.topic_errors == {}
