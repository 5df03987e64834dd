"""The stages of a scan. They are named after the application and their work, and reported to a watcher with the bytes of their plan."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kops.spark.jobs.statistics import stats
from kops.spark.jobs.verify import scan_verify
from kops.spark.progress import BYTES, _tasks, _watchers, plan_next, planned_stage, stage, watch
from kops.spark.stores import reading
from tests.support import corpus
from tests.support.patience import until

NODES = corpus.load("cluster-4.3.0").root / "nodes"


class Seen:
    """A watcher that keeps what it gets, and makes a file when the first task has ended."""

    def __init__(self, mark: Path) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.mark = mark

    def begin(self, label: str, total: int, unit: str) -> None:
        self.told.append(("begin", label, total, unit))

    def set(self, done: int) -> None:
        self.told.append(("set", done))
        if done:
            self.mark.touch()

    def end(self) -> None:
        self.told.append(("end",))


def descriptions(spark: Any) -> list[str]:
    """Return the descriptions of all jobs that Spark remembers, the last one first."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return [str(jobs.apply(number).description().get()) for number in range(jobs.size()) if jobs.apply(number).description().isDefined()]


class Waiting:
    """A task. The last one waits until the watcher has been told about one that has ended."""

    def __init__(self, told: Path, last: int) -> None:
        self._told = str(told)
        self._last = last

    def __call__(self, number: int) -> int:
        import os
        import time

        deadline = time.monotonic() + 60
        while number == self._last and not os.path.exists(self._told) and time.monotonic() < deadline:
            time.sleep(0.01)
        return number


@pytest.fixture
def seen(spark: Any, tmp_path: Path) -> Any:
    watcher = Seen(tmp_path / "told")
    watch(spark, watcher)
    yield watcher
    del _watchers[spark.sparkContext]


def test_a_stage_tells_the_bytes_of_the_tasks_that_have_ended(spark: Any, seen: Seen) -> None:
    with stage(spark, "reads", [5, 7, 11, 13]):
        assert spark.sparkContext.parallelize(range(4), 4).map(Waiting(seen.mark, last=3)).collect() == [0, 1, 2, 3]
    assert seen.told[0] == ("begin", "reads", 36, BYTES)
    assert seen.told[-1] == ("end",)
    amounts = [each[1] for each in seen.told[1:-1]]
    assert amounts == sorted(amounts)
    assert set(amounts) <= {0, 5, 12, 23, 36}
    assert max(amounts) > 0


def test_jobs_are_named_and_the_names_of_others_return(spark: Any) -> None:
    spark.sparkContext.setJobGroup("mine", "my own work")
    try:
        assert not scan_verify(spark, [NODES / "n1"]).has_problems
        # Spark's list of jobs is written from a queue.
        until(lambda: descriptions(spark), lambda found: found and found[0].startswith("tests: reads segments, "))
        stats(spark, [NODES / "n1"], topics=["orders-epochs"]).collect()
        until(lambda: descriptions(spark), lambda found: any(each.startswith("tests: counts batches and records, ") for each in found))
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "my own work"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.sparkContext.setLocalProperty("spark.job.description", None)


def test_a_planned_frame_is_followed_by_the_stage_with_as_many_tasks(spark: Any, tmp_path: Path) -> None:
    plan_next(spark, "reads", [1] * 3)
    with planned_stage(spark):
        group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        spark.range(10, numPartitions=3).write.format("noop").mode("overwrite").save()
        tracker = spark.sparkContext.statusTracker()
        # Spark's tracker hears of ended tasks from a queue, so it may still be behind when the job has ended.
        until(lambda: _tasks(tracker, group, 3), lambda tasks: tasks == (3, 3))
        assert _tasks(tracker, group, 4) is None
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_what_a_worker_has_loaded_is_not_collected_after_each_task(spark: Any) -> None:
    """Spark's workers collect all garbage after each task. What the first tasks have loaded is exempt."""

    def frozen(_: int) -> tuple[int, int]:
        import gc

        from kops.spark.stores.reading import task_files

        task_files()
        return gc.get_freeze_count(), len(gc.get_objects())

    tasks = spark.sparkContext.parallelize(range(8), 8).map(frozen)
    tasks.collect()
    for exempt, others in tasks.collect():
        assert exempt > 10_000 > others


def test_other_processes_collect_all_their_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(1))
    monkeypatch.setattr(reading, "_tasks", count())
    for _ in range(9):
        reading.task_files()
    assert not frozen
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    for _ in range(9):
        reading.task_files()
    assert len(frozen) == 3
