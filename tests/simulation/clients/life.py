"""One life of `world`. `python -m tests.simulation.clients.life SEED` repeats a life and prints its trace."""

from __future__ import annotations

from tests.simulation.clients.world import ClientWorld
from tests.simulation.coordinators.faults import CoordinatorFaults
from tests.simulation.node_life import Kind, print_trace

CLIENTS = Kind(ClientWorld, CoordinatorFaults, "tests.simulation.clients.life")

if __name__ == "__main__":
    print_trace(CLIENTS)
