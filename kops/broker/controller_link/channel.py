"""The channel to the active controller. Requests wait until the controller is known. If it changes, they are sent again to the next one.
They time out.

Source: Kafka's NodeToControllerChannelManagerImpl, NodeToControllerRequestThread and RaftControllerNodeProvider. One request is in flight
at a time, in the order of arrival. After a lost connection or the answer NOT_CONTROLLER a request returns to the front of the queue.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kops.broker.network.peer import Peer, PeerSettings
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.quorum.raft_manager import RaftManager
    from kops.metadata.raft.voters.replica import Node
    from kops.protocol.connections.node_versions import NodeVersions
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_RETRY_MS: Final = 20  # Kafka asks again after 50 or 100 ms. The pause delays only waiting requests.
_NOT_CONTROLLER: Final = by_name("NOT_CONTROLLER").code


def raft_controller(raft: RaftManager, listener: str) -> Callable[[], Node | None]:
    """The address of the quorum's leader on this listener; None while there is no leader, or if it is not among the voters."""

    def controller() -> Node | None:
        leader_id = raft.node.leader_and_epoch.leader_id
        return None if leader_id is None else raft.node.voters.node(leader_id, listener)

    return controller


class _Waiting:
    """A request whose `done` has not been called yet."""

    __slots__ = ("done", "is_expired", "message", "timer")

    def __init__(self, message: Message, done: Callable[[Message | ApiError], object]) -> None:
        self.message = message
        self.done = done
        self.timer: Timer | None = None
        self.is_expired = False

    def end(self, result: Message | ApiError) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.done(result)


class ControllerChannel:
    """Sends requests to the active controller. `controller()` returns its address, `draw()` random numbers from 0 to below 1.

    `retry_timeout_ms` is how long a request is retried; None means forever. All methods are for the loop's thread.
    """

    def __init__(
        self,
        loop: Loop,
        controller: Callable[[], Node | None],
        *,
        draw: Callable[[], float],
        settings: PeerSettings,
        retry_timeout_ms: int | None = None,
    ) -> None:
        self._loop = loop
        self._controller = controller
        self._draw = draw
        limit_ms = settings.request_timeout_ms
        request_timeout_ms = limit_ms if retry_timeout_ms is None else min(limit_ms, retry_timeout_ms)
        self._settings = replace(settings, request_timeout_ms=request_timeout_ms, max_in_flight_requests_per_connection=1)
        self._retry_timeout_ms = retry_timeout_ms
        self._queue: deque[_Waiting] = deque()
        self._sent: _Waiting | None = None
        self._node: Node | None = None
        self._peer: Peer | None = None
        self._retry: Timer | None = None
        self._is_scheduled = self._is_closed = False

    @property
    def versions(self) -> NodeVersions | None:
        """The APIs that the controller serves; None while there is no connection to it."""
        return None if self._peer is None or self._node is None else self._peer.versions

    @property
    def unfinished_count(self) -> int:
        """The number of requests whose `done` has not been called yet."""
        return len(self._queue) + (self._sent is not None)

    def send(self, message: Message, done: Callable[[Message | ApiError], object], *, timeout_ms: int | None = None) -> None:
        """Send a request to the active controller. `done` gets the answer once, never during this call.

        Or it gets an ApiError: REQUEST_TIMED_OUT if there was no answer within `timeout_ms` (default: `retry_timeout_ms`) and the request
        is no longer in flight, UNSUPPORTED_VERSION if the controller does not know the request, NETWORK_EXCEPTION if the channel was
        closed.
        """
        waiting = _Waiting(message, done)
        if self._is_closed:
            self._loop.call_soon(lambda: waiting.end(ApiError("NETWORK_EXCEPTION", "The channel to the controller is closed")))
            return
        limit_ms = self._retry_timeout_ms if timeout_ms is None else timeout_ms
        if limit_ms is not None:
            waiting.timer = self._loop.call_later(limit_ms, lambda: self._expire(waiting))
        self._queue.append(waiting)
        self._schedule()

    def close(self) -> None:
        """Close the connection for good. Unanswered requests end with NETWORK_EXCEPTION during this call."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_retry()
        if self._peer is not None:
            self._peer.close()
        for waiting in [self._queue.popleft() for _ in range(len(self._queue))]:
            waiting.end(ApiError("NETWORK_EXCEPTION", "The channel to the controller was closed"))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if self._is_closed or self._sent is not None or not self._queue:
            return
        if self._node is None:
            self._find_controller()
        if self._peer is not None and self._node is not None:
            self._stop_retry()
            self._sent = waiting = self._queue.popleft()
            self._peer.send(waiting.message, lambda result: self._answered(waiting, result))
        elif self._retry is None:
            self._retry = self._loop.call_later(_RETRY_MS, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._go_on()

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _find_controller(self) -> None:
        self._node = node = self._controller()
        if node is None or (self._peer is not None and (self._peer.host, self._peer.port) == (node.host, node.port)):
            return
        log.info("The active controller is node %s at %s:%s", *node)
        if self._peer is not None:
            self._peer.close()
        self._peer = Peer(self._loop, node.host, node.port, draw=self._draw, settings=self._settings)

    def _answered(self, waiting: _Waiting, result: Message | ApiError) -> None:
        self._sent = None
        if self._is_closed:
            waiting.end(ApiError("NETWORK_EXCEPTION", "The channel to the controller was closed"))
            return
        if isinstance(result, ApiError):
            is_to_be_retried = result.name in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")
        else:
            is_to_be_retried = _is_refused(result)
        if not is_to_be_retried:
            waiting.end(result)
        elif waiting.is_expired:
            waiting.end(_timed_out())
        else:
            log.debug("%s goes back into the queue: %s", type(waiting.message).__name__, result)
            self._queue.appendleft(waiting)
        if is_to_be_retried:
            self._node = None
            if self._queue and self._retry is None:
                self._retry = self._loop.call_later(_RETRY_MS, self._retry_now)
        else:
            self._schedule()

    def _expire(self, waiting: _Waiting) -> None:
        waiting.timer = None
        if waiting is self._sent:
            waiting.is_expired = True
        else:
            self._queue.remove(waiting)
            waiting.end(_timed_out())


def _timed_out() -> ApiError:
    return ApiError("REQUEST_TIMED_OUT", "The active controller has not answered in time")


def _is_refused(response: Message) -> bool:
    """Whether a node says that it is not the active controller."""
    if isinstance(response, CreateTopicsResponse):
        return any(topic.error_code == _NOT_CONTROLLER for topic in response.topics)
    return getattr(response, "error_code", None) == _NOT_CONTROLLER
