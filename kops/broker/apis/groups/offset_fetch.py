"""OffsetFetch, versions 1 to 10 (Kafka's KafkaApis.handleOffsetFetchRequest, OffsetFetchRequest.groups, OffsetFetchResponse.Builder)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.groups.common import group_context, respond_later
from kops.metadata.image.metadata_cache import error_code
from kops.protocol import messages
from kops.protocol.declaration import ZERO_UUID

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.coordinators.runtime.promise import Promise
    from kops.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
    from kops.protocol.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponseTopics

_GROUPS_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_NO_OFFSET: Final = -1


def handle_offset_fetch(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the offsets of all groups are known."""
    from kops.broker.coordinators.errors import joined

    request, version = cast("OffsetFetchRequest", context.request.message), context.request.version
    fetched = [_fetch(parts, context, group, require_stable=request.require_stable) for group in _groups(request, version)]
    respond_later(context, joined([promise.then(lambda group: [group]) for promise in fetched]), lambda groups: _response(groups, version))


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    if version >= _GROUPS_SINCE:
        return request.groups
    from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics

    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _fetch(
    parts: BrokerParts, context: RequestContext, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> Promise[OffsetFetchResponseGroup]:
    uses_ids = context.request.version >= _TOPIC_IDS_SINCE
    service, client = parts.groups.service, group_context(context)
    if group.topics is None:
        found = service.fetch_offsets(client, group, require_stable=require_stable)
        return found.then(lambda response: _with_ids(parts, response)) if uses_ids else found
    unknown: list[OffsetFetchResponseTopics] = []
    if uses_ids:
        known = []
        for topic in group.topics:
            name = parts.cache.topic_name(topic.topic_id)
            if name is None:
                unknown.append(_unknown_id(topic))
            else:
                topic.name = name
                known.append(topic)
        group.topics = known

    def with_unknown(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if not response.error_code:
            response.topics = [*response.topics, *unknown]
        return response

    return service.fetch_offsets(client, group, require_stable=require_stable).then(with_unknown)


def _unknown_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    from kops.protocol.messages.offset_fetch_response import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

    code = error_code("UNKNOWN_TOPIC_ID")
    partitions = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=_NO_OFFSET, error_code=code)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _with_ids(parts: BrokerParts, response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Return all topics of a group with their ids. Deleted topics have no id, so they are left out."""
    if not response.error_code:
        for topic in response.topics:
            if topic.topic_id == ZERO_UUID:
                topic.topic_id = parts.cache.topic_id(topic.name)
        response.topics = [topic for topic in response.topics if topic.topic_id != ZERO_UUID]
    return response


def _response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= _GROUPS_SINCE:
        return messages.OffsetFetchResponse(groups=groups)
    from kops.protocol.messages.offset_fetch_response import OffsetFetchResponsePartition, OffsetFetchResponseTopic

    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in groups[0].topics
    ]
    return messages.OffsetFetchResponse(topics=topics, error_code=groups[0].error_code)
