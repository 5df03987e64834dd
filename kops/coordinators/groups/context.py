"""The sender of a request (the fields of Kafka's RequestContext that the group coordinator uses)."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """The request's version and API key, and its client. `client_host` has a slash, as in Kafka: `/127.0.0.1`."""

    api_version: int
    client_id: str
    client_host: str
    api_key: int
