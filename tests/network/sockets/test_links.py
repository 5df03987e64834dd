"""The proxy that stands for the network between nodes (`tests.support.nodes.soaks.links`)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.nodes.networking import has_come
from tests.support.nodes.soaks.links import Links

CLIENT_ID = b"raft-client-1"
REQUEST = b"\0\0\0\x17" + b"\0\x12\0\4" + b"\0\0\0\0" + len(CLIENT_ID).to_bytes(2) + CLIENT_ID


class Pair:
    """A connection of node 1 to node 2 through the proxy: `near` is node 1's end, `far` node 2's."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = links.listen(2, self._server.getsockname()[1])
        self.near = self.far = self._server

    def connect(self) -> None:
        """Connect both ends and send the first request."""
        self.near = socket.create_connection(("127.0.0.1", self._port), 10)
        self.far, _ = self._server.accept()
        for sock in (self.near, self.far):
            sock.settimeout(10)
        self.near.sendall(REQUEST)
        assert take(self.far, len(REQUEST)) == REQUEST

    def close(self) -> None:
        """Close all sockets."""
        for sock in (self.near, self.far, self._server):
            sock.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    links = Links(1)
    made = Pair(links)
    with links:
        made.connect()
        yield made
        made.close()


def take(sock: socket.socket, size: int) -> bytes:
    """Read this many bytes."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, f"{len(data)} of {size} bytes came"
        data += piece
    return data


def nothing_comes(sock: socket.socket, for_s: float = 0.1) -> bool:
    """Return whether nothing can be read for a while."""
    return not has_come(sock, for_s)


def test_both_directions(pair: Pair) -> None:
    pair.far.sendall(b"answer")
    assert pair.near.recv(100) == b"answer"
    assert pair.links.seen == {(1, 2)}
    big = bytes(range(256)) * 10_000
    pair.near.sendall(big[:100_000])
    assert take(pair.far, 100_000) == big[:100_000]


def test_a_cut_in_one_direction(pair: Pair) -> None:
    pair.links.wire(1, 2).is_cut = True
    pair.near.sendall(b"request")
    pair.far.sendall(b"answer")
    assert pair.near.recv(100) == b"answer"
    assert nothing_comes(pair.far)
    pair.links.heal()
    assert pair.far.recv(100) == b"request"


def test_the_end_waits_behind_a_cut(pair: Pair) -> None:
    pair.links.wire(2, 1).is_cut = True
    pair.far.sendall(b"last")
    pair.far.close()
    assert nothing_comes(pair.near)
    pair.links.heal()
    assert pair.near.recv(100) == b"last"
    assert pair.near.recv(100) == b""


def test_a_delay(pair: Pair) -> None:
    pair.links.wire(1, 2).delay_s = 0.15
    began = time.monotonic()
    pair.near.sendall(b"request")
    assert pair.far.recv(100) == b"request"
    assert time.monotonic() - began >= 0.15


def test_a_narrow_wire(pair: Pair) -> None:
    pair.links.wire(1, 2).bytes_per_s = 10_000
    began = time.monotonic()
    for _ in range(20):
        pair.near.sendall(bytes(100))
    assert take(pair.far, 2_000) == bytes(2_000)
    assert time.monotonic() - began >= 0.2


def test_a_reset(pair: Pair) -> None:
    pair.links.reset(2, 1)
    for sock in (pair.near, pair.far):
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_lost_packets_come_late_or_end_the_connection(pair: Pair) -> None:
    pair.links.wire(1, 2).loss = 1.0
    began = time.monotonic()
    pair.near.sendall(b"request")
    try:
        assert pair.far.recv(100) == b"request"
    except ConnectionResetError:
        return
    assert time.monotonic() - began >= 0.2


def test_more_than_fits_waits(pair: Pair) -> None:
    pair.near.settimeout(0.3)
    with pytest.raises(TimeoutError):
        for _ in range(1_000):
            pair.near.sendall(bytes(1 << 16))
