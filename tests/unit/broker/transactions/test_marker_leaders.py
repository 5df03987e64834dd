"""Who gets the marker of a partition: a leader, nobody yet, or nobody ever."""

from __future__ import annotations

from kops.broker.transactions.service import leader_of
from kops.metadata.image.metadata_cache import NO_NODE, MetadataCache
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.protocol.messages import FeatureLevelRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from kops.protocol.messages.register_broker_record import BrokerEndpoint

ORDERS = bytes([1]) * 16


def test_a_partition_without_a_leader_is_not_a_deleted_one() -> None:
    delta = MetadataDelta(EMPTY)
    delta.replay(FeatureLevelRecord("metadata.version", 30))
    delta.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=7, end_points=[BrokerEndpoint("PLAINTEXT", "host", 9092, 0)]))
    delta.replay(TopicRecord("orders", ORDERS))
    for number, leader in enumerate((1, -1)):
        delta.replay(PartitionRecord(number, ORDERS, [1], [1], leader=leader, directories=[bytes(16)], partition_epoch=0))
    cache = MetadataCache(delta.apply(MetadataProvenance(42, 1, 1, True)))
    found = leader_of(cache, "orders", 0, "PLAINTEXT")
    assert found is not None
    assert found.id == 1
    assert leader_of(cache, "orders", 1, "PLAINTEXT") is NO_NODE
    assert leader_of(cache, "orders", 2, "PLAINTEXT") is None
    assert leader_of(cache, "gone", 0, "PLAINTEXT") is None
