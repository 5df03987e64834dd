"""Reads of a log that fail with EIO. Kafka iterates over batches in a way that turns them into a KafkaException
(RecordBatchIterator.makeNext), so no load takes them for the end of the good batches, and no directory goes offline. Only the cleaner's
second pass reads without that iterator and takes its directory offline (LogCleaner.cleanLog).
"""

from __future__ import annotations

import errno
from pathlib import PurePosixPath

import pytest

from kops.config.topic import topic_config
from kops.files.crash import CrashFiles
from kops.records import BatchBuilder
from kops.storage.cleaning.log_cleaner import CleanerConfig, LogCleaner
from kops.storage.failures.load_errors import KAFKA_EXCEPTION, LoadError
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.log_offsets import Isolation
from kops.storage.scheduler import Scheduler
from kops.storage.segments.recovery import rebuild_indexes
from kops.storage.unified_log import UnifiedLog
from tests.support.logs.twins.cleaning import NOW_MS, SETTINGS

DIRECTORY = "/a/t-0"
SEGMENTS = 4


class Disk(CrashFiles):
    """A disk with a log of `SEGMENTS` segments that have the same three keys. `good` more reads of log files succeed."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: NOW_MS)
        self.good: int | None = None
        self.mkdir("/a")
        self.mkdir(DIRECTORY)
        offset = 0
        for _ in range(SEGMENTS):
            builder = BatchBuilder(base_offset=offset, producer_id=1, producer_epoch=0, base_sequence=offset)
            name = f"{DIRECTORY}/{offset:020d}.log"
            for key in range(3):
                builder.append(NOW_MS - 1_000_000 + offset, b"%d" % key, b"v" * 50)
                offset += 1
            self.write_all(name, builder.build())
        self.read_fault = self._fails
        self.failures = LogDirFailureChannel()

    def _fails(self, path: str) -> int | None:
        if self.good is None or PurePosixPath(path).suffix != ".log":
            return None
        self.good -= 1
        return errno.EIO if self.good < 0 else None

    def open_log(self, *, clean: bool) -> UnifiedLog:
        """Load the log. After an unclean stop, recovery begins at offset 0."""
        log = UnifiedLog.open(
            self,
            DIRECTORY,
            topic_config({**SETTINGS, "segment.index.bytes": "120"}),
            now_ms=lambda: NOW_MS,
            scheduler=Scheduler(lambda: NOW_MS),
            failures=self.failures,
            had_clean_shutdown=clean,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def contents(self) -> dict[str, bytes]:
        """Return the contents of all log files."""
        self.good = None
        return {path: self.read_all(path) for path in self.walk("/a") if path.endswith(".log")}


@pytest.mark.parametrize("good", range(0, 12, 2))
def test_a_start_cuts_nothing_off_that_it_can_not_read(good: int) -> None:
    disk = Disk()
    before = disk.contents()
    disk.good = good
    with pytest.raises(LoadError) as caught:
        disk.open_log(clean=False)
    assert caught.value.exception == KAFKA_EXCEPTION
    assert caught.value.kind == "broker-does-not-start"
    assert disk.contents() == before
    assert disk.open_log(clean=False).log_end_offset == 3 * SEGMENTS


def test_a_fetch_that_can_not_read_is_an_unknown_error() -> None:
    disk = Disk()
    log = disk.open_log(clean=False)
    disk.good = 0
    with pytest.raises(LoadError) as caught:
        log.read(4, 1_000, Isolation.HIGH_WATERMARK)
    assert caught.value.exception == KAFKA_EXCEPTION
    assert not disk.failures.offline
    disk.good = None
    assert log.read(4, 1_000, Isolation.HIGH_WATERMARK).records is not None


def cleaner_of(disk: Disk, log: UnifiedLog, warnings: list[str]) -> LogCleaner:
    """Return a cleaner whose read buffer holds one batch."""
    config = CleanerConfig(dedupe_buffer_size=1 << 20, io_buffer_size=256)
    logs = {TopicPartition("t", 0): log}
    return LogCleaner(disk, ["/a"], logs, disk.failures, config, now_ms=lambda: NOW_MS, now_ns=lambda: 0, warn=warnings.append)


def test_a_log_whose_keys_can_not_be_read_is_uncleanable() -> None:
    disk, warnings = Disk(), list[str]()
    cleaner = cleaner_of(disk, disk.open_log(clean=False), warnings)
    before = disk.contents()
    disk.good = 0
    while cleaner.step() != cleaner.config.backoff_ms:
        pass
    assert "Marking partition t-0 as uncleanable" in warnings[0]
    assert cleaner.uncleanable_partitions_count("/a") == 1
    assert not disk.failures.offline
    assert disk.contents() == before


def test_a_copy_that_can_not_read_takes_the_directory_offline() -> None:
    disk, warnings = Disk(), list[str]()
    log = disk.open_log(clean=False)
    cleaner = cleaner_of(disk, log, warnings)
    before = disk.contents()
    while not any(path.endswith(".cleaned") for path in disk.walk("/a")):
        assert cleaner.step() != cleaner.config.backoff_ms
    disk.good = 0
    while not disk.failures.offline:
        assert cleaner.step() != cleaner.config.backoff_ms
    assert list(disk.failures.offline) == ["/a"]
    assert cleaner.uncleanable_partitions_count("/a") == 0
    after = disk.contents()
    assert {path: after[path] for path in before} == before


def test_indexes_of_a_log_that_can_not_be_read_are_not_rebuilt() -> None:
    """The tool raises an error and does not rebuild the indexes."""
    disk = Disk()
    disk.good = 0
    with disk.open(f"{DIRECTORY}/{0:020d}.log") as log, pytest.raises(OSError, match="Input/output error"):
        rebuild_indexes(log, 0)
