"""The replicas that fetchers fill: followers of another broker, and copies into another log directory of this one.

Sources: Kafka's ReplicaFetcherThread and ReplicaAlterLogDirsThread (KIP-113, KIP-858).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, cast

from mypy_extensions import mypyc_attr

from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition
from kops.replication.leading.fetch_session import records_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.protocol.messages.fetch_response import PartitionData
    from kops.replication.following.fetch_state import Truncation
    from kops.replication.leading.partition import Partition
    from kops.replication.log import AppendInfo, ReplicaLog
    from kops.replication.quota import ReplicaQuota

LEADER_OFFSET_INCREMENTED = "leader offset increment"


class LogSlice(Protocol):
    """Records in a segment's file (`kops.storage.segment_files.file_records.LogView`)."""

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...
    def read_at(self, position: int, size: int) -> bytes: ...


def records_of(data: PartitionData) -> bytes:
    """Return the records as bytes. Inside the broker, they may be a slice of a file."""
    records = data.records
    if records is None or isinstance(records, bytes):
        return records or b""
    if isinstance(records, (bytearray, memoryview)):
        return bytes(records)
    view = cast("LogSlice", records)
    return view.read_at(view.start, view.size)


@mypyc_attr(allow_interpreted_subclasses=True)
class _Logs:
    """The read operations of both kinds on their log."""

    def __init__(self, get_partition: Callable[[TopicPartition], Partition], quota: ReplicaQuota) -> None:
        self._get_partition = get_partition
        self._quota = quota

    def log(self, key: TopicPartition) -> ReplicaLog:
        """Return the log to fill."""
        return self._get_partition(key).local_log

    def latest_epoch(self, key: TopicPartition) -> int | None:
        """Return the epoch of the last record."""
        return self.log(key).latest_epoch

    def log_start_offset(self, key: TopicPartition) -> int:
        """Return the log start offset."""
        return self.log(key).log_start_offset

    def log_end_offset(self, key: TopicPartition) -> int:
        """Return the log end offset."""
        return self.log(key).log_end_offset

    def end_offset_for_epoch(self, key: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """Return the largest epoch not above this one, and its end offset."""
        return self.log(key).end_offset_for_epoch(epoch)


def _check_offset(log: ReplicaLog, key: TopicPartition, fetch_offset: int) -> None:
    end_offset = log.log_end_offset
    if fetch_offset != end_offset:
        name = f"{key.topic}-{key.partition}"
        reason = f"Offset mismatch for partition {name}: fetched offset = {fetch_offset}, log end offset = {end_offset}."
        raise ApiError("UNKNOWN_SERVER_ERROR", reason)


@mypyc_attr(allow_interpreted_subclasses=True)
class FollowerReplicas(_Logs):
    """The logs of partitions that another broker leads. `on_truncated` passes a truncation on to the copy in another directory."""

    def __init__(
        self,
        get_partition: Callable[[TopicPartition], Partition],
        quota: ReplicaQuota,
        on_truncated: Callable[[TopicPartition, int], None],
    ) -> None:
        super().__init__(get_partition, quota)
        self._on_truncated = on_truncated
        self.with_new_high_watermark: list[TopicPartition] = []
        """Partitions whose parked consumers may be answered. The owner takes them after each answer."""
        self.bytes_in = 0
        """The number of bytes of records from leaders."""

    def append(self, key: TopicPartition, fetch_offset: int, leader_epoch: int, data: PartitionData) -> AppendInfo | None:
        """Append the leader's records, and adopt its high watermark and log start offset."""
        partition = self._get_partition(key)
        log = partition.local_log
        _check_offset(log, key, fetch_offset)
        records = records_of(data)
        info = partition.append_records_to_follower(records, leader_epoch)
        self.bytes_in += len(records)
        if log.maybe_update_high_watermark(data.high_watermark) is not None:
            if partition.resting:
                partition.disturb()
            self.with_new_high_watermark.append(key)
        if data.log_start_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(data.log_start_offset, LEADER_OFFSET_INCREMENTED)
        if self._quota.is_throttled(key):
            self._quota.record(len(records))
        return info

    def truncate(self, key: TopicPartition, truncation: Truncation) -> None:
        """Truncate the log."""
        self._get_partition(key).truncate_to(truncation.offset)
        if truncation.is_complete:
            self._on_truncated(key, truncation.offset)

    def truncate_fully_and_start_at(self, key: TopicPartition, offset: int) -> None:
        """Empty the log."""
        self._get_partition(key).truncate_fully_and_start_at(offset)


class Promotion(Enum):
    """The progress of a complete copy. The controller has to know its directory before it replaces the log."""

    NONE = auto()
    QUEUED = auto()
    ACCEPTED = auto()


class DirectoryEvents(Protocol):
    """Reports the directories of replicas to the controller (AssignReplicasToDirs)."""

    def handle_assignment(
        self, topic_id: bytes, key: TopicPartition, log_dir: str, reason: str, on_accepted: Callable[[], None]
    ) -> None: ...


class FutureReplicas(_Logs):
    """Copies into other log directories. `on_promoted` is called with a copy that has replaced its log and is no longer fetched."""

    def __init__(
        self,
        get_partition: Callable[[TopicPartition], Partition],
        quota: ReplicaQuota,
        directories: DirectoryEvents,
        on_promoted: Callable[[TopicPartition], None],
    ) -> None:
        super().__init__(get_partition, quota)
        self._directories = directories
        self._on_promoted = on_promoted
        self._promotions: dict[TopicPartition, Promotion] = {}
        self._original_dirs: dict[TopicPartition, str] = {}

    def log(self, key: TopicPartition) -> ReplicaLog:
        return self._get_partition(key).future_local_log

    def begin(self, key: TopicPartition) -> None:
        """Start a copy."""
        self._promotions[key] = Promotion.NONE
        self._original_dirs[key] = self._get_partition(key).local_log.parent_dir

    def cancel(self, key: TopicPartition, topic_id: bytes) -> None:
        """Cancel a copy. If the controller may know its directory, report the old directory again."""
        original_dir = self._original_dirs.pop(key, None)
        if self._promotions.pop(key, Promotion.NONE) is not Promotion.NONE and original_dir is not None:
            reason = "Reverting reassignment for canceled future replica"
            self._directories.handle_assignment(topic_id, key, original_dir, reason, lambda: None)

    def append(self, key: TopicPartition, fetch_offset: int, leader_epoch: int, data: PartitionData) -> AppendInfo | None:
        """Append the log's records. If the copy is then complete, continue its promotion."""
        partition = self._get_partition(key)
        log = partition.future_local_log
        _check_offset(log, key, fetch_offset)
        size = records_size(data)
        info = partition.append_records_to_follower(records_of(data), leader_epoch, is_future=True) if size else None
        log.update_high_watermark(data.high_watermark)
        log.maybe_increment_log_start_offset(data.log_start_offset, LEADER_OFFSET_INCREMENTED)
        self._maybe_promote(key, partition)
        self._quota.record(size)
        return info

    def _maybe_promote(self, key: TopicPartition, partition: Partition) -> None:
        promotion = self._promotions[key]
        if promotion is Promotion.NONE and partition.is_future_log_caught_up:
            self._promotions[key] = Promotion.QUEUED

            def accept() -> None:
                if self._promotions.get(key) is Promotion.QUEUED:
                    self._promotions[key] = Promotion.ACCEPTED

            log_dir = partition.future_local_log.parent_dir
            self._directories.handle_assignment(partition.topic_id, key, log_dir, "Future replica promotion", accept)
        elif promotion is Promotion.ACCEPTED and partition.maybe_replace_current_with_future_log():
            del self._promotions[key], self._original_dirs[key]
            self._on_promoted(key)

    def truncate(self, key: TopicPartition, truncation: Truncation) -> None:
        """Truncate the copy."""
        self._get_partition(key).truncate_to(truncation.offset, is_future=True)

    def truncate_fully_and_start_at(self, key: TopicPartition, offset: int) -> None:
        """Empty the copy."""
        self._get_partition(key).truncate_fully_and_start_at(offset, is_future=True)
