"""Moves members step by step to their target assignments, with timers (Kafka's GroupMetadataManager.maybeReconcile)."""

from __future__ import annotations

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.state.current_assignment import OwnedTopics, Reconciliation
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember, MemberState
from kops.coordinators.groups.consumer.timers import MemberTimers
from kops.coordinators.runtime.records import CoordinatorRecord


class Target:
    """A member's target assignment and its epoch."""

    __slots__ = ("epoch", "partitions")

    def __init__(self, epoch: int, partitions: Partitions) -> None:
        self.epoch = epoch
        self.partitions = partitions


def from_last_target(group: ConsumerGroup, member: ConsumerGroupMember) -> Target:
    """Return the member's last target assignment."""
    return Target(group.assignment_epoch, group.target_assignment_of(member))


class Reconciler:
    """Takes the steps of members."""

    def __init__(self, lookup: GroupLookup, timers: MemberTimers) -> None:
        self.lookup = lookup
        self.timers = timers

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        target: Target,
        owned: OwnedTopics,
        records: list[CoordinatorRecord],
        *,
        has_subscription_changed: bool,
    ) -> ConsumerGroupMember:
        """Return the member after its next step. A changed member is written. Raises ApiError FENCED_MEMBER_EPOCH."""
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        names, image = group.subscribed_topics(member), self.lookup.image
        step = Reconciliation(
            target_epoch=target.epoch,
            target=target.partitions,
            has_subscription_changed=has_subscription_changed,
            has_subscription=bool(names),
            subscribed_topic_ids={topic.id for name in names if (topic := image.topic(name)) is not None},
            partition_epoch=group.partition_epoch,
            owned=owned,
        )
        new = step.next_member(member)
        if new == member:
            return new
        records.append(new.assignment_record(group.group_id))
        if not new.uses_classic_protocol:
            if new.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.schedule_rebalance(group.group_id, new)
            else:
                self.timers.cancel_rebalance(group.group_id, new.member_id)
        return new
