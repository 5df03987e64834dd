"""Raw requests about streams groups to one broker, valid and invalid ones. Each step yields its name and its masked answer."""

from __future__ import annotations

import time
from typing import Any

from kops.protocol.messages import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
)
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.streams_group_heartbeat_request import Endpoint, KeyValue, Subtopology, TaskIds, TopicInfo, Topology
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.raw_client import PATIENCE_S
from tests.support.requests.group_steps import TOPIC, Members, Steps, ready

STORE = TopicInfo("app-store-changelog", 0, 0, [KeyValue("cleanup.policy", "compact")])
NO_TASKS: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def application(name: str, *sources: str, changelog: TopicInfo = STORE, regex: str = "") -> Topology:
    """Return a topology that counts: it writes its topics by other keys, reads these again, and keeps a store."""
    return Topology(
        0,
        [
            Subtopology("0", list(sources), [regex] if regex else [], [], [name], [], []),
            Subtopology("1", [], [], [changelog], [], [TopicInfo(name, 0, 0, [])], []),
        ],
    )


TOPOLOGY = application("app-again", TOPIC)
JOINING: dict[str, Any] = {"rebalance_timeout_ms": 5000, "topology": TOPOLOGY, "process_id": "p", **NO_TASKS}


class Beats:
    """Heartbeats to a group."""

    def __init__(self, side: Side, version: int, group: str) -> None:
        ready(side)
        self.side, self.version, self.group = side, version, group
        self.members = Members(side)

    def __call__(self, epoch: int, member_id: str = "me", *, group_id: str | None = None, **fields: Any) -> Any:
        """Return the masked answer to a heartbeat."""
        request = StreamsGroupHeartbeatRequest(self.group if group_id is None else group_id, member_id, epoch)
        for field, value in fields.items():
            setattr(request, field, value)
        return self.members.ask(request, self.version)

    def until(self, code: int, epoch: int) -> Any:
        """Send heartbeats until this status is gone. Return the last answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self(epoch)
            if code not in [each["status_code"] for each in answer["status"]]:
                return answer
            assert time.monotonic() < deadline, (self.side.name, answer)
            epoch = answer["member_epoch"]
            time.sleep(0.1)


def wrong_heartbeats(side: Side, version: int) -> Steps:
    """Send all heartbeats that are refused before a group is looked up, or because there is no group."""
    beat, joining = Beats(side, version, f"streams-wrong-{version}"), JOINING
    yield "no group id", beat(0, group_id=" ", **joining)
    yield "no member id", beat(0, "", **joining)
    yield "an instance id", beat(0, instance_id="i", **joining)
    yield "blank rack", beat(0, rack_id="", **joining)
    yield "no time-out", beat(0, **{**joining, "rebalance_timeout_ms": -1})
    yield "no topology", beat(0, **{**joining, "topology": None})
    yield "owns without", beat(0, **{**joining, "standby_tasks": None})
    yield "owns something", beat(0, **{**joining, "active_tasks": [TaskIds("0", [0])]})
    yield "warmup tasks", beat(0, **{**joining, "warmup_tasks": [TaskIds("0", [0])]})
    yield "offsets of tasks", beat(0, task_offsets=[], **joining)
    yield "a pattern", beat(0, **{**joining, "topology": application("again", TOPIC, regex="a.*")})
    yield "an internal topic", beat(0, **{**joining, "topology": application("again", "__consumer_offsets")})
    yield "no topic's name", beat(0, **{**joining, "topology": application("again", "a b")})
    yield "a fixed changelog", beat(0, **{**joining, "topology": application("again", TOPIC, changelog=TopicInfo("c", 3, 0, []))})
    yield "epoch -3", beat(-3)
    yield "leaves for a while", beat(-2)
    yield "an absent group", beat(5)
    yield "some tasks", beat(5, active_tasks=[])
    yield "topology later", beat(5, topology=TOPOLOGY)


def streams_group(side: Side, version: int) -> Steps:
    """Members of a Streams application join and leave. Internal topics are created, or cannot be."""
    group, joining = f"streams-{version}", JOINING
    beat = Beats(side, version, group)
    members = beat.members
    yield "joins", beat(0, user_endpoint=Endpoint("here", 1), client_tags=[KeyValue("zone", "a")], **joining)
    yield "described before topics", members.ask(StreamsGroupDescribeRequest([group]), version)
    yield "topics are there", beat.until(3, 1)
    yield "has tasks", (working := beat.until(5, 1))
    yield "again", beat(working["member_epoch"], endpoint_information_epoch=working["endpoint_information_epoch"])
    yield "too new an epoch", beat(99)
    yield "no such task", beat(working["member_epoch"], **{**NO_TASKS, "active_tasks": [TaskIds("0", [7])]})
    yield "somebody else", beat(1, "you")
    yield "another topology", beat(0, "you", **{**joining, "topology": application("another", TOPIC)})
    described = StreamsGroupDescribeRequest([group, "absent", ""], include_authorized_operations=True)
    yield "described", members.ask(described, version)
    found = members.ask(ListGroupsRequest(types_filter=["streams"]), 5)
    yield "listed", [each for each in found["groups"] if each["group_id"] == group]
    yield "asks to shut down", beat(working["member_epoch"], shutdown_application=True)
    large = application("large", TOPIC, changelog=TopicInfo(f"{group}-too-many", 0, 3, []))
    other = f"{group}-failing"
    beat(0, group_id=other, **{**joining, "topology": large})
    # The controller's answer comes some time after a heartbeat.
    deadline = time.monotonic() + PATIENCE_S
    while "Creation failed" not in str(status := beat(1, group_id=other)["status"]):
        assert time.monotonic() < deadline, (side.name, status)
        time.sleep(0.1)
    yield "a topic that cannot be made", status
    yield "an absent source", beat(0, group_id=f"{group}-none", **{**joining, "topology": application("again", "absent")})
    yield (
        "a classic member",
        members.ask(JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 9, "classic"),
    )
    yield "leaves", beat(-1)
    yield "described when empty", members.ask(StreamsGroupDescribeRequest([group]), version)
    yield "deleted", members.ask(DeleteGroupsRequest([group]), 2)


CASES = {
    f"{steps.__name__}-{version}": (steps, version)
    for steps in (wrong_heartbeats, streams_group)
    for version in StreamsGroupHeartbeatRequest.VERSIONS
}
