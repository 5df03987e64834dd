"""What the runtime of coordinators needs from outside: the log, the loop's timers and a place for messages.

Source: Kafka's PartitionWriter, CoordinatorLoader, CoordinatorPlayback and Timer. A broker implements them; tests do by hand.
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
"""The verification guard of a write that is no part of a transaction."""
UNKNOWN_TRANSACTION_VERSION = -1


class PartitionWriter(Protocol):
    """The logs of the coordinator's topic. All methods raise ApiError, `NOT_LEADER_OR_FOLLOWER` where the partition is led elsewhere."""

    def register_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Call `listener` whenever the high watermark moves. As in Kafka it is not called with the present one."""

    def deregister_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Call it no longer."""

    def max_batch_bytes(self, key: TopicPartition) -> int:
        """The topic's `max.message.bytes`."""

    def append(self, key: TopicPartition, guard: Any, batch: bytes, transaction_version: int) -> int:
        """Append one batch to the leader's log, without waiting for replicas. Returns the log's end after it."""

    def start_verification(
        self, key: TopicPartition, transactional_id: str, producer_id: int, producer_epoch: int, api_version: int
    ) -> Promise[Any]:
        """Ask the transaction's coordinator whether the partition belongs to the transaction. The promise is of a verification guard."""


class CoordinatorPlayback(Protocol):
    """What a loader replays records into."""

    def settle(self, is_settled: bool) -> None:
        """Whether what is replayed from now on was committed before the load began. It is not, once it was not."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Replay one record."""

    def replay_end_transaction_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Replay the marker that ends a transaction."""

    def update_last_written_offset(self, offset: int) -> None:
        """All records below `offset` were replayed."""

    def update_last_committed_offset(self, offset: int) -> None:
        """All records below `offset` are committed."""


class LoadSummary(NamedTuple):
    """What a loader has done."""

    record_count: int
    size_bytes: int
    duration_ms: int


class CoordinatorLoader(Protocol):
    """Reads a partition from its start to its end."""

    def load(self, key: TopicPartition, playback: CoordinatorPlayback) -> Promise[LoadSummary]:
        """Replay all records, in pieces. The promise fails if a record cannot be replayed or the partition is led elsewhere."""

    def close(self) -> None:
        """Load nothing more. Loads that have begun fail."""


class Cancellable(Protocol):
    """A call that was planned."""

    def cancel(self) -> None:
        """Do not make it."""


class Timers(Protocol):
    """The loop."""

    def call_soon(self, run: Callable[[], object]) -> object:
        """Call after what the loop has read in this turn."""

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Cancellable:
        """Call once, `delay_ms` from now at the earliest."""


class Log(Protocol):
    """Where messages for the operator go (a logger)."""

    def info(self, text: str, *arguments: object) -> None: ...
    def warning(self, text: str, *arguments: object) -> None: ...
    def error(self, text: str, *arguments: object) -> None: ...
    def exception(self, text: str, *arguments: object) -> None: ...


class Background(Protocol):
    """Side threads."""

    def __call__(self, task: Callable[[], R], done: Callable[[R | None, KopsError | None], object]) -> None:
        """Run `task` aside, then `done` with its result or its error in the loop."""
