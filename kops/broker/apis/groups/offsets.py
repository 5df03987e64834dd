"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit (Kafka's KafkaApis and the builders of its responses).

The handlers themselves answer topics and partitions that do not exist, and pass the rest to the group coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kops.broker.apis.groups.common import group_context, respond_later, respond_with
from kops.metadata.image.metadata_cache import error_code
from kops.protocol import messages
from kops.protocol.declaration import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.offset_commit_request import OffsetCommitRequest
    from kops.protocol.messages.offset_delete_request import OffsetDeleteRequest
    from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
    from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

T = TypeVar("T")
_TOPIC_IDS_SINCE: Final = 10
_LOADING_KNOWN_SINCE: Final = 2


class _Refused:
    """The topics and partitions that the handler answers itself, in the types of the response, by name or id."""

    def __init__(self, make_topic: Callable[[str, bytes], Any], make_partition: Callable[[int, int], Any], *, by_id: bool = False) -> None:
        self._make_topic = make_topic
        self._make_partition = make_partition
        self._by_id = by_id
        self._topics: dict[str | bytes, Any] = {}

    def add(self, name: str, topic_id: bytes, partitions: Sequence[int], error: str) -> None:
        """Answer these partitions with this error."""
        found = self._topics.setdefault(topic_id if self._by_id else name, self._make_topic(name, topic_id))
        found.partitions += [self._make_partition(index, error_code(error)) for index in partitions]

    def merged(self, topics: Sequence[Any]) -> list[Any]:
        """Merge with the coordinator's answer. If nothing was refused, it is used as it is, even if it repeats a topic."""
        if not self._topics:
            return list(topics)
        for topic in topics:
            there = self._topics.setdefault(topic.topic_id if self._by_id else topic.name, topic)
            if there is not topic:
                there.partitions += topic.partitions
        return list(self._topics.values())


def _known(parts: BrokerParts, refused: _Refused, topic: Any, topic_id: bytes) -> list[Any]:
    """Return the existing partitions of a topic. The others are added to `refused`."""
    known = []
    for one in topic.partitions:
        if parts.cache.partition(topic.name, one.partition_index) is not None:
            known.append(one)
        else:
            refused.add(topic.name, topic_id, [one.partition_index], "UNKNOWN_TOPIC_OR_PARTITION")
    return known


def _indexes(topic: Any) -> list[int]:
    return [one.partition_index for one in topic.partitions]


def handle_offset_commit(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the offsets are committed."""
    request = cast("OffsetCommitRequest", context.request.message)
    uses_ids = context.request.version >= _TOPIC_IDS_SINCE
    image = parts.cache.image.topics
    refused: _Refused | None = None
    topics = []
    for topic in request.topics:
        found = image.by_id.get(topic.topic_id) if uses_ids else image.by_name.get(topic.name)
        known = []
        if found is not None:
            topic.name, topic.topic_id = found.name, found.id
            known = [one for one in topic.partitions if found.partitions.get(one.partition_index) is not None]
        if found is None or len(known) < len(topic.partitions):
            error = "UNKNOWN_TOPIC_ID" if found is None and uses_ids else "UNKNOWN_TOPIC_OR_PARTITION"
            kept = {one.partition_index for one in known}
            refused = refused or _refused_commits(by_id=uses_ids)
            refused.add(topic.name, topic.topic_id, [index for index in _indexes(topic) if index not in kept], error)
            topic.partitions = known
        if known:
            topics.append(topic)
    if not topics:
        context.respond(messages.OffsetCommitResponse(topics=[] if refused is None else refused.merged(())))
        return
    request.topics = topics
    committed = parts.groups.service.commit_offsets(group_context(context), request)
    if refused is None:
        respond_with(context, committed)
        return
    merged = refused.merged
    respond_later(context, committed, lambda response: messages.OffsetCommitResponse(topics=merged(response.topics)))


def _refused_commits(*, by_id: bool) -> _Refused:
    from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic

    return _Refused(
        lambda name, topic_id: OffsetCommitResponseTopic(name=name, topic_id=topic_id), OffsetCommitResponsePartition, by_id=by_id
    )


def handle_txn_offset_commit(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the offsets are written as part of the transaction."""
    from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequestTopic
    from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic

    request = cast("TxnOffsetCommitRequest", context.request.message)

    def answer(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        whole = messages.TxnOffsetCommitResponse(topics=refused.merged(response.topics))
        if context.request.version < _LOADING_KNOWN_SINCE:
            # Old producers treat COORDINATOR_LOAD_IN_PROGRESS as fatal.
            loading = error_code("COORDINATOR_LOAD_IN_PROGRESS")
            for topic in whole.topics:
                for one in topic.partitions:
                    if one.error_code == loading:
                        one.error_code = error_code("COORDINATOR_NOT_AVAILABLE")
        return whole

    refused = _Refused(lambda name, _: TxnOffsetCommitResponseTopic(name=name), TxnOffsetCommitResponsePartition)
    topics = []
    for topic in request.topics:
        if parts.cache.partition_count(topic.name) is None:
            refused.add(topic.name, ZERO_UUID, _indexes(topic), "UNKNOWN_TOPIC_OR_PARTITION")
        elif known := _known(parts, refused, topic, ZERO_UUID):
            topics.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=known))
    if not topics:
        context.respond(answer(messages.TxnOffsetCommitResponse()))
        return
    request.topics = topics
    respond_later(context, parts.groups.service.commit_transactional_offsets(group_context(context), request), answer)


def handle_offset_delete(parts: BrokerParts, context: RequestContext) -> None:
    """Delete the offsets, and answer when the deletion is written."""
    from kops.protocol.messages.offset_delete_request import OffsetDeleteRequestTopic
    from kops.protocol.messages.offset_delete_response import OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    request = cast("OffsetDeleteRequest", context.request.message)
    refused = _Refused(lambda name, _: OffsetDeleteResponseTopic(name=name), OffsetDeleteResponsePartition)
    topics = []
    for topic in request.topics:
        if parts.cache.partition_count(topic.name) is None:
            refused.add(topic.name, ZERO_UUID, _indexes(topic), "UNKNOWN_TOPIC_OR_PARTITION")
        elif known := _known(parts, refused, topic, ZERO_UUID):
            topics.append(OffsetDeleteRequestTopic(topic.name, known))

    def answer(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code:
            return response
        return OffsetDeleteResponse(topics=refused.merged(response.topics))

    request = messages.OffsetDeleteRequest(request.group_id, topics)
    respond_later(context, parts.groups.service.delete_offsets(group_context(context), request), answer)
