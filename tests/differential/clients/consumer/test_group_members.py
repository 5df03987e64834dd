"""Members of kops with the consumer and the share protocol, beside Kafka's managers of memberships and heartbeats: random lives with every
error of a heartbeat, lost coordinators, unknown topics, slow applications. Both send the same requests in the same states, and report the
same events.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.client.groups.modern.states import MemberState
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_members import TimerClock
from tests.support.kafka.twins.member_twins import ENDING, HEALED, MemberTwins

STEPS = 60
BOTH = pytest.mark.parametrize("is_share", [False, True], ids=["consumer", "share"])
TOLD = {"Assigned", "Cleared", "FindCoordinator", "FindTopics", "Left", "Pause", "Reconciled", "Send"}


def lives(oracle: Oracle, seeds: range, *, is_share: bool) -> Counter[str]:
    """Run random lives, and return what has happened in them."""
    java = JavaCoordinators(oracle)
    clock = TimerClock(java, 1_700_000_000_000)
    seen: Counter[str] = Counter()
    for seed in seeds:
        twins = MemberTwins(java, clock, random.Random(seed), is_share=is_share)
        try:
            twins.run()
            left = STEPS
            while left > 0:
                twins.step()
                left = min(left, 5) - 1 if twins.ours.state is MemberState.FATAL else left - 1
            twins.end(ENDING[seed % len(ENDING)])
            twins.close()
            twins.run()
        except AssertionError as error:
            error.add_note("\n".join((f"seed {seed}", *twins.trail[-15:])))
            raise
        seen += twins.seen
    return seen


@BOTH
def test_random_lives(oracle: Oracle, is_share: bool) -> None:
    seen = lives(oracle, range(3) if is_share else range(6), is_share=is_share)
    assert seen.keys() >= TOLD
    assert is_share or seen.keys() >= {"Commit", "Revoked", "Lost", "Failed"}


@pytest.mark.slow
@BOTH
def test_more_random_lives(oracle: Oracle, seed_count: int | None, is_share: bool) -> None:
    """The coordinator answers with every error. `--seeds N` runs more."""
    seen = lives(oracle, range(100, 100 + (seed_count or 25)), is_share=is_share)
    assert seen.keys() >= {f"answered {name}" for name in (*HEALED, *ENDING)}
    states = {key.rpartition(" ")[2] for key in seen}
    # A member leaves these two within a step.
    assert states >= {state.name for state in MemberState} - {"LEAVING", "FENCED"} - (
        {"RECONCILING", "PREPARE_LEAVING"} if is_share else set()
    )
