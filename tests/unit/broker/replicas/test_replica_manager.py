"""The replicas of brokers: produce, replication, high watermarks, roles and failures, with logs in memory."""

from __future__ import annotations

import gc

import pytest

from kops.metadata.directory_id import UNASSIGNED
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY
from kops.protocol.messages import PartitionRecord, RemoveTopicRecord, TopicRecord
from kops.records import BatchBuilder
from kops.records.log_offsets import TopicPartition
from kops.storage.formats.kafka_uuid import uuid_bytes, uuid_text
from tests.support.parts.managing import DIRECTORY_IDS, batch
from tests.support.parts.replicas import TOPIC_ID, TP, World


def test_a_produce_to_one_replica_is_answered_at_once() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    (answer,) = broker.produce(batch(3))
    assert (answer.error, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == ("NONE", 0, -1, 0)
    assert broker.log.high_watermark == 3
    assert broker.produce(batch(2), acks=1)[0].base_offset == 3
    assert broker.manager.leader_count == broker.manager.partition_count == 1


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


def test_an_idle_follower_asks_once_in_the_time_of_waiting() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    (wire,) = world.brokers[2].wires
    before = len(wire.sent)
    world.loop.advance(5000)
    assert len(wire.sent) - before == 10
    # The appended records are the answer to the waiting fetch, and the next fetch acknowledges them.
    answers = world.brokers[1].produce(batch())
    world.loop.turn()
    assert [answer.error for answer in answers] == ["NONE"]
    assert len(wire.sent) - before == 11


def test_a_produce_that_comes_in_while_another_is_answered_need_not_wait_for_the_followers_next_fetch() -> None:
    """The first one is answered in the middle of a follower's fetch. The next one of its client is appended right then."""
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    manager = world.brokers[1].manager
    later: list[str] = []

    def first_is_answered(_: object) -> None:
        manager.append_records({TP: batch()}, -1, 10_000, lambda answers: later.append(answers[TP].error))

    manager.append_records({TP: batch()}, -1, 10_000, first_is_answered)
    world.loop.turn()
    assert later == ["NONE"]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize(("waiting", "fetches"), [(3, 2), (4, 1)])
def test_after_many_produces_a_fetch_also_takes_what_comes_in_one_turn_later(waiting: int, fetches: int, acks: int) -> None:
    """With acks=1, as coordinators append, no request waits for the replicas. Then the appends of the turn count."""
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    leader, follower = world.brokers[1], world.brokers[2]
    (wire,) = follower.wires
    answers = [leader.produce(batch(), acks, timeout_ms=10_000) for _ in range(waiting)]
    world.loop.call_soon(lambda: answers.append(leader.produce(batch(), acks, timeout_ms=10_000)))
    before = len(wire.sent)
    world.loop.turn()
    assert [answer.error for (answer,) in answers] == ["NONE"] * (waiting + 1)
    assert len(wire.sent) - before == fetches


def test_what_was_replicated_and_answered_needs_no_garbage_collector() -> None:
    """A full collection stops a node for longer than hundreds of requests take."""
    world = World(1, 2, 3)
    world.create_topic([1, 2, 3])
    world.loop.advance(1000)
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            world.brokers[1].produce(batch())
            world.loop.advance(600)  # some fetches are answered with records, some time out
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_follower_that_waits_goes_on_though_the_wall_clock_is_set_back() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.cut.add((2, 1))
    world.brokers[1].produce(batch(3), acks=1)
    world.loop.advance(600)
    world.loop.set_back_ms = 3_600_000
    world.cut.clear()
    world.loop.advance(5000)
    assert world.brokers[2].log.log_end_offset == 3


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
    answers: list[str] = []
    world.brokers[1].manager.append_records(
        {TP: batch()}, 1, 0, lambda found: answers.append(found[TP].error), topic_ids={"orders": b"another topic id"}
    )
    assert answers == ["UNKNOWN_TOPIC_ID"]


def test_another_topic_of_the_same_name_is_not_let_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """If metadata contradict themselves, only that partition misses its change."""
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    assert broker.produce(batch(3))[0].error == "NONE"
    other, clicks = uuid_bytes("AAAAAAAAAAAAAAAAAAAABw"), TopicPartition("clicks", 0)
    delta = MetadataDelta(EMPTY)
    for name, topic_id in ((TP.topic, other), (clicks.topic, bytes(15) + b"8")):
        delta.replay(TopicRecord(name, topic_id))
        delta.replay(PartitionRecord(0, topic_id, [1], [1], leader=1, leader_epoch=9))
    broker.manager.apply_delta(delta.topics, delta.apply(world.image.provenance))
    assert [line for line in caplog.messages if "exists, but its ID is" in line] == [
        f"Topic orders-0 exists, but its ID is {uuid_text(TOPIC_ID)}, not AAAAAAAAAAAAAAAAAAAABw as expected"
    ]
    assert broker.produce(batch(2))[0].base_offset == 3
    assert broker.produce(batch(2), key=clicks)[0].base_offset == 0


def test_one_partition_fails_the_other_waits() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    none = TopicPartition("none", 0)
    errors: list[dict[TopicPartition, str]] = []
    world.brokers[1].manager.append_records(
        {TP: batch(), none: batch()}, -1, 1000, lambda found: errors.append({key: answer.error for key, answer in found.items()})
    )
    assert errors == []
    world.loop.turn()
    assert errors == [{TP: "NONE", none: "UNKNOWN_TOPIC_OR_PARTITION"}]


def test_wrong_records_are_named() -> None:
    world = World(1)
    world.brokers[1].disks.topics["orders"] = {"cleanup.policy": "compact"}
    world.create_topic([1])
    broker = world.brokers[1]
    broker.produce(batch(4))
    builder = BatchBuilder()
    builder.append(world.loop.now_ms(), None, b"value")
    refused = broker.produce(builder.build())[0]
    assert (refused.error, refused.log_start_offset, len(refused.record_errors)) == ("INVALID_RECORD", 0, 1)
    assert refused.error_message
    assert "rejected" in refused.error_message


def test_the_log_names_the_producer_of_rejected_transactional_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World(1)
    world.create_topic([1])
    records = batch(producer_id=7, producer_epoch=2, base_sequence=5, transactional=True)
    assert world.brokers[1].produce(records)[0].error == "INVALID_TXN_STATE"
    assert "Rejected records of producer 7 with epoch 2 and sequence 5 for partition orders-0: INVALID_TXN_STATE" in caplog.text


def test_acks_all_in_vain() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    world.cut.add((2, 1))
    world.loop.advance(500)
    answers = world.brokers[1].produce(batch(), timeout_ms=700)
    world.loop.advance(699)
    assert answers == []
    world.loop.advance(1)
    assert [(answer.error, answer.base_offset) for answer in answers] == [("REQUEST_TIMED_OUT", 0)]
    assert world.brokers[1].manager.purgatories.produce.delayed_count == 0


def test_a_follower_that_is_away_leaves_the_isr_and_comes_back() -> None:
    world = World(1, 2, 3)
    world.create_topic([1, 2, 3])
    leader = world.brokers[1]
    world.loop.advance(100)
    world.cut.add((3, 1))
    answers = leader.produce(batch(5), timeout_ms=60_000)
    world.loop.advance(29_000)
    leader.manager.maybe_shrink_isrs()
    world.loop.turn()
    assert (answers, world.asked) == ([], [])
    world.loop.advance(16_000)
    leader.manager.maybe_shrink_isrs()
    world.loop.turn()
    assert [answer.error for answer in answers] == ["NONE"]
    assert leader.manager.hosted.online[TP].in_sync_replica_ids == {1, 2}
    assert leader.manager.count_leaders(lambda partition: partition.is_under_replicated) == 1
    world.cut.clear()
    world.loop.advance(2000)
    assert leader.manager.hosted.online[TP].in_sync_replica_ids == {1, 2, 3}
    assert world.brokers[3].log.log_end_offset == 5
    assert [len(proposed.isr) for proposed in world.asked] == [2, 3]


def test_too_few_in_sync() -> None:
    world = World(1, 2)
    for broker in world.brokers.values():
        broker.disks.topics["orders"] = {"min.insync.replicas": "2"}
    world.create_topic([1, 2])
    leader = world.brokers[1]
    world.loop.advance(100)
    world.change(isr=[1])
    refused = leader.produce(batch())[0]
    assert (refused.error, refused.base_offset, refused.log_start_offset) == ("NOT_ENOUGH_REPLICAS", -1, 0)
    assert leader.produce(batch(), acks=1)[0].error == "NONE"
    assert leader.log.high_watermark == 0
    world.loop.advance(1000)
    assert leader.manager.hosted.online[TP].in_sync_replica_ids == {1, 2}
    assert leader.log.high_watermark == 1


def test_the_isr_shrinks_while_a_produce_waits() -> None:
    world = World(1, 2)
    for broker in world.brokers.values():
        broker.disks.topics["orders"] = {"min.insync.replicas": "2"}
    world.create_topic([1, 2])
    world.loop.advance(600)
    world.cut.add((2, 1))
    leader = world.brokers[1]
    leader.produce(batch(), acks=1)
    answers = leader.produce(batch(), timeout_ms=100_000)
    world.loop.advance(46_000)
    leader.manager.maybe_shrink_isrs()
    world.loop.advance(55_000)
    # Below min.insync.replicas the high watermark does not move (KIP-966), so the request waits until its timeout.
    assert [answer.error for answer in answers] == ["REQUEST_TIMED_OUT"]


def test_another_leader_and_the_old_one_cuts_what_was_not_replicated() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    first, second = world.brokers[1], world.brokers[2]
    first.produce(batch(3))
    world.loop.advance(1000)
    world.cut.add((2, 1))
    world.loop.advance(600)
    waiting = first.produce(batch(2), timeout_ms=60_000)
    world.change(leader=2, isr=[2])
    assert [answer.error for answer in waiting] == ["NOT_LEADER_OR_FOLLOWER"]
    second.produce(batch(1))
    assert second.log.high_watermark == 4
    world.loop.advance(1000)
    assert first.log.log_end_offset == first.log.high_watermark == 4
    assert first.log.epochs.entries == second.log.epochs.entries
    assert second.manager.hosted.online[TP].in_sync_replica_ids == {1, 2}
    assert first.produce(batch())[0].error == "NOT_LEADER_OR_FOLLOWER"


def test_a_restarted_follower_goes_on_where_it_was() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.brokers[1].produce(batch(3))
    world.loop.advance(1000)
    world.brokers[1].produce(batch(1), acks=1)
    world.loop.turn()
    follower = world.restart(2)
    assert (follower.log.high_watermark, follower.log.log_end_offset) == (3, 4)
    world.brokers[1].produce(batch(2), acks=1)
    world.loop.advance(2000)
    assert follower.log.log_end_offset == follower.log.high_watermark == 6
    assert world.brokers[1].manager.hosted.online[TP].in_sync_replica_ids == {1, 2}


def test_a_killed_follower_with_records_of_a_leader_that_lost_them() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.brokers[1].produce(batch(3))
    world.loop.advance(1000)
    first = world.brokers.pop(1)
    first.produce(batch(2), acks=1)
    first.manager.close()
    first.disks.kill()
    world.change(leader=2, isr=[2])
    world.brokers[2].produce(batch(1))
    back = world.revive(first)
    assert back.log.log_end_offset == 5
    world.loop.advance(2000)
    assert back.log.log_end_offset == back.log.high_watermark == 4
    assert back.log.epochs.entries == world.brokers[2].log.epochs.entries


def test_a_follower_behind_the_leaders_start_begins_there() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.cut.add((2, 1))
    world.loop.advance(100)
    leader = world.brokers[1]
    world.change(isr=[1])
    leader.produce(batch(5))
    leader.produce(batch(5))
    leader.log.maybe_increment_log_start_offset(5, "test")
    world.cut.clear()
    world.loop.advance(3000)
    follower = world.brokers[2].log
    assert (follower.log_start_offset, follower.log_end_offset, follower.high_watermark) == (5, 10, 10)


def test_deleted_records_are_gone_everywhere() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    leader = world.brokers[1]
    leader.produce(batch(5))
    world.loop.advance(1000)
    answers = leader.delete_records(3)
    assert answers == []
    world.loop.advance(600)
    assert [(answer.error, answer.low_watermark) for answer in answers] == [("NONE", 3)]
    assert world.brokers[2].log.log_start_offset == 3
    assert leader.delete_records(9)[0].error == "OFFSET_OUT_OF_RANGE"
    world.cut.add((2, 1))
    world.loop.advance(600)
    late = leader.delete_records(-1, timeout_ms=300)
    world.loop.advance(300)
    assert [(answer.error, answer.low_watermark) for answer in late] == [("REQUEST_TIMED_OUT", 3)]
    assert world.brokers[2].delete_records(4)[0].error == "NOT_LEADER_OR_FOLLOWER"


def test_a_deleted_topic_is_gone_and_may_come_again() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    leader, follower = world.brokers[1], world.brokers[2]
    world.loop.advance(100)
    world.cut.add((2, 1))
    world.loop.advance(600)
    waiting = leader.produce(batch(), timeout_ms=60_000)
    world.replay(RemoveTopicRecord(TOPIC_ID))
    assert [answer.error for answer in waiting] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert leader.logs.get_log(TP) is None
    assert [name for name in leader.disks.names() if name.endswith("-delete")]
    world.cut.clear()
    directory = uuid_bytes(DIRECTORY_IDS["/a"])
    world.replay(
        TopicRecord("orders", b"another topic id"),
        PartitionRecord(0, b"another topic id", [1, 2], [1, 2], leader=1, leader_epoch=0, directories=[directory] * 2),
    )
    assert leader.produce(batch()) == []
    world.loop.advance(1000)
    assert follower.log.log_end_offset == 1


def test_a_topic_deleted_and_made_again_in_one_step() -> None:
    world = World(1)
    world.create_topic([1])
    world.brokers[1].produce(batch(3))
    directory = uuid_bytes(DIRECTORY_IDS["/a"])
    world.replay(
        RemoveTopicRecord(TOPIC_ID),
        TopicRecord("orders", b"another topic id"),
        PartitionRecord(0, b"another topic id", [1], [1], leader=1, leader_epoch=0, directories=[directory]),
    )
    assert world.brokers[1].produce(batch())[0].base_offset == 0
    assert world.brokers[1].manager.hosted.online[TP].topic_id == b"another topic id"


def test_a_replica_that_is_moved_away_is_deleted() -> None:
    world = World(1, 2, 3)
    world.create_topic([1, 2])
    world.loop.advance(100)
    directory = uuid_bytes(DIRECTORY_IDS["/a"])
    world.change(replicas=[1, 3], isr=[1], directories=[directory] * 2)
    assert world.brokers[2].logs.get_log(TP) is None
    assert world.brokers[2].produce(batch())[0].error == "NOT_LEADER_OR_FOLLOWER"
    world.brokers[1].produce(batch(4), acks=1)
    world.loop.advance(1000)
    assert world.brokers[3].log.log_end_offset == 4
    assert world.brokers[1].manager.hosted.online[TP].in_sync_replica_ids == {1, 3}


def test_in_controlled_shutdown_useless_replicas_are_not_followed() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    follower = world.brokers[2]
    world.loop.advance(100)
    follower.manager.begin_controlled_shutdown()
    world.change(isr=[1])
    world.loop.advance(600)
    assert follower.manager.fetchers.fetchers == {}
    world.brokers[1].produce(batch())
    world.loop.advance(1000)
    assert follower.log.log_end_offset == 0


def test_where_a_new_replica_lies_is_told() -> None:
    world = World(1, log_dirs=["/a", "/b"])
    world.create_topic([1], directories=[UNASSIGNED])
    broker = world.brokers[1]
    assert broker.reported == [(TP, broker.log.parent_dir)]


def test_the_directory_that_the_metadata_names_is_taken() -> None:
    world = World(1, log_dirs=["/a", "/b"])
    world.create_topic([1], directories=[uuid_bytes(DIRECTORY_IDS["/b"])])
    assert world.brokers[1].log.parent_dir == "/b"
    assert world.brokers[1].reported == []


def test_a_failed_directory(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1, 2, log_dirs=["/a", "/b"])
    world.create_topic([1, 2])
    leader, follower = world.brokers[1], world.brokers[2]
    leader.produce(batch(2))
    world.loop.advance(1000)
    waiting = leader.produce(batch(), timeout_ms=60_000)
    leader.logs.failures.maybe_add_offline_log_dir("/a", "a test", OSError(5, "Input/output error"))
    leader.manager.handle_log_dir_failures()
    assert "a test: [Errno 5] Input/output error" in caplog.messages
    assert [answer.error for answer in waiting] == ["KAFKA_STORAGE_ERROR"]
    assert leader.failed_dirs == [uuid_bytes(DIRECTORY_IDS["/a"])]
    assert leader.produce(batch())[0].error == "KAFKA_STORAGE_ERROR"
    assert (leader.manager.offline_count, leader.manager.leader_count, leader.halted) == (1, 0, [])
    # The controller learns of it. Another broker leads, and this replica stays offline whatever the metadata say.
    world.change(leader=2, isr=[2])
    assert follower.produce(batch())[0].error == "NONE"
    world.loop.advance(1000)
    assert leader.manager.offline_count == 1
    # A topic with the same name is a different one.
    directory = uuid_bytes(DIRECTORY_IDS["/b"])
    world.replay(
        RemoveTopicRecord(TOPIC_ID),
        TopicRecord("orders", b"another topic id"),
        PartitionRecord(0, b"another topic id", [1], [1], leader=1, leader_epoch=0, directories=[directory]),
    )
    assert leader.produce(batch())[0].error == "NONE"
    assert leader.log.parent_dir == "/b"


def test_a_followers_directory_fails_under_it() -> None:
    world = World(1, 2, log_dirs=["/a", "/b"])
    world.create_topic([1, 2])
    world.loop.advance(100)
    follower = world.brokers[2]
    follower.logs.failures.maybe_add_offline_log_dir("/a", "a test", OSError(5, "Input/output error"))
    world.brokers[1].produce(batch(), acks=1)
    world.loop.turn()
    assert TP in follower.manager.fetchers.failed
    follower.manager.handle_log_dir_failures()
    assert follower.manager.offline_count == 1
    assert follower.manager.fetchers.failed == set()


def test_the_last_directory_fails() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    broker.logs.failures.maybe_add_offline_log_dir("/a", "a test", OSError(5, "Input/output error"))
    broker.manager.handle_log_dir_failures()
    assert broker.halted == ["Shutdown broker because all log dirs in /a have failed"]


def test_a_directory_fails_while_a_log_is_made() -> None:
    world = World(1, log_dirs=["/a", "/b"])
    broker = world.brokers[1]
    broker.logs.failures.maybe_add_offline_log_dir("/a", "a test", OSError(5, "Input/output error"))
    world.create_topic([1])
    assert broker.manager.offline_count == 1
    assert broker.produce(batch())[0].error == "KAFKA_STORAGE_ERROR"


def test_high_watermarks_outlive_a_restart() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.brokers[1].produce(batch(3))
    world.loop.advance(1000)
    world.cut.add((2, 1))
    world.loop.advance(600)
    world.brokers[1].produce(batch(2), acks=1)
    leader = world.restart(1)
    assert (leader.log.high_watermark, leader.log.log_end_offset) == (3, 5)
    assert leader.disks.checkpoint("replication-offset-checkpoint") == {TP: 3}
