"""A session of Spark from its start to its end, with Ctrl-C in between: one place that is interrupted, and nothing that Spark or py4j say.

pyspark's own handler asks the JVM in the middle of whatever is being read from it, and the socket is then closed under later calls. So
the session is made and used in a thread of its own (pyspark installs its handler in the main thread only), and the caller's thread, which
the signal reaches, does nothing but wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_LAST_WORDS_S = 5.0  # for the work to notice that its session is gone


def in_session(start: Callable[[], SparkSession], work: Callable[[SparkSession], Result]) -> Result:
    """`work(start())`, and the session stopped whatever happens. Raises what the two raise.

    KeyboardInterrupt: the session is stopped, its jobs and tasks with it, then it is raised. A start that is under way is waited for (a
    JVM that is left alone while it starts leaves files behind); a second one ends the waiting.
    """
    run = _Run(start, work)
    thread = threading.Thread(target=run.run, name="spark", daemon=True)
    thread.start()
    try:
        run.ended.wait()
    except KeyboardInterrupt:
        run.interrupt()
        raise
    return run.result()


class _Run(Generic[Result]):
    def __init__(self, start: Callable[[], SparkSession], work: Callable[[SparkSession], Result]) -> None:
        self.start = start
        self.work = work
        self.started = threading.Event()
        self.ended = threading.Event()
        self.interrupted = False
        self.lock = threading.Lock()
        self.spark: SparkSession | None = None
        self.answer: list[Result] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            try:
                self.spark = spark = self.start()
            finally:
                self.started.set()
            try:
                if not self.interrupted:
                    self.answer.append(self.work(spark))
            finally:
                self._stop()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self.failure = error
        finally:
            self.ended.set()

    def interrupt(self) -> None:
        """From the waiting thread: have the session stopped, by a thread again; what its work says of that is nobody's concern."""
        self.interrupted = True
        stopped = threading.Event()

        def stop() -> None:
            self.started.wait()
            try:
                self._stop()
            finally:
                stopped.set()

        threading.Thread(target=stop, name="spark-stop", daemon=True).start()
        stopped.wait()
        self.ended.wait(_LAST_WORDS_S)

    def _stop(self) -> None:
        with self.lock:
            spark, self.spark = self.spark, None
        if spark is not None:
            spark.stop()

    def result(self) -> Result:
        if self.failure is not None:
            raise self.failure
        return self.answer[0]
