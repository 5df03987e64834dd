"""DescribeClientQuotas and DescribeUserScramCredentials: answers from the metadata. Nothing in kops changes or uses these yet.

Source: Kafka's KafkaApis.handleDescribeClientQuotasRequest and handleDescribeUserScramCredentialsRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.protocol.messages import DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_describe_client_quotas(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once. Raises ApiError for an invalid filter."""
    request = context.request.message
    assert isinstance(request, DescribeClientQuotasRequest)
    context.respond(parts.cache.image.client_quotas.describe(request))


def handle_describe_user_scram_credentials(parts: BrokerParts, context: RequestContext) -> None:
    """Answers at once."""
    request = context.request.message
    assert isinstance(request, DescribeUserScramCredentialsRequest)
    context.respond(parts.cache.image.scram.describe(request))
