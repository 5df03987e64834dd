"""Hostile bytes close their own connection, with a line in the log, and affect no other."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from kops.broker.network.channel import Channel, RequestContext
from kops.broker.network.settings import NetworkSettings
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.messages import MetadataRequest, MetadataResponse
from tests.support.nodes.networking import Client, Served, answer_to, echo, loopback, metadata_request, open_fds, reset
from tests.support.requests.hostile import frame, mutated, requests
from tests.support.requests.messages import random_message

SMALL = NetworkSettings(listeners=loopback(), socket_request_max_bytes=100_000)
HEADER = struct.Struct(">hhi")


HOSTILE = {
    "size above the limit": struct.pack(">i", 100_001),
    "largest size": b"\x7f\xff\xff\xff",
    "negative size": b"\xff\xff\xff\xff",
    "no request": frame(b""),
    "half a header": frame(b"\0\3\0"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(300),
    "unknown API": frame(HEADER.pack(12345, 0, 1) + b"\xff\xff"),
    "removed API": frame(HEADER.pack(4, 0, 1) + b"\xff\xff"),
    "unknown version": frame(HEADER.pack(3, 99, 1) + b"\xff\xff\0"),
    "negative version": frame(HEADER.pack(3, -1, 1) + b"\xff\xff"),
    "an API of the controller": frame(HEADER.pack(62, 0, 1) + b"\xff\xff\0"),
    "client id that is too long": frame(HEADER.pack(3, 0, 1) + b"\x7f\xff"),
    "array of two billion": frame(HEADER.pack(3, 0, 1) + b"\xff\xff\x7f\xff\xff\xff"),
    "zeros": bytes(1000),
}


def is_alive(client: Client) -> bool:
    client.send(metadata_request("still here"), 12)
    response = client.receive()
    return response is not None and isinstance(response.message, MetadataResponse) and response.message.cluster_id == "still here"


@pytest.mark.parametrize("kind", HOSTILE)
def test_wrong_bytes_close_their_connection(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with Served(echo, SMALL) as served, served.client() as good, served.client() as bad:
        assert is_alive(good)
        port = bad.sock.getsockname()[1]
        # Earlier requests are still answered.
        bad.sock.sendall(bad.encoded(metadata_request("before"), 12) + HOSTILE[kind])
        response = bad.receive()
        assert response is not None
        assert response.message.cluster_id == "before"  # type: ignore[attr-defined]
        assert bad.is_closed()
        assert is_alive(good)
        served.wait_for(lambda: served.server.connection_count == 1)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert f"127.0.0.1:{port}-" in lines[0]


def test_the_largest_request_is_taken() -> None:
    body = HEADER.pack(3, 0, 1) + b"\xff\xff" + bytes(4)
    with Served(echo, SMALL) as served, served.client() as client:
        client.sock.sendall(frame(body + bytes(100_000 - len(body))))
        assert struct.unpack(">ii", client.sock.recv(8, socket.MSG_WAITALL))[1] == 1


def fuzz(seed: int, count: int) -> None:
    """Send mutated requests, several on a connection. Each is answered or ends its connection, and another client is not affected."""
    rng, handler_rng = random.Random(seed), random.Random(-seed)
    kinds = list(requests())
    served_count = 0

    def handler(context: RequestContext) -> None:
        nonlocal served_count
        served_count += 1
        if isinstance(context.request.message, MetadataRequest):
            context.respond(MetadataResponse(cluster_id="?") if not context.request.message.topics else answer_to(context.request.message))
        elif handler_rng.random() < 0.1:
            context.close_connection()
        else:
            context.respond_nothing()

    before = open_fds()
    ports = set()
    with Served(handler, SMALL) as served, served.client() as good:
        for _ in range(count):
            bad = served.client()
            ports.add(bad.sock.getsockname()[1])
            connection = ClientConnection("fuzz")
            for _ in range(rng.randint(1, 3)):
                declared, version = rng.choice(kinds)
                buffers = connection.send_request(random_message(declared, version, rng.randrange(1000)), version)
                data = b"".join(buffers)  # type: ignore[arg-type]
                if rng.random() < 0.5:
                    # The size stays right, so that the error is within the request.
                    data = frame(mutated(data[4:], rng))
                elif rng.random() < 0.8:
                    data = mutated(data, rng)
                try:
                    bad.sock.sendall(data)
                except (BrokenPipeError, ConnectionResetError):
                    break
            if rng.random() < 0.2:
                reset(bad.sock)
            else:
                bad.sock.close()
        assert is_alive(good)

        def left() -> list[Channel]:
            # A client of another program may look for its own server at this port.
            return [channel for channel in served.server._channels if channel.client_port in ports]

        try:
            served.wait_for(lambda: not left())
        except AssertionError:
            raise AssertionError(served.thread.call(lambda: [state_of(channel) for channel in left()])) from None
        assert served_count > count // 4
    assert open_fds() == before


def state_of(channel: Channel) -> str:
    """Return why a connection may still be open."""
    watch, buffered = channel._watch, not channel._connection.frames.is_empty
    flags = f"muted={channel.is_muted} scheduled={channel._is_scheduled} reading={watch.is_reading} writing={watch.is_writing}"
    left = f"begun={len(channel._begun)} next={channel._next is not None} outbox={channel._outbox.size} buffered={buffered}"
    return f"{channel.connection_id} {channel._state.name} {flags} {left}"


def test_mutated_requests() -> None:
    fuzz(1, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_mutated_requests(seed: int) -> None:
    fuzz(seed, 2000)
