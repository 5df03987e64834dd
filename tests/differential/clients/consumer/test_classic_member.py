"""A member of kops with the classic protocol beside Kafka's ConsumerCoordinator: random lives with every error of JoinGroup, SyncGroup and
Heartbeat, lost coordinators, changed subscriptions, all assignors, dynamic and static members. Both send the same requests and call the
listener alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from kops.protocol.errors import ERRORS as CODES
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.classic_twins import COORDINATOR, ERRORS, FATAL, LOST, ClassicTwins
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_members import TimerClock

STEPS = 40
NAMES = [one.name for one in CODES if one.name not in ("NONE", "MEMBER_ID_REQUIRED")]
FOUND = (213, 248)
FOUND_WITH_CODES = {1407: "NETWORK_EXCEPTION", 1665: "REQUEST_TIMED_OUT", 1673: "NETWORK_EXCEPTION", 1806: "NETWORK_EXCEPTION"}


def lives(oracle: Oracle, seeds: range, errors: Sequence[str] = ERRORS) -> Counter[str]:
    """Run random lives, and return what has happened in them."""
    java = JavaCoordinators(oracle)
    clock = TimerClock(java, 1_700_000_000_000)
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen += ClassicTwins(java, clock, random.Random(seed)).live(STEPS, f"seed {seed}", errors)
    return seen


def test_random_lives(oracle: Oracle) -> None:
    seen = lives(oracle, range(5))
    assert seen.keys() >= {"Divide", "FindCoordinator", "Prepare", "Send", "Take"}


@pytest.mark.slow
def test_more_random_lives(oracle: Oracle, seed_count: int | None) -> None:
    """`--seeds N` runs more."""
    seen = lives(oracle, range(100, 100 + (seed_count or 30)))
    assert seen["GiveUp"]
    for api in ("JoinGroupRequest", "SyncGroupRequest", "HeartbeatRequest"):
        assert seen.keys() >= {f"{api} {name}" for name in (*LOST, "NONE", "NOT_COORDINATOR")}
    assert any(f"failed {name}" in seen for name in (*FATAL, *COORDINATOR))


@pytest.mark.slow
def test_lives_that_once_differed(oracle: Oracle) -> None:
    """A heartbeat ends the rebalance while the answer to JoinGroup is in flight; a subscription changes back; a broker sends
    NETWORK_EXCEPTION and REQUEST_TIMED_OUT as codes."""
    for seed in FOUND:
        lives(oracle, range(seed, seed + 1))
    for seed, name in FOUND_WITH_CODES.items():
        first = NAMES.index(name) // 8 * 8
        lives(oracle, range(seed, seed + 1), NAMES[first : first + 8])


@pytest.mark.slow
def test_every_error_code(oracle: Oracle, seed_count: int | None) -> None:
    """Each life has eight of all error codes. Most of them are unexpected, and both members must treat them alike."""
    for seed in range(seed_count or 1):
        for first in range(0, len(NAMES), 8):
            lives(oracle, range(1000 + seed * len(NAMES) + first, 1001 + seed * len(NAMES) + first), NAMES[first : first + 8])
