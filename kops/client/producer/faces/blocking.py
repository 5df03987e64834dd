"""The producer for programs with threads. `send` returns a future, and a background thread sends.

Source: Kafka's KafkaProducer and Sender (its thread). Any number of threads may send at the same time. A thread that sends one record at
a time, without a linger time, writes the request and reads the answer itself (see `outcomes`).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from kops.client.errors import KafkaError, ProducerClosedError
from kops.client.faces.driving import client_text, shielded
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, BlockingTelemetryCalls
from kops.client.faces.waking import WakePipe, closed_on_error, refuse_in_forks, start_thread, without_interrupt
from kops.client.producer.core.producer import Entry, Step, belongs_to_record
from kops.client.producer.faces.driving import (
    Driver,
    Headers,
    OnDelivery,
    ProducerRecord,
    call_back,
    check_place,
    freeze_headers,
    now_ms,
)
from kops.client.producer.faces.outcomes import Outcomes, Receiver, RecordFuture
from kops.client.producer.faces.transacting import can_be_aborted, log_abort, read_group, read_offsets, transactions_of
from kops.client.producer.serializers import BYTES
from kops.client.settings import check_timeout, read_config
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName
    from kops.client.producer.core.batches import ProducerBatch
    from kops.client.producer.core.handlers import GroupMember
    from kops.client.producer.core.states import Pending
    from kops.client.producer.core.transactions import Transactions
    from kops.client.producer.faces.transacting import Offsets
    from kops.records.log_offsets import TopicPartition

_LONGEST_WAIT_MS = 5000.0


class Producer(BlockingTelemetryCalls):
    """Sends records to topics. Settings are Kafka's: `Producer({"bootstrap.servers": "host:9092"}, linger_ms=20)`.

    A `with` block closes it at the end, which waits for every record. All methods may be called by any thread.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._outcomes = Outcomes(self._lock)
        self._driver = Driver(read_config(config, settings), self._lock)
        self._core = self._driver.core
        self._now_ms = self._driver.network.now_ms
        self._max_block_ms = self._driver.options.max_block_ms
        is_bytes = self._driver.serialize_key is BYTES and self._driver.serialize_value is BYTES
        self._is_plain = is_bytes and not self._driver.interceptors  # then most records take a shorter way
        self._is_asleep = False
        self._is_plain_sender = self._core.transactions is None
        self._may_send = self._driver.options.linger_ms == 0 and self._is_plain_sender
        self._busy = threading.Lock()
        self._driver.network.busy = self._busy
        self._receiver = Receiver(self._driver, self._busy, self._settle)
        if self._is_plain_sender:
            self._outcomes.receiver = self._receiver
        with closed_on_error(self._driver.network):
            self._wakes = WakePipe(self._driver.network)
            self._thread = self._outcomes.caller = start_thread(self._run, self._driver.client_id, self._wakes)
        refuse_in_forks(self)

    def __repr__(self) -> str:
        return client_text("kops.Producer", self._driver.network, is_closed=self._core.is_closing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(None if kind is None else 0)

    # records in

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Send a record, and return a future for its place.

        This waits only for unknown topics and for memory, for at most `max.block.ms`. `on_delivery(metadata, error)` is called once, in the
        producer's thread. `timestamp` is in ms since the epoch. Raises SerializationError, UsageError and ProducerClosedError. All other
        errors are in the future.
        """
        driver = self._driver
        future = RecordFuture(self._outcomes)
        is_plain = self._is_plain and (type(value) is bytes or value is None) and (key is None or type(key) is bytes)
        if is_plain and type(topic) is str and not headers and partition is None and timestamp is None and on_delivery is None:
            stamp = time_ns() // 1_000_000
            sends_here = False
            with self._lock:
                wakes = self._core.advance_quickly(topic, stamp, key, value, future)
                if wakes is None:
                    wakes = self._core.advance_at_once(topic, stamp, key, value, future, self._now_ms())
                if wakes and self._is_asleep:
                    sends_here = self._rouse()
            if wakes is not None:
                if sends_here:
                    without_interrupt(partial(self._send_here, future.place))
                return future
        frozen = freeze_headers(headers) if headers else ()
        if self._core.transactions is not None:
            with self._lock:
                self._core.check_record()
        if driver.interceptors:
            record = driver.intercept(ProducerRecord(topic, value, key, frozen, partition, timestamp))
            topic, value, key, frozen, partition, timestamp = record
        if on_delivery is not None or driver.interceptors:
            observer = driver.observer(on_delivery)
            assert observer is not None
            future.add(observer)
        try:
            self._send(future, topic, value, key, frozen, partition, timestamp)
        except KafkaError as error:
            if not belongs_to_record(error):
                driver.acknowledged(None, error)
                raise
            with self._lock:
                self._core.not_sent(error)
            future.fail(error)
            call_back(future)
        except BaseException as error:
            driver.acknowledged(None, error)
            raise
        return future

    def _send(
        self,
        future: RecordFuture,
        topic: str,
        value: Any,
        key: Any,
        headers: tuple[tuple[str | bytes, bytes | None], ...],
        partition: int | None,
        timestamp: int | None,
    ) -> None:
        check_place(topic, partition, timestamp)
        now = self._now_ms()
        deadline_ms = now + self._max_block_ms
        if topic not in self._core.metadata.cluster.partition_counts:
            self._know(topic, partition, deadline_ms)
            now = self._now_ms()
        stamp = now_ms() if timestamp is None else timestamp
        key_data, value_data = self._driver.serialize(topic, headers, key, value)
        entry = Entry(topic, key_data, value_data, headers, partition, stamp, future, deadline_ms)
        with self._lock:
            step = self._core.advance(entry, now)
            while step is Step.METADATA or step is Step.MEMORY:
                self._wait_for(entry, step)
                step = self._core.advance(entry, self._now_ms())
            sends_here = step is Step.WAKES and self._is_asleep and self._rouse()
        if sends_here:
            without_interrupt(partial(self._send_here, future.place))

    def _rouse(self) -> bool:
        """Let the sender's thread look at once, or return True if this thread should send. Call this with the lock held."""
        if self._may_send and self._core.sender.is_resting:
            return True
        self._is_asleep = False
        self._wakes.wake()
        return False

    def _send_here(self, place: TopicPartition) -> None:
        """Send the only batch, that of `place`, in this thread, because a change to the sender's thread takes longer.

        If that one does not wait just now, or will have something to do, it is woken.
        """
        if self._busy.acquire(blocking=False):
            try:
                if shielded(self._try_to_send, place, what=f"a turn of {self._driver.client_id}"):
                    return
            finally:
                self._busy.release()
        with self._lock:
            if self._is_asleep:
                self._is_asleep = False
                self._wakes.wake()

    def _try_to_send(self, place: TopicPartition) -> bool:
        """Send if that needs no new connection. Returns False if the sender's thread has to look."""
        core, network = self._core, self._driver.network
        leader = core.metadata.leader(place)
        if leader is None or network.versions(leader) is None or core.is_closing:  # to connect may take long
            return False
        wait_ms = self._driver.turn()
        if network.push() or core.has_finished:
            return False
        return min(self._now_ms() + wait_ms, network.next_event_ms()) >= network.waits_until_ms

    def _know(self, topic: str, partition: int | None, deadline_ms: float) -> int:
        """Wait for the metadata of a topic, before there is a record for it."""
        with self._driver.timed("metadata-wait"), self._lock:
            while True:
                count = self._core.know(topic, partition, self._now_ms())
                if count is not None:
                    return count
                version = self._core.metadata.version
                self._pause(partial(self._core.has_news, version), deadline_ms)
                if self._now_ms() >= deadline_ms:
                    raise self._core.late(topic, partition, self._driver.reason())

    def _wait_for(self, entry: Entry, step: Step) -> None:
        """Wait until a record can continue. Raises KafkaTimeoutError at the end of max.block.ms."""
        core = self._core
        memory = entry.memory
        if step is Step.METADATA:
            self._pause(partial(core.has_news, entry.version), entry.deadline_ms)
            if self._now_ms() >= entry.deadline_ms:
                raise core.late(entry.topic, entry.partition, self._driver.reason())
            return
        assert memory is not None
        started_ns = time.perf_counter_ns()
        try:
            self._pause(lambda: memory.is_granted or core.is_closing, entry.deadline_ms)
        except BaseException:  # Ctrl-C: the record has no outcome, and others need its memory
            core.accumulator.pool.cancel(memory)
            raise
        self._driver.metrics.waited_for_memory(time.perf_counter_ns() - started_ns, self._now_ms(), was_in_vain=not memory.is_granted)
        if not memory.is_granted:
            error = core.exhausted(entry)
            if not core.is_closing:
                raise error
            entry.memory = None

    def _pause(self, is_over: Callable[[], bool], deadline_ms: float) -> None:
        """Wait for a condition while holding the lock. First wakes the sender, which has to do the work."""
        self._wakes.wake()
        self._changed.wait_for(is_over, max(deadline_ms - self._now_ms(), 0) / 1000)

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic. Waits for at most `max.block.ms`, then raises KafkaTimeoutError.

        A closed producer returns what it knows, or raises ProducerClosedError.
        """
        check_place(topic, None, None)
        return self._know(topic, None, self._now_ms() + self._max_block_ms)

    def _find_pusher(self) -> Pusher | None:
        return self._driver.pusher

    def _await_pusher(self, is_known: Callable[[], bool], wait: Callable[[float], object], timeout: float) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("client_instance_id: not in a callback, because it would wait for itself")
        with self._lock:
            self._check_open()
            self._wakes.wake()
        wait(timeout)

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._driver.all_metrics.values(self._now_ms())

    # transactions

    def init_transactions(self) -> None:
        """Get the producer id. This fences earlier producers with the transactional id, and ends their transactions.

        Call it once, before the first transaction. Like the other calls of transactions it waits for at most `max.block.ms` and raises
        KafkaTimeoutError then; the same call may be repeated. Raises KafkaError, and UsageError if the state does not allow the call.
        """
        with self._driver.timed("txn-init"):
            self._transact("init_transactions", lambda transactions: transactions.init())

    def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent until it is committed or aborted belong to it."""
        transactions = transactions_of(self._core, "begin_transaction")
        with self._driver.timed("txn-begin"), self._lock:
            self._check_open()
            transactions.begin()

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMember | str) -> None:
        """Commit a consumer group's offsets with the transaction: by topic and partition, the offset of the next record to read.

        `group` is a consumer's `group_metadata()`, or the name of a group without members.
        """
        read, member = read_offsets(offsets), read_group(group)
        if read:
            with self._driver.timed("txn-send-offsets"):
                self._transact("send_offsets_to_transaction", lambda transactions: transactions.send_offsets(read, member))
        else:
            with self._lock:
                self._check_open()

    def commit_transaction(self) -> None:
        """Wait for all records of the transaction, and commit it. If one was not written, this raises its error: abort then."""
        with self._driver.timed("txn-commit"):
            self._transact("commit_transaction", lambda transactions: transactions.commit())

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that were not sent yet fail with TransactionAbortedError."""
        with self._driver.timed("txn-abort"):
            self._transact("abort_transaction", lambda transactions: transactions.abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context that is a transaction: committed at its end, aborted after an exception."""
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            self._abort()
            raise
        try:
            self.commit_transaction()
        except KafkaError as error:
            if can_be_aborted(error):
                self._abort()
            raise

    def _abort(self) -> None:
        transactions = transactions_of(self._core, "abort_transaction")
        if transactions.is_ongoing and not transactions.is_completing:
            try:
                self.abort_transaction()
            except (KafkaError, UsageError) as error:
                log_abort(error)

    def _transact(self, call: str, start: Callable[[Transactions], Pending]) -> None:
        """Start what a call needs, and wait for its result."""
        transactions = transactions_of(self._core, call)
        if threading.current_thread() is self._thread:
            raise UsageError(f"{call}: not in a callback, because it would wait for itself")
        with self._lock:
            self._check_open()
            result = start(transactions)
            self._pause(lambda: result.is_done or self._core.has_ended, self._now_ms() + self._max_block_ms)
            if result.is_done:
                transactions.see(result)
                return
            self._check_open()
            raise transactions.late(result, self._max_block_ms, self._driver.reason())

    def _check_open(self) -> None:
        if self._core.is_closing:
            raise ProducerClosedError("the producer is closed")

    # the end

    def flush(self, timeout: float | None = None) -> None:
        """Send all waiting records, and wait for the outcome of every earlier record. Raises TimeoutError after `timeout` seconds."""
        check_timeout(timeout)
        if threading.current_thread() is self._thread:
            raise UsageError("flush: not in a callback, because it would wait for itself")
        started = time.monotonic()
        with self._driver.timed("flush"):
            with self._lock:
                self._core.begin_flush()
                batches = self._core.incomplete()
                if len(batches) != 1 or not self._is_plain_sender:
                    self._wakes.wake()
            try:
                if len(batches) == 1 and self._is_plain_sender:
                    self._flush_here(batches[0], timeout)
                with self._lock:
                    left = None if timeout is None else max(started + timeout - time.monotonic(), 0)
                    if not self._changed.wait_for(lambda: all(batch.is_over for batch in batches), left):
                        raise TimeoutError("not all records are acknowledged yet")
            finally:
                with self._lock:
                    self._core.end_flush()

    def _flush_here(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Send the only batch and receive its answer in this thread, as for a single record, if the other thread just waits."""
        sends_here = False
        with self._lock:
            if not batch.is_in_flight:
                sends_here = self._is_asleep and self._core.sender.is_resting
                if not sends_here:
                    self._wakes.wake()
        if sends_here:
            without_interrupt(partial(self._send_here, batch.partition))
        if batch.is_in_flight:
            self._outcomes.receive(batch, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Send all waiting records, wait for them, and release all resources.

        After `timeout` seconds, records that are not acknowledged fail with ProducerClosedError. In a callback the time-out is always 0.
        """
        check_timeout(timeout)
        is_own = threading.current_thread() is self._thread
        with self._lock:
            self._core.close()
            self._driver.pusher.begin_to_end()
            self._changed.notify_all()
            self._wakes.wake()
        if not is_own and timeout != 0:
            self._thread.join(timeout)
        if self._thread.is_alive():
            with self._lock:
                if not self._core.has_ended or not is_own:
                    self._core.force_close()
                self._wakes.wake()
            if not is_own:
                self._thread.join()

    # the thread

    def _run(self) -> None:
        driver, core = self._driver, self._core
        self._busy.acquire()
        try:
            while not core.has_ended:
                if shielded(self._turn, what=f"a turn of {driver.client_id}") is None:
                    time.sleep(driver.options.retry_backoff_ms / 1000)  # a turn that failed fails again: no loop without a pause
            self._tell()
            driver.pusher.finish(0 if core.is_forced else LAST_PUSH_MS)
        finally:
            driver.network.close()
            self._busy.release()
            self._receiver.close()
            with self._lock:
                self._wakes.close()
                self._changed.notify_all()
            driver.close_helpers()

    def _turn(self) -> bool:
        driver = self._driver
        with self._lock:
            self._is_asleep = True
        core = self._core
        version, results = core.metadata.version, core.results
        wait_ms = driver.turn()
        # The program waits for outcomes that the turn found.
        may_wait = self._is_asleep and not core.has_finished and core.results == results
        driver.network.poll(min(wait_ms, _LONGEST_WAIT_MS) if may_wait else 0)
        self._tell()
        if core.metadata.version != version or core.results != results:
            with self._lock:
                self._changed.notify_all()
        return True

    def _tell(self) -> None:
        """Call the callbacks of finished batches, and wake the threads that wait for these or for their memory."""
        finished = self._driver.take_finished()
        if finished:
            with self._lock:
                self._end(finished)

    def _end(self, finished: list[ProducerBatch]) -> None:
        for batch in finished:
            batch.is_told = True
        self._outcomes.tell()
        self._changed.notify_all()

    def _settle(self) -> None:
        """Look at what a thread of the program has received. Callbacks, and all that may follow, are left to the other thread."""
        core = self._core
        with self._lock:
            finished = core.sender.finished
            is_plain = len(finished) == 1 and finished[0].error is None and not finished[0].records.watched
            if is_plain:
                self._end(core.take_finished())
            if self._is_asleep and not (is_plain and core.sender.is_idle and not core.is_closing):
                self._is_asleep = False
                self._wakes.wake()
