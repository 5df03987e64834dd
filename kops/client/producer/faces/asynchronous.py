"""The producer for asyncio. It has no thread: the event loop watches the producer's connections.

Source: Kafka's KafkaProducer and Sender. The loop watches one descriptor, that of the connections' selector. As in the blocking producer,
resolving the name of a broker blocks.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from kops.client.errors import KafkaError, ProducerClosedError
from kops.client.faces.driving import client_text, shielded
from kops.client.faces.telemetry_calls import AsyncTelemetryCalls
from kops.client.faces.waking import Turns
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.batches import RecordMetadata
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
from kops.client.producer.faces.transacting import can_be_aborted, log_abort, read_group, read_offsets, transactions_of
from kops.client.producer.serializers import BYTES
from kops.client.settings import check_timeout, read_config
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping
    from types import TracebackType
    from typing import Self

    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName
    from kops.client.producer.core.handlers import GroupMember
    from kops.client.producer.core.states import Pending
    from kops.client.producer.core.transactions import Transactions
    from kops.client.producer.faces.transacting import Offsets

_LONGEST_WAIT_MS = 5000.0


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class RecordDelivery(Delivery):
    """The outcome of a record. Awaiting it returns the record's place or raises its error."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add(lambda _: _release(waiter))
            yield from waiter
        place: RecordMetadata = self.metadata()
        return place

    def add_done_callback(self, callback: Callable[[RecordDelivery], object]) -> None:
        """Call back with this delivery when it is done, or at once if it already is."""
        if self.done():
            callback(self)
        else:
            self.add(callback)


class Producer(AsyncTelemetryCalls):
    """Sends records to topics: `async with kops.aio.Producer({"bootstrap.servers": "host:9092"}) as producer`.

    A `with` block closes it at the end, which waits for every record. It belongs to the event loop in which it is first used.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._driver = Driver(read_config(config, settings), nullcontext())
        self._core = self._driver.core
        self._now_ms = self._driver.network.now_ms
        is_bytes = self._driver.serialize_key is BYTES and self._driver.serialize_value is BYTES
        self._is_plain = is_bytes and not self._driver.interceptors  # then most records take a shorter way
        self._turns = Turns(self._driver.network, self._turn, "producer")
        self._has_ended = False
        self._sends_at_once = self._driver.options.linger_ms == 0
        self._has_calls = False  # whether a poll has something to call back
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return client_text("kops.aio.Producer", self._driver.network, is_closed=self._core.is_closing)

    async def __aenter__(self) -> Self:
        self._turns.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close(None if kind is None else 0)

    # records in

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordDelivery:
        """Add a record to a batch, and return its delivery. Await that to get the place of the record.

        This waits only for unknown topics and for memory, for at most `max.block.ms`. `on_delivery(metadata, error)` is called once.
        `timestamp` is in ms since the epoch. Raises SerializationError, UsageError and ProducerClosedError. All other errors are in the
        delivery.
        """
        driver = self._driver
        self._turns.start()
        delivery = RecordDelivery()
        is_plain = self._is_plain and (type(value) is bytes or value is None) and (key is None or type(key) is bytes)
        if is_plain and type(topic) is str and not headers and partition is None and timestamp is None and on_delivery is None:
            stamp = now_ms()
            wakes = self._core.advance_quickly(topic, stamp, key, value, delivery)
            if wakes is None:
                wakes = self._core.advance_at_once(topic, stamp, key, value, delivery, self._now_ms())
            if wakes is not None:
                if wakes:
                    self._turns.soon()
                return delivery
        frozen = freeze_headers(headers) if headers else ()
        self._core.check_record()
        if driver.interceptors:
            record = driver.intercept(ProducerRecord(topic, value, key, frozen, partition, timestamp))
            topic, value, key, frozen, partition, timestamp = record
        if on_delivery is not None or driver.interceptors:
            observer = driver.observer(on_delivery)
            assert observer is not None
            delivery.add(observer)
        try:
            check_place(topic, partition, timestamp)
            now = self._now_ms()
            deadline_ms = now + driver.options.max_block_ms
            if topic not in self._core.metadata.cluster.partition_counts:
                await self._know(topic, partition, deadline_ms)
                now = self._now_ms()
            stamp = now_ms() if timestamp is None else timestamp
            key_data, value_data = driver.serialize(topic, frozen, key, value)
            entry = Entry(topic, key_data, value_data, frozen, partition, stamp, delivery, deadline_ms)
            step = self._core.advance(entry, now)
            if step is Step.METADATA or step is Step.MEMORY:
                step = await self._wait_for(entry, step)
            if step is Step.WAKES:
                self._turns.soon()
        except KafkaError as error:
            if not belongs_to_record(error):
                driver.acknowledged(None, error)
                raise
            self._core.not_sent(error)
            delivery.fail(error)
            call_back(delivery)
        except BaseException as error:
            driver.acknowledged(None, error)
            raise
        return delivery

    async def send_and_wait(self, topic: str, value: Any = None, **more: Any) -> RecordMetadata:
        """Send a record, and wait for its place. Raises its error. The arguments are those of `send`."""
        delivery = await self.send(topic, value, **more)
        if self._sends_at_once and not delivery.done() and self._core.sender.is_resting:
            self._turns.now()
        return await delivery

    async def _wait_for(self, entry: Entry, step: Step) -> Step:
        """Wait until a record is appended."""
        while step is Step.METADATA or step is Step.MEMORY:
            if step is Step.METADATA:
                await self._know(entry.topic, entry.partition, entry.deadline_ms)
            else:
                await self._wait_for_memory(entry)
            step = self._core.advance(entry, self._now_ms())
        return step

    async def _wait_for_memory(self, entry: Entry) -> None:
        core, memory = self._core, entry.memory
        assert memory is not None
        started_ns = time.perf_counter_ns()
        try:
            await self._pause(lambda: memory.is_granted or core.is_closing, entry.deadline_ms)
        except BaseException:  # cancelled: the record has no outcome, and others need its memory
            core.accumulator.pool.cancel(memory)
            raise
        self._driver.metrics.waited_for_memory(time.perf_counter_ns() - started_ns, self._now_ms(), was_in_vain=not memory.is_granted)
        if not memory.is_granted:
            error = core.exhausted(entry)
            if not core.is_closing:
                raise error
            entry.memory = None

    async def _know(self, topic: str, partition: int | None, deadline_ms: float) -> int:
        with self._driver.timed("metadata-wait"):
            while True:
                count = self._core.know(topic, partition, self._now_ms())
                if count is not None:
                    return count
                version = self._core.metadata.version
                await self._pause(partial(self._core.has_news, version), deadline_ms)
                if self._now_ms() >= deadline_ms:
                    raise self._core.late(topic, partition, self._driver.reason())

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic. Waits for at most `max.block.ms`, then raises KafkaTimeoutError.

        A closed producer returns what it knows, or raises ProducerClosedError.
        """
        check_place(topic, None, None)
        if not self._core.is_closing:
            self._turns.start()
        return await self._know(topic, None, self._now_ms() + self._driver.options.max_block_ms)

    def _find_pusher(self) -> Pusher | None:
        return self._driver.pusher

    def _begin_turns(self) -> None:
        self._check_open()
        self._turns.start()
        self._turns.soon()

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._driver.all_metrics.values(self._now_ms())

    # transactions

    async def init_transactions(self) -> None:
        """Get the producer id. This fences earlier producers with the transactional id, and ends their transactions.

        Call it once, before the first transaction. Like the other calls of transactions it waits for at most `max.block.ms` and raises
        KafkaTimeoutError then; the same call may be repeated. Raises KafkaError, and UsageError if the state does not allow the call.
        """
        with self._driver.timed("txn-init"):
            await self._transact("init_transactions", lambda transactions: transactions.init())

    async def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent until it is committed or aborted belong to it."""
        transactions = transactions_of(self._core, "begin_transaction")
        self._turns.start()
        self._check_open()
        with self._driver.timed("txn-begin"):
            transactions.begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMember | str) -> None:
        """Commit a consumer group's offsets with the transaction: by topic and partition, the offset of the next record to read.

        `group` is a consumer's `group_metadata()`, or the name of a group without members.
        """
        read, member = read_offsets(offsets), read_group(group)
        if read:
            with self._driver.timed("txn-send-offsets"):
                await self._transact("send_offsets_to_transaction", lambda transactions: transactions.send_offsets(read, member))
        else:
            self._check_open()

    async def commit_transaction(self) -> None:
        """Wait for all records of the transaction, and commit it. If one was not written, this raises its error: abort then."""
        with self._driver.timed("txn-commit"):
            await self._transact("commit_transaction", lambda transactions: transactions.commit())

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records that were not sent yet fail with TransactionAbortedError."""
        with self._driver.timed("txn-abort"):
            await self._transact("abort_transaction", lambda transactions: transactions.abort())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Return a context that is a transaction: committed at its end, aborted after an exception."""
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            await self._abort()
            raise
        try:
            await self.commit_transaction()
        except KafkaError as error:
            if can_be_aborted(error):
                await self._abort()
            raise

    async def _abort(self) -> None:
        transactions = transactions_of(self._core, "abort_transaction")
        if transactions.is_ongoing and not transactions.is_completing:
            try:
                await self.abort_transaction()
            except (KafkaError, UsageError) as error:
                log_abort(error)

    async def _transact(self, call: str, start: Callable[[Transactions], Pending]) -> None:
        """Start what a call needs, and wait for its result. After a cancellation the same call may be repeated."""
        transactions = transactions_of(self._core, call)
        self._turns.start()
        self._check_open()
        result = start(transactions)
        max_block_ms = self._driver.options.max_block_ms
        await self._pause(lambda: result.is_done or self._core.has_ended, self._now_ms() + max_block_ms)
        if result.is_done:
            transactions.see(result)
            return
        self._check_open()
        raise transactions.late(result, max_block_ms, self._driver.reason())

    def _check_open(self) -> None:
        if self._core.is_closing:
            raise ProducerClosedError("the producer is closed")

    # the end

    async def flush(self) -> None:
        """Send all waiting records, and wait for the outcome of every earlier record."""
        self._turns.start()
        self._core.begin_flush()
        try:
            batches = self._core.incomplete()
            with self._driver.timed("flush"):
                await self._pause(lambda: all(batch.is_over for batch in batches), float("inf"))
        finally:
            self._core.end_flush()

    async def close(self, timeout: float | None = None) -> None:
        """Send all waiting records, wait for them, and release all resources.

        After `timeout` seconds, records that are not acknowledged fail with ProducerClosedError.
        """
        check_timeout(timeout)
        if self._has_ended:
            return
        self._turns.start()
        self._core.close()
        self._driver.pusher.begin_to_end()
        deadline_ms = float("inf") if timeout is None else self._now_ms() + timeout * 1000
        try:
            await self._pause(lambda: self._has_ended, deadline_ms)
        finally:
            if not self._has_ended:
                self._core.force_close()
                self._turn()

    # the loop

    def _turn(self) -> None:
        """Receive, and send in the next turn: then the tasks that got an outcome have had their turn, and one request has their records."""
        driver = self._driver
        is_receiving = self._turns.may_have_input or self._has_calls
        exchange = self._receive if is_receiving else self._send_all
        wait_ms: float | None = shielded(exchange, what=f"a turn of {driver.client_id}")
        for batch in driver.take_finished():
            batch.is_told = True
        if self._core.has_ended:
            self._finish()
        else:
            self._turns.at(driver.options.retry_backoff_ms if wait_ms is None else wait_ms)
        for waiter in self._waiters:
            _release(waiter)

    def _receive(self) -> float:
        self._has_calls = False
        self._driver.network.poll(0)
        return 0

    def _send_all(self) -> float:
        """Send what is due. Returns the time until the next turn at the latest."""
        network = self._driver.network
        wait_ms = self._driver.turn()
        self._has_calls = network.push()
        if self._has_calls:
            return 0
        return min(wait_ms, network.next_event_ms() - self._now_ms(), _LONGEST_WAIT_MS)

    def _finish(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._turns.end()
            self._driver.pusher.finish()
            self._driver.network.close()
            self._driver.close_helpers()

    async def _pause(self, is_over: Callable[[], bool], deadline_ms: float) -> None:
        """Wait for a condition, which is checked after each turn."""
        loop = asyncio.get_running_loop()
        self._turns.soon()
        while not is_over():
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=None if left_ms == float("inf") else left_ms / 1000)
            finally:
                self._waiters.remove(waiter)
