"""More lives of whole nodes in addition to those of `test_nodes`, for another worker."""

from __future__ import annotations

import pytest

from tests.simulation.node_life import live_all

SLOW_SEEDS = 25
FIRST_SLOW_SEED = 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives(seed_count: int | None) -> None:
    live_all(range(FIRST_SLOW_SEED, FIRST_SLOW_SEED + (SLOW_SEEDS if seed_count is None else seed_count)))
