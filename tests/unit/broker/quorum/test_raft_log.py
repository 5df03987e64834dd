"""The metadata log on files: append, read, cut, snapshots and their files, retention, and what a start finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kops.broker.quorum.raft_log import METADATA_DIR, KafkaRaftLog, MetadataLogSettings
from kops.errors import DecodeError
from kops.files import Files, MemoryFiles, OsFiles
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.log import EndKind, validate_end
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.records import BatchBuilder, read_batches
from kops.storage.failures.load_errors import LoadError
from kops.storage.scheduler import Scheduler

ROOT = "/data"
DIRECTORY = f"{ROOT}/{METADATA_DIR}"


def batch(base_offset: int, epoch: int, values: int = 1, *, size: int = 10, time_ms: int = 1_000) -> bytes:
    """Return a batch as a leader makes it."""
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch)
    for number in range(values):
        builder.append(time_ms, None, bytes([number]) * size)
    return builder.build()


class Bench:
    """A log in memory, its scheduler and its clock."""

    def __init__(self, settings: MetadataLogSettings | None = None, files: Files | None = None, root: str = ROOT) -> None:
        self.now_ms = 1_000_000
        self.root = root
        self.files = MemoryFiles(now_ms=lambda: self.now_ms) if files is None else files
        if files is None:
            self.files.mkdir(root)
        self.settings = settings or MetadataLogSettings()
        self.open()

    def open(self) -> KafkaRaftLog:
        """Open the log, as a start does."""
        self.scheduler = Scheduler(lambda: self.now_ms)
        self.log = KafkaRaftLog.open(self.files, self.root, self.settings, now_ms=lambda: self.now_ms, scheduler=self.scheduler)
        return self.log

    def append(self, count: int, epoch: int, *, values: int = 1, size: int = 10) -> None:
        """Append this many batches."""
        for _ in range(count):
            self.log.append_as_leader(batch(self.log.end_offset, epoch, values, size=size), epoch)

    def snapshot(self, offset: int, epoch: int, *, time_ms: int = 0, size: int = 0) -> OffsetAndEpoch:
        """Write and freeze a snapshot."""
        snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
        sink = self.log.create_snapshot(snapshot_id)
        assert sink is not None
        writer = SnapshotWriter(sink, time_ms, 0, None, self.now_ms)
        writer.append([bytes(size)], self.now_ms)
        writer.freeze(self.now_ms)
        return snapshot_id

    def checkpoints(self) -> list[str]:
        """Return the names of the snapshots' files."""
        return [name for name in self.files.list(DIRECTORY) if ".checkpoint" in name]


def test_an_empty_log() -> None:
    bench = Bench()
    log = bench.log
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_fetched_epoch) == (0, 0, 0, 0)
    assert log.latest_snapshot_id is log.earliest_snapshot_id is None
    assert log.read(0, 100, committed=False) == b""
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(offset=0, epoch=0)
    assert not log.truncate_to_latest_snapshot()
    assert not log.maybe_clean(bench.now_ms)
    bench.scheduler.run_due()
    log.close()
    assert "partition.metadata" in bench.files.list(DIRECTORY)
    assert b"AAAAAAAAAAAAAAAAAAAAAQ" in bench.files.read_all(f"{DIRECTORY}/partition.metadata")


def test_appends_are_read_back() -> None:
    """A leader and a follower read back what they appended, and only committed batches if asked for these."""
    leader, follower = Bench().log, Bench().log
    for epoch, offset in ((1, 0), (1, 2), (4, 4)):
        leader.append_as_leader(batch(offset, epoch, 2), epoch)
    data = leader.read(0, 1 << 20, committed=False)
    assert [(each.base_offset, each.partition_leader_epoch) for each in read_batches(data)] == [(0, 1), (2, 1), (4, 4)]
    follower.append_as_follower(data, 4)
    assert follower.read(0, 1 << 20, committed=False) == data
    assert (follower.end_offset, follower.last_fetched_epoch) == (6, 4)
    assert follower.read(0, 1 << 20, committed=True) == b""
    follower.update_high_watermark(4)
    assert [each.base_offset for each in read_batches(follower.read(0, 1 << 20, committed=True))] == [0, 2]
    assert [each.base_offset for each in read_batches(follower.read(3, 1, committed=False))] == [2]
    follower.update_high_watermark(100)
    assert follower.high_watermark == 6


def test_a_follower_takes_what_is_whole() -> None:
    """A follower takes no batch of a later epoch, nothing of a damaged set, and nothing that is cut off."""
    log = Bench().log
    log.append_as_follower(batch(0, 1) + batch(1, 2) + batch(2, 3), 2)
    assert (log.end_offset, log.last_fetched_epoch) == (2, 2)
    damaged = bytearray(batch(3, 2))
    damaged[-1] ^= 1
    for data in (batch(2, 2) + bytes(damaged), batch(2, 3), batch(2, 2)[:-1]):
        with pytest.raises(DecodeError):
            log.append_as_follower(data, 2)
        assert log.end_offset == 2
    log.append_as_follower(batch(2, 2) + batch(3, 2)[:-1], 2)
    assert log.end_offset == 3
    for append in (log.append_as_follower, log.append_as_leader):
        with pytest.raises(LoadError, match="empty record set"):
            append(b"", 2)


def test_epochs_and_cuts() -> None:
    bench = Bench()
    log = bench.log
    bench.append(3, 1)
    bench.append(2, 3)
    assert log.end_offset_for_epoch(1) == log.end_offset_for_epoch(2) == OffsetAndEpoch(offset=3, epoch=1)
    assert log.end_offset_for_epoch(3) == log.end_offset_for_epoch(9) == OffsetAndEpoch(offset=5, epoch=3)
    assert validate_end(log, 4, 1).kind is EndKind.DIVERGING
    log.initialize_leader_epoch(7)
    assert log.last_fetched_epoch == 7
    log.update_high_watermark(3)
    with pytest.raises(LoadError, match="below the current high watermark 3"):
        log.truncate_to(2)
    log.truncate_to(4)
    assert (log.end_offset, log.last_fetched_epoch) == (4, 3)


def test_a_start_finds_what_was_there() -> None:
    bench = Bench(MetadataLogSettings(internal_segment_bytes=300))
    bench.append(20, 1, size=50)
    bench.append(3, 2)
    assert len(bench.log.unified.segments) > 3
    bench.log.update_high_watermark(20)
    bench.snapshot(20, 1)
    data = [bench.log.read(offset, 1 << 20, committed=False) for offset in range(23)]
    for clean in (True, False):
        if clean:
            bench.log.close()
        log = bench.open()
        assert (log.start_offset, log.end_offset, log.last_fetched_epoch, log.high_watermark) == (0, 23, 2, 0)
        assert [log.read(offset, 1 << 20, committed=False) for offset in range(23)] == data
        assert log.latest_snapshot_id == OffsetAndEpoch(offset=20, epoch=1)


def test_a_snapshot_is_written_and_read_in_pieces() -> None:
    bench = Bench()
    bench.append(5, 2)
    bench.log.update_high_watermark(5)
    snapshot_id = OffsetAndEpoch(offset=5, epoch=2)
    sink = bench.log.create_snapshot(snapshot_id)
    other = bench.log.create_snapshot(snapshot_id)
    assert sink is not None
    assert other is not None
    assert bench.checkpoints() == [f"{5:020d}-{2:010d}-{number}.checkpoint.part" for number in range(2)]
    sink.append(b"some by")
    sink.append(b"tes")
    assert sink.size == 10
    assert bench.log.read_snapshot(snapshot_id) is None
    sink.freeze()
    sink.close()
    other.close()
    other.close()
    assert bench.checkpoints() == [f"{5:020d}-{2:010d}.checkpoint"]
    assert bench.files.stat(f"{DIRECTORY}/{bench.checkpoints()[0]}").mode == 0o400
    with pytest.raises(LoadError, match="Append is not supported"):
        sink.append(b"x")
    with pytest.raises(LoadError, match="Freeze is not supported"):
        sink.freeze()
    source = bench.log.read_snapshot(snapshot_id)
    assert source is not None
    assert source is bench.log.read_snapshot(snapshot_id)
    assert [source.read(at, 4) for at in (0, 4, 8, 10, 12)] == [b"some", b" byt", b"es", b"", b""]
    assert source.size == 10
    assert bench.log.create_snapshot(snapshot_id) is None


def test_a_snapshot_of_a_state_is_checked() -> None:
    bench = Bench()
    bench.append(2, 1, values=3)
    bench.log.update_high_watermark(6)
    bench.append(1, 1)
    for offset, epoch, reason in ((7, 1, "high-watermark"), (3, 2, "not valid"), (4, 1, "not batch aligned")):
        with pytest.raises(LoadError, match=reason):
            bench.log.create_new_snapshot(OffsetAndEpoch(offset=offset, epoch=epoch))
    sink = bench.log.create_new_snapshot(OffsetAndEpoch(offset=3, epoch=1))
    assert sink is not None
    sink.append(b"x")
    sink.freeze()
    bench.snapshot(6, 1)
    assert bench.log.delete_before_snapshot(OffsetAndEpoch(offset=6, epoch=1), "test")
    assert bench.log.create_new_snapshot(OffsetAndEpoch(offset=3, epoch=1)) is None


def test_a_snapshot_beyond_the_log_takes_its_place() -> None:
    """This happens at run time, or at the next start if the process ended in between."""
    for restarted in (False, True):
        bench = Bench()
        bench.append(3, 1)
        bench.snapshot(2, 1)
        latest = bench.snapshot(10, 4)
        if restarted:
            bench.open()
        else:
            assert bench.log.truncate_to_latest_snapshot()
        log = bench.log
        assert (log.start_offset, log.end_offset, log.high_watermark, log.last_fetched_epoch) == (10, 10, 10, 4)
        assert log.earliest_snapshot_id == log.latest_snapshot_id == latest
        assert log.end_offset_for_epoch(4) == latest
        assert [name[-8:] for name in bench.checkpoints()] == [".deleted", "eckpoint"]
        bench.now_ms += 60_000
        bench.scheduler.run_due()
        assert len(bench.checkpoints()) == 1
        log.append_as_follower(batch(10, 4), 4)
        assert log.end_offset == 11
        assert not log.truncate_to_latest_snapshot()


def test_retention_by_size() -> None:
    """Old snapshots are deleted, and the segments below the next one. The last snapshot stays, whatever its size."""
    bench = Bench(MetadataLogSettings(internal_segment_bytes=300, max_retention_bytes=2_000))
    bench.append(60, 1, size=50)
    bench.log.update_high_watermark(60)
    ids = [bench.snapshot(offset, 1, size=100) for offset in (10, 20, 50)]
    assert bench.log.unified.size > 4_000
    assert bench.log.read_snapshot(ids[0]) is not None
    assert bench.log.maybe_clean(bench.now_ms)
    assert bench.log.start_offset == 50
    assert bench.log.earliest_snapshot_id == ids[2]
    assert bench.log.unified.segments.base_offsets[0] <= 50 < bench.log.unified.segments.base_offsets[0] + 10
    assert not bench.log.maybe_clean(bench.now_ms)
    assert sum(name.endswith(".deleted") for name in bench.checkpoints()) == 2
    assert bench.log.read_snapshot(ids[0]) is None
    bench.now_ms += 60_000
    bench.scheduler.run_due()
    assert len(bench.checkpoints()) == 1
    assert validate_end(bench.log, 10, 1) == (EndKind.SNAPSHOT, ids[2])
    bench.log.close()
    log = bench.open()
    assert log.start_offset <= 50 < log.end_offset
    assert log.latest_snapshot_id == ids[2]


def test_retention_by_time() -> None:
    bench = Bench(MetadataLogSettings(max_retention_ms=5_000))
    bench.append(30, 1)
    bench.log.update_high_watermark(30)
    ids = [bench.snapshot(offset, 1, time_ms=time_ms) for offset, time_ms in ((5, 10_000), (10, 11_000), (20, 18_000), (30, 12_000))]
    assert not bench.log.maybe_clean(15_000)
    assert bench.log.maybe_clean(16_001)
    assert bench.log.start_offset == 20
    assert bench.log.earliest_snapshot_id == ids[2]
    never = Bench(MetadataLogSettings(max_retention_ms=-1, max_retention_bytes=-1))
    never.append(3, 1)
    never.log.update_high_watermark(3)
    for offset in (1, 2):
        never.snapshot(offset, 1)
    assert not never.log.maybe_clean(1 << 50)


def test_a_start_removes_what_is_unfinished() -> None:
    bench = Bench()
    bench.append(5, 1)
    bench.log.create_snapshot(OffsetAndEpoch(offset=3, epoch=1))
    for name in (f"{1:020d}-{1:010d}.checkpoint.deleted", f"{4:020d}-{1:010d}-8812937.checkpoint.part"):
        bench.files.write_all(f"{DIRECTORY}/{name}", b"")
    assert len(bench.checkpoints()) == 3
    bench.open()
    assert bench.checkpoints() == []
    bench.files.write_all(f"{DIRECTORY}/strange.checkpoint", b"")
    with pytest.raises(LoadError, match="strange"):
        bench.open()


def test_a_log_above_zero_needs_a_snapshot() -> None:
    bench = Bench()
    bench.snapshot(10, 4)
    bench.open()
    bench.log.close()
    bench.files.unlink(f"{DIRECTORY}/{10:020d}-{4:010d}.checkpoint")
    with pytest.raises(LoadError, match="Inconsistent snapshot state"):
        bench.open()


def open_files(directory: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    links = (os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}"))
    return [link for link in links if link.startswith(str(directory))]


def test_nothing_stays_open(tmp_path: Path) -> None:
    """A snapshot that was marked for deletion when the log is closed does not stay open, nor does a log that is rejected."""
    bench = Bench(MetadataLogSettings(internal_segment_bytes=300, max_retention_bytes=2_000), OsFiles(), str(tmp_path))
    bench.append(60, 1, size=50)
    bench.log.update_high_watermark(60)
    for offset in (10, 20, 50):
        bench.snapshot(offset, 1, size=100)
    assert bench.log.maybe_clean(bench.now_ms)
    assert len(open_files(tmp_path)) > 2
    bench.log.close()
    assert open_files(tmp_path) == []
    for path in tmp_path.rglob("*.checkpoint*"):
        path.unlink()
    with pytest.raises(LoadError, match="Inconsistent snapshot state"):
        bench.open()
    assert open_files(tmp_path) == []


def test_a_snapshot_that_is_gone() -> None:
    bench = Bench()
    snapshot_id = bench.snapshot(0, 0)
    bench.files.unlink(f"{DIRECTORY}/{bench.checkpoints()[0]}")
    assert bench.log.read_snapshot(snapshot_id) is None
    assert bench.log.latest_snapshot_id is None


def test_an_empty_log_that_a_snapshot_does_not_reach() -> None:
    """Kafka rejects this state, too."""
    bench = Bench()
    bench.snapshot(0, 0)
    assert bench.log.last_fetched_epoch == 0
    bench.snapshot(4, 2)
    with pytest.raises(LoadError, match="Expected the snapshot's end offset"):
        _ = bench.log.last_fetched_epoch


def test_after_a_kill_a_log_is_cut_at_its_snapshot() -> None:
    """The log starts again at its first segment, below the snapshot, and the cut removes the last epoch. Kafka's node ends here."""
    bench = Bench()
    bench.append(2, 1)
    latest = bench.snapshot(2, 1)
    bench.log.update_high_watermark(2)
    bench.log.delete_before_snapshot(latest, "test")
    assert bench.log.start_offset == 2
    bench.append(2, 1)
    bench.scheduler.run_due()  # writes the current epochs to the disk
    bench.open()
    assert (bench.log.start_offset, bench.log.end_offset) == (0, 4)
    bench.log.truncate_to(2)
    assert (bench.log.end_offset, bench.log.unified.latest_epoch, bench.log.last_fetched_epoch) == (2, None, 1)


def test_a_snapshot_without_its_header() -> None:
    bench = Bench()
    for offset, data in ((0, b""), (1, control.control_batch([control.snapshot_footer()], base_offset=0, epoch=1, now_ms=0))):
        sink = bench.log.create_snapshot(OffsetAndEpoch(offset=offset, epoch=0))
        assert sink is not None
        sink.append(data)
        sink.freeze()
        bench.snapshot(offset + 2, 0)
        with pytest.raises(DecodeError):
            bench.log.maybe_clean(bench.now_ms)
