"""Members of groups in `world`: the library's consumer core with either protocol, and a program that polls, processes, and polls again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kops.client.consumer.core.collecting import PLAIN
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.groups.calls import ASSIGNED, GroupMembership, ListenerCall
from kops.client.consumer.options import ConsumerOptions
from kops.client.errors import KafkaError
from kops.client.groups.strategies import make_assignors
from kops.protocol.declaration import Message
from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from tests.simulation.clients.links import REQUEST_TIMEOUT_MS, CoreClient, Request
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
STALL = 0.03
"""The probability that processing takes longer than the session and max.poll.interval.ms allow."""


class Reader(CoreClient):
    """A member of a group."""

    world: ClientWorld

    def __init__(self, world: ClientWorld, name: str, book: ReaderBook, protocol: str, strategy: list[str]) -> None:
        super().__init__(world, name)
        own = CLASSIC_SETTINGS if protocol == "classic" else {}
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
        self._book = book
        self._in_poll = False
        self._floors: dict[int, int] = {}  # of partitions from which no record was returned since they were assigned
        self.core.subscribe([world.inputs], self.now_ms())
        self.start(self._live())

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
                if error.fatal:
                    self.vanish()
                    return
                records = None
            if records:
                yield from self._process(records)
        yield from self._close()

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
            if call.method == ASSIGNED:
                self._floors[key.partition] = self._book.committed.get(key.partition, 0)
            else:
                self._floors.pop(key.partition, None)
        self.world.counts[f"{self._book.group}: {call.method}"] += 1
        call.done(None)

    def asks(self, message: Message) -> None:
        """Check that a commit covers only records that are processed."""
        if isinstance(message, OffsetCommitRequest):
            for one in message.topics[0].partitions:
                self._book.check_commit(one.partition_index, one.committed_offset, self.name)

    def hears(self, message: Message, answer: Message) -> None:
        """Take note of a commit."""
        if isinstance(message, OffsetCommitRequest) and isinstance(answer, OffsetCommitResponse):
            codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
            for one in message.topics[0].partitions:
                if codes.get(one.partition_index) == 0:
                    self._book.commit(one.partition_index, one.committed_offset)
                    self.world.counts["offsets committed"] += 1

    def _process(self, records: ConsumerRecords) -> Script:
        """Process the records of a poll, which takes a while. If the member dies meanwhile, they are not processed."""
        for record in records:
            floor = self._floors.pop(record.partition, None)
            where = f"{self.name}, partition {record.partition}"
            assert floor is None or record.offset >= floor, f"{where}: it begins at {record.offset}, {floor} was committed before"
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
