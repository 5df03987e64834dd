"""Whole nodes as in `coordinators.world`, with the groups that it does not have, and without transactions.

- a group of static members with the classic protocol, and one with the consumer protocol (`members`). A member is followed by another one
  with the same instance id: after it has left, after its death, or while it stalls and does not know it.
- a group whose members have both protocols. Now most new members have one of them, now the other, so the group is converted online from
  classic to consumer and back while other members stay. In half of the lives, two of three members are static, so an instance id also moves
  from a member with one protocol to a member with the other.
- In half of the lives, the members with the classic protocol keep their partitions while they join (KIP-429).
- a streams group (`streams`) with an internal topic and, in half of the lives, standby tasks.

The rules for owners and offsets are those of `coordinators.books`, and also hold for active tasks. `books` has the rule for instance ids.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.coordinators.actors import Script
from tests.simulation.coordinators.books import OwnerBook
from tests.simulation.coordinators.groups import HEARTBEAT_MS, SESSION_MS, Member, OffsetReader, whole
from tests.simulation.coordinators.world import CoordinatorWorld, Director
from tests.simulation.groups.books import InstanceBook
from tests.simulation.groups.members import (
    CooperativeStaticMember,
    MovingClassicMember,
    MovingConsumerMember,
    MovingCooperativeMember,
    StaticClassicMember,
    StaticConsumerMember,
    StaticMovingClassicMember,
    StaticMovingConsumerMember,
    StaticMovingCooperativeMember,
)
from tests.simulation.groups.streams import StreamsMember, Task, are_tasks_whole
from tests.simulation.node_world import EVERYTHING, Mix

STATIC_CLASSIC, STATIC_CONSUMER, MOVING, STREAMS = "static classic", "static consumer", "moving", "streams"
GROUPS = (STATIC_CLASSIC, STATIC_CONSUMER, MOVING, STREAMS)
MEMBERS = 3
FOLLOWS_FASHION = 0.85
"""The probability that a new member of the moving group has the protocol that most new members have at the time."""
LIFE_MS = {STATIC_CLASSIC: (1_500, 7_000), STATIC_CONSUMER: (1_500, 7_000), MOVING: (700, 2_500), STREAMS: (1_500, 7_000)}
"""How long members live. A conversion needs several members to be replaced."""
SETTINGS: dict[str, str | int] = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.min.session.timeout.ms": 1_000,
    "group.streams.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.initial.rebalance.delay.ms": 300,
}


class GroupWorld(CoordinatorWorld):
    """The nodes, the members and an administrator."""

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.instances = InstanceBook()
        self.classic_instances: dict[tuple[str, str], bool] = {}
        """Whether the last member with an instance id had the classic protocol, by group and instance id."""
        self.tasks: OwnerBook[Task] = OwnerBook()
        self.dealt: dict[str, list[int]] = {}
        """The partitions that the leaders of classic groups have assigned last."""
        self.standby_count = 0
        self.is_cooperative = False
        self.static_count = 0
        """How many members of the moving group are static."""
        super().__init__(seed, mix=mix, is_traced=is_traced)
        self.transactional_groups = ()
        self.groups = GROUPS
        self.director: GroupDirector = GroupDirector(self)

    def draw_settings(self) -> dict[str, str | int]:
        """Return short times, so that every event happens within a life."""
        chance = self.clock.random
        self.standby_count = chance.choice((0, 1))
        self.is_cooperative = chance.random() < 0.5
        self.static_count = chance.choice((0, 2))
        drawn: dict[str, str | int] = {
            "group.streams.num.standby.replicas": self.standby_count,
            "group.streams.assignment.interval.ms": chance.choice((0, 500)),
        }
        return {**super().draw_settings(), **SETTINGS, **drawn}

    def members_of(self, group: str) -> list[Member]:
        """Return the living members of a group, including those that were removed from it and do not know it yet."""
        return [*super().members_of(group), *(one for one in self.director.former if one.group == group and not one.is_gone)]


class GroupDirector(Director):
    """Starts and ends the lives of members."""

    world: GroupWorld

    def __init__(self, world: GroupWorld) -> None:
        super().__init__(world)
        self.former: list[Member] = []
        """Members that stall while another one already has their instance id."""
        self._is_classic_in_fashion = self.chance.choice((True, False))

    def begin(self) -> None:
        """Start all clients."""
        self._actor.start(self._change_fashion())
        for group in GROUPS:
            for slot in range(MEMBERS):
                self._actor.start(self._follow_members(group, slot))
        self._reader = OffsetReader(self.world)

    def _change_fashion(self) -> Script:
        while True:
            yield self._actor.pause(1_500, 3_000)
            self._is_classic_in_fashion = not self._is_classic_in_fashion

    def _new_member(self, group: str, slot: int) -> Member:
        self._member_count += 1
        name = f"{group.replace(' ', '-')}-{slot}-{self._member_count}"
        instance_id = f"instance-{slot}"
        classic = CooperativeStaticMember if self.world.is_cooperative else StaticClassicMember
        made: dict[str, Callable[[], Member]] = {
            STATIC_CLASSIC: lambda: classic(self.world, group, name, instance_id),
            STATIC_CONSUMER: lambda: StaticConsumerMember(self.world, group, name, instance_id),
            MOVING: lambda: self._moving_member(group, name, instance_id if slot < self.world.static_count else None),
            STREAMS: lambda: StreamsMember(self.world, group, name),
        }
        member = self.members[f"{group} {slot}"] = made[group]()
        return member

    def _moving_member(self, group: str, name: str, instance_id: str | None) -> Member:
        is_classic = self._is_classic_in_fashion
        if self.chance.random() >= FOLLOWS_FASHION:
            is_classic = self.chance.choice((True, False))
        if not is_classic:
            if instance_id is None:
                return MovingConsumerMember(self.world, group, name)
            return StaticMovingConsumerMember(self.world, group, name, instance_id)
        if instance_id is None:
            return (MovingCooperativeMember if self.world.is_cooperative else MovingClassicMember)(self.world, group, name)
        static = StaticMovingCooperativeMember if self.world.is_cooperative else StaticMovingClassicMember
        return static(self.world, group, name, instance_id)

    def _follow_members(self, group: str, slot: int) -> Script:
        """Let one member follow another one. At the end, only members that have ended by themselves are followed by others."""
        yield self._actor.pause(0, 1_000)
        while True:
            member = self._new_member(group, slot)
            end_ms = self.world.clock.now_ms + self.chance.uniform(*LIFE_MS[group])
            while not member.is_gone and (self._is_ending or self.world.clock.now_ms < end_ms):
                yield self._actor.pause(100, 300)
            if not member.is_gone:
                yield from self._end_member(member)

    def _end_member(self, member: Member) -> Script:
        what = self.chance.random()
        if what < 0.3:
            yield from self._wait_until_left(member)
        elif what < 0.5:
            member.vanish()
            yield self._actor.pause(0, self.chance.choice((300, 2 * SESSION_MS)))
        else:
            member.stall_ms = self.chance.uniform(0.4, 2) * SESSION_MS
            if member.instance_id is not None:
                self.former.append(member)
                yield self._actor.pause(100, HEARTBEAT_MS)
            else:
                yield self._actor.pause(member.stall_ms, 2 * SESSION_MS)
                yield from self._wait_until_left(member)

    def _wait_until_left(self, member: Member) -> Script:
        member.is_leaving = True
        while not member.is_gone:
            yield self._actor.pause(50, 200)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let the last members stay."""
        self._is_ending = True
        for one in self.former:
            one.vanish()

    def are_ids_done(self) -> bool:
        """Always true, because there are no transactions."""
        return True

    def are_groups_whole(self) -> bool:
        """Return whether the remaining members have all partitions and tasks."""
        numbers = self.world.input_numbers()
        found = {group: [one for one in self.world.members_of(group) if not one.is_leaving] for group in GROUPS}
        if any(len(members) < MEMBERS for members in found.values()):
            return False
        streams = [one for one in found.pop(STREAMS) if isinstance(one, StreamsMember)]
        is_whole = are_tasks_whole(numbers, streams, standby_count=self.world.standby_count)
        return is_whole and all(whole(numbers, members) for members in found.values())
