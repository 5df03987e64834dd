"""Share groups and the offsets from which they read. Source: Kafka's DescribeShareGroupsHandler, ListShareGroupOffsetsHandler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kops.client.admin.core.operation import execute
from kops.client.admin.operations.group_offsets import list_share_group_offsets
from kops.client.client import Client, error_of
from kops.client.coordinators.finding import KeyType, by_coordinator
from kops.client.coordinators.group_offsets import CommittedOffset, GroupOffsets
from kops.client.coordinators.groups import GroupDescription, GroupMember
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.protocol.declaration import Message
    from kops.protocol.messages.share_group_describe_response import DescribedGroup, Member

SHARE: Final = "Share"


def describe_share_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Describe share groups."""
    from kops.protocol.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse

    def described(one: DescribedGroup, node: Node) -> GroupDescription:
        about = (one.group_id, SHARE, one.group_state, "share", one.assignor_name)
        return GroupDescription(*about, node, [_member(member) for member in one.members], one.group_epoch, one.assignment_epoch)

    def handle(node: Node, response: Message) -> dict[str, GroupDescription | ApiError]:
        assert isinstance(response, ShareGroupDescribeResponse)
        return {one.group_id: error_of(one.error_code, one.error_message) or described(one, node) for one in response.groups}

    return by_coordinator(
        client, "describe share groups", KeyType.GROUP, group_ids, lambda keys: ShareGroupDescribeRequest(group_ids=keys), handle
    )


def _member(one: Member) -> GroupMember:
    keys = sorted(TopicPartition(part.topic_name, number) for part in one.assignment.topic_partitions for number in part.partitions)
    return GroupMember(one.member_id, None, one.client_id, one.client_host, keys, None, one.member_epoch, one.rack_id)


def fetch_share_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, GroupOffsets | ApiError]:
    """Return the start offsets of each share group, with the lag computed by the broker. Partitions without a start offset are left out."""
    found = execute(client, list_share_group_offsets(client, dict.fromkeys(group_ids))).outcomes()
    return {
        group_id: offsets
        if isinstance(offsets, ApiError)
        else {key: CommittedOffset(one.start_offset, one.leader_epoch, lag=one.lag) for key, one in offsets.items() if one is not None}
        for group_id, offsets in found.items()
    }
