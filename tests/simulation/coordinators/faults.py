"""The faults of the nodes of `world`: those of `node_faults`, with additional ones that mostly affect coordinators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.node_faults import Faults

if TYPE_CHECKING:
    from tests.simulation.coordinators.world import CoordinatorWorld
    from tests.simulation.node_world import SimNode

COORDINATOR = 0.6


class CoordinatorFaults(Faults):
    """The disturbances of one life."""

    world: CoordinatorWorld

    def __init__(self, world: CoordinatorWorld) -> None:
        super().__init__(world)
        more: list[tuple[int, Callable[[], None]]] = [
            (5, self.kill_one),
            (5, self.cut_one_wire_and_kill),
            (3, self.replace),
            (2, self.pause),
        ]
        self._kinds += [kind for weight, kind in more for _ in range(weight)]

    def _any(self) -> SimNode:
        found = self.world.coordinators()
        return self.chance.choice(found) if found and self.chance.random() < COORDINATOR else super()._any()

    def kill_one(self) -> None:
        """Kill one node with kill -9."""
        node = self._any()
        self.world.say(f"kill of node {node.id}")
        node.kill()
        self._start_again([node])

    def replace(self) -> None:
        """Cut a node off from the other nodes, but not from its clients, until other nodes have taken over its partitions. The node does
        not know that.
        """
        node = self._any()
        self.world.say(f"node {node.id} is cut off from the others for long")
        for other in self.world.nodes.values():
            self.world.clock.cut_off(node.host.address, other.host.address)
        self.world.run_for(self.chance.uniform(3_200, 5_000))
        self.world.clock.heal()

    def cut_one_wire_and_kill(self) -> None:
        """Cut a node off from one other node and then kill it. Its last records may be lost, or may not."""
        node = self._any()
        other = self.chance.choice([one for one in self.world.nodes.values() if one is not node])
        self.world.say(f"node {node.id} is cut off from node {other.id}, and then killed")
        self.world.clock.cut_off(node.host.address, other.host.address)
        self.world.run_for(self.chance.uniform(100, 2_500))
        node.kill()
        self.world.clock.heal()
        # Messages that the dead node had sent to that other node arrive before the node starts again. Otherwise a registration of its
        # former life could arrive after the new one and take its place, and Kafka's broker never registers again.
        self.world.run_for(300)
        self._start_again([node])
