"""The replicas of brokers: produce, replication, high watermarks, roles, failures, over logs in memory."""

from __future__ import annotations

from kops.records.log_offsets import TopicPartition
from tests.support.managing import batch
from tests.support.replicas import World


def test_a_produce_to_one_replica_is_answered_at_once() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    (answer,) = broker.produce(batch(3))
    assert (answer.error, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == ("NONE", 0, -1, 0)
    assert broker.log.high_watermark == 3
    assert broker.produce(batch(2), acks=1)[0].base_offset == 3


def test_followers_follow_and_acks_all_waits_for_them() -> None:
    world = World(1, 2, 3)
    world.create_topic([1, 2, 3])
    leader = world.brokers[1]
    answers = leader.produce(batch(3), timeout_ms=10_000)
    assert answers == []
    assert leader.log.high_watermark == 0
    world.loop.advance(1000)
    assert [answer.error for answer in answers] == ["NONE"]
    for broker in world.brokers.values():
        assert broker.log.log_end_offset == broker.log.high_watermark == 3
    assert leader.produce(batch(1), acks=0)[0].base_offset == 3
    world.loop.turn()
    assert world.brokers[3].log.log_end_offset == 4


def test_what_is_not_here() -> None:
    world = World(1, 2)
    world.create_topic([1])
    elsewhere = world.brokers[2]
    assert elsewhere.produce(batch())[0].error == "NOT_LEADER_OR_FOLLOWER"
    assert elsewhere.produce(batch(), key=TopicPartition("none", 0))[0].error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert elsewhere.produce(batch(), key=TopicPartition("__consumer_offsets", 0))[0].error == "INVALID_TOPIC_EXCEPTION"
    assert elsewhere.produce(batch(), acks=2)[0].error == "INVALID_REQUIRED_ACKS"
    refused = world.brokers[1].produce(batch()[:-1] + b"?")[0]
    assert (refused.error, refused.log_start_offset) == ("CORRUPT_MESSAGE", -1)
