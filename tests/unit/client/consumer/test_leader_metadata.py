"""The leader of a classic group looks at the metadata that it has divided: when it compares them, and that it misses no change."""

from __future__ import annotations

from typing import Any

from kops.client.consumer.core.collecting import PLAIN
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.groups.classic import ClassicGroup
from kops.client.consumer.options import ConsumerOptions
from kops.client.groups.assignors import Subscription
from kops.client.groups.consumer_protocol import write_subscription
from kops.client.groups.strategies import make_assignors
from kops.client.node import Node
from kops.protocol.messages import HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from kops.protocol.messages.join_group_response import JoinGroupResponseMember
from kops.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.consumer.test_poll_order import NoLinks

NODE = Node(7, "h", 9)


class Leader:
    """The only member of a group. Requests are answered by the test; `joins` are the reasons of its JoinGroups."""

    def __init__(self) -> None:
        settings = {"bootstrap.servers": "x:1", "group.id": "g", "enable.auto.commit": False}
        links: Any = NoLinks()
        assignors = make_assignors(["range"])
        self.core = ConsumerCore(ConsumerOptions.of(settings), [("x", 1)], links, lambda: 0.5, lambda: 0, PLAIN, assignors, lambda: "id", 0)
        self.core.subscribe(["t"], 0)
        group = self.core.group
        assert isinstance(group, ClassicGroup)
        self.group = group
        self.joins: list[str | None] = []
        self.now_ms = 0.0
        self.see(3)
        self.core.coordinator.node = NODE

    def see(self, partitions: int) -> None:
        """Receive metadata in which the topic has so many partitions."""
        found = [MetadataResponsePartition(partition_index=index, leader_id=7) for index in range(partitions)]
        self.core.metadata.request(0)
        brokers = [MetadataResponseBroker(NODE.id, NODE.host, NODE.port)]
        self.core.metadata.received(MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=found)]), 0)

    def turn(self) -> None:
        """Poll, and answer each request at once. Calls of the listener stay."""
        while requests := self.group.turn(self.now_ms, in_poll=True):
            for request in requests:
                answer = self._answer(request.message)
                if answer is not None:
                    request.answered(answer, self.now_ms)

    def _answer(self, message: object) -> Any:
        if isinstance(message, JoinGroupRequest):
            self.joins.append(message.reason)
            me = JoinGroupResponseMember("me", None, write_subscription(Subscription(["t"])))
            return JoinGroupResponse(
                generation_id=1, protocol_type="consumer", protocol_name="range", leader="me", member_id="me", members=[me]
            )
        if isinstance(message, SyncGroupRequest):
            return SyncGroupResponse(assignment=message.assignments[0].assignment)
        assert isinstance(message, HeartbeatRequest)
        return None

    def tell(self) -> None:
        """Call the listener, which does nothing, and go on."""
        while self.group.call is not None:
            self.group.call.done(None)
            self.turn()


def assigned() -> Leader:
    """Return a leader whose listener is about to learn its partitions."""
    leader = Leader()
    leader.turn()
    leader.see(3)  # it waits for metadata with the topics of all members
    leader.turn()
    assert leader.group.call is not None
    return leader


def joined() -> Leader:
    leader = assigned()
    leader.tell()
    assert len(leader.joins) == 1
    return leader


def test_another_number_of_partitions_begins_a_rebalance() -> None:
    leader = joined()
    leader.see(3)
    leader.turn()
    assert len(leader.joins) == 1
    leader.see(4)
    leader.turn()
    leader.tell()
    assert leader.joins[1:] == ["cached metadata has changed"]


def test_a_change_during_a_call_of_the_listener_is_seen_after_it() -> None:
    leader = assigned()
    leader.see(4)
    leader.turn()
    assert len(leader.joins) == 1
    leader.tell()
    assert leader.joins[1:] == ["cached metadata has changed"]


def test_a_change_that_is_taken_back_before_there_is_a_coordinator_is_none() -> None:
    """Kafka's ConsumerCoordinator compares in rejoinNeededOrPending, which poll calls once it has a coordinator."""
    leader = joined()
    leader.core.coordinator.lose("gone")
    leader.see(4)
    leader.turn()
    leader.see(3)
    leader.core.coordinator.node = NODE
    leader.now_ms += 1000  # after the pause
    leader.turn()
    leader.tell()
    assert len(leader.joins) == 1
    leader.see(4)
    leader.turn()
    leader.tell()
    assert leader.joins[1:] == ["cached metadata has changed"]
