"""Lives of whole nodes with static and cooperative members, groups that change their protocol, and streams groups; see `world`.

Planted bugs are found.

`pytest -m slow tests/simulation/groups --seeds 1000` runs a thousand lives. A failure prints its seed, what happened, and the command that
repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.member import ClassicGroupMember
from kops.coordinators.groups.consumer import classic_members, heartbeat, migration, static_members
from kops.coordinators.groups.consumer.classic_members import ClassicMembers
from kops.coordinators.groups.consumer.migration import Migration
from kops.coordinators.groups.consumer.state.current_assignment import OwnedTopics
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember
from kops.coordinators.groups.consumer.timers import MemberTimers
from kops.coordinators.groups.streams.leave import Leaves
from kops.coordinators.groups.streams.state.current_assignment import Reconciliation
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import HeartbeatRequest, HeartbeatResponse
from tests.simulation import node_life
from tests.simulation.groups.life import GROUP_LIVES
from tests.simulation.node_life import live, live_all
from tests.simulation.node_world import Mix

FIRST_SEED, SLOW_SEEDS = 28, 2
BUG_DISTURBANCES = 3
GOOD_DISKS = Mix(compacted=0, disks=0)
PLAIN = Mix(shapes=("combined",), compacted=0, disks=0)
EVENTS = (
    "static members fenced",
    "instance ids not released",
    "upgrades",
    "downgrades",
    "instance ids that changed their protocol",
    "partitions given up while joining",
    "tasks assigned",
    "standby tasks assigned",
    "offsets committed",
)
"""The events that happen in a few lives."""
Patch = pytest.MonkeyPatch


def count_calls(patch: Patch, counts: Counter[str], owner: Any, name: str, event: str) -> None:
    """Count the calls of a method."""
    method = getattr(owner, name)

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        counts[event] += 1
        return method(self, *args, **named)

    patch.setattr(owner, name, counted)


def test_a_life_of_groups() -> None:
    counts = live(4, disturbances=1, mix=PLAIN, kind=GROUP_LIVES).counts
    assert min(counts[event] for event in ("offsets committed", "generations", "assignments", "tasks assigned")) > 0, counts


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives_of_groups(seed_count: int | None, monkeypatch: Patch) -> None:
    """Every life succeeds, and over a number of seeds every event happens."""
    counts: Counter[str] = Counter()
    count_calls(monkeypatch, counts, Migration, "_from_classic_group", "upgrades")
    count_calls(monkeypatch, counts, Migration, "_from_consumer_group", "downgrades")
    for seed in range(FIRST_SEED, FIRST_SEED + (SLOW_SEEDS if seed_count is None else seed_count)):
        counts += live(seed, mix=GOOD_DISKS, kind=GROUP_LIVES).counts
    assert min(counts[event] for event in EVENTS) > 0, counts


# static members


def keep_replaced_members(patch: Patch) -> None:
    """A classic group keeps a static member that another one has replaced."""
    replace_member = ClassicGroup.replace_static_member

    def replace_and_keep(self: ClassicGroup, instance_id: str, old_id: str, new_id: str) -> ClassicGroupMember:
        old = self.members[old_id]
        new = replace_member(self, instance_id, old_id, new_id)
        self.members[old_id] = old
        return new

    def validate_id_only(self: ClassicGroup, member_id: str, instance_id: str | None) -> None:
        if member_id not in self.members:
            raise ApiError("UNKNOWN_MEMBER_ID")

    patch.setattr(ClassicGroup, "replace_static_member", replace_and_keep)
    patch.setattr(ClassicGroup, "validate_member", validate_id_only)


def take_instance_ids_from_the_living(patch: Patch) -> None:
    """A consumer group gives an instance id to a new member although the former one has not left, and accepts both."""
    patch.setattr(static_members, "check_instance_is_released", lambda *_: None)
    patch.setattr(static_members, "check_instance_is_not_fenced", lambda *_: None)


# migration


def forget_what_classic_members_have(patch: Patch) -> None:
    """The upgrade of a group takes its members for members without partitions."""
    patch.setattr(migration, "partitions_of", lambda *_: {})


def tell_classic_members_nothing(patch: Patch) -> None:
    """A heartbeat with the classic protocol does not say that the member must join again."""
    heartbeat = ClassicMembers.heartbeat

    def answer(self: ClassicMembers, group: ConsumerGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        heartbeat(self, group, request)
        return CoordinatorResult(response=HeartbeatResponse())

    patch.setattr(ClassicMembers, "heartbeat", answer)
    patch.setattr(MemberTimers, "schedule_join_if_absent", lambda *_: None)


def fence_only_within_a_protocol(patch: Patch) -> None:
    """A static member with the consumer protocol is not fenced by a member with the classic protocol that has its instance id."""
    stay = static_members.stay_static_member

    def stay_or_share(group: ConsumerGroup, member_id: str, instance_id: str, epoch: int | None, owned: OwnedTopics) -> ConsumerGroupMember:
        existing = group.static_member(instance_id)
        if existing is not None and existing.member_id != member_id and existing.uses_classic_protocol:
            return existing
        return stay(group, member_id, instance_id, epoch, owned)

    for module in (heartbeat, classic_members):
        patch.setattr(module, "stay_static_member", stay_or_share)


# cooperative members


def ignore_what_joining_members_keep(patch: Patch) -> None:
    """A consumer group takes a member that joins with the classic protocol for one that has given up all its partitions."""
    patch.setattr(classic_members, "owned_topics", lambda *_: [])


def keep_the_first_metadata(patch: Patch) -> None:
    """The leader of a classic group gets what each member said when it joined for the first time."""
    update_member = ClassicGroup.update_member

    def update_and_keep(self: ClassicGroup, member: ClassicGroupMember, _: Any, *others: Any) -> None:
        update_member(self, member, member.supported_protocols, *others)

    patch.setattr(ClassicGroup, "update_member", update_and_keep)


# streams groups


def give_active_tasks_twice(patch: Patch) -> None:
    """A member gets its active tasks before their former owners have given them up."""
    next_member = Reconciliation.next_member
    patch.setattr(Reconciliation, "next_member", lambda self, member: next_member(replace(self, active_process=lambda *_: None), member))


def keep_dead_members(patch: Patch) -> None:
    """The sessions of the members of streams groups do not end."""
    patch.setattr(Leaves, "schedule_session", lambda *_: None)


BUGS: list[tuple[Callable[[Patch], None], int]] = [
    (keep_replaced_members, 41),
    (take_instance_ids_from_the_living, 43),
    (forget_what_classic_members_have, 42),
    (tell_classic_members_nothing, 42),
    (fence_only_within_a_protocol, 60),
    (ignore_what_joining_members_keep, 42),
    (keep_the_first_metadata, 44),
    (give_active_tasks_twice, 41),
    (keep_dead_members, 41),
]
"""A bug, and the first seed of the lives."""
BUG_LIVES = 4
"""The number of lives within which a bug must be found."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "first_seed"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_of_groups_is_found(bug: Callable[[Patch], None], first_seed: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(node_life, "trace", lambda *_: "")  # the trace of a life that must fail would double its time
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(first_seed, first_seed + BUG_LIVES), PLAIN, GROUP_LIVES, disturbances=BUG_DISTURBANCES)
    assert "python -m tests.simulation.groups" in caught.value.__notes__[0]
