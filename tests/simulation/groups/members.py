"""Static members of both protocols (KIP-345), and members of a group that moves from one protocol to the other and back (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.coordinators.groups.consumer.state.embedded import read_assignment
from kops.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerProtocolAssignment, LeaveGroupRequest
from kops.protocol.messages.consumer_protocol_assignment import TopicPartition
from kops.protocol.messages.leave_group_request import MemberIdentity
from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment
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

    def deal(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Assign all partitions."""
        self.world.dealt[self.group] = self.world.input_numbers()
        return super().deal(members)

    def is_outdated(self) -> bool:
        """Return whether the leader must assign new partitions."""
        return self.is_leader and self.world.dealt[self.group] != self.world.input_numbers()


class StaticMember(Member):
    """What static members of both protocols have in common."""

    world: GroupWorld

    def joined(self, asked_ms: float) -> None:
        """Record that the instance id belongs to this member."""
        assert self.instance_id is not None
        self.world.instances.joined(self.group, self.instance_id, self.member_id, asked_ms, self.world.clock.now_ms)

    def served(self, node: int, sent_ms: float) -> None:
        """Check a heartbeat. A coordinator that does not know yet that it was replaced may accept it."""
        if self.world.coordinates(node, GROUP, self.group):
            self.world.instances.check(self.member_id, sent_ms, f"{self.group}: a heartbeat")

    def acknowledged(self, sent_ms: float) -> None:
        """Check a commit."""
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
        """Record the new partitions. Others that still have them are suspected.

        If all members of a consumer group have gone, a member with the classic protocol replaces the group, and the epochs begin again. So
        an epoch does not identify the owner of a partition.
        """
        self.suspicions.clear()
        self.suspect_others(given, epoch)

    def served(self, node: int, sent_ms: float) -> None:
        """Check that nobody else has a partition of this member."""
        self.check_suspicions(node, self.epoch, sent_ms)

    def check_may_commit(self, where: str, number: int, known: int, suspected: dict[int, Suspicion]) -> None:
        """Check that nobody else had this partition when the commit was sent. The members of a consumer group have different epochs."""
        Member.check_may_commit(self, where, number, known, suspected)

    def deal(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Return the assignment of the leader, as Kafka's clients write it."""
        return [SyncGroupRequestAssignment(one.member_id, self._written(one.assignment)) for one in super().deal(members)]

    def _written(self, numbers: bytes) -> bytes:
        return write_versioned(ConsumerProtocolAssignment([TopicPartition(self.world.inputs, list(numbers))]), 1)

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
