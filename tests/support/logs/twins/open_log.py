"""A `UnifiedLog` in memory with a clock that stands still, and batches that tests append to it."""

from __future__ import annotations

from typing import Any

from kops.config.topic import TopicConfig
from kops.files import Files, MemoryFiles
from kops.records import BatchBuilder
from kops.records.validation.validate import AppendOrigin
from kops.storage.background.work import SideWork
from kops.storage.log_append import LogAppendInfo
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.log_offsets import FetchedData
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog
from tests.support.logs.twins.side_threads import SideThreads

DIRECTORY = "/logs/t-0"
NOW = 1_700_000_000_000
VALUE = b"v" * 40


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    value: bytes = VALUE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    **fields: Any,
) -> bytes:
    """Return records of one timestamp, as a producer sends them."""
    if producer_id >= 0:
        fields.update(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    builder = BatchBuilder(**fields)
    for _ in range(count):
        builder.append(timestamp, b"k", value)
    return builder.build()


def marker(producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    """Return a marker that ends a transaction."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, control=True, transactional=True)
    builder.append_end_txn_marker(NOW, commit, coordinator_epoch)
    return builder.build()


class OpenLog:
    """A log and its surroundings. `now_ms` is the clock, which tests move; `warnings` has the log's warnings.

    With `threads` it has side threads.
    """

    def __init__(self, files: Files | None = None, *, draw: int = 0, threads: SideThreads | None = None, **config: Any) -> None:
        self.threads = threads
        self.now_ms = NOW
        self.draw = draw
        self.memory = MemoryFiles(now_ms=lambda: self.now_ms)
        self.files = self.memory if files is None else files
        if not self.files.exists("/logs"):
            self.files.mkdir("/logs")
        self.failures = LogDirFailureChannel()
        self.warnings: list[str] = []
        self.config = TopicConfig(**config)
        self.log = self.open()

    def open(self, **arguments: Any) -> UnifiedLog:
        """Open the directory. It may have been open before."""
        self.scheduler = Scheduler(lambda: self.now_ms)
        if self.threads is not None:
            self.scheduler.side_work = SideWork(self.threads.in_thread)
        self.log = UnifiedLog.open(
            self.files,
            DIRECTORY,
            self.config,
            now_ms=lambda: self.now_ms,
            scheduler=self.scheduler,
            failures=self.failures,
            draw_int=lambda: self.draw,
            warn=self.warnings.append,
            **arguments,
        )
        return self.log

    def append(self, data: bytes | None = None, *, replicated: bool = True, epoch: int = 0) -> LogAppendInfo:
        """Append as leader. With `replicated` the high watermark follows."""
        info = self.log.append_as_leader(batch() if data is None else data, epoch)
        if replicated:
            self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def begin(self, producer_id: int, sequence: int = 0, count: int = 1, *, epoch: int = 0) -> LogAppendInfo:
        """Append to a transaction. A new transaction is verified."""
        guard = self.log.maybe_start_transaction_verification(producer_id, sequence, epoch, supports_epoch_bump=False)
        data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        info = self.log.append_as_leader(data, 0, verification_guard=guard)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def end(self, producer_id: int, *, commit: bool, replicated: bool = True) -> LogAppendInfo:
        """End a transaction."""
        data = marker(producer_id, commit=commit)
        info = self.log.append_as_leader(data, 0, origin=AppendOrigin.COORDINATOR, transaction_version=0)
        if replicated:
            self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return self.files.list(self.log.directory)

    def run(self, later_ms: int = 0) -> None:
        """Let time pass and run the tasks that are due."""
        self.now_ms += later_ms
        self.scheduler.run_due()


def offsets(fetched: FetchedData) -> list[tuple[int, int]]:
    """Return the first and last offset of each batch that a read returned."""
    return [] if fetched.records is None else [(found.base_offset, found.last_offset) for found in fetched.records.batches()]
