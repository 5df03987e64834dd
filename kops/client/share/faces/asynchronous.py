"""The share consumer for asyncio. It has no thread: the event loop watches its connections.

Source: Kafka's KafkaShareConsumer and ShareConsumerImpl. The loop watches one descriptor, that of the connections' selector. As in the
blocking one, resolving the name of a broker blocks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kops.client.consumer.errors import ConsumerClosedError
from kops.client.errors import KafkaTimeoutError
from kops.client.faces.driving import client_text, shielded
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, AsyncTelemetryCalls
from kops.client.faces.waking import Turns
from kops.client.settings import check_timeout, read_config
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.faces.driving import CLOSE_S, Driver, OnAcknowledged
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from kops.client.errors import KafkaError
    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName
    from kops.client.share.core.records import ShareRecord


class ShareConsumer(AsyncTelemetryCalls):
    """Reads topics in a share group: `async with kops.aio.ShareConsumer(bootstrap_servers=servers, group_id="workers") as consumer`.

    It belongs to the event loop in which it is first used. The loop keeps the membership of the group while the program does other things.
    A task at a time uses it. `async for record in consumer` polls for ever.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._driver = Driver(read_config(config, settings))
        self._core = self._driver.core
        self._turns = Turns(self._driver.network, self._turn, "share consumer", skips_parts=True)
        self._is_polling = self._is_closing = False
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return client_text("kops.aio.ShareConsumer", self._driver.network, is_closed=self._driver.is_closed)

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # subscription

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. The next poll joins the group. No topics are the same as `unsubscribe`."""
        found = [topics] if isinstance(topics, str) else list(topics)
        if not found:
            await self.unsubscribe()
            return
        self._start()
        self._core.subscribe(found)
        self._turns.soon()

    async def unsubscribe(self) -> None:
        """Leave the group. Raises KafkaTimeoutError after `default.api.timeout.ms`."""
        self._start()
        self._core.unsubscribe()
        deadline_ms = self._driver.now_ms() + self._driver.options.api_timeout_ms
        if not await self._pause(lambda: self._core.has_left, deadline_ms):
            raise KafkaTimeoutError("the group was not left in time")

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        self._driver.check_usable()
        return set(self._core.topics)

    # records

    async def poll(self, timeout: float) -> list[ShareRecord]:
        """Return records, or wait up to `timeout` seconds for some. The records are locked for this consumer for a while.

        With share.acknowledgement.mode=implicit, this first accepts all records of the last poll. With explicit, all of them must be
        acknowledged before. Raises RecordDeserializationError for a record that can't be deserialized (it is released), and other
        KafkaErrors. If it is cancelled, no record is lost: the next poll returns it. A poll that waits while another task closes the
        consumer raises UsageError.
        """
        check_timeout(timeout, may_be_none=False)
        driver, core = self._driver, self._core
        self._start()
        self._check_open()
        if self._is_polling:
            raise UsageError("poll: another task is polling")
        self._is_polling = True
        deadline_ms = driver.now_ms() + timeout * 1000
        try:
            with driver.polling():
                core.begin_poll()
                while True:
                    records = core.collect(driver.now_ms())
                    self._turns.soon()
                    if records or driver.now_ms() >= deadline_ms:
                        return records
                    await self._pause(lambda: core.has_news or self._is_closing, driver.now_ms() + driver.step_ms(deadline_ms))
                    self._check_open()
        finally:
            self._is_polling = False
            driver.tell()

    def __aiter__(self) -> AsyncIterator[ShareRecord]:
        return self._records()

    async def _records(self) -> AsyncIterator[ShareRecord]:
        while True:
            for record in await self.poll(3600):
                yield record

    # acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll. It is sent with the next `poll` or commit. Raises UsageError."""
        self._driver.check_usable()
        self._driver.acknowledge(record, kind)

    def acknowledge_failed(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record for which the last poll raised an error, differently from what that error says. Raises UsageError."""
        self._driver.check_usable()
        self._core.acknowledge(topic, partition, offset, AcknowledgeType(kind), is_record=False)

    async def commit_sync(self, timeout: float | None = None) -> dict[TopicIdPartition, KafkaError | None]:
        """Send the acknowledgements, and wait for the outcome of each partition: None, or its error.

        Raises KafkaTimeoutError after `timeout` seconds (`default.api.timeout.ms`).
        """
        driver = self._driver
        self._start()
        now_ms = driver.now_ms()
        deadline_ms = now_ms + (driver.options.api_timeout_ms if timeout is None else timeout * 1000)
        commit = self._core.commit_sync(deadline_ms, now_ms)
        if commit is None:
            driver.tell()
            return {}
        try:
            await self._pause(lambda: commit.is_done, deadline_ms)
        finally:
            driver.tell()
        if commit.outcome is None:
            raise KafkaTimeoutError("the acknowledgements were not answered in time")
        return commit.outcome

    def commit_async(self) -> None:
        """Send the acknowledgements. Their outcomes go to the callback, in a later call of a method."""
        self._start()
        self._core.commit_async(self._driver.now_ms())
        self._turns.soon()
        self._driver.tell()

    def set_acknowledgement_commit_callback(self, callback: OnAcknowledged | None) -> None:
        """Call `callback(partition, offsets, error)` for acknowledgements with an outcome, in `poll`, commits and `close`."""
        self._driver.check_usable()
        self._driver.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long the records of the last poll are locked, if it is known."""
        self._driver.check_usable()
        return self._core.lock_timeout_ms

    def _find_pusher(self) -> Pusher | None:
        return self._driver.pusher

    def _begin_turns(self) -> None:
        self._start()
        self._turns.soon()

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._driver.all_metrics.values(self._driver.now_ms())

    # the end

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Send acknowledgements, release the other records, leave the group, and release all resources, within `timeout` seconds.

        The records of the last poll that are not acknowledged are released, with share.acknowledgement.mode=implicit, too. A poll of
        another task ends with ConsumerClosedError. If another task closes the consumer already, this waits for it.
        """
        driver, core = self._driver, self._core
        if driver.is_closed:
            return
        driver.check_usable()
        deadline_ms = driver.close_deadline_ms(timeout)
        self._start()
        if self._is_closing:
            await self._pause(lambda: driver.is_closed, deadline_ms)
            return
        self._is_closing = True
        try:
            self._release_all()
            await self._pause(lambda: not self._is_polling, deadline_ms)
            driver.pusher.begin_to_end()
            core.begin_close(deadline_ms, driver.now_ms())
            await self._pause(lambda: core.has_closed_sessions, deadline_ms)
            core.leave_at_close()
            await self._pause(lambda: core.has_left, deadline_ms)
            await self._pause(lambda: not driver.pusher.is_behind(), min(deadline_ms, driver.now_ms() + LAST_PUSH_MS))
            driver.tell()
        finally:
            driver.is_closed = True
            self._finish()
            self._release_all()
        error = core.take_last_error()
        if error is not None:
            raise error

    # the loop

    def _start(self) -> None:
        self._driver.check_usable()
        self._turns.start()

    def _turn(self) -> None:
        wait_ms: float | None = shielded(self._exchange, what=f"a turn of {self._driver.client_id}")
        self._turns.at(self._driver.options.retry_backoff_ms if wait_ms is None else wait_ms)
        self._release_all()

    def _release_all(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _check_open(self) -> None:
        if self._is_closing:
            raise ConsumerClosedError("the share consumer is closed")

    def _exchange(self) -> float:
        """Receive and send. Returns the time until the next turn at the latest."""
        network = self._driver.network
        network.poll(0)
        wait_ms = self._driver.turn()
        network.poll(0)
        if self._driver.has_answers:
            return 0.0
        return min(wait_ms, network.next_event_ms() - self._driver.now_ms())

    def _finish(self) -> None:
        self._turns.end()
        last = self._core.last_words()
        if last is not None:
            self._driver.send(last)
            self._driver.network.poll(0)
        self._driver.pusher.finish()
        self._driver.network.close()
        self._driver.close_helpers()

    async def _pause(self, is_over: Callable[[], bool], deadline_ms: float) -> bool:
        """Wait for a condition, which is checked after each turn. Returns whether it is met."""
        loop = asyncio.get_running_loop()
        self._turns.soon()
        while not is_over():
            left_ms = deadline_ms - self._driver.now_ms()
            if left_ms <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=left_ms / 1000)
            finally:
                self._waiters.remove(waiter)
        return True
