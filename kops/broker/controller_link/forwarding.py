"""Forwards requests of clients to the active controller, and its responses to the clients.

Source: Kafka's ForwardingManagerImpl, and KafkaApis.handleInvalidVersionsDuringForwarding.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.controller_link.envelope import envelope, read_response
from kops.broker.controller_link.error_responses import error_response
from kops.errors import ApiError, DecodeError
from kops.protocol.api_keys import BY_NAME
from kops.protocol.connections.connection import Request
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import EnvelopeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.channel import ControllerChannel
    from kops.broker.network.socket_server import RequestContext
    from kops.protocol.connections.node_versions import NodeVersions
    from kops.protocol.declaration import Message
    from kops.protocol.messages import CreateTopicsRequest

log = logging.getLogger(__name__)

_UNSUPPORTED_VERSION: Final = by_name("UNSUPPORTED_VERSION").code
_LATE: Final = frozenset(("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"))  # The latter when the broker itself ends the channel.


class Forwarding:
    """Forwards clients' requests. It has a channel of its own, so that they don't delay the broker's own requests."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    @property
    def controller_versions(self) -> NodeVersions | None:
        """The APIs that the controller serves; None while there is no connection to it."""
        return self._channel.versions

    def forward(self, context: RequestContext, done: Callable[[Message | None], object], message: Message | None = None) -> None:
        """Forward a client's request, with `message`, if given, in place of its own.

        `done` gets the controller's response, or the request's error response. It gets None if the controller does not know the request's
        version: the connection has to end, so that the client asks again which versions are served.
        """
        request = context.request
        wanted = request.message if message is None else message

        def answered(result: Message | ApiError) -> None:
            if isinstance(result, EnvelopeResponse):
                if result.error_code == _UNSUPPORTED_VERSION:
                    done(None)
                    return
                result = _opened(request, result)
                name = "UNKNOWN_SERVER_ERROR"  # An error of the envelope is not the client's.
            else:
                name = "REQUEST_TIMED_OUT" if isinstance(result, ApiError) and result.name in _LATE else "UNKNOWN_SERVER_ERROR"
            if isinstance(result, ApiError):
                log.debug("%s of %s could not be forwarded: %s", request.api.name, context.connection_id, result)
                done(error_response(wanted, request.version, ApiError(name)))
            else:
                done(result)

        self._channel.send(envelope(request, wanted, context.principal, context.client_host), answered)

    def create_topics(self, context: RequestContext, message: CreateTopicsRequest, done: Callable[[Message | ApiError], object]) -> None:
        """Create topics on behalf of the client of `context`. `done` gets the CreateTopicsResponse, or the error."""
        api = BY_NAME["CreateTopics"]
        versions = self.controller_versions
        version = api.versions.stop - 1 if versions is None else versions.latest(api.key)
        asked = context.request
        request = Request(api, version, version, asked.correlation_id, asked.client_id, message, 0)

        def answered(result: Message | ApiError) -> None:
            done(_opened(request, result) if isinstance(result, EnvelopeResponse) else result)

        self._channel.send(envelope(request, message, context.principal, context.client_host), answered)

    def close(self) -> None:
        """Close the channel. Unanswered requests get REQUEST_TIMED_OUT."""
        self._channel.close()


def _opened(request: Request, response: EnvelopeResponse) -> Message | ApiError:
    """The response inside an envelope's response, or the envelope's error."""
    if response.error_code:
        return ApiError(by_code(response.error_code).name)
    try:
        return read_response(request, response.response_data)
    except DecodeError as error:
        log.error("The controller's response to %s can't be read: %s", request.api.name, error)
        return ApiError("UNKNOWN_SERVER_ERROR", str(error))


def respond_forwarded(context: RequestContext, response: Message | None) -> None:
    """Send a client the response from `Forwarding.forward`. The controller's throttle applies to the client's connection here."""
    if response is None:
        log.info("Closing %s: the controller does not know this version of %s", context.connection_id, context.request.api.name)
        context.close_connection()
    else:
        context.respond(response, throttle_ms=getattr(response, "throttle_time_ms", 0))
