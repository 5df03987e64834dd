"""InitProducerId, versions 0 to 5, for producers without a transactional id (Kafka's KafkaApis.handleInitProducerIdRequest,
TransactionCoordinator.handleInitProducerId; KIP-98, KIP-360, KIP-939). No broker coordinates transactions yet: NOT_COORDINATOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.errors import ApiError
from kops.protocol.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.init_producer_id_request import InitProducerIdRequest

_NONE: Final = -1


def handle_init_producer_id(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with a new producer id and epoch 0. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS while there is no id, INVALID_REQUEST, and
    the errors for a transactional producer."""
    request = cast("InitProducerIdRequest", context.request.message)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise ApiError("INVALID_REQUEST")
    if request.transactional_id is not None:
        raise ApiError(_transactional_error(parts, request))
    context.respond(InitProducerIdResponse(producer_id=parts.producer_ids.generate(), producer_epoch=0))


def _transactional_error(parts: BrokerParts, request: InitProducerIdRequest) -> str:
    if not request.transactional_id:
        return "INVALID_REQUEST"
    if request.enable2_pc and not parts.config["transaction.two.phase.commit.enable"]:
        return "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    if request.keep_prepared_txn:
        return "UNSUPPORTED_VERSION"
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= parts.config["transaction.max.timeout.ms"]:
        return "INVALID_TRANSACTION_TIMEOUT"
    return "NOT_COORDINATOR"
