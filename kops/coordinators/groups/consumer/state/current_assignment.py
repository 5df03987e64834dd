"""A member's next step towards its target assignment (Kafka's CurrentAssignmentBuilder).

A member first revokes partitions that it must not keep (UNREVOKED_PARTITIONS, at its old epoch). Then it gets partitions that other members
have released (UNRELEASED_PARTITIONS while some have not). It is STABLE when it has its whole target assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember, MemberState, Owned
from kops.errors import ApiError
from kops.protocol.messages.consumer_group_heartbeat_request import TopicPartitions

OwnedTopics = Sequence[TopicPartitions] | None
"""The partitions that the member owns according to its heartbeat; None if the heartbeat does not say."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input of the next step. `partition_epoch` returns the epoch of a partition's owner, or -1.

    `has_subscription` is True even if none of the member's topics exists.
    """

    target_epoch: int
    target: Partitions
    has_subscription_changed: bool
    has_subscription: bool
    subscribed_topic_ids: Collection[bytes]
    partition_epoch: Callable[[bytes, int], int]
    owned: OwnedTopics

    def next_member(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Return the member after this step. Raises ApiError FENCED_MEMBER_EPOCH."""
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self.target_epoch:
                    return self._compute_next(member, member.member_epoch)
                return self._maybe_update(member)
            case MemberState.UNREVOKED_PARTITIONS:
                if self._owns_any(member.partitions_pending_revocation):
                    return self._maybe_update(member)
                return self._compute_next(member, member.member_epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._compute_next(member, member.member_epoch)
            case _:
                if self.owned is None or self.owned:
                    raise ApiError(
                        "FENCED_MEMBER_EPOCH",
                        "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
                    )
                return self._compute_next(member, self.target_epoch)

    def _owns_any(self, revoked: Mapping[bytes, Collection[int]]) -> bool:
        """Whether the member still owns one of these, or does not report what it owns."""
        if self.owned is None:
            return True
        return any(partition in revoked.get(topic.topic_id, ()) for topic in self.owned for partition in topic.partitions)

    def _maybe_update(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revoke at once the topics to which the member no longer subscribes."""
        if not self.has_subscription_changed:
            return member
        subscribed = self.subscribed_topic_ids
        assigned, pending = member.assigned_partitions, member.partitions_pending_revocation
        gone = [topic_id for topic_id in assigned if topic_id not in subscribed]
        if not self.has_subscription and not pending:
            # Kafka creates a new member here even if nothing was assigned. Its previous epoch may differ.
            new_assigned: Owned = {}
            new_pending: Owned = assigned
        elif gone:
            new_assigned = {topic_id: epochs for topic_id, epochs in assigned.items() if topic_id in subscribed}
            new_pending = {**pending, **{topic_id: {**pending.get(topic_id, {}), **assigned[topic_id]} for topic_id in gone}}
        else:
            return member
        if new_pending and self._owns_any(new_pending):
            return member.at_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, new_assigned, new_pending)
        return member.at_epoch(member.member_epoch, member.state, new_assigned)

    def _compute_next(self, member: ConsumerGroupMember, member_epoch: int) -> ConsumerGroupMember:
        subscribed = self.subscribed_topic_ids
        assigned: dict[bytes, Mapping[int, int]] = {}
        pending_revocation: dict[bytes, Mapping[int, int]] = {}
        new: dict[bytes, list[int]] = {}
        has_unreleased = False
        for topic_id in dict.fromkeys([*self.target, *member.assigned_partitions]):
            target = self.target.get(topic_id, ()) if topic_id in subscribed else ()
            current = member.assigned_partitions.get(topic_id, {})
            wanted = set(target)
            kept = {partition: epoch for partition, epoch in current.items() if partition in wanted}
            revoked = {partition: epoch for partition, epoch in current.items() if partition not in wanted}
            own = member.partitions_pending_revocation.get(topic_id, {})
            missing = [partition for partition in target if partition not in kept]
            free = [partition for partition in missing if partition in own or self.partition_epoch(topic_id, partition) == -1]
            has_unreleased = has_unreleased or len(free) < len(missing)
            if kept:
                assigned[topic_id] = kept
            if revoked:
                pending_revocation[topic_id] = revoked
            if free:
                new[topic_id] = free
        if pending_revocation and self._owns_any(pending_revocation):
            return member.at_epoch(member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending_revocation)
        for topic_id, partitions in new.items():
            assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(partitions, self.target_epoch)}
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.at_epoch(self.target_epoch, state, assigned, {})
