"""Builds the response to a request of groups that failed as a whole (the `getErrorResponse` methods of Kafka's requests)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kops.metadata.controller.base.result import code
from kops.protocol import messages
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.errors import ApiError
    from kops.protocol.declaration import Message

_NULL_PROTOCOL_SINCE: Final = 7
_TOP_LEVEL_ERROR_SINCE: Final = 2
_GROUPS_SINCE: Final = 8


def _join_group(_request: messages.JoinGroupRequest, version: int, error: ApiError) -> Message:
    return messages.JoinGroupResponse(error_code=code(error), protocol_name=None if version >= _NULL_PROTOCOL_SINCE else "")


def _offset_commit(request: messages.OffsetCommitRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic

    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[OffsetCommitResponsePartition(one.partition_index, code(error)) for one in topic.partitions],
        )
        for topic in request.topics
    ]
    return messages.OffsetCommitResponse(topics=topics)


def _offset_fetch(request: messages.OffsetFetchRequest, version: int, error: ApiError) -> Message:
    from kops.protocol.messages import offset_fetch_response as module

    if version >= _GROUPS_SINCE:
        groups = [module.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code(error)) for group in request.groups]
        return messages.OffsetFetchResponse(groups=groups)
    if version >= _TOP_LEVEL_ERROR_SINCE:
        return messages.OffsetFetchResponse(error_code=code(error))
    topics = [
        module.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                module.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code(error))
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return messages.OffsetFetchResponse(topics=topics)


def _txn_offset_commit(request: messages.TxnOffsetCommitRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic

    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, code(error)) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.TxnOffsetCommitResponse(topics=topics)


def _describe_groups(request: messages.DescribeGroupsRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.describe_groups_response import DescribedGroup

    return messages.DescribeGroupsResponse(groups=[DescribedGroup(group_id=each, error_code=code(error)) for each in request.groups])


def _delete_groups(request: messages.DeleteGroupsRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.delete_groups_response import DeletableGroupResult

    return messages.DeleteGroupsResponse(results=[DeletableGroupResult(each, code(error)) for each in request.groups_names])


def _consumer_group_describe(request: messages.ConsumerGroupDescribeRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.consumer_group_describe_response import DescribedGroup

    groups = [DescribedGroup(group_id=each, error_code=code(error)) for each in request.group_ids]
    return messages.ConsumerGroupDescribeResponse(groups=groups)


def _share_group_describe(request: messages.ShareGroupDescribeRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.share_group_describe_response import DescribedGroup

    groups = [DescribedGroup(group_id=each, error_code=code(error)) for each in request.group_ids]
    return messages.ShareGroupDescribeResponse(groups=groups)


def _describe_share_offsets(request: messages.DescribeShareGroupOffsetsRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponseGroup as Group

    text = error.message or by_name(error.name).words
    groups = [Group(group_id=group.group_id, error_code=code(error), error_message=text) for group in request.groups]
    return messages.DescribeShareGroupOffsetsResponse(groups=groups)


def _code_and_message(name: str) -> Callable[[Any, int, ApiError], Message]:
    """Use the meaning of the error, not its own text."""

    def made(_request: Message, _version: int, error: ApiError) -> Message:
        response: Message = getattr(messages, name)(error_code=code(error), error_message=by_name(error.name).words)
        return response

    return made


def _share_state(name: str, *, has_message: bool) -> Callable[[Any, int, ApiError], Message]:
    """An error for every partition."""

    def made(request: Any, _version: int, error: ApiError) -> Message:
        from kops.coordinators.share import responses

        api: Any = getattr(responses, name)
        told = (code(error), by_name(error.name).words) if has_message else (code(error),)
        topics = [
            api.topic_result(topic.topic_id, [api.partition_result(each.partition, *told) for each in topic.partitions])
            for topic in request.topics
        ]
        response: Message = api.response(topics)
        return response

    return made


def _streams_group_describe(request: messages.StreamsGroupDescribeRequest, _version: int, error: ApiError) -> Message:
    from kops.protocol.messages.streams_group_describe_response import DescribedGroup

    groups = [DescribedGroup(group_id=each, error_code=code(error)) for each in request.group_ids]
    return messages.StreamsGroupDescribeResponse(groups=groups)


def _code_only(name: str) -> Callable[[Any, int, ApiError], Message]:
    def made(_request: Message, _version: int, error: ApiError) -> Message:
        response: Message = getattr(messages, name)(error_code=code(error))
        return response

    return made


GROUP_ANSWERS: Final[dict[str, Callable[[Any, int, ApiError], Message | None]]] = {
    "AlterShareGroupOffsetsRequest": _code_and_message("AlterShareGroupOffsetsResponse"),
    "ConsumerGroupDescribeRequest": _consumer_group_describe,
    "ConsumerGroupHeartbeatRequest": _code_only("ConsumerGroupHeartbeatResponse"),
    "DeleteGroupsRequest": _delete_groups,
    "DeleteShareGroupOffsetsRequest": _code_and_message("DeleteShareGroupOffsetsResponse"),
    "DeleteShareGroupStateRequest": _share_state("DELETE", has_message=False),
    "DescribeGroupsRequest": _describe_groups,
    "DescribeShareGroupOffsetsRequest": _describe_share_offsets,
    "HeartbeatRequest": _code_only("HeartbeatResponse"),
    "InitializeShareGroupStateRequest": _share_state("INITIALIZE", has_message=False),
    "JoinGroupRequest": _join_group,
    "LeaveGroupRequest": _code_only("LeaveGroupResponse"),
    "ListGroupsRequest": _code_only("ListGroupsResponse"),
    "OffsetCommitRequest": _offset_commit,
    "OffsetDeleteRequest": _code_only("OffsetDeleteResponse"),
    "OffsetFetchRequest": _offset_fetch,
    "ReadShareGroupStateRequest": _share_state("READ", has_message=True),
    "ReadShareGroupStateSummaryRequest": _share_state("SUMMARY", has_message=True),
    "ShareAcknowledgeRequest": _code_only("ShareAcknowledgeResponse"),
    "ShareFetchRequest": _code_only("ShareFetchResponse"),
    "ShareGroupDescribeRequest": _share_group_describe,
    "ShareGroupHeartbeatRequest": _code_only("ShareGroupHeartbeatResponse"),
    "StreamsGroupDescribeRequest": _streams_group_describe,
    "StreamsGroupHeartbeatRequest": _code_only("StreamsGroupHeartbeatResponse"),
    "SyncGroupRequest": _code_only("SyncGroupResponse"),
    "TxnOffsetCommitRequest": _txn_offset_commit,
    "WriteShareGroupStateRequest": _share_state("WRITE", has_message=True),
}
"""By the name of the request."""
