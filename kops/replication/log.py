"""The interfaces through which replication uses a partition's log and the manager of all logs.

`kops.storage.unified_log.UnifiedLog` implements the former. A thin shell over `kops.storage.manager.log_manager.LogManager` implements the
latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.protocol.primitives import Buffer
    from kops.records.log_offsets import Isolation, LogOffsetMetadata, LogOffsetSnapshot, TopicPartition
    from kops.records.validation.validate import AppendOrigin

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
EARLIEST_LOCAL_TIMESTAMP: Final = -4


class LogSettings(Protocol):
    """The topic's settings that replication uses (`kops.config.TopicConfig`)."""

    @property
    def min_insync_replicas(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def compact(self) -> bool: ...
    @property
    def delete(self) -> bool: ...


class AppendInfo(Protocol):
    """The result of an append (`kops.storage.log_append.LogAppendInfo`)."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def last_leader_epoch(self) -> int | None: ...
    @property
    def valid_bytes(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def is_duplicate(self) -> bool: ...
    @property
    def converted_count(self) -> int: ...
    @property
    def temporary_memory_bytes(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


class Fetched(Protocol):
    """The result of a read (`kops.storage.log_offsets.FetchedData`)."""

    @property
    def offset_metadata(self) -> LogOffsetMetadata: ...
    @property
    def size(self) -> int: ...
    @property
    def records(self) -> Any: ...
    @property
    def first_entry_incomplete(self) -> bool: ...
    @property
    def aborted_transactions(self) -> Any: ...


class TimestampedOffset(Protocol):
    """A record that was found by its timestamp (`kops.storage.segment_files.file_records.TimestampAndOffset`)."""

    @property
    def timestamp(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int | None: ...


class EpochCache(Protocol):
    """The start offsets of leader epochs (`kops.storage.segments.epoch_cache.LeaderEpochFileCache`)."""

    def assign(self, epoch: int, start_offset: int) -> None: ...
    def epoch_for_offset(self, offset: int) -> int | None: ...


class ReplicaLog(Protocol):
    """A partition's log. Its methods raise the errors of `UnifiedLog`: ApiError for a client, UnexpectedAppendOffsetError, another
    KopsError for a failed directory. `on_log_start` is called whenever the log start offset has increased, `on_high_watermark` with the
    high watermark whenever it was set.
    """

    on_log_start: Callable[[], object] | None
    on_high_watermark: Callable[[int], None] | None

    @property
    def parent_dir(self) -> str: ...
    @property
    def config(self) -> LogSettings: ...
    @property
    def epochs(self) -> EpochCache: ...
    @property
    def latest_epoch(self) -> int | None: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, *, origin: AppendOrigin, verification_guard: Any, transaction_version: int
    ) -> AppendInfo: ...
    def append_as_follower(self, data: Buffer, leader_epoch: int) -> AppendInfo: ...
    def read(self, start_offset: int, max_size: int, isolation: Isolation, *, min_one_batch: bool) -> Fetched: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None: ...
    def fetch_offset_by_timestamp(self, target: int) -> TimestampedOffset | None: ...
    def fetch_offset_snapshot(self) -> LogOffsetSnapshot: ...
    def update_high_watermark(self, offset: int) -> int: ...
    def maybe_update_high_watermark(self, offset: int) -> int | None: ...
    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None: ...
    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool: ...


class LogKeeper(Protocol):
    """The manager of all logs of a broker. Its truncation also writes checkpoints and pauses the cleaner (LogManager)."""

    def truncate_to(self, offsets: dict[TopicPartition, int], *, is_future: bool = False) -> None: ...
    def truncate_fully_and_start_at(
        self, key: TopicPartition, offset: int, *, is_future: bool = False, log_start_offset: int | None = None
    ) -> None: ...
    def replace_current_with_future_log(self, key: TopicPartition) -> None: ...


class Brokers(Protocol):
    """The other brokers in the metadata (KRaftMetadataCache)."""

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker that is registered and not fenced, or None."""

    def is_fenced(self, broker_id: int) -> bool:
        """Whether the broker is registered and fenced."""

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether the broker is in controlled shutdown."""
