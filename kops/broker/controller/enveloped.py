"""A client's request from an envelope, as a request of its own. Its answer goes back in an envelope (KIP-590).

Source: Kafka's EnvelopeUtils and RequestContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.controller_link.envelope import envelope_response
from kops.broker.network.channel import RequestContext

if TYPE_CHECKING:
    from kops.broker.controller_link.envelope import Forwarded
    from kops.protocol.declaration import Message


class EnvelopedContext(RequestContext):
    """The connection is the broker's. The principal, the address and the request are the client's."""

    __slots__ = ("_envelope", "_forwarded")

    def __init__(self, envelope: RequestContext, forwarded: Forwarded) -> None:
        super().__init__(envelope._channel, forwarded.request, envelope.received_ms, envelope.started_ms)
        envelope.counted = forwarded.request
        self._envelope = envelope
        self._forwarded = forwarded

    @property
    def client_host(self) -> str:
        """The client's address, as reported by the broker."""
        return self._forwarded.client_host

    @property
    def principal(self) -> str:
        """The client's principal, as reported by the broker."""
        return self._forwarded.principal

    @property
    def is_answered(self) -> bool:
        """Whether the envelope is answered."""
        return self._envelope.is_answered

    def respond(self, message: Message, *, throttle_ms: int = 0) -> None:
        """Answer the envelope with this response."""
        self._envelope.answer = message
        self._envelope.respond(envelope_response(self._forwarded.request, message), throttle_ms=throttle_ms)

    def close_connection(self) -> None:
        """Close the broker's connection."""
        self._envelope.close_connection()
