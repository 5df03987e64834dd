"""A member of a share group (Kafka's ShareGroupMember)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.modern.group import partitions_from_lists
from kops.coordinators.groups.modern.subscriptions import Names, names_of
from kops.coordinators.groups.records import share as records_of
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages import share_group_describe_response as describing
from kops.protocol.messages.share_group_current_member_assignment_value import ShareGroupCurrentMemberAssignmentValue
from kops.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue

LEAVE_EPOCH: Final = -1
_STABLE: Final = 0


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member. It is immutable; changes create a new one. `state` is the number in the record, always 0."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Names = field(default_factory=dict)
    state: int = _STABLE
    assigned_partitions: Partitions = field(default_factory=dict)

    @property
    def instance_id(self) -> str | None:
        """None: share groups have no static members."""
        return None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has reached the assignment of this epoch."""
        return self.member_epoch == assignment_epoch

    def with_subscription(self, value: ShareGroupMemberMetadataValue) -> ShareGroupMember:
        """As a record says."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=names_of(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareGroupMember:
        """As a record says."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=value.state,
            assigned_partitions=partitions_from_lists({topic.topic_id: topic.partitions for topic in value.assigned_partitions}),
        )

    def without_assignment(self) -> ShareGroupMember:
        """Return the member without partitions, as it is after it has left."""
        return replace(self, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned_partitions={})

    def subscription_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its subscription, with topics in the order of Java's strings."""
        names = sorted(self.subscribed_topic_names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        value = ShareGroupMemberMetadataValue(self.rack_id, self.client_id, self.client_host, names)
        return records_of.member_record(group_id, self.member_id, value)

    def assignment_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its current assignment."""
        return records_of.current_assignment_record(
            group_id, self.member_id, self.member_epoch, self.previous_member_epoch, self.state, self.assigned_partitions
        )

    def describe(self, image: CoordinatorImage) -> describing.Member:
        """Return the member for a description of its group, without deleted topics."""
        topics = []
        for topic_id, numbers in self.assigned_partitions.items():
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                topics.append(describing.TopicPartitions(topic_id, topic.name, list(numbers)))
        return describing.Member(
            member_id=self.member_id,
            rack_id=self.rack_id,
            member_epoch=self.member_epoch,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.subscribed_topic_names),
            assignment=describing.Assignment(topics),
        )
