"""The consumer for asyncio. It has no thread: the event loop watches the consumer's connections, and heartbeats go on between polls.

Source: Kafka's AsyncKafkaConsumer. The loop watches one descriptor, that of the connections' selector. As in the blocking consumer,
resolving the name of a broker blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from kops.client.consumer.core.consumer import as_times
from kops.client.consumer.errors import ConsumerClosedError, WakeupError
from kops.client.consumer.faces.common import ConsumerCalls, Handout
from kops.client.consumer.faces.driving import (
    Driver,
    Key,
    OnCommit,
    as_assigned,
    as_key,
    as_keys,
    as_listener_error,
    as_membership,
    as_offsets,
    as_time,
    as_topics,
    check_listener,
    listed,
)
from kops.client.consumer.groups.calls import GroupMembership
from kops.client.consumer.records import (
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    SubscriptionPattern,
)
from kops.client.errors import KafkaError
from kops.client.faces.driving import client_text
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, AsyncTelemetryCalls
from kops.client.faces.waking import Turns
from kops.client.offsets import EARLIEST, LATEST
from kops.client.settings import check_timeout, read_config
from kops.errors import UsageError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from kops.client.consumer.parts.requests import Outcome
    from kops.records.log_offsets import TopicPartition

_LONGEST_WAIT_MS: Final = 5000.0
_SHORTEST_WAIT_MS: Final = 1.0
_CLOSE_MS: Final = 30_000.0
_LEAVE_MS: Final = 5000.0


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Consumer(ConsumerCalls, AsyncTelemetryCalls):
    """Reads records: `async with kops.aio.Consumer({"bootstrap.servers": "host:9092"}, group_id="billing") as consumer`.

    Subscribe to topics or assign partitions, then await `poll` again and again, or iterate with `async for`. It belongs to the event loop
    in which it is first used. One task at a time may poll.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._driver = Driver(read_config(config, settings))
        self._core = self._driver.core
        self._network = self._driver.network
        self._now_ms = self._network.now_ms
        self._api_ms = float(self._driver.options.api_timeout_ms)
        self._lock = nullcontext()
        self._handout = Handout(self._core)
        self._turns = Turns(self._network, self._turn, "consumer", skips_parts=True)
        self._is_polling = False
        self._caller: asyncio.Task[Any] | None = None  # the task in which the rebalance listener runs
        self._is_in_poll = False
        self._is_closing = self._is_closed = False
        self._is_woken = False
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return client_text("kops.aio.Consumer", self._network, is_closed=self._is_closed)

    async def __aenter__(self) -> Self:
        self._turns.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # what to read

    def subscribe(self, topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern, listener: object = None) -> None:
        """Read topics, or all whose whole names match a pattern, as a member of the group.

        `listener` may have the methods on_partitions_assigned, on_partitions_revoked and on_partitions_lost, also as coroutines. `poll`
        calls them with a list of TopicPartition. A subscription replaces the previous one.
        """
        wanted = as_topics(topics)
        check_listener(listener)
        if wanted == []:
            raise UsageError("no topics; await unsubscribe() to end the subscription")
        with self._use():
            self._core.subscribe(wanted, self._now_ms())
            self._driver.listener = listener

    def assign(self, partitions: Iterable[Key]) -> None:
        """Read exactly these partitions, without a group's help."""
        keys = as_assigned(partitions)
        if not keys:
            raise UsageError("no partitions; await unsubscribe() to read none")
        with self._use():
            self._core.assign(keys)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing."""
        with self._use():
            self._check_caller("unsubscribe")
            core = self._core
            if core.group is not None:
                core.group.release()
                try:
                    await self._make_calls()
                except Exception:
                    if self._driver.options.uses_consumer_protocol:  # with the classic one, it remains a member without partitions
                        self._leave()
                    raise
            self._leave()

    def _leave(self) -> None:
        core = self._core
        if core.group is not None:
            self._driver.send(core.leave(GroupMembership.DEFAULT, "the consumer unsubscribed from all topics", self._now_ms()))
            self._turns.soon()
        core.unsubscribed()
        self._driver.listener = None

    # records

    async def poll(self, timeout: float = 1.0) -> ConsumerRecords:
        """Return the next records, at most `max.poll.records`. Without any, wait up to `timeout` seconds and return none.

        Also takes part in the group: calls the listener, the callbacks of commits, and commits automatically. Raises KafkaError and
        UsageError. A cancelled poll loses no records. A poll that waits while another task closes the consumer raises ConsumerClosedError.
        """
        check_timeout(timeout, may_be_none=False)
        with self._use():
            self._check_caller("poll")
            self._check_open()
            if self._is_polling:
                raise UsageError("another task polls this consumer")
            self._is_polling = True
            self._driver.metrics.poll_begins(self._now_ms())
            try:
                return await self._poll(timeout)
            except BaseException:
                self._core.undo()
                raise
            finally:
                self._driver.metrics.poll_ends(self._now_ms())
                self._is_polling = self._is_in_poll = False
                if self._is_closing:
                    self._release_all()  # close waits for the end of the poll

    async def _poll(self, timeout: float) -> ConsumerRecords:
        core, driver = self._core, self._driver
        if core.commits.given:
            self._handout.end()
        now = self._now_ms()
        deadline_ms = now + timeout * 1000
        core.begin_poll(now)
        while True:
            await self._make_calls()
            self._check_open()
            if self._is_woken:
                self._is_woken = False
                raise WakeupError("wakeup was called")
            now = self._now_ms()
            records = core.poll(now)
            if records is not None:
                self._turns.soon()
                await asyncio.sleep(0)  # a program that only polls leaves time for heartbeats and for other tasks
                return driver.intercept(records) if driver.interceptors else records
            if core.call is not None:
                continue
            self._is_in_poll = True
            if self._settle():
                await asyncio.sleep(0)
                continue
            await self._pause(min(deadline_ms, now + _LONGEST_WAIT_MS))
            if now >= deadline_ms:
                return ConsumerRecords()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. `position` and `commit` count the records that were returned."""
        while (record := self._handout.next()) is None:
            self._handout.start(await self.poll(1.0))
        return record

    # positions

    async def position(self, partition: Key, timeout: float | None = None) -> int:
        """Return the offset of the next record. Waits until it is known."""
        key = as_key(partition)
        found: list[int] = []

        def is_known() -> bool:
            self._core.update_positions(self._now_ms())
            offset = self._core.position(key)
            if offset is not None:
                found.append(offset)
            return offset is not None

        with self._use():
            what = f"the position of {key.topic}-{key.partition}"
            if not await self._until(is_known, self._deadline_ms(timeout)):
                raise self._driver.late(what, timeout)
            return found[0]

    async def committed(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group, None for a partition without one."""
        keys = as_keys(partitions)
        with self._use(), self._driver.timed("committed"):
            self._core.ensure_group()
            outcome = self._core.commits.fetch(keys, self._deadline_ms(timeout))
            found: dict[TopicPartition, OffsetAndMetadata | None] = await self._result(outcome, timeout, "the committed offsets")
            return found

    async def offsets_for_times(
        self, times: Mapping[Key, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (ms since the epoch), None for a partition without one."""
        targets = {as_key(key): as_time(at) for key, at in times.items()}
        with self._use():
            return as_times(await self._result(self._core.offsets.look_up(targets), timeout, f"the offsets of times in {listed(targets)}"))

    async def beginning_offsets(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return await self._ends(partitions, EARLIEST, timeout)

    async def end_offsets(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that this consumer may read."""
        return await self._ends(partitions, LATEST, timeout)

    async def _ends(self, partitions: Iterable[Key], target: int, timeout: float | None) -> dict[TopicPartition, int]:
        targets = dict.fromkeys(as_keys(partitions), target)
        with self._use():
            found = await self._result(self._core.offsets.look_up(targets), timeout, f"the ends of partitions {listed(targets)}")
            return {key: one.offset for key, one in found.items() if one.offset >= 0}

    # topics

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, none if it does not exist."""
        with self._use():
            found = await self._result(self._core.topics.look_up([topic]), timeout, f"the partitions of {topic}")
            partitions: list[PartitionInfo] = found.get(topic, [])
            return partitions

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Return all topics that this consumer may read, with their partitions."""
        with self._use():
            found: dict[str, list[PartitionInfo]] = await self._result(self._core.topics.look_up(None), timeout, "the list of topics")
            return found

    # commits

    async def commit(self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, timeout: float | None = None) -> None:
        """Commit offsets (those of the next records), or the positions, and wait for the coordinator.

        Raises CommitFailedError, RebalanceInProgressError and other errors of KafkaError.
        """
        wanted = as_offsets(offsets)
        with self._use(), self._driver.timed("commit-sync"):
            given = self._core.commits.positions() if wanted is None else wanted
            await self._result(self._core.commit(given, self._deadline_ms(timeout)), timeout, "the commit")
            for one in self._driver.interceptors if given else ():
                if hasattr(one, "on_commit"):
                    self._driver.shielded(one.on_commit, given, what="an interceptor (on_commit)")

    def commit_async(self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, on_commit: OnCommit | None = None) -> None:
        """Commit without waiting. A later `poll` or `close` calls `on_commit(offsets, error)`."""
        wanted = as_offsets(offsets)
        with self._use():
            self._core.ensure_group()
            given = self._core.commits.positions() if wanted is None else wanted
            self._core.commits.commit_async(given, self._now_ms() + self._api_ms, on_commit)
            self._turns.soon()

    # the end

    def wakeup(self) -> None:
        """End the poll that waits now, or the next one, with WakeupError. Any thread may call this."""
        self._is_woken = True
        if self._turns.loop is not None and not self._is_closed:
            self._turns.loop.call_soon_threadsafe(self._release_all)

    async def close(self, timeout: float | None = None, *, membership: GroupMembership | str = GroupMembership.DEFAULT) -> None:
        """Commit (with `enable.auto.commit`), call the listener, leave the group, and release all resources.

        This takes at most `timeout` seconds (30 by default). `membership` is "default" (dynamic members leave, static ones stay until their
        session ends), "leave" or "remain". A poll of another task ends with ConsumerClosedError. If another task closes the consumer
        already, this waits for it.
        """
        check_timeout(timeout)
        way = as_membership(membership)
        if self._is_closed:
            return
        self._check_caller("close")
        deadline_ms = self._now_ms() + (_CLOSE_MS if timeout is None else timeout * 1000)
        if self._is_closing:
            await self._until(lambda: self._is_closed, deadline_ms)
            return
        self._is_closing = True
        try:
            self._turns.start()
            self._release_all()
            await self._until(lambda: not self._is_polling, deadline_ms)
            await self._close(deadline_ms, way)
        finally:
            self._finish()

    async def _close(self, deadline_ms: float, way: GroupMembership) -> None:
        core, commits = self._core, self._core.commits
        self._driver.pusher.begin_to_end()
        if core.options.auto_commit_ms is not None and commits.positions() and commits.member.identity() is not None:
            outcome = commits.commit(commits.positions(), deadline_ms, retries=True)
            await self._until(lambda: outcome.is_done, deadline_ms)
        await self._until(lambda: not commits.has_asynchronous, deadline_ms)
        try:
            if core.group is not None:
                core.group.release()
            try:
                await self._make_calls()
            except KafkaError as failed:
                raise as_listener_error(failed, "when the consumer was closed") from failed
        finally:
            requests = core.leave(way, "the consumer is being closed", self._now_ms()) + core.close_sessions()
            self._driver.send(requests)
            nodes = [request.node for request in requests]
            await self._until(lambda: not any(self._network.load(node) for node in nodes), min(deadline_ms, self._now_ms() + _LEAVE_MS))
            await self._until(lambda: not self._driver.pusher.is_behind(), min(deadline_ms, self._now_ms() + LAST_PUSH_MS))

    def _finish(self) -> None:
        self._is_closed = True
        self._turns.end()
        self._driver.pusher.finish()
        self._network.close()
        self._driver.close_helpers()
        self._release_all()

    def _begin_turns(self) -> None:
        with self._use():
            self._turns.soon()

    # waiting

    @contextmanager
    def _use(self) -> Iterator[None]:
        if self._is_closed:
            raise ConsumerClosedError("the consumer is closed")
        self._turns.start()
        yield

    def _check_open(self) -> None:
        """Refuse records while the consumer is being closed. The listener may still commit then."""
        if self._is_closing:
            raise ConsumerClosedError("the consumer is closed")

    def _deadline_ms(self, timeout: float | None) -> float:
        check_timeout(timeout)
        return self._now_ms() + (self._api_ms if timeout is None else timeout * 1000)

    async def _result(self, outcome: Outcome, timeout: float | None, what: str) -> Any:
        """Wait for an outcome. Raises its error, or KafkaTimeoutError."""
        if not await self._until(lambda: outcome.is_done, self._deadline_ms(timeout)):
            late = self._driver.late(what, timeout)
            outcome.fail(late)
            raise late
        return outcome.result()

    async def _until(self, is_over: Callable[[], bool], deadline_ms: float) -> bool:
        """Wait for a condition, which is checked after each turn. Returns False at the deadline."""
        while not is_over():
            if self._is_closed:
                raise ConsumerClosedError("the consumer was closed")
            if self._now_ms() >= deadline_ms:
                return False
            if self._settle():
                await asyncio.sleep(0)
            else:
                await self._pause(deadline_ms)
        return True

    async def _pause(self, deadline_ms: float) -> None:
        """Wait for the next turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=max(deadline_ms - self._now_ms(), 0) / 1000)
        finally:
            self._waiters.remove(waiter)

    def _release_all(self) -> None:
        for waiter in self._waiters:
            _release(waiter)

    # the loop

    def _turn(self) -> None:
        if self._driver.shielded(self._settle, what="a turn") is None:  # it fails again: no loop without a pause
            self._turns.at(self._driver.options.retry_backoff_ms)
        self._release_all()

    def _settle(self) -> bool:
        """Receive and send until there is nothing to do, and set the timer. Returns whether answers have come."""
        driver, network = self._driver, self._network
        before = driver.answers
        network.poll(0)
        wait_ms = driver.turn(in_poll=self._is_in_poll)
        network.poll(0)
        if not wait_ms:  # requests were sent: when the next turn is due is known after them
            wait_ms = driver.turn(in_poll=self._is_in_poll)
            network.poll(0)
        self._turns.at(max(min(wait_ms, network.next_event_ms() - self._now_ms(), _LONGEST_WAIT_MS), _SHORTEST_WAIT_MS))
        return driver.answers != before

    # code of the program

    def _check_caller(self, call: str) -> None:
        """Refuse a call of the rebalance listener itself. Other tasks may make it while the listener waits."""
        if self._caller is not None and self._caller is asyncio.current_task():
            self._refuse(call)

    async def _make_calls(self) -> None:
        """Call callbacks of commits and the rebalance listener. Heartbeats go on."""
        finished = self._core.commits.finished
        while finished:
            self._driver.committed(finished.popleft())
        call = self._core.call
        if call is None:
            return
        self._caller = asyncio.current_task()
        try:
            result, error = self._driver.call_listener(call)
            if error is None and isinstance(result, Awaitable):
                error = await self._driver.await_listener(call, result)
        finally:
            self._caller = None
        call.done(error)
        self._turns.soon()
        raised = call.raised(error)
        if raised is not None:
            raise raised
