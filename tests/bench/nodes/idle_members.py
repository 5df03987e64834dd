"""Members of many groups that only send heartbeats, each over a connection of its own, as the consumers of Kafka do whose partitions have
no records. One thread holds all of them, so a thousand take little of the machine on which the nodes are measured.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Any, Final, Self

from kops.protocol.connections.connection import ClientConnection
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from kops.protocol.messages.consumer_group_heartbeat_request import TopicPartitions
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment
from tests.bench.cluster import PATIENCE_S, Client, until
from tests.support.nodes.raw_client import RawClient

INTERVAL_S: Final = {"classic": 3.0, "consumer": 5.0}
"""Kafka's defaults: `heartbeat.interval.ms`, and `group.consumer.heartbeat.interval.ms`."""
VERSIONS: Final = {"classic": 4, "consumer": 1}
SESSION_MS: Final = 600_000
"""A busy machine needs minutes until all have joined. The nodes need the same `group.consumer.session.timeout.ms`."""
ERROR_AT: Final = slice(13, 15)
"""The error code of both answers to a heartbeat: behind the size, the correlation id, the tagged fields and the throttle time."""
RETRIED: Final = {14, 15, 16, 27, 79}
"""Loading, no coordinator yet, not the coordinator, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED."""


class Member:
    """A member of a group, and the bytes of the heartbeat that it sends when its group is stable."""

    def __init__(self, address: str, group: str, name: str) -> None:
        self.client = RawClient(address)
        self.group = group
        self.name = name
        self.heartbeat = b""

    def keep(self, request: Any, version: int) -> None:
        """Keep a request as the heartbeat."""
        self.heartbeat = b"".join(ClientConnection("raw").send_request(request, version))  # type: ignore[arg-type]

    def beat(self) -> None:
        """Send the heartbeat."""
        assert self.client._sock is not None
        self.client._sock.sendall(self.heartbeat)

    def check(self) -> None:
        """Read an answer to a heartbeat. Raises RuntimeError if it is refused."""
        assert self.client._sock is not None
        answer = self.client._sock.recv(4096)
        if int.from_bytes(answer[ERROR_AT], "big"):
            raise RuntimeError(f"a heartbeat of {self.group} is refused: {answer!r}")


class Joining:
    """The members of a group of the consumer protocol, until each has its partitions in the same epoch."""

    def __init__(self, members: list[Member], topic: str) -> None:
        self._members = members
        self._topic = topic
        self._epochs = dict.fromkeys(members, 0)
        self._owned: dict[Member, list[TopicPartitions]] = {member: [] for member in members}
        self._news = set(members)

    @property
    def is_settled(self) -> bool:
        """Whether the last turn changed nothing."""
        return not self._news and all(self._owned.values()) and len(set(self._epochs.values())) == 1

    def turn(self, ask: Callable[[Member, Any, int], Any]) -> None:
        """Send a heartbeat of each member, which tells what it has got in the turn before, and keep the next one."""
        told, self._news = self._news, set()
        for member in self._members:
            request = consumer_heartbeat(member, self._epochs[member])
            if not self._epochs[member]:
                request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [self._topic]
            if member in told:
                request.topic_partitions = self._owned[member]
            answer = ask(member, request, VERSIONS["consumer"])
            if answer.assignment is not None:
                self._owned[member] = [TopicPartitions(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions]
            if answer.assignment is not None or answer.member_epoch != self._epochs[member]:
                self._epochs[member] = answer.member_epoch
                self._news.add(member)
            member.keep(consumer_heartbeat(member, self._epochs[member]), VERSIONS["consumer"])


class IdleMembers:
    """So many members in each of so many groups, all of which have joined. `with` closes their connections at the end."""

    def __init__(self, nodes: Any, topic: str, prefix: str, protocol: str, groups: int, members: int) -> None:
        self._client = Client(nodes)
        self.protocol = protocol
        self.topic = topic
        self.members: list[Member] = []
        self._next = 0
        for number in range(groups):
            group = f"{prefix}-{number}"
            address = f"127.0.0.1:{nodes.ports[self._coordinator(group)]}"
            self.members += [Member(address, group, f"{group}-{each}") for each in range(members)]
        (self._join_classic if protocol == "classic" else self._join_consumer)(members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.client.close()

    def _coordinator(self, group: str) -> int:
        found: list[Any] = []
        node_id = next(iter(self._client.nodes.processes))

        def known() -> bool:
            found[:] = [self._client.ask(node_id, FindCoordinatorRequest(key=group), 3)]
            return getattr(found[0], "error_code", 1) == 0

        until(known)
        return int(found[0].node_id)

    def _join_classic(self, size: int) -> None:
        """Let all members ask at once, so that each group has one rebalance, behind `group.initial.rebalance.delay.ms`."""
        ids = {member.name: self._asked(member, join_request(member.group, ""), 9).member_id for member in self.members}
        for member in self.members:
            member.client.send(join_request(member.group, ids[member.name]), 9)
        for begin in range(0, len(self.members), size):
            ours = self.members[begin : begin + size]
            joined = [receive(member) for member in ours]
            if any(one.error_code for one in joined) or len({one.generation_id for one in joined}) != 1:
                raise RuntimeError(f"{ours[0].group} has not joined in one rebalance")
            shares = [SyncGroupRequestAssignment(one.member_id, b"") for one in joined]
            for member, one in zip(ours, joined, strict=True):
                sync = SyncGroupRequest(
                    group_id=member.group,
                    generation_id=one.generation_id,
                    member_id=one.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=shares if one.leader == one.member_id else [],
                )
                member.client.send(sync, 5)
                member.keep(HeartbeatRequest(member.group, one.generation_id, one.member_id), VERSIONS["classic"])
            for member in ours:
                if receive(member).error_code:
                    raise RuntimeError(f"{member.group} has not synced")

    def _join_consumer(self, size: int) -> None:
        """Send heartbeats of all groups in turn, until a round of them changes nothing in a group."""
        joining = [Joining(self.members[begin : begin + size], self.topic) for begin in range(0, len(self.members), size)]
        deadline = time.monotonic() + PATIENCE_S
        while joining := [group for group in joining if not group.is_settled]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(joining)} groups do not settle")
            for group in joining:
                group.turn(self._asked)

    def _asked(self, member: Member, request: Any, version: int) -> Any:
        """Repeat a request while the coordinator is loading, and return the answer."""
        found: list[Any] = []

        def answered() -> bool:
            found[:] = [member.client.ask(request, version)]
            code = getattr(found[0], "error_code", 15)
            if code and code not in RETRIED:
                raise RuntimeError(f"{member.group}: {found[0]}")
            return code == 0 or bool(getattr(found[0], "member_id", ""))

        until(answered)
        return found[0]

    def beat(self, seconds: float) -> int:
        """Send heartbeats at the default interval, spread evenly, and return their number. A call goes on with the next member, so that
        each one keeps its interval over calls without a pause.
        """
        interval = INTERVAL_S[self.protocol] / len(self.members)
        sent, started = 0, time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                assert member.client._sock is not None
                selector.register(member.client._sock, selectors.EVENT_READ, member)
            while (now := time.perf_counter() - started) < seconds:
                while sent * interval <= now:
                    self.members[self._next % len(self.members)].beat()
                    self._next += 1
                    sent += 1
                for key, _ in selector.select(max(sent * interval - (time.perf_counter() - started), 0)):
                    key.data.check()
        return sent


def join_request(group: str, member_id: str) -> JoinGroupRequest:
    """Return the request of a member that joins a classic group."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )


def consumer_heartbeat(member: Member, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat of a member for which nothing has changed."""
    return ConsumerGroupHeartbeatRequest(group_id=member.group, member_id=member.name, member_epoch=epoch)


def receive(member: Member) -> Any:
    """Return an answer. Raises RuntimeError if the broker has closed the connection."""
    answer = member.client.receive()
    if answer is None:
        raise RuntimeError(f"the coordinator of {member.group} has closed the connection")
    return answer
