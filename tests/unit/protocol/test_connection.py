"""Connections without sockets: frames in any pieces, headers, order, and what ends them."""

from __future__ import annotations

import struct

import pytest

from kops.errors import ApiError, DecodeError
from kops.protocol.api_keys import Listener
from kops.protocol.connections.connection import ClientConnection, Request, ServerConnection, api_versions_refusal
from kops.protocol.connections.frames import FrameReader
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    RequestHeader,
    SaslHandshakeRequest,
    VoteRequest,
)
from kops.protocol.structure import Encoded

pytestmark = pytest.mark.hot


def joined(buffers: list[Encoded]) -> bytes:
    return b"".join(buffers)  # type: ignore[arg-type]


def next_bytes(reader: FrameReader) -> bytes | None:
    frame = reader.next_frame()
    return None if frame is None else bytes(frame)


def request(server: ServerConnection) -> Request:
    found = server.next_event()
    assert found is not None
    return found


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_both_ends_in_pieces(piece: int) -> None:
    server, client = ServerConnection(), ClientConnection("me", first_correlation_id=2**31 - 1)
    asked: list[tuple[Message, int]] = [
        (MetadataRequest(topics=None), 12),
        (ListGroupsRequest(), 0),
        (ApiVersionsRequest("kops", "1"), 4),
        (SaslHandshakeRequest("PLAIN"), 1),
    ]
    stream = b"".join(joined(client.send_request(message, version)) for message, version in asked)
    found = []
    for start in range(0, len(stream), piece):
        server.receive_data(stream[start : start + piece])
        while (event := server.next_event()) is not None:
            found.append(event)
    assert [(one.message, one.version) for one in found] == asked
    assert [(one.correlation_id, one.client_id) for one in found] == [(2**31 - 1, "me"), (0, "me"), (1, "me"), (2, "me")]
    assert client.in_flight_count == server.unanswered_count == 4
    out = joined(server.send_response(found[0], MetadataResponse(cluster_id="c")))
    out += joined(server.send_response(found[1], ListGroupsResponse()))
    for start in range(0, len(out), piece):
        client.receive_data(out[start : start + piece])
    first, second = client.next_event(), client.next_event()
    assert first is not None and first.message == MetadataResponse(cluster_id="c") and first.correlation_id == 2**31 - 1
    assert second is not None and second.api.name == "ListGroups" and client.next_event() is None


def test_a_header_is_read_again_where_it_differs_from_the_last_one() -> None:
    server = ServerConnection()
    frames: list[bytes] = []
    # The same API and version with another client id, a longer one, none, and a tagged field in the header.
    for client_id in ("me", "me", "you", "somebody else", None, "me"):
        frames.append(joined(ClientConnection(client_id, first_correlation_id=len(frames)).send_request(MetadataRequest(topics=None), 12)))
    body = joined(MetadataRequest(topics=None).write(12))
    header = joined(RequestHeader(3, 12, len(frames), "me").write(2))[:-1] + b"\1\5\1x"
    frames.append(struct.pack(">i", len(header) + len(body)) + header + body)
    server.receive_data(b"".join(frames))
    found = [request(server) for _ in frames]
    assert [one.client_id for one in found] == ["me", "me", "you", "somebody else", "", "me", "me"]
    assert [one.correlation_id for one in found] == list(range(len(frames)))
    assert all(one.message == MetadataRequest(topics=None) and one.version == 12 for one in found)
    with pytest.raises(DecodeError):
        server.receive_data(struct.pack(">ihhi", 8, 3, 12, 1))
        server.next_event()


def test_responses_leave_in_the_order_of_requests() -> None:
    server, client = ServerConnection(), ClientConnection()
    for message, version in ((MetadataRequest(), 1), (ProduceRequest(acks=0), 9), (ListGroupsRequest(), 5)):
        server.receive_data(joined(client.send_request(message, version, expect_response=message.API_KEY != 0)))
    metadata, produce, groups = request(server), request(server), request(server)
    assert server.send_response(groups, ListGroupsResponse()) == []
    assert server.send_nothing(produce) == []
    client.receive_data(joined(server.send_response(metadata, MetadataResponse())))
    assert server.unanswered_count == 0
    answered = [client.next_event(), client.next_event()]
    assert [one.api.name for one in answered if one is not None] == ["Metadata", "ListGroups"]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    server, client = ServerConnection(), ClientConnection("new")
    asked = bytearray(joined(client.send_request(ApiVersionsRequest("x", "y"), 4)))
    asked[6:8] = struct.pack(">h", 99)
    server.receive_data(asked + b"")
    found = request(server)
    assert (found.version, found.requested_version, found.is_unsupported_version) == (0, 99, True)
    client.receive_data(joined(server.send_response(found, api_versions_refusal())))
    response = client.next_event()
    assert response is not None and isinstance(response.message, ApiVersionsResponse) and response.version == 0
    (versions,) = response.message.api_keys
    assert (response.message.error_code, versions.api_key, versions.min_version, versions.max_version) == (35, 18, 0, 4)


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (b"", DecodeError, "a request of 0 byte"),
        (struct.pack(">hhi", 999, 0, 1), ApiError, "Unexpected api key: 999"),
        (struct.pack(">hhih", 7, 0, 1, -1), ApiError, "Unsupported api with key 7"),
        (struct.pack(">hhih", 3, 99, 1, -1), DecodeError, "within a field"),
        (struct.pack(">hhihB", 3, 99, 1, -1, 0), ApiError, "unsupported version"),
        (struct.pack(">hhihB", 52, 0, 1, -1, 0), ApiError, "disabled api"),
        (struct.pack(">hhihB", 22, 6, 1, -1, 0), ApiError, "disabled api"),
        (struct.pack(">hhih", 3, 1, 1, 20), DecodeError, "clientId has a length of 20, 0 byte"),
        (struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1), DecodeError, "topics has a length"),
    ],
)
def test_what_ends_a_connection(frame: bytes, error: type[Exception], words: str) -> None:
    server = ServerConnection()
    server.receive_data(struct.pack(">i", len(frame)) + frame)
    with pytest.raises(error, match=words):
        server.next_event()


def test_listeners_and_unstable_versions() -> None:
    client = ClientConnection()
    server = ServerConnection(Listener.CONTROLLER)
    server.receive_data(joined(client.send_request(VoteRequest(), 2)))
    assert request(server).api.name == "Vote"
    server = ServerConnection(unstable_versions=True)
    server.receive_data(joined(client.send_request(InitProducerIdRequest(transactional_id=None), 6)))
    assert request(server).version == 6


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_sizes_that_can_not_be(size: int) -> None:
    reader = FrameReader(100)
    reader.receive_data(struct.pack(">i", 100) + bytes(100) + struct.pack(">i", size))
    assert next_bytes(reader) == bytes(100)
    with pytest.raises(DecodeError, match="Invalid receive") as caught:
        reader.next_frame()
    assert caught.value.position == 104


def test_a_long_frame_is_received_in_place() -> None:
    """The rest of the frame can be received straight into its buffer. Whole frames are views of the received data."""
    reader = FrameReader()
    assert reader.space() is None
    reader.receive_data(struct.pack(">i", 10) + b"abc")
    assert reader.next_frame() is None
    space = reader.space()
    assert space is not None and len(space) == 7
    space[:4] = b"defg"
    reader.filled(4)
    reader.receive_data(b"hij" + struct.pack(">i", 2) + b"xy" + b"\x00")
    assert reader.space() is None
    assert (next_bytes(reader), next_bytes(reader), next_bytes(reader)) == (b"abcdefghij", b"xy", None)
    chunk = struct.pack(">i", 3) + b"123"
    reader = FrameReader()
    reader.receive_data(chunk)
    frame = reader.next_frame()
    assert frame is not None and frame.obj is chunk


def test_equal_heartbeats_are_read_once() -> None:
    server, client = ServerConnection(), ClientConnection("me", first_correlation_id=5)

    def received(message: Message, version: int) -> Request:
        server.receive_data(joined(client.send_request(message, version)))
        found = request(server)
        server.send_nothing(found)
        return found

    beat = HeartbeatRequest("g", 1, "m")
    first, second, third = (received(beat, 4) for _ in range(3))
    assert third.message is second.message, "the first one had a header that was not known yet"
    assert [one.correlation_id for one in (first, second, third)] == [5, 6, 7]
    assert first.message == third.message == beat
    assert (third.size, third.body_size, third.client_id) == (second.size, second.body_size, "me")
    assert received(HeartbeatRequest("g", 2, "m"), 4).message == HeartbeatRequest("g", 2, "m")
    assert received(beat, 4).message == beat
    assert received(beat, 3).message == received(beat, 3).message == beat
    consumer = ConsumerGroupHeartbeatRequest("g", "m", 3)
    assert [received(consumer, 1).message for _ in range(3)] == [consumer] * 3
    listed = [received(ListGroupsRequest(), 0).message for _ in range(3)]
    assert listed[1] is not listed[2], "handlers may change other requests"


def test_a_heartbeat_that_repeats_the_last_one() -> None:
    """Only the correlation id may differ."""
    server, client = ServerConnection(), ClientConnection("me")
    beat, other = HeartbeatRequest("g", 1, "m"), HeartbeatRequest("g", 2, "m")
    frames = [joined(client.send_request(message, 4)) for message in (beat, beat, beat, other, other, beat)]
    assert server.repeated(frames[0]) is None, "there is no last one"
    messages = []
    for frame in frames[:2]:
        server.receive_data(frame)
        messages.append(request(server).message)
    frames[2] = frames[2][:8] + struct.pack(">i", -7) + frames[2][12:]
    third = server.repeated(frames[2])
    assert third is not None
    assert third.message is messages[1]
    assert (third.correlation_id, third.version, third.client_id) == (-7, 4, "me")
    assert (third.size, third.body_size) == (len(frames[2]) - 4, len(beat.encode(4)))
    assert server.unanswered_count == 3
    longer = joined(client.send_request(HeartbeatRequest("g", 1, "mm"), 4))
    old = joined(client.send_request(beat, 3))
    for different in (frames[3], frames[2] + frames[2], frames[2][:-1], b"", longer, old, bytearray(frames[2])):
        assert server.repeated(different) is None
    server.receive_data(frames[3])
    assert request(server).message == other
    fifth = server.repeated(frames[4])
    assert fifth is not None and fifth.message == other
    assert server.repeated(frames[5]) is None, "it repeats an earlier one"


def test_answers_that_are_the_same_message() -> None:
    server, client = ServerConnection(), ClientConnection("me")
    alive, bad = HeartbeatResponse(), HeartbeatResponse(error_code=25)
    given = [alive, alive, alive, bad, alive, alive, HeartbeatResponse(), HeartbeatResponse(error_code=27)]
    for version in (4, 0):
        for message in given:
            server.receive_data(joined(client.send_request(HeartbeatRequest("g", 1, "m"), version)))
            client.receive_data(joined(server.send_response(request(server), message)))
            response = client.next_event()
            assert response is not None and response.message == message
    last = [server.repeated(joined(client.send_request(HeartbeatRequest("g", 1, "m"), 0))) for _ in range(3)]
    sent = [server.send_response(one, alive) for one in reversed(last) if one is not None]
    assert [len(buffers) for buffers in sent] == [0, 0, 3], "answers wait for those of earlier requests"
    client.receive_data(b"".join(map(joined, sent)))
    found = [client.next_event() for _ in last]
    assert [one is not None and one.message for one in found] == [alive] * 3


@pytest.mark.parametrize("answer", [b"\x00\x00\x00\x09", b"\x00\x00"])
def test_responses_that_can_not_be(answer: bytes) -> None:
    client = ClientConnection()
    client.receive_data(struct.pack(">i", len(answer)) + answer)
    with pytest.raises(DecodeError, match="a response without a request"):
        client.next_event()
    client.send_request(ListGroupsRequest(), 0)
    client.receive_data(struct.pack(">i", len(answer)) + answer)
    with pytest.raises(DecodeError):
        client.next_event()


def test_a_response_that_can_not_be_written_leaves_the_request_waiting() -> None:
    server, client = ServerConnection(), ClientConnection()
    server.receive_data(joined(client.send_request(ListGroupsRequest(), 0)))
    found = request(server)
    with pytest.raises(ApiError):
        server.send_response(found, FetchResponse())
    assert server.unanswered_count == 1
    assert server.send_response(found, ListGroupsResponse())


def test_a_long_frame_takes_memory_as_its_bytes_come() -> None:
    reader = FrameReader()
    body = bytes(range(256)) * 80_000
    reader.receive_data(len(body).to_bytes(4, "big") + body[:10])
    assert reader.next_size() == len(body)
    assert reader.next_frame() is None
    assert reader.next_size() is None
    position = 10
    held = []
    while (space := reader.space()) is not None:
        assert position + len(space) <= max(16 * position, 16 << 10)
        size = min(len(space), 3_000_000)
        space[:size] = body[position : position + size]
        reader.filled(size)
        held.append(space)
        position += size
        assert (reader.next_size(), position <= len(body)) == (None, True)
    assert next_bytes(reader) == body
    reader.receive_data(len(body).to_bytes(4, "big") + body[:10])
    assert reader.next_frame() is None
    reader.receive_data(body[10:] + b"\0\0\0\1x")
    assert next_bytes(reader) == body
    assert next_bytes(reader) == b"x"


def test_a_frame_as_large_as_an_earlier_one_gets_its_memory_at_once() -> None:
    reader = FrameReader()
    body = bytes(1_000_000)
    for is_first in (True, False):
        reader.receive_data(len(body).to_bytes(4, "big") + body[:10])
        assert reader.next_frame() is None
        space = reader.space()
        assert space is not None and (len(space) == len(body) - 10) is not is_first
        reader.receive_data(body[10:])
        assert next_bytes(reader) == body
