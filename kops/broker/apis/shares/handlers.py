"""The entries of ShareFetch and ShareAcknowledge in the table of APIs. Their modules are imported with the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_share_fetch(parts: BrokerParts, context: RequestContext) -> None:
    """See `share_fetch`. Raises ApiError UNSUPPORTED_VERSION if the cluster's `share.version` has no share groups."""
    _check_is_served(parts)
    from kops.broker.apis.shares.share_fetch import answer_share_fetch

    answer_share_fetch(parts, context)


def handle_share_acknowledge(parts: BrokerParts, context: RequestContext) -> None:
    """See `share_acknowledge`. Raises ApiError UNSUPPORTED_VERSION if the cluster's `share.version` has no share groups."""
    _check_is_served(parts)
    from kops.broker.apis.shares.share_acknowledge import answer_share_acknowledge

    answer_share_acknowledge(parts, context)


def _check_is_served(parts: BrokerParts) -> None:
    if not parts.shares.is_enabled:
        raise ApiError("UNSUPPORTED_VERSION")
