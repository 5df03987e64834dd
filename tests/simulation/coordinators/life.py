"""One life of `world`. `python -m tests.simulation.coordinators.life SEED` repeats a life and prints its trace."""

from __future__ import annotations

from tests.simulation.coordinators.faults import CoordinatorFaults
from tests.simulation.coordinators.world import CoordinatorWorld
from tests.simulation.node_life import Kind, print_trace

COORDINATORS = Kind(CoordinatorWorld, CoordinatorFaults, "tests.simulation.coordinators.life")

if __name__ == "__main__":
    print_trace(COORDINATORS)
