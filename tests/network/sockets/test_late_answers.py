"""Answers of coordinators that come later: a bug in one answer is told to its client, and the loop goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kops.broker.apis.groups.common import respond_later, respond_with
from kops.broker.network.channel import RequestContext
from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import HeartbeatRequest, HeartbeatResponse
from tests.support.nodes.networking import Served

Ask = Callable[[RequestContext, Promise[Any]], None]


def _answer_to_a_heartbeat(ask: Ask, value: object) -> str:
    """Return the error in the answer to a heartbeat whose promise gets this value a turn later."""

    def handler(context: RequestContext) -> None:
        promise: Promise[Any] = Promise()
        ask(context, promise)
        served.loop.call_soon(lambda: promise.complete(value))

    with Served(handler) as served, served.client() as client:
        client.send(HeartbeatRequest("g", 1, "m"), 4)
        response = client.receive()
    assert response is not None
    assert isinstance(response.message, HeartbeatResponse)
    return by_code(response.message.error_code).name


@pytest.mark.parametrize("ask", [respond_with, lambda context, promise: respond_later(context, promise, lambda found: found)])
def test_an_answer_that_cannot_be_encoded(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    assert _answer_to_a_heartbeat(ask, HeartbeatResponse(throttle_time_ms=2**31)) == "UNKNOWN_SERVER_ERROR"
    assert "Unexpected error answering Heartbeat of 127.0.0.1:" in caplog.text


def test_an_answer_that_its_handler_refuses() -> None:
    def refuse(found: object) -> Any:
        raise ApiError("INVALID_REQUEST")

    assert _answer_to_a_heartbeat(lambda context, promise: respond_later(context, promise, refuse), 1) == "INVALID_REQUEST"
