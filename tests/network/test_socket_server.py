"""The socket server on loopback: order, pipelining, slow and hostile clients, limits, files."""

from __future__ import annotations

from tests.support.networking import Served, echo, metadata_request


def test_requests_are_answered() -> None:
    with Served(echo) as served, served.client() as client:
        for name in ("a", "b"):
            client.send(metadata_request(name), 12)
            response = client.receive()
            assert response is not None
            assert response.message.cluster_id == name  # type: ignore[attr-defined]
