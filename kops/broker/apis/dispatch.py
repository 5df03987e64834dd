"""Passes requests to their handlers, and the errors of a handler to the client.

Source: Kafka's KafkaApis.handle, RequestHandlerHelper.handleError, Errors.forException.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kops.broker.apis.table import HANDLERS
from kops.broker.controller_link.error_responses import error_response
from kops.errors import ApiError
from kops.protocol.errors import by_exception
from kops.storage.failures.load_errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.apis.table import Handler
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts

log = logging.getLogger(__name__)


def dispatcher(parts: BrokerParts, handlers: Mapping[int, Handler] = HANDLERS) -> Callable[[RequestContext], None]:
    """Return the function that a broker's socket server calls for each request. As in Kafka, a request of an unserved API closes its
    connection."""

    def handle(context: RequestContext) -> None:
        handler = handlers.get(context.request.api.key)
        if handler is None:
            log.warning("Closing %s: %s is not served here", context.connection_id, context.request.api.name)
            context.close_connection()
            return
        try:
            handler(parts, context)
        except ApiError as error:
            respond_error(context, error)
        except LoadError as error:
            respond_error(context, ApiError(by_exception(error.java_class).name, str(error)))
        except Exception:
            # A bug in one handler must not stop the node.
            log.exception("Unexpected error handling %s of %s", context.request.api.name, context.connection_id)
            if not context.is_answered:
                respond_error(context, ApiError("UNKNOWN_SERVER_ERROR"))

    return handle


def respond_error(context: RequestContext, error: ApiError) -> None:
    """Answer a whole request with an error."""
    response = error_response(context.request.message, context.request.version, error)
    if response is None:
        context.close_connection()
    else:
        context.respond(response)
