"""The faults of the nodes of `node_world`: machines, networks, clocks and disks fail and work again a little later."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.node_world import OTHER_DIR
from tests.simulation.sim_disk import READ_FAILURES

if TYPE_CHECKING:
    from tests.simulation.node_world import NodeWorld, SimNode

ADMIN_CHANCE = 0.6


class Faults:
    """The disturbances of one life."""

    def __init__(self, world: NodeWorld) -> None:
        self.world = world
        self.chance: Random = world.clock.random
        kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.kill),
            (3, self.cut_off_and_kill),
            (3, self.lose_power),
            (2, self.restart),
            (2, self.pause),
            (2, self.cut_off),
            (2, self.cut_one_wire),
            (2, self.reset),
            (1, self.slow_down),
            (1, self.set_clock),
            (world.mix.disks, self.break_disk),
            (1, self.replace_disk),
            (1, self.leave_alone),
        ]
        self._kinds = [kind for weight, kind in kinds for _ in range(weight)]

    def disturb(self) -> None:
        """Cause one random disturbance. Often the administrator is at work meanwhile."""
        if self.chance.random() < ADMIN_CHANCE:
            self.world.admin.do_something()
        self.chance.choice(self._kinds)()
        self.world.run_for(self.chance.uniform(0, 1_000))

    def _run(self) -> None:
        """Run for the random duration of a disturbance."""
        self.world.run_for(self.chance.choice((50, 500, 2_000, 6_000)) * self.chance.random())

    def _any(self) -> SimNode:
        return self.world.nodes[self.chance.choice(list(self.world.nodes))]

    def _some(self) -> list[SimNode]:
        """Return one node, and now and then more."""
        count = self.chance.choices((1, 2, 3), (7, 2, 1))[0]
        return [self.world.nodes[one] for one in self.chance.sample(list(self.world.nodes), count)]

    # machines -----------------------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill one or more nodes with kill -9."""
        nodes = self._some()
        for node in nodes:
            self.world.say(f"kill of node {node.id}")
            node.kill()
            self.world.run_for(self.chance.choice((0, 100)))
        self._start_again(nodes)

    def lose_power(self) -> None:
        """Let one or more machines lose power. Everything that was not synced is lost."""
        nodes = self._some()
        for node in nodes:
            self.world.say(f"node {node.id} loses power")
            node.lose_power()
        self._start_again(nodes)

    def cut_off_and_kill(self) -> None:
        """Kill a node after it was cut off, so that nobody else has its last records from the clients."""
        node = self._any()
        self.world.say(f"node {node.id} is cut off from the others, and then killed")
        for other in self.world.nodes.values():
            self.world.clock.cut_off(node.host.address, other.host.address)
        self.world.run_for(self.chance.uniform(50, 600))
        node.kill()
        self.world.clock.heal()
        self._start_again([node])

    def _start_again(self, nodes: list[SimNode]) -> None:
        self._run()
        for node in nodes:
            node.start()
            self.world.run_for(self.chance.choice((0, 1_000)) * self.chance.random())

    def restart(self) -> None:
        """Shut a node down cleanly and start it again."""
        node = self._any()
        running = node.node
        if running is None:
            return
        ended: list[bool] = []
        self.world.say(f"node {node.id} is stopped")
        self.world.clock.at(0, lambda: running.shut_down(lambda: ended.append(True)), node.host)
        self.world.run_until(lambda: bool(ended) or bool(node.failures), f"the stop of node {node.id}")
        node.kill()
        node.start()

    def pause(self) -> None:
        """Pause a node, as with SIGSTOP."""
        node = self._any()
        self.world.say(f"node {node.id} pauses")
        node.host.pause()
        self._run()
        self.world.say(f"node {node.id} goes on")
        node.host.resume()

    def set_clock(self) -> None:
        """Let the wall clock of a node jump."""
        node = self._any()
        node.host.clock_offset_ms += self.chance.uniform(-5_000, 5_000)
        self.world.say(f"the clock of node {node.id} is {node.host.clock_offset_ms:.0f} ms off")

    def leave_alone(self) -> None:
        """Disturb nothing for a while."""
        self.world.run_for(2_000)

    # networks -----------------------------------------------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """Cut a node off from the others, and sometimes also from the clients."""
        node = self._any()
        self._cut(node, [other for other in self.world.nodes.values() if other is not node])

    def cut_one_wire(self) -> None:
        """Cut the connection between two nodes."""
        first, second = self.chance.sample(list(self.world.nodes), 2)
        self._cut(self.world.nodes[first], [self.world.nodes[second]])

    def _cut(self, node: SimNode, others: list[SimNode]) -> None:
        clock, client = self.world.clock, self.world.client.host
        addresses = [other.host.address for other in others]
        if self.chance.random() < 0.3:
            addresses.append(client.address)
        self.world.say(f"node {node.id} is cut off from {', '.join(addresses)}")
        for address in addresses:
            clock.cut_off(node.host.address, address)
        self._run()
        clock.heal()
        self.world.say("all wires are whole")

    def reset(self) -> None:
        """Break connections of a node, some of them in the middle of the next message."""
        node = self._any()
        self.world.say(f"connections of node {node.id} break")
        for sock in sorted(node.host.sockets, key=lambda one: one.number):
            if sock.pipe is not None and self.chance.random() < 0.6:
                pipe = sock.pipe if self.chance.random() < 0.5 else sock.pipe.target.pipe
                if pipe is not None and self.chance.random() < 0.7:
                    pipe.is_rigged = True
                elif pipe is not None:
                    pipe.break_off()

    def slow_down(self) -> None:
        """Let the network be slow for a while."""
        self.world.say("the network is slow")
        self.world.clock.slow = True
        self._run()
        self.world.clock.slow = False

    # disks --------------------------------------------------------------------------------------------------------------------------

    def break_disk(self) -> None:
        """Let one directory or all of them be full or fail. Then repair the disk and start the machine again."""
        node = self._any()
        failure = self.chance.choice(self.world.mix.failures)
        paths = self.world.log_dirs if self.chance.random() < 0.2 else (self.chance.choice(self.world.log_dirs),)
        node.has_bad_disk = True
        for path in paths:
            self.world.say(f"{path} of node {node.id} is {failure}")
            node.disk.break_directory(path, failure)
        # A node reads most when it loads its logs. If a directory is offline at the start, Kafka creates a log that has no directory in the
        # metadata yet in another directory, and does not start when the failed directory is back.
        is_met = failure in ("bad logs", "bad read") or (failure == "unreadable" and self.world.is_placed(node))
        if is_met and self.chance.random() < 0.3:
            if self.chance.random() < 0.5:
                node.kill()
            else:
                node.lose_power(keeps_failing=True)
            node.start(has_bad_disk=True)
        elif is_met:
            self.world.run_for(3_000)  # so that the cleaner meets it, too
        self._run()
        self.world.say(f"the disk of node {node.id} is repaired")
        self.world.counts["operations of disks failed"] += node.disk.failures
        self.world.counts["reads of disks failed"] += node.disk.read_failures
        node.disk.failures = node.disk.read_failures = 0
        if failure == "full" or failure in READ_FAILURES:
            node.kill()
            node.disk = node.disk.repaired()
        else:
            # Data that a sync could not write may exist in the system's memory only. So a machine whose disk failed is restarted.
            node.lose_power()
        self._start_again([node])

    def replace_disk(self) -> None:
        """Replace a directory with an empty one. Before that, all replicas get in sync, so that no record exists only in this directory."""
        if OTHER_DIR not in self.world.log_dirs:
            self.kill()
            return
        node = self._any()
        self.world.run_until(self.world.is_in_sync, "all replicas in sync")
        self.world.say(f"{OTHER_DIR} of node {node.id} is replaced by an empty one")
        if self.chance.random() < 0.5:
            node.has_bad_disk = True
            node.disk.break_directory(OTHER_DIR, "dead")
            self._run()
            node.lose_power()
        else:
            node.kill()
        node.wipe(OTHER_DIR)
        self._run()
        node.start()
        self.world.run_until(self.world.is_in_sync, "all replicas in sync behind a new disk")
        node.lost_data = False
