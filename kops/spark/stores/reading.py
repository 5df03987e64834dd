"""The files that scans read: local paths and URLs. Tasks reach URLs as the driver does, and read what the driver has seen.

`with_connections` gives a task's function the endpoints and credentials of the driver, as Spark does for its own `s3a:`. An object that is
another one than when the driver listed it can't be opened in a task. Needs no Spark.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from kops.files import Files, OsFiles
from kops.files.any_files import AnyFiles
from kops.files.urls import Connections, connect, connections, is_url
from kops.forensics.inventory.replicas import Replica

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_AT_A_TIME: Final = 16
_FIRST_TASKS: Final = 3
_tasks: Final = count()
"""Counts the tasks of this process."""


def driver_files() -> AnyFiles:
    """The files for a plan. Directories of a store are listed several at a time."""
    return AnyFiles(ahead=True)


def task_files(replica: Replica | None = None) -> AnyFiles:
    """The files of a task; with `replica`, its objects must be those that the driver has listed."""
    settle()
    files = AnyFiles()
    if replica is not None and is_url(replica.directory.path):
        files.expect({each.path: (each.size, each.mtime_ms) for each in replica.directory.all_files()})
    return files


def settle() -> None:
    """Exempt what is in memory from garbage collection, in the first tasks of a Spark worker.

    A worker collects all garbage after each task (`pyspark.daemon`). With the modules of Spark, Arrow and kops that takes 30 ms of CPU,
    most of what a task costs at all. What is loaded by the third task stays loaded.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == "pyspark.daemon" and next(_tasks) < _FIRST_TASKS:
        gc.freeze()


def at_once(function: Callable[[Item], Answer], items: Iterable[Item], *, threads: bool) -> Iterator[Answer]:
    """The results in order. `threads`: compute several at a time, because the files are behind URLs and each answer takes a while."""
    if not threads:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(_AT_A_TIME, "kops-plan")
    running: deque[Future[Answer]] = deque()
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) >= 4 * _AT_A_TIME:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def output_files(out: str) -> Iterator[Files]:
    """The files for an output directory, local or in a store."""
    if not is_url(out):
        yield OsFiles()
        return
    from kops.files.uploads import UploadFiles

    files = UploadFiles()
    try:
        yield files
    finally:
        files.close()


def with_connections(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """The function, for another process: it reaches URLs as this one."""
    given = connections()
    return partial(_connected, function, given) if given else function


def _connected(function: Callable[..., Answer], given: Connections, *values: Any) -> Answer:
    connect(given)
    return function(*values)
