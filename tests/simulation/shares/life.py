"""One life of `world`. `python -m tests.simulation.shares.life SEED` repeats a life and prints its trace."""

from __future__ import annotations

from tests.simulation.node_faults import Faults
from tests.simulation.node_life import Kind, print_trace
from tests.simulation.shares.world import ShareWorld

SHARES = Kind(ShareWorld, Faults, "tests.simulation.shares.life")

if __name__ == "__main__":
    print_trace(SHARES)
