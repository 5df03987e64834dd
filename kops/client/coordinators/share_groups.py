"""Share groups and the offsets from which they read. Source: Kafka's DescribeShareGroupsHandler, ListShareGroupOffsetsHandler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kops.client.client import Client
from kops.client.coordinators.finding import KeyType, by_coordinator
from kops.client.coordinators.group_offsets import CommittedOffset, GroupOffsets
from kops.client.coordinators.groups import GroupDescription, GroupMember
from kops.client.topics import error_of
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
    from kops.protocol.messages import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
    from kops.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup

    def handle(_: Node, response: Message) -> dict[str, GroupOffsets | ApiError]:
        assert isinstance(response, DescribeShareGroupOffsetsResponse)
        return {
            group.group_id: error_of(group.error_code, group.error_message)
            or {
                TopicPartition(topic.topic_name, one.partition_index): CommittedOffset(
                    one.start_offset, one.leader_epoch if one.leader_epoch >= 0 else None, lag=one.lag if one.lag >= 0 else None
                )
                for topic in group.topics
                for one in topic.partitions
                if not one.error_code and one.start_offset >= 0
            }
            for group in response.groups
        }

    def make(keys: list[str]) -> Message:
        return DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=key, topics=None) for key in keys])

    return by_coordinator(client, "describe share group offsets", KeyType.GROUP, group_ids, make, handle)
