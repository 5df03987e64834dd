"""Spreads work over forked processes, with plain pipes and `fork`, which start in 3 ms of CPU; `multiprocessing` takes 30.

Each worker takes the next number from one pipe that all share and writes its pickled answer into a pipe of its own. A worker never
returns to its caller's code: it ends with `_exit`.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NoReturn, TypeVar

from kops.errors import KopsError

_ITEM: Final = struct.Struct("=I")
_SIZE: Final = struct.Struct("=Q")
_READ: Final = 1 << 20
_DIED: Final = "a worker process died (out of memory?); --jobs 1 needs none"

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Worker:
    """A process, its pipe, and the bytes that came so far."""

    __slots__ = ("pid", "pipe", "received")

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.received = bytearray()


def spread(function: Callable[[Item], Answer], items: list[Item], jobs: int, allowed: Iterable[int] | None = None) -> Iterator[Answer]:
    """Call `function` for every item in `jobs` processes that know all items. Yields answers as they come; items are started in their
    order.

    `allowed` yields the indexes of the items to process. It is advanced shortly before each item starts, so it may end early. If it has
    none for the moment, it is asked again after the next answer. Raises KopsError if a worker dies. The caller handles Ctrl-C: workers
    ignore it, and end when this iterator is closed.
    """
    places = iter(range(len(items)) if allowed is None else allowed)
    workers: list[_Worker] = []
    give, take = -1, -1
    try:
        take, give = os.pipe()
        for _ in range(jobs):
            workers.append(_start(function, items, take, give, workers))
        os.close(take)
        take = -1
        yield from _collect(workers, places, give, jobs)
    finally:
        for descriptor in (give, take, *(worker.pipe for worker in workers)):
            if descriptor >= 0:
                os.close(descriptor)
        for worker in workers:
            os.kill(worker.pid, signal.SIGTERM)
            os.waitpid(worker.pid, 0)


def _start(function: Callable[[Item], Answer], items: list[Item], take: int, give: int, others: list[_Worker]) -> _Worker:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Inherited pipes of other workers would hide their ends.
        for descriptor in (give, read, *(other.pipe for other in others)):
            os.close(descriptor)
        _serve(function, items, take, write)
    os.close(write)
    return _Worker(pid, read)


def _serve(function: Callable[[Item], Answer], items: list[Item], take: int, write: int) -> NoReturn:
    """The main function of a worker process. It must never return into the parent's code."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while number := os.read(take, _ITEM.size):
            answer = pickle.dumps(function(items[_ITEM.unpack(number)[0]]), pickle.HIGHEST_PROTOCOL)
            _write(write, _SIZE.pack(len(answer)) + answer)
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
        os._exit(code)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _collect(workers: list[_Worker], places: Iterator[int], give: int, jobs: int) -> Iterator[Answer]:
    by_pipe = {worker.pipe: worker for worker in workers}
    poll = select.poll()
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    running = 0
    # Two items for each idle worker, so that none waits for this process.
    wanted = 2 * jobs
    while True:
        for place in islice(places, wanted):
            try:
                os.write(give, _ITEM.pack(place))
            except BrokenPipeError:  # All have died, so nobody reads.
                raise KopsError(_DIED) from None
            running += 1
            wanted -= 1
        if not running:
            return
        for pipe, _ in poll.poll():
            worker = by_pipe[pipe]
            data = os.read(pipe, _READ)
            if not data:
                raise KopsError(_DIED)
            worker.received += data
            while (answer := _whole(worker.received)) is not None:
                running -= 1
                wanted += 1
                yield pickle.loads(answer)


def _whole(received: bytearray) -> bytes | None:
    """Take one answer from the received bytes; None if it is not complete."""
    if len(received) < _SIZE.size:
        return None
    end = _SIZE.size + _SIZE.unpack_from(received)[0]
    if len(received) < end:
        return None
    answer = bytes(received[_SIZE.size : end])
    del received[:end]
    return answer
