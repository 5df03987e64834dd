"""The reading half of a partition: fetches, offsets by time, ends of epochs, and which replica may answer (Kafka Partition).

The leader epoch in the request decides which replica may answer (KIP-320). An older epoch is FENCED_LEADER_EPOCH, a newer one
UNKNOWN_LEADER_EPOCH. Without an epoch, nothing is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from kops.errors import ApiError
from kops.records.log_offsets import Isolation, LogOffsetMetadata, LogOffsetSnapshot, TopicPartition
from kops.replication.leading.fetch import EpochEndOffset, FetchInfo, FetchParams, LogRead
from kops.replication.log import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, UNDEFINED_EPOCH_OFFSET

if TYPE_CHECKING:
    from kops.replication.leading.replica import Replica
    from kops.replication.log import ReplicaLog

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class OffsetFound(NamedTuple):
    """An offset for ListOffsets, -1 if there is none. `timestamp` is in ms."""

    timestamp: int
    offset: int
    leader_epoch: int | None


NO_OFFSET = OffsetFound(-1, -1, None)


class Resting(Protocol):
    """A session that does not check the partition until something happens (`kops.replication.leading.fetch_session.Rest`)."""

    def end(self) -> None:
        """End the rest, because something has happened."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionReads:
    """The reading half of `Partition`."""

    remote_replicas: dict[int, Replica]

    def __init__(self, topic_partition: TopicPartition, broker_id: int) -> None:
        self.topic_partition = topic_partition
        self._broker_id = broker_id
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.log: ReplicaLog | None = None
        self.future_log: ReplicaLog | None = None
        self.resting: dict[Resting, None] = {}
        """Sessions that need not check this partition until something happens."""

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads."""
        return self.leader_id == self._broker_id

    @property
    def leader_log(self) -> ReplicaLog | None:
        """The log if this broker leads, else None."""
        return self.log if self.is_leader else None

    @property
    def local_log(self) -> ReplicaLog:
        """Return the log. Raises ApiError NOT_LEADER_OR_FOLLOWER if there is none."""
        if self.log is None:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Log for partition {self._name} is not available on broker {self._broker_id}")
        return self.log

    @property
    def future_local_log(self) -> ReplicaLog:
        """Return the copy into another directory. Raises ApiError NOT_LEADER_OR_FOLLOWER if there is none."""
        if self.future_log is None:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Future log for partition {self._name} is not available on broker {self._broker_id}")
        return self.future_log

    @property
    def _name(self) -> str:
        return f"{self.topic_partition.topic}-{self.topic_partition.partition}"

    def _not_leader(self) -> ApiError:
        return ApiError("NOT_LEADER_OR_FOLLOWER", f"Leader not local for partition {self._name} on broker {self._broker_id}")

    def check_leader_epoch(self, current_leader_epoch: int | None) -> str:
        """Return the name of the error for a request with this leader epoch, or NONE."""
        if current_leader_epoch is None or current_leader_epoch == self.leader_epoch:
            return "NONE"
        return "FENCED_LEADER_EPOCH" if current_leader_epoch < self.leader_epoch else "UNKNOWN_LEADER_EPOCH"

    def _log_or_error(self, current_leader_epoch: int | None, *, require_leader: bool) -> ReplicaLog | str:
        error = self.check_leader_epoch(current_leader_epoch)
        if error != "NONE":
            return error
        if self.log is None or (require_leader and not self.is_leader):
            return "NOT_LEADER_OR_FOLLOWER"
        return self.log

    def log_with_epoch(self, current_leader_epoch: int | None, *, require_leader: bool) -> ReplicaLog:
        """Return the log for a request. Raises ApiError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER."""
        log = self._log_or_error(current_leader_epoch, require_leader=require_leader)
        if isinstance(log, str):
            reason = (
                f"Failed to find {'leader' if require_leader else ''} log for partition {self._name} with leader epoch "
                f"{_optional(current_leader_epoch)}. The current leader is {_option(self.leader_id)} and the current epoch "
                f"{self.leader_epoch}"
            )
            raise ApiError(log, reason)
        return log

    # fetches ----------------------------------------------------------------------------------------------------------------------

    def fetch_records(
        self, params: FetchParams, info: FetchInfo, fetch_time_ms: int, max_bytes: int, *, min_one_batch: bool, update_fetch_state: bool
    ) -> LogRead:
        """Answer a fetch of a consumer or a follower.

        A follower's state is updated, unless its fetch was parked and is read again. Raises ApiError OFFSET_OUT_OF_RANGE,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        log = self.log
        if log is None or self.leader_id != self._broker_id or info.current_leader_epoch != self.leader_epoch:
            log = self.log_with_epoch(info.current_leader_epoch, require_leader=params.fetch_only_leader)
        if params.replica_id < 0:
            return self._read(log, info, max_bytes, params.isolation, min_one_batch=min_one_batch)
        replica = self.remote_replicas.get(params.replica_id) or self._follower(params.replica_id, info)
        read = self._read(log, info, max_bytes, params.isolation, min_one_batch=min_one_batch)
        if update_fetch_state and read.fetched is not None:
            self.update_follower_fetch_state(
                replica, read.fetched.offset_metadata, info.log_start_offset, fetch_time_ms, read.log_end_offset, params.replica_epoch
            )
        return read

    def disturb(self) -> None:
        """End all rests, because the log's start or end, the high watermark, the role or the in-sync set has changed."""
        while self.resting:
            next(iter(self.resting)).end()

    def is_as_read(self, params: FetchParams, info: FetchInfo, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the offsets are still those of a fetch's answer, and the fetch has read everything that it may read.

        A follower must also be in sync, because one that is not may join the ISR with any fetch.
        """
        log = self.log
        if log is None or log.high_watermark != high_watermark or log.log_start_offset != log_start_offset:
            return False
        if params.replica_id >= 0 and not self.is_in_sync(params.replica_id):
            return False
        if params.isolation is Isolation.LOG_END:
            return info.fetch_offset == log.log_end_offset
        return info.fetch_offset == (high_watermark if params.isolation is Isolation.HIGH_WATERMARK else log.last_stable_offset)

    def is_in_sync(self, replica_id: int) -> bool:
        """Whether the replica is in sync according to the controller (`Partition`)."""
        raise self._not_leader()

    def update_follower_fetch_state(
        self,
        replica: Replica,
        fetched_up_to: LogOffsetMetadata,
        follower_start_offset: int,
        fetch_time_ms: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Update the leader's state of the follower (`Partition`)."""
        raise self._not_leader()

    def _follower(self, replica_id: int, info: FetchInfo) -> Replica:
        replica = self.remote_replicas.get(replica_id)
        if replica is None:
            # The epoch is right, so a reassignment that this leader does not know yet may have added the replica. It must try again.
            error = "NOT_LEADER_OR_FOLLOWER" if info.current_leader_epoch is None else "UNKNOWN_LEADER_EPOCH"
            reason = f"Replica {replica_id} is not recognized as a valid replica of {self._name} in leader epoch {self.leader_epoch}"
            raise ApiError(error, reason)
        return replica

    def _read(self, log: ReplicaLog, info: FetchInfo, max_bytes: int, isolation: Isolation, *, min_one_batch: bool) -> LogRead:
        # This is the end before the read, because later appends do not make a follower out of sync.
        offsets = (log.high_watermark, log.log_start_offset, log.log_end_offset, log.last_stable_offset)
        if info.last_fetched_epoch is not None and not self._is_within_last_epoch(log, info):
            diverging = self._diverging_epoch(log, info, info.last_fetched_epoch)
            if diverging is not None:
                return LogRead(None, diverging, *offsets)
        return LogRead(log.read(info.fetch_offset, max_bytes, isolation, min_one_batch=min_one_batch), None, *offsets)

    def _is_within_last_epoch(self, log: ReplicaLog, info: FetchInfo) -> bool:
        """Whether a fetch continues in this log's last epoch, and so can't diverge from it. Nearly all fetches do."""
        return info.last_fetched_epoch == log.latest_epoch and log.log_start_offset <= info.fetch_offset <= log.log_end_offset

    def _diverging_epoch(self, log: ReplicaLog, info: FetchInfo, fetched_epoch: int) -> EpochEndOffset | None:
        """Return where the client's log diverges from this one, or None if it does not (KIP-595)."""
        end = self.last_offset_for_leader_epoch(info.current_leader_epoch, fetched_epoch, fetch_only_from_leader=False)
        if end.error != "NONE":
            raise ApiError(end.error)
        if end.end_offset == UNDEFINED_EPOCH_OFFSET or end.leader_epoch == -1:
            reason = f"Could not determine the end offset of the last fetched epoch {_optional(fetched_epoch)} from the request"
            raise ApiError("OFFSET_OUT_OF_RANGE", reason)
        if info.fetch_offset < log.log_start_offset:
            reason = (
                f"Received request for offset {info.fetch_offset} for partition {self._name}, "
                f"but we only have log segments in the range {log.log_start_offset} to {log.log_end_offset}."
            )
            raise ApiError("OFFSET_OUT_OF_RANGE", reason)
        return end if end.leader_epoch < fetched_epoch or end.end_offset < info.fetch_offset else None

    def fetch_offset_snapshot(self, current_leader_epoch: int | None, *, fetch_only_from_leader: bool) -> LogOffsetSnapshot:
        """Return a snapshot of all offsets. Raises ApiError as `log_with_epoch` does."""
        return self.log_with_epoch(current_leader_epoch, require_leader=fetch_only_from_leader).fetch_offset_snapshot()

    def fetchable_end(self, params: FetchParams, info: FetchInfo) -> LogOffsetMetadata:
        """Return how far a fetch may read now. Raises ApiError as `log_with_epoch` does."""
        log = self.log
        if log is None or self.leader_id != self._broker_id or info.current_leader_epoch != self.leader_epoch:
            log = self.log_with_epoch(info.current_leader_epoch, require_leader=params.fetch_only_leader)
        if params.isolation is Isolation.LOG_END:
            return log.log_end_offset_metadata
        offsets = log.fetch_offset_snapshot()
        return offsets.high_watermark if params.isolation is Isolation.HIGH_WATERMARK else offsets.last_stable_offset

    def diverges(self, info: FetchInfo) -> bool:
        """Whether a fetch's log diverges from this one, or whether that is unknown (KIP-595)."""
        fetched_epoch = info.last_fetched_epoch
        if fetched_epoch is None or (self.log is not None and self._is_within_last_epoch(self.log, info)):
            return False
        known = self.last_offset_for_leader_epoch(info.current_leader_epoch, fetched_epoch, fetch_only_from_leader=False)
        if known.error != "NONE" or known.end_offset == -1 or known.leader_epoch == -1:
            return True
        return known.leader_epoch < fetched_epoch or known.end_offset < info.fetch_offset

    # look-ups ---------------------------------------------------------------------------------------------------------------------

    def fetch_offset_for_timestamp(
        self, timestamp: int, isolation_level: int | None, current_leader_epoch: int | None, *, fetch_only_from_leader: bool
    ) -> OffsetFound:
        """Return the answer to ListOffsets. `isolation_level` is None for a replica.

        A client never gets an offset that a fetch would not return. After an election, until the high watermark has reached the beginning
        of the epoch, it may be lower than what clients have already seen. The answer is then OFFSET_NOT_AVAILABLE (KIP-207). Also raises
        ApiError as `log_with_epoch` does.
        """
        log = self.log_with_epoch(current_leader_epoch, require_leader=fetch_only_from_leader)
        if isolation_level is None:
            last_fetchable = log.log_end_offset
        else:
            last_fetchable = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            self._check_offsets_available(log, isolation_level, current_leader_epoch)
            return OffsetFound(-1, last_fetchable, self.leader_epoch)
        found = log.fetch_offset_by_timestamp(timestamp)
        is_earliest = timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
        if found is not None and (is_earliest or found.offset < last_fetchable):
            return OffsetFound(found.timestamp, found.offset, found.leader_epoch)
        self._check_offsets_available(log, isolation_level, current_leader_epoch)
        return NO_OFFSET

    def _check_offsets_available(self, log: ReplicaLog, isolation_level: int | None, current_leader_epoch: int | None) -> None:
        start_offset = self.leader_epoch_start_offset
        if isolation_level is None or start_offset is None or start_offset <= log.high_watermark:
            return
        epoch = "unknown epoch" if current_leader_epoch is None else f"epoch {current_leader_epoch}"
        reason = (
            f"Failed to fetch offsets for partition {self._name} with leader {epoch} as this partition's high watermark "
            f"({log.high_watermark}) is lagging behind the start offset from the beginning of this epoch ({start_offset})."
        )
        raise ApiError("OFFSET_NOT_AVAILABLE", reason)

    def last_offset_for_leader_epoch(
        self, current_leader_epoch: int | None, leader_epoch: int, *, fetch_only_from_leader: bool
    ) -> EpochEndOffset:
        """Return the largest epoch not above `leader_epoch` and its end offset. An error is in `error`."""
        log = self._log_or_error(current_leader_epoch, require_leader=fetch_only_from_leader)
        if isinstance(log, str):
            return EpochEndOffset(error=log)
        found = log.end_offset_for_epoch(leader_epoch)
        return EpochEndOffset() if found is None else EpochEndOffset(*found)


def _optional(value: int | None) -> str:
    return "Optional.empty" if value is None else f"Optional[{value}]"


def _option(value: int | None) -> str:
    return "None" if value is None else f"Some({value})"
