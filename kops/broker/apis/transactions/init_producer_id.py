"""InitProducerId, versions 0 to 5 (Kafka's KafkaApis.handleInitProducerIdRequest; KIP-98, KIP-360, KIP-939)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.coordinators.transactions.coordinator import InitProducerIdResult
    from kops.protocol.messages.init_producer_id_request import InitProducerIdRequest

_NONE: Final = -1
_FIRST_WITH_FENCED: Final = 4


def handle_init_producer_id(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with a producer id and epoch. Raises ApiError INVALID_REQUEST, COORDINATOR_LOAD_IN_PROGRESS while there is no id."""
    request = cast("InitProducerIdRequest", context.request.message)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise ApiError("INVALID_REQUEST")
    if request.transactional_id is None:
        context.respond(InitProducerIdResponse(producer_id=parts.producer_ids.generate(), producer_epoch=0))
        return

    def done(result: InitProducerIdResult) -> None:
        error = result.error
        if context.request.version < _FIRST_WITH_FENCED and error == "PRODUCER_FENCED":
            error = "INVALID_PRODUCER_EPOCH"  # The error that old clients understand.
        context.respond(
            InitProducerIdResponse(error_code=by_name(error).code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
        )

    parts.transactions.service.coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch),
        done,
        enables_two_phase_commit=request.enable2_pc,
        keeps_prepared=request.keep_prepared_txn,
    )
