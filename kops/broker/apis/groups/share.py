"""The APIs of share groups that concern members and offsets (Kafka's KafkaApis; KIP-932).

Source: handleShareGroupHeartbeat, handleShareGroupDescribe, handleDescribeShareGroupOffsetsRequest, handleAlterShareGroupOffsetsRequest,
handleDeleteShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse.Builder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.cluster.operations import GROUP_OPERATIONS
from kops.broker.apis.groups.common import group_context, respond_later, respond_with
from kops.errors import ApiError, KopsError
from kops.protocol import messages
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.coordinators.runtime.promise import Promise
    from kops.protocol.declaration import Message
    from kops.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from kops.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponseTopic
    from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from kops.protocol.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from kops.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponseGroup
    from kops.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
    from kops.protocol.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
    from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

_FEATURE: Final = "share.version"
_LONGEST_MEMBER_ID: Final = 36
_UNKNOWN_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"


def has_share_groups(parts: BrokerParts) -> bool:
    """Whether the cluster's `share.version` supports share groups."""
    return parts.cache.image.features.levels.get(_FEATURE, 0) >= 1


def _check_is_served(parts: BrokerParts) -> None:
    """Raise ApiError UNSUPPORTED_VERSION in a cluster without share groups."""
    if not has_share_groups(parts):
        raise ApiError("UNSUPPORTED_VERSION")


def is_member_id(member_id: str | None) -> bool:
    """Whether the id is valid for a member of a share group: at most as long as the text of a UUID."""
    return bool(member_id) and len(str(member_id).encode("utf-16-le", "surrogatepass")) // 2 <= _LONGEST_MEMBER_ID


def handle_share_group_heartbeat(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the member's change is written. Raises ApiError UNSUPPORTED_VERSION, INVALID_REQUEST."""
    _check_is_served(parts)
    request = cast("ShareGroupHeartbeatRequest", context.request.message)
    if request.member_epoch <= 0:
        context.hurry_heartbeats()
    if not is_member_id(request.member_id):
        raise ApiError("INVALID_REQUEST", "Invalid member id in the request.")
    respond_with(context, parts.groups.service.share.heartbeat(group_context(context), request))


def handle_share_group_describe(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the share groups of these ids. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("ShareGroupDescribeRequest", context.request.message)

    def answer(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return messages.ShareGroupDescribeResponse(groups=groups)

    respond_later(context, parts.groups.service.share.describe(request.group_ids), answer)


def handle_describe_share_group_offsets(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with start offsets and lag of share groups. Each group has its own error."""
    request = cast("DescribeShareGroupOffsetsRequest", context.request.message)
    from kops.coordinators.runtime.promise import all_of

    found = [_described(parts, group) for group in request.groups]
    respond_later(
        context,
        all_of(found),
        lambda _: messages.DescribeShareGroupOffsetsResponse(groups=[promise.result() for promise in found]),
    )


def _described(parts: BrokerParts, group: DescribeShareGroupOffsetsRequestGroup) -> Promise[DescribeShareGroupOffsetsResponseGroup]:
    """Return the offsets of one group, or its error. The promise does not fail."""
    from kops.coordinators.runtime.promise import Promise
    from kops.coordinators.share.responses import message_of
    from kops.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponseGroup as Group

    if not has_share_groups(parts):
        return Promise.of(Group(group.group_id, error_code=by_name("UNSUPPORTED_VERSION").code))
    if group.topics is not None and not group.topics:
        return Promise.of(Group(group.group_id))

    def failed(error: KopsError) -> DescribeShareGroupOffsetsResponseGroup:
        name = error.name if isinstance(error, ApiError) else "UNKNOWN_SERVER_ERROR"
        return Group(group.group_id, error_code=by_name(name).code, error_message=message_of(name))

    try:
        share = parts.groups.service.share
        asked = share.describe_all_offsets(group.group_id) if group.topics is None else share.describe_offsets(group)
    except ApiError as error:
        return Promise.of(failed(error))
    return asked.or_else(failed)


def handle_alter_share_group_offsets(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the share coordinator has the offsets. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    from kops.coordinators.share.responses import message_of
    from kops.protocol.messages.alter_share_group_offsets_response import (
        AlterShareGroupOffsetsResponsePartition,
        AlterShareGroupOffsetsResponseTopic,
    )

    request = cast("AlterShareGroupOffsetsRequest", context.request.message)
    error = by_name(_UNKNOWN_TOPIC).code, message_of(_UNKNOWN_TOPIC)
    unknown = [topic for topic in request.topics if parts.cache.partition_count(topic.topic_name) is None]
    known = [topic for topic in request.topics if topic not in unknown]
    told: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    for topic in unknown:
        for one in topic.partitions:
            merged = told.setdefault(topic.topic_name, AlterShareGroupOffsetsResponseTopic(topic.topic_name))
            merged.partitions.append(AlterShareGroupOffsetsResponsePartition(one.partition_index, *error))

    def answer(response: messages.AlterShareGroupOffsetsResponse) -> Message:
        if response.error_code:
            return messages.AlterShareGroupOffsetsResponse(error_code=response.error_code, error_message=response.error_message)
        for topic in response.responses:
            topic_id = parts.cache.topic_id(topic.topic_name)
            merged = told.setdefault(topic.topic_name, AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id))
            merged.partitions += topic.partitions
        return messages.AlterShareGroupOffsetsResponse(responses=list(told.values()))

    asked = messages.AlterShareGroupOffsetsRequest(request.group_id, known)
    respond_later(context, parts.groups.service.share.alter_offsets(request.group_id, asked), answer)


def handle_delete_share_group_offsets(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the share coordinator has deleted the offsets. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("DeleteShareGroupOffsetsRequest", context.request.message)

    def answer(response: messages.DeleteShareGroupOffsetsResponse) -> Message:
        if response.error_code:
            return messages.DeleteShareGroupOffsetsResponse(error_code=response.error_code, error_message=response.error_message)
        return response

    respond_later(context, parts.groups.service.share.delete_offsets(request), answer)
