"""The log of a Raft node in memory. It records what is durable. A crash loses a part of the data that was not flushed and every snapshot
that is not frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.records import read_batches


class CrashError(Exception):
    """The process crashes here."""


class Entry(NamedTuple):
    """A batch."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    data: bytes


class MemorySnapshot:
    """A snapshot of a MemoryLog that is being written or read."""

    def __init__(self, log: MemoryLog, snapshot_id: OffsetAndEpoch, data: bytes = b"") -> None:
        self._log = log
        self.snapshot_id = snapshot_id
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def append(self, data: bytes) -> None:
        self.data += data

    def settle(self) -> None:
        pass

    def freeze(self) -> None:
        self._log.snapshots[self.snapshot_id] = self.data

    def close(self) -> None:
        pass

    def read(self, position: int, max_size: int) -> bytes:
        return self.data[position : position + max_size]


class MemoryLog:
    """A RaftLog in memory. `on_append(entry, epoch before it)` is called for every batch. `flushed_offset` is the end of the durable
    part.
    """

    def __init__(self, on_append: Callable[[Entry, int], None] | None = None) -> None:
        self.entries: list[Entry] = []
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.start_offset = 0
        self.flushed_offset = 0
        self.high_watermark = 0
        self.flushes_before_crash: int | None = None
        self.flush_aside: Callable[[], None] | None = None
        """Begins a flush that `end_flush` ends. If it is None, a flush ends at once."""
        self._flushing_to: int | None = None
        self.cuts = 0
        self.snapshots_taken_over = 0
        self._on_append = on_append
        self._initialized: tuple[int, int] | None = None

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else self.start_offset

    def _epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for entry in self.entries:
            if not found or entry.epoch > found[-1][0]:
                found.append((entry.epoch, entry.base_offset))
        if self._initialized is not None and self._initialized[1] == self.end_offset:
            found.append(self._initialized)
        return found

    @property
    def last_fetched_epoch(self) -> int:
        if self._initialized is not None and self._initialized[1] == self.end_offset:
            return self._initialized[0]
        if self.entries:
            return self.entries[-1].epoch
        latest = self.latest_snapshot_id
        assert latest is None or latest.offset == self.start_offset, f"an empty log at {self.start_offset} and snapshot {latest}"
        return 0 if latest is None else latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        epochs = self._epochs()
        if not epochs or epoch > epochs[-1][0]:
            return OffsetAndEpoch(offset=self.end_offset, epoch=self.last_fetched_epoch)
        if epoch == epochs[-1][0]:
            found = OffsetAndEpoch(offset=self.end_offset, epoch=epoch)
        elif epoch < epochs[0][0]:
            found = OffsetAndEpoch(offset=epochs[0][1], epoch=epoch)
        else:
            index = max(i for i, (each, _) in enumerate(epochs) if each <= epoch)
            found = OffsetAndEpoch(offset=epochs[index + 1][1], epoch=epochs[index][0])
        earliest = self.earliest_snapshot_id
        return earliest if earliest is not None and found.offset == earliest.offset and found.epoch == epoch else found

    def append_as_leader(self, data: bytes, epoch: int) -> None:
        self._append(data, epoch)

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        self._append(data, epoch)

    def _append(self, data: bytes, epoch: int) -> None:
        for batch in read_batches(data):
            if batch.partition_leader_epoch > epoch:
                return
            assert batch.base_offset == self.end_offset, f"a batch at {batch.base_offset} where the log ends at {self.end_offset}"
            latest = self.latest_snapshot_id
            before = self.entries[-1].epoch if self.entries else 0 if latest is None else latest.epoch
            raw = data[batch.index : batch.index + batch.size]
            entry = Entry(batch.base_offset, batch.last_offset + 1, batch.partition_leader_epoch, batch.crc, raw)
            self.entries.append(entry)
            if self._on_append is not None:
                self._on_append(entry, before)
        self._initialized = None

    def initialize_leader_epoch(self, epoch: int) -> None:
        self._initialized = (epoch, self.end_offset)

    def read(self, start_offset: int, max_size: int, *, committed: bool) -> bytes:
        found = b""
        for entry in self.entries:
            if entry.end_offset <= start_offset:
                continue
            if (committed and entry.end_offset > self.high_watermark) or (found and len(found) + len(entry.data) > max_size):
                break
            found += entry.data
        return found

    def truncate_to(self, offset: int) -> None:
        self.cuts += offset < self.end_offset
        assert offset >= self.high_watermark, f"a cut at {offset} below the high watermark {self.high_watermark}"
        self.entries = [entry for entry in self.entries if entry.end_offset <= offset]
        self._cut_flush()
        self._initialized = None

    def truncate_to_latest_snapshot(self) -> bool:
        latest = self.latest_snapshot_id
        if latest is None or OffsetAndEpoch(offset=self.end_offset, epoch=self.last_epoch) >= latest:
            return False
        self.snapshots_taken_over += self.end_offset < latest.offset
        self.entries = []
        self.start_offset = self.flushed_offset = self.high_watermark = latest.offset
        self.snapshots = {latest: self.snapshots[latest]}
        self._cut_flush()
        self._initialized = None
        return True

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or 0 if there is none."""
        return self.entries[-1].epoch if self.entries else 0

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset

    def start_flush(self) -> bool:
        assert self._flushing_to is None, "two flushes at once"
        self._flushing_to = self.end_offset
        if self.flush_aside is not None:
            self.flush_aside()
            return False
        self.end_flush()
        return True

    def end_flush(self) -> None:
        """End the flush. The batches that existed when it began and still exist are now durable."""
        if self.flushes_before_crash is not None:
            self.flushes_before_crash -= 1
            if self.flushes_before_crash < 0:
                raise CrashError
        assert self._flushing_to is not None, "no flush is under way"
        self.flushed_offset, self._flushing_to = max(self.flushed_offset, self._flushing_to), None

    def _cut_flush(self) -> None:
        self.flushed_offset = min(self.flushed_offset, self.end_offset)
        if self._flushing_to is not None:
            self._flushing_to = min(self._flushing_to, self.end_offset)

    def maybe_clean(self, now_ms: int) -> bool:
        """If there are several snapshots, keep the latest one and the log after it."""
        latest = self.latest_snapshot_id
        if latest is None or len(self.snapshots) < 2 or latest.offset <= self.start_offset or latest.offset > self.high_watermark:
            return False
        self.start_offset = latest.offset
        self.entries = [entry for entry in self.entries if entry.end_offset > latest.offset]
        self.flushed_offset = max(self.flushed_offset, self.start_offset)
        self.snapshots = {latest: self.snapshots[latest]}
        return True

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> MemorySnapshot | None:
        return None if snapshot_id in self.snapshots else MemorySnapshot(self, snapshot_id)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> MemorySnapshot | None:
        data = self.snapshots.get(snapshot_id)
        return None if data is None else MemorySnapshot(self, snapshot_id, data)

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def crash(self, draw: Callable[[int], int]) -> None:
        """Lose a part of what was not flushed and everything that was only in memory. Then load the log as KafkaRaftLog does."""
        unsynced = [entry for entry in self.entries if entry.end_offset > self.flushed_offset]
        kept = draw(len(unsynced) + 1)
        self.entries = self.entries[: len(self.entries) - len(unsynced) + kept]
        self.flushed_offset = self.end_offset
        self.high_watermark = self.start_offset
        self.flushes_before_crash = self._flushing_to = None
        self._initialized = None
        self.truncate_to_latest_snapshot()
