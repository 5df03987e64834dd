"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (Kafka's KafkaApis; KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.cluster.operations import GROUP_OPERATIONS
from kops.broker.apis.groups.common import group_context, respond_later, respond_with
from kops.errors import ApiError
from kops.protocol import messages

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from kops.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
    from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

_PROTOCOL: Final = "consumer"
_FEATURE: Final = "group.version"


def _check_is_served(parts: BrokerParts) -> None:
    """Raise ApiError UNSUPPORTED_VERSION if the broker's settings or the cluster's `group.version` exclude the protocol."""
    is_set = _PROTOCOL in parts.config["group.coordinator.rebalance.protocols"]
    if not is_set or parts.cache.image.features.levels.get(_FEATURE, 0) < 1:
        raise ApiError("UNSUPPORTED_VERSION")


def handle_consumer_group_heartbeat(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the member's change is written. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("ConsumerGroupHeartbeatRequest", context.request.message)
    if request.member_epoch <= 0 or request.topic_partitions is not None:
        context.hurry_heartbeats()
    service, group = parts.groups.service, group_context(context)
    kept = service.kept_consumer_group_heartbeat(group, request)
    if kept is None:
        respond_with(context, service.consumer_group_heartbeat(group, request))
    else:
        context.respond(kept)


def handle_consumer_group_describe(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the consumer groups of these ids. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("ConsumerGroupDescribeRequest", context.request.message)

    def answer(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return messages.ConsumerGroupDescribeResponse(groups=groups)

    respond_later(context, parts.groups.service.consumer_group_describe(request.group_ids), answer)
