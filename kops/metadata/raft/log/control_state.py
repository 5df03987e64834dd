"""The voters and kraft.version in the node's log and latest snapshot, whether committed or not. A voter set is valid as soon as its record
is in the log.

Source: Kafka's KRaftControlRecordStateMachine. Without a voters record the quorum is the static one (`controller.quorum.voters`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kops.errors import DecodeError
from kops.metadata.raft.log.control_records import quorum_changes
from kops.metadata.raft.log.history import LogHistory
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID, RaftLog, SnapshotSource
from kops.metadata.raft.voters.settings import MAX_BATCH_SIZE
from kops.metadata.raft.voters.voter_set import VoterSet
from kops.records import Batch, read_batches

_NOT_READ = -1


class ControlState:
    """The state of the quorum in the log, up to its end."""

    def __init__(self, static_voters: VoterSet, log: RaftLog) -> None:
        self._static_voters = static_voters
        self._log = log
        self._voters: LogHistory[VoterSet] = LogHistory()
        self._kraft_versions: LogHistory[int] = LogHistory()
        self._next_offset = _NOT_READ

    def update(self) -> None:
        """Read the records that were added to the log, or the snapshot that has replaced it. Raises DecodeError for damage."""
        self._maybe_load_snapshot()
        while self._next_offset < self._log.end_offset:
            for batch in read_batches(self._log.read(self._next_offset, MAX_BATCH_SIZE, committed=False)):
                self._replay(batch, None)
                self._next_offset = batch.last_offset + 1

    def _maybe_load_snapshot(self) -> None:
        snapshot_id = self._log.latest_snapshot_id
        snapshot = None if snapshot_id is None else self._log.read_snapshot(snapshot_id)
        if snapshot is not None and (self._next_offset == _NOT_READ or self._next_offset < self._log.start_offset):
            self._voters.clear()
            self._kraft_versions.clear()
            last_offset = snapshot.snapshot_id.offset - 1
            for batch in snapshot_batches(snapshot):
                self._replay(batch, last_offset)
            self._next_offset = last_offset + 1
        elif self._next_offset == _NOT_READ:
            self._next_offset = 0

    def _replay(self, batch: Batch, at_offset: int | None) -> None:
        for change in quorum_changes(batch):
            offset = change.offset if at_offset is None else at_offset
            if isinstance(change.value, VoterSet):
                self._voters.add_at(offset, change.value)
            else:
                self._kraft_versions.add_at(offset, change.value)

    def truncate_new_entries(self, end_offset: int) -> None:
        """Handle a truncation of the log at `end_offset`."""
        self._voters.truncate_new_entries(end_offset)
        self._kraft_versions.truncate_new_entries(end_offset)
        self._next_offset = min(self._next_offset, end_offset)

    def truncate_old_entries(self, start_offset: int) -> None:
        """Drop earlier values, which are no longer needed because there is a snapshot up to `start_offset`."""
        self._voters.truncate_old_entries(start_offset)
        self._kraft_versions.truncate_old_entries(start_offset)

    @property
    def last_voters(self) -> VoterSet:
        """The current voters."""
        last = self._voters.last
        return self._static_voters if last is None else last[1]

    @property
    def last_voters_offset(self) -> int | None:
        """The offset at which the voters were set: -1 if the directory was formatted with them, None if they are static."""
        last = self._voters.last
        return None if last is None else last[0]

    @property
    def kraft_version(self) -> int:
        """The current kraft.version."""
        last = self._kraft_versions.last
        return 0 if last is None else last[1]

    def voters_at(self, offset: int) -> VoterSet | None:
        """Return the voters that a record set at or before `offset`, or None for the static ones."""
        assert offset < self._next_offset, f"offset {offset} is not below {self._next_offset}"
        return self._voters.value_at_or_before(offset)

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version at `offset`."""
        assert offset < self._next_offset, f"offset {offset} is not below {self._next_offset}"
        return self._kraft_versions.value_at_or_before(offset) or 0


def snapshot_batches(snapshot: SnapshotSource) -> Iterator[Batch]:
    """Yield the batches of a snapshot, read in pieces and with their checksums verified. Raises DecodeError for damage and for a batch that
    is cut off.

    As in Kafka, the snapshot with which a directory is formatted may be cut off, because the first leader writes its contents to the log.
    """
    position, piece = 0, MAX_BATCH_SIZE
    while position < snapshot.size:
        data = snapshot.read(position, piece)
        batches = read_batches(data)
        if not batches:
            if position + len(data) >= snapshot.size or not data:
                if snapshot.snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
                    return
                raise DecodeError("the snapshot ends within a batch", code="torn-tail", position=position)
            piece *= 2
            continue
        yield from batches
        position += sum(batch.size for batch in batches)
