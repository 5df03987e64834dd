"""Markers are written once into each partition, and every request is answered."""

from __future__ import annotations

from collections.abc import Callable

from kops.broker.transactions.marker_writer import MarkerWriter
from kops.protocol.errors import by_code
from kops.protocol.messages import WriteTxnMarkersResponse
from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker, WritableTxnMarkerTopic
from kops.records.log_offsets import TopicPartition
from tests.support.parts.replicas import World


def complete_in_groups(partition: TopicPartition, marker: WritableTxnMarker, done: Callable[[str], None]) -> None:
    raise AssertionError("no offsets are part of this transaction")


def test_a_partition_that_is_named_twice_gets_one_marker() -> None:
    """Kafka counts it twice and appends to it once, so that it never answers (KafkaApis.handleWriteTxnMarkersRequest)."""
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    writer = MarkerWriter(broker.manager, complete_in_groups, now_ms=world.loop.now_ms, request_timeout_ms=1000)
    topics = [WritableTxnMarkerTopic("orders", [0, 0, 9]), WritableTxnMarkerTopic("orders", [0])]
    answers: list[WriteTxnMarkersResponse] = []
    writer.write([WritableTxnMarker(7, 0, False, topics, 3, 0)], answers.append)
    world.loop.advance(100)
    ((marker,),) = [answer.markers for answer in answers]
    (topic,) = marker.topics
    assert {each.partition_index: by_code(each.error_code).name for each in topic.partitions} == {
        0: "NONE",
        9: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert broker.log.log_end_offset == 1
