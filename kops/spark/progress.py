"""Names the stages of a scan for Spark's own pages, and tells a watcher how far they are.

Source: Spark's `SparkContext.setJobGroup`, `CallSite` (the local properties that name a stage) and `SparkStatusTracker`.

Spark says how many tasks of a stage have ended, the plan says how many bytes each task reads. Tasks start in the order of the plan, so the
bytes of its first N tasks stand for those of the N tasks that have ended. At the end the number is exact.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES: Final = "B"
TASKS: Final = "tasks"
_EVERY_S: Final = 0.25
_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "callSite.short", "callSite.long")
_GROUPS: Final = itertools.count()


class Watcher(Protocol):
    """Is told about one stage after the other, from a thread of its own."""

    def begin(self, label: str, total: int, unit: str) -> None:
        """A stage begins. `unit` is BYTES or TASKS."""

    def set(self, done: int) -> None:
        """So much of the stage is done."""

    def end(self) -> None:
        """The stage has ended, or failed."""


_watchers: WeakKeyDictionary[Any, Watcher] = WeakKeyDictionary()
_planned: WeakKeyDictionary[Any, tuple[str, Sequence[int]]] = WeakKeyDictionary()


def watch(spark: SparkSession, watcher: Watcher) -> None:
    """Tell this watcher about the stages of scans in this session."""
    _watchers[spark.sparkContext] = watcher


def plan_next(spark: SparkSession, what: str, sizes: Sequence[int] = ()) -> None:
    """Say what the next DataFrame of this session does when it is computed, and the bytes of each of its tasks, if they are known."""
    _planned[spark.sparkContext] = (what, sizes)


@contextmanager
def planned_stage(spark: SparkSession) -> Iterator[None]:
    """The stage that `plan_next` has announced."""
    what, sizes = _planned.pop(spark.sparkContext, ("computes rows", ()))
    with stage(spark, what, sizes):
        yield


@contextmanager
def stage(spark: SparkSession, what: str, sizes: Sequence[int] = ()) -> Iterator[None]:
    """Name the Spark jobs that are started here after the application and what they do, and tell the watcher how far they are.

    `sizes`: the bytes that each task reads, in the order of the tasks. Without them only tasks are counted.
    """
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    text = f"{context.appName}: {what}"
    if sizes:
        text += f", {sum(sizes):,} bytes in {len(sizes):,} tasks"
    group = f"kops-{next(_GROUPS)}"
    for name, value in zip(_PROPERTIES, (group, text, text, text), strict=True):
        context.setLocalProperty(name, value)
    watcher = _watchers.get(context)
    ended = threading.Event()
    thread: threading.Thread | None = None
    if watcher is not None:
        thread = threading.Thread(target=_follow, args=(context.statusTracker(), group, what, sizes, watcher, ended), daemon=True)
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread is not None:
            thread.join()
        for name, old in before.items():
            context.setLocalProperty(name, old)  # None removes it


def _follow(tracker: Any, group: str, what: str, sizes: Sequence[int], watcher: Watcher, ended: threading.Event) -> None:
    from py4j.protocol import Py4JError

    read = [0, *accumulate(sizes)]
    has_begun = False
    while not ended.wait(_EVERY_S):
        try:
            found = _tasks(tracker, group, len(sizes))
        except Py4JError:
            break  # The session was stopped, and whoever stopped it says so.
        if found is None:
            continue
        done, total = found
        if not has_begun:
            watcher.begin(what, read[-1] if sizes else total, BYTES if sizes else TASKS)
            has_begun = True
        watcher.set(read[min(done, len(sizes))] if sizes else done)
    if has_begun:
        watcher.end()


def _tasks(tracker: Any, group: str, planned: int) -> tuple[int, int] | None:
    """How many tasks have ended, and how many there are, in the stage that reads: the first one with as many tasks as were planned."""
    for job in sorted(tracker.getJobIdsForGroup(group)):
        about = tracker.getJobInfo(job)
        for number in sorted(about.stageIds) if about is not None else ():
            found = tracker.getStageInfo(number)
            if found is not None and planned in (0, found.numTasks):
                return int(found.numCompletedTasks), int(found.numTasks)
    return None
