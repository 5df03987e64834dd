"""A streams group (KIP-1071) while its coordinator moves to another broker or another implementation.

Its members only send heartbeats. The application reads a topic of two partitions, writes an internal topic, and keeps a state.

group = StreamsInFlight(cluster.bootstrap, "events")
group.open()                # a position is committed
...                         # the coordinator moves
group.finish()              # the group is described as before and goes on. Tasks move to a new member and back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.streams_group_heartbeat_request import TaskIds
from kops.protocol.messages.streams_group_heartbeat_response import TaskIds as AnsweredTasks
from tests.support.kafka.programs.streams_scenarios import counting
from tests.support.nodes.raw_client import RawClient, plain
from tests.support.patience import until

GROUP = "streamers"
SETTINGS = {
    "group_streams_heartbeat_interval_ms": "500",
    "group_streams_min_heartbeat_interval_ms": "500",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_num_standby_replicas": "1",
}
"""Settings of the nodes."""
PATIENCE_S = 120
BEAT_S = 0.2
LEAVES = -1
AGAIN = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
Task = tuple[str, int]
ALL_TASKS: list[Task] = [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
WITH_STATE = [task for task in ALL_TASKS if task[0] == "1"]


class Coordinator:
    """A connection to the coordinator of the group, wherever it is."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap.split(",")
        self._client: RawClient | None = None

    def ask(self, request: Message, version: int) -> Message | None:
        """Send a request once. Return None if there is no answer; the next request then goes to the coordinator of that time."""
        try:
            if self._client is None:
                self._client = self._find()
            answer = None if self._client is None else self._client.ask(request, version)
        except OSError:
            answer = None
        if answer is None:
            self.forget()
        return answer

    def forget(self) -> None:
        """Look for the coordinator before the next request."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def _find(self) -> RawClient | None:
        for address in self._bootstrap:
            try:
                with RawClient(address) as client:
                    answer = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6)
            except OSError:
                continue
            if isinstance(answer, FindCoordinatorResponse) and not answer.coordinators[0].error_code:
                return RawClient(f"{answer.coordinators[0].host}:{answer.coordinators[0].port}", client_id="streams")
        return None


class StreamsMember(threading.Thread):
    """A member of the group. `assignments` counts the answers that gave it tasks."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.epoch = 0
        self.active: list[Task] = []
        self.standby: list[Task] = []
        self.assignments = 0
        self.error = ""
        self._topic = topic
        self._coordinator = Coordinator(bootstrap)
        self._is_known = False
        """Whether the coordinator has answered the last heartbeat. If not, the next one repeats what the member has."""
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(BEAT_S) and not self.error:
            self._beat()
        while not self.error and self.epoch != LEAVES:
            self._leave()

    def end(self) -> None:
        """Leave the group."""
        self._ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        assert not self.error, f"{self.name}: {self.error}"

    def _beat(self) -> None:
        request = StreamsGroupHeartbeatRequest(GROUP, self.name, self.epoch)
        if not self._is_known:
            request.rebalance_timeout_ms, request.process_id = 60_000, self.name
            request.active_tasks, request.standby_tasks, request.warmup_tasks = _listed(self.active), _listed(self.standby), []
        if self.epoch == 0:
            request.topology = counting(self._topic)
        self._is_known = False
        answer = self._ask(request)
        if answer is None:
            return
        self._is_known = answer.active_tasks is None
        if answer.active_tasks is not None:
            self.active, self.standby = _tasks(answer.active_tasks), _tasks(answer.standby_tasks or ())
            self.assignments += 1
        self.epoch = answer.member_epoch

    def _leave(self) -> None:
        if self._ask(StreamsGroupHeartbeatRequest(GROUP, self.name, LEAVES)) is None:
            time.sleep(BEAT_S)
        else:
            self.epoch = LEAVES

    def _ask(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
        answer = self._coordinator.ask(request, 0)
        assert answer is None or isinstance(answer, StreamsGroupHeartbeatResponse)
        if answer is None or not answer.error_code:
            return answer
        self._coordinator.forget()
        if by_code(answer.error_code).name not in AGAIN:
            self.error = f"{by_code(answer.error_code).name}: {answer.error_message}"
        return None


class StreamsInFlight:
    """The group, with two members."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._coordinator = Coordinator(bootstrap)
        self._position = 0
        self.members = [self._joined(f"streams-{number}") for number in range(2)]
        self._described = self._describe_stable()

    def open(self) -> None:
        """Commit a position, and remember what the coordinator says about the group."""
        self._commit(self.members[0], by=1)
        self._described = self._describe_stable()
        self._assignments = [member.assignments for member in self.members]

    def check(self) -> None:
        """Check that the coordinator describes the group as before, and that no member got other tasks."""
        described = self._describe_stable()
        assert described == self._described, f"{described}, not {self._described}"
        assert [member.assignments for member in self.members] == self._assignments, "there was a rebalance"

    def finish(self) -> None:
        """Check the group. Let it go on with a third member for a while, so that tasks move."""
        self.check()
        self._commit(self.members[1], by=1)
        third = self._joined(f"streams-third-{self._position}")
        before = self._describe_stable()["group_epoch"]
        assert third.active, "the new member got nothing"
        third.end()
        until(lambda: self._describe_stable()["group_epoch"] > before, told=lambda: f"the group still has epoch {before}")

    def end(self) -> int:
        """Let the members leave. Return the position that they have committed."""
        for member in self.members:
            member.end()
        until(lambda: self._describe()["group_state"] == "Empty", told=self._describe)
        return self._position

    def _joined(self, name: str) -> StreamsMember:
        member = StreamsMember(self._bootstrap, self._topic, name)
        member.start()
        until(lambda: member.epoch > 0, told=lambda: f"{name} has not joined: {member.error}")
        return member

    def _describe_stable(self) -> dict[str, Any]:
        """Wait until the members have all tasks, and describe the group."""
        found: dict[str, Any] = {}

        def is_stable() -> bool:
            found.update(self._describe())
            members = [(one["member_epoch"], one["assignment"] == one["target_assignment"]) for one in found["members"]]
            has_all = all(kept == wanted for kept, wanted in zip(_assigned(found), (ALL_TASKS, WITH_STATE), strict=True))
            return found["group_state"] == "Stable" and set(members) == {(found["group_epoch"], True)} and has_all

        until(is_stable, told=lambda: f"{found}, {[one.error for one in self.members]}")
        return found

    def _describe(self) -> dict[str, Any]:
        answers: list[Message] = []

        def asked() -> bool:
            answer = self._coordinator.ask(StreamsGroupDescribeRequest([GROUP]), 0)
            answers.extend([] if answer is None else [answer])
            error = "" if not isinstance(answer, StreamsGroupDescribeResponse) else by_code(answer.groups[0].error_code).name
            if error in AGAIN:
                self._coordinator.forget()
            return error == "NONE"

        until(asked, told=lambda: answers[-1:])
        described: dict[str, Any] = _in_order(plain(answers[-1])["groups"][0])
        return described

    def _commit(self, member: StreamsMember, *, by: int) -> None:
        """Commit the next position in the name of a member. A commit with a former epoch is refused."""
        self._position += by
        partitions = [OffsetCommitRequestPartition(number, self._position) for number in range(2)]
        topics = [OffsetCommitRequestTopic(self._topic, partitions=partitions)]
        errors: set[str] = set()

        def answered(wanted: str, epoch: int) -> bool:
            answer = self._coordinator.ask(OffsetCommitRequest(GROUP, epoch, member.name, topics=topics), 9)
            if not isinstance(answer, OffsetCommitResponse):
                return False
            errors.clear()
            errors.update(by_code(one.error_code).name for topic in answer.topics for one in topic.partitions)
            if errors & set(AGAIN):
                self._coordinator.forget()
            return errors == {wanted}

        for wanted, epoch in (("STALE_MEMBER_EPOCH", member.epoch - 1), ("NONE", member.epoch)):
            until(lambda: answered(wanted, epoch), told=lambda: f"{errors}, not {wanted}")  # noqa: B023


def _listed(tasks: Sequence[Task]) -> list[TaskIds]:
    return [TaskIds(one, [number for subtopology, number in tasks if subtopology == one]) for one in sorted({task[0] for task in tasks})]


def _tasks(answered: Iterable[AnsweredTasks]) -> list[Task]:
    return sorted((one.subtopology_id, number) for one in answered for number in one.partitions)


def _assigned(described: dict[str, Any]) -> list[list[Task]]:
    """Return the active and the standby tasks of all members."""
    return [
        sorted(
            (one["subtopology_id"], number)
            for each in described["members"]
            for one in each["assignment"][kind]
            for number in one["partitions"]
        )
        for kind in ("active_tasks", "standby_tasks")
    ]


def _in_order(described: Any) -> Any:
    """Return a description without the order of its lists, which is that of a hash table in Kafka."""
    if isinstance(described, dict):
        return {name: _in_order(value) for name, value in described.items()}
    if isinstance(described, list):
        return sorted((_in_order(each) for each in described), key=str)
    return described
