"""A consumer group (Kafka's ConsumerGroup)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from kops.coordinators.groups.assignors.java_maps import JavaSet, TimelineSlots, capacity_for, text_hash
from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember, MemberState, Owned
from kops.coordinators.groups.group import CommitPartitionValidator, GroupType, any_partition
from kops.coordinators.groups.modern.group import ModernGroup
from kops.coordinators.groups.modern.subscriptions import Names, SubscriptionCount, count, count_names, count_regex, union_of
from kops.coordinators.groups.offset_and_metadata import BaseTimestamp, commit_timestamp
from kops.coordinators.groups.records import consumer as records_of
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.json_text import uuid_text
from kops.protocol.messages.consumer_group_describe_response import DescribedGroup
from kops.timeline import Timeline, TimelineDict, TimelineValue

CONSUMER_PROTOCOL_TYPE = "consumer"
_FIRST_COMMIT_VERSION = 9


class ConsumerGroupState(Enum):
    """The states of a group."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches, with the metadata version and the time (Kafka's ResolvedRegularExpression)."""

    topics: Names
    version: int
    timestamp: int


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """The group."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        super().__init__(timeline, group_id)
        self._state: TimelineValue[ConsumerGroupState] = TimelineValue(timeline, ConsumerGroupState.EMPTY)
        self.static_members: TimelineDict[str, str] = TimelineDict(timeline)
        self._server_assignors: TimelineDict[str, int] = TimelineDict(timeline)
        self._assignor_slots = TimelineSlots()
        self._classic_member_count: TimelineValue[int] = TimelineValue(timeline, 0)
        self._classic_protocols: TimelineDict[str, int] = TimelineDict(timeline)
        self._partition_epochs: TimelineDict[tuple[bytes, int], int] = TimelineDict(timeline)
        self.subscribed_regexes: TimelineDict[str, int] = TimelineDict(timeline)
        self.resolved_regexes: TimelineDict[str, ResolvedRegex] = TimelineDict(timeline)
        self._regex_slots = TimelineSlots()
        self._has_subscription_metadata_record: TimelineValue[bool] = TimelineValue(timeline, False)

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state(self) -> ConsumerGroupState:
        """The state."""
        return self._state.value

    @property
    def state_text(self) -> str:
        return self._state.value.value

    @property
    def committed_state_text(self) -> str:
        return self._state.committed.value

    @property
    def protocol_type_text(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return self._state.value is ConsumerGroupState.EMPTY

    @property
    def has_subscription_metadata_record(self) -> bool:
        """Whether the log has a record of subscription metadata, which groups had before Kafka 4.1."""
        return self._has_subscription_metadata_record.value

    @has_subscription_metadata_record.setter
    def has_subscription_metadata_record(self, value: bool) -> None:
        self._has_subscription_metadata_record.value = value

    # Members

    def member_or_new(self, member_id: str) -> ConsumerGroupMember:
        """Return a member, or a new one that is not yet in the group."""
        return self.members.get(member_id) or ConsumerGroupMember(member_id)

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member with this instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target_assignment_of(self, member: ConsumerGroupMember) -> Partitions:
        """Return the target assignment of a member. A static member that replaces another one gets that member's assignment."""
        if member.instance_id is None:
            return self.target_assignment(member.member_id)
        previous = self.static_members.get(member.instance_id)
        return {} if previous is None else self.target_assignment(previous)

    def update_member(self, new: ConsumerGroupMember) -> None:
        """Replay a record that adds or replaces a member."""
        old = self.members.get(new.member_id)
        self._slots.before_put(self.member_count)
        self._members[new.member_id] = new
        self._count(old, new)
        if old is not None:
            self._remove_partition_epochs(old)
        self._add_partition_epochs(new.assigned_partitions, new.member_epoch)
        self._add_partition_epochs(new.partitions_pending_revocation, new.member_epoch)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        self._update_after_change()

    def remove_member(self, member_id: str) -> None:
        """Replay the removal of a member."""
        old = self._members.pop(member_id, None)
        self._count(old, None)
        if old is not None:
            self._remove_partition_epochs(old)
            if old.instance_id is not None:
                self.static_members.pop(old.instance_id, None)
        self._update_after_change()

    def _count(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        """Update the counts of subscriptions, assignors and protocols for a replaced, added or removed member."""
        for member, change in ((old, -1), (new, 1)):
            if member is None:
                continue
            count_names(self.subscribed_topic_names, member.subscribed_topic_names, change)
            if member.server_assignor is not None:
                if change > 0:
                    self._assignor_slots.before_put(len(self._server_assignors))
                count(self._server_assignors, member.server_assignor, change)
            if member.subscribed_topic_regex:
                count(self.subscribed_regexes, member.subscribed_topic_regex, change)
            if member.classic is not None:
                self._classic_member_count.value += change
                for name, _ in member.classic.protocols:
                    count(self._classic_protocols, name, change)

    def _update_after_change(self) -> None:
        self._update_state()
        self._is_homogeneous.value = is_homogeneous(self.subscribed_regexes, self.subscribed_topic_names, self.member_count)

    def _update_state(self) -> None:
        assignment_epoch = self.assignment_epoch
        if not self._members:
            state = ConsumerGroupState.EMPTY
        elif self.group_epoch > assignment_epoch:
            state = ConsumerGroupState.ASSIGNING
        elif all(member.is_reconciled_to(assignment_epoch) for member in self._members.values()):
            state = ConsumerGroupState.STABLE
        else:
            state = ConsumerGroupState.RECONCILING
        if state is not self._state.value:
            self._state.value = state

    # Owners of partitions

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """Return the epoch of the member that owns the partition, or -1."""
        return self._partition_epochs.get((topic_id, partition), -1)

    def _add_partition_epochs(self, owned: Owned, epoch: int) -> None:
        epochs = self._partition_epochs
        for topic_id, partitions in owned.items():
            for partition in partitions:
                before = epochs.get((topic_id, partition))
                if before is not None and before >= epoch:
                    raise ApiError(
                        "UNKNOWN_SERVER_ERROR",
                        f"Cannot set the epoch of {uuid_text(topic_id)}-{partition} to {epoch} because the partition is still owned "
                        f"at epoch {before}",
                    )
                epochs[topic_id, partition] = epoch

    def _remove_partition_epochs(self, member: ConsumerGroupMember) -> None:
        epochs = self._partition_epochs
        for owned in (member.assigned_partitions, member.partitions_pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    if epochs.get((topic_id, partition)) == member.member_epoch:
                        del epochs[topic_id, partition]

    def waits_for_unreleased_partition(self, member: ConsumerGroupMember) -> bool:
        """Whether another member still owns a partition of this member's target assignment."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.target_assignment(member.member_id).items():
            assigned = member.assigned_partitions.get(topic_id, {})
            if any(partition not in assigned and self.partition_epoch(topic_id, partition) != -1 for partition in partitions):
                return True
        return False

    # Subscriptions

    def update_resolved_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Replay a record that sets or removes a resolved regular expression."""
        old = self.resolved_regexes.pop(regex, None)
        if old is not None:
            count_regex(self.subscribed_topic_names, old.topics, -1)
        if resolved is not None:
            self._regex_slots.before_put(len(self.resolved_regexes))
            self.resolved_regexes[regex] = resolved
            count_regex(self.subscribed_topic_names, resolved.topics, 1)

    @property
    def last_resolved_regex(self) -> ResolvedRegex | None:
        """Return one of the resolved regular expressions. All are resolved together."""
        ordered = self._regex_slots.ordered(self.resolved_regexes, text_hash)
        return self.resolved_regexes[ordered[0]] if ordered else None

    def subscribed_member_count(self, regex: str) -> int:
        """Return how many members subscribe to a regular expression."""
        return self.subscribed_regexes.get(regex, 0)

    def subscribed_topics(self, member: ConsumerGroupMember) -> Names:
        """Return the topics that a member names or that its regular expression matches."""
        resolved = self.resolved_regexes.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        return member.subscribed_topic_names if resolved is None else union_of(member.subscribed_topic_names, resolved.topics)

    def regexes_with(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> Mapping[str, int]:
        """Return how many members would subscribe to each regular expression if `new` replaced `old`."""
        old_regex, new_regex = regex_of(old), regex_of(new)
        if old_regex == new_regex:
            return self.subscribed_regexes
        counts = dict(self.subscribed_regexes)
        if old_regex is not None:
            count(counts, old_regex, -1)
        if new_regex is not None:
            count(counts, new_regex, 1)
        return counts

    def topics_with(self, old: ConsumerGroupMember, new: ConsumerGroupMember) -> dict[str, SubscriptionCount]:
        """Return the subscribed topics if `new` replaced `old`."""
        counts = dict(self.subscribed_topic_names)
        count_names(counts, old.subscribed_topic_names, -1)
        count_names(counts, new.subscribed_topic_names, 1)
        old_regex = regex_of(old)
        if old_regex is not None and old_regex != regex_of(new) and self.subscribed_member_count(old_regex) == 1:
            resolved = self.resolved_regexes.get(old_regex)
            if resolved is not None:
                count_regex(counts, resolved.topics, -1)
        return counts

    def topics_without(self, members: Iterable[ConsumerGroupMember], regexes: Iterable[str]) -> dict[str, SubscriptionCount]:
        """Return the subscribed topics without some members and some regular expressions."""
        counts = dict(self.subscribed_topic_names)
        for member in members:
            count_names(counts, member.subscribed_topic_names, -1)
        for regex in regexes:
            resolved = self.resolved_regexes.get(regex)
            if resolved is not None:
                count_regex(counts, resolved.topics, -1)
        return counts

    def preferred_assignor_with(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> str | None:
        """Return the assignor that most members prefer if `new` replaced `old`, or None if no member has a preference."""
        counts = dict(self._server_assignors)
        order: JavaSet[str] = JavaSet(text_hash, self._assignor_slots.ordered(counts, text_hash), capacity=capacity_for(len(counts)))
        for member, change in ((old, -1), (new, 1)):
            if member is not None and member.server_assignor is not None:
                count(counts, member.server_assignor, change)
                if member.server_assignor in counts:
                    order.add_first(member.server_assignor)
                else:
                    order.discard(member.server_assignor)
        return max(order, key=counts.__getitem__, default=None)

    # The classic protocol

    def supports_classic_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols may join: all classic members must support one of them."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty:
            return bool(names)
        return any(self._classic_protocols.get(name, 0) == self._classic_member_count.value for name in names)

    def all_use_classic_protocol_except(self, members: Collection[ConsumerGroupMember]) -> bool:
        """Whether all members except these use the classic protocol."""
        classic = sum(member.uses_classic_protocol for member in members)
        return self._classic_member_count.value - classic == self.member_count - len(members)

    def all_use_classic_protocol_except_one(self, member: ConsumerGroupMember) -> bool:
        """Whether all members except this one use the classic protocol."""
        return self._classic_member_count.value == self.member_count - 1 and not member.uses_classic_protocol

    # Offsets

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool, api_version: int
    ) -> CommitPartitionValidator:
        epoch = generation_id_or_member_epoch
        if epoch < 0 and not self._members:
            return any_partition
        if is_transactional and epoch == -1 and not member_id and group_instance_id is None:
            return any_partition
        member = self.member(member_id)
        if not is_transactional and not member.uses_classic_protocol and api_version < _FIRST_COMMIT_VERSION:
            raise ApiError(
                "UNSUPPORTED_VERSION", "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch == member.member_epoch:
            return any_partition
        if epoch > member.member_epoch:
            raise _stale(member, f"Received {_epoch_word(member)} {epoch} is newer than current member epoch {member.member_epoch}.")

        def validate(topic: str, topic_id: bytes, partition: int) -> None:
            assigned_at = member.assignment_epoch(topic_id, partition)
            if assigned_at is None:
                raise _stale(member, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
            if epoch < assigned_at:
                older = f"is older than assignment epoch {assigned_at} for partition {topic}-{partition}."
                raise _stale(member, f"Received {_epoch_word(member)} {epoch} {older}")

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, *, require_stable: bool) -> None:
        if member_id is None and member_epoch < 0:
            return
        members = self._members
        member = None if member_id is None else members.get(member_id) if require_stable else members.committed(member_id)
        if member is None:
            raise self._unknown_member(member_id)
        if member_epoch != member.member_epoch:
            differs = f"{member_epoch} does not match the expected member epoch {member.member_epoch}."
            raise _stale(member, f"The received {_epoch_word(member)} {differs}")

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete_group(self) -> None:
        if not self.is_empty:
            raise ApiError("NON_EMPTY_GROUP")

    def offset_expiration_condition(self) -> BaseTimestamp | None:
        return commit_timestamp

    # Records

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        self.create_tombstones_with_replaced_member(records, None, None)

    def create_tombstones_with_replaced_member(
        self, records: list[CoordinatorRecord], leaving_id: str | None, joining_id: str | None
    ) -> None:
        """Append the group's tombstones. A member that is replaced in the same batch already has its new id."""
        ids = [joining_id if member_id == leaving_id and joining_id is not None else member_id for member_id in self._ordered_ids()]
        records += (records_of.current_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records += (records_of.target_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records.append(records_of.target_assignment_epoch_tombstone(self.group_id))
        records += (records_of.member_tombstone(self.group_id, member_id) for member_id in ids)
        records += (records_of.regex_tombstone(self.group_id, regex) for regex in self.resolved_regexes)
        records.append(records_of.subscription_metadata_tombstone(self.group_id))
        records.append(records_of.epoch_tombstone(self.group_id))

    def create_records(self, records: list[CoordinatorRecord]) -> None:
        """Return the records of the whole group."""
        members = list(self.ordered_members())
        records += (member.subscription_record(self.group_id) for member in members)
        records.append(records_of.epoch_record(self.group_id, self.group_epoch, self.metadata_hash))
        records += (
            records_of.target_assignment_record(self.group_id, member.member_id, self.target_assignment(member.member_id))
            for member in members
        )
        records.append(records_of.target_assignment_epoch_record(self.group_id, self.assignment_epoch, self.assignment_timestamp))
        records += (member.assignment_record(self.group_id) for member in members)

    def _ordered_ids(self) -> list[str]:
        return [member.member_id for member in self.ordered_members()]

    def describe(self, default_assignor: str, image: CoordinatorImage) -> DescribedGroup:
        """Return the committed group for a description."""
        wanted = dict(self._server_assignors.committed_items())
        ordered = self._assignor_slots.ordered(wanted, text_hash)
        targets = self._target_assignment
        members = dict(self._members.committed_items())
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self._state.committed.value,
            group_epoch=self._group_epoch.committed,
            assignment_epoch=self._assignment.committed.epoch,
            assignor_name=max(ordered, key=wanted.__getitem__, default=default_assignor),
            members=[
                members[member_id].describe(targets.committed(member_id) or {}, image)
                for member_id in self._slots.ordered(members, text_hash)
            ],
        )


def is_homogeneous(regexes: Mapping[str, int], topics: Mapping[str, SubscriptionCount], member_count: int) -> bool:
    """Whether all members have the same subscription: the same names, or one regular expression and no names."""
    if not regexes:
        return all(topic.by_name == member_count for topic in topics.values())
    if next(iter(regexes.values())) != member_count:
        return False
    return all(topic.by_regex == 1 and topic.by_name == 0 for topic in topics.values())


def regex_of(member: ConsumerGroupMember | None) -> str | None:
    """Return the regular expression of a member, if it has one."""
    return (member.subscribed_topic_regex or None) if member is not None else None


def _epoch_word(member: ConsumerGroupMember) -> str:
    return "generation id" if member.uses_classic_protocol else "member epoch"


def _stale(member: ConsumerGroupMember, text: str) -> ApiError:
    return ApiError("ILLEGAL_GENERATION" if member.uses_classic_protocol else "STALE_MEMBER_EPOCH", text)
