"""Raw requests about share groups and their state to one broker, valid and invalid ones.

Each step yields its name and its masked answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupStateRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    InitializeShareGroupStateRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    WriteShareGroupStateRequest,
)
from kops.protocol.messages import delete_share_group_state_request as deleting
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import read_share_group_state_summary_request as summing
from kops.protocol.messages import write_share_group_state_request as writing
from kops.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequestTopic
from kops.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.raw_client import PATIENCE_S
from tests.support.requests.group_steps import TOPIC, UNKNOWN_ID, Steps, ready

SHARE = 2


def asking(side: Side) -> Callable[[Message, int], Any]:
    """Return a sender of requests with topics and both coordinators ready. Texts are compared, too."""
    ready(side)
    key = f"g:{'A' * 22}:0"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found: Any = side.client.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6)
        if not found.coordinators[0].error_code:
            break
        assert time.monotonic() < deadline, (side.name, found)
        time.sleep(0.05)

    def ask(message: Message, version: int) -> Any:
        side.keeps_texts = True
        try:
            return side.ask(message, version)
        finally:
            side.keeps_texts = False

    return ask


def state(side: Side, version: int) -> Steps:
    """The state of share partitions is initialized, written, read and deleted, also with wrong or fenced requests."""
    ask = asking(side)
    group, topic = f"state-{version}", side.ids[TOPIC]

    def initialize(partition: int, epoch: int, offset: int, topic_id: bytes = topic) -> Any:
        data = initializing.InitializeStateData(topic_id, [initializing.PartitionData(partition, epoch, offset)])
        return ask(InitializeShareGroupStateRequest(group, [data]), 0)

    def write(partition: int, epoch: int, leader: int, offset: int, *batches: tuple[int, int, int, int], topic_id: bytes = topic) -> Any:
        data = writing.PartitionData(partition, epoch, leader, offset, 3, [writing.StateBatch(*each) for each in batches])
        return ask(WriteShareGroupStateRequest(group, [writing.WriteStateData(topic_id, [data])]), version)

    def read(partition: int, leader: int, topic_id: bytes = topic) -> Any:
        return ask(ReadShareGroupStateRequest(group, [reading.ReadStateData(topic_id, [reading.PartitionData(partition, leader)])]), 0)

    def summary(*partitions: int, topic_id: bytes = topic) -> Any:
        data = summing.ReadStateSummaryData(topic_id, [summing.PartitionData(number, 1) for number in partitions])
        return ask(ReadShareGroupStateSummaryRequest(group, [data]), version)

    def delete(*partitions: int, topic_id: bytes = topic) -> Any:
        data = deleting.DeleteStateData(topic_id, [deleting.PartitionData(number) for number in partitions])
        return ask(DeleteShareGroupStateRequest(group, [data]), 0)

    # A coordinator's shard may not be loaded yet.
    deadline = time.monotonic() + PATIENCE_S
    while any("COORDINATOR" in one["error_code"] for one in summary(-1, 0, 1, 2)["results"][0]["partitions"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield "write of nothing", write(0, 0, 0, 0)
    yield "read of nothing", read(0, 0)
    yield "summary of nothing", summary(0, 1)
    yield "delete of nothing", delete(0, 1)
    for number in (-1, 2):
        yield f"partition {number} initialized", initialize(number, 0, 0)
        yield f"partition {number} written", write(number, 0, 0, 0)
        yield f"partition {number} read", read(number, 0)
        yield f"partition {number} in a summary", summary(number)
        yield f"partition {number} deleted", delete(number)
    yield "no such topic", initialize(0, 0, 0, UNKNOWN_ID)
    yield "no such topic in a summary", summary(0, topic_id=UNKNOWN_ID)
    yield "no such topic deleted", delete(0, topic_id=UNKNOWN_ID)
    yield "initialized", initialize(0, 5, -1)
    yield "an older state epoch initialized", initialize(0, 4, 10)
    yield "its summary", summary(0)
    yield "written", write(0, 5, 1, 20, (20, 25, 0, 1), (26, 30, 2, 2))
    yield "written by an older state epoch", write(0, 4, 1, 30)
    yield "read", read(0, 7)
    yield "read by an older leader", read(0, 6)
    yield "written by an older leader", write(0, 5, 6, 22)
    yield "written by the leader", write(0, 5, 7, 24, (24, 25, 4, 2))
    yield "read again", read(0, 7)
    yield "summary", summary(0, 1)
    yield "initialized again", initialize(0, 6, 3)
    yield "read from the new start", read(0, 7)
    yield "deleted", delete(0, 1)
    yield "read when deleted", read(0, 7)
    yield "no topics", ask(ReadShareGroupStateRequest(group, []), 0)
    yield "no partitions", ask(WriteShareGroupStateRequest(group, [writing.WriteStateData(topic, [])]), version)
    yield "no partitions to initialize", ask(InitializeShareGroupStateRequest(group, [initializing.InitializeStateData(topic, [])]), 0)
    yield "no group", ask(DeleteShareGroupStateRequest("", [deleting.DeleteStateData(topic, [deleting.PartitionData(0)])]), 0)


class ShareGroup:
    """The requests of one group."""

    def __init__(self, side: Side, group: str, version: int) -> None:
        self.side, self.name, self.version = side, group, version
        self.ask = asking(side)

    def beat(
        self, epoch: int, member_id: str = "me", *, group_id: str | None = None, topics: list[str] | None = None, rack: str | None = None
    ) -> Any:
        group = self.name if group_id is None else group_id
        return self.ask(ShareGroupHeartbeatRequest(group, member_id, epoch, rack, topics), self.version)

    def joined(self) -> Any:
        """Return the heartbeat in which a member gets partitions."""
        answer = self.beat(0, topics=[TOPIC, "absent"])
        deadline = time.monotonic() + PATIENCE_S
        while not ((assignment := answer["assignment"]) and assignment["topic_partitions"]):
            assert time.monotonic() < deadline, (self.side.name, answer)
            time.sleep(0.05)
            answer = self.beat(answer["member_epoch"])
        return answer

    def offsets(self, *topics: tuple[str, list[int]], group_id: str | None = None) -> Any:
        group = self.name if group_id is None else group_id
        some = [DescribeShareGroupOffsetsRequestTopic(name, numbers) for name, numbers in topics]
        wanted = [DescribeShareGroupOffsetsRequestGroup(group, some or None), DescribeShareGroupOffsetsRequestGroup(group, [])]
        return self.ask(DescribeShareGroupOffsetsRequest(wanted), self.version)

    def alter(self, *places: tuple[str, int, int], group_id: str | None = None) -> Any:
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for name, partition, offset in places:
            topic = topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(name))
            topic.partitions.append(AlterShareGroupOffsetsRequestPartition(partition, offset))
        return self.ask(AlterShareGroupOffsetsRequest(self.name if group_id is None else group_id, list(topics.values())), 0)

    def delete(self, *topics: str, group_id: str | None = None) -> Any:
        group = self.name if group_id is None else group_id
        return self.ask(DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(name) for name in topics]), 0)

    def described(self, *group_ids: str) -> Any:
        return self.ask(ShareGroupDescribeRequest(list(group_ids), include_authorized_operations=True), self.version)


def share_member(side: Side, version: int) -> Steps:
    """A member joins and leaves. Every possible error occurs on the way."""
    group = ShareGroup(side, f"share-{version}", version)
    beat, ask, name = group.beat, group.ask, group.name
    yield "no member id", beat(0, "", topics=[TOPIC])
    yield "blank member id", beat(0, " ", topics=[TOPIC])
    yield "long member id", beat(0, "m" * 37, topics=[TOPIC])
    yield "no group id", beat(0, group_id="", topics=[TOPIC])
    yield "blank rack", beat(0, rack=" ", topics=[TOPIC])
    yield "no subscription", beat(0)
    yield "nothing in the subscription", beat(0, topics=[])
    yield "epoch -2", beat(-2)
    yield "an absent group", beat(3)
    yield "leaves an absent group", beat(-1)
    joined = group.joined()
    yield "gets partitions", joined
    yield "stays", beat(joined["member_epoch"])
    yield "too new an epoch", beat(99)
    yield "somebody else", beat(1, "you")
    yield "described", group.described(name, "absent", "")
    yield "offsets", group.offsets()
    yield "offsets of some", group.offsets((TOPIC, [1, 0]), ("absent", [0]))
    yield "altered too early", group.alter((TOPIC, 0, 0))
    yield "offsets deleted too early", group.delete(TOPIC)
    yield "deleted too early", ask(DeleteGroupsRequest([name]), 2)
    yield "a classic member", ask(JoinGroupRequest(name, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 9)
    yield "a consumer", ask(ConsumerGroupHeartbeatRequest(name, "you", 0, None, None, 5000, [TOPIC], None, None, []), 1)
    yield "described as a classic group", ask(DescribeGroupsRequest([name]), 6)
    yield "described as a consumer group", ask(ConsumerGroupDescribeRequest([name]), 1)
    yield "offsets as of a consumer group", ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)]), 9)
    listed = ask(ListGroupsRequest(types_filter=["Share"]), 5)["groups"]
    yield "listed", [one for one in listed if one["group_id"] == name]
    yield "leaves", beat(-1)
    yield "described when empty", group.described(name)


def share_offsets(side: Side, version: int) -> Steps:
    """Offsets are altered and deleted, for groups and topics that exist or not. Then groups are deleted."""
    group = ShareGroup(side, f"share-offsets-{version}", version)
    offsets, alter, delete, name = group.offsets, group.alter, group.delete, group.name
    group.joined()
    group.beat(-1)
    yield "altered", alter((TOPIC, 0, 0), (TOPIC, 7, 0), ("absent", 0, 0))
    absent = [AlterShareGroupOffsetsRequestTopic("absent", [AlterShareGroupOffsetsRequestPartition(number, 0)]) for number in (7, 1)]
    nothing = AlterShareGroupOffsetsRequestTopic("nowhere")
    yield "altered of absent topics", group.ask(AlterShareGroupOffsetsRequest(name, [*absent, nothing]), 0)
    again = [AlterShareGroupOffsetsRequestTopic(TOPIC, [AlterShareGroupOffsetsRequestPartition(number, 1)]) for number in (1, 0)]
    yield "altered a topic twice", group.ask(AlterShareGroupOffsetsRequest(name, again), 0)
    yield "both are altered", offsets()
    yield "altered of no group", alter((TOPIC, 0, 0), group_id="")
    yield "altered without topics", alter()
    yield "altered offsets", offsets()
    yield "altered to the smallest offset", alter((TOPIC, 1, -(2**63)))
    yield "the lag overflows", offsets()
    yield "altered back", alter((TOPIC, 1, 0))
    yield "altered offsets of some", offsets((TOPIC, [1, 0]), ("absent", [0]))
    yield "offsets of an absent group", offsets(group_id="absent")
    yield "some offsets of an absent group", offsets((TOPIC, [0]), group_id="absent")
    yield "offsets of no group", offsets(group_id="")
    yield "deleted offsets", delete(TOPIC, "absent")
    yield "deleted offsets again", delete(TOPIC)
    yield "deleted offsets of an absent group", delete(TOPIC, group_id="absent")
    yield "deleted offsets of no group", delete(TOPIC, group_id="")
    yield "offsets that are left", offsets()
    yield "altered of a new group", alter((TOPIC, 1, 0), group_id=f"{name}-new")
    yield "the new group", group.described(f"{name}-new")
    # Two groups of one shard are deleted in the order of a hash set.
    results = group.ask(DeleteGroupsRequest([name, f"{name}-new", "absent"]), 2)["results"]
    yield "deleted", sorted((one["group_id"], one["error_code"]) for one in results)
    yield "described when deleted", group.described(name, f"{name}-new")
    yield "its offsets when deleted", offsets()


CASES: dict[str, tuple[Callable[[Side, int], Steps], int]] = {
    "share-state-0": (state, 0),
    "share-state-1": (state, 1),
    "share-member-1": (share_member, 1),
    "share-offsets-1": (share_offsets, 1),
}
