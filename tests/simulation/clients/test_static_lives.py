"""Lives of whole nodes whose clients are the library's, with static members of groups; see `static`. Planted bugs of the clients are found.

`pytest -m slow tests/simulation/clients/test_static_lives.py --seeds 1000` runs a thousand lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kops.client.consumer.groups.calls import GroupMembership
from kops.client.consumer.groups.classic import ClassicGroup
from kops.client.consumer.groups.modern import ModernGroup
from kops.client.groups.membership import GroupSettings, Membership
from tests.simulation import node_life
from tests.simulation.clients.static import STATIC
from tests.simulation.node_life import live, live_all
from tests.simulation.node_world import Mix

FIRST_SEED, FIRST_BUG_SEED, SLOW_SEEDS, BUG_LIVES = 42, 42, 4, 3
DISTURBANCES = 2
GOOD_DISKS = Mix(compacted=0, disks=0)
PLAIN = Mix(shapes=("combined",), compacted=0, disks=0)
EVENTS = (
    "offsets committed",
    "programs started twice",
    "restarts without a rebalance",
    "static members that left for a while",
    "consumers ended by FENCED_INSTANCE_ID",
    "consumers ended by UNRELEASED_INSTANCE_ID",
)
ORPHANS = (70032, 70033)
"""Lives in which a static member is replaced between two rebalances; see `orphans`."""
Patch = pytest.MonkeyPatch


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives_of_static_members(seed_count: int | None) -> None:
    """Every life succeeds, and every event happens."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + (SLOW_SEEDS if seed_count is None else seed_count)):
        counts += live(seed, disturbances=DISTURBANCES, mix=PLAIN if seed_count is None else GOOD_DISKS, kind=STATIC).counts
    assert min(counts[event] for event in EVENTS) > 0, counts


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", ORPHANS)
def test_a_partition_without_an_owner_gets_one_in_the_next_rebalance(seed: int) -> None:
    assert live(seed, disturbances=DISTURBANCES, mix=GOOD_DISKS, kind=STATIC).counts["partitions without an owner"] > 0


def go_on_after_a_fence(patch: Patch) -> None:
    """A member with the classic protocol is not told that another one has its instance id, and takes it back."""
    fail = Membership._fail

    def fail_otherwise(self: Membership, name: str, text: str = "") -> None:
        if name != "FENCED_INSTANCE_ID":
            fail(self, name, text)

    patch.setattr(Membership, "_fail", fail_otherwise)


def join_without_the_instance_id(patch: Patch) -> None:
    """A member with the classic protocol joins as a dynamic one."""
    make = Membership.__init__

    def make_without(self: Membership, settings: GroupSettings, *rest: Any) -> None:
        make(self, replace(settings, instance_id=None), *rest)

    patch.setattr(Membership, "__init__", make_without)


def leave_at_every_close(kind: type[ClassicGroup | ModernGroup]) -> Callable[[Patch], None]:
    """A consumer that is closed leaves its group even if it is a static member."""

    def plant(patch: Patch) -> None:
        leave = kind.leave

        def leave_for_ever(self: Any, membership: GroupMembership, reason: str, now_ms: float) -> Any:
            return leave(self, GroupMembership.LEAVE, reason, now_ms)

        patch.setattr(kind, "leave", leave_for_ever)

    return plant


BUGS: dict[str, Callable[[Patch], None]] = {
    "go on after a fence": go_on_after_a_fence,
    "join without the instance id": join_without_the_instance_id,
    "leave at every close, classic": leave_at_every_close(ClassicGroup),
    "leave at every close, consumer": leave_at_every_close(ModernGroup),
}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_of_static_members_is_found(bug: str, monkeypatch: Patch) -> None:
    """Each bug is found within BUG_LIVES lives."""
    monkeypatch.setattr(node_life, "trace", lambda *_: "")  # the trace of a life that must fail would double its time
    BUGS[bug](monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(FIRST_BUG_SEED, FIRST_BUG_SEED + BUG_LIVES), PLAIN, STATIC, disturbances=DISTURBANCES)
    assert "python -m tests.simulation.clients.static" in caught.value.__notes__[0]
