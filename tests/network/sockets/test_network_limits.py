"""Limits of the socket server on loopback: idle connections, counts, rates, memory, descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
from dataclasses import replace
from functools import partial

import pytest

from kops.broker.network.channel import Channel, RequestContext
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.broker.network.socket_server import SocketServer
from kops.protocol.messages import MetadataResponse, ProduceRequest, ProduceResponse
from tests.support.nodes.networking import Client, Served, echo, loopback, metadata_request

ONE = NetworkSettings(listeners=loopback())
TWO = NetworkSettings(listeners=loopback("CLIENTS", "BROKERS"), inter_broker_listener_name="BROKERS")


def is_served(client: Client, name: str = "x") -> bool:
    """Return whether a request is answered. It is False if the connection is closed instead."""
    try:
        client.send(metadata_request(name), 12)
    except (BrokenPipeError, ConnectionResetError):
        return False
    response = client.receive()
    return response is not None and isinstance(response.message, MetadataResponse) and response.message.cluster_id == name


def test_idle_connections_are_closed_the_least_recently_used_first(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []

    def has_closed(channel: Channel) -> None:
        closed.append(channel.client_port)
        SocketServer.has_closed(served.server, channel)

    settings = replace(ONE, connections_max_idle_ms=1500)
    with Served(echo, settings) as served, served.client() as idle, served.client() as used:
        monkeypatch.setattr(served.server, "has_closed", has_closed)
        for client in (used, idle, used):
            assert is_served(client)
        ports = [client.sock.getsockname()[1] for client in (idle, used)]
        assert idle.is_closed()
        assert used.is_closed()
        served.wait_for(lambda: len(closed) == 2)
        assert closed == ports
        served.wait_for(lambda: served.server.connection_count == 0)
        with served.client() as another:
            assert is_served(another)
            assert another.is_closed()


def test_an_idle_connection_with_a_request_parked_is_closed_too() -> None:
    contexts: list[RequestContext] = []
    settings = replace(ONE, connections_max_idle_ms=500)
    with Served(contexts.append, settings) as served, served.client() as client:
        client.send(metadata_request("a"), 12)
        client.send(metadata_request("b"), 12)
        assert client.is_closed()
        assert not contexts[0].is_connected
        # A request that was received as a whole is still carried out.
        served.thread.call(lambda: echo(contexts[0]))
        served.wait_for(lambda: len(contexts) == 2 or not served.server._lost)
        for context in contexts[1:]:
            served.thread.call(lambda context=context: echo(context))  # type: ignore[misc]
        served.wait_for(lambda: not served.server._lost)


def test_without_an_idle_limit_there_is_no_timer() -> None:
    with Served(echo, replace(ONE, connections_max_idle_ms=-1)) as served, served.client() as client:
        assert is_served(client)
        assert list(served.server._channels.values()) == [None]


def test_connections_of_an_address() -> None:
    with Served(echo, replace(ONE, max_connections_per_ip=2)) as served:
        with served.client() as first, served.client() as second:
            assert is_served(first)
            assert is_served(second)
            with served.client() as third:
                assert third.is_closed()
            assert is_served(first)
        served.wait_for(lambda: served.server.connection_count == 0)
        with served.client() as client:
            assert is_served(client)


def test_overrides_by_host_name() -> None:
    settings = replace(ONE, max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1})
    with Served(echo, settings) as served, served.client() as first, served.client() as second:
        assert is_served(first)
        assert second.is_closed()
        served.thread.call(lambda: served.server.update_limits(replace(settings, max_connections_per_ip_overrides={})))
        assert is_served(first)
        with served.client() as third:
            assert third.is_closed()
        with pytest.raises(OSError, match=r"."):
            Served(echo, replace(ONE, max_connections_per_ip_overrides={"no-such-host.invalid": 1}))


@pytest.mark.parametrize(
    "settings",
    [replace(ONE, max_connections=2), replace(ONE, listeners=(ListenerSettings("PLAINTEXT", "127.0.0.1", 0, max_connections=2),))],
    ids=["node", "listener"],
)
def test_a_connection_too_many_waits_for_another_one_to_end(settings: NetworkSettings) -> None:
    with Served(echo, settings) as served:
        first, second = served.client(), served.client()
        assert is_served(first)
        assert is_served(second)
        with served.client() as third, served.client() as fourth:
            third.send(metadata_request("third"), 12)
            fourth.send(metadata_request("fourth"), 12)
            assert is_served(first)
            assert served.server.connection_count == 2
            first.sock.close()
            assert third.receive() is not None
            assert served.server.connection_count == 2
            second.sock.close()
            assert fourth.receive() is not None


def test_more_room_lets_in_who_waits() -> None:
    settings = replace(ONE, max_connections=1)
    with Served(echo, settings) as served, served.client() as first, served.client() as second:
        assert is_served(first)
        second.send(metadata_request("second"), 12)
        served.thread.call(lambda: served.server.update_limits(replace(settings, max_connections=2)))
        assert second.receive() is not None
        assert is_served(first)


def test_for_the_brokers_own_listener_the_least_recently_used_other_one_goes() -> None:
    with Served(echo, replace(TWO, max_connections=3)) as served:
        first, second, third = (served.client("CLIENTS") for _ in range(3))
        for client in (first, second, third, first):
            assert is_served(client)
        with served.client("BROKERS") as broker:
            assert is_served(broker)
            assert second.is_closed()
            assert is_served(first)
            assert is_served(third)
            with served.client("BROKERS") as another:
                assert is_served(another)
                assert first.is_closed()
                assert is_served(third)
        for client in (first, second, third):
            client.sock.close()


def test_connections_that_come_too_fast_are_let_in_late() -> None:
    settings = replace(ONE, max_connection_creation_rate=4, quota_window_num=2)
    with Served(echo, settings) as served:
        start_ms = served.loop.monotonic_ms()
        clients = [served.client() for _ in range(6)]
        assert all(is_served(client) for client in clients)
        # Four are free. The fifth is a quarter of a second above the rate.
        assert served.loop.monotonic_ms() - start_ms >= 250
        for client in clients:
            client.sock.close()


def test_an_address_that_is_too_fast_is_refused_late() -> None:
    with Served(echo, replace(ONE, quota_window_num=2)) as served:
        served.thread.call(lambda: served.server.limits.set_address_rate("127.0.0.1", 1))
        start_ms = served.loop.monotonic_ms()
        with served.client() as first, served.client() as second:
            assert is_served(first)
            assert second.is_closed()
            assert served.loop.monotonic_ms() - start_ms >= 999
            assert is_served(first)
            served.client()  # its refusal is cut short by the server's stop


def test_the_memory_of_requests_is_bounded_and_who_waits_is_served_in_order() -> None:
    seen: list[str] = []

    def handler(context: RequestContext) -> None:
        message = context.request.message
        seen.append(message.topics[0].name[0])  # type: ignore[attr-defined]
        echo(context)

    settings = replace(ONE, queued_max_request_bytes=1000, socket_request_max_bytes=1000)
    with Served(handler, settings) as served:
        clients = [served.client() for _ in range(4)]
        frames = [client.encoded(metadata_request(name * 900), 12) for client, name in zip(clients, "abcd", strict=True)]
        memory = served.server.memory
        for index in range(2):
            # The second one is still accepted, because one request may exceed the bound.
            clients[index].sock.sendall(frames[index][:100])
            served.wait_for(lambda index=index: memory.available == 1000 - (index + 1) * (len(frames[0]) - 4))  # type: ignore[misc]
        for index in (3, 2):
            clients[index].sock.sendall(frames[index])
            served.wait_for(lambda index=index: len(memory._waiters) == 4 - index)  # type: ignore[misc]
        assert seen == []
        clients[1].sock.close()
        clients[0].sock.sendall(frames[0][100:])
        for index in (0, 3, 2):
            assert clients[index].receive() is not None
        assert [name for name in seen if name != "a"] == ["d", "c"]
        assert memory.available == 1000
        for client in clients:
            client.sock.close()


def test_who_waits_for_memory_may_go() -> None:
    settings = replace(ONE, queued_max_request_bytes=100, socket_request_max_bytes=100, connections_max_idle_ms=1500)
    with Served(echo, settings) as served, served.client() as greedy, served.client() as waiting, served.client() as other:
        assert is_served(other)
        greedy.sock.sendall(struct.pack(">i", 100) + b"\0")
        served.wait_for(lambda: served.server.memory.available == 0)
        waiting.sock.sendall(struct.pack(">i", 50))
        served.wait_for(lambda: len(served.server.memory._waiters) == 1)
        assert greedy.is_closed()
        assert waiting.is_closed()
        with served.client() as another:
            assert is_served(another)


def test_pipelined_requests_with_bounded_memory() -> None:
    settings = replace(ONE, queued_max_request_bytes=200, socket_request_max_bytes=200)
    with Served(echo, settings) as served, served.client() as client:
        client.sock.sendall(b"".join(client.encoded(metadata_request(str(number)), 12) for number in range(500)))
        for number in range(500):
            response = client.receive()
            assert response is not None
            assert response.message.cluster_id == str(number)  # type: ignore[attr-defined]


def test_what_waits_behind_a_produce_takes_no_memory_from_those_who_end_the_waiting() -> None:
    parked: list[RequestContext] = []

    def handler(context: RequestContext) -> None:
        if isinstance(context.request.message, ProduceRequest):
            parked.append(context)
        else:
            echo(context)

    settings = replace(ONE, queued_max_request_bytes=200, socket_request_max_bytes=200)
    with Served(handler, settings) as served, served.client() as first, served.client() as second, served.client() as follower:
        for client in (first, second):
            client.sock.sendall(client.encoded(ProduceRequest(), 9) + client.encoded(metadata_request("n" * 150), 12))
        served.wait_for(lambda: len(parked) == 2)
        for _ in range(20):
            assert is_served(follower)
        for context in parked:
            served.thread.call(partial(context.respond, ProduceResponse()))
        for client in (first, second):
            assert client.receive() is not None
            response = client.receive()
            assert response is not None
            assert response.message.cluster_id == "n" * 150  # type: ignore[attr-defined]


def test_without_descriptors_connections_wait(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    with Served(echo) as served, served.client() as first, Client(None) as second:
        assert is_served(first)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 1, hard))
            with contextlib.suppress(OSError):
                while True:
                    fillers.append(os.dup(0))
            second.sock.connect(("127.0.0.1", served.port()))
            served.wait_for(lambda: "can't accept connections" in caplog.text)
            turns = served.thread.call(lambda: served.loop.turn_count)
            assert is_served(first)
            assert served.thread.call(lambda: served.loop.turn_count) - turns < 10
        finally:
            for filler in fillers:
                os.close(filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_served(second)
