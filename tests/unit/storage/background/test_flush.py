"""A flush in two halves: what is synced, how far it counts when the log changes meanwhile, and what happens to its handles."""

from __future__ import annotations

import errno

import pytest

from kops.files import MemoryFiles
from kops.files.faulty import FaultyFiles
from kops.storage.background.flush import Flush
from kops.storage.failures.load_errors import KafkaStorageError
from tests.support.logs.twins.open_log import DIRECTORY, OpenLog, batch
from tests.support.logs.twins.side_threads import SideThreads

SIZE = len(batch())


class TestFlush:
    def files(self, **faults: int) -> FaultyFiles:
        memory = MemoryFiles()
        memory.mkdir("/logs")
        for name in "ab":
            memory.open(f"/logs/{name}", "create").close()
        return FaultyFiles(memory, **faults)

    def flush(self, files: FaultyFiles, directory: str | None = "/logs") -> Flush:
        flush = Flush(files, 10)
        for name in "ab":
            flush.add(files.open(f"/logs/{name}", "rw"))
        flush.add(None)
        if directory is not None:
            flush.add_directory(directory)
        return flush

    def test_it_syncs_in_order_the_directory_last(self) -> None:
        files = self.files()
        flush = self.flush(files)
        flush.add_first(lambda: files.operations.append("first"))
        flush.run()
        assert files.operations == ["first", "sync /logs/a", "sync /logs/b", "sync_dir /logs"]
        assert not flush.is_void

    def test_a_file_that_is_renamed_or_removed_meanwhile_is_synced(self) -> None:
        files = self.files()
        flush = self.flush(files)
        files.rename("/logs/a", "/logs/c")
        files.unlink("/logs/b")
        files.operations.clear()
        flush.run()
        assert files.operations == ["sync /logs/a", "sync /logs/b", "sync_dir /logs"]

    def test_a_failed_sync_comes_out_and_ends_it(self) -> None:
        files = self.files(at=1, error=errno.EIO)
        with pytest.raises(OSError, match="sync /logs/a"):
            self.flush(files).run()
        assert files.operations == ["sync /logs/a"]

    def test_what_comes_first_may_fail(self) -> None:
        def fail() -> None:
            raise KafkaStorageError("no epochs")

        files = self.files()
        flush = self.flush(files)
        flush.add_first(fail)
        with pytest.raises(KafkaStorageError, match="no epochs"):
            flush.run()
        assert files.operations == []

    def test_it_is_void_where_its_directory_is_gone(self) -> None:
        flush = self.flush(self.files(), "/gone")
        flush.run()
        assert flush.is_void

    def test_a_cut_only_lowers_what_it_counts_for(self) -> None:
        flush = self.flush(self.files())
        flush.cut(20)
        assert flush.offset == 10
        flush.cut(4)
        flush.cut(7)
        assert flush.offset == 4

    def test_closed_before_it_is_run_it_does_nothing(self) -> None:
        files = self.files()
        flush = self.flush(files)
        handles = list(flush._handles)
        flush.close()
        flush.close()
        flush.run()
        assert (files.operations, flush.is_void) == ([], True)
        for handle in handles:
            with pytest.raises(OSError, match="Bad file descriptor"):
                handle.sync()

    def test_closed_while_it_runs_it_goes_on(self) -> None:
        files = self.files()
        flush = self.flush(files)
        flush.add_first(flush.close)
        flush.run()
        assert len(files.operations) == 3
        assert not flush.is_void


class TestOfALog:
    """`UnifiedLog.flush_aside`: the recovery point moves when the end of the flush is reported."""

    def open(self) -> OpenLog:
        log = OpenLog(threads=SideThreads())
        # The epoch's file is written before anything else.
        log.log.assign_epoch_start_offset(0, 0)
        self.threads(log).run()
        return log

    def threads(self, log: OpenLog) -> SideThreads:
        assert log.threads is not None
        return log.threads

    def test_the_recovery_point_moves_at_the_end(self) -> None:
        log = self.open()
        log.append(batch(3))
        log.log.flush_aside(3)
        log.append()
        self.threads(log).work()
        assert log.log.recovery_point == 0
        self.threads(log).tell()
        assert log.log.recovery_point == 3

    def test_epochs_may_be_written_while_the_directory_is_renamed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A start renames stray replicas in side threads. The loop may hear of a failed write before the new name is noted."""
        log = self.open()
        rename = log.files.rename

        def rename_late(old: str, new: str) -> None:
            log.log.assign_epoch_start_offset(1, 0)
            rename(old, new)
            with monkeypatch.context() as gone:
                gone.setattr(log.files, "write_atomic", missing)
                self.threads(log).run()

        def missing(path: str, data: bytes) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

        monkeypatch.setattr(log.files, "rename", rename_late)
        log.log.rename_dir("orders-0.0123-stray", should_reinitialize=False)
        assert log.log.directory.endswith("-stray")
        assert not log.failures.offline

    def test_a_second_one_waits_for_the_first(self) -> None:
        log = self.open()
        log.append(batch(3))
        log.log.flush_aside(3)
        log.append()
        log.log.flush_aside(4)
        assert len(self.threads(log).begun) == 1
        self.threads(log).work()
        self.threads(log).tell()
        assert (log.log.recovery_point, len(self.threads(log).begun)) == (3, 1)
        self.threads(log).run()
        assert log.log.recovery_point == 4

    def test_what_is_cut_and_appended_again_is_not_flushed(self) -> None:
        log = self.open()
        log.append(batch(1), replicated=False)
        log.append(batch(1), replicated=False)
        log.log.flush_aside(2)
        log.log.truncate_to(1)
        log.append(batch(1), replicated=False)
        self.threads(log).work()
        self.threads(log).tell()
        assert log.log.recovery_point == 1

    def test_a_cut_forgets_how_far_an_earlier_flush_went(self) -> None:
        log = self.open()
        log.append(batch(5), replicated=False)
        log.log.flush_aside(5)
        self.threads(log).run()
        log.log.truncate_to(2)
        log.append(batch(1), replicated=False)
        log.append(batch(2), replicated=False)
        log.log.flush_aside(3)
        self.threads(log).run()
        assert log.log.recovery_point == 3

    def test_a_log_that_begins_anew_is_not_flushed(self) -> None:
        log = self.open()
        log.append(batch(10))
        log.log.flush_aside(10)
        log.log.truncate_fully_and_start_at(4)
        log.append(batch(10))
        self.threads(log).work()
        self.threads(log).tell()
        assert log.log.recovery_point == 4

    def test_a_roll_meanwhile_leaves_its_indexes_to_the_next_flush(self) -> None:
        """The roll adds to the time index. If the recovery point passed it, nobody would sync the index any more."""
        log = self.open()
        log.append()
        log.log.flush_aside(1)
        log.log.roll()
        index = next(iter(log.log.segments)).time_index
        self.threads(log).work()
        self.threads(log).tell()
        assert log.log.recovery_point == 0
        log.run()
        self.threads(log).run()
        assert log.log.recovery_point == 1
        assert index.begin_force() is None

    def test_a_snapshot_is_synced_with_the_flush_also_behind_a_new_name(self) -> None:
        files = FaultyFiles(MemoryFiles())
        log = OpenLog(files, threads=SideThreads())
        log.append(batch(producer_id=1, sequence=0))
        log.log.roll()
        log.log.rename_dir("t-1")
        log.log.flush_aside(1)
        self.threads(log).run()
        assert log.log.recovery_point == 1
        assert "sync /logs/t-1/00000000000000000001.snapshot" in files.operations

    def test_a_snapshot_that_no_flush_follows_is_synced_at_once(self) -> None:
        files = FaultyFiles(MemoryFiles())
        log = OpenLog(files)
        log.append(batch(producer_id=1, sequence=0))
        log.log.flush(force_flush_active_segment=False)
        files.operations.clear()
        log.log.roll()
        assert f"sync {DIRECTORY}/00000000000000000001.snapshot" in files.operations

    def test_behind_a_new_name_of_its_directory_it_is_done_again(self) -> None:
        log = self.open()
        log.append()
        log.log.flush_aside(1)
        log.log.rename_dir("t-1")
        self.threads(log).work()
        self.threads(log).tell()
        assert (log.log.recovery_point, len(self.threads(log).begun)) == (0, 1)
        self.threads(log).run()
        assert log.log.recovery_point == 1
        assert not log.failures.offline

    def test_a_directory_that_is_gone_without_a_new_name_is_a_failure(self) -> None:
        files = FaultyFiles(MemoryFiles())
        log = OpenLog(files, threads=SideThreads())
        log.append()
        self.threads(log).run()
        log.log.flush_aside(1)
        files.base.rename(DIRECTORY, "/logs/elsewhere")
        self.threads(log).run()
        assert log.log.recovery_point == 0
        assert log.failures.has_offline("/logs")

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_failed_sync_takes_the_directory_offline(self, is_deleted: bool) -> None:
        """This also holds for a log that was deleted meanwhile, because others are on the same disk."""
        files = FaultyFiles(MemoryFiles())
        log = OpenLog(files, threads=SideThreads())
        log.append()
        self.threads(log).run()
        log.log.flush_aside(1)
        files.at, files.error = len(files.operations) + 1, errno.EIO
        self.threads(log).work()
        if is_deleted:
            log.log.delete_aside(log.scheduler)
        self.threads(log).tell()
        assert log.failures.has_offline("/logs")
        assert log.log.recovery_point == 0

    def test_a_closed_log_lets_go_of_what_does_not_run(self) -> None:
        log = self.open()
        log.append()
        log.log.flush_aside(1)
        log.log.close_handlers()
        self.threads(log).run()
        assert log.log.recovery_point == 0
        assert not log.failures.offline

    def test_epochs_are_on_the_disk_before_the_recovery_point_moves(self) -> None:
        log = OpenLog(threads=SideThreads())
        log.append(epoch=3)
        # The write of the epochs is queued and has not begun.
        assert log.files.read_all(f"{DIRECTORY}/leader-epoch-checkpoint") == b""
        log.log.maybe_increment_log_start_offset(1)
        assert log.log.recovery_point == 1
        assert log.files.read_all(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"

    def test_epochs_of_a_directory_that_is_gone_are_a_failure(self) -> None:
        files = FaultyFiles(MemoryFiles())
        log = OpenLog(files, threads=SideThreads())
        log.append(epoch=3)
        files.base.rename(DIRECTORY, "/logs/elsewhere")
        self.threads(log).run()
        assert log.failures.has_offline("/logs")

    @pytest.mark.parametrize("is_directory_first", [False, True])
    def test_two_threads_that_remove_the_same_files(self, is_directory_first: bool) -> None:
        """Files that retention has marked are deleted at the same time as the log's directory."""
        log = OpenLog(threads=SideThreads(), internal_segment_bytes=SIZE)
        for _ in range(3):
            log.append()
        local = log.log._local
        segment = next(iter(local.segments))
        paths = list(log.files.walk(DIRECTORY))
        remove_segment, remove_log = segment.begin_delete(), local.begin_delete()
        first, second = (remove_log, remove_segment) if is_directory_first else (remove_segment, remove_log)
        exists, walk = log.memory.exists, log.memory.walk
        # The second thread looks before the first one has removed anything.
        log.memory.exists, log.memory.walk = lambda path: True, lambda path: iter(paths)  # type: ignore[method-assign]
        first()
        second()
        log.memory.exists, log.memory.walk = exists, walk  # type: ignore[method-assign]
        assert not log.files.exists(DIRECTORY)
