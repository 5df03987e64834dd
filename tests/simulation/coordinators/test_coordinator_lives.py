"""Lives of whole nodes with transactional producers and groups; see `world`.

`pytest -m slow tests/simulation/coordinators/test_coordinator_lives.py --seeds 1000` runs a thousand. A failure prints its seed, what
happened, and the command that repeats it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.coordinators.life import COORDINATORS
from tests.simulation.node_life import live

SLOW_SEEDS = 6
FIRST_SLOW_SEED = 2_000
EVENTS = {
    "transactions committed",
    "transactions aborted",
    "transactions of nobody knows what",
    "producers fenced",
    "offsets committed",
    "commits of former members refused",
    "generations",
    "assignments",
}
"""The events that are counted in a life."""


def test_a_life_of_coordinators() -> None:
    counts = live(4, disturbances=1, kind=COORDINATORS).counts
    assert min(counts[event] for event in ("transactions committed", "offsets committed", "generations", "assignments")) > 0, counts


@pytest.mark.slow
def test_a_life_of_coordinators_is_the_same_every_time() -> None:
    first, second = (live(7, disturbances=2, kind=COORDINATORS) for _ in range(2))
    assert first.clock.digest == second.clock.digest
    assert first.said == second.said


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives_of_coordinators(seed_count: int | None) -> None:
    """Every life succeeds, and over a number of seeds every possible event happens."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SLOW_SEED, FIRST_SLOW_SEED + (SLOW_SEEDS if seed_count is None else seed_count)):
        counts += live(seed, kind=COORDINATORS).counts
    assert seed_count is not None or min(counts[event] for event in EVENTS) > 0, counts
