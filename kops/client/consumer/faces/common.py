"""What both faces of the consumer do without waiting: pauses, seeks, queries of their state, and records handed out one by one.

Source: Kafka's Consumer interface.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from kops.client.consumer.faces.driving import Driver, Key, as_key, as_keys
from kops.client.consumer.options import TO_BEGINNING, TO_END
from kops.client.consumer.records import ConsumerGroupMetadata, ConsumerRecord, ConsumerRecords, OffsetAndMetadata, as_offset
from kops.client.faces.telemetry_calls import TelemetryCalls
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from kops.client.consumer.core.consumer import ConsumerCore
    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName
    from kops.records.log_offsets import TopicPartition


logger = logging.getLogger("kops.client")


class Handout:
    """The records of a poll, which an iteration hands out one by one. Positions count only those that were handed out."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._given = core.commits.given
        self._records = ConsumerRecords()
        self._run = 0
        self._index = 0

    def start(self, records: ConsumerRecords) -> None:
        """Take the records of a poll."""
        self._records, self._run, self._index = records, 0, 0
        for run in records.runs:
            if run.stop > run.start:
                self._given.setdefault(run.key, OffsetAndMetadata(records[run.start].offset))

    def next(self) -> ConsumerRecord | None:
        """Return the next record, or None after the last one. After a seek, the records of that partition are not the next ones."""
        runs, given = self._records.runs, self._given
        while self._run < len(runs):
            run = runs[self._run]
            if self._index < run.stop and run.key in given:
                record = self._records[self._index]
                self._index += 1
                given[run.key] = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
                return record
            self._index = run.stop
            self._run += 1
            if all(later.key != run.key for later in runs[self._run :]):
                given.pop(run.key, None)
        return None

    def end(self) -> None:
        """Let the records that were not handed out be the next ones."""
        self._records, self._run = ConsumerRecords(), 0
        if self._given:
            self._core.give_back()


class ConsumerCalls(TelemetryCalls):
    """The calls that do not wait. A face provides the driver, its lock, and `_use`, which checks that a call is allowed now."""

    _driver: Driver
    _core: ConsumerCore
    _lock: AbstractContextManager[Any]

    @abstractmethod
    def _use(self) -> AbstractContextManager[None]:
        """Check that a call is allowed now, and guard the core during it."""

    @staticmethod
    def _refuse(call: str) -> NoReturn:
        """Refuse a call in a rebalance listener that would call the listener again, without an end."""
        raise UsageError(f"{call}: not in a rebalance listener, because it would call the listener again")

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        with self._use():
            return set(self._core.subscriptions.partitions)

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        with self._use():
            return set(self._core.subscriptions.topics)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._use():
            return set(self._core.subscriptions.having(lambda state: state.is_paused))

    def pause(self, partitions: Iterable[Key]) -> None:
        """Return no records of these partitions until `resume`."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Iterable[Key]) -> None:
        """Return records of paused partitions again."""
        self._set_paused(partitions, is_paused=False)

    def _set_paused(self, partitions: Iterable[Key], *, is_paused: bool) -> None:
        keys = as_keys(partitions)
        with self._use(), self._lock:
            for state in [self._core.subscriptions.state(key) for key in keys]:
                state.is_paused = is_paused

    def seek(self, partition: Key, offset: int | OffsetAndMetadata) -> None:
        """Continue with this offset at the next `poll`."""
        key, one = as_key(partition), as_offset(offset)
        with self._use(), self._lock:
            self._core.seek(key, one.offset, one.leader_epoch)

    def seek_to_beginning(self, partitions: Iterable[Key] = ()) -> None:
        """Continue with the first record of these partitions, or of all."""
        with self._use(), self._lock:
            self._core.reset(as_keys(partitions), TO_BEGINNING)

    def seek_to_end(self, partitions: Iterable[Key] = ()) -> None:
        """Continue after the last record of these partitions, or of all."""
        with self._use(), self._lock:
            self._core.reset(as_keys(partitions), TO_END)

    def current_lag(self, partition: Key) -> int | None:
        """Return how many records are left after the position, or None if the end is not known yet."""
        with self._use(), self._lock:
            return self._core.lag(as_key(partition))

    def _find_pusher(self) -> Pusher | None:
        return self._driver.pusher

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._driver.all_metrics.values(self._driver.network.now_ms())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this member, for `send_offsets_to_transaction` of a producer."""
        with self._use(), self._lock:
            return self._core.group_metadata()

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Let the group rebalance at the next `poll`. With the consumer protocol, only the coordinator decides on a rebalance.

        Raises UsageError without `group.id`. Without a subscription there is nothing to do.
        """
        if self._driver.options.uses_consumer_protocol:
            logger.warning("enforce_rebalance has no effect with group.protocol=consumer")
            return
        with self._use(), self._lock:
            if self._driver.options.group_id is None:
                raise UsageError("enforce_rebalance: not without group.id")
            if self._core.group is not None:
                self._core.group.rejoin(reason)
