"""One connection of a client. Requests are handled in order, one at a time, and answered with few writes.

Source: Kafka's KafkaChannel (mute states), Selector (GRACEFUL close, memory), Processor and RequestChannel.Request (SocketServer.scala).
As in Kafka, a connection's next request starts when the answer to the last one has been sent. There are two exceptions, which only change
the timing. Answers that are ready at once are collected up to `_CORK_SIZE` bytes, so one write answers the requests of one read. A Produce
that follows Produces that wait for replicas starts at once, so the records of all requests that a producer has in flight go to the
followers together. They are appended and answered in order: while a Produce waits for its append, so does the next (`hold_next`).
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import mypyc_attr

from kops.broker.network.outbox import Outbox
from kops.errors import ApiError, DecodeError
from kops.protocol.api_keys import PRODUCE
from kops.protocol.connections.connection import ServerConnection, api_versions_refusal
from kops.protocol.connections.frames import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.network.events.pipe import Stream
    from kops.broker.network.memory_pool import MemoryPool, Waiter
    from kops.broker.network.request_metrics import RequestMetrics
    from kops.broker.network.settings import ListenerSettings, NetworkSettings
    from kops.protocol.api_keys import Listener
    from kops.protocol.connections.connection import Request
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_READ_SIZE: Final = 64 * 1024
_CORK_SIZE: Final = 256 * 1024
_TURN_REQUESTS: Final = 100  # The requests of one connection handled before the others have their turn.
_HEARTBEATS: Final = frozenset((12, 68, 76, 88))  # of classic, consumer, share and streams groups
# Heartbeats of a group that is not stable come faster. What counts is when they are read: longer than `TOGETHER_MS` of the quiet sockets.
_REGULAR_MS: Final = 1500
ANONYMOUS: Final = "User:ANONYMOUS"


class Owner(Protocol):
    """The channel's interface to its server."""

    loop: Loop
    settings: NetworkSettings
    memory: MemoryPool

    requests: RequestMetrics
    # Handles a request, which may be answered later.
    handler: Callable[[RequestContext], object]
    # Called with the time before a request is handled, or None.
    on_request: Callable[[float], object] | None

    def has_closed(self, channel: Channel) -> None:
        """The socket is closed. `has_finished` follows, at once or when the requests received before are handled."""

    def has_finished(self, channel: Channel) -> None:
        """Nothing more comes from it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestContext:
    """A request and where it came from. It is answered once, at once or later."""

    __slots__ = (
        "_channel",
        "answer",
        "answered_ms",
        "conversion_ms",
        "counted",
        "handled_ms",
        "holds_next",
        "received_ms",
        "request",
        "started_ms",
        "taken_ms",
        "temporary_bytes",
        "throttle_ms",
    )

    def __init__(self, channel: Channel, request: Request, received_ms: float, started_ms: float) -> None:
        self._channel = channel
        self.request = request
        # The request that the metrics count: for an envelope, the one in it.
        self.counted = request
        # The other fields are for the metrics. The answer is the one in an envelope.
        self.answer: Message | None = None
        self.throttle_ms = 0
        # Whether the next request must not start, although this one is a Produce.
        self.holds_next = False
        # The times when it arrived, when its handler was called and returned without an answer, when it was answered, and when the answer's
        # turn to be sent had come; 0 before.
        self.received_ms = received_ms
        self.started_ms = started_ms
        self.handled_ms = 0.0
        self.answered_ms = 0.0
        self.taken_ms = 0.0
        self.conversion_ms = 0.0
        self.temporary_bytes = 0

    @property
    def client_id(self) -> str:
        """The client's id, "" if it sends none."""
        return self.request.client_id

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self._channel.client_host

    @property
    def client_port(self) -> int:
        """The client's port."""
        return self._channel.client_port

    @property
    def connection_id(self) -> str:
        """Kafka's name for a connection, unique until this node stops."""
        return self._channel.connection_id

    @property
    def listener_name(self) -> str:
        """The listener that accepted the connection."""
        return self._channel.listener.name

    @property
    def listener(self) -> Listener:
        """Whether it is a broker's or a controller's listener."""
        return self._channel.listener.kind

    @property
    def security_protocol(self) -> str:
        """The listener's security protocol."""
        return self._channel.listener.security_protocol

    @property
    def is_privileged(self) -> bool:
        """Whether it is the listener that brokers use between themselves."""
        return self._channel.is_privileged

    @property
    def principal(self) -> str:
        """The sender of the request."""
        return ANONYMOUS

    @property
    def is_connected(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return self._channel.is_open

    @property
    def is_answered(self) -> bool:
        """Whether it was answered or its connection is closed."""
        return not self._channel.is_unanswered(self)

    def respond(self, message: Message, *, throttle_ms: int = 0) -> None:
        """Answer. The connection is not read for `throttle_ms` (KIP-219). Does nothing if the connection has ended.

        ApiError as in `Message.write`; the request then still waits for an answer.
        """
        self._channel.answer(self, message, throttle_ms)

    def hurry_heartbeats(self) -> None:
        """Read heartbeats of all connections at once for a while: this request changes a group, and its members learn of it with theirs."""
        self._channel.hurry()

    def hold_next(self) -> None:
        """Start no other request of the connection until `release_next`: this Produce has not appended its records yet."""
        self.holds_next = True

    def release_next(self) -> None:
        """The records are appended or rejected: the next request may start."""
        self.holds_next = False
        self._channel.go_on()

    def respond_nothing(self, *, throttle_ms: int = 0) -> None:
        """Finish without an answer: a Produce with acks=0."""
        self._channel.answer(self, None, throttle_ms)

    def count_conversion(self, took_ms: float, temporary_bytes: int) -> None:
        """Count, for the metrics, the cost of converting the request's records."""
        self.conversion_ms += took_ms
        self.temporary_bytes += temporary_bytes

    def close_connection(self) -> None:
        """Close the connection instead of answering. Earlier answers are still sent."""
        self._channel.refuse(self)


class _State(Enum):
    OPEN = auto()
    ENDING = auto()  # Closes when all answers are sent; handles no more requests.
    LOST = auto()  # The client is gone; requests that arrived whole are still handled.
    CLOSED = auto()


class Channel:
    """A connection. Call all methods from the loop's thread."""

    def __init__(
        self, owner: Owner, sock: Stream, listener: ListenerSettings, *, connection_id: str, client_host: str, client_port: int
    ) -> None:
        settings = owner.settings
        self._owner = owner
        self._loop = owner.loop
        self._requests = owner.requests
        self._handler = owner.handler
        self._sock = sock
        self.listener = listener
        self.connection_id = connection_id
        self.client_host = client_host
        self.client_port = client_port
        self.is_privileged = listener.name == settings.inter_broker_listener_name
        self.last_active_ms = self._loop.monotonic_ms()
        self._connection = ServerConnection(
            listener.kind, max_request_size=settings.socket_request_max_bytes, unstable_versions=settings.unstable_api_versions_enable
        )
        # With a limit on memory, nothing is read from the socket before there is room for the frame.
        self._is_bounded = owner.memory.is_bounded
        self._read_size = SIZE.size if self._is_bounded else _READ_SIZE
        self._turn_requests = min(_TURN_REQUESTS, settings.queued_max_requests)
        # More requests would use up the memory for the followers' fetches, for which the Produces wait.
        self._most_begun = 1 if self._is_bounded else self._turn_requests
        self._outbox = Outbox()
        self._state = _State.OPEN
        self._reason = ""  # The reason why it is ENDING.
        self._unsent: list[RequestContext] = []  # Answered, and the answer has not been sent.
        self._begun: list[RequestContext] = []  # Started and not answered; only Produces may be more than one.
        self._next: Request | None = None  # Read, but starts only when all of these are answered.
        self._is_working = False
        self._is_scheduled = False
        self._throttle: Timer | None = None
        self._beat_ms = 0.0  # When the last request came, if it was a heartbeat.
        self._beats = 0  # Regular heartbeats since another request.
        self._beats_to_rest = 1
        self._memory_size = 0  # The bytes that this channel has from the pool.
        self._waiter: Waiter | None = None
        self._watch = owner.loop.watch(sock, self._on_readable, self._on_writable)
        self._watch.want(reading=True)

    @property
    def is_open(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return self._state in (_State.OPEN, _State.ENDING)

    @property
    def is_muted(self) -> bool:
        """Whether nothing is read: a request or an answer is pending, or it waits for memory or the end of a throttle."""
        return (
            self._state is not _State.OPEN
            or (bool(self._begun) and self._is_waiting())
            or bool(self._outbox.size)
            or self._is_scheduled
            or self._throttle is not None
            or self._waiter is not None
        )

    # the socket -------------------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self.is_muted:
            # Registered here, not when it was muted: most clients send nothing before they have their answer.
            self._watch.want(reading=False)
            return
        frames = self._connection.frames
        try:
            space = frames.space()
            if space is None:
                data = self._sock.recv(self._read_size)
                size = len(data)
                request = self._connection.repeated(data) if self._next is None and frames.is_empty else None
                if request is None:
                    frames.receive_data(data)
                else:
                    self._next = request
            else:
                size = self._sock.recv_into(space)
                frames.filled(size)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(str(error))
            return
        if not size:
            self.lose("the client closed it")
            return
        self.last_active_ms = self._loop.monotonic_ms()
        self._work()

    def _on_writable(self) -> None:
        self.last_active_ms = self._loop.monotonic_ms()
        self._work()

    # requests ---------------------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Send what is pending. If all of it is sent, handle what was received. Repeat until there is nothing to do."""
        if self._is_working:
            return
        self._is_working = True
        left = self._turn_requests
        try:
            while (not self._outbox.size or self._flush()) and left:
                left = self._handle_received(left)
        finally:
            self._is_working = False
        if self._state is not _State.OPEN:
            self._close_if_done()
        watch = self._watch
        # If the socket is read and has nothing to send, its watch stays unchanged. `_on_readable` finds out whether it is muted.
        if (self._outbox.size or watch.is_writing or not watch.is_reading) and self.is_open:
            watch.want(reading=None if self.is_muted else True, writing=bool(self._outbox.size))

    def _close_if_done(self) -> None:
        if self._state is _State.ENDING and not (self._outbox.size or self._begun):
            self.close(self._reason)
        elif self._state is _State.LOST and not (self._begun or self._is_scheduled):
            self.close("")

    def _handle_received(self, limit: int) -> int:
        """Handle up to `limit` requests that are received and may start, until the cork is full. Returns how many may still be handled when
        the answers are sent."""
        received_ms = 0.0  # All requests handled here had arrived before.
        while not self._is_held():
            if self._outbox.size >= _CORK_SIZE:
                return limit
            if not limit:
                self._schedule()
                break
            request = self._next_request()
            if request is None:
                break
            if self._begun and request.api.key != PRODUCE:
                self._next = request
                break
            limit -= 1
            now_ms = self._loop.monotonic_ms()
            received_ms = received_ms or now_ms
            if request.api.key in _HEARTBEATS:
                self._note_heartbeat(received_ms)
            elif self._beat_ms:
                self._end_heartbeats()
            self._handle(RequestContext(self, request, received_ms, now_ms))
            if self._next is None and self._connection.frames.is_empty:
                break
        return 0

    def _note_heartbeat(self, received_ms: float) -> None:
        """Read this connection with the other quiet ones if only regular heartbeats have come for a while."""
        is_regular = self._beat_ms > 0.0 and received_ms - self._beat_ms >= _REGULAR_MS
        self._beats = self._beats + 1 if is_regular else 0
        self._beat_ms = received_ms
        self._watch.rest(self._beats >= self._beats_to_rest)

    def _end_heartbeats(self) -> None:
        """Read this connection at once. If this request may have waited with the quiet ones, it takes more heartbeats until that may
        happen again: so a consumer that commits now and then soon finds its commits read at once."""
        if self._watch.is_quiet:
            self._beats_to_rest *= 2
            self._watch.rest(False)
        self._beats = 0
        self._beat_ms = 0.0

    def hurry(self) -> None:
        """Let no quiet connection of the node wait for a while."""
        self._loop.hurry()

    def _is_waiting(self) -> bool:
        """Whether the next request must wait for the answers to those that have started. There must be some."""
        begun = self._begun
        last = begun[-1]
        return self._next is not None or len(begun) >= self._most_begun or last.holds_next or last.request.api.key != PRODUCE

    def _is_held(self) -> bool:
        """Whether no request may start."""
        return (
            (bool(self._begun) and self._is_waiting())
            or self._is_scheduled
            or self._throttle is not None
            or self._waiter is not None
            or (self._state is not _State.OPEN and self._state is not _State.LOST)
        )

    def _next_request(self) -> Request | None:
        if self._next is not None:
            request, self._next = self._next, None
            return request
        if self._is_bounded and not self._has_memory():
            return None
        try:
            return self._connection.next_event()
        except (DecodeError, ApiError) as error:
            log.warning("Closing %s because of what was received: %s", self.connection_id, error)
            self._end(str(error))
            return None

    def _handle(self, context: RequestContext) -> None:
        self._begun.append(context)
        if context.request.is_unsupported_version:
            context.respond(api_versions_refusal())
        else:
            on_request = self._owner.on_request
            if on_request is not None:
                on_request(context.received_ms)
            self._handler(context)
            if not context.answered_ms:
                context.handled_ms = self._loop.monotonic_ms()
        if self._is_bounded:
            self._release_memory()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._go_on)

    def go_on(self) -> None:
        """Start held requests soon, unless this connection is at work anyway."""
        if not (self._is_working or self._is_scheduled or self._state is _State.CLOSED):
            self._schedule()

    def _go_on(self) -> None:
        self._is_scheduled = False
        self._work()

    # answers ----------------------------------------------------------------------------------------------------------------------

    def is_unanswered(self, context: RequestContext) -> bool:
        """Whether a request still waits for an answer."""
        return context in self._begun

    def answer(self, context: RequestContext, message: Message | None, throttle_ms: int = 0) -> None:
        """Answer a request; None sends nothing."""
        if self._state is _State.CLOSED:
            return
        assert context in self._begun, "a request is answered once"
        if message is None or self._state is _State.LOST:
            buffers = self._connection.send_nothing(context.request)
        else:
            buffers = self._connection.send_response(context.request, message)
        self._begun.remove(context)
        self._outbox.add(buffers)
        context.answered_ms = self._loop.monotonic_ms()
        context.throttle_ms = throttle_ms
        if context.answer is None:
            context.answer = message
        if self._unsent:
            # Clients that do not read may leave thousands of answers. After sending, only the first one is kept for the metrics.
            self._count_errors(context)
        self._unsent.append(context)
        if self._state is _State.LOST:
            self._note_sent()
        if throttle_ms > 0 and self._state is _State.OPEN:
            self._throttle = self._loop.call_later(throttle_ms, self._end_throttle)
        if not (self._is_working or self._is_scheduled or self._has_sent_last()):
            self._schedule()

    def _has_sent_last(self) -> bool:
        """Send the answer at once if no other request waits. Returns whether it is sent and nothing else is to be done.

        So the client continues while this node still has work to do: a leader answers the producer before it parks the follower's fetch.
        If several requests wait, the event that answers one often answers the others. Their answers are sent together at the end of the
        turn.
        """
        if self._begun or self._next is not None or self._throttle is not None or self._state is not _State.OPEN:
            return False
        self._take_answers()
        try:
            if not self._outbox.flush(self._sock):
                return False
        except OSError:
            return False  # It fails again in a turn of its own, where the connection can be closed.
        self._note_sent()
        self._watch.want(reading=True)
        return self._connection.frames.is_empty

    def refuse(self, context: RequestContext) -> None:
        """Close the connection instead of answering."""
        if self._state is _State.CLOSED:
            return
        assert context in self._begun, "a request is answered once"
        self._begun.remove(context)
        context.answered_ms = self._loop.monotonic_ms()
        self._unsent.append(context)
        self._end("the request's handler closed it")
        self._work()

    def _end_throttle(self) -> None:
        self._throttle = None
        self._work()

    def _flush(self) -> bool:
        """Send. Returns whether everything is sent. A connection that fails is lost."""
        if self._state is not _State.OPEN and not self.is_open:
            self._note_sent()
            return True
        self._take_answers()
        try:
            is_sent = self._outbox.flush(self._sock)
            if is_sent and self._unsent:
                self._note_sent()
            return is_sent
        except OSError as error:
            if not isinstance(error, ConnectionError | TimeoutError):
                log.warning("Closing %s because its data can't be sent: %s", self.connection_id, error)
            self.lose(str(error))
            return True

    def _take_answers(self) -> None:
        """Record that the answers' turn to be sent has come."""
        unsent = self._unsent
        if unsent and not unsent[-1].taken_ms:
            now_ms = self._loop.monotonic_ms()
            for one in reversed(unsent):
                if one.taken_ms:
                    break
                one.taken_ms = now_ms

    def _note_sent(self) -> None:
        """Record that the answers were sent, or never will be."""
        unsent, self._unsent = self._unsent, []
        if unsent:
            sent_ms = self._loop.monotonic_ms()
            requests = self._requests
            for one in unsent:
                answered_ms = one.answered_ms
                times = (one.received_ms, one.started_ms, one.handled_ms or answered_ms, answered_ms, one.taken_ms or sent_ms, sent_ms)
                requests.note(one.counted, times, one.throttle_ms, one.conversion_ms, one.temporary_bytes)
                if one.answer is not None:
                    self._count_errors(one)

    def _count_errors(self, context: RequestContext) -> None:
        message, context.answer = context.answer, None
        if message is not None:
            self._requests.count_errors(context.counted.api.name, message, context.counted.version)

    # memory -----------------------------------------------------------------------------------------------------------------------

    def _has_memory(self) -> bool:
        size = self._connection.frames.next_size()
        if size is None or self._memory_size or not 0 < size <= self._owner.settings.socket_request_max_bytes:
            return True  # No frame begins, or only a rejected one.
        if self._owner.memory.try_allocate(size):
            self._memory_size = size
            return True
        self._waiter = self._owner.memory.wait(size, self._memory_granted)
        return False

    def _memory_granted(self) -> None:
        assert self._waiter is not None
        self._memory_size = self._waiter.size
        self._waiter = None
        # The caller is at work for another connection.
        self._schedule()

    def _release_memory(self) -> None:
        size, self._memory_size = self._memory_size, 0
        if size:
            self._owner.memory.release(size)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        """Close when all answers are sent."""
        if self._state is _State.OPEN:
            self._state = _State.ENDING
            self._reason = reason
        elif self._state is _State.LOST:
            self.close(reason)

    def lose(self, reason: str) -> None:
        """Close the socket. Requests that arrived whole are still handled."""
        if self._state is not _State.OPEN:
            self.close(reason)
            return
        log.debug("Connection %s ended: %s", self.connection_id, reason)
        self._state = _State.LOST
        self._outbox.clear()
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        if self._waiter is not None:
            # The request that it waits for has not arrived whole.
            self._waiter.cancel()
            self._waiter = None
        self._close_socket()
        self._work()

    def close(self, reason: str) -> None:
        """Close now. Drops requests that are not handled, and later answers."""
        if self._state is _State.CLOSED:
            return
        was_open = self.is_open
        if was_open and self._is_scheduled:
            self._send_last()
        self._state = _State.CLOSED
        self._note_sent()
        self._begun.clear()
        self._next = None
        self._outbox.clear()
        if self._throttle is not None:
            self._throttle.cancel()
        if self._waiter is not None:
            self._waiter.cancel()
        self._release_memory()
        if was_open:
            log.debug("Closing connection %s: %s", self.connection_id, reason)
            self._close_socket()
        self._owner.has_finished(self)

    def _send_last(self) -> None:
        """Send this turn's answers, as far as the socket accepts them."""
        try:
            self._outbox.flush(self._sock)
        except OSError as error:
            log.debug("The last answers of %s are lost: %s", self.connection_id, error)

    def _close_socket(self) -> None:
        self._watch.close()
        self._sock.close()
        self._owner.has_closed(self)
