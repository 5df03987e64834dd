"""Helpers of the handlers of groups: the client's context for coordinators, and asynchronous answers.

Source: Kafka's KafkaApis (its use of futures), RequestContext.
"""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kops.broker.controller_link.error_responses import error_response
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.channel import RequestContext
    from kops.coordinators.groups.context import RequestContext as GroupContext
    from kops.coordinators.runtime.promise import Promise
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)
T = TypeVar("T")
M = TypeVar("M", bound="Message")
_KEPT_ADDRESSES: Final = 1024


def group_context(context: RequestContext) -> GroupContext:
    """Return the request's client and version for the group coordinator."""
    request = context.request
    return _group_context()(request.version, request.client_id, _java_address(context.client_host), request.api.key)


@cache
def _group_context() -> type[GroupContext]:
    """The class, which is imported with the first request of a group."""
    from kops.coordinators.groups.context import RequestContext as GroupContext

    return GroupContext


@lru_cache(_KEPT_ADDRESSES)
def _java_address(host: str) -> str:
    """Format an address like Java's InetAddress, which does not shorten IPv6 addresses."""
    try:
        address = IPv6Address(host.split("%")[0])
    except AddressValueError:
        return f"/{host}"
    groups = address.exploded.split(":")
    return "/" + ":".join(f"{int(group, 16):x}" for group in groups)


def respond_later(context: RequestContext, promise: Promise[T], answer: Callable[[T], Message]) -> None:
    """Answer with `answer(value)` when the promise has its value, or with its error."""

    def done(value: T | None, error: KopsError | None) -> None:
        if error is None:
            _respond(context, lambda: answer(cast("T", value)))
        else:
            _respond_failure(context, error)

    promise.when_done(done)


def respond_with(context: RequestContext, promise: Promise[M]) -> None:
    """Answer with the promise's value when it is done, or with its error."""

    def done(value: M | None, error: KopsError | None) -> None:
        if error is None:
            _respond(context, lambda: cast("M", value))
        else:
            _respond_failure(context, error)

    promise.when_done(done)


def _respond(context: RequestContext, answer: Callable[[], Message]) -> None:
    try:
        context.respond(answer())
    except ApiError as error:
        respond_error(context, error)
    except Exception:
        # A bug in one answer must not stop the node, as in the dispatcher. Kafka's KafkaApis.handle ends each future with handleError.
        log.exception("Unexpected error answering %s of %s", context.request.api.name, context.connection_id)
        if not context.is_answered:
            respond_error(context, ApiError("UNKNOWN_SERVER_ERROR"))


def _respond_failure(context: RequestContext, error: KopsError) -> None:
    respond_error(context, error if isinstance(error, ApiError) else ApiError("UNKNOWN_SERVER_ERROR", str(error)))


def respond_error(context: RequestContext, error: ApiError) -> None:
    """Answer a whole request with an error."""
    response = error_response(context.request.message, context.request.version, error)
    assert response is not None
    context.respond(response)
