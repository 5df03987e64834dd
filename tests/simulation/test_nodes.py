"""Whole nodes of kops in a simulated world, life after life; see `node_world`.

`pytest -m slow tests/simulation/test_nodes.py --seeds 1000` goes through a thousand; a failure tells its seed and what happened.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.node_world import NodeWorld
from tests.simulation.test_replication import (
    acknowledge_before_replication,
    high_watermark_at_the_end,
    truncate_to_the_high_watermark,
)

DISTURBANCES = 10
FAST_SEEDS = range(2)
SLOW_SEEDS = 60


def live(seed: int, *, disturbances: int = DISTURBANCES, power_losses: bool = False) -> NodeWorld:
    """One life; what is wrong comes out with the trace."""
    world = NodeWorld(seed, power_losses=power_losses)
    try:
        world.start()
        for _ in range(disturbances):
            world.disturb()
        world.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.said))
        raise
    finally:
        world.close()
    return world


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_a_life(seed: int) -> None:
    world = live(seed, disturbances=4)
    assert sum(len(records) for records in world.client.acknowledged.values()) > 20


def test_a_life_is_the_same_every_time() -> None:
    first, second = live(7, disturbances=3), live(7, disturbances=3)
    assert (first.said, first.clock.event_count) == (second.said, second.clock.event_count)
    assert first.client.acknowledged == second.client.acknowledged


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives(seed_count: int | None) -> None:
    for seed in range(100, 100 + (SLOW_SEEDS if seed_count is None else seed_count)):
        live(seed, power_losses=seed % 2 == 1)


BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], range]] = [
    (acknowledge_before_replication, range(300, 330)),
    (high_watermark_at_the_end, range(300, 330)),
    (truncate_to_the_high_watermark, range(300, 330)),
]
"""A bug, and the lives of which one must meet it."""


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "seeds"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in seeds:
            live(seed)
