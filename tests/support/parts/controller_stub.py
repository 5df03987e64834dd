"""A channel to the controller that keeps the requests. The test answers them."""

from __future__ import annotations

from collections.abc import Callable

from kops.errors import ApiError
from kops.protocol.declaration import Message

Done = Callable[[Message | ApiError], object]


class StubChannel:
    """A channel. `sent` has the requests without an answer, in order; `answer` answers the first of them."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, Done]] = []
        self.count = 0
        self.timeouts_ms: list[int | None] = []

    def send(self, message: Message, done: Done, *, timeout_ms: int | None = None) -> None:
        """See `ToController`."""
        self.count += 1
        self.timeouts_ms.append(timeout_ms)
        self.sent.append((message, done))

    def answer(self, result: Message | ApiError) -> Message:
        """Answer the oldest request and return it."""
        message, done = self.sent.pop(0)
        done(result)
        return message
