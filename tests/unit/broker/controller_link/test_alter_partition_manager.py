"""Changes of in-sync sets: one request for all changes of one turn, and a retry after a pause if it fails."""

from __future__ import annotations

import pytest

from kops.broker.controller_link.alter_partition_manager import AlterPartitionSender
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from kops.protocol.messages.alter_partition_response import PartitionData, TopicData
from kops.replication.leading.alter_partition import RETRY_DELAY_MS
from kops.replication.leading.isr import BrokerState, LeaderAndIsr, ProposedIsr
from tests.support.parts.controller_stub import StubChannel
from tests.support.parts.manual_loop import ManualLoop

TOPIC = b"t" * 16
PROPOSED = ProposedIsr(1, 4, (BrokerState(1, 10), BrokerState(2, 20)), 0, 6)
ANSWER = AlterPartitionResponse(topics=[TopicData(TOPIC, [PartitionData(0, 0, 1, 4, [1, 2], 0, 7)])])


class World:
    """A sender, and the answers to partitions."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.channel = StubChannel()
        self.sender = AlterPartitionSender(self.loop, self.channel, 1, lambda: 33)
        self.answers: list[LeaderAndIsr | str] = []

    def ask(self, *partitions: int) -> None:
        for partition in partitions:
            self.sender.submit(TOPIC, partition, PROPOSED, self.answers.append)

    def asked(self) -> list[int]:
        """Return the partitions in the pending request."""
        request = self.channel.sent[0][0]
        assert isinstance(request, AlterPartitionRequest)
        assert (request.broker_id, request.broker_epoch) == (1, 33)
        return [partition.partition_index for topic in request.topics for partition in topic.partitions]


def test_what_is_asked_in_one_turn_goes_in_one_request() -> None:
    world = World()
    world.ask(0, 1)
    world.ask(1)
    assert world.answers == ["OPERATION_NOT_ATTEMPTED"]
    world.loop.advance()
    assert world.asked() == [0, 1]
    request = world.channel.sent[0][0]
    assert isinstance(request, AlterPartitionRequest)
    # The request can be written in the version that all nodes know.
    assert AlterPartitionRequest.read(request.encode(3), 3)[0].topics[0].partitions[0].new_isr_with_epochs[1].broker_epoch == 20
    world.ask(2)
    world.loop.advance(1000)
    assert world.channel.count == 1
    world.channel.answer(ANSWER)
    assert world.answers[1:] == [LeaderAndIsr(1, 4, (1, 2), 0, 7)]
    # Unanswered partitions, and those that came in the meantime.
    world.loop.advance()
    assert world.asked() == [1, 2]


def test_a_failed_request_is_repeated_after_a_pause() -> None:
    world = World()
    world.ask(0)
    world.loop.advance()
    for failure in (ApiError("REQUEST_TIMED_OUT"), AlterPartitionResponse(error_code=by_name("STALE_BROKER_EPOCH").code)):
        world.channel.answer(failure)
        world.loop.advance(RETRY_DELAY_MS - 1)
        assert world.channel.sent == []
        world.loop.advance(1)
        assert world.asked() == [0]
    world.channel.answer(ANSWER)
    assert world.answers == [LeaderAndIsr(1, 4, (1, 2), 0, 7)]
    world.loop.advance(10_000)
    assert world.channel.count == 3


def test_nothing_is_asked_behind_the_end() -> None:
    world = World()
    world.ask(0)
    world.sender.close()
    world.ask(1)
    world.loop.advance(10_000)
    assert world.channel.count == 0
    late = World()
    late.ask(0)
    late.loop.advance()
    late.sender.close()
    late.channel.answer(ANSWER)
    assert late.answers == []


def test_a_wall_clock_that_is_set_back_puts_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.ask(0)
    world.loop.advance(1)
    world.channel.answer(ANSWER)
    monkeypatch.setattr(world.loop, "now_ms", lambda: -3_600_000)
    world.ask(0)
    world.loop.advance(RETRY_DELAY_MS)
    assert world.asked() == [0]
