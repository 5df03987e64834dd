"""Runs work in a Spark session, so that Ctrl-C interrupts it without tracebacks of Spark or py4j.

pyspark's own signal handler calls the JVM, possibly while another answer is being read, and later calls find the socket closed. So the
session is created and used in a thread of its own, where pyspark installs no handler. The caller's thread, which gets the signal, only
waits.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_AHEAD = 8
_LOOK_S = 0.05  # The interval at which a waiting side checks whether the other one has ended.
_LAST_WORDS_S = 5.0  # The time for the work to notice that its session is gone.


def in_session(start: Callable[[], SparkSession], work: Callable[[SparkSession], Result]) -> Result:
    """Return `work(start())` and stop the session in any case. Exceptions of both are raised here.

    On KeyboardInterrupt the session is stopped with its jobs and tasks, and then the exception is raised. If Spark is still starting, wait
    for it first, because an abandoned JVM would leave files behind. A second interrupt ends this wait.
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
    """Yield the items of `work(start())`, and stop the session in any case. Exceptions of both are raised here.

    The work is at most a few pieces ahead of the caller. If the caller is interrupted, or closes the generator, the session is stopped with
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
        """Stop the session, in another thread. Called in the waiting thread. Errors of the interrupted work are ignored."""
        self.interrupted = True
        stopped = threading.Event()

        def stop() -> None:
            from py4j.protocol import Py4JError

            self.started.wait()
            try:
                # A signal to the whole process group, like that of `timeout`, may have ended the JVM already.
                with suppress(Py4JError, OSError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
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
