"""The share consumer for programs with threads. A background thread drives the network, and keeps the membership of the group.

Source: Kafka's KafkaShareConsumer, ShareConsumerImpl, ConsumerNetworkThread, WakeupTrigger. One thread uses it at a time; only `wakeup` may
be called by any other.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kops.client.consumer.errors import WakeupError
from kops.client.errors import KafkaTimeoutError
from kops.client.faces.driving import client_text, shielded
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, BlockingTelemetryCalls
from kops.client.faces.waking import WakePipe, closed_on_error, refuse_in_forks, start_thread
from kops.client.settings import check_timeout, read_config
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.faces.driving import CLOSE_S, Driver, OnAcknowledged
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from kops.client.errors import KafkaError
    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName
    from kops.client.share.core.records import ShareRecord


class ShareConsumer(BlockingTelemetryCalls):
    """Reads topics in a share group. Settings are Kafka's: `ShareConsumer({"bootstrap.servers": "host:9092"}, group_id="workers")`.

    A `with` block closes it at the end.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._driver = Driver(read_config(config, settings), self._lock)
        self._core = self._driver.core
        self._user: int | None = None  # the thread that uses it
        self._is_woken = False
        self._is_stopping = False
        with closed_on_error(self._driver.network):
            self._wakes = WakePipe(self._driver.network)
            self._thread = start_thread(self._run, self._driver.client_id, self._wakes)
        refuse_in_forks(self)

    def __repr__(self) -> str:
        return client_text("kops.ShareConsumer", self._driver.network, is_closed=self._driver.is_closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Let one thread use it at a time."""
        self._driver.check_usable()
        mine = threading.get_ident()
        with self._lock:
            outer = self._user
            if outer is not None and outer != mine:
                raise UsageError("a share consumer can't be used by two threads at the same time; only wakeup may be called by any thread")
            self._user = mine
        try:
            yield
        finally:
            self._user = outer

    # subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. The next poll joins the group. No topics are the same as `unsubscribe`."""
        found = [topics] if isinstance(topics, str) else list(topics)
        if not found:
            self.unsubscribe()
            return
        with self._used(), self._lock:
            self._core.subscribe(found)
            self._wakes.wake()

    def unsubscribe(self) -> None:
        """Leave the group. Raises KafkaTimeoutError after `default.api.timeout.ms`."""
        with self._used(), self._lock:
            self._core.unsubscribe()
            self._wait(lambda: self._core.has_left, self._driver.now_ms() + self._driver.options.api_timeout_ms, "the group was not left")

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        with self._used():
            return set(self._core.topics)

    # records

    def poll(self, timeout: float) -> list[ShareRecord]:
        """Return records, or wait up to `timeout` seconds for some. The records are locked for this consumer for a while.

        With share.acknowledgement.mode=implicit, this first accepts all records of the last poll. With explicit, all of them must be
        acknowledged before. Raises RecordDeserializationError for a record that can't be deserialized (it is released), other KafkaErrors,
        and WakeupError.
        """
        check_timeout(timeout, may_be_none=False)
        driver, core = self._driver, self._core
        records: list[ShareRecord] = []
        with self._used():
            deadline_ms = driver.now_ms() + timeout * 1000
            try:
                with self._lock, driver.polling():
                    core.begin_poll()
                    while True:
                        self._check_woken()
                        records = core.collect(driver.now_ms())
                        self._wakes.wake()
                        if records or driver.now_ms() >= deadline_ms:
                            break
                        self._changed.wait_for(lambda: core.has_news or self._is_woken, driver.step_ms(deadline_ms) / 1000)
            finally:
                driver.tell()
        return records

    def wakeup(self) -> None:
        """Let the `poll` or `commit_sync` that waits, or the next one, raise WakeupError. Any thread may call this."""
        with self._lock:
            self._is_woken = True
            self._changed.notify_all()

    def _check_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("the share consumer was woken up")

    # acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll. It is sent with the next `poll` or commit. Raises UsageError."""
        with self._used():
            self._driver.acknowledge(record, kind)

    def acknowledge_failed(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record for which the last poll raised an error, differently from what that error says. Raises UsageError."""
        with self._used(), self._lock:
            self._core.acknowledge(topic, partition, offset, AcknowledgeType(kind), is_record=False)

    def commit_sync(self, timeout: float | None = None) -> dict[TopicIdPartition, KafkaError | None]:
        """Send the acknowledgements, and wait for the outcome of each partition: None, or its error.

        Raises KafkaTimeoutError after `timeout` seconds (`default.api.timeout.ms`), and WakeupError.
        """
        driver, core = self._driver, self._core
        with self._used():
            now_ms = driver.now_ms()
            deadline_ms = now_ms + (driver.options.api_timeout_ms if timeout is None else timeout * 1000)
            try:
                with self._lock:
                    commit = core.commit_sync(deadline_ms, now_ms)
                    if commit is None:
                        return {}
                    self._wait(lambda: commit.is_done or self._is_woken, deadline_ms, "the acknowledgements were not answered")
                    if commit.outcome is None:
                        self._check_woken()
                    assert commit.outcome is not None
                    return commit.outcome
            finally:
                driver.tell()

    def commit_async(self) -> None:
        """Send the acknowledgements. Their outcomes go to the callback, in a later call of a method."""
        with self._used():
            with self._lock:
                self._core.commit_async(self._driver.now_ms())
                self._wakes.wake()
            self._driver.tell()

    def set_acknowledgement_commit_callback(self, callback: OnAcknowledged | None) -> None:
        """Call `callback(partition, offsets, error)` for acknowledgements with an outcome, in `poll`, commits and `close`."""
        with self._used():
            self._driver.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long the records of the last poll are locked, if it is known."""
        with self._used(), self._lock:
            return self._core.lock_timeout_ms

    def _find_pusher(self) -> Pusher | None:
        return self._driver.pusher

    def _await_pusher(self, is_known: Callable[[], bool], wait: Callable[[float], object], timeout: float) -> None:
        with self._used(), self._lock:
            self._wakes.wake()
        wait(timeout)

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._driver.all_metrics.values(self._driver.now_ms())

    # the end

    def close(self, timeout: float = CLOSE_S) -> None:
        """Send acknowledgements, release the other records, leave the group, and release all resources, within `timeout` seconds.

        The records of the last poll that are not acknowledged are released, with share.acknowledgement.mode=implicit, too.
        """
        driver, core = self._driver, self._core
        if driver.is_closed:
            return
        driver.check_usable()
        deadline_ms = driver.close_deadline_ms(timeout)
        try:
            with self._used(), self._lock:
                driver.pusher.begin_to_end()
                core.begin_close(deadline_ms, driver.now_ms())
                self._pause(lambda: core.has_closed_sessions, deadline_ms)
                core.leave_at_close()
                self._pause(lambda: core.has_left, deadline_ms)
            driver.tell()
            error = core.take_last_error()
        finally:
            driver.is_closed = True
            with self._lock:
                self._is_stopping = True
                self._wakes.wake()
            self._thread.join()
        if error is not None:
            raise error

    def _wait(self, is_over: Callable[[], bool], deadline_ms: float, what: str) -> None:
        if not self._pause(is_over, deadline_ms):
            raise KafkaTimeoutError(f"{what} in time")

    def _pause(self, is_over: Callable[[], bool], deadline_ms: float) -> bool:
        """Wait for a condition while holding the lock. First wakes the thread, which has to do the work."""
        self._wakes.wake()
        return self._changed.wait_for(is_over, max(deadline_ms - self._driver.now_ms(), 0) / 1000)

    # the thread

    def _run(self) -> None:
        driver = self._driver
        try:
            while not self._is_stopping:
                if shielded(self._turn, what=f"a turn of {driver.client_id}") is None:
                    time.sleep(driver.options.retry_backoff_ms / 1000)  # a turn that failed fails again: no loop without a pause
            with self._lock:
                last = self._core.last_words()
            if last is not None:
                driver.send(last)
                driver.network.poll(0)
            driver.pusher.finish(LAST_PUSH_MS)
        finally:
            driver.network.close()
            with self._lock:
                self._wakes.close()
                self._changed.notify_all()
            driver.close_helpers()

    def _turn(self) -> bool:
        wait_ms = self._driver.turn()
        self._driver.network.poll(wait_ms)
        with self._lock:
            self._changed.notify_all()
        return True
