"""The log of a Raft node, as an interface. The broker implements it over files, the simulation in memory.

This module also has KRaft's rules about a log, which are the same for both: whether a follower's end is valid, and where its log has to be
truncated. Source: Kafka's RaftLog, KafkaRaftLog, ValidOffsetAndEpoch, RawSnapshotWriter and RawSnapshotReader (KIP-630).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

from kops.metadata.raft.voters.replica import OffsetAndEpoch

BOOTSTRAP_SNAPSHOT_ID: Final = OffsetAndEpoch(offset=0, epoch=0)
"""The snapshot with which a directory is formatted. It is never sent to another node."""


class SnapshotSink(Protocol):
    """A snapshot that is being written. Its suffix is `.part` until it is frozen; if the process dies before that, it is lost. Sizes are in
    bytes."""

    snapshot_id: OffsetAndEpoch

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None:
        """Add bytes, which need not end at a batch boundary."""

    def settle(self) -> None:
        """Make the snapshot durable and give it its final name. May be called in any thread. `freeze` must follow."""

    def freeze(self) -> None:
        """Make it one of the log's snapshots. Calls `settle` first if nobody has."""

    def close(self) -> None:
        """Drop it, unless it is frozen."""


class SnapshotSource(Protocol):
    """A snapshot of the log. Sizes and positions are in bytes."""

    snapshot_id: OffsetAndEpoch

    @property
    def size(self) -> int: ...

    def read(self, position: int, max_size: int) -> bytes:
        """Read bytes at `position`, fewer at the end."""
        ...


class RaftLog(Protocol):
    """The log of one partition and its snapshots. `end_offset` is exclusive, as everywhere."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record. If the log is empty, it is that of the snapshot before it, or 0 without one."""
        ...

    @property
    def high_watermark(self) -> int: ...

    def append_as_leader(self, data: bytes, epoch: int) -> None:
        """Append one batch that this node created."""

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        """Append the batches that a leader of this epoch sent, up to the first one of a later epoch. Raises DecodeError for damage, and
        then appends nothing."""

    def read(self, start_offset: int, max_size: int, *, committed: bool) -> bytes:
        """Read batches beginning with the one that contains `start_offset`; the first one is complete. With `committed`, read only below
        the high watermark."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of the log's largest epoch up to `epoch`. If there is none, return the log's start (or the earliest snapshot's
        end)."""
        ...

    def initialize_leader_epoch(self, epoch: int) -> None:
        """Begin a new epoch at the log's end."""

    def truncate_to(self, offset: int) -> None:
        """Remove everything at and after `offset`, which is not below the high watermark."""

    def truncate_to_latest_snapshot(self) -> bool:
        """If the latest snapshot is beyond the log, remove the whole log and begin after the snapshot. Returns whether that happened."""
        ...

    def update_high_watermark(self, offset: int) -> None:
        """Set the high watermark: everything below `offset` is committed."""

    def start_flush(self) -> bool:
        """Begin to make the appended records durable. Returns whether they already are.

        Otherwise the owner calls `RaftNode.on_flushed` when they are. There is one flush at a time.
        """
        ...

    def maybe_clean(self, now_ms: int) -> bool:
        """Delete old snapshots and the segments below them, as the retention settings allow."""
        ...

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSink | None:
        """Begin a snapshot. Returns None if it already exists."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSource | None:
        """Return the frozen snapshot with this id, or None if there is none."""
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...


class EndKind(Enum):
    """A leader's verdict on the end of a follower's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class ValidatedEnd(NamedTuple):
    """The verdict, and where the follower continues: at the end of the diverging epoch, or with the snapshot to fetch."""

    kind: EndKind
    end: OffsetAndEpoch


def end_of(log: RaftLog) -> OffsetAndEpoch:
    """Return the end of a log, as votes compare it."""
    return OffsetAndEpoch(offset=log.end_offset, epoch=log.last_fetched_epoch)


def validate_end(log: RaftLog, offset: int, epoch: int) -> ValidatedEnd:
    """Judge whether a log that ends at `offset` with a record of `epoch` is a prefix of this one."""
    if log.start_offset == 0 and offset == 0:
        return ValidatedEnd(EndKind.VALID, BOOTSTRAP_SNAPSHOT_ID)
    earliest, latest = log.earliest_snapshot_id, log.latest_snapshot_id
    if earliest is not None and latest is not None:
        below = offset < log.start_offset or (offset == log.start_offset and epoch != earliest.epoch)
        if below or epoch < earliest.epoch:
            return ValidatedEnd(EndKind.SNAPSHOT, latest)
    end = log.end_offset_for_epoch(epoch)
    if end.epoch != epoch or end.offset < offset:
        return ValidatedEnd(EndKind.DIVERGING, end)
    return ValidatedEnd(EndKind.VALID, OffsetAndEpoch(offset=offset, epoch=epoch))


def truncate_to_end(log: RaftLog, end: OffsetAndEpoch) -> int:
    """Truncate this log where it diverges from the leader's, and return the new end offset. `end` is the leader's end of its largest epoch
    up to ours."""
    if end.epoch == 0:
        offset = min(end.offset, log.end_offset)
    else:
        local = log.end_offset_for_epoch(end.epoch)
        offset = min(local.offset, end.offset) if local.epoch == end.epoch else local.offset
    log.truncate_to(offset)
    return offset
