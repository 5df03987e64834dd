"""Rejects SaslHandshake and SaslAuthenticate on a connection that needs no authentication or is already authenticated.

Source: Kafka's KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.metadata.image.metadata_cache import error_code
from kops.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_sasl_handshake(_parts: BrokerParts, context: RequestContext) -> None:
    """Answers ILLEGAL_SASL_STATE."""
    context.respond(SaslHandshakeResponse(error_code=error_code("ILLEGAL_SASL_STATE")))


def handle_sasl_authenticate(_parts: BrokerParts, context: RequestContext) -> None:
    """Answers ILLEGAL_SASL_STATE."""
    why = "SaslAuthenticate request received after successful authentication"
    context.respond(SaslAuthenticateResponse(error_code=error_code("ILLEGAL_SASL_STATE"), error_message=why))
