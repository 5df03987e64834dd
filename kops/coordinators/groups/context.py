"""Who sent a request (Kafka's RequestContext, as far as the group coordinator uses it)."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """The request's version and API key, and its client. `client_host` is as Kafka shows it, with a slash: `/127.0.0.1`."""

    api_version: int
    client_id: str
    client_host: str
    api_key: int
