"""Heartbeats that repeat the last one are neither read nor written anew. Their answers are the same as without that, in the same order."""

from __future__ import annotations

import random
import time

import pytest

from kops.broker.network.channel import RequestContext
from kops.broker.network.settings import NetworkSettings
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support.nodes.networking import Client, Served, loopback

CODES = (0, 25, 27)
SHARED = {code: HeartbeatResponse(error_code=code) for code in CODES}


class Answering:
    """Answers heartbeats with a message that is often the same object, and Produce when the next request has come or a timer is due."""

    def __init__(self) -> None:
        self.waiting: list[RequestContext] = []
        self.messages: list[Message] = []

    def __call__(self, context: RequestContext) -> None:
        message = context.request.message
        self.messages.append(message)
        if isinstance(message, ProduceRequest):
            self.waiting.append(context)
            context._channel._owner.loop.call_later(2, self.release)
            return
        self.release()
        context.respond(self.answer(message))

    def answer(self, message: Message) -> Message:
        if isinstance(message, HeartbeatRequest):
            return SHARED[CODES[message.generation_id % len(CODES)]]
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            return ConsumerGroupHeartbeatResponse(member_id=message.member_id, member_epoch=message.member_epoch)
        assert isinstance(message, ListGroupsRequest)
        return ListGroupsResponse()

    def release(self) -> None:
        while self.waiting:
            self.waiting.pop(0).respond(ProduceResponse())


def drawn(rng: random.Random) -> tuple[Message, int, Message]:
    """Return a request, its version, and its answer."""
    kind = rng.random()
    if kind < 0.6:
        generation, version = rng.choice((1, 1, 1, 2, 3)), rng.choice((4, 4, 4, 0))
        return HeartbeatRequest("g", generation, "m"), version, SHARED[CODES[generation % len(CODES)]]
    if kind < 0.8:
        epoch = rng.choice((3, 3, 3, 300))
        return ConsumerGroupHeartbeatRequest("g", "m", epoch), 1, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=epoch)
    if kind < 0.9:
        return ListGroupsRequest(), 5, ListGroupsResponse()
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), 11, ProduceResponse()


@pytest.mark.parametrize("memory_bytes", [-1, 1 << 20], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("seed", range(3))
def test_answers_in_order(seed: int, memory_bytes: int) -> None:
    rng = random.Random(seed)
    answering = Answering()
    settings = NetworkSettings(listeners=loopback("CLIENTS"), queued_max_request_bytes=memory_bytes)
    with Served(answering, settings) as served, served.client("CLIENTS") as client:
        sent: list[tuple[Message, int, Message]] = []
        for _ in range(150):
            burst = [drawn(rng) for _ in range(rng.choice((1, 1, 1, 2, 5)))]
            sent += burst
            send(client, b"".join(client.encoded(message, version) for message, version, _ in burst), rng)
            for message, version, answer in burst:
                response = client.receive()
                assert response is not None
                assert response.message == type(answer).decode(answer.encode(version), version), (message, version)
    assert answering.messages == [message for message, _, _ in sent]
    beats = [message for message in answering.messages if isinstance(message, HeartbeatRequest)]
    assert len({id(beat) for beat in beats}) < len(beats) * 0.75, "few heartbeats were shared"


def send(client: Client, data: bytes, rng: random.Random) -> None:
    """Send the bytes at once, or in two parts that arrive one after the other."""
    cut = rng.randrange(len(data)) if rng.random() < 0.2 else 0
    client.sock.sendall(data[:cut])
    if cut:
        time.sleep(0.002)
    client.sock.sendall(data[cut:])
