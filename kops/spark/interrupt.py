"""A Spark session from its start to its end, which Ctrl-C can interrupt without tracebacks of Spark or py4j.

pyspark's own signal handler calls the JVM while another answer may be being read, and later calls find the socket closed. So the session is
made and used in a thread of its own, where pyspark installs no handler. The caller's thread, which gets the signal, only waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_AHEAD = 8
_LOOK_S = 0.05  # how often a side that waits looks whether the other one has ended
_LAST_WORDS_S = 5.0  # time for the work to notice that its session is gone


def in_session(start: Callable[[], SparkSession], work: Callable[[SparkSession], Result]) -> Result:
    """Return `work(start())` and stop the session in any case. Raises what the two raise.

    On KeyboardInterrupt the session is stopped with its jobs and tasks, and then the exception is raised. A start that is under way is
    waited for, because an abandoned JVM would leave files behind. A second interrupt ends the waiting.
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


def pieces_in_session(start: Callable[[], SparkSession], work: Callable[[SparkSession], Iterable[Result]]) -> Iterator[Result]:
    """Yield what `work(start())` yields, and stop the session in any case. Raises what the two raise.

    The work is some pieces ahead of the caller at most. If the caller is interrupted, or closes the generator, the session is stopped with
    its jobs and tasks.
    """
    ready: queue.Queue[list[Result]] = queue.Queue(_AHEAD)

    def hand_over(spark: SparkSession) -> None:
        for piece in work(spark):
            while not run.interrupted:
                try:
                    ready.put([piece], timeout=_LOOK_S)
                    break
                except queue.Full:
                    continue
            if run.interrupted:
                return

    run = _Run(start, hand_over)
    threading.Thread(target=run.run, name="spark", daemon=True).start()
    try:
        while not run.ended.is_set() or not ready.empty():
            try:
                yield ready.get(timeout=_LOOK_S)[0]
            except queue.Empty:
                continue
    except (KeyboardInterrupt, GeneratorExit):
        run.interrupt()
        raise
    run.result()


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
        """Called in the waiting thread: stop the session, in another thread. Errors of the interrupted work are ignored."""
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
