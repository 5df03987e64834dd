"""AddPartitionsToTxn and AddOffsetsToTxn (Kafka's KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.protocol.errors import by_name
from kops.protocol.messages import AddOffsetsToTxnResponse
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
    from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest

_CONSUMER_OFFSETS: Final = "__consumer_offsets"
_FIRST_WITH_FENCED: Final = 2
_TV_0: Final = 0


def handle_add_partitions_to_txn(parts: BrokerParts, context: RequestContext) -> None:
    """Add partitions to a client's transaction, or to those of producers that write to another broker."""
    from kops.broker.transactions.added_partitions import answer_add_partitions

    request = cast("AddPartitionsToTxnRequest", context.request.message)
    service = parts.transactions.service
    answer_add_partitions(service.coordinator, parts.cache, request, context.request.version, context.respond, service.end_waits.add)


def handle_add_offsets_to_txn(parts: BrokerParts, context: RequestContext) -> None:
    """Add the partition with a group's offsets. Only clients of transaction version 0 send this request."""
    request = cast("AddOffsetsToTxnRequest", context.request.message)
    offsets = TopicPartition(_CONSUMER_OFFSETS, parts.groups.partition_for(request.group_id))

    def done(error: str) -> None:
        if context.request.version < _FIRST_WITH_FENCED and error == "PRODUCER_FENCED":
            error = "INVALID_PRODUCER_EPOCH"
        context.respond(AddOffsetsToTxnResponse(error_code=by_name(error).code))

    parts.transactions.service.coordinator.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, [offsets], _TV_0, done
    )
