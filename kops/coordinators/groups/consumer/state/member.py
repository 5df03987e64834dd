"""A member of a consumer group (Kafka's ConsumerGroupMember, MemberState)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.modern.subscriptions import Names, names_of
from kops.coordinators.groups.records.consumer import current_assignment_record, member_record
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages import consumer_group_describe_response as describing
from kops.protocol.messages.consumer_group_current_member_assignment_value import ConsumerGroupCurrentMemberAssignmentValue, TopicPartitions
from kops.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

Owned = Mapping[bytes, Mapping[int, int]]
"""The partitions of a member by topic, each with the epoch at which it was assigned."""


class MemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of_record(cls, value: int) -> MemberState:
        """Return the state in a record, or UNKNOWN if this version does not know it."""
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


class ClassicMetadata(NamedTuple):
    """The data of a member that uses the classic protocol: its session timeout, and the names and metadata of its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @classmethod
    def of_join(cls, session_timeout_ms: int, protocols: Sequence[JoinGroupRequestProtocol]) -> ClassicMetadata:
        """Return the data of a JoinGroup request."""
        return cls(session_timeout_ms, tuple((protocol.name, protocol.metadata) for protocol in protocols))


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member. It is immutable; changes create a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Names = field(default_factory=dict)
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned_partitions: Owned = field(default_factory=dict)
    partitions_pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the member uses the classic protocol."""
        return self.classic is not None

    @property
    def classic_metadata(self) -> ClassicMetadata:
        """The data of a member that uses the classic protocol."""
        assert self.classic is not None, "it does not speak the classic protocol"
        return self.classic

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(self, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned | None = None) -> ConsumerGroupMember:
        """Return the member with a new epoch; the current one becomes the previous. Without `pending_revocation` that field does not
        change."""
        pending = self.partitions_pending_revocation if pending_revocation is None else pending_revocation
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned_partitions=assigned,
            partitions_pending_revocation=pending,
        )

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch at which a partition was assigned, including partitions pending revocation, or None."""
        for owned in (self.assigned_partitions, self.partitions_pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def subscription_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its subscription."""
        classic = self.classic
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names, key=lambda name: name.encode("utf-16-be", "surrogatepass")),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(classic.session_timeout_ms, [ClassicProtocol(*protocol) for protocol in classic.protocols]),
        )
        return member_record(group_id, self.member_id, value)

    def assignment_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its current assignment."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=_lists(self.assigned_partitions),
            partitions_pending_revocation=_lists(self.partitions_pending_revocation),
        )
        return current_assignment_record(group_id, self.member_id, value)

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerGroupMember:
        """The member as a record says."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=names_of(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms, tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols)
            ),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerGroupMember:
        """The member as a record says."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of_record(value.state),
            assigned_partitions=_owned(value.assigned_partitions, value.member_epoch),
            partitions_pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerGroupMember:
        """Return the member after the tombstone of its assignment."""
        return replace(
            self, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned_partitions={}, partitions_pending_revocation={}
        )

    def as_static_leaver(self) -> ConsumerGroupMember:
        """Return a static member that has left temporarily. It keeps its partitions, with epoch 0."""
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in self.assigned_partitions.items()}
        return replace(self, member_epoch=STATIC_LEAVE_EPOCH, assigned_partitions=assigned, partitions_pending_revocation={})

    def describe(self, target: Partitions, image: CoordinatorImage) -> describing.Member:
        """Return the member for a description of its group, without deleted topics."""
        owned: dict[bytes, list[int]] = {}
        for epochs_by_topic in (self.assigned_partitions, self.partitions_pending_revocation):
            for topic_id, epochs in epochs_by_topic.items():
                owned.setdefault(topic_id, []).extend(epochs)
        return describing.Member(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            member_epoch=self.member_epoch,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            assignment=_described(owned, image),
            target_assignment=_described(target, image),
            member_type=0 if self.uses_classic_protocol else 1,
        )


def _lists(owned: Owned) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, list(epochs), list(epochs.values())) for topic_id, epochs in owned.items()]


def _owned(topics: Sequence[TopicPartitions], member_epoch: int) -> Owned:
    """Return the owned partitions in a record. Records of older brokers lack partition epochs, so the member's epoch is used."""
    found: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is not None and len(epochs) == len(topic.partitions):
            found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
        else:
            found[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
    return found


def _described(partitions: Mapping[bytes, Sequence[int]], image: CoordinatorImage) -> describing.Assignment:
    found = []
    for topic_id, numbers in partitions.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            found.append(describing.TopicPartitions(topic_id, topic.name, list(numbers)))
    return describing.Assignment(found)
