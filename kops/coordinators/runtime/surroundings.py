"""The interfaces that the runtime of coordinators needs: the log, the loop's timers and a logger.

Source: Kafka's PartitionWriter, CoordinatorLoader, CoordinatorPlayback and Timer. A broker implements them, and so do tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import KopsError
from kops.records.log_offsets import TopicPartition

R = TypeVar("R")
HighWatermarkListener = Callable[[int], object]
"""Called with the new high watermark of a partition."""
NO_GUARD = None
"""The verification guard of a write that does not belong to a transaction."""
UNKNOWN_TRANSACTION_VERSION = -1


class PartitionWriter(Protocol):
    """The logs of the coordinator's topic. All methods raise ApiError, `NOT_LEADER_OR_FOLLOWER` if this broker does not lead the
    partition."""

    def register_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Call `listener` whenever the high watermark moves. As in Kafka, it is not called with the current one."""

    def deregister_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Stop calling the listener."""

    def max_batch_bytes(self, key: TopicPartition) -> int:
        """Return the topic's `max.message.bytes`."""

    def append(self, key: TopicPartition, guard: Any, batch: bytes, transaction_version: int) -> int:
        """Append one batch to the leader's log, without waiting for replicas. Returns the log end offset after it."""

    def start_verification(
        self, key: TopicPartition, transactional_id: str, producer_id: int, producer_epoch: int, api_version: int
    ) -> Promise[Any]:
        """Ask the transaction's coordinator whether the partition belongs to the transaction. The result is a verification guard."""


class CoordinatorPlayback(Protocol):
    """The receiver of the records that a loader reads."""

    def settle(self, is_settled: bool) -> None:
        """Set whether the following records were committed before the load began. After False, it stays False."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Replay one record."""

    def replay_end_transaction_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Replay the marker that ends a transaction."""

    def update_last_written_offset(self, offset: int) -> None:
        """Record that everything below `offset` has been replayed."""

    def update_last_committed_offset(self, offset: int) -> None:
        """Record that everything below `offset` is committed."""


class LoadSummary(NamedTuple):
    """The result of a load."""

    record_count: int
    size_bytes: int
    duration_ms: int


class CoordinatorLoader(Protocol):
    """Reads a partition from its start to its end."""

    def load(self, key: TopicPartition, playback: CoordinatorPlayback) -> Promise[LoadSummary]:
        """Replay all records, in pieces. The promise fails if a record cannot be replayed or this broker no longer leads the partition."""

    def close(self) -> None:
        """Start no more loads. Running loads fail."""


class Cancellable(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """The timers of the loop."""

    def call_soon(self, run: Callable[[], object]) -> object:
        """Call after everything that the loop has read in this turn."""

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Cancellable:
        """Call once, after at least `delay_ms`."""

    def replace(self, call: Any, delay_ms: float, run: Callable[[], object]) -> Cancellable:
        """Reschedule `call`, a result of `call_later`: it calls `run` in `delay_ms` instead."""


class Log(Protocol):
    """A logger for messages to the operator."""

    def info(self, text: str, *arguments: object) -> None: ...
    def warning(self, text: str, *arguments: object) -> None: ...
    def error(self, text: str, *arguments: object) -> None: ...
    def exception(self, text: str, *arguments: object) -> None: ...


class Background(Protocol):
    """Side threads."""

    def __call__(self, task: Callable[[], R], done: Callable[[R | None, KopsError | None], object]) -> None:
        """Run `task` in a side thread, then call `done` on the loop with its result or its error."""
