"""StreamsGroupHeartbeat and StreamsGroupDescribe (Kafka's KafkaApis; KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.cluster.operations import GROUP_OPERATIONS
from kops.broker.apis.groups.common import group_context, respond_later
from kops.config.values.topic_names import INTERNAL_TOPICS, is_topic_name
from kops.errors import ApiError
from kops.protocol import messages
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.coordinators.groups.streams.result import HeartbeatResult
    from kops.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
    from kops.protocol.messages.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse
    from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology
    from kops.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

_PROTOCOL: Final = "streams"
_FEATURE: Final = "streams.version"
_MISSING_INTERNAL_TOPICS: Final = 3
_SHOWN_ERROR_COUNT: Final = 3


def _check_is_served(parts: BrokerParts) -> None:
    """Raise ApiError UNSUPPORTED_VERSION if the broker's settings or the cluster's `streams.version` exclude the protocol."""
    is_set = _PROTOCOL in parts.config["group.coordinator.rebalance.protocols"]
    if not is_set or parts.cache.image.features.levels.get(_FEATURE, 0) < 1:
        raise ApiError("UNSUPPORTED_VERSION")


def handle_streams_group_heartbeat(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the member's change is written, and create missing internal topics. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("StreamsGroupHeartbeatRequest", context.request.message)
    if request.member_epoch <= 0 or request.active_tasks is not None:
        context.hurry_heartbeats()
    reason = None if request.topology is None else _wrong_topics(request.topology)
    if reason is not None:
        error_code = by_name("STREAMS_INVALID_TOPOLOGY").code
        context.respond(messages.StreamsGroupHeartbeatResponse(error_code=error_code, error_message=reason))
        return

    def answer(result: HeartbeatResult) -> StreamsGroupHeartbeatResponse:
        if result.topics_to_create:
            _create_topics(parts, context, request.group_id, result)
        return result.response

    respond_later(context, parts.groups.service.streams_group_heartbeat(group_context(context), request), answer)


def handle_streams_group_describe(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the streams groups of these ids. Raises ApiError UNSUPPORTED_VERSION."""
    _check_is_served(parts)
    request = cast("StreamsGroupDescribeRequest", context.request.message)

    def answer(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return messages.StreamsGroupDescribeResponse(groups=groups)

    respond_later(context, parts.groups.service.streams_group_describe(request.group_ids), answer)


def _wrong_topics(topology: Topology) -> str | None:
    """Return why an application must not use its topics, or None."""
    names: dict[str, None] = {}
    for subtopology in topology.subtopologies:
        internal = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
        names.update(dict.fromkeys((*subtopology.source_topics, *subtopology.repartition_sink_topics)))
        names.update(dict.fromkeys(topic.name for topic in internal))
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        return f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
    invalid = [name for name in names if not is_topic_name(name)]
    return f"Topic names {','.join(invalid)} are not valid topic names." if invalid else None


def _create_topics(parts: BrokerParts, context: RequestContext, group_id: str, result: HeartbeatResult) -> None:
    """Ask the controller to create topics, and add the reason of an earlier failure to the member's status."""
    settings = parts.groups.group_settings(group_id)
    source, name = (parts.config, "group.streams") if settings is None else (settings, "streams")
    parts.auto_topics.create_for_streams(result.topics_to_create, context, 2 * source[f"{name}.heartbeat.interval.ms"])
    status = next((each for each in result.response.status or () if each.status_code == _MISSING_INTERNAL_TOPICS), None)
    errors = parts.auto_topics.streams_errors(result.topics_to_create)
    if status is None or not errors:
        return
    listed = ", ".join(f"{topic} ({text})" for topic, text in list(errors.items())[:_SHOWN_ERROR_COUNT])
    more = len(errors) - _SHOWN_ERROR_COUNT
    status.status_detail += f"; Creation failed: {listed}{f' and {more} more' if more > 0 else ''}."
