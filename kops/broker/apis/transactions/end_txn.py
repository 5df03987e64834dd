"""EndTxn and WriteTxnMarkers (Kafka's KafkaApis.handleEndTxnRequest, handleWriteTxnMarkersRequest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.protocol.errors import by_name
from kops.protocol.messages import EndTxnResponse

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.end_txn_request import EndTxnRequest
    from kops.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest

_FIRST_WITH_FENCED: Final = 2
_FIRST_OF_VERSION_2: Final = 5
_TV_0, _TV_2 = 0, 2


def handle_end_txn(parts: BrokerParts, context: RequestContext) -> None:
    """Commit or abort. The answer is sent when the decision is in the log. The markers follow."""
    request = cast("EndTxnRequest", context.request.message)
    version = context.request.version

    def done(error: str, producer_id: int, producer_epoch: int) -> None:
        if version < _FIRST_WITH_FENCED and error == "PRODUCER_FENCED":
            error = "INVALID_PRODUCER_EPOCH"
        context.respond(EndTxnResponse(error_code=by_name(error).code, producer_id=producer_id, producer_epoch=producer_epoch))

    parts.transactions.service.coordinator.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        _TV_2 if version >= _FIRST_OF_VERSION_2 else _TV_0,
        done,
        is_commit=request.committed,
    )


def handle_write_txn_markers(parts: BrokerParts, context: RequestContext) -> None:
    """Write a coordinator's markers."""
    request = cast("WriteTxnMarkersRequest", context.request.message)
    parts.transactions.service.marker_writer.write(request.markers, context.respond)
