"""The assignor of streams groups compared with Kafka's StickyTaskAssignor: random members, processes, tasks and standbys get the same
assignments.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kops.coordinators.groups.assignors.java_maps import put_ordered, text_hash
from kops.coordinators.groups.streams.assignors.spec import NO_TARGET, GroupSpec, MemberSpec, SubtopologySpec, TargetTasks, TaskNumbers
from kops.coordinators.groups.streams.assignors.sticky import NUM_STANDBY_REPLICAS, assign
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators

STREAMS = "coordinator.group.streams."


class JavaAssignor:
    """Kafka's assignor."""

    def __init__(self, java: JavaCoordinators) -> None:
        self.java = java
        self.utils = java.oracle.jvm.java.util
        self.assignor = java.make(f"{STREAMS}assignor.StickyTaskAssignor")
        self.image = java.image({})

    def assign(self, group: GroupSpec) -> dict[str, TargetTasks]:
        """Return what it assigns to each member."""
        members = self.utils.HashMap()
        for member_id, spec in group.members.items():
            members.put(member_id, self._member(spec))
        subtopologies = self.utils.TreeMap()
        for subtopology_id, subtopology in group.subtopologies.items():
            subtopologies.put(subtopology_id, self._subtopology(subtopology))
        spec = self.java.make(f"{STREAMS}assignor.GroupSpecImpl", members, self.utils.HashMap(dict(group.configs)))
        found = self.assignor.assign(spec, self.java.make(f"{STREAMS}TopologyMetadata", self.image, subtopologies)).members()
        return {
            member_id: TargetTasks(*(_plain(getattr(found[member_id], f"{kind}Tasks")()) for kind in ("active", "standby", "warmup")))
            for member_id in found
        }

    def _member(self, spec: MemberSpec) -> Any:
        none, empty = self.utils.Optional.empty(), self.utils.HashMap()
        return self.java.make(
            f"{STREAMS}assignor.AssignmentMemberSpec",
            none,
            none,
            self._tasks(spec.tasks.active),
            self._tasks(spec.tasks.standby),
            empty,
            spec.process_id,
            empty,
            empty,
            empty,
        )

    def _tasks(self, tasks: TaskNumbers) -> Any:
        found = self.utils.HashMap()
        for subtopology_id, numbers in tasks.items():
            found.put(subtopology_id, self.utils.HashSet(sorted(numbers)))
        return found

    def _subtopology(self, spec: SubtopologySpec) -> Any:
        none, changelogs = self.utils.HashMap(), self.utils.HashMap()
        if spec.is_stateful:
            topic = f"{STREAMS}topics.ConfiguredInternalTopic"
            changelogs.put("log", self.java.make(topic, "log", spec.task_count, self.utils.Optional.empty(), none))
        sources = self.utils.HashSet()
        return self.java.make(f"{STREAMS}topics.ConfiguredSubtopology", spec.task_count, sources, none, sources, changelogs)


def _plain(tasks: Any) -> dict[str, frozenset[int]]:
    return {subtopology_id: frozenset(tasks[subtopology_id]) for subtopology_id in tasks}


def rounds(java: JavaCoordinators, seed: int, count: int) -> int:
    """Compare this many assignments, each based on the one before. Return how many standby tasks there were."""
    rng, theirs = random.Random(seed), JavaAssignor(java)
    subtopologies = {str(number): SubtopologySpec(rng.randrange(1, 12), rng.random() < 0.6) for number in range(rng.randrange(1, 6))}
    before: dict[str, TargetTasks] = {}
    processes: dict[str, str] = {}
    standby_count = 0
    for _ in range(count):
        for member_id in rng.sample(sorted(processes), min(len(processes) - 1, rng.choice((0, 0, 1, 2)))) if processes else ():
            del processes[member_id]
        for _ in range(rng.choice((0, 0, 1, 3)) if processes else rng.randrange(1, 7)):
            processes[f"m{rng.getrandbits(32)}"] = f"process-{rng.randrange(4)}"
        members = {member_id: MemberSpec(process, before.get(member_id, NO_TARGET)) for member_id, process in processes.items()}
        configs = rng.choice(({}, {NUM_STANDBY_REPLICAS: str(rng.randrange(4))}))
        group = GroupSpec(put_ordered(members, text_hash), configs, subtopologies)
        before = assign(group)
        assert before == theirs.assign(group)
        standby_count += sum(len(numbers) for tasks in before.values() for numbers in tasks.standby.values())
    return standby_count


def test_random_groups(oracle: Oracle) -> None:
    java = JavaCoordinators(oracle)
    assert rounds(java, 2, 6) > 0


@pytest.mark.slow
def test_many_random_groups(oracle: Oracle, seed_count: int | None) -> None:
    java = JavaCoordinators(oracle)
    assert all(rounds(java, seed, 20) >= 0 for seed in range(100, 100 + (seed_count or 5)))
