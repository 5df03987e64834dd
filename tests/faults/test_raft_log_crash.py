"""A metadata log that loses power at any moment. Flushed records and frozen snapshots are there, and the log opens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kops.broker.quorum.election_store import FileElectionStore
from kops.broker.quorum.raft_log import METADATA_DIR, KafkaRaftLog, MetadataLogSettings
from kops.files import CrashFiles, Files
from kops.files.crash import LOSSES, Loss
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.records import BatchBuilder, read_batches
from kops.storage.scheduler import Scheduler

ROOT = "/data"
NOW_MS = 1_700_000_000_000
SETTINGS = MetadataLogSettings(internal_segment_bytes=900, max_retention_bytes=2_500, delete_delay_ms=0)


@dataclass
class Mark:
    """The durable data after the first `operations` operations."""

    operations: int
    batches: dict[int, bytes] = field(default_factory=dict)
    end_offset: int = 0
    start_offset: int = 0
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    election: ElectionState | None = None


def opened(files: Files) -> tuple[KafkaRaftLog, Scheduler]:
    """Open the log as a start does."""
    scheduler = Scheduler(lambda: NOW_MS)
    return KafkaRaftLog.open(files, ROOT, SETTINGS, now_ms=lambda: NOW_MS, scheduler=scheduler), scheduler


class Life:
    """A leader's log with its snapshots and votes, and the durable data after each step."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng = random.Random(seed)
        self.files = CrashFiles(now_ms=lambda: NOW_MS)
        self.files.mkdir(ROOT)
        self.files.sync_dir("/")
        self.formatted = len(self.files.operations)
        self.log, self.scheduler = opened(self.files)
        self.elections = FileElectionStore(self.files, f"{ROOT}/{METADATA_DIR}")
        self.epoch, self.record_epoch = 1, 0
        self.written: dict[int, bytes] = {}
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.election: ElectionState | None = None
        self.marks: list[Mark] = []
        for _ in range(steps):
            self._step()
            self.scheduler.run_due()
            self._mark()

    def _step(self) -> None:
        kind = self.rng.randrange(10)
        if kind < 6:
            for _ in range(self.rng.randrange(1, 4)):
                offset = self.log.end_offset
                builder = BatchBuilder(base_offset=offset, partition_leader_epoch=self.epoch)
                for _ in range(self.rng.randrange(1, 3)):
                    builder.append(NOW_MS, None, self.rng.randbytes(self.rng.randrange(200)))
                self.written[offset] = builder.build()
                self.log.append_as_leader(self.written[offset], self.epoch)
                self.record_epoch = self.epoch
            self.log.flush()
            self.log.update_high_watermark(self.log.end_offset)
        elif kind == 6:
            self.epoch += 1
            self.election = ElectionState(self.epoch, self.rng.randrange(3), None, frozenset((0, 1, 2)))
            self.elections.write(self.election, 0)
            self.log.initialize_leader_epoch(self.epoch)
        elif kind == 7:
            self.log.maybe_clean(NOW_MS)
        else:
            self._snapshot(self.log.end_offset, self.record_epoch)

    def _snapshot(self, offset: int, epoch: int) -> None:
        snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
        sink = self.log.create_snapshot(snapshot_id)
        if sink is None:
            return
        writer = SnapshotWriter(sink, NOW_MS, 0, None, NOW_MS)
        writer.append([self.rng.randbytes(300)], NOW_MS)
        writer.freeze(NOW_MS)
        source = self.log.read_snapshot(snapshot_id)
        assert source is not None
        self.snapshots[snapshot_id] = source.read(0, source.size)

    def _mark(self) -> None:
        log = self.log
        kept = {id: data for id, data in self.snapshots.items() if log.read_snapshot(id) is not None}
        mark = Mark(len(self.files.operations), dict(self.written), log.end_offset, log.start_offset, kept, self.election)
        self.marks.append(mark)

    def crashes(self, count: int) -> Iterator[tuple[int, Mark, Mark]]:
        """Yield random moments of the life, with the durable data before and after the step of the moment."""
        empty = Mark(0)
        for at in sorted(self.rng.sample(range(self.formatted, len(self.files.operations) + 1), count)):
            before = max((mark for mark in self.marks if mark.operations <= at), key=lambda mark: mark.operations, default=empty)
            after = next((mark for mark in self.marks if mark.operations >= at), self.marks[-1])
            yield at, before, after


def check(disk: Files, before: Mark, after: Mark) -> None:
    """Check the log that a start finds on a disk."""
    log, _ = opened(disk)
    assert log.end_offset >= before.end_offset
    latest = max(before.snapshots, default=None)
    if latest is not None:
        assert log.latest_snapshot_id is not None
        assert log.latest_snapshot_id >= latest
    for snapshot_id, data in before.snapshots.items():
        source = log.read_snapshot(snapshot_id)
        # Cleaning in the next step may have removed the snapshot.
        assert source is not None or snapshot_id not in after.snapshots
        assert source is None or source.read(0, source.size) == data
    assert log.start_offset <= after.start_offset
    offset = log.start_offset
    while offset < log.end_offset:
        (batch, *_) = read_batches(log.read(offset, 1, committed=False))
        assert batch.buffer[batch.index : batch.index + batch.size] == after.batches[batch.base_offset]
        offset = batch.last_offset + 1
    election = FileElectionStore(disk, f"{ROOT}/{METADATA_DIR}").read()
    assert election in (before.election, after.election)
    log.close()


def run(seed: int, steps: int, crashes: int, losses: tuple[Loss, ...]) -> None:
    life = Life(seed, steps)
    for at, before, after in life.crashes(crashes):
        for loss in losses:
            check(life.files.after_power_loss(loss, seed=at, at=at), before, after)
        check(life.files.killed(at=at), before, after)


def test_a_power_loss_anywhere() -> None:
    for seed in range(2):
        run(seed, 30, 6, LOSSES)


@pytest.mark.slow
def test_many_power_losses() -> None:
    for seed in range(100, 104):
        run(seed, 60, 40, ("lost", "ordered", "random"))
