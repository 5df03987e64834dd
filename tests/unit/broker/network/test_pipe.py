"""Pipes between the nodes of a loop: each event of a socket, the acceptor with its limits, and turns that nobody is left out of."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from kops.broker.network.acceptor import Acceptor
from kops.broker.network.connection_limits import ConnectionLimits
from kops.broker.network.events.loop import Loop
from kops.broker.network.events.pipe import LIMIT, PipeEnd, Stream
from kops.broker.network.outbox import Outbox
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.files import OsFiles
from kops.storage.segment_files.file_records import LogView

pytestmark = pytest.mark.hot

ADDRESS = ("127.0.0.1", 9092)


@pytest.fixture
def loop() -> Iterator[Loop]:
    with closing(Loop()) as loop:
        yield loop


def ends(loop: Loop) -> tuple[PipeEnd, PipeEnd]:
    """Return the near end and the far end of a pipe."""
    found: list[PipeEnd] = []

    def offer(pipe: PipeEnd) -> bool:
        found.append(pipe)
        return True

    loop.listen(ADDRESS, offer)
    near = loop.pipe_to(ADDRESS)
    loop.end_listening(ADDRESS)
    assert near is not None
    return near, found[0]


class Seen:
    """A watched end that notes its events and does nothing else."""

    def __init__(self, loop: Loop, pipe: PipeEnd, *, reading: bool = False, writing: bool = False) -> None:
        self.events: list[str] = []
        self.watch = loop.watch(pipe, lambda: self.events.append("readable"), lambda: self.events.append("writable"))
        self.watch.want(reading=reading, writing=writing)


def test_bytes_in_their_order(loop: Loop) -> None:
    near, far = ends(loop)
    assert [near.send(b"abc"), near.send(bytearray(b"de")), near.send(memoryview(b"f")), near.send(b"")] == [3, 2, 1, 0]
    assert near.sendmsg([b"gh", b"", memoryview(b"i")], [], 1) == 3
    assert bytes(far.recv(2)) == b"ab"
    assert bytes(far.recv(4)) == b"cdef"
    space = bytearray(2)
    assert far.recv_into(memoryview(space)) == 2
    assert space == b"gh"
    assert far.recv_into(memoryview(space)) == 1
    assert space == b"ih"
    with pytest.raises(BlockingIOError):
        far.recv(1)
    with pytest.raises(BlockingIOError):
        near.recv_into(memoryview(space))
    far.send(b"back")
    assert near.recv(100) == b"back"


def test_one_read_of_several_writes(loop: Loop) -> None:
    near, far = ends(loop)
    for number in range(5):
        near.send(b"%d" % number * 10)
    space = bytearray(33)
    assert far.recv_into(memoryview(space)) == 33
    assert space == b"0" * 10 + b"1" * 10 + b"2" * 10 + b"3" * 3
    assert bytes(far.recv(100)) == b"3" * 7 + b"4" * 10


def test_what_shows_other_memory_is_copied(loop: Loop) -> None:
    near, far = ends(loop)
    changing = bytearray(b"before")
    near.send(memoryview(changing))
    changing[:] = b"after!"
    assert far.recv(100) == b"before"


def test_addresses(loop: Loop) -> None:
    near, far = ends(loop)
    other, _ = ends(loop)
    assert near.getpeername() == far.getsockname() == ADDRESS
    assert far.getpeername() == near.getsockname()
    assert near.getsockname()[0] == "127.0.0.1"
    assert 32_768 <= near.getsockname()[1] < 61_000
    assert other.getsockname() != near.getsockname()
    assert near.getsockopt(1, 4) == 0


def test_nobody_listens(loop: Loop) -> None:
    assert loop.pipe_to(ADDRESS) is None
    loop.listen(ADDRESS, lambda pipe: False)
    assert loop.pipe_to(ADDRESS) is None


def test_a_full_end(loop: Loop) -> None:
    near, far = ends(loop)
    seen = Seen(loop, near, writing=True)
    assert near.send(memoryview(bytes(LIMIT + 5))) == LIMIT
    with pytest.raises(BlockingIOError):
        near.send(b"x")
    with pytest.raises(BlockingIOError):
        near.sendmsg([b"x"])
    loop.run_once(0)
    assert seen.events == []
    assert len(far.recv(1)) == 1
    loop.run_once(0)
    assert seen.events == ["writable"]
    assert near.sendmsg([b"y", b"z"]) == 1
    # A buffer that nobody changes is taken as a whole.
    while far.is_readable:
        far.recv(LIMIT)
    assert near.send(bytes(3 * LIMIT)) == 3 * LIMIT
    assert not near.is_writable


def test_events(loop: Loop) -> None:
    near, far = ends(loop)
    writer, reader = Seen(loop, near), Seen(loop, far, reading=True)
    loop.run_once(0)
    near.send(b"ab")
    assert reader.events == []
    loop.run_once()
    assert reader.events == ["readable"]
    # What is not read is reported in each turn.
    loop.run_once()
    assert reader.events == ["readable"] * 2
    reader.watch.want(reading=False)
    loop.run_once(0)
    assert reader.events == ["readable"] * 2
    reader.watch.want(reading=True)
    far.recv(10)
    loop.run_once(0)
    assert reader.events == ["readable"] * 2
    writer.watch.want(writing=True)
    loop.run_once()
    assert writer.events == ["writable"]
    reader.watch.close()
    near.send(b"c")
    writer.watch.want(writing=False)
    loop.run_once(0)
    assert reader.events == ["readable"] * 2


def test_what_is_written_in_a_turn_is_read_in_the_next_one(loop: Loop) -> None:
    near, far = ends(loop)
    turns: list[int] = []

    def back_and_forth(pipe: PipeEnd) -> None:
        turns.append(loop.turn_count)
        pipe.send(pipe.recv(10))

    for pipe in (near, far):
        loop.watch(pipe, partial(back_and_forth, pipe), lambda: None).want(reading=True)
    soon: list[int] = []
    near.send(b"ball")
    for _ in range(4):
        loop.call_soon(lambda: soon.append(loop.turn_count))
        loop.run_once()
    assert turns == soon == [1, 2, 3, 4]


def test_the_end_comes_after_the_bytes(loop: Loop) -> None:
    near, far = ends(loop)
    reader = Seen(loop, far, reading=True)
    near.send(b"last")
    near.close()
    near.close()
    loop.run_once()
    assert reader.events == ["readable"]
    assert far.recv(10) == b"last"
    assert far.recv(10) == b""
    assert far.recv_into(memoryview(bytearray(1))) == 0
    loop.run_once()
    assert reader.events == ["readable"] * 2
    for pipe in (near, far):
        with pytest.raises(BrokenPipeError):
            pipe.send(b"x")
        with pytest.raises(BrokenPipeError):
            pipe.sendmsg([b"x"])
    far.close()


def test_unread_bytes_reset_the_connection(loop: Loop) -> None:
    near, far = ends(loop)
    far.send(b"arrives")
    near.send(b"is never read")
    far.close()
    assert near.recv(10) == b"arrives"
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            near.recv(10)


def test_a_waiting_writer_hears_of_the_end(loop: Loop) -> None:
    near, far = ends(loop)
    near.send(bytes(LIMIT))
    writer = Seen(loop, near, writing=True)
    loop.run_once(0)
    far.close()
    loop.run_once()
    assert writer.events == ["writable"]


def test_slices_of_files(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> None:
    near, far = ends(loop)
    with pytest.raises(OSError, match="not supported") as raised:
        near.fileno()
    assert raised.value.errno == errno.ENOTSUP
    path = tmp_path_factory.mktemp("files") / "file"
    data = bytes(range(256)) * 8192
    path.write_bytes(data)
    file = OsFiles().open(str(path))
    outbox = Outbox()
    outbox.add([bytearray(b"head"), LogView(file, str(path), start=10, end=len(data))])
    received = bytearray()
    for _ in range(1000):
        is_sent = outbox.flush(near)
        while far.is_readable:
            received += far.recv(100_000)
        if is_sent:
            break
    file.close()
    assert received == b"head" + data[10:]


# the acceptor ---------------------------------------------------------------------------------------------------------------------


class Door:
    """A listener on loopback, and the connections that it has accepted."""

    def __init__(self, loop: Loop, *, host: str = "127.0.0.1", backlog: int = 50, **limits: int) -> None:
        self.loop = loop
        listener = ListenerSettings("PLAINTEXT", host, 0)
        settings = NetworkSettings(listeners=(listener,), socket_listen_backlog_size=backlog, **limits)  # type: ignore[arg-type]
        self.limits = ConnectionLimits(settings, {})
        self.accepted: list[Stream] = []
        self.acceptor = Acceptor(loop, settings, listener, self.limits, self.note)

    def note(self, sock: Stream, address: str, port: int) -> None:
        assert (address, port) == sock.getpeername()
        self.accepted.append(sock)

    def knock(self, host: str = "127.0.0.1") -> PipeEnd | None:
        return self.loop.pipe_to((host, self.acceptor.port))

    def let_go(self, sock: Stream) -> None:
        sock.close()
        self.limits.remove("PLAINTEXT", "127.0.0.1")
        self.acceptor.slot_freed()


def test_a_listener_is_found_while_it_listens(loop: Loop) -> None:
    door = Door(loop)
    assert door.knock() is None
    door.acceptor.start()
    near = door.knock()
    assert near is not None
    assert door.knock("127.0.0.2") is None
    loop.run_once()
    (far,) = door.accepted
    near.send(b"hello")
    assert far.recv(5) == b"hello"
    assert door.limits.total == 1
    waiting = door.knock()
    assert waiting is not None
    door.acceptor.close()
    assert waiting.recv(1) == b""
    assert door.knock() is None
    loop.run_once(0)
    assert len(door.accepted) == 1


def test_a_listener_at_all_addresses(loop: Loop) -> None:
    door = Door(loop, host="0.0.0.0")
    with closing(door.acceptor) as acceptor:
        acceptor.start()
        assert door.knock() is not None
        assert door.knock("0.0.0.0") is None


def test_a_full_backlog(loop: Loop) -> None:
    door = Door(loop, backlog=2)
    with closing(door.acceptor) as acceptor:
        acceptor.start()
        assert [door.knock() is None for _ in range(3)] == [False, False, True]
        loop.run_once()
        assert len(door.accepted) == 2
        assert door.knock() is not None


def test_connections_wait_for_a_slot(loop: Loop) -> None:
    door = Door(loop, max_connections=2)
    with closing(door.acceptor) as acceptor:
        acceptor.start()
        for _ in range(4):
            assert door.knock() is not None
        for expected in (2, 3, 4):
            for _ in range(3):
                loop.run_once(0)
            assert len(door.accepted) == expected
            door.let_go(door.accepted[expected - 2])


def test_an_address_that_has_too_many(loop: Loop) -> None:
    door = Door(loop, max_connections_per_ip=1)
    with closing(door.acceptor) as acceptor:
        acceptor.start()
        first, second = door.knock(), door.knock()
        assert first is not None
        assert second is not None
        loop.run_once()
        assert len(door.accepted) == 1
        assert second.recv(1) == b""
        with pytest.raises(BlockingIOError):
            first.recv(1)


def test_connections_wait_for_the_rate(loop: Loop) -> None:
    door = Door(loop, max_connection_creation_rate=1, quota_window_num=2, quota_window_size_seconds=1)
    with closing(door.acceptor) as acceptor:
        acceptor.start()
        for _ in range(4):
            assert door.knock() is not None
        loop.run_once()
        assert len(door.accepted) < 4
        while len(door.accepted) < 4:
            loop.run_once()
        assert door.limits.total == 4
