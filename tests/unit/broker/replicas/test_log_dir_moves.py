"""Replicas that move between the log directories of a broker, and what is reported about the directories."""

from __future__ import annotations

from typing import Any

import pytest

from kops.broker.replicas import delta
from kops.broker.replicas.log_dir_moves import LogDirDescription, ReplicaInDir
from kops.protocol.messages import RemoveTopicRecord
from kops.records.log_offsets import TopicPartition
from kops.replication.leading.partition import Partition
from kops.storage.formats.kafka_uuid import uuid_bytes
from tests.support.parts.managing import DIRECTORY_IDS, batch
from tests.support.parts.replicas import TOPIC_ID, TP, ReplicaBroker, World
from tests.support.planted import plant

A = uuid_bytes(DIRECTORY_IDS["/a"])


def two_dirs(*node_ids: int) -> World:
    world = World(*node_ids, log_dirs=["/a", "/b"])
    world.create_topic(list(node_ids))
    world.loop.advance(100)
    return world


def accept(broker: ReplicaBroker) -> None:
    """Let the controller accept the directory."""
    while broker.accept:
        broker.accept.pop(0)()
    broker.world.loop.advance(200)


def test_a_replica_moves() -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.produce(batch(5))
    assert broker.manager.alter_replica_log_dirs({TP: "/b"}) == {TP: "NONE"}
    world.loop.advance(1000)
    # The copy is complete, but the controller has to know the directory first.
    assert (broker.reported, broker.log.parent_dir) == ([(TP, "/b")], "/a")
    assert broker.manager.describe_log_dirs({TP})[1].replicas[0][2:] == (0, True)
    broker.produce(batch(2))
    accept(broker)
    assert (broker.log.parent_dir, broker.log.log_end_offset, broker.log.high_watermark) == ("/b", 7, 7)
    assert broker.manager.copies.keys == []
    assert broker.produce(batch(1))[0].base_offset == 7
    assert broker.manager.hosted.online[TP].log is broker.log
    assert [name for name in broker.disks.names("/a") if name.endswith("-delete")]
    assert broker.manager.alter_replica_log_dirs({TP: "/b"}) == {TP: "NONE"}
    assert broker.logs.future_logs == {}


def test_a_complete_copy_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def counted(self: Partition, *arguments: Any, **named: Any) -> object:
        nonlocal reads
        reads += 1
        return fetch_records(self, *arguments, **named)

    fetch_records = Partition.fetch_records
    plant(monkeypatch, Partition, delta, fetch_records=counted)
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    world.loop.advance(1000)
    reads = 0
    world.loop.advance(1000)
    assert reads == 10


def test_a_follower_moves_and_is_cut_meanwhile() -> None:
    world = two_dirs(1, 2)
    first, second = world.brokers[1], world.brokers[2]
    first.produce(batch(3))
    world.loop.advance(1000)
    world.cut.add((2, 1))
    world.loop.advance(600)
    first.produce(batch(2), acks=1)
    first.manager.alter_replica_log_dirs({TP: "/b"})
    world.loop.advance(1000)
    future = first.logs.get_log(TP, is_future=True)
    assert future is not None
    assert future.log_end_offset == 5
    world.change(leader=2, isr=[2])
    second.produce(batch(1))
    world.loop.advance(2000)
    assert first.log.log_end_offset == future.log_end_offset == 4
    assert future.epochs.entries == first.log.epochs.entries == second.log.epochs.entries
    accept(first)
    assert (first.log.parent_dir, first.log.log_end_offset) == ("/b", 4)
    second.produce(batch(1), acks=1)
    world.loop.advance(1000)
    assert first.log.log_end_offset == 5


def test_another_directory_on_the_way() -> None:
    world = World(1, log_dirs=["/a", "/b", "/c"])
    world.create_topic([1])
    broker = world.brokers[1]
    broker.produce(batch(5))
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    world.loop.advance(1000)
    assert broker.manager.alter_replica_log_dirs({TP: "/c"}) == {TP: "NONE"}
    # The controller may know about /b, so the broker reports /a again.
    assert broker.reported == [(TP, "/b"), (TP, "/a")]
    broker.accept.clear()
    world.loop.advance(1000)
    accept(broker)
    assert broker.log.parent_dir == "/c"
    assert broker.log.log_end_offset == 5


def test_back_to_where_it_is() -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.produce(batch(5))
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    assert broker.manager.alter_replica_log_dirs({TP: "/a"}) == {TP: "NONE"}
    world.loop.advance(1000)
    assert (broker.log.parent_dir, broker.reported, broker.logs.future_logs) == ("/a", [], {})


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_move_goes_on_after_a_restart(is_killed: bool) -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    for _ in range(10):
        broker.produce(batch(5))
    broker.manager.alter_log_dirs_quota.update_quota(1)
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    world.loop.turn()
    if is_killed:
        del world.brokers[1]
        broker.manager.close()
        broker.disks.kill()
        broker = world.revive(broker)
    else:
        broker = world.restart(1)
    world.loop.advance(1000)
    accept(broker)
    assert (broker.log.parent_dir, broker.log.log_end_offset, broker.log.high_watermark) == ("/b", 50, 50)


def test_the_copies_directory_fails() -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.produce(batch(5))
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    broker.logs.failures.maybe_add_offline_log_dir("/b", "a test", OSError(5, "Input/output error"))
    broker.manager.handle_log_dir_failures()
    world.loop.advance(1000)
    assert broker.manager.copies.keys == []
    assert broker.manager.hosted.online[TP].future_log is None
    assert broker.produce(batch(1))[0].error == "NONE"
    assert broker.manager.alter_replica_log_dirs({TP: "/b"}) == {TP: "KAFKA_STORAGE_ERROR"}
    assert broker.manager.describe_log_dirs()[1] == LogDirDescription("/b", "KAFKA_STORAGE_ERROR")


def test_the_topic_goes_while_it_is_copied() -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.produce(batch(5))
    broker.manager.alter_replica_log_dirs({TP: "/b"})
    world.replay(RemoveTopicRecord(TOPIC_ID))
    world.loop.advance(1000)
    assert (broker.logs.current_logs, broker.logs.future_logs, broker.manager.copies.keys) == ({}, {}, [])


def test_what_is_refused() -> None:
    world = two_dirs(1)
    broker = world.brokers[1]
    broker.logs.dirs.cordoned = frozenset(["/b"])
    answers = broker.manager.alter_replica_log_dirs
    assert answers({TP: "/nowhere"}) == {TP: "LOG_DIR_NOT_FOUND"}
    assert answers({TP: "/b"}) == {TP: "INVALID_REPLICA_ASSIGNMENT"}
    long = TopicPartition("x" * 249, 0)
    assert answers({long: "/a"}) == {long: "INVALID_TOPIC_EXCEPTION"}
    none = TopicPartition("none", 0)
    assert answers({none: "/a"}) == {none: "UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_replica_that_is_to_come_is_made_where_it_was_wished() -> None:
    world = World(1, 2, log_dirs=["/a", "/b"])
    world.create_topic([1])
    second = world.brokers[2]
    assert second.manager.alter_replica_log_dirs({TP: "/b"}) == {TP: "REPLICA_NOT_AVAILABLE"}
    world.change(replicas=[1, 2], isr=[1], directories=[A, A])
    assert second.log.parent_dir == "/b"
    # As in Kafka, the actual directory of a reassigned replica is not reported (TopicDelta.localChanges).
    assert second.reported == []


def test_directories_are_described() -> None:
    world = two_dirs(1, 2)
    leader, follower = world.brokers[1], world.brokers[2]
    leader.produce(batch(3))
    world.loop.advance(1000)
    world.cut.add((2, 1))
    world.loop.advance(600)
    leader.produce(batch(2), acks=1)
    size = leader.log.size
    first, second = leader.manager.describe_log_dirs()
    assert first == LogDirDescription("/a", "NONE", (ReplicaInDir(TP, size, 0, False),), 1000, 400)
    assert second == LogDirDescription("/b", "NONE", (), 1000, 400)
    assert leader.manager.describe_log_dirs([TopicPartition("none", 0)])[0].replicas == ()
    assert follower.manager.describe_log_dirs({TP})[0].replicas[0].offset_lag == 0
