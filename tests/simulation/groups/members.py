"""Static members of both protocols (KIP-345), and members of a group that moves from one protocol to the other and back (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.coordinators.groups.consumer.state.embedded import read_assignment, read_subscription
from kops.errors import ApiError
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    LeaveGroupRequest,
)
from kops.protocol.messages.consumer_protocol_assignment import TopicPartition
from kops.protocol.messages.consumer_protocol_subscription import TopicPartition as SubscribedPartitions
from kops.protocol.messages.join_group_response import JoinGroupResponseMember
from kops.protocol.messages.leave_group_request import MemberIdentity
from kops.protocol.record_values import write_versioned
from tests.simulation.coordinators.actors import GROUP, Script
from tests.simulation.coordinators.books import Suspicion
from tests.simulation.coordinators.groups import ClassicMember, ConsumerMember, Member

if TYPE_CHECKING:
    from tests.simulation.groups.world import GroupWorld

REMOVALS = 0.3
"""The probability that a static member that ends is also removed from its group, so that its partitions go to others at once."""
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


class WatchfulMember(ClassicMember):
    """A member with the classic protocol. If it leads its group and the topic has got partitions that were not assigned yet, it joins
    again, because its group may have no other reason for a rebalance.
    """

    world: GroupWorld

    def took(self, given: set[int], epoch: int) -> None:
        """Record the new partitions. Others that still have them are suspected."""
        super().took(given, epoch)
        self.watch_others(given, epoch)

    def watch_others(self, given: set[int], epoch: int) -> None:
        """Suspect the others that still have the new partitions of this member."""
        self.suspicions = {number: found for number, found in self.suspicions.items() if number in self.owned}
        self.suspect_others(given - self.owned, epoch)

    def served(self, node: int, sent_ms: float) -> None:
        """Check that nobody else has a partition of this member."""
        self.check_suspicions(node, self.epoch, sent_ms)

    def deal(self, members: list[JoinGroupResponseMember]) -> dict[str, list[int]]:
        """Assign all partitions."""
        self.world.dealt[self.group] = self.world.input_numbers()
        return super().deal(members)

    def is_outdated(self) -> bool:
        """Return whether the leader must assign new partitions."""
        return self.is_leader and self.world.dealt[self.group] != self.world.input_numbers()


class CooperativeMember(WatchfulMember):
    """A member with the classic protocol that keeps its partitions while it joins (KIP-429). It gives up those that the leader wants for
    others, and joins again, so that the next generation gives them to their new owners.

    As Kafka's client, it gives up everything when the coordinator does not know it any more, or when it has joined a generation without
    getting its assignment.
    """

    strategy = "cooperative-sticky"

    def subscription(self) -> ConsumerProtocolSubscription:
        """Tell the leader what the member has, and of which generation."""
        owned = [SubscribedPartitions(self.world.inputs, sorted(self.owned))] if self.owned else []
        return ConsumerProtocolSubscription([self.world.inputs], owned_partitions=owned, generation_id=self.epoch)

    def prepare_to_join(self) -> None:
        """Keep the partitions."""

    def deal(self, members: list[JoinGroupResponseMember]) -> dict[str, list[int]]:
        """Leave to the members what they have, up to the same number for each. What moves is not assigned before it is given up."""
        super().deal(members)
        numbers = self.world.input_numbers()
        claims: dict[int, list[tuple[int, str]]] = {number: [] for number in numbers}
        for one in members:
            said = read_subscription(one.metadata)
            for number in (number for topic in said.owned_partitions for number in topic.partitions):
                claims[number].append((said.generation_id, one.member_id))
        most = -(-len(numbers) // len(members))
        dealt: dict[str, list[int]] = {one.member_id: [] for one in members}
        for number, claimants in claims.items():
            if claimants and len(dealt[owner := max(claimants)[1]]) < most:
                dealt[owner].append(number)
        kept = {number for owned in dealt.values() for number in owned}
        for number in (number for number in numbers if number not in kept):
            dealt[min(dealt, key=lambda one: len(dealt[one]))].append(number)
        return {one: [number for number in given if all(claimant == one for _, claimant in claims[number])] for one, given in dealt.items()}

    def take(self, given: set[int]) -> Script:
        """Take the new partitions. If others are to be given up, do so, which takes a while, and join again."""
        is_whole = self.owned <= given
        self.owned |= given
        if not is_whole:
            yield self.pause(0, 600)
            sent_ms = self.world.clock.now_ms
            request = HeartbeatRequest(self.group, self.epoch, self.member_id, self.instance_id)
            node, answer = yield from self.ask_coordinator(GROUP, self.group, request)
            if not isinstance(answer, ApiError) and not answer.error_code:
                self.served(node, sent_ms)
            self.world.counts["partitions given up while joining"] += len(self.owned - given)
            self.owned = given
        return is_whole

    def refused(self, error: str) -> None:
        """Give up everything if the coordinator does not know the member."""
        self.rejected(error)
        super().refused(error)

    def not_synced(self, error: str) -> None:
        """Give up everything, because the generation has begun without this member."""
        self._lose()
        super().not_synced(error)

    def rejected(self, error: str) -> None:
        """Give up everything if the coordinator does not know the member."""
        if error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
            self._lose()

    def leave(self) -> Script:
        """Give up everything, and leave the group."""
        self._lose()
        yield from super().leave()

    def _lose(self) -> None:
        self.owned = set()
        self.suspicions.clear()


class StaticMember(Member):
    """What static members of both protocols have in common."""

    world: GroupWorld

    def joined(self, asked_ms: float) -> None:
        """Record that the instance id belongs to this member."""
        super().joined(asked_ms)
        assert self.instance_id is not None
        self.world.instances.joined(self.group, self.instance_id, self.member_id, asked_ms, self.world.clock.now_ms)
        is_classic = isinstance(self, ClassicMember)
        before = self.world.classic_instances.setdefault((self.group, self.instance_id), is_classic)
        self.world.counts["instance ids that changed their protocol"] += before != is_classic
        self.world.classic_instances[self.group, self.instance_id] = is_classic

    def served(self, node: int, sent_ms: float) -> None:
        """Check a heartbeat. A coordinator that does not know yet that it was replaced may accept it."""
        super().served(node, sent_ms)
        if self.world.coordinates(node, GROUP, self.group):
            self.world.instances.check(self.member_id, sent_ms, f"{self.group}: a heartbeat")

    def acknowledged(self, sent_ms: float) -> None:
        """Check a commit."""
        super().acknowledged(sent_ms)
        self.world.instances.check(self.member_id, sent_ms, f"{self.group}: a commit")


class StaticClassicMember(StaticMember, WatchfulMember):
    """A static member with the classic protocol. When it ends, it does not leave, but an administrator may remove it."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str) -> None:
        self.instance_id = instance_id
        super().__init__(world, group, name)

    def leave(self) -> Script:
        """End, and be removed or not."""
        if self.chance.random() < REMOVALS:
            request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id, self.instance_id)])
            yield from self.ask_coordinator(GROUP, self.group, request)


class StaticConsumerMember(StaticMember, ConsumerMember):
    """A static member with the consumer protocol. It leaves for a while, or for ever."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str) -> None:
        self.instance_id = instance_id
        super().__init__(world, group, name)

    def leave(self) -> Script:
        """Leave the group."""
        epoch = LEAVES if self.chance.random() < REMOVALS else LEAVES_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, epoch, self.instance_id)
        yield from self.ask_coordinator(GROUP, self.group, request)

    def refused(self, error: str) -> None:
        """Ask again while the former life has not left and its session has not expired."""
        if error == "UNRELEASED_INSTANCE_ID":
            self.world.counts["instance ids not released"] += 1
        else:
            super().refused(error)


class MovingClassicMember(WatchfulMember):
    """A member with the classic protocol in a group in which others have the consumer protocol. It gives up everything before it joins."""

    def took(self, given: set[int], epoch: int) -> None:
        """Suspect the others that still have the new partitions.

        If all members of a consumer group have gone, a member with the classic protocol replaces the group, and the epochs begin again. So
        an epoch does not identify the owner of a partition.
        """
        self.watch_others(given, epoch)

    def check_may_commit(self, where: str, number: int, known: int, suspected: dict[int, Suspicion]) -> None:
        """Check that nobody else had this partition when the commit was sent. The members of a consumer group have different epochs."""
        Member.check_may_commit(self, where, number, known, suspected)

    def written(self, numbers: list[int]) -> bytes:
        """Return an assignment as Kafka's clients write it."""
        return write_versioned(ConsumerProtocolAssignment([TopicPartition(self.world.inputs, numbers)]), 1)

    def read(self, assignment: bytes) -> set[int]:
        """Return the partitions of an assignment of the leader or, in a consumer group, of the coordinator."""
        return {number for topic in read_assignment(assignment).assigned_partitions for number in topic.partitions}


class MovingConsumerMember(ConsumerMember):
    """A member with the consumer protocol in the same group.

    As in Kafka, it is told GROUP_ID_NOT_FOUND if the group was converted after its session ended, and UNKNOWN_SERVER_ERROR if it comes to a
    classic group whose first generation has not begun. Kafka's client ends with both.
    """

    def took(self, given: set[int], epoch: int) -> None:
        """Record nothing, because the epochs may have begun again."""

    def refused(self, error: str) -> None:
        """Act on an error of the coordinator."""
        if error in ("GROUP_ID_NOT_FOUND", "UNKNOWN_SERVER_ERROR"):
            self.say(f"ConsumerGroupHeartbeat: {error}")
            self.world.counts[f"ends of members that were told {error}"] += 1
            self.vanish()
        else:
            super().refused(error)


class CooperativeStaticMember(CooperativeMember, StaticClassicMember):
    """A CooperativeMember with an instance id."""


class MovingCooperativeMember(CooperativeMember, MovingClassicMember):
    """A CooperativeMember in a group in which others have the consumer protocol."""


class StaticMovingClassicMember(StaticClassicMember, MovingClassicMember):
    """A MovingClassicMember with an instance id, which may belong to a member with the consumer protocol before or after it."""


class StaticMovingCooperativeMember(CooperativeMember, StaticMovingClassicMember):
    """A StaticMovingClassicMember that keeps its partitions while it joins."""


class StaticMovingConsumerMember(StaticConsumerMember, MovingConsumerMember):
    """A MovingConsumerMember with an instance id, which may belong to a member with the classic protocol before or after it."""
