"""Random lives of a share group on two brokers: no two members hold the same record, accepted records never come again, and in the end
every record was accepted, rejected or delivered too often.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kops.coordinators.share.key import SharePartitionKey
from tests.support.parts.groups.sharing import ACCEPT, GROUP, REJECT, RELEASE, Answers, Member, Sharing
from tests.support.parts.managing import batch
from tests.support.parts.replicas import TOPIC_ID, TP

KEY = SharePartitionKey(GROUP, TOPIC_ID, 0)
LOCK_MS, LIMIT = 15_000, 4
SETTINGS = {"share.record.lock.duration.ms": str(LOCK_MS), "share.delivery.count.limit": str(LIMIT)}
ERRORS = ("COORDINATOR_NOT_AVAILABLE", "NETWORK_EXCEPTION")


class Client:
    """A member and its knowledge: the requests in flight, and the records that it holds with their time."""

    def __init__(self, sharing: Sharing, name: str) -> None:
        self._sharing = sharing
        self._name = name
        self.begin(1)

    def begin(self, leader: int) -> None:
        """Begin a session with a broker."""
        self.member: Member = self._sharing.member(self._name, node_id=leader)
        self.leader = leader
        self.waiting: Answers | None = None
        self.acked: dict[int, int] = {}
        self.in_time: set[int] = set()
        self.held: dict[int, Answers] = {}


class Life:
    """The group."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sharing = Sharing(1, 2, replicas=(1, 2), settings=SETTINGS)
        self.loop = self.sharing.loop
        self.leader = 1
        self.end = 0
        self.clients = [Client(self.sharing, name) for name in "abc"]
        self.done: dict[int, int] = {}
        self.unsure: set[int] = set()
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        """Run one step."""
        actions = (self.produce, self.fetch, self.fetch, self.fetch, self.acknowledge, self.acknowledge, self.wait)
        rare = (self.disconnect, self.move, self.persister)
        self.rng.choice(actions if self.rng.random() < 0.9 else rare)()
        self.loop.turn()
        for client in self.clients:
            self.listen(client)

    def produce(self) -> None:
        count = self.rng.randrange(1, 6)
        self.sharing.world.brokers[self.leader].produce(batch(count, timestamp=self.loop.now_ms()))
        self.loop.advance(20)
        self.end += count

    def fetch(self) -> None:
        client = self.rng.choice(self.clients)
        if client.waiting is not None:
            return
        if client.leader != self.leader:
            client.begin(self.leader)
        acks = self.drawn_acks(client) if client.member.epoch and self.rng.random() < 0.4 else []
        fields: dict[str, Any] = {"max_records": self.rng.choice((1, 3, 500)), "share_acquire_mode": self.rng.randrange(2)}
        client.waiting = client.member.fetch(acks=acks, **fields)

    def acknowledge(self) -> None:
        client = self.rng.choice(self.clients)
        if client.waiting is None and client.leader == self.leader and client.member.epoch:
            acks = self.drawn_acks(client)
            if acks:
                client.waiting = client.member.acknowledge(acks)

    def drawn_acks(self, client: Client) -> list[tuple[int, int, list[int]]]:
        chosen = sorted(offset for offset in client.held if self.rng.random() < 0.7)
        client.acked = {offset: self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for offset in chosen}
        # A request may take effect although its answer is an error or never comes.
        self.unsure |= {offset for offset, kind in client.acked.items() if kind != RELEASE}
        # An acknowledgement may take effect after the lock has run out, although other members get the records.
        client.in_time = {offset for offset in chosen if self.loop.time_ms - client.held.pop(offset).sent_ms < LOCK_MS}
        return [(offset, offset, [kind]) for offset, kind in client.acked.items()]

    def wait(self) -> None:
        self.loop.advance(self.rng.choice((10, 500, 4_000, 20_000)))

    def disconnect(self) -> None:
        client = self.rng.choice(self.clients)
        self.sharing.world.brokers[client.leader].parts.shares.on_disconnect(client.member.name)
        client.begin(self.leader)
        self.seen["disconnected"] += 1

    def move(self) -> None:
        self.loop.advance(1000)
        self.leader = 3 - self.leader
        self.sharing.world.change(leader=self.leader)
        self.seen["moved"] += 1

    def persister(self) -> None:
        states = self.sharing.states
        states.error = self.rng.choice((*ERRORS, "", "", ""))
        states.holds = self.rng.random() < 0.3
        if not states.holds:
            states.release()
        if self.rng.random() < 0.3:
            states.initialize(KEY)

    def listen(self, client: Client) -> None:
        """Read the answer if it is there."""
        if not client.waiting:
            return
        answers, client.waiting = client.waiting, None
        (response,) = answers
        acked, client.acked = client.acked, {}
        data = [each for topic in response.responses for each in topic.partitions]
        is_fetch = hasattr(data[0], "acquired_records") if data else False
        refused = [each.acknowledge_error_code if is_fetch else each.error_code for each in data]
        if response.error_code or any(refused) or any(each.error_code for each in data):
            self.seen["refused"] += 1
            client.begin(self.leader)
            return
        for offset, kind in acked.items():
            if kind != RELEASE and offset in client.in_time:
                self.done[offset] = kind
        for each in data if is_fetch else ():
            for one in each.acquired_records:
                for offset in range(one.first_offset, one.last_offset + 1):
                    self.acquired(client, answers, offset, one.delivery_count)

    def acquired(self, client: Client, answers: Answers, offset: int, count: int) -> None:
        assert offset < self.end
        assert self.done.get(offset) is None, f"{offset} was acknowledged"
        for other in self.clients:
            held = other.held.pop(offset, None)
            if held is not None and other is not client and held.share_partition is answers.share_partition:
                apart_ms = max(answers.time_ms - held.sent_ms, held.time_ms - answers.sent_ms)
                assert apart_ms >= LOCK_MS, f"{offset} is held by another"
        assert 1 <= count <= LIMIT
        client.held[offset] = answers
        self.seen["again" if count > 1 else "acquired"] += 1

    def finish(self) -> None:
        """Remove all failures, and let one member take what is left."""
        states = self.sharing.states
        states.error, states.holds = "", False
        states.release()
        for client in self.clients:
            self.sharing.world.brokers[client.leader].parts.shares.on_disconnect(client.member.name)
        self.loop.advance(2 * LOCK_MS)
        last = self.clients[0]
        last.begin(self.leader)
        for _ in range(4 * self.end + 10):
            answers = last.member.fetch()
            self.loop.advance(600)
            last.waiting = answers
            self.listen(last)
            if not last.held:
                if last.leader == self.leader and last.member.epoch > 2:
                    break
                continue
            acks = [(offset, offset, [ACCEPT]) for offset in sorted(last.held)]
            last.acked = {offset: ACCEPT for offset, _, _ in acks}
            last.in_time = set(last.held)
            last.held.clear()
            last.waiting = last.member.acknowledge(acks)
            self.loop.turn()
            self.listen(last)
        told = self.done.keys() | self.unsure
        delivered = self.sharing.delivered
        lost = [offset for offset in range(self.end) if offset not in told and delivered.get(offset, 0) < LIMIT]
        assert lost == []
        manager = self.sharing.managers[self.leader]
        share_partition = manager.partitions.get(KEY)
        assert share_partition is not None and share_partition.cache.start_offset == self.end
        assert self.sharing.world.brokers[self.leader].manager.get_partition_or_raise(TP).is_leader


def live(seed: int, step_count: int) -> Counter[str]:
    """Run one life, and return what happened."""
    life = Life(seed)
    for _ in range(step_count):
        life.step()
    life.finish()
    return life.seen


def test_random_lives() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        seen += live(seed, 120)
    assert all(seen[kind] > 3 for kind in ("acquired", "again", "disconnected", "moved", "refused")), seen


@pytest.mark.slow
def test_many_lives(seed_count: int | None) -> None:
    for seed in range(100, 100 + (seed_count or 15)):
        live(seed, 200)
