"""A member of a streams group: one thread of an application (Kafka's StreamsGroupMember, MemberState)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import put_ordered, text_hash
from kops.coordinators.groups.records import streams as records_of
from kops.coordinators.groups.streams.assignors.spec import NO_TARGET, TargetTasks
from kops.coordinators.groups.streams.state.tasks import (
    NO_TASKS,
    OwnedTasks,
    active_lists,
    other_lists,
    owned_from_lists,
    sorted_tasks,
)
from kops.coordinators.groups.streams.topics.topology import java_order
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.messages import streams_group_describe_response as describing
from kops.protocol.messages import streams_group_member_metadata_value as stored
from kops.protocol.messages.streams_group_current_member_assignment_value import StreamsGroupCurrentMemberAssignmentValue

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class MemberState(Enum):
    """The progress of a member towards its target assignment."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """Return the state of a record."""
        return next((state for state in cls if state.value == number), cls.UNKNOWN)


class Endpoint(NamedTuple):
    """The address at which other instances of the application reach this one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsGroupMember:
    """A member. It is immutable; changes create a new one.

    If only some of a member's records have been read, `known_epoch`, `state` or `process_id` is None.
    """

    member_id: str
    known_epoch: int | None = None
    previous_member_epoch: int | None = None
    state: MemberState | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned_tasks: OwnedTasks = NO_TASKS
    tasks_pending_revocation: OwnedTasks = NO_TASKS

    @classmethod
    def new(cls, member_id: str) -> StreamsGroupMember:
        """Return a new member that joins."""
        return cls(member_id, 0, 0, MemberState.STABLE, process_id="")

    @property
    def member_epoch(self) -> int:
        """The member's epoch. As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if no record has it."""
        if self.known_epoch is None:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"The epoch of member {self.member_id} is not known.")
        return self.known_epoch

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has reached the assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(
        self, epoch: int, state: MemberState, assigned: OwnedTasks, pending_revocation: OwnedTasks = NO_TASKS
    ) -> StreamsGroupMember:
        """Return the member at its next epoch with its new tasks."""
        return replace(
            self,
            known_epoch=epoch,
            previous_member_epoch=self.known_epoch,
            state=state,
            assigned_tasks=assigned,
            tasks_pending_revocation=pending_revocation,
        )

    def with_metadata(self, value: stored.StreamsGroupMemberMetadataValue) -> StreamsGroupMember:
        """As a record says."""
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=put_ordered({tag.key: tag.value for tag in value.client_tags}, text_hash),
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsGroupMember:
        """As a record says."""
        epoch = value.member_epoch
        return replace(
            self,
            known_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned_tasks=owned_from_lists(value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch),
            tasks_pending_revocation=owned_from_lists(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
                epoch,
            ),
        )

    def without_assignment(self) -> StreamsGroupMember:
        """Return the member without tasks, as it is after it has left."""
        return replace(
            self,
            known_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned_tasks=NO_TASKS,
            tasks_pending_revocation=NO_TASKS,
        )

    def metadata_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its metadata."""
        tags = [stored.KeyValue(key, self.client_tags[key]) for key in sorted(self.client_tags, key=java_order)]
        value = stored.StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id or "",
            user_endpoint=None if self.user_endpoint is None else stored.Endpoint(*self.user_endpoint),
            client_tags=tags,
        )
        return records_of.member_record(group_id, self.member_id, value)

    def assignment_record(self, group_id: str) -> CoordinatorRecord:
        """Return the record of its current assignment."""
        assigned, pending = self.assigned_tasks, self.tasks_pending_revocation
        assert self.state is not None and self.previous_member_epoch is not None, "a reconciled member must have a state"
        value = StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state.value,
            active_tasks=active_lists(assigned.active),
            standby_tasks=other_lists(assigned.standby),
            warmup_tasks=other_lists(assigned.warmup),
            active_tasks_pending_revocation=active_lists(pending.active),
            standby_tasks_pending_revocation=other_lists(pending.standby),
            warmup_tasks_pending_revocation=other_lists(pending.warmup),
        )
        return records_of.current_assignment_record(group_id, self.member_id, value)

    def describe(self, target: TargetTasks | None) -> describing.Member:
        """Return the member for a description of its group."""
        return describing.Member(
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id or "",
            user_endpoint=None if self.user_endpoint is None else describing.Endpoint(*self.user_endpoint),
            client_tags=[describing.KeyValue(key, value) for key, value in self.client_tags.items()],
            assignment=_described(self.assigned_tasks),
            target_assignment=_described(NO_TARGET if target is None else target),
        )


def _described(tasks: OwnedTasks | TargetTasks) -> describing.Assignment:
    return describing.Assignment(
        [describing.TaskIds(*pair) for pair in sorted_tasks(tasks.active)],
        [describing.TaskIds(*pair) for pair in sorted_tasks(tasks.standby)],
        [describing.TaskIds(*pair) for pair in sorted_tasks(tasks.warmup)],
    )
