"""Peers on loopback, with kops's own server and with servers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kops.broker.network.channel import RequestContext
from kops.broker.network.events.loop import Loop
from kops.broker.network.peer import Peer, Peers, PeerSettings
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, FetchRequest, MetadataRequest, MetadataResponse
from kops.protocol.messages.api_versions_response import ApiVersion, FinalizedFeatureKey
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from tests.support.nodes.networking import PATIENCE_S, LoopThread, Served, answer_to, loopback, metadata_request, open_fds, reset_once

QUICK = PeerSettings(client_id="tests", reconnect_backoff_ms=10, reconnect_backoff_max_ms=20)
VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersion(3, 0, 12), ApiVersion(18, 0, 4), ApiVersion(1, 40, 50)],
    finalized_features=[FinalizedFeatureKey("metadata.version", 29, 7)],
)


class Node:
    """A handler that reports versions, answers requests, and parks those whose name is "park"."""

    def __init__(self) -> None:
        self.parked: list[RequestContext] = []
        self.versions: list[int] = []
        self.most_at_once = 0

    def __call__(self, context: RequestContext) -> None:
        message = context.request.message
        if isinstance(message, ApiVersionsRequest):
            context.respond(VERSIONS)
            return
        self.versions.append(context.request.version)
        answer = answer_to(message)
        assert isinstance(answer, MetadataResponse)
        if answer.cluster_id == "park":
            self.parked.append(context)
        elif answer.cluster_id == "close":
            context.close_connection()
        else:
            context.respond(answer)


class Results:
    """A collector of the arguments of `done`."""

    def __init__(self) -> None:
        self.all: list[str | None] = []

    def __call__(self, result: Message | ApiError) -> None:
        if isinstance(result, ApiError):
            self.all.append(result.name)
        else:
            assert isinstance(result, MetadataResponse)
            self.all.append(result.cluster_id)


@contextmanager
def peer_of(thread: LoopThread, port: int, settings: PeerSettings = QUICK, host: str = "127.0.0.1") -> Iterator[Peer]:
    peer = thread.call(lambda: Peer(thread.loop, host, port, draw=lambda: 0.5, settings=settings))
    try:
        yield peer
    finally:
        thread.call(peer.close)


def ask(served: Served, peer: Peer, *names: str, timeout_ms: int | None = None) -> list[str | None]:
    """Send requests in one turn and wait for all their results."""
    results = Results()

    def send() -> None:
        for name in names:
            peer.send(metadata_request(name), results, timeout_ms=timeout_ms)

    served.thread.call(send)
    served.wait_for(lambda: len(results.all) == len(names))
    return results.all


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_requests_are_answered_in_the_latest_version_that_both_know(host: str) -> None:
    node = Node()
    with Served(node) as served, peer_of(served.thread, served.port(), host=host) as peer:
        assert not peer.is_ready
        assert ask(served, peer, *map(str, range(1000))) == list(map(str, range(1000)))
        assert set(node.versions) == {12}
        assert peer.is_ready
        assert peer.versions is not None
        assert peer.versions.finalized_feature("metadata.version") == 29
        assert peer.versions.finalized_feature("none") == 0
        results = Results()
        served.thread.call(lambda: peer.send(metadata_request("old"), results, versions=range(4, 10)))
        served.thread.call(lambda: peer.send(metadata_request("older"), results, versions=range(1)))
        served.wait_for(lambda: len(results.all) == 2)
        assert node.versions[-2:] == [9, 0]
        assert served.server.connection_count == 1


def test_what_the_node_does_not_know_is_not_sent() -> None:
    errors: list[Message | ApiError] = []
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        requests: list[tuple[Message, range | None]] = [(FetchRequest(), None), (metadata_request("a"), range(13, 14))]
        from kops.protocol.messages import HeartbeatRequest

        requests.append((HeartbeatRequest(), None))
        for message, versions in requests:
            served.thread.call(lambda message=message, versions=versions: peer.send(message, errors.append, versions=versions))  # type: ignore[misc]
        served.wait_for(lambda: len(errors) == 3)
        texts = [str(error) for error in errors]
        assert texts[0] == "The node does not support FETCH with version in range [4,18]. The supported range is [40,50]."
        assert texts[1] == "The node does not support METADATA with version in range [13,13]. The supported range is [0,12]."
        assert texts[2] == "The node does not support HEARTBEAT"
        assert {error.name for error in errors if isinstance(error, ApiError)} == {"UNSUPPORTED_VERSION"}
        assert ask(served, peer, "a") == ["a"]


def test_large_requests_and_responses() -> None:
    name = "n" * 30_000
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        results = Results()
        message = MetadataRequest(topics=[MetadataRequestTopic(name=name) for _ in range(200)])
        served.thread.call(lambda: peer.send(message, results))
        served.wait_for(lambda: len(results.all) == 1)
        assert results.all == [name]


def test_a_node_of_the_same_loop() -> None:
    """Its connection is a pipe, which takes no descriptor. The requests are more than fits into it."""
    node = Node()
    names = [str(number) * 15_000 for number in range(10, 90)]
    with Served(node, loop=Loop()) as served, peer_of(served.thread, served.port()) as peer:
        before = open_fds()
        assert ask(served, peer, *names) == names
        assert open_fds() == before
        assert served.server.connection_count == 1
        assert ask(served, peer, "close") == ["NETWORK_EXCEPTION"]
        assert ask(served, peer, "park", timeout_ms=50) == ["REQUEST_TIMED_OUT"]
        assert ask(served, peer, "c") == ["c"]
        served.thread.call(served.server.stop)
        assert ask(served, peer, "d") == ["NETWORK_EXCEPTION"]
        assert open_fds() == before - 1  # The listener's.


def test_only_so_many_are_in_flight() -> None:
    node = Node()
    settings = PeerSettings(max_in_flight_requests_per_connection=2)
    with Served(node) as served, peer_of(served.thread, served.port(), settings) as peer:
        results = Results()
        for _ in range(5):
            served.thread.call(lambda: peer.send(metadata_request("park"), results))
        for count in range(1, 6):
            served.wait_for(lambda count=count: len(node.parked) == count)  # type: ignore[misc]
            assert served.thread.call(lambda: (peer.in_flight_count, peer.unfinished_count)) == (min(2, 6 - count), 6 - count)
            served.thread.call(lambda: node.parked[-1].respond(MetadataResponse(cluster_id="x")))
            served.wait_for(lambda count=count: len(results.all) == count)  # type: ignore[misc]


def test_a_time_out_ends_the_connection_and_the_next_request_makes_another() -> None:
    node = Node()
    with Served(node) as served, peer_of(served.thread, served.port()) as peer:
        results = Results()
        served.thread.call(lambda: peer.send(metadata_request("a"), results))
        served.wait_for(lambda: results.all == ["a"])
        served.thread.call(lambda: peer.send(metadata_request("park"), results, timeout_ms=100))
        served.thread.call(lambda: peer.send(metadata_request("b"), results))
        served.wait_for(lambda: len(results.all) == 3)
        assert results.all[1:] == ["NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"]
        assert not peer.is_ready
        assert ask(served, peer, "c") == ["c"]
        served.thread.call(lambda: node.parked[0].respond(MetadataResponse()))
        served.wait_for(lambda: served.server.connection_count == 1)
        assert ask(served, peer, "d") == ["d"]


def test_a_time_out_may_lead_to_the_next_request() -> None:
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        results = Results()

        def timed_out(result: Message | ApiError) -> None:
            results(result)
            peer.send(metadata_request("a"), results)

        served.thread.call(lambda: peer.send(metadata_request("park"), timed_out, timeout_ms=100))
        served.wait_for(lambda: len(results.all) == 2)
        assert results.all == ["REQUEST_TIMED_OUT", "a"]


def test_a_connection_that_the_node_ends() -> None:
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        for _ in range(3):
            assert ask(served, peer, "a", "b", "close", "c") == ["a", "b", "NETWORK_EXCEPTION", "NETWORK_EXCEPTION"]


def test_a_node_that_resets_a_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that was paused, and is killed then. It must not end the loop."""
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        monkeypatch.setattr(socket, "socket", reset_once())
        assert ask(served, peer, "a") == ["NETWORK_EXCEPTION"]
        assert ask(served, peer, "b") == ["b"]


def test_a_node_that_is_not_there_and_then_is() -> None:
    with Served(Node()) as served:
        port = served.port()
        with peer_of(served.thread, port) as peer:
            assert ask(served, peer, "a") == ["a"]
            served.thread.call(lambda: served.server.remove_listener("PLAINTEXT"))
            for _ in range(5):
                assert ask(served, peer, "b", "c") == ["NETWORK_EXCEPTION"] * 2
            served.thread.call(lambda: served.server.add_listener(ListenerSettings("PLAINTEXT", "127.0.0.1", port)))
            assert ask(served, peer, "d") == ["d"]


def test_while_waiting_for_the_next_attempt_a_request_may_time_out_by_itself() -> None:
    settings = PeerSettings(reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    with Served(Node()) as served, peer_of(served.thread, served.port(), settings) as peer:
        assert ask(served, peer, "close") == ["NETWORK_EXCEPTION"]
        turns = served.loop.turn_count
        assert ask(served, peer, "a", timeout_ms=50) == ["REQUEST_TIMED_OUT"]
        assert served.loop.turn_count - turns < 100
        assert peer.unfinished_count == 0


def test_closing_ends_what_is_unanswered() -> None:
    node = Node()
    with Served(node) as served, peer_of(served.thread, served.port()) as peer:
        results = Results()
        served.thread.call(lambda: peer.send(metadata_request("park"), results))
        served.wait_for(lambda: len(node.parked) == 1)
        served.thread.call(lambda: peer.send(metadata_request("b"), results))
        served.thread.call(peer.close)
        assert results.all == ["NETWORK_EXCEPTION"] * 2
        assert ask(served, peer, "c") == ["NETWORK_EXCEPTION"]
        served.thread.call(lambda: node.parked[0].respond(MetadataResponse()))


def test_an_answer_may_lead_to_the_next_request_or_to_the_end() -> None:
    with Served(Node()) as served, peer_of(served.thread, served.port()) as peer:
        results = Results()

        def again(result: Message | ApiError) -> None:
            results(result)
            if len(results.all) < 50:
                peer.send(metadata_request("x"), again)
            else:
                peer.close()

        for _ in range(3):
            served.thread.call(lambda: peer.send(metadata_request("x"), again))
        served.wait_for(lambda: not peer.unfinished_count and len(results.all) >= 50)
        assert results.all == ["x"] * 50 + ["NETWORK_EXCEPTION"] * (len(results.all) - 50)


def test_peers_by_id() -> None:
    with Served(Node(), NetworkSettings(listeners=loopback("A", "B"))) as served:
        peers = served.thread.call(lambda: Peers(served.loop, draw=lambda: 0.5, settings=QUICK))
        first = peers.get(1, "127.0.0.1", served.port("A"))
        assert peers.get(1, "127.0.0.1", served.port("A")) is first
        assert ask(served, first, "a") == ["a"]
        moved = served.thread.call(lambda: peers.get(1, "127.0.0.1", served.port("B")))
        assert moved is not first
        assert ask(served, first, "b") == ["NETWORK_EXCEPTION"]
        assert ask(served, moved, "b") == ["b"]
        served.thread.call(peers.close)
        assert ask(served, moved, "c") == ["NETWORK_EXCEPTION"]


# servers that misbehave -----------------------------------------------------------------------------------------------------------------


class Impostor:
    """A server that handles each connection with a function in a thread of its own."""

    def __init__(self, act: Callable[[socket.socket], object]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE_S)
                self._act(connection)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_S)


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def answer(connection: socket.socket, body: bytes) -> tuple[int, int]:
    """Answer the next request. Return (its API, its version), or -1 if the client has closed the connection instead."""
    asked = connection.recv(1000)
    if not asked:
        return -1, -1
    key, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
    connection.sendall(framed(correlation_id, body))
    return key, version


def only_old_versions(connection: socket.socket) -> None:
    """Know ApiVersions up to version 1 and Metadata up to 5, then close the connection."""
    seen.append(answer(connection, struct.pack(">hi hhh", 35, 1, 18, 0, 1)))
    seen.append(answer(connection, struct.pack(">hi hhh hhh i", 0, 2, 18, 0, 1, 3, 0, 5, 0)))
    seen.append(struct.unpack_from(">hh", connection.recv(1000), 4))


seen: list[tuple[int, ...]] = []
REFUSAL = struct.pack(">hi", 35, 0)
ACTS: dict[str, Callable[[socket.socket], object]] = {
    "hangs up at once": lambda connection: None,
    "hangs up after the request": lambda connection: connection.recv(1000),
    "speaks HTTP": lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a response of another request": lambda connection: connection.sendall(framed(777, bytes(20))),
    "a response that is cut short": lambda connection: answer(connection, b"\0\0\0\0\0\5"),
    "an error": lambda connection: answer(connection, struct.pack(">hi", 58, 0)),
    "no version at all": lambda connection: [answer(connection, REFUSAL) for _ in range(3)],
    "only old versions": only_old_versions,
}


@pytest.mark.parametrize("act", ACTS)
def test_nodes_that_are_none(act: str) -> None:
    before = open_fds()
    impostor = Impostor(ACTS[act])
    try:
        with Served(Node()) as served, peer_of(served.thread, impostor.port) as peer:
            for _ in range(3):
                assert ask(served, peer, "a", "b") == ["NETWORK_EXCEPTION"] * 2
    finally:
        impostor.close()
    assert open_fds() == before
    assert seen == ([(18, 4), (18, 1), (3, 5)] * 3 if act == "only old versions" else [])
    seen.clear()


def test_a_node_that_says_nothing() -> None:
    impostor = Impostor(lambda connection: [connection.recv(1000), connection.recv(1000)])
    try:
        settings = PeerSettings(request_timeout_ms=100)
        with Served(Node()) as served, peer_of(served.thread, impostor.port, settings) as peer:
            results = ask(served, peer, "a", timeout_ms=60_000)
            assert results == ["NETWORK_EXCEPTION"]  # the request for its versions timed out
    finally:
        impostor.close()


def test_a_connection_that_is_not_made_in_time() -> None:
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for sock in (one, two):
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        settings = PeerSettings(socket_connection_setup_timeout_ms=100, socket_connection_setup_timeout_max_ms=200)
        with Served(Node()) as served, peer_of(served.thread, full.getsockname()[1], settings) as peer:
            assert ask(served, peer, "a") == ["NETWORK_EXCEPTION"]


def test_a_host_that_is_unknown() -> None:
    with Served(Node()) as served, peer_of(served.thread, 9092, host="no-such-host.invalid") as peer:
        assert ask(served, peer, "a") == ["NETWORK_EXCEPTION"]
