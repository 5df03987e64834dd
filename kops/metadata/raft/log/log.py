"""The log under a Raft node, as an interface. The broker implements it over files, the simulation in memory.

KRaft's rules about a log (whether a follower's end is valid, where it has to be cut) are also here, and are the same for both.
Source: Kafka's RaftLog, KafkaRaftLog, ValidOffsetAndEpoch, RawSnapshotWriter and RawSnapshotReader (KIP-630).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

from kops.metadata.raft.voters.replica import OffsetAndEpoch

BOOTSTRAP_SNAPSHOT_ID: Final = OffsetAndEpoch(offset=0, epoch=0)
"""The snapshot that a directory is formatted with; it is never sent to another node."""


class SnapshotSink(Protocol):
    """A snapshot that is being written, `.part` until it is frozen. Sizes in bytes. If the process dies before that, it is lost."""

    snapshot_id: OffsetAndEpoch

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None:
        """Add bytes; they need not end with a batch."""

    def settle(self) -> None:
        """Make it durable and give it its final name. May be called in any thread. `freeze` still has to follow."""

    def freeze(self) -> None:
        """Make it one of the log's snapshots. Settles it first if nobody has."""

    def close(self) -> None:
        """Drop it, unless it is frozen."""


class SnapshotSource(Protocol):
    """A snapshot of the log. Sizes and positions in bytes."""

    snapshot_id: OffsetAndEpoch

    @property
    def size(self) -> int: ...

    def read(self, position: int, max_size: int) -> bytes:
        """Bytes of it from `position`, fewer at its end."""
        ...


class RaftLog(Protocol):
    """The log of one partition and its snapshots. Offsets as everywhere; `end_offset` is exclusive."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot where the log is empty behind one, or 0."""
        ...

    @property
    def high_watermark(self) -> int: ...

    def append_as_leader(self, data: bytes, epoch: int) -> None:
        """Append one batch that this node made."""

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        """Append the batches that a leader of this epoch sent, up to the first that is of a later one. Raises DecodeError for damage; then
        nothing is appended."""

    def read(self, start_offset: int, max_size: int, *, committed: bool) -> bytes:
        """Batches from the one with `start_offset` on, the first of them whole; `committed`: below the high watermark only."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch up to `epoch` in the log; with none, its start (or the earliest snapshot's end)."""
        ...

    def initialize_leader_epoch(self, epoch: int) -> None:
        """A new epoch begins at the log's end."""

    def truncate_to(self, offset: int) -> None:
        """Drop all from `offset` on, which is not below the high watermark."""

    def truncate_to_latest_snapshot(self) -> bool:
        """If the latest snapshot is beyond the log, drop the whole log and begin behind it -> whether that was so."""
        ...

    def update_high_watermark(self, offset: int) -> None:
        """All below `offset` is committed."""

    def start_flush(self) -> bool:
        """Begin to make durable what was appended so far -> whether it is durable already.

        Otherwise the owner calls `RaftNode.on_flushed` when it is. There is one flush at a time.
        """
        ...

    def maybe_clean(self, now_ms: int) -> bool:
        """Delete old snapshots and the segments below them, as the retention settings allow."""
        ...

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSink | None:
        """Begin a snapshot; None if it is there already."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSource | None:
        """A frozen snapshot, None if there is none of this id."""
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...


class EndKind(Enum):
    """How a leader judges a follower's end of log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class ValidatedEnd(NamedTuple):
    """The kind, and where the follower continues: at the end of the diverging epoch, or with the snapshot to fetch."""

    kind: EndKind
    end: OffsetAndEpoch


def end_of(log: RaftLog) -> OffsetAndEpoch:
    """The end of a log, as votes compare it."""
    return OffsetAndEpoch(offset=log.end_offset, epoch=log.last_fetched_epoch)


def validate_end(log: RaftLog, offset: int, epoch: int) -> ValidatedEnd:
    """Whether a log that ends at `offset` with a record of `epoch` is a beginning of this one."""
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
    """Cut this log where it leaves the leader's, whose end of an epoch up to ours is `end` -> the new end offset."""
    if end.epoch == 0:
        offset = min(end.offset, log.end_offset)
    else:
        local = log.end_offset_for_epoch(end.epoch)
        offset = min(local.offset, end.offset) if local.epoch == end.epoch else local.offset
    log.truncate_to(offset)
    return offset
