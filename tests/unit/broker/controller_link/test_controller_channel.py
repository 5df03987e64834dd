"""Requests to the active controller: order, changes of the controller, lost connections, timeouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kops.broker.controller_link import channel as controller_channel
from kops.broker.controller_link.channel import ControllerChannel
from kops.broker.network.peer import PeerSettings
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import error_code
from kops.metadata.raft.voters.replica import Node
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsResponse,
)
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from tests.support.parts.manual_loop import ManualLoop

REFUSED = BrokerHeartbeatResponse(error_code=error_code("NOT_CONTROLLER"))


class MadeUpPeer:
    """A node that answers when the test says so."""

    versions = None

    def __init__(self, loop: Any, host: str, port: int, *, draw: Any, settings: PeerSettings) -> None:
        self.host, self.port, self.settings = host, port, settings
        self.asked: list[tuple[Message, Callable[[Any], object]]] = []
        self.is_closed = False

    def send(self, message: Message, done: Callable[[Any], object]) -> None:
        self.asked.append((message, done))

    def answer(self, result: Message | ApiError) -> Message:
        """Answer the only request, and return it."""
        ((message, done),) = self.asked
        self.asked.clear()
        done(result)
        return message

    def close(self) -> None:
        self.is_closed = True
        while self.asked:
            self.asked.pop()[1](ApiError("NETWORK_EXCEPTION"))


class World:
    """A channel, the controller, and the nodes that it has connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, retry_timeout_ms: int | None = None) -> None:
        self.loop = ManualLoop()
        self.controller: Node | None = Node(1, "one", 9093)
        self.peers: list[MadeUpPeer] = []
        self.results: list[Any] = []

        def connect(*args: Any, **settings: Any) -> MadeUpPeer:
            self.peers.append(MadeUpPeer(*args, **settings))
            return self.peers[-1]

        monkeypatch.setattr(controller_channel, "Peer", connect)
        self.channel = ControllerChannel(
            self.loop,
            lambda: self.controller,
            draw=lambda: 0.5,
            settings=PeerSettings(request_timeout_ms=30_000),
            retry_timeout_ms=retry_timeout_ms,
        )

    def send(self, number: int, **options: Any) -> None:
        self.channel.send(BrokerHeartbeatRequest(broker_id=number), self.results.append, **options)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Provide a world in which node 1 is the controller and nothing was sent yet."""
    return World(monkeypatch)


def test_one_at_a_time_in_order(world: World) -> None:
    for number in range(3):
        world.send(number)
    for number in range(3):
        world.loop.advance()
        asked = world.peers[0].answer(BrokerHeartbeatResponse())
        assert asked == BrokerHeartbeatRequest(broker_id=number)
    assert len(world.results) == 3 and world.channel.unfinished_count == 0
    world.loop.advance()
    assert world.loop.timer_count == 0


def test_requests_wait_for_a_controller(world: World) -> None:
    world.controller = None
    world.send(1)
    world.loop.advance(1000)
    assert not world.peers
    world.controller = Node(2, "two", 9093)
    world.loop.advance(100)
    world.peers[0].answer(BrokerHeartbeatResponse())
    assert world.peers[0].host == "two" and len(world.results) == 1
    assert world.loop.timer_count == 0


@pytest.mark.parametrize("lost", [ApiError("NETWORK_EXCEPTION"), ApiError("REQUEST_TIMED_OUT"), REFUSED])
def test_a_lost_request_goes_to_the_next_controller_first(world: World, lost: Message | ApiError) -> None:
    world.send(1)
    world.send(2)
    world.loop.advance()
    world.controller = Node(2, "two", 9094)
    world.peers[0].answer(lost)
    world.loop.advance(100)
    assert world.peers[0].is_closed and not world.results
    assert world.peers[1].answer(BrokerHeartbeatResponse()) == BrokerHeartbeatRequest(broker_id=1)
    world.loop.advance()
    assert world.peers[1].answer(BrokerHeartbeatResponse()) == BrokerHeartbeatRequest(broker_id=2)
    assert world.results == [BrokerHeartbeatResponse()] * 2


def test_the_same_controller_keeps_its_connection(world: World) -> None:
    """The back-off belongs to the connection."""
    world.send(1)
    for _ in range(3):
        world.loop.advance(100)
        world.peers[0].answer(ApiError("NETWORK_EXCEPTION"))
    world.loop.advance(100)
    world.peers[0].answer(BrokerHeartbeatResponse())
    assert len(world.peers) == 1 and len(world.results) == 1


def test_other_errors_are_the_askers(world: World) -> None:
    world.send(1)
    world.send(2)
    for result in (ApiError("UNSUPPORTED_VERSION"), BrokerHeartbeatResponse(error_code=77)):
        world.loop.advance()
        world.peers[0].answer(result)
    assert [getattr(result, "name", result) for result in world.results] == ["UNSUPPORTED_VERSION", BrokerHeartbeatResponse(error_code=77)]


def test_refusals_within_a_response(world: World) -> None:
    """CreateTopics reports the error topic by topic."""
    world.channel.send(AllocateProducerIdsRequest(), world.results.append)
    for refused in (CreateTopicsResponse(topics=[CreatableTopicResult("a", error_code=41)]), AllocateProducerIdsResponse(error_code=41)):
        world.loop.advance(100)
        world.peers[0].answer(refused)
        assert not world.results
    world.loop.advance(100)
    world.peers[0].answer(AllocateProducerIdsResponse(producer_id_len=5))
    assert world.results == [AllocateProducerIdsResponse(producer_id_len=5)]


def test_what_waits_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, retry_timeout_ms=2000)
    world.controller = None
    world.send(1)
    world.send(2, timeout_ms=5000)
    world.loop.advance(1999)
    assert not world.results
    world.loop.advance(1)
    assert [result.name for result in world.results] == ["REQUEST_TIMED_OUT"]
    world.controller = Node(1, "one", 9093)
    world.loop.advance(100)
    assert world.peers[0].settings.request_timeout_ms == 2000
    world.loop.advance(5000)
    assert len(world.results) == 1, "on its way it may still be answered"
    world.peers[0].answer(ApiError("NETWORK_EXCEPTION"))
    assert [result.name for result in world.results] == ["REQUEST_TIMED_OUT"] * 2


def test_a_closed_channel_ends_everything(world: World) -> None:
    for number in range(3):
        world.send(number)
    world.loop.advance()
    world.channel.close()
    world.send(4)
    world.loop.advance()
    assert [result.name for result in world.results] == ["NETWORK_EXCEPTION"] * 4
    world.channel.close()
    assert world.loop.timer_count == 0
