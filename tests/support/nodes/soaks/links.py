"""The network between the nodes of a cluster on loopback: a proxy whose links can be cut, slowed down and broken, each in one direction.

links = Links(seed)
port = links.listen(2, 9093)                  # who connects to that port reaches node 2's port 9093
links.wire(1, 3).is_cut = True                # what node 1 sends to node 3 waits; the other direction works
links.heal()

A connection belongs to the node whose id is in the client id of its first request. Kafka's nodes name themselves `raft-client-1`,
`broker-1-fetcher-0` or `1`. TCP loses no bytes, so a lost packet is a pause (its retransmission), and sometimes a reset.
"""

from __future__ import annotations

import heapq
import itertools
import random
import re
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

WINDOW_BYTES = 256 * 1024
"""The bytes that one direction of a connection may hold. Then the sender waits."""
PIECE_BYTES = 64 * 1024
RETRANSMISSION_S = (0.2, 1.0)
RESET_SHARE = 0.1
"""The share of the lost packets that end their connection."""
_NUMBER = re.compile(rb"\d+")
_RESET = struct.pack("ii", 1, 0)


class Wire:
    """The present state of one direction between two nodes."""

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        """Remove all disturbances."""
        self.is_cut = False
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self.loss = 0.0
        """The probability that a piece is lost when it is first sent."""


class _Flow:
    """One direction of a connection: the data that `source` has sent and `target` has not received yet. b"" is the end."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.wire = Wire()
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.last_due_s = 0.0
        self.is_ended = False


class _Connection:
    """Two flows. Their wires are known as soon as the first request says who connected."""

    def __init__(self, near: socket.socket, far: socket.socket, to: int) -> None:
        self.near = near
        self.to = to
        self.by: int | None = None
        self.begin = b""
        self.flows = {near: _Flow(near, far), far: _Flow(far, near)}


class Links(threading.Thread):
    """The proxy: a thread with one selector. `wire` and `reset` are for the test's thread."""

    def __init__(self, seed: int) -> None:
        super().__init__(name="links", daemon=True)
        self.seen: set[tuple[int, int]] = set()
        """The connections between nodes."""
        self._random = random.Random(seed)
        self._wires: dict[tuple[int, int], Wire] = {}
        self._targets: dict[socket.socket, tuple[int, int]] = {}
        self._connections: dict[socket.socket, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._asked: deque[Callable[[], None]] = deque()
        self._due: list[tuple[float, int, _Flow]] = []
        self._numbers = itertools.count()
        self._is_ended = False

    # for the test -----------------------------------------------------------------------------------------------------------------

    def listen(self, node: int, port: int) -> int:
        """Listen on a port that leads to `port` of `node`. Call it before the thread starts."""
        sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        sock.setblocking(False)
        self._targets[sock] = node, port
        self._selector.register(sock, selectors.EVENT_READ)
        found: int = sock.getsockname()[1]
        return found

    def wire(self, by: int, to: int) -> Wire:
        """Return the wire of what `by` sends to `to`."""
        return self._wires.setdefault((by, to), Wire())

    def wires(self, first: int, second: int) -> tuple[Wire, Wire]:
        """Return the wires of both directions."""
        return self.wire(first, second), self.wire(second, first)

    def changed(self) -> None:
        """Let waiting data continue after a change of wires."""
        self._ask(self._move_all)

    def heal(self) -> None:
        """Heal every wire. Waiting data arrives."""
        for wire in self._wires.values():
            wire.heal()
        self.changed()

    def reset(self, first: int, second: int) -> None:
        """Break the connections between two nodes. Data on its way is lost."""
        self._ask(lambda: self._reset_between({first, second}))

    def _ask(self, run: Callable[[], None]) -> None:
        self._asked.append(run)
        self._waker.send(b"x")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        self._ask(lambda: None)
        self.join(30)
        for sock in [*self._targets, *self._connections, self._wake, self._waker]:
            sock.close()
        self._selector.close()

    # the thread -------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until the end."""
        while not self._is_ended:
            timeout = max(self._due[0][0] - time.monotonic(), 0) if self._due else None
            for key, events in self._selector.select(timeout):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._wake:
                    sock.recv(4096)
                elif sock in self._targets:
                    self._accept(sock)
                else:
                    self._serve(sock, events)
            while self._asked:
                self._asked.popleft()()
            while self._due and self._due[0][0] <= time.monotonic():
                self._move(heapq.heappop(self._due)[2])

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            near, _ = listener.accept()
            node, port = self._targets[listener]
            far = socket.socket()
            for sock in (near, far):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far.connect_ex(("127.0.0.1", port))
            connection = _Connection(near, far, node)
            for sock in (near, far):
                self._connections[sock] = connection
                self._selector.register(sock, selectors.EVENT_READ)

    def _serve(self, sock: socket.socket, events: int) -> None:
        connection = self._connections.get(sock)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_READ:
                self._read(connection, connection.flows[sock])
            if events & selectors.EVENT_WRITE:
                self._move(next(flow for flow in connection.flows.values() if flow.target is sock))
        except OSError:
            self._end(connection)

    def _read(self, connection: _Connection, flow: _Flow) -> None:
        data = flow.source.recv(PIECE_BYTES)
        if flow.source is connection.near and connection.by is None:
            connection.begin += data
            self._identify(connection)
        self._put(connection, flow, data)

    def _identify(self, connection: _Connection) -> None:
        """Find the client id. Size, API key, version and correlation id come before it."""
        begin = connection.begin
        if len(begin) < 14 or len(begin) < 14 + max(size := int.from_bytes(begin[12:14], signed=True), 0):
            return
        found = _NUMBER.search(begin[14 : 14 + size])
        assert found is not None, f"who is {begin[14 : 14 + size]!r}?"
        connection.by = int(found[0])
        self.seen.add((connection.by, connection.to))
        there, back = self.wires(connection.by, connection.to)
        near = connection.near
        for sock, flow in connection.flows.items():
            flow.wire = there if sock is near else back

    def _put(self, connection: _Connection, flow: _Flow, data: bytes) -> None:
        wire = flow.wire
        due_s = max(time.monotonic() + wire.delay_s, flow.last_due_s)
        if wire.loss and self._random.random() < wire.loss:
            if self._random.random() < RESET_SHARE:
                self._end(connection)
                return
            due_s += self._random.uniform(*RETRANSMISSION_S)
        if wire.bytes_per_s is not None:
            due_s += len(data) / wire.bytes_per_s
        flow.last_due_s = due_s
        flow.pieces.append((due_s, data))
        flow.size += len(data)
        flow.is_ended |= not data
        self._watch(connection)
        self._move(flow)

    def _move_all(self) -> None:
        for connection in self._all():
            for flow in connection.flows.values():
                self._move(flow)

    def _move(self, flow: _Flow) -> None:
        """Pass on the data that is due. The rest follows when it is due."""
        connection = self._connections.get(flow.target)
        if connection is None or flow.wire.is_cut:
            return
        try:
            while flow.pieces and flow.pieces[0][0] <= time.monotonic():
                due_s, data = flow.pieces.popleft()
                if not data:
                    flow.target.shutdown(socket.SHUT_WR)
                    continue
                sent = 0
                with suppress(BlockingIOError):
                    sent = flow.target.send(data)
                flow.size -= sent
                if sent < len(data):
                    flow.pieces.appendleft((due_s, data[sent:]))
                    break
        except OSError:
            self._end(connection)
            return
        if flow.pieces and flow.pieces[0][0] > time.monotonic():
            heapq.heappush(self._due, (flow.pieces[0][0], next(self._numbers), flow))
        if all(one.is_ended and not one.pieces for one in connection.flows.values()):
            self._end(connection)
        else:
            self._watch(connection)

    def _watch(self, connection: _Connection) -> None:
        """Read where there is room, and write where data is due that the socket did not take."""
        for sock, flow in connection.flows.items():
            other = connection.flows[flow.target]
            events = selectors.EVENT_READ if flow.size < WINDOW_BYTES and not flow.is_ended else 0
            if other.pieces and not other.wire.is_cut and other.pieces[0][0] <= time.monotonic():
                events |= selectors.EVENT_WRITE
            known = self._selector.get_map().get(sock)
            if known is None and events:
                self._selector.register(sock, events)
            elif known is not None and not events:
                self._selector.unregister(sock)
            elif known is not None and known.events != events:
                self._selector.modify(sock, events)

    def _reset_between(self, nodes: set[int]) -> None:
        for connection in self._all():
            if {connection.by, connection.to} == nodes:
                self._end(connection)

    def _end(self, connection: _Connection) -> None:
        """Reset both ends."""
        for sock in connection.flows:
            if self._connections.pop(sock, None) is not None:
                with suppress(KeyError):
                    self._selector.unregister(sock)
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()

    def _all(self) -> Iterator[_Connection]:
        seen = {id(one): one for one in self._connections.values()}
        return iter(list(seen.values()))
