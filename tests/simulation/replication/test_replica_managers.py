"""Lives of three whole replica managers. Brokers are killed and come back, connections break, leaders change, replicas move between
directories.

At the end, every record that was acknowledged with acks=all is in every log, at the acknowledged offset.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kops.broker.replicas import delta
from kops.protocol.messages import FenceBrokerRecord
from kops.records import BatchBuilder
from kops.records.log_offsets import Isolation
from kops.replication.leading.isr import LeaderAndIsr, ProposedIsr
from kops.replication.leading.partition import Partition
from kops.storage.formats.kafka_uuid import uuid_bytes
from kops.storage.log_append import memory_batches
from kops.storage.unified_log import UnifiedLog
from tests.support.parts.managing import DIRECTORY_IDS
from tests.support.parts.replicas import TP, ReplicaBroker, World
from tests.support.planted import plant

NODES = (1, 2, 3)
SETTINGS = {"replica_lag_time_max_ms": 1_000, "replica_fetch_wait_max_ms": 100, "replica_fetch_backoff_ms": 50}
FAST, SLOW = range(8), range(8, 100)
STEPS = 250


class Life(World):
    """A cluster whose controller fences dead brokers, elects leaders from the ISR and accepts valid changes, all of it a little late."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dead: dict[int, ReplicaBroker] = {}
        self.acknowledged: dict[int, int] = {}
        self.number = 0
        super().__init__(*NODES, log_dirs=["/a", "/b"], **SETTINGS)
        for broker in self.brokers.values():
            broker.disks.topics["orders"] = {"min.insync.replicas": "2"}
        self.create_topic(NODES, directories=[uuid_bytes(DIRECTORY_IDS["/a"])] * len(NODES))
        self._shrink()

    # the controller

    def alter_partition(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        def decide() -> None:
            known = self.partition
            if (proposed.leader, proposed.leader_epoch) != (known.leader, known.leader_epoch):
                done("NEW_LEADER_ELECTED" if proposed.leader_epoch == known.leader_epoch else "FENCED_LEADER_EPOCH")
            elif proposed.partition_epoch != known.partition_epoch:
                done("INVALID_UPDATE_VERSION")
            elif any(each.broker_id not in self.brokers or each.broker_epoch != self.epochs[each.broker_id] for each in proposed.isr):
                done("INELIGIBLE_REPLICA")
            else:
                isr = tuple(each.broker_id for each in proposed.isr)
                answer = LeaderAndIsr(known.leader, known.leader_epoch, isr, 0, known.partition_epoch + 1)
                tells_first = self.random.random() < 0.5
                if tells_first:
                    done(answer)
                self.change(isr=list(isr))
                if not tells_first:
                    done(answer)

        self.loop.call_later(self.random.randrange(60), decide)

    @property
    def partition(self) -> Any:
        return self.image.topics.by_name["orders"].partitions[0]

    def fence(self, node_id: int) -> None:
        """Let the controller notice that a broker is dead."""
        if node_id not in self.dead:
            return
        self.replay(FenceBrokerRecord(node_id, self.epochs[node_id]))
        known = self.partition
        isr = [each for each in known.isr if each != node_id] or list(known.isr)
        leader = self._elect(isr) if known.leader == node_id else None
        if leader is not None:
            self.change(leader=leader, isr=isr)
        elif isr != list(known.isr):
            self.change(isr=isr)

    def _elect(self, isr: list[int]) -> int:
        return next((each for each in isr if each in self.brokers), -1)

    # events

    def kill(self) -> None:
        if len(self.brokers) > 1:
            node_id = self.random.choice(sorted(self.brokers))
            broker = self.dead[node_id] = self.brokers.pop(node_id)
            broker.manager.close()
            broker.disks.kill()
            self.loop.call_later(self.random.randrange(500), lambda: self.fence(node_id))

    def stop(self) -> None:
        if len(self.brokers) > 1:
            node_id = self.random.choice(sorted(self.brokers))
            broker = self.dead[node_id] = self.brokers.pop(node_id)
            self.fence(node_id)
            broker.manager.shut_down()
            broker.disks.stop()

    def come_back(self) -> None:
        if self.dead:
            node_id = self.random.choice(sorted(self.dead))
            self.fence(node_id)
            self.revive(self.dead.pop(node_id), **SETTINGS)
            if self.partition.leader == -1 and (leader := self._elect(list(self.partition.isr))) != -1:
                self.change(leader=leader)

    def move_leader(self) -> None:
        others = [each for each in self.partition.isr if each in self.brokers and each != self.partition.leader]
        if others and self.partition.leader in self.brokers:
            self.change(leader=self.random.choice(others))

    def cut_a_wire(self) -> None:
        self.cut.add((self.random.choice(NODES), self.random.choice(NODES)))

    def mend_the_wires(self) -> None:
        self.cut.clear()

    def move_a_replica(self) -> None:
        broker = self.brokers[self.random.choice(sorted(self.brokers))]
        broker.manager.alter_replica_log_dirs({TP: self.random.choice(["/a", "/b"])})

    def accept_directories(self) -> None:
        for broker in self.brokers.values():
            while broker.accept:
                broker.accept.pop(0)()

    def send(self) -> None:
        """Send records to the leader in the metadata, or to another broker if the leader is dead."""
        target = self.brokers.get(self.partition.leader) or self.brokers[min(self.brokers)]
        for _ in range(self.random.randrange(1, 4)):
            self.number += 1
            number = self.number
            builder = BatchBuilder()
            builder.append(self.loop.now_ms(), None, b"%d" % number)

            def answered(found: Any, number: int = number) -> None:
                if found[TP].error == "NONE":
                    self.acknowledged[found[TP].base_offset] = number

            acks = self.random.choice([-1, -1, -1, 1])
            target.manager.append_records({TP: builder.build()}, acks, 2_000, answered if acks == -1 else lambda found: None)

    def _shrink(self) -> None:
        for broker in list(self.brokers.values()):
            broker.manager.maybe_shrink_isrs()
        self.loop.call_later(500, self._shrink)

    # a whole life

    def run(self) -> None:
        """Run a life, let all brokers come back, and check the remaining records."""
        rare = [self.kill, self.stop, self.move_leader, self.cut_a_wire, self.move_a_replica]
        usual = [self.send] * 10 + [self.come_back, self.mend_the_wires, self.accept_directories]
        for _ in range(STEPS):
            self.random.choice(rare if self.random.random() < 0.15 else usual)()
            self.loop.advance(self.random.choice([0, 1, 5, 20, 100, 400]))
        self.mend_the_wires()
        while self.dead:
            self.come_back()
        for _ in range(20):
            self.accept_directories()
            self.loop.advance(1_000)
        self.check()

    def check(self) -> None:
        contents = [content_of(broker.log) for broker in self.brokers.values()]
        assert contents[0] == contents[1] == contents[2]
        assert set(self.partition.isr) == set(NODES)
        for broker in self.brokers.values():
            assert broker.log.high_watermark == broker.log.log_end_offset
            assert broker.manager.fetchers.failed == broker.manager.copies.failed == set()
            assert (broker.manager.copies.keys, broker.logs.future_logs) == ([], {})
        lost = {offset: number for offset, number in self.acknowledged.items() if contents[0].get(offset) != number}
        assert lost == {}


def content_of(log: UnifiedLog) -> dict[int, int]:
    """Return the number in the record at each offset."""
    found: dict[int, int] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, Isolation.LOG_END, min_one_batch=True).records
        assert records is not None
        for batch in memory_batches(records.read_at(records.start, records.size)):
            for record in batch.records():
                found[record.offset] = int(record.value or b"0")
            offset = batch.last_offset + 1
    return found


@pytest.mark.parametrize("seed", FAST)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    life = Life(seed)
    life.run()
    assert len(life.acknowledged) > 20


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is found: the leader takes every log that is not longer than its own for a prefix of it."""
    plant(monkeypatch, Partition, delta, _is_within_last_epoch=lambda self, log, info: info.fetch_offset <= log.log_end_offset)
    with pytest.raises(AssertionError):
        Life(3).run()


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_many_lives(seed_count: int | None) -> None:
    for seed in SLOW if seed_count is None else range(SLOW.start, SLOW.start + seed_count):
        Life(seed).run()
