"""The promises of Raft, which must hold over all nodes of a quorum at every moment. They are checked after every event."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.voters.replica import OffsetAndEpoch, ReplicaKey
from kops.records import Batch, read_batches
from tests.simulation.raft.raft_log import Entry

if TYPE_CHECKING:
    from tests.simulation.raft.raft_world import SimulatedNode


class PromiseError(AssertionError):
    """A promise was broken."""


def promise(holds: bool, what: str) -> None:
    """Raise PromiseError unless `holds` is true."""
    if not holds:
        raise PromiseError(what)


class Promises:
    """The events so far that later events must not contradict."""

    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.leader_high_watermarks: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.appended: dict[tuple[int, int], tuple[int, int]] = {}
        self.committed: dict[int, tuple[int, int, int]] = {}
        self.committed_end = 0
        self.states: dict[int, int] = {0: 0}
        self.epochs: dict[ReplicaKey, int] = {}

    def on_append(self, entry: Entry, epoch_before: int) -> None:
        """Check log matching: batches with the same offset and epoch are the same in all logs, and so are the epochs before them."""
        known = self.appended.setdefault((entry.base_offset, entry.epoch), (entry.crc, epoch_before))
        promise(known == (entry.crc, epoch_before), f"two logs differ at offset {entry.base_offset} in epoch {entry.epoch}")

    def on_persist(self, key: ReplicaKey, election: ElectionState) -> None:
        """Check that epochs do not go back and that a replica keeps its one vote in an epoch."""
        promise(election.epoch >= self.epochs.get(key, 0), f"{key} went back to epoch {election.epoch}")
        self.epochs[key] = election.epoch
        if election.voted_key is not None:
            self.on_vote(key, election.epoch, election.voted_key)

    def on_vote(self, key: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        """Check that a replica votes once in an epoch."""
        known = self.votes.setdefault((key, epoch), candidate)
        same = known.id == candidate.id and (None in (known.directory_id, candidate.directory_id) or known == candidate)
        promise(same, f"{key} voted for {known} and for {candidate} in epoch {epoch}")

    def on_granted(self, key: ReplicaKey, epoch: int, candidate: ReplicaKey, durable: ElectionState | None) -> None:
        """Check that a vote is durable when it is granted."""
        self.on_vote(key, epoch, candidate)
        voted = durable is not None and durable.epoch >= epoch and (durable.epoch > epoch or durable.voted_key is not None)
        promise(voted, f"{key} told a vote in epoch {epoch} that a crash could make it forget: {durable}")

    def on_committed(self, key: ReplicaKey, batches: list[Batch]) -> None:
        """Check that committed batches never change and are the same on all nodes."""
        for batch in batches:
            self.committed_end = max(self.committed_end, batch.last_offset + 1)
            fields = (batch.last_offset + 1, batch.partition_leader_epoch, batch.crc)
            known = self.committed.setdefault(batch.base_offset, fields)
            promise(known == fields, f"{key} was given {fields} at offset {batch.base_offset}, others {known}")

    def on_state(self, key: ReplicaKey, offset: int, state: int) -> None:
        """Check that all nodes that have read up to an offset, from a snapshot or from the log, have the same state."""
        promise(self.states.setdefault(offset, state) == state, f"{key} has another state at offset {offset}")

    def check(self, node: SimulatedNode, nodes: Iterable[SimulatedNode]) -> None:
        """Check the state of `node` after the last event."""
        assert node.raft is not None
        state = node.raft.state
        if not isinstance(state, LeaderState):
            return
        promise(self.leaders.setdefault(state.epoch, node.key) == node.key, f"two leaders in epoch {state.epoch}")
        before = self.leader_high_watermarks.get(state.epoch, -1)
        if before == -1:
            self.leader_high_watermarks[state.epoch] = 0
            self._check_complete(node)
        if state.high_watermark is not None and state.high_watermark != before:
            promise(state.high_watermark > before, f"the high watermark of epoch {state.epoch} fell to {state.high_watermark}")
            self.leader_high_watermarks[state.epoch] = state.high_watermark
            durable = sum(each.log.flushed_offset >= state.high_watermark for each in nodes if state.is_voter(each.key))
            promise(durable > len(state.voters) // 2, f"{state.high_watermark} is committed, durable on {durable} of {list(state.voters)}")

    def _check_complete(self, node: SimulatedNode) -> None:
        """Check that a new leader has everything that was ever committed."""
        log = node.log
        promise(log.end_offset >= self.committed_end, f"leader {node.key} ends at {log.end_offset}, {self.committed_end} is committed")
        for entry in log.entries:
            known = self.committed.get(entry.base_offset)
            if known is not None:
                same = known == (entry.end_offset, entry.epoch, entry.crc)
                promise(same, f"leader {node.key} has another batch at the committed offset {entry.base_offset}")


def fold(state: int, batches: Iterable[Batch]) -> int:
    """Return the state of a listener after these batches: a checksum of all values of data records so far."""
    for batch in batches:
        for record in batch.records() if not batch.is_control else ():
            state = zlib.crc32(record.value or b"", state)
    return state


def snapshot_state(data: bytes) -> int:
    """Return the state in a snapshot, which is the value of its one data record, or 0 if there is none."""
    values = [record.value or b"" for batch in read_batches(data) if not batch.is_control for record in batch.records()]
    return int(values[0]) if values else 0


def last_epoch(batches: list[Batch]) -> OffsetAndEpoch:
    """Return the end of committed batches, as the id of a snapshot."""
    return OffsetAndEpoch(offset=batches[-1].last_offset + 1, epoch=batches[-1].partition_leader_epoch)
