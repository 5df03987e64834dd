"""One life of the nodes of `node_world`, and its trace: `python -m tests.simulation.node_life SEED` repeats it and prints its trace.

A life costs some tenths of a second, so nothing is told while it goes well. The same seed gives the same life: one that fails is lived a
second time, with everything that the nodes log and all changes of leaders in the trace.
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
    """What lives in a world and what happens to it; `module` lives a seed again."""

    world: type[NodeWorld]
    faults: type[Faults]
    module: str


PARTITIONS = Kind(NodeWorld, Faults, "tests.simulation.node_life")
LAST_LINES = 250
"""How much of the trace is told: what was done to the nodes from the start, of what they said the end."""


def live(seed: int, *, disturbances: int = DISTURBANCES, mix: Mix = EVERYTHING, kind: Kind = PARTITIONS) -> NodeWorld:
    """One life; what is wrong comes out with the trace and how to have it again."""
    world = kind.world(seed, mix=mix)
    try:
        _live(world, disturbances, kind)
    except BaseException as error:
        how = "" if mix == EVERYTHING else f", of {mix}"
        error.add_note(f"seed {seed}; python -m {kind.module} {seed} {disturbances}{how}\n{trace(seed, disturbances, mix, kind)}")
        raise
    return world


def live_all(seeds: Iterable[int], mix: Mix = EVERYTHING, kind: Kind = PARTITIONS) -> None:
    """Life after life; the first that fails comes out."""
    gc.collect()
    # What is there before is not looked through behind every life.
    gc.freeze()
    try:
        for seed in seeds:
            live(seed, mix=mix, kind=kind)
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
    """A life lived again, told: virtual time in ms, who, what."""
    world = kind.world(seed, mix=mix, is_traced=True)
    with Teller(world) as teller:
        _live(world, disturbances, kind)
    first = len(world.said) - LAST_LINES
    lines = [line for number, line in enumerate(world.said) if number >= first or ": " not in line[11:30]]
    return "\n".join([*lines, f"{world.clock.now_ms:10.1f} {teller.end}"])


class Teller(logging.Handler):
    """What the nodes log, as lines of the trace; `end` is how it ended, also with an error, which goes no further."""

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
    """No garbage is collected within a life, and nothing is logged that nobody reads."""
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
    """What the command does."""
    print(trace(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else DISTURBANCES, kind=kind))


if __name__ == "__main__":
    print_trace(PARTITIONS)
