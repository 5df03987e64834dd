"""ListGroups, DescribeGroups and DeleteGroups (Kafka's KafkaApis)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.cluster.operations import GROUP_OPERATIONS
from kops.broker.apis.groups.common import group_context, respond_later, respond_with
from kops.protocol import messages

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.delete_groups_request import DeleteGroupsRequest
    from kops.protocol.messages.describe_groups_request import DescribeGroupsRequest
    from kops.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
    from kops.protocol.messages.list_groups_request import ListGroupsRequest

_OPERATIONS_SINCE: Final = 3


def handle_list_groups(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the groups that this broker coordinates."""
    request = cast("ListGroupsRequest", context.request.message)
    respond_with(context, parts.groups.service.list_groups(request))


def handle_describe_groups(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the classic groups of these ids."""
    request = cast("DescribeGroupsRequest", context.request.message)

    def answer(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if context.request.version >= _OPERATIONS_SINCE and request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return messages.DescribeGroupsResponse(groups=groups)

    respond_later(context, parts.groups.service.describe_groups(group_context(context), request.groups), answer)


def handle_delete_groups(parts: BrokerParts, context: RequestContext) -> None:
    """Delete the groups, and answer when the deletion is written."""
    request = cast("DeleteGroupsRequest", context.request.message)
    group_ids = list(dict.fromkeys(request.groups_names))
    respond_later(
        context,
        parts.groups.service.delete_groups(group_context(context), group_ids),
        lambda results: messages.DeleteGroupsResponse(results=results),
    )
