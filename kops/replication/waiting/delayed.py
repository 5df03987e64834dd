"""Delayed Produce, Fetch and DeleteRecords (Kafka DelayedProduce, DelayedFetch, DelayedDeleteRecords, Partition's DelayedOperations).

None of them holds records. A produce keeps the offset that its answer waits for, and a fetch reads again when it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, KopsError
from kops.records.log_offsets import LogOffsetMetadata, TopicPartition
from kops.replication.leading.fetch import FetchInfo
from kops.replication.waiting.purgatory import DelayedOperation, DelayedOperationPurgatory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from kops.replication.leading.fetch import FetchParams
    from kops.replication.leading.partition import Partition

INVALID_LOW_WATERMARK: Final = -1


@mypyc_attr(acyclic=True)
class PartitionResponse:
    """A partition of a produce and its answer. `error` is a name of Kafka's Errors. The offsets and the time are the append's (-1: none).

    `record_errors` and `error_message` describe the invalid records (KIP-467). For a partition that waits for other replicas,
    `required_offset` is the offset below which everything must be replicated, and `error` is the error that it reports if that does not
    happen in time.
    """

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "is_pending",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "required_offset",
    )

    def __init__(
        self,
        error: str,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        required_offset: int = 0,
        record_errors: tuple[tuple[int, str | None], ...] = (),
        error_message: str | None = None,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.required_offset = required_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.is_pending = False


class DelayedProduce(DelayedOperation):
    """A produce with acks=all. A partition that failed at once keeps its error. The others may time out (REQUEST_TIMED_OUT)."""

    __slots__ = ("_get_partition", "_respond", "expired", "statuses")

    def __init__(
        self,
        delay_ms: int,
        statuses: dict[TopicPartition, PartitionResponse],
        get_partition: Callable[[TopicPartition], Partition],
        respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
    ) -> None:
        super().__init__(delay_ms)
        self.statuses = statuses
        self.expired = 0
        self._get_partition = get_partition
        self._respond = respond
        for status in statuses.values():
            if status.error == "NONE":
                status.is_pending = True
                status.error = "REQUEST_TIMED_OUT"

    def try_complete(self) -> bool:
        """Complete when every partition is replicated or has failed."""
        is_waiting = False
        for key, status in self.statuses.items():
            if not status.is_pending:
                continue
            try:
                is_enough, error = self._get_partition(key).check_enough_replicas_reach_offset(status.required_offset)
            except ApiError as refused:
                is_enough, error = False, refused.name
            if is_enough or error != "NONE":
                status.is_pending = False
                status.error = error
            else:
                is_waiting = True
        return not is_waiting and self.force_complete()

    def on_complete(self) -> None:
        """Answer with each partition's status."""
        # The timer keeps completed operations for a while, but not their requests: the garbage collector would look at all of them.
        respond, self._respond = self._respond, _forget
        respond(self.statuses)

    def on_expiration(self) -> None:
        """Count the partitions that were not replicated in time."""
        self.expired = sum(status.is_pending for status in self.statuses.values())


@mypyc_attr(acyclic=True)
class AwaitedFetch:
    """A partition of a waiting fetch: the start of the read that found too little, and the client's parameters. It is not changed."""

    __slots__ = ("info", "start_offset_metadata")

    def __init__(self, start_offset_metadata: LogOffsetMetadata, info: FetchInfo) -> None:
        self.start_offset_metadata = start_offset_metadata
        self.info = info


class ThrottlesFollower(Protocol):
    """Whether a follower that is out of sync must wait for the leader's quota."""

    def __call__(self, partition: Partition, replica_id: int) -> bool: ...


class DelayedFetch(DelayedOperation):
    """A fetch for which fewer than `min_bytes` are available.

    It is answered when there is enough data or when waiting is pointless: the role or epoch of this broker has changed, the partition has
    moved on to another segment or was truncated below the fetch offset, or the client has to truncate its log.

    With `begins_empty`, no partition had any data when the fetch was parked. Only partitions to which something has happened since
    (`touched`) are then checked. Resting partitions of its session are not in `statuses`. They `join` when something happens to them.
    """

    __slots__ = ("_get_partition", "_respond", "_should_throttle", "_sizes", "begins_empty", "params", "statuses")

    def __init__(
        self,
        params: FetchParams,
        statuses: dict[TopicPartition, AwaitedFetch],
        get_partition: Callable[[TopicPartition], Partition],
        should_throttle: ThrottlesFollower,
        respond: Callable[[], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.statuses = statuses
        self._get_partition = get_partition
        self._should_throttle = should_throttle
        self._respond = respond
        self._sizes: dict[Hashable, int] = {}
        self.begins_empty = False

    @property
    def touched(self) -> Collection[Hashable]:
        """The partitions to which something happened while it was parked."""
        return self._sizes.keys()

    def join(self, key: TopicPartition, status: AwaitedFetch) -> None:
        """Wait for one more partition, which was at rest and is about to change. The caller lets the fetch watch it."""
        self.statuses[key] = status
        self._sizes[key] = 0

    def try_complete_for(self, key: Hashable) -> bool:
        """Complete when this partition can be answered, or when the touched partitions have enough together."""
        self._sizes[key] = 0
        if not self.begins_empty:
            return self.try_complete()
        assert isinstance(key, TopicPartition)
        available = self._size_of(key, self.statuses[key])
        if available is None:
            return self.force_complete()
        self._sizes[key] = available
        return sum(self._sizes.values()) >= self.params.min_bytes and self.force_complete()

    def try_complete(self) -> bool:
        """Complete when a partition can be answered, or when all have enough together."""
        size = 0
        for key, status in self.statuses.items():
            if status.start_offset_metadata.message_offset < 0:
                continue
            available = self._size_of(key, status)
            if available is None:
                return self.force_complete()
            size += available
        return size >= self.params.min_bytes and self.force_complete()

    def _size_of(self, key: TopicPartition, status: AwaitedFetch) -> int | None:
        try:
            return self._available(self._get_partition(key), status)
        except KopsError:
            # This broker no longer leads, the epoch has changed, or the partition is deleted or offline. The read for the answer finds out
            # which.
            return None

    def _available(self, partition: Partition, status: AwaitedFetch) -> int | None:
        """Return the number of bytes available now, or None if the fetch must be answered regardless of them."""
        info, start = status.info, status.start_offset_metadata
        end = partition.fetchable_end(self.params, info)
        available = 0
        if start.message_offset > end.message_offset:
            return None
        if start.message_offset < end.message_offset and not self._is_throttled(partition):
            if start.on_older_segment(end):
                return None
            if start.on_same_segment(end):
                available = min(end.relative_position - start.relative_position, info.max_bytes)
        return None if partition.diverges(info) else available

    def _is_throttled(self, partition: Partition) -> bool:
        return self.params.is_from_follower and self._should_throttle(partition, self.params.replica_id)

    def on_complete(self) -> None:
        """Read again and answer."""
        # `_respond` refers back to this operation. Without this line, only the garbage collector would free them.
        respond, self._respond = self._respond, _say_nothing
        respond()
        self.statuses = {}


def _say_nothing() -> None:
    """The callback of a fetch that was answered."""


def _forget(statuses: dict[TopicPartition, PartitionResponse]) -> None:
    """The callback of a produce that was answered."""


@dataclass(slots=True)
class AwaitedDeletion:
    """A partition of a DeleteRecords. It is complete when no live replica starts before `required_offset`."""

    required_offset: int
    low_watermark: int
    error: str
    is_pending: bool = False


class DelayedDeleteRecords(DelayedOperation):
    """A DeleteRecords that waits until the followers have moved their log starts."""

    __slots__ = ("_get_partition", "_respond", "expired", "statuses")

    def __init__(
        self,
        delay_ms: int,
        statuses: dict[TopicPartition, AwaitedDeletion],
        get_partition: Callable[[TopicPartition], Partition],
        respond: Callable[[dict[TopicPartition, AwaitedDeletion]], None],
    ) -> None:
        super().__init__(delay_ms)
        self.statuses = statuses
        self.expired = 0
        self._get_partition = get_partition
        self._respond = respond
        for status in statuses.values():
            if status.error == "NONE":
                status.is_pending = True
                status.error = "REQUEST_TIMED_OUT"

    def try_complete(self) -> bool:
        """Complete when every partition has failed or its low watermark has reached the offset."""
        for key, status in self.statuses.items():
            if status.is_pending:
                self._check(key, status)
        return not any(status.is_pending for status in self.statuses.values()) and self.force_complete()

    def _check(self, key: TopicPartition, status: AwaitedDeletion) -> None:
        low_watermark, error = INVALID_LOW_WATERMARK, "NONE"
        try:
            low_watermark = self._get_partition(key).low_watermark
        except ApiError as refused:
            error = refused.name
        if error != "NONE" or low_watermark >= status.required_offset:
            status.is_pending = False
            status.error = error
            status.low_watermark = low_watermark

    def on_complete(self) -> None:
        """Answer with each partition's status."""
        self._respond(self.statuses)

    def on_expiration(self) -> None:
        """Count the partitions that were not deleted in time."""
        self.expired = sum(status.is_pending for status in self.statuses.values())


class Purgatories:
    """All requests that wait for partitions. A change of a partition is reported to each kind in Kafka's order."""

    def __init__(
        self,
        produce: DelayedOperationPurgatory[DelayedProduce],
        fetch: DelayedOperationPurgatory[DelayedFetch],
        delete_records: DelayedOperationPurgatory[DelayedDeleteRecords],
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.delete_records = delete_records
        self.share_fetch: DelayedOperationPurgatory[DelayedOperation] | None = None
        """The fetches of share groups, or None before the first one."""

    def check_and_complete_all(self, key: TopicPartition) -> None:
        """Check the requests for a partition whose high watermark, low watermark or end moved, or that is no longer on this broker."""
        self.fetch.check_and_complete(key)
        self.produce.check_and_complete(key)
        self.delete_records.check_and_complete(key)
        if self.share_fetch is not None:
            self.share_fetch.check_and_complete(key)

    @property
    def delayed_delete_count(self) -> int:
        """The number of DeleteRecords that wait."""
        return self.delete_records.delayed_count

    def complete_fetches(self, keys: Sequence[TopicPartition]) -> None:
        """Check the fetches of consumers that read from a follower whose high watermark moved."""
        for key in keys:
            self.fetch.check_and_complete(key)
