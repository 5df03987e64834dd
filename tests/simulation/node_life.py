"""One life of the nodes of `node_world`. `python -m tests.simulation.node_life SEED` repeats a life and prints its trace.

A life takes some tenths of a second. To keep it that short, nothing is logged while all goes well. The same seed gives the same life, so a
life that fails is run again, and its trace shows everything that the nodes log and all changes of leaders.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from tests.simulation.node_faults import Faults
from tests.simulation.node_world import EVERYTHING, Mix, NodeWorld, simulated

DISTURBANCES = 6


class Kind(NamedTuple):
    """What the world of a life is and what happens to it. The command `python -m <module>` repeats a life."""

    world: type[NodeWorld]
    faults: type[Faults]
    module: str


PARTITIONS = Kind(NodeWorld, Faults, "tests.simulation.node_life")
LAST_LINES = 250
"""The number of last lines that the trace shows. What was done to the nodes is shown from the start."""


def live(seed: int, *, disturbances: int = DISTURBANCES, mix: Mix = EVERYTHING, kind: Kind = PARTITIONS) -> NodeWorld:
    """Run one life. An error gets a note with the trace and the command that repeats the life."""
    world = kind.world(seed, mix=mix)
    try:
        _live(world, disturbances, kind)
    except BaseException as error:
        how = "" if mix == EVERYTHING else f", of {mix}"
        error.add_note(f"seed {seed}; python -m {kind.module} {seed} {disturbances}{how}\n{trace(seed, disturbances, mix, kind)}")
        raise
    return world


def live_all(seeds: Iterable[int], mix: Mix = EVERYTHING, kind: Kind = PARTITIONS, *, disturbances: int = DISTURBANCES) -> None:
    """Run one life after another. Raises the error of the first one that fails."""
    gc.collect()
    # The objects that exist already need not be collected after every life.
    gc.freeze()
    try:
        for seed in seeds:
            live(seed, disturbances=disturbances, mix=mix, kind=kind)
            gc.collect()
    finally:
        gc.unfreeze()


def _live(world: NodeWorld, disturbances: int, kind: Kind) -> None:
    with simulated(world), undisturbed(world.is_traced):
        world.start()
        faults = kind.faults(world)
        for _ in range(disturbances):
            faults.disturb()
        world.settle()


def trace(seed: int, disturbances: int, mix: Mix = EVERYTHING, kind: Kind = PARTITIONS) -> str:
    """Run a life again and return its trace: virtual time in ms, who, what."""
    world = kind.world(seed, mix=mix, is_traced=True)
    with Teller(world) as teller:
        _live(world, disturbances, kind)
    first = len(world.said) - LAST_LINES
    lines = [line for number, line in enumerate(world.said) if number >= first or ": " not in line[11:30]]
    return "\n".join([*lines, f"{world.clock.now_ms:10.1f} {teller.end}"])


class Teller(logging.Handler):
    """A log handler that adds what the nodes log to the trace. `end` tells how the life ended. An Exception is recorded there and goes no
    further.
    """

    def __init__(self, world: NodeWorld) -> None:
        super().__init__()
        self.world = world
        self.end = "and all was well"
        self._logger = logging.getLogger("kops")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        host = self.world.clock.current
        self.world.say(f"{'' if host is None else host.address}: {record.getMessage()}")

    def __enter__(self) -> Teller:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        if kind is not None:
            self.end = f"{kind.__name__}: {error}"
        return kind is None or issubclass(kind, Exception)


@contextmanager
def undisturbed(is_traced: bool) -> Iterator[None]:
    """Collect no garbage within the block, and disable logging unless the life is traced."""
    was_enabled, level = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    if not is_traced:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        if was_enabled:
            gc.enable()


def print_trace(kind: Kind) -> None:
    """Run the command."""
    print(trace(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else DISTURBANCES, kind=kind))


if __name__ == "__main__":
    print_trace(PARTITIONS)
