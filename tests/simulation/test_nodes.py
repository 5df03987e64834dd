"""Lives of whole nodes of kops in a simulated world; see `node_world`.

`pytest -m slow tests/simulation/test_nodes.py --seeds 10000` runs ten thousand. A failure prints its seed, what happened, and the command
that repeats it. `test_node_lives` has other seeds, so that two workers share them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.node_life import live, live_all, trace
from tests.simulation.node_world import SHAPES, Mix

FAST_SEEDS = (3, 52)
SLOW_SEEDS = 25
FIRST_SLOW_SEED = 1_000
EVENTS = {
    "records acknowledged",
    "leaders elected",
    "leaders of the quorum elected",
    "partitions deleted",
    "partitions cut at their start",
    "half messages",
    "metadata logs cut at their start",
    "operations of disks failed",
    "reads of disks failed",
    "records compacted away",
    "tombstones compacted away",
    "nodes ended",
    "side work done and never told",
}
"""The events that are counted in a life."""


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_a_life(seed: int) -> None:
    world = live(seed, disturbances=3)
    assert sum(ledger.acknowledged_end for ledger in world.checks.ledgers.values()) > 5


def test_a_life_is_the_same_every_time() -> None:
    """Two lives of a seed have the same events, times and machines, with and without a trace."""
    first, second, other = (live(seed, disturbances=3) for seed in (7, 7, 8))
    assert first.clock.digest == second.clock.digest != other.clock.digest
    assert first.said == second.said
    told = trace(7, 3)
    assert told == trace(7, 3)
    assert f"{first.clock.now_ms:10.1f} and all was well" in told


def test_the_client_takes_no_older_leader_epoch() -> None:
    """A node that was restarted answers with old metadata. Its leader of the older epoch would refuse the next sequence.

    Kafka's client ignores the older epoch (Metadata.updateLatestMetadata).
    """
    live(358, mix=Mix(shapes=("combined",), compacted=0, failures=("full", "dead", "bad"), disks=3))


@pytest.mark.slow
def test_a_life_is_the_same_in_another_process() -> None:
    """A command repeats a failing seed in another process, so nothing may depend on the order of a set or on an address in memory."""
    command = [sys.executable, "-m", "tests.simulation.node_life", "7", "3"]
    root = Path(__file__).parents[2]
    told = [
        subprocess.run(command, cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].rstrip("\n") == trace(7, 3)


@pytest.mark.slow
def test_lives_do_what_they_are_for() -> None:
    """Over a number of seeds, every possible event happens."""
    counts: Counter[str] = Counter()
    for seed in range(100, 120):
        counts += live(seed).counts
    assert set(counts) >= EVENTS | {f"lives of {shape}" for shape in SHAPES}
    assert min(counts[event] for event in EVENTS) > 3, counts


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives(seed_count: int | None) -> None:
    live_all(range(FIRST_SLOW_SEED, FIRST_SLOW_SEED + (SLOW_SEEDS if seed_count is None else seed_count)))
