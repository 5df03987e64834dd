"""ListTransactions and DescribeTransactions (Kafka's KafkaApis.handleListTransactionsRequest, handleDescribeTransactionsRequest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.protocol.messages import DescribeTransactionsResponse

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
    from kops.protocol.messages.list_transactions_request import ListTransactionsRequest


def handle_list_transactions(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the transactions of this coordinator that pass the filters. Raises ApiError INVALID_REGULAR_EXPRESSION."""
    request = cast("ListTransactionsRequest", context.request.message)
    coordinator = parts.transactions.service.coordinator
    context.respond(
        coordinator.list_transactions(
            request.producer_id_filters, request.state_filters, request.duration_filter, request.transactional_id_pattern
        )
    )


def handle_describe_transactions(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the state of each transactional id, or its error."""
    request = cast("DescribeTransactionsRequest", context.request.message)
    coordinator = parts.transactions.service.coordinator
    context.respond(DescribeTransactionsResponse(transaction_states=[coordinator.describe(each) for each in request.transactional_ids]))
