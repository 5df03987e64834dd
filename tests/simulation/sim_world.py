"""A network of machines in one process and with one clock: sockets, event loops and time for whole nodes, all determined by one seed.

Every machine (`Host`) has a `SimLoop`, which is the product's loop without its selector. The product's network modules get simulated
sockets in place of the real ones (`SocketModule`). A connection delivers its bytes in order, late or in pieces. It delivers nothing while
its machines are cut off from each other. It can be reset at any time, also in the middle of a message; then the beginning of the message
arrives.

A machine can be paused, killed (its sockets end and none of its code runs on) or lose power (nobody notices before it is back). A side
thread does its work in one event and reports its end in a later one, so a machine may die in between. Each event is one callback of one
loop or the work of one thread, so a seed always gives the same life. `Clock.digest` is a checksum of the life.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import math
import random
import socket as real_socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kops.broker.network.events.loop import Loop, Timer, Watch
from kops.broker.network.events.pipe import PipeEnd
from kops.errors import KopsError
from kops.storage.start.log_dirs import StartRefusedError

START_MS = 1_760_000_000_000
WINDOW_BYTES = 256 * 1024
FIRST_PORT = 30_000


class Clock:
    """The events of the world in order of time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self.event_count = 0
        self.digest = 0
        """A checksum of the times and machines of all events. Two lives with the same digest were the same."""
        self._events: list[tuple[float, int, Host | None, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.current: Host | None = None
        self.cut: set[frozenset[str]] = set()
        self.listeners: dict[tuple[str, int], SimSocket] = {}
        self.hosts: dict[str, Host] = {}
        self.slow = False
        self.half_messages = 0
        self._ports = itertools.count(FIRST_PORT)

    def at(self, delay_ms: float, run: Callable[[], object], host: Host | None = None) -> None:
        """Run a function after `delay_ms`, unless the host has ended its current life by then."""
        generation = 0 if host is None else host.generation
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), host, generation, run))

    def step(self) -> bool:
        """Run the next event. Return False if there is none."""
        if not self._events:
            return False
        due_ms, _, host, generation, run = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, due_ms)
        self.digest = hash((self.digest, due_ms, host is not None and host.number))
        if host is not None:
            if generation != host.generation:
                return True
            if host.is_paused:
                host.missed.append(run)
                return True
        self.event_count += 1
        self.current = host
        try:
            run()
        finally:
            self.current = None
        return True

    @property
    def next_ms(self) -> float:
        """The time of the next event."""
        return self._events[0][0] if self._events else math.inf

    def latency_ms(self) -> float:
        """Return how long some bytes travel."""
        chance = self.random
        if self.slow or chance.random() < 0.02:
            return chance.uniform(5, 200)
        return chance.uniform(0.05, 2)

    def side_ms(self) -> float:
        """Return how long the work of a side thread or the report of its end takes. Now and then the disk or the loop is slow."""
        return self.random.uniform(0, 100 if self.random.random() < 0.2 else 5)

    def new_port(self) -> int:
        """Return a port for the client's end of a connection."""
        return next(self._ports)

    def is_cut(self, first: str, second: str) -> bool:
        """Return whether two machines are cut off from each other."""
        return frozenset((first, second)) in self.cut

    def cut_off(self, first: str, second: str) -> None:
        """Hold back the bytes between two machines from now on."""
        self.cut.add(frozenset((first, second)))

    def heal(self) -> None:
        """Let all machines reach each other again."""
        self.cut.clear()


class Host:
    """A machine with an address."""

    def __init__(self, clock: Clock, address: str) -> None:
        self.clock = clock
        self.address = address
        self.generation = 0
        self.is_paused = False
        self.missed: deque[Callable[[], object]] = deque()
        self.sockets: set[SimSocket] = set()
        self.clock_offset_ms = 0.0
        self.is_off = False
        self.untold = 0
        """How many pieces of work side threads have done and not reported yet."""
        self.untold_at_death = 0
        """How many pieces of work were never reported because the machine died."""
        self.number = len(clock.hosts) + 1
        clock.hosts[address] = self

    def kill(self) -> None:
        """Kill everything that runs on the machine. The other ends of its connections get a reset, perhaps after half a message."""
        for sock in self._end():
            if sock.pipe is not None and self.clock.random.random() < 0.5:
                sock.pipe.cut_short()
            sock.abort()

    def switch_off(self) -> None:
        """Switch the machine off. The other ends of its connections do not notice. Those that go on sending get a reset when the machine is
        back (`is_off`).
        """
        self.is_off = True
        for sock in self._end():
            sock.abort(tells=False)

    def _end(self) -> list[SimSocket]:
        self.generation += 1
        self.untold_at_death += self.untold
        self.untold = 0
        self.is_paused = False
        self.missed.clear()
        ended = sorted(self.sockets, key=lambda one: one.number)
        self.sockets.clear()
        return ended

    def pause(self) -> None:
        """Stop all code until `resume`. The operating system continues to receive bytes."""
        self.is_paused = True

    def resume(self) -> None:
        """Run what has become due meanwhile, in order."""
        self.is_paused = False
        missed, self.missed = self.missed, deque()
        for run in missed:
            self.clock.at(0, run, self)


class SimLoop(Loop):
    """The loop of one life of one machine."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.turn_count = 0

    def now_ms(self) -> int:
        return int(START_MS + self.host.clock.now_ms + self.host.clock_offset_ms)

    def monotonic_ms(self) -> float:
        return self.host.clock.now_ms

    def call_soon(self, run: Callable[[], object]) -> None:
        self.host.clock.at(0, run, self.host)

    def call_from_thread(self, run: Callable[[], object]) -> None:
        self.call_soon(run)

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Timer:
        timer = Timer(self, self.monotonic_ms() + max(delay_ms, 0), run)

        def fire() -> None:
            due, timer.run = timer.run, None
            if due is not None:
                due()

        self.host.clock.at(max(delay_ms, 0), fire, self.host)
        return timer

    def replace(self, timer: Timer, delay_ms: float, run: Callable[[], object]) -> Timer:
        timer.cancel()
        return self.call_later(delay_ms, run)

    def forget_timer(self) -> None:
        """Do nothing. Cancelled timers stay in the heap of the world."""

    def in_thread(self, work: Callable[[], Any], done: Callable[[Future[Any]], object]) -> None:
        """Do the work at a random time and report its end at a later one. The machine may die in between."""
        clock, host = self.host.clock, self.host
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except (KopsError, StartRefusedError, OSError) as error:
                future.set_exception(error)
            host.untold += 1
            clock.at(clock.side_ms(), tell, host)

        def tell() -> None:
            host.untold -= 1
            done(future)

        clock.at(clock.side_ms(), run, host)

    def new_socket(self, family: int) -> Any:
        return SocketModule(self.host.clock).socket(family)

    def listen(self, address: tuple[str, int], offer: Callable[[PipeEnd], bool]) -> None:
        """Do nothing. All connections of a simulated machine are sockets."""

    def end_listening(self, address: tuple[str, int]) -> None:
        """Do nothing."""

    def pipe_to(self, address: tuple[str, int]) -> PipeEnd | None:
        return None

    def change_watch(self, watch: Watch, before: bool, events: int) -> None:
        sock: Any = watch.sock
        sock.watch = watch if events else None
        sock.poll()

    def change_rest(self, watch: Watch, is_quiet: bool) -> None:
        """Do nothing. All sockets are read as soon as data arrives."""

    def hurry(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Do nothing. The loop holds no resources."""


class Pipe:
    """One direction of a connection, with the bytes that are on their way to `target`."""

    def __init__(self, clock: Clock, source: SimSocket, target: SimSocket) -> None:
        self.clock = clock
        self.source = source
        self.target = target
        self.pieces: deque[bytes] = deque()
        self.size = 0
        self.is_moving = False
        self.is_cut_short = False
        self.is_rigged = False

    def put(self, data: bytes) -> None:
        """Send bytes to the other end. b"" marks the end."""
        chance = self.clock.random
        if self.is_cut_short:
            return
        if self.is_rigged and len(data) > 1:
            self.pieces.append(data)
            self.size += len(data)
            self.break_off()
            return
        if len(data) > 1 and chance.random() < 0.1:
            middle = chance.randrange(1, len(data))
            self.pieces.extend((data[:middle], data[middle:]))
        else:
            self.pieces.append(data)
        self.size += len(data)
        self._move()

    def cut_short(self) -> None:
        """Keep a random part of the bytes that are on their way. Nothing follows it."""
        data = b"".join(self.pieces)
        kept = data[: self.clock.random.randint(0, len(data))]
        self.pieces.clear()
        if kept:
            self.clock.half_messages += len(kept) < len(data)
            self.pieces.append(kept)
        self.size = len(kept)
        self.is_cut_short = True

    def break_off(self) -> None:
        """Break the connection. Both ends get a reset, the far end after a part of the last bytes."""
        self.cut_short()
        self.source.fail()
        if self.pieces:
            self._move()
        else:
            self.target.fail()

    def _move(self) -> None:
        if not self.is_moving and self.pieces:
            self.is_moving = True
            self.clock.at(self.clock.latency_ms(), self._arrive)

    def _arrive(self) -> None:
        self.is_moving = False
        if not self.pieces or (self.target.is_closed and self.target.host.is_off):
            return
        if self.target.is_closed:
            self.source.fail()
            return
        if self.clock.is_cut(self.source.host.address, self.target.host.address):
            self.is_moving = True
            self.clock.at(100, self._arrive)
            return
        # Everything that was sent meanwhile arrives, too.
        while self.pieces:
            piece = self.pieces.popleft()
            self.size -= len(piece)
            self.target.arrived(piece)
        if self.is_cut_short:
            self.target.fail()
        self.source.poll()


class SimSocket:
    """One end of a connection, or a listening socket."""

    numbers = itertools.count()

    def __init__(self, clock: Clock, host: Host) -> None:
        self.number = next(SimSocket.numbers)
        self.clock = clock
        self.host = host
        self.watch: Watch | None = None
        self.is_closed = False
        self.address: tuple[str, int] = (host.address, 0)
        self.peer_address: tuple[str, int] | None = None
        self.inbox = bytearray()
        self.is_ended = False
        self.error = 0
        self.pipe: Pipe | None = None
        self.waiting: deque[SimSocket] | None = None
        self._is_due = False
        host.sockets.add(self)

    # what a selector sees -----------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Call the watch of the loop soon if the socket is ready."""
        if self.watch is not None and not self._is_due and self._events():
            self._is_due = True
            self.clock.at(0, self._fire, self.host)

    def _events(self) -> bool:
        watch = self.watch
        return watch is not None and ((watch.is_reading and self._is_readable()) or (watch.is_writing and self._is_writable()))

    def _is_readable(self) -> bool:
        return bool(self.inbox or self.is_ended or self.error or self.waiting)

    def _is_writable(self) -> bool:
        return bool(self.error or self.is_ended) or (self.pipe is not None and self.pipe.size < WINDOW_BYTES)

    def _fire(self) -> None:
        self._is_due = False
        watch = self.watch
        if watch is not None and watch.is_reading and self._is_readable():
            watch.on_readable()
        if watch is not None and watch is self.watch and watch.is_writing and self._is_writable():
            watch.on_writable()
        self.poll()

    # the far end --------------------------------------------------------------------------------------------------------------------

    def arrived(self, piece: bytes) -> None:
        """Receive bytes, or b"" for their end."""
        if piece:
            self.inbox += piece
        else:
            self.is_ended = True
        self.poll()

    def fail(self) -> None:
        """Reset the connection."""
        if not self.is_closed:
            self.error = errno.ECONNRESET
            self.poll()

    def abort(self, *, tells: bool = True) -> None:
        """Close the socket without an orderly end. With `tells`, the other end gets a reset as soon as it can be reached."""
        if self.is_closed:
            return
        self.is_closed = True
        self.watch = None
        for other in self.waiting or ():
            other.abort(tells=tells)
        if self.clock.listeners.get(self.address) is self:
            del self.clock.listeners[self.address]
        if self.pipe is not None and tells:
            self._reset(self.pipe.target)

    def _reset(self, other: SimSocket) -> None:
        def arrive() -> None:
            if self.clock.is_cut(self.host.address, other.host.address):
                self.clock.at(100, arrive)
            else:
                other.fail()

        self.clock.at(self.clock.latency_ms(), arrive)

    # socket.socket ------------------------------------------------------------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: object) -> None:
        """Do nothing. Options such as sizes of buffers have no effect here."""

    def getsockopt(self, level: int, option: int) -> int:
        assert option == real_socket.SO_ERROR
        error, self.error = self.error, 0
        return error

    def fileno(self) -> int:
        return -1

    def bind(self, address: tuple[str, int]) -> None:
        if address in self.clock.listeners:
            raise OSError(errno.EADDRINUSE, "in use")
        self.address = address
        self.clock.listeners[address] = self

    def listen(self, backlog: int) -> None:
        self.waiting = deque()

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        sock = self.waiting.popleft()
        assert sock.peer_address is not None
        return sock, sock.peer_address

    def connect_ex(self, address: tuple[str, int]) -> int:
        self.address = (self.host.address, self.clock.new_port())
        self.peer_address = address
        self.clock.at(self.clock.latency_ms(), self._knock)
        return errno.EINPROGRESS

    def _knock(self) -> None:
        assert self.peer_address is not None
        if self.is_closed:
            return
        if self.clock.is_cut(self.host.address, self.peer_address[0]) or self.clock.hosts[self.peer_address[0]].is_off:
            self.clock.at(200, self._knock)
            return
        listener = self.clock.listeners.get(self.peer_address)
        if listener is None or listener.waiting is None:
            self.error = errno.ECONNREFUSED
        else:
            other = SimSocket(self.clock, listener.host)
            other.address, other.peer_address = self.peer_address, self.address
            self.pipe, other.pipe = Pipe(self.clock, self, other), Pipe(self.clock, other, self)
            listener.waiting.append(other)
            listener.poll()
        self.poll()

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getpeername(self) -> tuple[str, int]:
        assert self.peer_address is not None
        return self.peer_address

    def send(self, data: bytes | bytearray | memoryview) -> int:
        if self.error:
            raise OSError(self.error, "reset")
        assert self.pipe is not None
        room = WINDOW_BYTES - self.pipe.size
        if room <= 0:
            raise BlockingIOError
        taken = bytes(memoryview(data).cast("B")[:room])
        self.pipe.put(taken)
        return len(taken)

    def sendmsg(self, buffers: list[bytes], *_: object) -> int:
        return self.send(b"".join(buffers))

    def recv(self, size: int) -> bytes:
        if self.inbox:
            taken = bytes(self.inbox[:size])
            del self.inbox[:size]
            return taken
        if self.error:
            raise OSError(self.error, "reset")
        if self.is_ended:
            return b""
        raise BlockingIOError

    def recv_into(self, space: memoryview) -> int:
        taken = self.recv(len(space))
        space[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        if self.is_closed:
            return
        self.host.sockets.discard(self)
        if self.pipe is not None and not self.error:
            self.is_closed = True
            self.watch = None
            self.pipe.put(b"")
        else:
            self.abort()


class SocketModule:
    """The replacement of the module `socket`. A socket belongs to the host whose callback runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def socket(self, *_: object) -> SimSocket:
        assert self._clock.current is not None
        return SimSocket(self._clock, self._clock.current)

    def __getattr__(self, name: str) -> Any:
        return getattr(real_socket, name)
