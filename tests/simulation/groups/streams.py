"""Members of a streams group (KIP-1071): Kafka Streams applications without their records.

The application has two subtopologies. The first one reads `inputs`, which gets more partitions now and then. The second one reads an
internal topic and keeps a state, so its tasks can have standby tasks. Another internal topic has the changes of the state. The node of the
coordinator creates both topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.protocol.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from kops.protocol.messages.streams_group_heartbeat_request import Subtopology, TaskIds, TopicInfo, Topology
from kops.protocol.messages.streams_group_heartbeat_response import TaskIds as AnsweredTasks
from tests.simulation.coordinators.actors import AGAIN, GROUP, Script, error_name
from tests.simulation.coordinators.books import Suspicion
from tests.simulation.coordinators.groups import HEARTBEAT_MS, REBALANCE_MS, Member

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.groups.world import GroupWorld

STEPS, CHANGES, STEP_PARTITIONS = "streams-steps", "streams-changes", 2
"""The internal topics, and the number of their partitions."""
READS, STEPS_ON = "0", "1"
"""The ids of the subtopologies."""
LEAVES = -1
Task = tuple[str, int]


class StreamsMember(Member):
    """A member that is a process of its own. `owned` are the partitions of `inputs` that its active tasks read."""

    world: GroupWorld

    def __init__(self, world: GroupWorld, group: str, name: str) -> None:
        super().__init__(world, group, name)
        self.member_id = name
        self.epoch = 0
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        self.suspected_tasks: dict[Task, Suspicion] = {}
        self._is_whole = True
        """Whether the next heartbeat lists the tasks although they have not changed."""
        self.start(self._live())

    def _live(self) -> Script:
        reported: tuple[set[Task], set[Task]] = set(), set()
        while not self.is_leaving:
            yield from self._maybe_stall()
            sent_ms, tasks = self.world.clock.now_ms, (set(self.active), set(self.standby))
            request = self._request(lists_tasks=self._is_whole or tasks != reported)
            node, answer = yield from self.ask_coordinator(GROUP, self.group, request)
            if isinstance(answer, ApiError):
                self._is_whole = True
            elif (error := error_name(answer.error_code)) != "NONE":
                self.refused(error)
            else:
                self._is_whole, reported = False, tasks
                self._check_tasks(node, answer.member_epoch, sent_ms)
                for status in answer.status or ():
                    self.world.counts[f"status {status.status_code}"] += 1
                yield from self._take(answer)
                if (self.active, self.standby) == reported and not (yield from self._commit()):
                    self._is_whole = True
            if (self.active, self.standby) == reported or self._is_whole:
                yield self.pause(HEARTBEAT_MS * 0.5, HEARTBEAT_MS)
        yield from self.ask_coordinator(GROUP, self.group, StreamsGroupHeartbeatRequest(self.group, self.member_id, LEAVES))
        self.vanish()

    def _request(self, *, lists_tasks: bool) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(self.group, self.member_id, self.epoch)
        if self._is_whole:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.process_id = self.member_id
        if not self.epoch:
            request.topology = topology(self.world.inputs)
        if lists_tasks or not self.epoch:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = _listed(self.active), _listed(self.standby), []
        return request

    def refused(self, error: str) -> None:
        """Act on an error of the coordinator."""
        self.say(f"StreamsGroupHeartbeat: {error}")
        self._is_whole = True
        if error in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
            self.epoch, self.is_stable = 0, False
            self._have(set(), set())
            self.suspected_tasks.clear()
        else:
            assert error in AGAIN, f"{self.group}: {self.name} is told {error}"
            self.forget(GROUP, self.group)

    def _take(self, answer: StreamsGroupHeartbeatResponse) -> Script:
        """Give up the tasks that the member must not keep, which takes a while, and then take the others."""
        if answer.active_tasks is not None:
            active, standby = _tasks(answer.active_tasks), _tasks(answer.standby_tasks or ())
            assert not active & standby, f"{self.name} has tasks as active and as standby tasks: {active & standby}"
            new = active - self.active
            self.world.tasks.grant(self.group, answer.member_epoch, active, self.member_id)
            for other in self.world.members_of(self.group):
                if other is not self and isinstance(other, StreamsMember):
                    for task in new & other.active:
                        other.suspected_tasks[task] = Suspicion(self.world.clock.now_ms, answer.member_epoch, self.name)
            self.epoch = answer.member_epoch
            if self.active - active:
                self._have(self.active | new, self.standby | standby)
                yield self.pause(0, 600)
            self._have(active, standby)
            self.say(f"has {sorted(active)}, standby {sorted(standby)} of epoch {self.epoch}")
            self.world.counts["tasks assigned"] += len(new)
            self.world.counts["standby tasks assigned"] += len(standby)
        self.epoch, self.is_stable = answer.member_epoch, True

    def _have(self, active: set[Task], standby: set[Task]) -> None:
        self.active, self.standby = active, standby
        self.owned = {number for subtopology, number in active if subtopology == READS}
        # A commit must not be accepted if another member has the task that reads the partition.
        self.suspicions = {number: found for (subtopology, number), found in self.suspected_tasks.items() if subtopology == READS}

    def _check_tasks(self, node: int, epoch: int, sent_ms: float) -> None:
        """Check that no other member has an active task that the coordinator still leaves to this member."""
        for task, found in list(self.suspected_tasks.items()):
            if task not in self.active or epoch > found.epoch:
                del self.suspected_tasks[task]
            elif sent_ms > found.since_ms and self.world.coordinates(node, GROUP, self.group):
                where = f"{self.group}: the active task {task} belongs to {found.new_owner} of epoch {found.epoch}"
                raise AssertionError(f"{where} and to {self.name} of epoch {epoch}")


def topology(inputs: str) -> Topology:
    """Return the topology of the application."""
    reads = Subtopology(READS, [inputs], repartition_sink_topics=[STEPS])
    steps, changes = TopicInfo(STEPS, STEP_PARTITIONS, 3), TopicInfo(CHANGES, replication_factor=3)
    return Topology(0, [reads, Subtopology(STEPS_ON, repartition_source_topics=[steps], state_changelog_topics=[changes])])


def are_tasks_whole(numbers: Iterable[int], members: Iterable[StreamsMember], *, standby_count: int) -> bool:
    """Return whether the members have all tasks, each exactly once as an active task, and all in the same epoch. Each task with a
    state has as many standby tasks as it can have.
    """
    found = list(members)
    steps = [(STEPS_ON, number) for number in range(STEP_PARTITIONS)]
    active = sorted(task for member in found for task in member.active)
    standby = sorted(task for member in found for task in member.standby)
    is_stable = all(one.is_stable for one in found) and len({one.epoch for one in found}) == 1
    has_all = active == sorted([*steps, *((READS, number) for number in numbers)])
    return is_stable and has_all and standby == sorted(steps * min(standby_count, len(found) - 1))


def _listed(tasks: set[Task]) -> list[TaskIds]:
    ids = sorted({subtopology for subtopology, _ in tasks})
    return [TaskIds(one, sorted(number for subtopology, number in tasks if subtopology == one)) for one in ids]


def _tasks(answered: Iterable[AnsweredTasks]) -> set[Task]:
    return {(one.subtopology_id, number) for one in answered for number in one.partitions}
