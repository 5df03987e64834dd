"""Requests that only the controller can answer: a broker forwards them (Kafka KafkaApis.forwardToController)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.controller_link.forwarding import respond_forwarded

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_forwarded(parts: BrokerParts, context: RequestContext) -> None:
    """Forward the request, and pass the controller's response back to the client."""
    parts.forwarding.forward(context, lambda response: respond_forwarded(context, response))
