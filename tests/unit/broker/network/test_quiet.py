"""Sockets that only send heartbeats: when they are read at once, when together, and how they come to be such and cease to be."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from kops.broker.network.events.loop import Watch
from kops.broker.network.events.poller import EpollPoller, SelectorPoller
from kops.broker.network.events.quiet import AWAKE_MS, HURRY_MS, SOON_MS, TOGETHER_MS
from kops.broker.network.settings import NetworkSettings
from kops.broker.network.socket_server import RequestContext, SocketServer
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.support.nodes.networking import loopback
from tests.unit.broker.network.test_loop import ClockLoop

pytestmark = pytest.mark.hot


class Sockets:
    """Watched sockets. `seen` has the bytes that were read."""

    def __init__(self, loop: ClockLoop, ended: ExitStack) -> None:
        self.loop = loop
        self.seen: list[bytes] = []
        self._ended = ended
        loop.time_ms = 1000.0

    def add(self) -> tuple[Watch, socket.socket]:
        """Return the watch of a socket, which is read, and the client's end."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            self._ended.callback(end.close)
        watch = self.loop.watch(ours, lambda: self.seen.append(ours.recv(100)), lambda: None)
        watch.want(reading=True)
        return watch, theirs

    def that_wait(self, count: int) -> list[tuple[Watch, socket.socket]]:
        """Return quiet sockets. Two of them have sent a heartbeat each, so from now on all wait."""
        quiet = [self.add() for _ in range(count)]
        for watch, client in quiet[:2]:
            watch.rest(is_quiet=True)
            client.send(b"first")
            assert self.after(1) == [b"first"]
        for watch, _ in quiet[2:]:
            watch.rest(is_quiet=True)
        return quiet

    def after(self, ms: float) -> list[bytes]:
        """Let some time pass and the loop do what is due. Returns what it has read."""
        assert self.loop.time_ms is not None
        self.loop.time_ms += ms
        for _ in range(3):
            self.loop.run_once(0)
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Provide sockets on a loop with epoll."""
    with ExitStack() as ended:
        yield Sockets(ended.enter_context(closing(ClockLoop(EpollPoller()))), ended)


def test_a_socket_alone_is_read_at_once(sockets: Sockets) -> None:
    watch, client = sockets.add()
    watch.rest(is_quiet=True)
    for _ in range(3):
        client.send(b"a")
        assert sockets.after(0) == [b"a"]
        assert sockets.after(TOGETHER_MS) == []


def test_many_are_read_together_and_others_at_once(sockets: Sockets) -> None:
    quiet = [sockets.add() for _ in range(4)]
    for watch, _ in quiet:
        watch.rest(is_quiet=True)
    _, other = sockets.add()
    quiet[0][1].send(b"0")
    assert sockets.after(0) == [b"0"]
    quiet[1][1].send(b"1")
    assert sockets.after(SOON_MS - 1) == [b"1"]
    quiet[2][1].send(b"2")
    other.send(b"other")
    assert sockets.after(AWAKE_MS - 1) == [b"other"]
    quiet[3][1].send(b"3")
    assert sorted(sockets.after(TOGETHER_MS - AWAKE_MS + 1)) == [b"2", b"3"]
    quiet[0][1].send(b"4")
    assert sockets.after(AWAKE_MS - 1) == []
    assert sockets.after(TOGETHER_MS - AWAKE_MS + 1) == [b"4"]
    assert sockets.after(TOGETHER_MS) == []  # The look that found one was the last.
    quiet[1][1].send(b"5")
    assert sockets.after(0) == [b"5"]


def test_many_are_read_when_the_loop_is_awake(sockets: Sockets) -> None:
    quiet = sockets.that_wait(3)
    _, other = sockets.add()
    quiet[0][1].send(b"0")
    other.send(b"other")
    assert sorted(sockets.after(AWAKE_MS)) == [b"0", b"other"]
    quiet[1][1].send(b"1")
    assert sockets.after(AWAKE_MS - 1) == []
    other.send(b"other")
    assert sorted(sockets.after(1)) == [b"1", b"other"]


def test_the_loop_wakes_for_those_that_wait(sockets: Sockets) -> None:
    sockets.loop.time_ms = None  # the clock of the machine
    clients = []
    for _ in range(3):
        watch, client = sockets.add()
        watch.rest(is_quiet=True)
        clients.append(client)
    for client in clients[:2]:
        client.send(b"first")
        sockets.loop.run_once(0)
    assert sockets.seen == [b"first"] * 2
    clients[2].send(b"last")
    sockets.loop.run_once(60_000)
    assert sockets.seen[2:] == [b"last"]


def test_nothing_waits_while_a_group_changes(sockets: Sockets) -> None:
    sockets.loop.hurry()  # There is no quiet socket yet.
    quiet = sockets.that_wait(3)
    quiet[2][1].send(b"waits")
    assert sockets.after(1) == []
    sockets.loop.hurry()
    assert sockets.after(0) == [b"waits"]
    for _ in range(3):
        quiet[0][1].send(b"0")
        assert sockets.after(1) == [b"0"]
    sockets.after(HURRY_MS)
    for _, client in quiet[:2]:
        client.send(b"second")
        assert sockets.after(1) == [b"second"]
    quiet[2][1].send(b"waits")
    assert sockets.after(1) == []
    assert sockets.after(TOGETHER_MS) == [b"waits"]


def test_a_request_that_waited_may_change_a_group(sockets: Sockets) -> None:
    quiet = sockets.that_wait(3)
    quiet[2][0].on_readable = sockets.loop.hurry
    for _, client in quiet:
        client.send(b"second")
    assert sockets.after(TOGETHER_MS) == [b"second"] * 2
    for _, client in quiet[:2]:
        client.send(b"third")
        assert sockets.after(1) == [b"third"]


def test_a_heartbeat_that_waits_postpones_the_end_of_its_session(sockets: Sockets) -> None:
    loop, ended = sockets.loop, list[str]()
    session = loop.call_later(3000, lambda: ended.append("too early"))
    quiet = sockets.that_wait(2)
    session = loop.replace(session, 100, lambda: ended.append("first"))
    session = loop.replace(session, 200, lambda: ended.append("second"))
    watch, client = quiet[0]
    watch.on_readable = lambda: (client_end(watch), loop.replace(session, 1000, lambda: ended.append("third")))
    client.send(b"second")
    assert sockets.after(199) == [] and not ended
    assert sockets.after(1) == [] and ended == []
    sockets.after(999)
    assert ended == []
    sockets.after(1)
    assert ended == ["third"]


def test_a_session_that_goes_on_hurries_nobody(sockets: Sockets) -> None:
    loop = sockets.loop
    session = loop.call_later(3000, lambda: None)
    quiet = sockets.that_wait(2)
    session = loop.replace(loop.replace(session, 100, lambda: None), 200, lambda: None)
    watch, client = quiet[0]
    watch.on_readable = lambda: (client_end(watch), loop.replace(session, 10_000, lambda: None))
    client.send(b"second")
    sockets.after(200)
    for _, client in quiet:
        client.send(b"third")
        sockets.after(1)
    quiet[1][1].send(b"waits")
    assert sockets.after(1) == []


def test_a_look_reads_any_number_of_sockets() -> None:
    with ExitStack() as ended:
        sockets = Sockets(ended.enter_context(closing(ClockLoop(EpollPoller(most_events=8)))), ended)
        for _, client in sockets.that_wait(30):
            client.send(b"second")
        assert sockets.after(TOGETHER_MS) == [b"second"] * 30


def test_nothing_waits_after_the_end_of_a_session(sockets: Sockets) -> None:
    """The other members of the group learn of it with their heartbeats."""
    loop, ended = sockets.loop, list[str]()
    session = loop.call_later(3000, lambda: ended.append("too early"))
    quiet = sockets.that_wait(2)
    session = loop.replace(session, 100, lambda: ended.append("too early"))
    loop.replace(session, 200, lambda: ended.append("session"))
    sockets.after(200)
    assert ended == ["session"]
    for _, client in quiet:
        client.send(b"second")
        assert sockets.after(1) == [b"second"]


def client_end(watch: Watch) -> bytes:
    """Read what the client has sent."""
    assert isinstance(watch.sock, socket.socket)
    return watch.sock.recv(100)


def test_a_socket_that_is_no_longer_quiet_is_read_at_once(sockets: Sockets) -> None:
    (first, one), (second, two) = sockets.add(), sockets.add()
    for watch, client in ((first, one), (second, two)):
        watch.rest(is_quiet=True)
        client.send(b"a")
        assert sockets.after(1) == [b"a"]
    first.rest(is_quiet=False)
    one.send(b"b")
    two.send(b"c")
    assert sockets.after(1) == [b"b"]
    second.close()
    assert sockets.after(2 * TOGETHER_MS) == []


def test_a_socket_that_is_not_read_may_become_quiet(sockets: Sockets) -> None:
    watch, client = sockets.add()
    watch.want(reading=False)
    watch.rest(is_quiet=True)
    client.send(b"a")
    assert sockets.after(1) == []
    watch.want(reading=True)
    assert sockets.after(1) == [b"a"]


def test_without_epoll_no_socket_waits() -> None:
    with ExitStack() as ended:
        sockets = Sockets(ended.enter_context(closing(ClockLoop(SelectorPoller()))), ended)
        for _ in range(3):
            watch, client = sockets.add()
            watch.rest(is_quiet=True)
            assert not watch.is_quiet
            client.send(b"a")
            assert sockets.after(0) == [b"a"]


RESPONSES = {3: MetadataResponse, 12: HeartbeatResponse, 68: ConsumerGroupHeartbeatResponse}
CLASSIC, CONSUMER, OTHER = HeartbeatRequest(), ConsumerGroupHeartbeatRequest(), MetadataRequest()
Step = tuple[int, HeartbeatRequest | ConsumerGroupHeartbeatRequest | MetadataRequest, bool]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(0, CLASSIC, False), (1500, CLASSIC, True), (3000, CLASSIC, True), (100, OTHER, False)], id="another request"),
        pytest.param([(0, CONSUMER, False), (5000, CONSUMER, True), (1400, CONSUMER, False), (5000, CONSUMER, True)], id="a rebalance"),
        pytest.param(
            [
                *((0, CLASSIC, False), (1500, CLASSIC, True), (100, OTHER, False)),
                *((1500, CLASSIC, False), (1500, CLASSIC, False), (1500, CLASSIC, True), (100, OTHER, False)),
                *((1500, CLASSIC, False), *[(1500, CLASSIC, False)] * 3, (1500, CLASSIC, True), (1500, CLASSIC, True)),
            ],
            id="commits that have waited",
        ),
        pytest.param([(0, CLASSIC, False), (2000, OTHER, False), (1500, CLASSIC, False), (3000, CLASSIC, True)], id="a commit between"),
    ],
)
def test_a_connection_with_regular_heartbeats_is_quiet(steps: list[Step]) -> None:
    seen: list[RequestContext] = []
    with closing(ClockLoop(EpollPoller())) as loop:
        loop.time_ms = 1000.0
        server = SocketServer(loop, NetworkSettings(listeners=loopback()), seen.append)
        server.start()
        with socket.create_connection(("127.0.0.1", server.bound_port("PLAINTEXT"))) as sock:
            client = ClientConnection("raw")
            for after_ms, request, is_quiet in steps:
                loop.time_ms += after_ms
                sock.sendall(b"".join(client.send_request(request, 1)))  # type: ignore[arg-type]
                while not seen:
                    loop.run_once(TOGETHER_MS)
                    loop.time_ms += 1
                context = seen.pop()
                assert context._channel._watch.is_quiet is is_quiet
                context.respond(RESPONSES[request.API_KEY]())
                assert sock.recv(1000)
        server.stop()
