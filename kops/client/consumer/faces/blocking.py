"""The consumer for programs with threads. `poll` drives the connections; a thread sends heartbeats while the program works.

Source: Kafka's ClassicKafkaConsumer and AsyncKafkaConsumer. One thread at a time uses a consumer. Only `wakeup` may be called by any.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, BlockingTelemetryCalls
from kops.client.faces.waking import WakePipe, closed_on_error, refuse_in_forks
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

T = TypeVar("T")
_LONGEST_WAIT_MS: Final = 5000.0
_LONGEST_SLEEP_S: Final = 0.25  # of the thread, so that answers are handled while the program works
_CLOSE_MS: Final = 30_000.0
_LEAVE_MS: Final = 5000.0


class Consumer(ConsumerCalls, BlockingTelemetryCalls):
    """Reads records: `Consumer({"bootstrap.servers": "host:9092", "group.id": "billing"}, auto_offset_reset="earliest")`.

    Subscribe to topics or assign partitions, then call `poll` again and again, or iterate. A `with` block closes it at the end.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._driver = Driver(read_config(config, settings))
        self._core = self._driver.core
        self._network = self._driver.network
        self._now_ms = self._network.now_ms
        self._api_ms = float(self._driver.options.api_timeout_ms)
        self._mutex = threading.RLock()
        self._lock = self._mutex
        self._handout = Handout(self._core)
        self._user: int | None = None
        self._depth = 0
        self._is_closed = False
        self._is_woken = False
        self._is_calling = False  # the rebalance listener
        with closed_on_error(self._network):
            self._wakes = WakePipe(self._network)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        refuse_in_forks(self)

    def __repr__(self) -> str:
        return client_text("kops.Consumer", self._network, is_closed=self._is_closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # what to read

    def subscribe(self, topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern, listener: object = None) -> None:
        """Read topics, or all whose whole names match a pattern, as a member of the group.

        `listener` may have the methods on_partitions_assigned, on_partitions_revoked and on_partitions_lost. `poll` calls them with a list
        of TopicPartition. A subscription replaces the previous one. An empty list unsubscribes.
        """
        wanted = as_topics(topics)
        check_listener(listener)
        with self._use():
            if wanted == []:
                self._unsubscribe()
                return
            with self._lock:
                self._core.subscribe(wanted, self._now_ms())
            self._driver.listener = listener
            self._start_thread()

    def assign(self, partitions: Iterable[Key]) -> None:
        """Read exactly these partitions, without a group's help. An empty list unsubscribes."""
        keys = as_assigned(partitions)
        with self._use():
            if not keys:
                self._unsubscribe()
                return
            with self._lock:
                self._core.assign(keys)

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing."""
        with self._use():
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        if self._is_calling:
            self._refuse("unsubscribe")
        core = self._core
        if core.group is not None:
            core.group.release()
            try:
                self._make_calls()
            except Exception:
                if self._driver.options.uses_consumer_protocol:  # with the classic one, it remains a member without partitions
                    self._leave()
                raise
        self._leave()

    def _leave(self) -> None:
        core = self._core
        with self._lock:
            if core.group is not None:
                self._driver.send(core.leave(GroupMembership.DEFAULT, "the consumer unsubscribed from all topics", self._now_ms()))
                self._network.poll(0)
            core.unsubscribed()
        self._driver.listener = None

    # records

    def poll(self, timeout: float = 1.0) -> ConsumerRecords:
        """Return the next records, at most `max.poll.records`. Without any, wait up to `timeout` seconds and return none.

        Also takes part in the group: calls the listener, the callbacks of commits, and commits automatically. Raises KafkaError and
        UsageError.
        """
        driver = self._driver
        records = self._poll(self._core.poll, timeout, driver.intercept if driver.interceptors else None)
        return ConsumerRecords() if records is None else records

    def _poll(self, collect: Callable[[float], T | None], timeout: float, finish: Callable[[T], T] | None = None) -> T | None:
        """Return what `collect` finds, changed by `finish`, or None after `timeout` seconds."""
        check_timeout(timeout, may_be_none=False)
        with self._use():
            if self._is_calling:
                self._refuse("poll")
            core, driver = self._core, self._driver
            if core.commits.given:
                self._handout.end()
            now = self._now_ms()
            deadline_ms = now + timeout * 1000
            self._core.begin_poll(now)
            driver.metrics.poll_begins(now)
            try:
                while True:
                    self._make_calls()
                    if self._is_woken:
                        self._wake_up()
                    with self._lock:
                        now = self._now_ms()
                        found = collect(now)
                        wait_ms = driver.turn(in_poll=True)
                        if found is not None:
                            self._network.poll(0)
                            return found if finish is None else finish(found)
                        if core.call is not None:
                            continue
                        left_ms = min(deadline_ms - now, wait_ms, _LONGEST_WAIT_MS)
                        self._network.poll(max(left_ms, 0))
                    if now >= deadline_ms:
                        return None
            except BaseException:
                with self._lock:
                    core.undo()  # an interrupt must not lose records
                raise
            finally:
                driver.metrics.poll_ends(self._now_ms())

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records without end. `position` and `commit` count the records that were yielded."""
        handout = self._handout
        try:
            while True:
                handout.start(self.poll(1.0))
                while (record := handout.next()) is not None:
                    yield record
        finally:
            if not self._is_closed:
                with self._use(), self._lock:
                    handout.end()

    # positions

    def position(self, partition: Key, timeout: float | None = None) -> int:
        """Return the offset of the next record. Waits until it is known."""
        key = as_key(partition)

        def look() -> int | None:
            self._core.update_positions(self._now_ms())
            return self._core.position(key)

        with self._use():
            found = self._wait(look, timeout, f"the position of {key.topic}-{key.partition}")
            assert isinstance(found, int)
            return found

    def committed(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group, None for a partition without one."""
        keys = as_keys(partitions)
        with self._use(), self._driver.timed("committed"):
            self._core.ensure_group()
            outcome = self._core.commits.fetch(keys, self._deadline_ms(timeout))
            found: dict[TopicPartition, OffsetAndMetadata | None] = self._result(outcome, timeout, "the committed offsets")
            return found

    def offsets_for_times(self, times: Mapping[Key, int], timeout: float | None = None) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (ms since the epoch), None for a partition without one."""
        targets = {as_key(key): as_time(at) for key, at in times.items()}
        with self._use():
            return as_times(self._looked_up(targets, timeout, f"the offsets of times in {listed(targets)}"))

    def beginning_offsets(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Iterable[Key], timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that this consumer may read."""
        return self._ends(partitions, LATEST, timeout)

    def _ends(self, partitions: Iterable[Key], target: int, timeout: float | None) -> dict[TopicPartition, int]:
        targets = dict.fromkeys(as_keys(partitions), target)
        with self._use():
            found = self._looked_up(targets, timeout, f"the ends of partitions {listed(targets)}")
            return {key: one.offset for key, one in found.items() if one.offset >= 0}

    def _looked_up(self, targets: dict[TopicPartition, int], timeout: float | None, what: str) -> Any:
        """Wait for offsets. As in Kafka, `wakeup` does not end this with the consumer protocol."""
        can_be_woken = not self._driver.options.uses_consumer_protocol
        return self._result(self._core.offsets.look_up(targets), timeout, what, can_be_woken=can_be_woken)

    # topics

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, none if it does not exist."""
        with self._use():
            found = self._result(self._core.topics.look_up([topic]), timeout, f"the partitions of {topic}")
            partitions: list[PartitionInfo] = found.get(topic, [])
            return partitions

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Return all topics that this consumer may read, with their partitions."""
        with self._use():
            found: dict[str, list[PartitionInfo]] = self._result(self._core.topics.look_up(None), timeout, "the list of topics")
            return found

    # commits

    def commit(self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, timeout: float | None = None) -> None:
        """Commit offsets (those of the next records), or the positions, and wait for the coordinator.

        Raises CommitFailedError, RebalanceInProgressError and other errors of KafkaError.
        """
        wanted = as_offsets(offsets)
        with self._use(), self._driver.timed("commit-sync"):
            self._make_commit_callbacks()
            with self._lock:
                given = self._core.commits.positions() if wanted is None else wanted
                outcome = self._core.commit(given, self._deadline_ms(timeout))
            self._result(outcome, timeout, "the commit")
            for one in self._driver.interceptors if given else ():
                if hasattr(one, "on_commit"):
                    self._driver.shielded(one.on_commit, given, what="an interceptor (on_commit)")

    def commit_async(self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, on_commit: OnCommit | None = None) -> None:
        """Commit without waiting. A later `poll`, `commit` or `close` calls `on_commit(offsets, error)`."""
        wanted = as_offsets(offsets)
        with self._use():
            self._make_commit_callbacks()
            with self._lock:
                self._core.ensure_group()
                given = self._core.commits.positions() if wanted is None else wanted
                self._core.commits.commit_async(given, self._now_ms() + self._api_ms, on_commit)
                self._driver.turn(in_poll=False)
                self._network.poll(0)
            self._start_thread()

    # the end

    def wakeup(self) -> None:
        """End the call that waits now, or the next one, with WakeupError. Any thread may call this."""
        self._is_woken = True
        if not self._is_closed:
            self._wakes.wake()

    def close(self, timeout: float | None = None, *, membership: GroupMembership | str = GroupMembership.DEFAULT) -> None:
        """Commit (with `enable.auto.commit`), call the listener, leave the group, and release all resources.

        This takes at most `timeout` seconds (30 by default). `membership` is "default" (dynamic members leave, static ones stay until their
        session ends), "leave" or "remain".
        """
        check_timeout(timeout)
        way = as_membership(membership)
        if self._is_closed:
            return
        with self._use():
            if self._is_calling:
                self._refuse("close")
            deadline_ms = self._now_ms() + (_CLOSE_MS if timeout is None else timeout * 1000)
            try:
                self._close(deadline_ms, way)
            finally:
                self._release()

    def _close(self, deadline_ms: float, way: GroupMembership) -> None:
        core = self._core
        self._is_woken = False
        self._driver.pusher.begin_to_end()
        commits = core.commits
        if core.options.auto_commit_ms is not None and commits.positions() and commits.member.identity() is not None:
            outcome = commits.commit(commits.positions(), deadline_ms, retries=True)
            self._drive(lambda: outcome.is_done, deadline_ms)
        self._drive(lambda: not commits.has_asynchronous, deadline_ms)
        try:
            self._make_commit_callbacks()
            if core.group is not None:
                with self._lock:
                    core.group.release()
                try:
                    self._make_calls()
                except KafkaError as failed:
                    raise as_listener_error(failed, "when the consumer was closed") from failed
        finally:
            with self._lock:
                requests = core.leave(way, "the consumer is being closed", self._now_ms()) + core.close_sessions()
                self._driver.send(requests)
            nodes = [request.node for request in requests]
            self._drive(lambda: not any(self._network.load(node) for node in nodes), min(deadline_ms, self._now_ms() + _LEAVE_MS))
            self._drive(lambda: not self._driver.pusher.is_behind(), min(deadline_ms, self._now_ms() + LAST_PUSH_MS))

    def _release(self) -> None:
        self._is_closed = True
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._driver.pusher.finish()
            self._network.close()
            self._wakes.close()
        self._driver.close_helpers()

    def _await_pusher(self, is_known: Callable[[], bool], wait: Callable[[float], object], timeout: float) -> None:
        with self._use():
            self._drive(is_known, self._deadline_ms(timeout))

    # waiting

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Let only one thread at a time use the consumer. Raises ConsumerClosedError and UsageError."""
        me = threading.get_ident()
        if self._is_closed:
            raise ConsumerClosedError("the consumer is closed")
        if self._user is not None and self._user != me:
            raise UsageError("another thread uses this consumer; only wakeup may be called by several threads")
        self._user = me
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._user = None

    def _deadline_ms(self, timeout: float | None) -> float:
        check_timeout(timeout)
        return self._now_ms() + (self._api_ms if timeout is None else timeout * 1000)

    def _drive(self, is_over: Callable[[], bool], deadline_ms: float, *, can_be_woken: bool = True) -> bool:
        """Exchange messages until a condition holds. Returns False at the deadline. A call that need not wait leaves `wakeup` to the next
        one."""
        while True:
            with self._lock:
                if is_over():
                    return True
            if self._is_woken and can_be_woken:
                self._wake_up()
            with self._lock:
                wait_ms = self._driver.turn(in_poll=False)
                if is_over():  # a request that can't be built has its outcome at once
                    return True
                left_ms = deadline_ms - self._now_ms()
                if left_ms <= 0:
                    return False
                self._network.poll(max(min(left_ms, wait_ms, _LONGEST_WAIT_MS), 0))

    def _result(self, outcome: Outcome, timeout: float | None, what: str, *, can_be_woken: bool = True) -> Any:
        """Wait for an outcome. Raises its error, or KafkaTimeoutError."""
        deadline_ms = self._deadline_ms(timeout)
        if not self._drive(lambda: outcome.is_done, deadline_ms, can_be_woken=can_be_woken):
            late = self._driver.late(what, timeout)
            outcome.fail(late)
            raise late
        return outcome.result()

    def _wait(self, look: Callable[[], object], timeout: float | None, what: str) -> object:
        """Wait until a function returns something else than None. Raises KafkaTimeoutError."""
        found: list[object] = []

        def is_over() -> bool:
            one = look()
            if one is not None:
                found.append(one)
            return one is not None

        if not self._drive(is_over, self._deadline_ms(timeout)):
            raise self._driver.late(what, timeout)
        return found[0]

    def _wake_up(self) -> None:
        self._is_woken = False
        raise WakeupError("wakeup was called")

    # code of the program

    def _make_calls(self) -> None:
        """Call callbacks of commits and the rebalance listener, without the lock: heartbeats go on."""
        if self._core.commits.finished:
            self._make_commit_callbacks()
        call = self._core.call
        if call is not None:
            self._is_calling = True
            try:
                _, error = self._driver.call_listener(call)
            finally:
                self._is_calling = False
            with self._lock:
                call.done(error)
            raised = call.raised(error)
            if raised is not None:
                raise raised

    def _make_commit_callbacks(self) -> None:
        finished = self._core.commits.finished
        while finished:
            self._driver.committed(finished.popleft())

    # the thread

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"kops-{self._driver.client_id}", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        """Send heartbeats and handle answers while no call of the program does."""
        sleep_s = _LONGEST_SLEEP_S
        while not self._stop.wait(sleep_s):
            sleep_s = _LONGEST_SLEEP_S
            if self._mutex.acquire(blocking=False):
                try:
                    if not self._is_closed:
                        wait_ms = self._driver.shielded(self._keep, what="a turn in the background")
                        sleep_s = min(_LONGEST_SLEEP_S, max(wait_ms or 0.0, 10.0) / 1000)
                finally:
                    self._mutex.release()

    def _keep(self) -> float:
        self._network.poll(0)
        wait_ms = self._driver.turn(in_poll=False)
        self._network.poll(0)
        return wait_ms
