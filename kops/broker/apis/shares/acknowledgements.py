"""Checks the acknowledgements of a request and applies them. Both APIs of share groups can acknowledge.

Source: Kafka's KafkaApis (getAcknowledgeBatchesFrom…, validateAcknowledgementBatches, handleAcknowledgements, isMemberIdValid,
getCurrentLeader).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kops.broker.apis.data.leaders import current_leader
from kops.broker.apis.groups.share import is_member_id
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.record_state import REJECT, RENEW
from kops.coordinators.share.sessions.session import SessionKey, TopicIdPartition
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages.share_acknowledge_response import PartitionData as Acknowledged
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.broker.apis.data.leaders import Leader
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts

Results = dict[TopicIdPartition, Acknowledged]
FIRST_VERSION_WITH_RENEW: Final = 2
_MOVED: Final = frozenset({by_name("NOT_LEADER_OR_FOLLOWER").code, by_name("FENCED_LEADER_EPOCH").code})


def member_of(request: Any) -> SessionKey:
    """Return the group and member of a request. Raises ApiError INVALID_REQUEST."""
    if request.group_id is None:
        raise ApiError("INVALID_REQUEST", "Invalid group id in the request.")
    if not is_member_id(request.member_id):
        raise ApiError("INVALID_REQUEST", "Invalid member id in the request.")
    return SessionKey(request.group_id, request.member_id)


def acknowledge(parts: BrokerParts, member: SessionKey, topics: Iterable[Any], version: int, *, is_renew: bool) -> Promise[Results]:
    """Acknowledge the records in the topics of a request. The promise completes when all is persisted. Each partition has its own error."""
    refused: Results = {}
    empty: Results = {}
    wanted: dict[TopicIdPartition, list[AcknowledgementBatch]] = {}
    for topic in topics:
        name = parts.cache.topic_name(topic.topic_id)
        for each in topic.partitions:
            part = TopicIdPartition(topic.topic_id, each.partition_index, name)
            batches = [
                AcknowledgementBatch(one.first_offset, one.last_offset, one.acknowledge_types) for one in each.acknowledgement_batches
            ]
            for table in (wanted, refused, empty):
                table.pop(part, None)  # If a partition is given twice, the last one counts.
            if name is None:
                refused[part] = _result(part, "UNKNOWN_TOPIC_ID")
            elif not _are_valid(batches, supports_renew=version >= FIRST_VERSION_WITH_RENEW, is_renew=is_renew):
                refused[part] = _result(part, "INVALID_REQUEST")
            elif parts.cache.partition(name, part.partition) is None:
                refused[part] = _result(part, "UNKNOWN_TOPIC_OR_PARTITION")
            elif batches:
                wanted[part] = batches
            else:
                empty[part] = _result(part, "NONE")
    if not wanted:
        return Promise.of(refused)  # As in Kafka, without partitions that acknowledge nothing.
    return parts.shares.manager.acknowledge(member, wanted).then(lambda results: {**results, **refused, **empty})


def moved_to(parts: BrokerParts, context: RequestContext, part: TopicIdPartition, error_code: int) -> Leader | None:
    """Return the current leader, if the error means that another broker leads the partition."""
    if error_code not in _MOVED or part.topic is None:
        return None
    return current_leader(parts, TopicPartition(part.topic, part.partition), context.listener_name)


def _are_valid(batches: Sequence[AcknowledgementBatch], *, supports_renew: bool, is_renew: bool) -> bool:
    last_type = RENEW if supports_renew else REJECT
    previous_end = -1
    for first_offset, last_offset, types in batches:
        if first_offset > last_offset or first_offset < previous_end or not types:
            return False
        if len(types) > 1 and last_offset - first_offset != len(types) - 1:
            return False
        if not all(0 <= each <= last_type for each in types) or (RENEW in types and not is_renew):
            return False
        previous_end = last_offset
    return True


def _result(part: TopicIdPartition, error: str) -> Acknowledged:
    return Acknowledged(part.partition, by_name(error).code)
