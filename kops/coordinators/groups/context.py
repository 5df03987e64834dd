"""The sender of a request (the fields of Kafka's RequestContext that the group coordinator uses)."""

from __future__ import annotations


class RequestContext:
    """The request's version and API key, and its client. `client_host` has a slash, as in Kafka: `/127.0.0.1`."""

    __slots__ = ("api_key", "api_version", "client_host", "client_id")

    def __init__(self, api_version: int, client_id: str, client_host: str, api_key: int) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.api_key = api_key
