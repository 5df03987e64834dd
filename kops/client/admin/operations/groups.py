"""Groups: list, describe, delete, remove members.

Source: Kafka's KafkaAdminClient (listGroups, removeMembersFromConsumerGroup), DescribeConsumerGroupsHandler, DescribeClassicGroupsHandler,
DescribeShareGroupsHandler, DescribeStreamsGroupsHandler, DeleteGroupsHandler, RemoveMembersFromConsumerGroupHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.admin.core.asking import always, ask_all, call, deadline_ms
from kops.client.admin.core.coordinated import Coordinated, ask_group, ask_groups
from kops.client.admin.core.keyed import Outcome, keyed
from kops.client.admin.core.lookups import KeyType, find_brokers
from kops.client.admin.core.results import Results, error_of, missing
from kops.client.admin.core.values import as_names, authorized_operations
from kops.client.admin.operations.group_values import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    Endpoint,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
    StreamsGroupDescription,
    StreamsGroupMemberAssignment,
    StreamsGroupMemberDescription,
    StreamsGroupSubtopologyDescription,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from kops.client.errors import KafkaError, error_named
from kops.client.groups.consumer_protocol import read_assignment
from kops.client.node import Node
from kops.errors import ApiError, UsageError
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kops.protocol.messages.leave_group_request import MemberIdentity
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message
    from kops.protocol.messages import (
        consumer_group_describe_response,
        describe_groups_response,
        share_group_describe_response,
        streams_group_describe_response,
    )

_CONSUMER: Final = "consumer"
_LONGEST_REASON: Final = 255  # characters
_REASON: Final = "member was removed by an admin"
_LATER: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")


class GroupListings(NamedTuple):
    """The groups that brokers listed, and the errors of the brokers that did not answer."""

    groups: list[GroupListing]
    errors: dict[int, KafkaError]

    def all(self) -> list[GroupListing]:
        """The groups. Raises the first error if there is one."""
        for error in self.errors.values():
            raise error
        return self.groups


def list_groups(
    client: Client,
    *,
    group_states: Iterable[GroupState | str] = (),
    types: Iterable[GroupType | str] = (),
    protocol_types: Iterable[str] = (),
    timeout: float | None = None,
) -> Steps[GroupListings]:
    """Return the groups of all brokers by id: those of these states, types and protocol types (`consumer`, `connect` …), or all."""
    protocols = set(protocol_types)
    deadline = deadline_ms(client, timeout)
    brokers = yield from find_brokers(client, "list groups", deadline)
    request = ListGroupsRequest(states_filter=[str(one) for one in group_states], types_filter=[str(one) for one in types])

    def handle(response: Message) -> ListGroupsResponse:
        assert isinstance(response, ListGroupsResponse)
        error = by_code(response.error_code)
        if error.name in _LATER:
            raise ApiError(error.name, error.words)
        return response

    calls = {broker: call(client, "list groups", broker, always(request), handle, deadline) for broker in brokers}
    answers = yield from ask_all(calls)
    errors: dict[int, KafkaError] = {}
    groups: dict[str, GroupListing] = {}
    for broker, answer in answers.items():
        error = answer if isinstance(answer, KafkaError) else error_of(answer.error_code)
        if error is not None:
            errors[broker] = error_named(error.name, f"list groups of broker {broker}: {error}")
        if isinstance(answer, KafkaError):
            continue
        for one in answer.groups:
            if not protocols or one.protocol_type in protocols:
                kind = GroupType(one.group_type) if one.group_type else None
                state = GroupState(one.group_state) if one.group_state else None
                groups[one.group_id] = GroupListing(one.group_id, kind, one.protocol_type, state)
    return GroupListings([groups[group_id] for group_id in sorted(groups)], errors)


# descriptions


class _ConsumerGroups(Coordinated[ConsumerGroupDescription]):
    """Asks for groups of KIP-848 first, and for classic ones where there is none."""

    def __init__(self, client: Client, with_operations: bool) -> None:
        super().__init__(client, "describe consumer groups", KeyType.GROUP, self._request, self._answer)
        self._with_operations = with_operations
        self._classic: dict[str, str] = {}  # the groups to be asked for as classic ones, with the reason

    def build(self, keys: list[str]) -> tuple[list[str], Callable[[int], Message]]:
        fresh = [key for key in keys if key not in self._classic]
        return super().build(fresh or keys)

    def _request(self, keys: list[str]) -> Message:
        if keys[0] in self._classic:
            return DescribeGroupsRequest(groups=keys, include_authorized_operations=self._with_operations)
        return ConsumerGroupDescribeRequest(group_ids=keys, include_authorized_operations=self._with_operations)

    def _answer(self, node: Node, response: Message) -> Iterator[tuple[str, ConsumerGroupDescription | KafkaError]]:
        if isinstance(response, ConsumerGroupDescribeResponse):
            for one in response.groups:
                error = error_of(one.error_code, one.error_message)
                if error is not None and error.name in ("GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"):
                    self._classic[one.group_id] = one.error_message or ""
                else:
                    yield one.group_id, error or _consumer_group(one, node)
            return
        assert isinstance(response, DescribeGroupsResponse)
        for group in response.groups:
            error = error_of(group.error_code, group.error_message or self._classic.get(group.group_id))
            yield group.group_id, error or _consumers_of_classic(group, node)

    def unsupported(self, keys: list[str], error: KafkaError) -> dict[str, KafkaError]:
        failed = {key: error for key in keys if key in self._classic}
        self._classic |= dict.fromkeys(keys, "")
        return failed

    def handle(self, broker: int, keys: list[str], response: Message) -> Outcome[str, ConsumerGroupDescription]:
        return super().handle(broker, keys, response)


def describe_consumer_groups(
    client: Client, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[Results[str, ConsumerGroupDescription]]:
    """Describe groups of consumers, of both protocols."""
    handler = _ConsumerGroups(client, include_authorized_operations)
    return (yield from keyed(client, handler, as_names(group_ids), deadline_ms(client, timeout)))


def _consumer_group(one: consumer_group_describe_response.DescribedGroup, node: Node) -> ConsumerGroupDescription:
    def partitions(assignment: consumer_group_describe_response.Assignment) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(topic.topic_name, part) for topic in assignment.topic_partitions for part in topic.partitions)

    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            partitions(member.assignment),
            partitions(member.target_assignment),
            member.member_epoch,
            None if member.member_type == -1 else member.member_type == 1,
        )
        for member in one.members
    )
    return ConsumerGroupDescription(
        one.group_id,
        False,
        members,
        one.assignor_name,
        GroupType.CONSUMER,
        GroupState(one.group_state),
        node,
        authorized_operations(one.authorized_operations),
        one.group_epoch,
        one.assignment_epoch,
    )


def _consumers_of_classic(one: describe_groups_response.DescribedGroup, node: Node) -> ConsumerGroupDescription | KafkaError:
    if one.protocol_type not in ("", _CONSUMER):
        return error_named("INCONSISTENT_GROUP_PROTOCOL", f"{one.group_id} is not a group of consumers ({one.protocol_type})")
    return ConsumerGroupDescription(
        one.group_id,
        not one.protocol_type,
        _classic_members(one),
        one.protocol_data,
        GroupType.CLASSIC,
        GroupState(one.group_state),
        node,
        authorized_operations(one.authorized_operations),
    )


def _classic_members(one: describe_groups_response.DescribedGroup) -> tuple[MemberDescription, ...]:
    is_consumer = one.protocol_type in ("", _CONSUMER)
    return tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            None,
            member.client_id,
            member.client_host,
            frozenset(read_assignment(member.member_assignment) if is_consumer and member.member_assignment else ()),
        )
        for member in one.members
    )


def describe_classic_groups(
    client: Client, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[Results[str, ClassicGroupDescription]]:
    """Describe classic groups, also those of Connect and of other programs."""

    def make(keys: list[str]) -> Message:
        return DescribeGroupsRequest(groups=keys, include_authorized_operations=include_authorized_operations)

    def read(node: Node, response: Message) -> Iterator[tuple[str, ClassicGroupDescription | KafkaError]]:
        assert isinstance(response, DescribeGroupsResponse)
        for one in response.groups:
            yield (
                one.group_id,
                error_of(one.error_code)
                or ClassicGroupDescription(
                    one.group_id,
                    one.protocol_type,
                    one.protocol_data,
                    _classic_members(one),
                    GroupState(one.group_state),
                    node,
                    authorized_operations(one.authorized_operations),
                ),
            )

    return (yield from ask_groups(client, "describe classic groups", group_ids, make, read, deadline_ms(client, timeout)))


def describe_share_groups(
    client: Client, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[Results[str, ShareGroupDescription]]:
    """Describe share groups."""

    def make(keys: list[str]) -> Message:
        return ShareGroupDescribeRequest(group_ids=keys, include_authorized_operations=include_authorized_operations)

    def read(node: Node, response: Message) -> Iterator[tuple[str, ShareGroupDescription | KafkaError]]:
        assert isinstance(response, ShareGroupDescribeResponse)
        for one in response.groups:
            yield one.group_id, error_of(one.error_code, one.error_message) or _share_group(one, node)

    return (yield from ask_groups(client, "describe share groups", group_ids, make, read, deadline_ms(client, timeout)))


def _share_group(one: share_group_describe_response.DescribedGroup, node: Node) -> ShareGroupDescription:
    members = tuple(
        ShareMemberDescription(
            member.member_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            frozenset(TopicPartition(topic.topic_name, part) for topic in member.assignment.topic_partitions for part in topic.partitions),
            member.member_epoch,
        )
        for member in one.members
    )
    operations = authorized_operations(one.authorized_operations)
    return ShareGroupDescription(
        one.group_id, members, GroupState(one.group_state), node, one.group_epoch, one.assignment_epoch, operations
    )


def describe_streams_groups(
    client: Client, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[Results[str, StreamsGroupDescription]]:
    """Describe streams groups."""

    def make(keys: list[str]) -> Message:
        return StreamsGroupDescribeRequest(group_ids=keys, include_authorized_operations=include_authorized_operations)

    def read(node: Node, response: Message) -> Iterator[tuple[str, StreamsGroupDescription | KafkaError]]:
        assert isinstance(response, StreamsGroupDescribeResponse)
        for one in response.groups:
            yield one.group_id, error_of(one.error_code, one.error_message) or _streams_group(one, node)

    return (yield from ask_groups(client, "describe streams groups", group_ids, make, read, deadline_ms(client, timeout)))


def _streams_group(one: streams_group_describe_response.DescribedGroup, node: Node) -> StreamsGroupDescription | KafkaError:
    if one.topology is None:
        return missing("describe streams groups", f"the topology of {one.group_id}")
    parts = tuple(
        StreamsGroupSubtopologyDescription(
            part.subtopology_id,
            tuple(part.source_topics),
            tuple(part.repartition_sink_topics),
            _topic_infos(part.state_changelog_topics),
            _topic_infos(part.repartition_source_topics),
        )
        for part in one.topology.subtopologies or ()
    )
    return StreamsGroupDescription(
        one.group_id,
        one.group_epoch,
        one.assignment_epoch,
        one.topology.epoch,
        parts,
        tuple(map(_streams_member, one.members)),
        GroupState(one.group_state),
        node,
        authorized_operations(one.authorized_operations),
    )


def _topic_infos(infos: Iterable[streams_group_describe_response.TopicInfo]) -> dict[str, TopicInfo]:
    return {
        info.name: TopicInfo(info.partitions, info.replication_factor, {one.key: one.value for one in info.topic_configs}) for info in infos
    }


def _streams_member(member: streams_group_describe_response.Member) -> StreamsGroupMemberDescription:
    endpoint = member.user_endpoint
    return StreamsGroupMemberDescription(
        member.member_id,
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        {one.key: one.value for one in member.client_tags},
        tuple(TaskOffset(one.subtopology_id, one.partition, one.offset) for one in member.task_offsets),
        tuple(TaskOffset(one.subtopology_id, one.partition, one.offset) for one in member.task_end_offsets),
        _tasks(member.assignment),
        _tasks(member.target_assignment),
        member.is_classic,
    )


def _tasks(assignment: streams_group_describe_response.Assignment) -> StreamsGroupMemberAssignment:
    def ids(tasks: Iterable[streams_group_describe_response.TaskIds]) -> tuple[TaskIds, ...]:
        return tuple(TaskIds(one.subtopology_id, tuple(one.partitions)) for one in tasks)

    return StreamsGroupMemberAssignment(ids(assignment.active_tasks), ids(assignment.standby_tasks), ids(assignment.warmup_tasks))


# changes


def _delete_groups(client: Client, name: str, group_ids: Iterable[str], timeout: float | None) -> Steps[Results[str, None]]:
    def read(_: Node, response: Message) -> Iterator[tuple[str, KafkaError | None]]:
        assert isinstance(response, DeleteGroupsResponse)
        return ((one.group_id, error_of(one.error_code)) for one in response.results)

    return ask_groups(client, name, group_ids, lambda keys: DeleteGroupsRequest(groups_names=keys), read, deadline_ms(client, timeout))


def delete_consumer_groups(client: Client, group_ids: Iterable[str], *, timeout: float | None = None) -> Steps[Results[str, None]]:
    """Delete groups of consumers without members, with their offsets."""
    return (yield from _delete_groups(client, "delete consumer groups", group_ids, timeout))


def delete_share_groups(client: Client, group_ids: Iterable[str], *, timeout: float | None = None) -> Steps[Results[str, None]]:
    """Delete share groups without members, with their state."""
    return (yield from _delete_groups(client, "delete share groups", group_ids, timeout))


def delete_streams_groups(client: Client, group_ids: Iterable[str], *, timeout: float | None = None) -> Steps[Results[str, None]]:
    """Delete streams groups without members, with their offsets."""
    return (yield from _delete_groups(client, "delete streams groups", group_ids, timeout))


def remove_members_from_consumer_group(
    client: Client,
    group_id: str,
    members: Iterable[str] | None = None,
    *,
    reason: str | None = None,
    timeout: float | None = None,
) -> Steps[Results[str, None]]:
    """Remove static members by `group.instance.id`, or all members (None). The outcomes are by instance id, or by member id without one."""
    wanted = None if members is None else as_names(members)
    if wanted is not None and not wanted:
        raise UsageError("members: empty; allowed: at least one group.instance.id, or None for all members")
    deadline = deadline_ms(client, timeout)
    why = (reason or _REASON)[:_LONGEST_REASON]
    if wanted is None:
        found = yield from keyed(client, _ConsumerGroups(client, False), [group_id], deadline)
        identities = [
            MemberIdentity(group_instance_id=one.group_instance_id, reason=why)
            if one.group_instance_id is not None
            else MemberIdentity(member_id=one.member_id, reason=why)
            for one in found[group_id].members
        ]
    else:
        identities = [MemberIdentity(group_instance_id=one, reason=why) for one in wanted]
    if not identities:
        return Results({})

    def read(response: Message) -> dict[str, KafkaError | None] | KafkaError:
        assert isinstance(response, LeaveGroupResponse)
        error = error_of(response.error_code)
        if error is not None:
            return error
        return {one.group_instance_id or one.member_id: error_of(one.error_code) for one in response.members}

    request = LeaveGroupRequest(group_id=group_id, members=identities)
    outcomes = yield from ask_group(client, "remove members", group_id, request, read, deadline, versions=range(3, 6))
    keys = wanted if wanted is not None else list(outcomes)
    return Results({key: outcomes[key] if key in outcomes else missing("remove members", key) for key in keys})
