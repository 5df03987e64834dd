"""The order of a poll: the group comes before the records, so that a commit before a rebalance covers only what the program has got."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kops.client.consumer.core.collecting import PLAIN, CompletedFetch
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.groups.calls import GroupMembership
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.requests import FOREVER, Outgoing
from kops.client.consumer.parts.state import Kind, Position
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.protocol.messages import LeaveGroupRequest, OffsetCommitRequest
from kops.protocol.messages.fetch_response import PartitionData
from kops.records import Record, build_batch
from kops.records.log_offsets import TopicPartition

KEY = TopicPartition("t", 0)


class NoLinks:
    """Connections to nodes that can't be reached."""

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return None

    def is_failing(self, node: Node) -> bool:
        return True


class RebalancingGroup:
    """A membership that commits in every turn in which partitions may change."""

    call = error = None

    def __init__(self, core: ConsumerCore) -> None:
        self.core = core
        self.covered: list[int] = []

    def polled(self, now_ms: float) -> None:
        """Do nothing."""

    def turn(self, now_ms: float, *, in_poll: bool) -> list[Outgoing]:
        if not in_poll:
            return []
        self.covered.append(self.core.commits.positions()[KEY].offset)
        return [Outgoing(Node(1, "x", 1), OffsetCommitRequest(), lambda answer, now_ms: None)]

    def leave(self, membership: GroupMembership, reason: str, now_ms: float) -> list[Outgoing]:
        return [Outgoing(Node(1, "x", 1), LeaveGroupRequest(), lambda answer, now_ms: None)]

    def wake_ms(self, *, in_poll: bool) -> float:
        return FOREVER


def test_a_commit_before_a_rebalance_covers_what_the_program_has_got() -> None:
    options = ConsumerOptions.of({"bootstrap.servers": "x:1", "group.id": "g"})
    links: Any = NoLinks()
    core = ConsumerCore(options, [("x", 1)], links, lambda: 0.5, lambda: 0, PLAIN, [], lambda: "id", 0)
    core.subscriptions.set_kind(Kind.TOPICS)
    core.subscriptions.topics = frozenset(["t"])
    core.subscriptions.assign([KEY])
    core.subscriptions.state(KEY).seek(Position(0, None, Leader(1, 5)))
    group: Any = RebalancingGroup(core)
    core.group = group
    data = PartitionData(records=build_batch([Record(number, 1000, "CreateTime", None, b"x") for number in range(3)]), high_watermark=3)
    core.fetcher.completed.append(CompletedFetch(KEY, data, 0))
    core.begin_poll(0)
    records = core.poll(0)
    assert records is not None and len(records) == 3
    requests, _ = core.turn(0, in_poll=True)
    assert group.covered == [0] and len(requests) == 1  # the commit is sent, and it does not cover the three records
    assert core.turn(0, in_poll=False)[0] == []
    assert group.covered == [0]
    core.begin_poll(1)  # now the program has got them
    assert core.poll(1) is None
    assert group.covered == [0, 3]
    leaving = core.leave(GroupMembership.DEFAULT, "the end", 2)
    assert [type(one.message) for one in leaving] == [OffsetCommitRequest, LeaveGroupRequest]  # nothing follows the request that leaves
    assert core.turn(2, in_poll=False)[0] == []
