"""Answers of coordinators that come later: a bug in one answer is told to its client, and the loop goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kops.broker.apis.groups.common import respond_later, respond_with
from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import HeartbeatRequest, HeartbeatResponse


class Context:
    """A request whose answers are encoded, as on a connection."""

    def __init__(self) -> None:
        self.request = SimpleNamespace(api=SimpleNamespace(name="Heartbeat"), message=HeartbeatRequest(), version=4)
        self.connection_id = "here"
        self.answers: list[Any] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    def respond(self, message: Any) -> None:
        message.encode(4)
        self.answers.append(message)


def codes(context: Context) -> list[int]:
    return [answer.error_code for answer in context.answers]


def test_an_answer_that_cannot_be_encoded(caplog: pytest.LogCaptureFixture) -> None:
    for ask in (respond_with, lambda context, promise: respond_later(context, promise, lambda found: found)):
        context: Any = Context()
        promise: Promise[Any] = Promise()
        ask(context, promise)
        promise.complete(HeartbeatResponse(throttle_time_ms=2**31))
        assert codes(context) == [by_name("UNKNOWN_SERVER_ERROR").code]
    assert "Unexpected error answering Heartbeat of here" in caplog.text


def test_an_answer_that_its_handler_refuses() -> None:
    def refuse(found: object) -> Any:
        raise ApiError("INVALID_REQUEST")

    context: Any = Context()
    respond_later(context, Promise.of(1), refuse)
    assert codes(context) == [by_name("INVALID_REQUEST").code]
