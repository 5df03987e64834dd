"""A connection without its socket: bytes in, requests or responses out, for both ends.

Source: Kafka's RequestHeader, ResponseHeader, RequestContext and SocketServer.parseRequestHeader (errors that end a connection),
NetworkClient and InFlightRequests (correlation), KIP-511 (ApiVersions). An error raised by `next_event` ends the connection: the rest of
its stream can't be read.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, DecodeError
from kops.protocol import api_keys
from kops.protocol.api_keys import API_VERSIONS, CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, ApiKey, Listener
from kops.protocol.connections.frames import MAX_SIZE, SIZE, FrameReader, framed
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.primitives import Buffer, read_message, write_message
from kops.protocol.registry import request_class, response_class
from kops.protocol.structure import Encoded, Reader

MAX_REQUEST_SIZE: Final = 100 * 1024 * 1024  # default of socket.request.max.bytes
_REQUEST_START: Final = struct.Struct(">hhi")
_RESPONSE_START: Final = struct.Struct(">ii")
_REPEATED: Final = frozenset((HEARTBEAT, CONSUMER_GROUP_HEARTBEAT))  # Handlers must change neither these messages nor their answers.
_SHARED_AT_MOST: Final = 1024  # bytes
# The positions in a request or a response that begins with its size.
_CORRELATION_ID_AT: Final = SIZE.size + 4
_AFTER_CORRELATION_ID: Final = _CORRELATION_ID_AT + 4
_ANSWERED_ID_AT: Final = SIZE.size
_FLEXIBLE_RESPONSE_HEADER: Final = struct.Struct(">iB")


@mypyc_attr(acyclic=True)
class Request:
    """A received request. Its response is written in `version`, which is 0 for an ApiVersions request of an unknown version.

    `size` is that of its frame, `body_size` that of the message in it, or 0 if it was not read. `known` is for the connection's use.
    """

    __slots__ = (
        "api",
        "body_size",
        "client_id",
        "correlation_id",
        "known",
        "message",
        "requested_version",
        "response",
        "size",
        "version",
    )

    def __init__(
        self,
        api: ApiKey,
        version: int,
        requested_version: int,
        correlation_id: int,
        client_id: str,
        message: Message,
        size: int,
        body_size: int = 0,
    ) -> None:
        self.api = api
        self.version = version
        self.requested_version = requested_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.message = message
        self.size = size
        self.body_size = body_size
        self.response: list[Encoded] | None = None
        self.known: _KnownHeader | None = None

    @property
    def is_unsupported_version(self) -> bool:
        """Whether it is an ApiVersions request of an unknown version, which `api_versions_refusal` answers."""
        return self.version != self.requested_version


@mypyc_attr(acyclic=True)
class Response:
    """A response with the request that it answers."""

    __slots__ = ("api", "correlation_id", "message", "size", "version")

    def __init__(self, api: ApiKey, version: int, correlation_id: int, message: Message, size: int) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.message = message
        self.size = size


class ServerConnection:
    """A server's end. Requests may be answered in any order. Responses are sent in the order of the requests. `frames` is the
    stream, for `recv_into`."""

    __slots__ = ("_known", "_listener", "_repeated", "_unanswered", "_unstable", "frames")

    def __init__(
        self, listener: Listener = Listener.BROKER, *, max_request_size: int = MAX_REQUEST_SIZE, unstable_versions: bool = False
    ) -> None:
        self.frames = FrameReader(max_request_size)
        self._listener = listener
        self._unstable = unstable_versions
        self._unanswered: deque[Request] = deque()
        self._known: dict[tuple[int, int], _KnownHeader] = {}
        self._repeated: _KnownHeader | None = None  # of the last heartbeat

    @property
    def unanswered_count(self) -> int:
        """The number of requests whose responses have not been sent."""
        return len(self._unanswered)

    def receive_data(self, data: Buffer) -> None:
        """Take bytes from the client."""
        self.frames.receive_data(data)

    def repeated(self, data: Buffer) -> Request | None:
        """Return the request in `data` if it differs from the last heartbeat only in its correlation id. Otherwise return None, and
        do nothing. All that was received before must have been returned."""
        known = self._repeated
        if known is None or not isinstance(data, bytes) or len(data) != len(known.frame):
            return None
        last = known.frame
        if data[_AFTER_CORRELATION_ID:] != last[_AFTER_CORRELATION_ID:] or data[:_CORRELATION_ID_AT] != last[:_CORRELATION_ID_AT]:
            return None
        message = known.message
        assert message is not None
        size = len(data) - SIZE.size
        (correlation_id,) = SIZE.unpack_from(data, _CORRELATION_ID_AT)
        request = Request(known.api, known.version, known.version, correlation_id, known.client_id, message, size, size - known.size)
        request.known = known
        self._unanswered.append(request)
        return request

    def next_event(self) -> Request | None:
        """Return the next request, or None until more bytes are received. The caller must close the connection after an error: DecodeError
        for bytes that are not a request, ApiError for an API or a version that is not served here (INVALID_REQUEST,
        UNSUPPORTED_VERSION)."""
        frame = self.frames.next_frame()
        if frame is None:
            return None
        request = self._read_known(frame) or self._read_new(frame)
        self._unanswered.append(request)
        return request

    def _read_known(self, frame: memoryview) -> Request | None:
        """Parse a request whose header equals the previous one of the same API and version, as nearly all do."""
        if len(frame) < _REQUEST_START.size:
            return None
        key, version, correlation_id = _REQUEST_START.unpack_from(frame)
        known = self._known.get((key, version))
        if known is None or frame[_REQUEST_START.size : known.size] != known.rest:
            return None
        size = len(frame)
        is_repeated = key in _REPEATED and size - known.size <= _SHARED_AT_MOST
        message = self._shared_message(known, frame) if is_repeated else known.read(frame, known.size)[0]
        request = Request(known.api, version, version, correlation_id, known.client_id, message, size, size - known.size)
        request.known = known if is_repeated else None
        return request

    def _shared_message(self, known: _KnownHeader, frame: memoryview) -> Message:
        """Return the last message with this header if the frame repeats it, else the frame's, which the next one may repeat."""
        message = known.message
        body = bytes(frame[known.size :])
        if message is None or known.frame[SIZE.size + known.size :] != body:
            message, _ = known.read(frame, known.size)
            known.message = message
            known.frame = SIZE.pack(len(frame)) + bytes(frame)
        self._repeated = known
        return message

    def _read_new(self, frame: memoryview) -> Request:
        request, header_size = _read_request(frame, self._listener, unstable_versions=self._unstable)
        message = type(request.message)
        # The rest of an ApiVersions request of an unknown version is not read.
        if request.version == request.requested_version:
            rest = bytes(frame[_REQUEST_START.size : header_size])
            reader = message.READERS[request.version]
            known = _KnownHeader(request.api, request.version, rest, header_size, request.client_id, reader)
            self._known[request.api.key, request.version] = known
        return request

    def send_response(self, request: Request, message: Message) -> list[Encoded]:
        """Return the buffers to send now: this response and those that waited for it, or none while an earlier request is unanswered.

        Raises ApiError as `Message.write` does. The request then still waits for a response.
        """
        known = request.known
        response = _response(request, message) if known is None else [known.answered(request, message)]
        unanswered = self._unanswered
        if len(unanswered) == 1 and unanswered[0] is request:
            unanswered.clear()
            return response
        request.response = response
        return self._ready()

    def send_nothing(self, request: Request) -> list[Encoded]:
        """Finish a request without a response (a Produce with acks=0). Returns the responses that waited for it."""
        request.response = []
        return self._ready()

    def _ready(self) -> list[Encoded]:
        buffers: list[Encoded] = []
        while self._unanswered and self._unanswered[0].response is not None:
            buffers += self._unanswered.popleft().response or ()
        return buffers


def _response(request: Request, message: Message) -> list[Encoded]:
    """Return the buffers of a response."""
    out = bytearray(_RESPONSE_START.pack(0, request.correlation_id))
    if _response_header_version(request.api, request.version):
        out.append(0)
    return framed(write_message(message, request.version, out))


_response_header_versions: Final[dict[tuple[int, int], int]] = {}


def _response_header_version(api: ApiKey, version: int) -> int:
    """Return what the API says, which is asked for each answer."""
    key = (api.key, version)
    known = _response_header_versions.get(key)
    if known is None:
        known = _response_header_versions[key] = api.response_header_version(version)
    return known


class _KnownHeader:
    """A request's header after its correlation id, up to `size` bytes of the frame, and its contents.

    For heartbeats also the last one, which begins with its size, its message and its answer. The next one shares what is the same.
    """

    __slots__ = ("answer", "answer_bytes", "api", "client_id", "frame", "message", "read", "rest", "size", "version")

    def __init__(self, api: ApiKey, version: int, rest: bytes, size: int, client_id: str, read: Reader) -> None:
        self.api = api
        self.version = version
        self.rest = rest
        self.size = size
        self.client_id = client_id
        self.read = read
        self.frame = b""
        self.message: Message | None = None
        self.answer: Message | None = None
        self.answer_bytes: bytes | None = None  # from its second time on

    def answered(self, request: Request, message: Message) -> Encoded:
        """Return a heartbeat's response. Raises ApiError as `Message.write` does."""
        is_shared = message is self.answer
        if is_shared and self.answer_bytes is not None:
            out = bytearray(self.answer_bytes)
            SIZE.pack_into(out, _ANSWERED_ID_AT, request.correlation_id)
            return out
        (response,) = _response(request, message)
        assert isinstance(response, bytearray)
        self.answer = message
        self.answer_bytes = bytes(response) if is_shared else None
        return response


def read_request(frame: Buffer, listener: Listener = Listener.BROKER, *, unstable_versions: bool = False) -> Request:
    """Parse the request in a frame. Raises the errors of `ServerConnection.next_event`."""
    return _read_request(frame, listener, unstable_versions=unstable_versions)[0]


def _read_request(frame: Buffer, listener: Listener, *, unstable_versions: bool) -> tuple[Request, int]:
    """Return (request, size of its header)."""
    if len(frame) < _REQUEST_START.size:
        raise DecodeError(f"a request of {len(frame)} byte(s)", code="bad-request", position=0)
    key, version, correlation_id = _REQUEST_START.unpack_from(frame)
    api = api_keys.by_key(key)
    if not len(api.versions):
        raise ApiError("INVALID_REQUEST", f"Unsupported api with key {key} ({api.name}) and version {version}")
    from kops.protocol.messages import ApiVersionsRequest, RequestHeader

    header, position = RequestHeader.read(frame, api.request_header_version(version))
    client_id = header.client_id or ""
    if key == API_VERSIONS and version not in api.versions:
        return Request(api, 0, version, correlation_id, client_id, ApiVersionsRequest(), len(frame)), position
    if listener not in api.listeners or version not in api.served_versions(unstable=unstable_versions):
        name = "INVALID_REQUEST" if version in api.versions else "UNSUPPORTED_VERSION"
        what = "disabled api" if version in api.versions else "api of an unsupported version"
        raise ApiError(name, f"Received request for {what}: key {key} ({api.name}), version {version}")
    message, _ = read_message(request_class(api), frame, version, position)
    size = len(frame)
    return Request(api, version, version, correlation_id, client_id, message, size, size - position), position


def api_versions_refusal() -> Message:
    """Return the answer to an ApiVersions request of an unknown version: the known versions, written as version 0."""
    from kops.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

    versions = api_keys.by_key(API_VERSIONS).versions
    known = ApiVersion(api_key=API_VERSIONS, min_version=versions.start, max_version=versions.stop - 1)
    return ApiVersionsResponse(error_code=by_name("UNSUPPORTED_VERSION").code, api_keys=[known])


class ClientConnection:
    """A client's end: a stream of requests, and responses in the same order. `frames` is the stream, for `recv_into`."""

    __slots__ = ("_client_id", "_in_flight", "_next_correlation_id", "_starts", "frames")

    def __init__(self, client_id: str | None = None, *, max_response_size: int = MAX_SIZE, first_correlation_id: int = 0) -> None:
        self._client_id = client_id
        self.frames = FrameReader(max_response_size)
        self._in_flight: deque[tuple[int, ApiKey, int]] = deque()
        self._next_correlation_id = first_correlation_id
        self._starts: dict[tuple[int, int], bytes] = {}

    @property
    def in_flight_count(self) -> int:
        """The number of requests without a response."""
        return len(self._in_flight)

    def send_request(self, message: Message, version: int, *, expect_response: bool = True) -> list[Encoded]:
        """Return the buffers of a request. Its correlation id is the last one plus one. Raises ApiError as `Message.write` does."""
        assert message.API_KEY is not None
        api = api_keys.BY_KEY[message.API_KEY]
        correlation_id = self._next_correlation_id
        start = self._starts.get((api.key, version)) or self._start_of(api, version)
        out = bytearray(start)
        SIZE.pack_into(out, _CORRELATION_ID_AT, correlation_id)
        buffers = framed(write_message(message, version, out))
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        if expect_response:
            self._in_flight.append((correlation_id, api, version))
        return buffers

    def _start_of(self, api: ApiKey, version: int) -> bytes:
        """Return the beginning of requests of this version: space for the size, and the header. Only their correlation ids differ."""
        from kops.protocol.messages import RequestHeader

        header = RequestHeader(api.key, version, 0, self._client_id)
        (start,) = header.write(api.request_header_version(version), bytearray(SIZE.size))
        assert isinstance(start, bytearray)
        return self._starts.setdefault((api.key, version), bytes(start))

    def receive_data(self, data: Buffer) -> None:
        """Take bytes from the server."""
        self.frames.receive_data(data)

    def next_event(self) -> Response | None:
        """Return the next response, or None until more bytes are received. Raises DecodeError if it does not answer the oldest request in
        flight."""
        frame = self.frames.next_frame()
        if frame is None:
            return None
        if not self._in_flight:
            raise DecodeError("a response without a request", code="bad-response")
        correlation_id, api, version = self._in_flight.popleft()
        answered_id, position = _read_response_header(frame, _response_header_version(api, version))
        if answered_id != correlation_id:
            reason = f"a response with correlation id {answered_id}, but the {api.name} request has {correlation_id}"
            raise DecodeError(reason, code="bad-response", position=0)
        declared = response_class(api)
        try:
            message, _ = read_message(declared, frame, version, position)
        except DecodeError:
            # A server that does not know the version of an ApiVersions request answers in version 0.
            if api.key != API_VERSIONS or version == 0:
                raise
            version = 0
            message, _ = read_message(declared, frame, version, position)
        return Response(api, version, correlation_id, message, len(frame))


def _read_response_header(frame: Buffer, version: int) -> tuple[int, int]:
    """Return (correlation id, position after the header). Raises DecodeError."""
    if version and len(frame) >= _FLEXIBLE_RESPONSE_HEADER.size:
        correlation_id, tagged_count = _FLEXIBLE_RESPONSE_HEADER.unpack_from(frame)
        if not tagged_count:
            return correlation_id, _FLEXIBLE_RESPONSE_HEADER.size
    from kops.protocol.messages import ResponseHeader

    header, position = ResponseHeader.read(frame, version)
    return header.correlation_id, position
