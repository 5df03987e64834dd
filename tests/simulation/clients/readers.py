"""Members of groups in `world`: the library's consumer core with either protocol, and a program that polls, processes, and polls again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kops.client.consumer.core.collecting import PLAIN
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.groups.calls import ASSIGNED, GroupMembership, ListenerCall
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.state import Phase
from kops.client.consumer.records import SubscriptionPattern
from kops.client.errors import KafkaError
from kops.client.groups.strategies import make_assignors
from kops.protocol.declaration import Message
from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from tests.simulation.clients.links import FOREVER, REQUEST_TIMEOUT_MS, CoreClient, Request
from tests.simulation.coordinators.actors import Script
from tests.simulation.coordinators.groups import HEARTBEAT_MS, SESSION_MS

if TYPE_CHECKING:
    from kops.client.consumer.records import ConsumerRecords
    from tests.simulation.clients.books import ReaderBook
    from tests.simulation.clients.world import ClientWorld

SETTINGS: dict[str, object] = {
    "bootstrap.servers": "given:1",
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 200,
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "default.api.timeout.ms": 4_000,
    "retry.backoff.ms": 30,
    "retry.backoff.max.ms": 200,
    "metadata.max.age.ms": 1_000,
    "fetch.max.wait.ms": 100,
    "max.poll.interval.ms": 4_000,
    "max.poll.records": 7,
}
CLASSIC_SETTINGS: dict[str, object] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
STRATEGIES = (["range"], ["cooperative-sticky"], ["range", "cooperative-sticky"])
POLL_MS, CLOSE_MS = 300, 1_500
ENDING = ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")
"""Errors of a static member after which a program gives up: another one has its instance id."""
HABIT, HABIT_MS = 0.2, (100, 1_200)
"""How often a program pauses a partition or seeks after a poll, and how long a pause takes."""
STALL = 0.03
"""The probability that processing takes longer than the session and max.poll.interval.ms allow."""


class Reader(CoreClient):
    """A member of a group."""

    world: ClientWorld

    def __init__(
        self, world: ClientWorld, name: str, book: ReaderBook, protocol: str, strategy: list[str], instance_id: str | None = None
    ) -> None:
        super().__init__(world, name)
        own = dict(CLASSIC_SETTINGS) if protocol == "classic" else {}
        if instance_id is not None:
            own["group.instance.id"] = instance_id
        options = ConsumerOptions.of({**SETTINGS, **own, "group.id": book.group, "group.protocol": protocol})
        self.core = ConsumerCore(
            options,
            self.bootstrap,
            self.links,
            self.chance.random,
            self.loop.now_ms,
            PLAIN,
            make_assignors(strategy) if protocol == "classic" else [],
            lambda: f"{self.chance.getrandbits(96):024x}",
            self.now_ms(),
        )
        self.is_leaving = False
        self._commits: list[OffsetCommitRequest] = []  # without an answer yet
        self._book = book
        self._in_poll = False
        self._floors: dict[int, int] = {}  # of partitions from which no record was returned since they were assigned
        self._paused: dict[int, float] = {}  # until when
        self._next: dict[int, int] = {}  # the offset of the next record of a partition, after a seek or a record
        self.core.subscribe(self._wanted(protocol), self.now_ms())
        self.start(self._live())

    def _wanted(self, protocol: str) -> list[str] | re.Pattern[str] | SubscriptionPattern:
        """Return the topic, or a pattern that the client or the broker matches."""
        kinds: list[list[str] | re.Pattern[str] | SubscriptionPattern] = [[self.world.inputs], re.compile(f"{self.world.inputs[:3]}.*")]
        if protocol == "consumer":
            kinds.append(SubscriptionPattern(f"{self.world.inputs[:3]}.*"))
        return self.chance.choice(kinds)

    def core_turn(self, now_ms: float) -> tuple[Iterable[Request], float]:
        """Return the requests to send now."""
        return self.core.turn(now_ms, in_poll=self._in_poll)

    def _live(self) -> Script:
        while not self.is_leaving:
            try:
                records = yield from self._poll()
            except KafkaError as error:
                self.say(f"poll: {error}")
                self.world.counts["polls that failed"] += 1
                if error.fatal or error.name in ENDING:
                    self.world.counts[f"consumers ended by {error.name}"] += 1
                    self.vanish()
                    return
                records = None
            if records:
                yield from self._process(records)
            self._follow_habits()
        yield from self._close()

    def _follow_habits(self) -> None:
        """Pause a partition for a while, or go back, but not behind a commit. Everything that was polled is processed now."""
        partitions = self.core.subscriptions.partitions
        for key, state in partitions.items():
            if self._paused.get(key.partition, FOREVER) <= self.now_ms() or self.world.director.is_ending:
                state.is_paused = False
                self._paused.pop(key.partition, None)
        ready = [key for key, state in partitions.items() if state.phase is Phase.FETCHING and not state.is_revoking]
        if not ready or self.world.director.is_ending or self.chance.random() >= HABIT:
            return
        key = self.chance.choice(ready)
        if self.chance.random() < 0.5:
            self.say(f"pauses {key.partition}")
            partitions[key].is_paused = True
            self._paused[key.partition] = self.now_ms() + self.chance.uniform(*HABIT_MS)
            self.world.counts["partitions paused"] += 1
        elif key.partition in self._next:
            offset = max(self._next[key.partition] - self.chance.randint(1, 5), self._book.asked.get(key.partition, 0))
            self._next[key.partition] = offset
            self.say(f"seeks {offset} of {key.partition}")
            self.core.seek(key, offset, None)
            self.world.counts["seeks"] += 1

    def _poll(self) -> Script:
        """Do what Consumer.poll does: turns in which partitions may change, until there are records."""
        core = self.core
        self._in_poll = True
        try:
            core.begin_poll(self.now_ms())
            deadline_ms = self.now_ms() + POLL_MS
            while True:
                self._tell(core.call)
                found = core.poll(self.now_ms())
                self.turn()
                if found is not None or self.now_ms() >= deadline_ms:
                    return found
                yield self.pause(20, 100)
        finally:
            self._in_poll = False
            self.core.commits.finished.clear()

    def _tell(self, call: ListenerCall | None) -> None:
        if call is None:
            return
        self.say(f"{call.method}: {', '.join(str(key.partition) for key in call.keys)}")
        for key in call.keys:
            self._next.pop(key.partition, None)
            if call.method == ASSIGNED:
                self._floors[key.partition] = self._book.floor(key.partition)
                if not self.core.subscriptions.partitions[key].is_paused:
                    self._paused.pop(key.partition, None)
            else:
                self._floors.pop(key.partition, None)
        self.world.counts[f"{self._book.group}: {call.method}"] += 1
        call.done(None)

    def asks(self, message: Message) -> None:
        """Check that a commit covers only records that are processed."""
        if isinstance(message, OffsetCommitRequest):
            self._commits.append(message)
            for one in message.topics[0].partitions:
                self._book.check_commit(one.partition_index, one.committed_offset, self.name)

    def hears(self, message: Message, answer: Message) -> None:
        """Take note of a commit."""
        if isinstance(message, OffsetCommitRequest) and isinstance(answer, OffsetCommitResponse):
            self._commits.remove(message)
            codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
            for one in message.topics[0].partitions:
                if codes.get(one.partition_index) == 0:
                    self._book.commit(one.partition_index, one.committed_offset, message.generation_id_or_member_epoch)
                    self.world.counts["offsets committed"] += 1

    def misses(self, message: Message) -> None:
        """Take note of a commit without an answer."""
        if isinstance(message, OffsetCommitRequest):
            self._commits.remove(message)
            for one in message.topics[0].partitions:
                self._book.miss(one.partition_index, one.committed_offset, message.generation_id_or_member_epoch)

    def vanish(self) -> None:
        """Let the member die. Nobody hears the answers to its last commits."""
        super().vanish()
        for message in list(self._commits):
            self.misses(message)

    def _process(self, records: ConsumerRecords) -> Script:
        """Process the records of a poll, which takes a while. If the member dies meanwhile, they are not processed."""
        for record in records:
            floor = self._floors.pop(record.partition, None)
            where = f"{self.name}, partition {record.partition}"
            assert floor is None or record.offset >= floor, f"{where}: it begins at {record.offset}, {floor} was committed before"
            assert record.partition not in self._paused, f"{where}: it is paused, and offset {record.offset} is returned"
            expected = self._next.get(record.partition, record.offset)
            assert record.offset == expected, f"{where}: offset {record.offset} is returned instead of {expected}"
            self._next[record.partition] = record.offset + 1
        if self.chance.random() < STALL and not self.world.director.is_ending:
            self.say("stalls")
            yield self.pause(SESSION_MS, 2 * SESSION_MS)
        else:
            yield self.pause(0, 300)
        for record in records:
            self._book.process(record.partition, record.offset)

    def _close(self) -> Script:
        """Do what Consumer.close does: commit, call the listener, leave."""
        core = self.core
        if core.commits.member.identity() is not None:
            offsets = core.commits.positions()
            outcome = core.commits.commit(offsets, self.now_ms() + CLOSE_MS, retries=True)
            while not outcome.is_done:
                self.soon()
                yield self.pause(5, 40)
        if core.group is not None:
            core.group.release()
            self._tell(core.call)
        leaving: Any = core.leave(GroupMembership.DEFAULT, "the consumer is being closed", self.now_ms())
        self.send_all([*leaving, *core.close_sessions()])
        yield self.pause(300, 600)
        self.vanish()
