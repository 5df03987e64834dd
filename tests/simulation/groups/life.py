"""One life of `world`. `python -m tests.simulation.groups.life SEED` repeats a life and prints its trace."""

from __future__ import annotations

from tests.simulation.coordinators.faults import CoordinatorFaults
from tests.simulation.groups.world import GroupWorld
from tests.simulation.node_life import Kind, print_trace

GROUP_LIVES = Kind(GroupWorld, CoordinatorFaults, "tests.simulation.groups.life")

if __name__ == "__main__":
    print_trace(GROUP_LIVES)
