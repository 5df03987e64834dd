"""The interface through which a broker's parts reach the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.errors import ApiError
    from kops.protocol.declaration import Message


class ToController(Protocol):
    """Sends requests to the active controller (Kafka's NodeToControllerChannelManager); see `kops.broker.controller_link.channel`."""

    def send(self, message: Message, done: Callable[[Message | ApiError], object], *, timeout_ms: int | None = None) -> None:
        """Send a request as soon as the active controller is known. `done` gets the answer, or an ApiError, once."""
