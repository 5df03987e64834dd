"""One life of `world` with static members. `python -m tests.simulation.clients.static SEED` repeats a life and prints its trace.

Each member of a group has a `group.instance.id`. A program that ends is started again, mostly within the session time-out. Sometimes it is
started twice. These rules hold beside those of `books`:

- A commit is accepted only from the member that has the instance id.
- A member with the classic protocol does not leave the group when it is closed. One with the consumer protocol leaves for a while.
- Of two programs with the same instance id, one ends.
- Every partition has an owner at the end, but for those of `orphans`. There, a program asks for another rebalance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.client.groups.consumer_protocol import read_assignment, read_subscription
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
)
from tests.simulation.clients.orphans import OrphanBook
from tests.simulation.clients.readers import Reader
from tests.simulation.clients.world import GROUPS, LIVES_MS, ClientDirector, ClientWorld
from tests.simulation.coordinators.actors import Script
from tests.simulation.coordinators.faults import CoordinatorFaults
from tests.simulation.coordinators.groups import SESSION_MS
from tests.simulation.groups.books import InstanceBook
from tests.simulation.node_life import Kind, print_trace
from tests.simulation.node_world import EVERYTHING, Mix

if TYPE_CHECKING:
    from tests.simulation.clients.books import ReaderBook

DOUBLES, CLOSES, QUICK = 0.3, 0.5, 0.7
"""How often a program is started twice, is closed rather than killed, and starts again within its session time-out."""
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


class StaticReader(Reader):
    """A member with an instance id."""

    world: StaticWorld

    def __init__(self, world: StaticWorld, name: str, book: ReaderBook, protocol: str, strategy: list[str], instance_id: str) -> None:
        self._group, self._instance_id, self._is_classic = book.group, instance_id, protocol == "classic"
        self._asked_ms: dict[int, float] = {}
        super().__init__(world, name, book, protocol, strategy, instance_id)

    def asks(self, message: Message) -> None:
        """Check that it does not leave for ever."""
        super().asks(message)
        self._asked_ms[id(message)] = self.world.clock.now_ms
        assert not isinstance(message, LeaveGroupRequest), f"{self.name} leaves, although it is a static member"
        now_ms = self.world.clock.now_ms
        if isinstance(message, JoinGroupRequest):
            owned = read_subscription(message.protocols[0].metadata, None).owned
            numbers = frozenset(key.partition for key in owned)
            self.world.orphans.asked(self._group, self._instance_id, self.name, numbers, now_ms)
        elif isinstance(message, SyncGroupRequest) and message.assignments:
            numbers = frozenset(key.partition for one in message.assignments for key in read_assignment(one.assignment))
            self.world.orphans.divided(self._group, message.generation_id, numbers, now_ms)
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            assert message.member_epoch != LEAVES, f"{self.name} leaves for ever, although it is a static member"
            self.world.counts["static members that left for a while"] += message.member_epoch == LEAVES_FOR_A_WHILE

    def hears(self, message: Message, answer: Message) -> None:
        """Take note of a member that has the instance id, and check whose commits are accepted."""
        super().hears(message, answer)
        asked_ms = self._asked_ms.pop(id(message))
        if isinstance(message, JoinGroupRequest) and isinstance(answer, JoinGroupResponse) and not answer.error_code:
            self._joined(answer.member_id, asked_ms)
            self.world.count_generation(self._group, self._instance_id, self.name, answer.generation_id)
            orphans = self.world.orphans.joined(self._group, self._instance_id, self.name, answer.generation_id, asked_ms)
            self.world.counts["partitions without an owner"] += len(orphans)
        elif isinstance(message, ConsumerGroupHeartbeatRequest) and isinstance(answer, ConsumerGroupHeartbeatResponse):
            if message.member_epoch == 0 and not answer.error_code:
                self._joined(message.member_id, asked_ms)
        elif isinstance(message, OffsetCommitRequest) and isinstance(answer, OffsetCommitResponse) and is_accepted(answer):
            self.world.instances.check(message.member_id, asked_ms, f"{self._group}: a commit")

    def _follow_habits(self) -> None:
        """Also ask for a rebalance at the end if partitions have no owner."""
        super()._follow_habits()
        identity = self.core.commits.member.identity()
        if self._is_classic and self.world.director.is_ending and identity is not None and self.core.group is not None:
            orphans = self.world.orphans.of(self._group, identity.generation_id)
            if orphans:
                self.say(f"asks for a rebalance, because nobody owns {sorted(orphans)}")
                self.core.group.rejoin("partitions have no owner")

    def _joined(self, member_id: str, asked_ms: float) -> None:
        self.world.instances.joined(self._group, self._instance_id, member_id, asked_ms, self.world.clock.now_ms)

    def vanish(self) -> None:
        """Let the program end."""
        super().vanish()
        self._asked_ms.clear()


def is_accepted(answer: OffsetCommitResponse) -> bool:
    """Return whether an offset was committed."""
    return any(not one.error_code for topic in answer.topics for one in topic.partitions)


class StaticWorld(ClientWorld):
    """The nodes and the clients, among them static members."""

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.instances = InstanceBook()
        self.orphans = OrphanBook()
        self._generations: dict[tuple[str, str], tuple[str, int]] = {}  # the last program with an instance id, and its generation
        super().__init__(seed, mix=mix, is_traced=is_traced)
        self.director: StaticDirector = StaticDirector(self)

    def count_generation(self, group: str, instance_id: str, program: str, generation: int) -> None:
        """Count the programs that got the generation of the one before, so that nobody else had to join again."""
        before = self._generations.get((group, instance_id))
        if before is not None and before[0] != program:
            self.counts["restarts without a rebalance"] += before[1] == generation
        self._generations[group, instance_id] = program, generation

    def is_all_processed(self) -> bool:
        """Return also whether each instance id belongs to one program only."""
        return self.director.are_single() and super().is_all_processed()


class StaticDirector(ClientDirector):
    """Starts programs with instance ids again, or twice."""

    world: StaticWorld

    def __init__(self, world: StaticWorld) -> None:
        super().__init__(world)
        self._all: dict[tuple[str, int], list[StaticReader]] = {(group, slot): [] for group in GROUPS for slot in range(len(LIVES_MS))}

    def _start(self, group: str, slot: int) -> StaticReader:
        book, protocol = self.world.readers[group], GROUPS[group]
        reader = StaticReader(self.world, self._next("reader"), book, protocol, self._strategy, f"{protocol}-{slot}")
        reader.is_leaving = self.is_dismissed
        self._all[group, slot].append(reader)
        return reader

    def _follow_members(self, group: str, slot: int) -> Script:
        """Let one program with an instance id follow another."""
        yield self._actor.pause(0, 800)
        reader = self._start(group, slot)
        while True:
            yield from self._live_for(*LIVES_MS[slot], reader)
            while self.is_ending and not reader.is_gone:
                yield self._actor.pause(100, 300)
            if self.is_dismissed:
                return
            reader = yield from self._continue(reader, group, slot)

    def _continue(self, reader: StaticReader, group: str, slot: int) -> Script:
        if not reader.is_gone and self.chance.random() < DOUBLES:
            self.world.counts["programs started twice"] += 1
            other = self._start(group, slot)
            while not reader.is_gone and not other.is_gone:
                yield self._actor.pause(50, 200)
            return reader if other.is_gone else other
        if not reader.is_gone and self.chance.random() < CLOSES:
            reader.is_leaving = True
            while not reader.is_gone:
                yield self._actor.pause(50, 200)
        else:
            reader.vanish()
        yield self._actor.pause(*((50, SESSION_MS / 2) if self.chance.random() < QUICK else (SESSION_MS, 2 * SESSION_MS)))
        return self._start(group, slot)

    def are_single(self) -> bool:
        """Return whether there is not more than one program with each instance id."""
        return all(sum(not one.is_gone for one in found) <= 1 for found in self._all.values())

    def dismiss(self) -> None:
        """Close all consumers."""
        self.is_dismissed = True
        for found in self._all.values():
            for one in found:
                one.is_leaving = True

    def are_members_gone(self) -> bool:
        """Return whether all programs have ended."""
        return all(one.is_gone for found in self._all.values() for one in found)


STATIC = Kind(StaticWorld, CoordinatorFaults, "tests.simulation.clients.static")

if __name__ == "__main__":
    print_trace(STATIC)
