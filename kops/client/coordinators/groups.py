"""Groups: list, describe, delete.

Source: Kafka's KafkaAdminClient.listGroups, DescribeConsumerGroupsHandler (which tries ConsumerGroupDescribe first and then DescribeGroups
for groups of other kinds), DeleteConsumerGroupsHandler, ConsumerGroupCommand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.client.admin.core.operation import execute
from kops.client.admin.operations.groups import delete_consumer_groups
from kops.client.client import Client, check, error_of
from kops.client.coordinators.finding import KeyType, by_all_brokers, by_coordinator
from kops.client.node import Node
from kops.errors import ApiError, DecodeError, KopsError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages import consumer_group_describe_response, describe_groups_response

CONSUMER_PROTOCOL: Final = "consumer"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. State and type are empty if the broker is too old to report them."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member with its partitions. Only consumer groups have epoch, target and `is_upgraded` (whether it uses the consumer protocol)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None = None
    epoch: int | None = None
    rack: str | None = None
    is_upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `type` is `Classic`, `Consumer`, `Share` or `Streams`. Classic groups have no epochs."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node | None
    members: list[GroupMember] = field(default_factory=list)
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_inactive(self) -> bool:
        """Whether a tool may set offsets, because the group has no members."""
        return self.state in (EMPTY, DEAD)


def list_groups(
    client: Client, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> tuple[list[GroupListing], dict[int, KopsError]]:
    """Return (the groups of all brokers by id, errors of brokers). Names of states and types may be in upper or lower case."""
    from kops.protocol.messages import ListGroupsRequest, ListGroupsResponse

    def handle(response: Message) -> list[tuple[str, str, str, str]]:
        assert isinstance(response, ListGroupsResponse)
        check(response.error_code)
        return [(one.group_id, one.group_type, one.protocol_type, one.group_state) for one in response.groups]

    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answers, errors = by_all_brokers(client, "list groups", request, handle)
    # While a coordinator moves, two brokers may report a group. The first one counts.
    found: dict[str, GroupListing] = {}
    for node_id, groups in answers.items():
        for group_id, kind, protocol_type, state in groups:
            found.setdefault(group_id, GroupListing(group_id, kind.capitalize(), protocol_type, state, node_id))
    return [found[group_id] for group_id in sorted(found)], errors


def consumer_group_ids(client: Client) -> list[str]:
    """Return the ids of groups of consumers, and of groups with offsets only. Raises the error of a broker without an answer."""
    found, errors = list_groups(client)
    for error in errors.values():
        raise error
    return [one.group_id for one in found if one.type in ("", "Classic", "Consumer") and one.protocol_type in ("", CONSUMER_PROTOCOL)]


def describe_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Describe consumer groups of both protocols, and other classic groups. An id without a group gives GROUP_ID_NOT_FOUND."""
    wanted = list(dict.fromkeys(group_ids))
    found = _describe_consumer_groups(client, wanted)
    others = [key for key, one in found.items() if isinstance(one, ApiError) and one.name in ("GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION")]
    if others:
        found |= _describe_classic_groups(client, others)
    return {group_id: found[group_id] for group_id in wanted}


def _describe_consumer_groups(client: Client, group_ids: list[str]) -> dict[str, GroupDescription | ApiError]:
    from kops.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

    def handle(node: Node, response: Message) -> dict[str, GroupDescription | ApiError]:
        assert isinstance(response, ConsumerGroupDescribeResponse)
        return {one.group_id: error_of(one.error_code, one.error_message) or _consumer_group(one, node) for one in response.groups}

    return by_coordinator(
        client, "describe consumer groups", KeyType.GROUP, group_ids, lambda keys: ConsumerGroupDescribeRequest(group_ids=keys), handle
    )


def _describe_classic_groups(client: Client, group_ids: list[str]) -> dict[str, GroupDescription | ApiError]:
    from kops.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

    def handle(node: Node, response: Message) -> dict[str, GroupDescription | ApiError]:
        assert isinstance(response, DescribeGroupsResponse)
        return {one.group_id: error_of(one.error_code, one.error_message) or _classic_group(one, node) for one in response.groups}

    return by_coordinator(client, "describe groups", KeyType.GROUP, group_ids, lambda keys: DescribeGroupsRequest(groups=keys), handle)


def _consumer_group(one: consumer_group_describe_response.DescribedGroup, node: Node | None) -> GroupDescription:
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
            member.rack_id,
            None if member.member_type == -1 else member.member_type == 1,
        )
        for member in one.members
    ]
    about = (one.group_id, "Consumer", one.group_state, CONSUMER_PROTOCOL, one.assignor_name)
    return GroupDescription(*about, node, members, one.group_epoch, one.assignment_epoch)


def _partitions(assignment: consumer_group_describe_response.Assignment) -> list[TopicPartition]:
    return sorted(TopicPartition(one.topic_name, number) for one in assignment.topic_partitions for number in one.partitions)


def _classic_group(one: describe_groups_response.DescribedGroup, node: Node | None) -> GroupDescription | ApiError:
    if one.group_state == DEAD:
        # Brokers before 4.0 describe a missing group in this way.
        return ApiError("GROUP_ID_NOT_FOUND", f"Group {one.group_id} not found.")
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _classic_assignment(one.protocol_type, member.member_assignment),
        )
        for member in one.members
    ]
    return GroupDescription(one.group_id, "Classic", one.group_state, one.protocol_type, one.protocol_data, node, members)


def _classic_assignment(protocol_type: str, data: bytes) -> list[TopicPartition]:
    """Return the partitions of a consumer. Groups that are not of consumers have formats of their own."""
    from kops.protocol.messages import ConsumerProtocolAssignment
    from kops.protocol.record_values import read_versioned

    if not data or protocol_type != CONSUMER_PROTOCOL:
        return []
    try:
        message, _ = read_versioned(ConsumerProtocolAssignment, data)
    except DecodeError:
        return []
    assert isinstance(message, ConsumerProtocolAssignment)
    return sorted(TopicPartition(one.topic, number) for one in message.assigned_partitions for number in one.partitions)


def delete_groups(client: Client, group_ids: Iterable[str]) -> dict[str, ApiError | None]:
    """Delete groups without members, with their offsets."""
    return dict(execute(client, delete_consumer_groups(client, group_ids)).outcomes())
