"""The socket server on loopback: order, pipelining, back-pressure, closing, throttling, several listeners."""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any

import pytest

from kops.broker.network.acceptor import BindError
from kops.broker.network.channel import RequestContext
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.protocol.api_keys import Listener
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataResponse, ProduceRequest, ProduceResponse
from tests.support.nodes.networking import (
    PATIENCE_S,
    Client,
    Served,
    answer_to,
    echo,
    has_come,
    loopback,
    metadata_request,
    open_fds,
    reset,
)


class Parked:
    """A handler that keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []

    def __call__(self, context: RequestContext) -> None:
        self.contexts.append(context)


def names(client: Client, count: int) -> list[str | None]:
    """Return the names in the next responses."""
    found = []
    for _ in range(count):
        response = client.receive()
        assert response is not None
        assert isinstance(response.message, MetadataResponse)
        found.append(response.message.cluster_id)
    return found


def name_of(context: RequestContext) -> str:
    """Return the name that a `metadata_request` was made with."""
    answer = answer_to(context.request.message)
    assert isinstance(answer, MetadataResponse)
    return answer.cluster_id or ""


def test_what_a_request_knows_of_where_it_came_from() -> None:
    contexts: list[RequestContext] = []

    def handler(context: RequestContext) -> None:
        contexts.append(context)
        assert not context.is_answered
        echo(context)
        assert context.is_answered

    settings = NetworkSettings(
        listeners=(*loopback("CLIENTS"), ListenerSettings("INTERNAL", "127.0.0.1", 0)), inter_broker_listener_name="INTERNAL"
    )
    with Served(handler, settings) as served:
        for name in ("CLIENTS", "INTERNAL"):
            with served.client(name) as client:
                client.send(metadata_request("a"), 12)
                assert names(client, 1) == ["a"]
                context = contexts[-1]
                here, there = client.sock.getsockname(), client.sock.getpeername()
                assert context.listener_name == name
                assert context.listener is Listener.BROKER
                assert context.is_privileged is (name == "INTERNAL")
                assert (context.client_host, context.client_port, context.client_id) == (*here, "tests")
                assert context.connection_id == f"127.0.0.1:{there[1]}-127.0.0.1:{here[1]}-0-{len(contexts) - 1}"
                assert (context.principal, context.security_protocol) == ("User:ANONYMOUS", "PLAINTEXT")


def test_the_system_sizes_send_buffers_unless_a_size_is_set() -> None:
    """Kafka's default would end the kernel's own sizing: each large answer of a fetch would wake the node several times."""

    def size_with(setting: int) -> int:
        sizes: list[int] = []

        def handler(context: RequestContext) -> None:
            sizes.append(context._channel._sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            echo(context)

        with Served(handler, NetworkSettings(listeners=loopback(), socket_send_buffer_bytes=setting)) as served, served.client() as client:
            client.send(metadata_request("a"), 12)
            assert names(client, 1) == ["a"]
        return sizes[0]

    chosen = size_with(-1)
    assert size_with(NetworkSettings().socket_send_buffer_bytes) == chosen
    assert size_with(64 * 1024) == 2 * 64 * 1024 != chosen  # Linux doubles it.


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_pipelined_requests_answered_in_order_now_or_later(seed: int) -> None:
    rng = random.Random(seed)

    def handler(context: RequestContext) -> None:
        kind = rng.random()
        if kind < 0.6:
            echo(context)
        elif kind < 0.8:
            served.loop.call_soon(lambda: echo(context))
        elif kind < 0.81:
            served.loop.call_later(1, lambda: echo(context))
        else:
            served.loop.in_thread(lambda: None, lambda _: echo(context))

    with Served(handler) as served, served.client() as client:
        wanted = [str(number) for number in range(2000)]
        data = b"".join(client.encoded(metadata_request(name), 12) for name in wanted)
        sender = threading.Thread(target=client.sock.sendall, args=[data])
        sender.start()
        assert names(client, len(wanted)) == wanted
        sender.join()


def test_what_came_together_is_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send, sendmsg = socket.socket.send, socket.socket.sendmsg

    def counted(sock: socket.socket, data: bytes) -> int:
        sizes.append(len(data))
        return send(sock, data)

    def counted_parts(sock: socket.socket, parts: list[bytes], *more: Any) -> int:
        sizes.append(sum(map(len, parts)))
        return sendmsg(sock, parts, *more)

    monkeypatch.setattr(socket.socket, "send", counted)
    monkeypatch.setattr(socket.socket, "sendmsg", counted_parts)
    with Served(echo) as served, served.client() as client:
        wanted = [str(number) for number in range(1000)]
        client.sock.sendall(b"".join(client.encoded(metadata_request(name), 12) for name in wanted))
        assert names(client, len(wanted)) == wanted
        assert 0 < len(sizes) < 100


def test_a_request_is_not_begun_before_the_last_one_is_answered() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(metadata_request(name), 12) for name in "abc"))
        for count, name in enumerate("abc", 1):
            served.wait_for(lambda count=count: len(parked.contexts) == count)  # type: ignore[misc]
            assert name_of(parked.contexts[-1]) == name
            served.thread.call(lambda: echo(parked.contexts[-1]))
            assert names(client, 1) == [name]


def produce_times(client: Client, count: int) -> list[int]:
    """Return the throttle times that distinguish the next `count` answers."""
    answers = [client.receive() for _ in range(count)]
    return [answer.message.throttle_time_ms for answer in answers if answer is not None and isinstance(answer.message, ProduceResponse)]


def test_produces_are_begun_while_others_wait_and_answered_in_their_order() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(ProduceRequest(timeout_ms=number), 9) for number in range(4)))
        client.send(metadata_request("behind"), 12)
        client.send(ProduceRequest(timeout_ms=4), 9)
        served.wait_for(lambda: len(parked.contexts) == 4)

        def answer(number: int) -> None:
            context = parked.contexts[number]
            request = context.request.message
            assert isinstance(request, ProduceRequest)
            context.respond(ProduceResponse(throttle_time_ms=request.timeout_ms))

        for number in (1, 3, 0):
            served.thread.call(lambda number=number: answer(number))  # type: ignore[misc]
        assert produce_times(client, 2) == [0, 1]
        assert len(parked.contexts) == 4
        served.thread.call(lambda: answer(2))
        assert produce_times(client, 2) == [2, 3]
        served.wait_for(lambda: len(parked.contexts) == 5)
        served.thread.call(lambda: echo(parked.contexts[4]))
        assert names(client, 1) == ["behind"]
        served.wait_for(lambda: len(parked.contexts) == 6)
        served.thread.call(lambda: answer(5))
        assert produce_times(client, 1) == [4]


def test_a_produce_that_is_not_appended_yet_holds_the_next() -> None:
    parked = Parked()

    def hold(context: RequestContext) -> None:
        parked(context)
        if len(parked.contexts) == 1:
            context.hold_next()

    with Served(hold) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(ProduceRequest(timeout_ms=number), 9) for number in range(3)))
        served.wait_for(lambda: len(parked.contexts) == 1)
        time.sleep(0.05)
        assert len(parked.contexts) == 1
        served.thread.call(parked.contexts[0].release_next)
        served.wait_for(lambda: len(parked.contexts) == 3)
        for number in (2, 1, 0):
            served.thread.call(lambda number=number: parked.contexts[number].respond(ProduceResponse(throttle_time_ms=number)))  # type: ignore[misc]
        assert produce_times(client, 3) == [0, 1, 2]


def test_the_answer_to_the_only_waiting_request_goes_out_before_the_next_callback() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        for name in ("first", "second"):
            client.send(metadata_request(name), 12)
            served.wait_for(lambda: len(parked.contexts) == 1)

            def answer() -> bool:
                echo(parked.contexts.pop())
                return has_come(client.sock, 10)

            assert served.thread.call(answer)
            assert names(client, 1) == [name]


def test_answers_to_several_waiting_requests_go_out_together() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(ProduceRequest(timeout_ms=number), 9) for number in range(3)))
        served.wait_for(lambda: len(parked.contexts) == 3)

        def answer(*numbers: int, patience_s: float) -> bool:
            for number in numbers:
                parked.contexts[number].respond(ProduceResponse(throttle_time_ms=number))
            return has_come(client.sock, patience_s)

        assert not served.thread.call(lambda: answer(0, 1, patience_s=0))
        assert produce_times(client, 2) == [0, 1]
        assert served.thread.call(lambda: answer(2, patience_s=10))
        assert produce_times(client, 1) == [2]


def test_an_answer_to_a_client_that_is_gone() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as other:
        with served.client() as client:
            client.send(metadata_request("gone"), 12)
            served.wait_for(lambda: len(parked.contexts) == 1)
            reset(client.sock)
        served.thread.call(lambda: echo(parked.contexts.pop()))
        served.wait_for(lambda: served.server.connection_count == 1)
        other.send(metadata_request("there"), 12)
        served.wait_for(lambda: len(parked.contexts) == 1)
        served.thread.call(lambda: echo(parked.contexts.pop()))
        assert names(other, 1) == ["there"]


def test_no_more_produces_are_begun_than_may_wait() -> None:
    parked = Parked()
    settings = NetworkSettings(listeners=loopback(), queued_max_requests=3)
    with Served(parked, settings) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(ProduceRequest(timeout_ms=number), 9) for number in range(8)))
        for count in range(3, 9):
            served.wait_for(lambda count=count: len(parked.contexts) == count)  # type: ignore[misc]
            served.thread.call(lambda count=count: parked.contexts[count - 3].respond(ProduceResponse(throttle_time_ms=count)))  # type: ignore[misc]
        assert produce_times(client, 6) == [3, 4, 5, 6, 7, 8]
        assert len(parked.contexts) == 8


def test_produces_that_wait_are_answered_before_a_wrong_request_ends_the_connection() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(client.encoded(ProduceRequest(), 9) + b"\0\0\0\2xx")
        served.wait_for(lambda: len(parked.contexts) == 1)
        served.thread.call(lambda: parked.contexts[0].respond(ProduceResponse(throttle_time_ms=7)))
        assert produce_times(client, 1) == [7]
        assert client.is_closed()


def test_a_slow_reader_is_not_read_and_holds_up_nobody() -> None:
    big = "x" * 20_000
    handled: list[str] = []

    def handler(context: RequestContext) -> None:
        name = name_of(context)
        handled.append(name)
        context.respond(MetadataResponse(cluster_id=name + big if name.startswith("slow") else name))

    with Served(handler) as served, served.client(receive_buffer_size=8192) as slow, served.client() as quick:
        count = 2000
        data = b"".join(slow.encoded(metadata_request(f"slow{number}"), 12) for number in range(count))
        sender = threading.Thread(target=slow.sock.sendall, args=[data])
        sender.start()
        for number in range(200):
            quick.send(metadata_request(str(number)), 12)
            assert names(quick, 1) == [str(number)]
        # 20 KB each: only as many as fill the cork and both socket buffers.
        assert len(handled) < 200 + 600
        assert names(slow, count) == [f"slow{number}{big}" for number in range(count)]
        sender.join()


def test_large_requests_and_responses() -> None:
    name = "n" * 30_000
    with Served(echo) as served, served.client() as client:
        from kops.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

        message = MetadataRequest(topics=[MetadataRequestTopic(name=name) for _ in range(300)])
        for _ in range(2):
            client.send(message, 12)
            client.send(metadata_request("small"), 12)
            assert names(client, 2) == [name, "small"]


def test_bytes_that_come_one_by_one() -> None:
    with Served(echo) as served, served.client() as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in client.encoded(metadata_request("a"), 12) + client.encoded(metadata_request("b"), 12):
            client.sock.send(bytes([byte]))
        assert names(client, 2) == ["a", "b"]


def test_an_api_versions_request_of_the_future() -> None:
    with Served(echo) as served, served.client() as client:
        frame = bytearray(client.encoded(ApiVersionsRequest(), 4))
        frame[6:8] = (99).to_bytes(2, "big")
        client.sock.sendall(frame)
        response = client.receive()
        assert response is not None
        assert isinstance(response.message, ApiVersionsResponse)
        assert response.message.error_code == 35
        assert [(key.api_key, key.min_version, key.max_version) for key in response.message.api_keys] == [(18, 0, 4)]
        client.send(metadata_request("a"), 12)
        assert names(client, 1) == ["a"]


# the end of connections -----------------------------------------------------------------------------------------------------------------


def test_a_client_that_has_nothing_more_to_say_gets_its_answers() -> None:
    with Served(echo) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(metadata_request(name), 12) for name in "abc") + b"\0\0")
        client.sock.shutdown(socket.SHUT_WR)
        assert names(client, 3) == ["a", "b", "c"]
        assert client.is_closed()


def test_requests_received_whole_before_a_close_are_carried_out() -> None:
    seen: list[str] = []

    def handler(context: RequestContext) -> None:
        seen.append(name_of(context))
        context.respond_nothing()

    with Served(handler) as served:
        with served.client() as client:
            client.sock.sendall(b"".join(client.encoded(metadata_request(str(number)), 12) for number in range(3000)) + b"\0\0\1")
        served.wait_for(lambda: len(seen) == 3000)
        assert seen == [str(number) for number in range(3000)]
        served.wait_for(lambda: served.server.connection_count == 0)


def test_requests_behind_one_that_is_parked_are_carried_out_when_the_client_is_gone() -> None:
    seen: list[str] = []
    parked = Parked()

    def handler(context: RequestContext) -> None:
        seen.append(name_of(context))
        if seen[-1] in ("0", "5"):
            parked(context)
        else:
            echo(context)

    with Served(handler) as served:
        client = served.client()
        client.sock.sendall(b"".join(client.encoded(metadata_request(str(number)), 12) for number in range(10)))
        served.wait_for(lambda: len(parked.contexts) == 1)
        reset(client.sock)
        served.thread.call(lambda: echo(parked.contexts[0]))
        served.wait_for(lambda: len(parked.contexts) == 2)
        served.thread.call(lambda: echo(parked.contexts[1]))
        served.wait_for(lambda: len(seen) == 10)
        assert seen == [str(number) for number in range(10)]
        assert served.server.connection_count == 0
        assert not served.server._lost


def test_a_handler_may_close_the_connection_and_earlier_answers_go_out() -> None:
    handled: list[str] = []

    def handler(context: RequestContext) -> None:
        handled.append(name_of(context))
        if name_of(context) == "c":
            context.close_connection()
        else:
            echo(context)

    with Served(handler) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(metadata_request(name), 12) for name in "abcd"))
        assert names(client, 2) == ["a", "b"]
        assert client.is_closed()
        served.wait_for(lambda: served.server.connection_count == 0)
        assert handled == ["a", "b", "c"]


def test_a_stop_with_requests_parked() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(client.encoded(metadata_request("a"), 12) + client.encoded(metadata_request("b"), 12))
        served.wait_for(lambda: len(parked.contexts) == 1)
        served.thread.call(served.server.stop)
        served.thread.call(served.server.stop)
        assert client.is_closed()
        assert not parked.contexts[0].is_connected
        served.thread.call(lambda: echo(parked.contexts[0]))
        served.thread.call(parked.contexts[0].close_connection)
        assert len(parked.contexts) == 1


def test_a_throttled_connection_is_answered_and_then_left_alone() -> None:
    times_ms: list[float] = []

    def handler(context: RequestContext) -> None:
        times_ms.append(served.loop.monotonic_ms())
        context.respond(answer_to(context.request.message), throttle_ms=60)

    with Served(handler) as served, served.client() as client:
        client.sock.sendall(client.encoded(metadata_request("a"), 12) + client.encoded(metadata_request("b"), 12))
        assert names(client, 2) == ["a", "b"]
        client.send(metadata_request("c"), 12)
        assert names(client, 1) == ["c"]
        assert times_ms[1] - times_ms[0] >= 60
        assert times_ms[2] - times_ms[1] >= 60


# listeners ------------------------------------------------------------------------------------------------------------------------------


def test_listeners_and_what_they_advertise() -> None:
    listeners = (
        ListenerSettings("A", "127.0.0.1", 0),
        ListenerSettings("B", "localhost", 0, advertised_host="broker.example"),
        ListenerSettings("C", "", 0, advertised_host="c.example", advertised_port=19092, kind=Listener.CONTROLLER),
    )
    with Served(echo, NetworkSettings(listeners=listeners)) as served:
        server = served.server
        assert server.advertised_address("A") == ("127.0.0.1", server.bound_port("A"))
        assert server.advertised_address("B") == ("broker.example", server.bound_port("B"))
        assert server.advertised_address("C") == ("c.example", 19092)
        with served.client("A") as client:
            client.send(metadata_request("a"), 12)
            assert names(client, 1) == ["a"]
        with served.client("C") as client:
            client.send(metadata_request("a"), 12)  # no API of a controller
            assert client.is_closed()


def test_listeners_come_and_go() -> None:
    with Served(echo) as served:
        served.thread.call(lambda: served.server.add_listener(ListenerSettings("MORE", "127.0.0.1", 0)))
        with served.client("MORE") as client, served.client() as other:
            client.send(metadata_request("a"), 12)
            assert names(client, 1) == ["a"]
            port = served.port("MORE")
            served.thread.call(lambda: served.server.remove_listener("MORE"))
            assert client.is_closed()
            other.send(metadata_request("b"), 12)
            assert names(other, 1) == ["b"]
        with pytest.raises(ConnectionRefusedError):
            Client(port)


def test_a_port_that_is_taken() -> None:
    before = open_fds()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listeners = (*loopback("FREE"), ListenerSettings("TAKEN", "127.0.0.1", port))
        with pytest.raises(BindError, match=f"listener TAKEN can't listen on 127.0.0.1:{port}: Address already in use"):
            Served(echo, NetworkSettings(listeners=listeners))
        with Served(echo) as served:
            with pytest.raises(BindError):
                served.thread.call(lambda: served.server.add_listener(listeners[1]))
            with served.client() as client:
                client.send(metadata_request("a"), 12)
                assert names(client, 1) == ["a"]
    assert open_fds() == before


def test_an_address_of_another_machine() -> None:
    with pytest.raises(BindError, match=r"listener L can't listen on 192\.0\.2\.1:9092"):
        Served(echo, NetworkSettings(listeners=(ListenerSettings("L", "192.0.2.1"),)))
    with pytest.raises(BindError, match=r"listener L can't listen on no-such-host\.invalid:9092"):
        Served(echo, NetworkSettings(listeners=(ListenerSettings("L", "no-such-host.invalid"),)))


# rest -----------------------------------------------------------------------------------------------------------------------------------


def test_a_thousand_idle_connections_cost_no_turn() -> None:
    before = open_fds()
    with Served(echo, NetworkSettings(listeners=loopback(), socket_listen_backlog_size=1000)) as served:
        clients = [served.client() for _ in range(1000)]
        served.wait_for(lambda: served.server.connection_count == 1000)
        first = clients[0]
        first.send(metadata_request("a"), 12)
        assert names(first, 1) == ["a"]
        turns = served.thread.call(lambda: served.loop.turn_count)
        threading.Event().wait(0.3)
        assert served.thread.call(lambda: served.loop.turn_count) - turns <= 3
        for client in clients:
            client.sock.close()
        served.wait_for(lambda: served.server.connection_count == 0)
    assert open_fds() == before


def test_a_request_that_is_parked_costs_no_turn_whatever_the_client_does() -> None:
    parked = Parked()
    with Served(parked) as served, served.client() as client:
        client.sock.sendall(client.encoded(metadata_request("a"), 12) + client.encoded(metadata_request("b"), 12) + b"\0")
        client.sock.shutdown(socket.SHUT_WR)
        served.wait_for(lambda: len(parked.contexts) == 1)
        turns = served.thread.call(lambda: served.loop.turn_count)
        threading.Event().wait(0.2)
        assert served.thread.call(lambda: served.loop.turn_count) - turns <= 4
        served.thread.call(lambda: echo(parked.contexts[0]))
        served.wait_for(lambda: len(parked.contexts) == 2)
        served.thread.call(lambda: echo(parked.contexts[1]))
        assert names(client, 2) == ["a", "b"]
        assert client.is_closed()


def test_many_clients_at_once() -> None:
    handled: list[str] = []

    def handler(context: RequestContext) -> None:
        handled.append(name_of(context))
        echo(context)

    with Served(handler) as served:
        failed: list[BaseException] = []

        def work(number: int) -> None:
            with served.client() as client:
                wanted = [f"{number} {request}" for request in range(100)]
                client.sock.sendall(b"".join(client.encoded(metadata_request(name), 12) for name in wanted))
                if names(client, len(wanted)) != wanted:
                    failed.append(AssertionError(number))

        threads = [threading.Thread(target=work, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not failed
        served.wait_for(lambda: served.server.connection_count == 0)
        assert len(handled) == 2000
