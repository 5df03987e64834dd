"""A node under attack: random and mutated requests of every API, ten thousand silent connections, requests that arrive byte by byte or
never completely, and clients that never read. The node survives, leaks nothing, and serves well-behaved clients meanwhile.

`pytest -m slow tests/soak/test_hostile_node.py --seeds 1000000` sends a million.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest

from kops.protocol.api_keys import Listener
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.messages import MetadataRequest
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import Acknowledged, create_topic, read_all
from tests.support.nodes.soaks.soaking import held
from tests.support.requests.hostile import frame, mutated, requests
from tests.support.requests.messages import random_message

pytestmark = pytest.mark.slow
REQUESTS = 40_000
WARM_UP = 4_000
A_CONNECTION = 5
OPEN_AT_ONCE = 60
SILENT = 10_000
MAY_GROW_KIB = 48 * 1024
MAY_KEEP_FILES = 20
SLOW = 100
IDLE_MS = 20_000
LARGEST = 104_857_600
"""Kafka's socket.request.max.bytes."""
FORBIDDEN = {
    "ControlledShutdownRequest",
    "UnregisterBrokerRequest",
    "UpdateFeaturesRequest",
    "RemoveRaftVoterRequest",
    "AddRaftVoterRequest",
}
"""Requests with which an administrator may end a node. The node would obey them."""


class Honest(threading.Thread):
    """A well-behaved client that sends records all the time and reads them back at the end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.rounds = 0
        self.slowest_s = 0.0
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Send rounds of records until the end, or until one fails."""
        try:
            acknowledged = Acknowledged(self.bootstrap, log_level=0)
            while not self._ended.is_set():
                began = time.monotonic()
                acknowledged.send("honest", 10, mark=f"{self.rounds}-")
                acknowledged.flush()
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.rounds += 1
                time.sleep(0.02)
            assert read_all(self.bootstrap, "honest") == sorted(acknowledged.rows["honest"])
        except BaseException as error:
            self.error = error
            raise

    def end(self) -> None:
        """Wait for the last round. Fails if something went wrong."""
        self._ended.set()
        self.join(240)
        assert not self.is_alive()
        assert self.error is None, self.error


class Hostile:
    """A client that opens connections to one listener and sends some requests on each. A few connections are open at a time, and the oldest
    is closed first.
    """

    def __init__(self, port: int, listener: Listener, seed: int) -> None:
        self.address = ("127.0.0.1", port)
        self.kinds = [kind for kind in requests(listener) if kind[0].__name__ not in FORBIDDEN]
        self.random = random.Random(seed)
        self.open: deque[socket.socket] = deque()
        self.sent = 0

    def send(self, count: int) -> None:
        """Send this many more requests."""
        end = self.sent + count
        while self.sent < end:
            self._connect()
        while self.open:
            self._leave()

    def _connect(self) -> None:
        if len(self.open) >= OPEN_AT_ONCE:
            self._leave()
        sock = socket.create_connection(self.address, 60)
        self.open.append(sock)
        connection = ClientConnection("hostile")
        chance = self.random
        data = bytearray()
        for _ in range(A_CONNECTION):
            declared, version = chance.choice(self.kinds)
            made = b"".join(connection.send_request(random_message(declared, version, chance.randrange(5000)), version))  # type: ignore[arg-type]
            if chance.random() < 0.4:
                made = frame(mutated(made[4:], chance))
            elif chance.random() < 0.05:
                made = mutated(made, chance)
            data += made
            self.sent += 1
        sock.settimeout(0.05)
        # The node may have closed the connection, or may not read on before its answers are read.
        with suppress(OSError):
            sock.sendall(data)

    def _leave(self) -> None:
        sock = self.open.popleft()
        sock.setblocking(False)
        # Read until nothing more is available or the connection is closed.
        with suppress(OSError):
            while sock.recv(1 << 20):
                pass
        sock.close()


def wait_for_files(nodes: KopsNodes, at_most: int) -> None:
    """Wait until a node has released the closed connections."""
    deadline = time.monotonic() + 120
    while held(nodes)[1][1] > at_most:
        assert time.monotonic() < deadline, held(nodes)
        time.sleep(0.2)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.cores
def test_hostile_requests(tmp_path: Path, seed_count: int | None) -> None:
    count = REQUESTS if seed_count is None else seed_count
    with KopsNodes(tmp_path, 1) as nodes:
        create_topic(nodes.bootstrap, "honest", 3, 1)
        create_topic(nodes.bootstrap, "orders-0", 2, 1)  # random requests have this name, too
        honest = Honest(nodes.bootstrap)
        honest.start()
        for port, listener in ((nodes.ports[1], Listener.BROKER), (nodes.controller_ports[1], Listener.CONTROLLER)):
            hostile = Hostile(port, listener, seed=count)
            hostile.send(WARM_UP)
            before = held(nodes)[1]
            hostile.send(count // 2)
            wait_for_files(nodes, before[1] + MAY_KEEP_FILES)
            after = held(nodes)[1]
            assert after[0] - before[0] < MAY_GROW_KIB, f"{listener.name}: {before} → {after}"
            assert nodes.processes[1].poll() is None, nodes.output(1)[-3000:]
        honest.end()
        assert honest.rounds > 10
        output = nodes.output(1)
        assert "Traceback" not in output, output[output.index("Traceback") - 500 :][:3000]
        assert nodes.stop(1) == 0


@pytest.mark.timeout(600)
@pytest.mark.cores
def test_ten_thousand_connections_that_say_nothing(tmp_path: Path) -> None:
    # With Kafka's backlog of 50, most of the time would be spent by the client, which tries again after a second.
    with KopsNodes(tmp_path, 1, settings={"socket.listen.backlog.size": 4096}) as nodes:
        create_topic(nodes.bootstrap, "honest", 3, 1)
        honest = Honest(nodes.bootstrap)
        honest.start()
        before = held(nodes)[1]
        silent = []
        try:
            for number in range(SILENT):
                sock = socket.create_connection(("127.0.0.1", nodes.ports[1]), 60)
                silent.append(sock)
                if number % 3:
                    sock.sendall(b"\0\0\0\x20\0\3"[: number % 7])  # part of a size, or of a header
            deadline = time.monotonic() + 120
            while held(nodes)[1][1] < SILENT:
                assert time.monotonic() < deadline, held(nodes)
                time.sleep(0.1)
            rounds = honest.rounds
            while honest.rounds < rounds + 20:
                assert honest.is_alive(), honest.error
                assert time.monotonic() < deadline, f"{honest.rounds - rounds} rounds"
                time.sleep(0.1)
        finally:
            for sock in silent:
                sock.close()
        wait_for_files(nodes, before[1] + 20)
        honest.end()
        assert held(nodes)[1][0] - before[0] < MAY_GROW_KIB
        assert nodes.stop(1) == 0


class Slow:
    """Connections that are expensive for a node, `SLOW` of each kind."""

    def __init__(self, port: int) -> None:
        self.port = port
        connection = ClientConnection("slow")
        request = MetadataRequest([MetadataRequestTopic(name="honest")])
        self.request = b"".join(connection.send_request(request, 12))  # type: ignore[arg-type]
        self.opened: list[socket.socket] = []

    def connect(self, data: bytes) -> list[socket.socket]:
        """Open connections and send the same data on each."""
        made = [socket.create_connection(("127.0.0.1", self.port), 60) for _ in range(SLOW)]
        self.opened += made
        for sock in made:
            sock.sendall(data)
        return made

    def fill(self) -> None:
        """Open connections and send requests until the socket takes no more. Never read an answer."""
        for sock in self.connect(b""):
            sock.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    sock.send(self.request * 100)

    def dribble(self, ends: list[socket.socket]) -> None:
        """Send a request byte by byte on all connections in turn."""
        for position in range(len(self.request)):
            for sock in ends:
                sock.sendall(self.request[position : position + 1])

    def answers(self, ends: list[socket.socket]) -> list[bytes]:
        """Return one answer from each connection."""
        found = []
        for sock in ends:
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
            found.append(sock.recv(size, socket.MSG_WAITALL))
        return found

    def close(self) -> None:
        """Close all connections."""
        for sock in self.opened:
            sock.close()


@pytest.mark.timeout(600)
def test_connections_that_are_slow(tmp_path: Path) -> None:
    with KopsNodes(tmp_path, 1, settings={"connections.max.idle.ms": IDLE_MS}) as nodes:
        create_topic(nodes.bootstrap, "honest", 3, 1)
        honest = Honest(nodes.bootstrap)
        honest.start()
        slow = Slow(nodes.ports[1])
        before = held(nodes)[1]
        try:
            slow.connect(LARGEST.to_bytes(4) + slow.request[4:])  # the rest never follows
            slow.connect(slow.request[:-1])
            refused = slow.connect((LARGEST + 1).to_bytes(4)) + slow.connect(b"\xff\xff\xff\xff" + slow.request[4:])
            slow.fill()
            half_open = slow.connect(slow.request)
            for sock in half_open:
                sock.shutdown(socket.SHUT_WR)
            dribbling = slow.connect(b"")
            slow.dribble(dribbling)
            answers = slow.answers(dribbling) + slow.answers(half_open)
            assert all(b"honest" in answer for answer in answers)
            assert [sock.recv(1) for sock in half_open] == [b""] * SLOW
            for sock in refused:
                with suppress(ConnectionResetError):
                    assert sock.recv(1) == b""
            rounds = honest.rounds
            assert held(nodes)[1][0] - before[0] < MAY_GROW_KIB
            wait_for_files(nodes, before[1] + MAY_KEEP_FILES)  # connections that are idle for too long are closed
            assert honest.rounds > rounds
        finally:
            slow.close()
        honest.end()
        assert held(nodes)[1][0] - before[0] < MAY_GROW_KIB
        assert nodes.stop(1) == 0
