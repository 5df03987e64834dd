"""The logs of all partitions of one broker, in its log directories (Kafka LogManager).

`kops.storage.start.log_dirs` makes the decisions at startup; the forecast uses it as well. This module keeps the loaded logs, and creates,
moves, truncates, deletes, checkpoints and finally closes logs. The caller provides time, tasks and threads: `now_ms`, a `Scheduler`, and a
`Runner` that may run the jobs of several directories at once (a broker gives it `num.recovery.threads.per.data.dir` threads for each
directory).

    manager = LogManager(OsFiles(), check_meta_properties(…), now_ms=clock, scheduler=Scheduler(clock), new_id=lambda: uuid4().hex)
    manager.startup()
    log = manager.get_or_create_log(TopicPartition("orders", 0), is_new=True)
    …
    manager.shutdown(broker_epoch)
"""

from __future__ import annotations

import posixpath
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError, KopsError
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.formats.clean_shutdown import CleanShutdown, read_clean_shutdown, write_clean_shutdown
from kops.storage.formats.names import partition_dir_name
from kops.storage.local_log import draw_nothing, warn_nobody
from kops.storage.log_checkpoints import OffsetCheckpoints
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.manager.deletion import LogsToBeDeleted
from kops.storage.manager.live_log_dirs import LOST as LOST_DIR
from kops.storage.manager.live_log_dirs import UNASSIGNED, LiveLogDirs, LogDirsFailedError
from kops.storage.manager.settings import (
    DELETE_LOGS,
    HIGH_WATERMARKS,
    LOG_FLUSHER,
    LOG_RETENTION,
    LOG_STARTS,
    RECOVERY_POINTS,
    LogManagerConfig,
    TopicConfigs,
)
from kops.storage.manager.sliced import SlicedTask
from kops.storage.start.log_dirs import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    BrokerStart,
    LoadOptions,
    LogDirStart,
    PartitionStart,
    StartRefusedError,
    run_in_turn,
    start_log_dirs,
)
from kops.storage.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kops.config import TopicConfig
    from kops.files import Files
    from kops.storage.manager.cleaner_control import CleanerControl
    from kops.storage.scheduler import Scheduler, Task
    from kops.storage.start.log_dirs import Job, Runner, StrayRule

Logs = dict[TopicPartition, UnifiedLog]
RETENTION_SLICE: Final = 16
"""The number of segments of a log that one step of retention deletes. Each needs a few renames."""


class LogManager:
    """The logs by partition: `current_logs`, and `future_logs` for logs that are being moved to another directory of this broker.

    `new_id` returns the 32 hexadecimal digits for the name of a folder that is marked for deletion. `draw_int` and `warn` are those of
    `UnifiedLog.open`. `cleaner` may be set once the logs are loaded.
    """

    def __init__(
        self,
        files: Files,
        log_dirs: Sequence[LogDirStart],
        *,
        now_ms: Callable[[], int],
        scheduler: Scheduler,
        new_id: Callable[[], str],
        failures: LogDirFailureChannel | None = None,
        topics: TopicConfigs | None = None,
        config: LogManagerConfig | None = None,
        draw_int: Callable[[], int] = draw_nothing,
        warn: Callable[[str], None] = warn_nobody,
    ) -> None:
        """Create, check and lock the directories (from `check_meta_properties`, or a `LogDirStart(path)` for each).

        Raises StartRefusedError or LockHeldError. A directory that can't be used is offline from now on.
        """
        self.files = files
        self.now_ms = now_ms
        self.scheduler = scheduler
        self.new_id = new_id
        self.failures = LogDirFailureChannel() if failures is None else failures
        self.topics = TopicConfigs() if topics is None else topics
        self.config = LogManagerConfig() if config is None else config
        self.dirs = LiveLogDirs(files, log_dirs, self.failures)
        self.cleaner: CleanerControl | None = None
        self.current_logs: Logs = {}
        self.future_logs: Logs = {}
        self.stray_logs: Logs = {}
        self.to_be_deleted = LogsToBeDeleted(now_ms)
        self._checkpoints = OffsetCheckpoints(files, self.failures)
        self._preferred: dict[TopicPartition, str] = {}
        self._loaded: dict[str, UnifiedLog] = {}
        self._unreadable_high_watermarks: dict[str, str] = {}
        self._tasks: dict[str, Task] = {}
        self._retention = SlicedTask(scheduler, LOG_RETENTION.name, self._delete_old_segments)
        self._draw_int = draw_int
        self._warn = warn

    # the start --------------------------------------------------------------------------------------------------------------------

    @property
    def log_dirs(self) -> list[LogDirStart]:
        """The result of startup for each directory. During startup, `remaining_logs` and `remaining_segments` show its progress."""
        return list(self.dirs.starts.values())

    def broker_epoch_of_clean_shutdown(self) -> int | None:
        """The broker epoch of the last clean stop, or None unless all directories agree. Must be called before `startup`."""
        epochs = {self._broker_epoch(path) for path in self.dirs.paths}
        return epochs.pop() if len(epochs) == 1 else None

    def _broker_epoch(self, log_dir: str) -> int | None:
        if log_dir not in self.dirs.live:
            return None
        try:
            return read_clean_shutdown(self.files.read_all(posixpath.join(log_dir, CLEAN_SHUTDOWN))).broker_epoch
        except OSError:
            return None

    def startup(self, *, is_stray: StrayRule | None = None, run: Runner = run_in_turn) -> BrokerStart:
        """Load every log, recover the logs that were not closed cleanly, and mark stray replicas. Directories with an I/O error go offline.

        Raises StartRefusedError with Kafka's reason if a broker would exit. All files are then closed and all locks released.
        """
        options = LoadOptions(
            config=self.topics.of,
            now_ms=self.now_ms(),
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            is_stray=is_stray,
            load=self._load,
        )
        try:
            broker = start_log_dirs(self.files, self.log_dirs, options, run=run)
            if broker.outcome == "does-not-start":
                raise StartRefusedError(broker.reason)
            for start in broker.log_dirs:
                self._take_logs(start)
        except BaseException:
            for log in self._loaded.values():
                log.close_handlers()
            self.dirs.release_locks()
            raise
        self._loaded.clear()
        self.handle_failures()
        return broker

    def _load(self, partition: PartitionStart) -> str | None:
        def progress(remaining_segments: int) -> None:
            partition.remaining_segments = remaining_segments

        log = self._open(
            partition.path,
            self.topics.of(partition.name.topic),
            log_start_offset=partition.log_start_checkpoint,
            recovery_point=partition.recovery_point,
            had_clean_shutdown=partition.had_clean_shutdown,
            progress=progress,
        )
        partition.remaining_segments = 0
        self._loaded[partition.path] = log
        return log.topic_id

    def _open(
        self,
        path: str,
        config: TopicConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = True,
        topic_id: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> UnifiedLog:
        return UnifiedLog.open(
            self.files,
            path,
            config,
            now_ms=self.now_ms,
            scheduler=self.scheduler,
            failures=self.failures,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=had_clean_shutdown,
            topic_id=topic_id,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            producer_id_expiration_check_interval_ms=self.config.producer_id_expiration_check_interval_ms,
            max_transaction_timeout_ms=self.config.transaction_max_timeout_ms,
            verify_transactions=self.config.transaction_partition_verification_enable,
            draw_int=self._draw_int,
            warn=self._warn,
            progress=progress,
        )

    def _take_logs(self, start: LogDirStart) -> None:
        """Add the loaded logs of a directory to the tables."""
        if start.outcome != "started":
            for partition in start.partitions:
                log = self._loaded.get(partition.path)
                if log is not None:
                    log.close_handlers()
            error = start.error or OSError(start.reason)
            self.failures.maybe_add_offline_log_dir(self.files.absolute(start.path), start.reason or "", error)
            return
        for partition in start.partitions:
            log = self._loaded[partition.path]
            key = key_of(log)
            if partition.name.state == "delete":
                self.to_be_deleted.add(log)
            elif partition.outcome == "stray":
                self._set_stray(key, log, is_marked=partition.name.state == "stray")
            elif partition.name.state == "future":
                self.future_logs[key] = log
            else:
                self.current_logs[key] = log
                if partition.outcome == "not-served":
                    self._unreadable_high_watermarks[log.parent_dir] = partition.reason or ""
                elif partition.high_watermark is not None:
                    log.update_high_watermark(partition.high_watermark)

    def _set_stray(self, key: TopicPartition, log: UnifiedLog, *, is_marked: bool) -> None:
        self.stray_logs[key] = log
        if not is_marked:
            try:
                log.rename_dir(partition_dir_name(key.topic, key.partition, "stray", self.new_id()), should_reinitialize=False)
            except KafkaStorageError:
                return  # the log has reported the failure, and the directory with all its logs goes offline

    # logs -------------------------------------------------------------------------------------------------------------------------

    @property
    def all_logs(self) -> list[UnifiedLog]:
        """All current and future logs."""
        return [*self.current_logs.values(), *self.future_logs.values()]

    def get_log(self, key: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """The partition's log, or None if it has none online."""
        return (self.future_logs if is_future else self.current_logs).get(key)

    def logs_of_topic(self, topic: str) -> list[UnifiedLog]:
        """The current and future logs of a topic."""
        return [log for log in self.all_logs if log.topic == topic]

    def logs_in_dir(self, log_dir: str) -> Logs:
        """The logs in a directory. If a partition has both logs there, it is the future one."""
        return self._logs_by_dir().get(log_dir, {})

    def _logs_by_dir(self) -> dict[str, Logs]:
        by_dir: dict[str, Logs] = {}
        for logs in (self.current_logs, self.future_logs):
            for key, log in logs.items():
                by_dir.setdefault(log.parent_dir, {})[key] = log
        return by_dir

    # new logs ---------------------------------------------------------------------------------------------------------------------

    def prefer_log_dir(self, key: TopicPartition, log_dir: str) -> None:
        """Prefer `log_dir` for the partition's next log or future log, unless one of its logs is already there."""
        logs = (self.get_log(key), self.get_log(key, is_future=True))
        if all(log is None or log.parent_dir != log_dir for log in logs):
            self._preferred[key] = log_dir

    def get_or_create_log(
        self,
        key: TopicPartition,
        *,
        is_new: bool = False,
        is_future: bool = False,
        topic_id: str | None = None,
        directory_id: str | None = None,
    ) -> UnifiedLog:
        """Return the partition's log, creating it if necessary.

        A new log goes to the preferred directory, else to the one with the id, else to the one with the fewest logs. Raises
        KafkaStorageError if the log may be in an offline directory (unless `is_new`) or if no directory can take it, ApiError
        INCONSISTENT_TOPIC_ID if the log belongs to another topic, and LoadError if its folder exists and can't be loaded. Raises KopsError
        if the high watermarks of its directory are unknown, because they must not be guessed.
        """
        log = self.get_log(key, is_future=is_future)
        if log is None:
            if not is_new and self.dirs.offline:
                offline = ",".join(self.dirs.offline)
                raise KafkaStorageError(f"Can not create log for {name_of(key)} because log directories {offline} are offline")
            log = self._create(key, self._dirs_for(key, directory_id, is_future=is_future), topic_id, is_future=is_future)
        if log.parent_dir in self._unreadable_high_watermarks:
            raise KopsError(self._unreadable_high_watermarks[log.parent_dir])
        if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
            raise ApiError(
                "INCONSISTENT_TOPIC_ID",
                f"Tried to assign topic ID {topic_id} to log for topic partition {name_of(key)},"
                f"but log already contained topic ID {log.topic_id}",
            )
        return log

    def _dirs_for(self, key: TopicPartition, directory_id: str | None, *, is_future: bool) -> list[str]:
        preferred = self._preferred.get(key)
        if preferred is None and directory_id is not None and directory_id not in (UNASSIGNED, LOST_DIR):
            preferred = self.dirs.path_of(directory_id)
        if is_future:
            current = self.get_log(key)
            if preferred is None:
                raise KopsError(f"Can not create the future log for {name_of(key)} without having a preferred log directory")
            if current is None or current.parent_dir == preferred:
                raise KopsError(f"Can not create the future log for {name_of(key)} in the current log directory of this partition")
        if preferred is not None:
            return [preferred]
        return self.dirs.by_fewest_logs(Counter(log.parent_dir for log in self.all_logs))

    def _create(self, key: TopicPartition, log_dirs: list[str], topic_id: str | None, *, is_future: bool) -> UnifiedLog:
        name = partition_dir_name(key.topic, key.partition, "future", self.new_id()) if is_future else name_of(key)
        path = self.dirs.make_partition_dir(log_dirs, name)
        try:
            log = self._open(path, self.topics.of(key.topic), topic_id=topic_id)
        except LoadError as error:
            if error.kind == "log-dir-offline":
                self.failures.maybe_add_offline_log_dir(posixpath.dirname(path), f"Error while creating log for {path}", error)
            raise
        (self.future_logs if is_future else self.current_logs)[key] = log
        self._preferred.pop(key, None)
        return log

    # settings ---------------------------------------------------------------------------------------------------------------------

    def update_topic_config(self, topic: str) -> None:
        """Pass changed settings of a topic to its logs. Raises UsageError for a value that is not allowed."""
        config = self.topics.of(topic)
        for log in self.logs_of_topic(topic):
            former = log.update_config(config)
            if former.compact and not config.compact and self.cleaner is not None:
                self.cleaner.abort_cleaning(key_of(log))

    def update_broker_config(self, broker: Mapping[str, str]) -> None:
        """Apply changed broker settings, which are the defaults of all topics. If this raises UsageError, nothing has changed."""
        self.topics.set_broker(broker)
        for log in self.all_logs:
            log.update_config(self.topics.of(log.topic))

    # truncating -------------------------------------------------------------------------------------------------------------------

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, is_future: bool = False) -> None:
        """Truncate each log to its offset, and write the recovery points of the directories. Partitions without a log are ignored."""
        affected: dict[str, None] = {}
        for key, offset in offsets.items():
            log = self.get_log(key, is_future=is_future)
            if log is None:
                continue
            cleaner = self.cleaner if not is_future and offset < log.segments.active.base_offset else None
            if cleaner is not None:
                cleaner.abort_and_pause_cleaning(key)
            try:
                if log.truncate_to(offset):
                    affected[log.parent_dir] = None
                if cleaner is not None:
                    cleaner.maybe_truncate_checkpoint(log.parent_dir, key, log.segments.active.base_offset)
            finally:
                if cleaner is not None:
                    cleaner.resume_cleaning([key])
        for log_dir in affected:
            self._checkpoint_recovery_points(log_dir, self.logs_in_dir(log_dir))

    def truncate_fully_and_start_at(
        self, key: TopicPartition, offset: int, *, is_future: bool = False, log_start_offset: int | None = None
    ) -> None:
        """Empty a log, which then continues at `offset`. A partition without a log is ignored."""
        log = self.get_log(key, is_future=is_future)
        if log is None:
            return
        cleaner = None if is_future else self.cleaner
        if cleaner is not None:
            cleaner.abort_and_pause_cleaning(key)
        try:
            log.truncate_fully_and_start_at(offset, log_start_offset)
            if cleaner is not None:
                cleaner.maybe_truncate_checkpoint(log.parent_dir, key, log.segments.active.base_offset)
        finally:
            if cleaner is not None:
                cleaner.resume_cleaning([key])
        self._checkpoint_recovery_points(log.parent_dir, self.logs_in_dir(log.parent_dir))

    # moving and deleting ----------------------------------------------------------------------------------------------------------

    def replace_current_with_future_log(self, key: TopicPartition) -> None:
        """Replace the current log by the future log, which has caught up. The old one is deleted. Raises KafkaStorageError if one of them
        is missing.
        """
        source, target = self.current_logs.get(key), self.future_logs.get(key)
        if source is None:
            raise KafkaStorageError(f"The current replica for {name_of(key)} is offline")
        if target is None:
            raise KafkaStorageError(f"The future replica for {name_of(key)} is offline")
        self._replace(source, target, keep_high_watermark=True)

    def recover_abandoned_future_logs(self, assigned_directory: Callable[[str, int], str | None]) -> list[TopicPartition]:
        """Finish moves that the controller already knew of when the broker stopped, and return their partitions.

        `assigned_directory(topic_id, partition)` returns the directory id of this broker's replica in the metadata.
        """
        abandoned = []
        for key, target in list(self.future_logs.items()):
            assigned = None if target.topic_id is None else assigned_directory(target.topic_id, key.partition)
            if assigned is None or self.dirs.ids.get(target.parent_dir) != assigned:
                continue
            if self.cleaner is not None:
                self.cleaner.abort_and_pause_cleaning(key)
            source = self.current_logs.get(key)
            same_topic = source is not None and source.topic_id == target.topic_id
            self._replace(source if same_topic else None, target)
            abandoned.append(key)
        return abandoned

    def _replace(self, source: UnifiedLog | None, target: UnifiedLog, *, keep_high_watermark: bool = False) -> None:
        key = key_of(target)
        target.rename_dir(partition_dir_name(key.topic, key.partition))
        if keep_high_watermark and source is not None:
            target.update_high_watermark(source.high_watermark)
        self.future_logs.pop(key, None)
        self.current_logs[key] = target
        if self.cleaner is not None:
            if source is not None:
                self.cleaner.alter_checkpoint_dir(key, source.parent_dir, target.parent_dir)
            self.cleaner.resume_cleaning([key])
        if source is None:
            return
        try:
            source.rename_dir(partition_dir_name(key.topic, key.partition, "delete", self.new_id()))
        except KafkaStorageError:
            # The log is no longer in any table, so nothing else closes it.
            source.close_handlers()
            raise
        self.to_be_deleted.add(source)
        self._checkpoint_dir(source.parent_dir)

    def async_delete(
        self, key: TopicPartition, *, is_future: bool = False, is_stray: bool = False, checkpoint: bool = True
    ) -> UnifiedLog | None:
        """Take the partition out of service and mark its folder. Returns the log, or None if there is none.

        The folder is deleted later, or kept with `is_stray`. `is_future` cancels a move. Raises KafkaStorageError if the log may be in an
        offline directory.
        """
        log = (self.future_logs if is_future else self.current_logs).pop(key, None)
        if log is None:
            if self.dirs.offline:
                raise KafkaStorageError(
                    f"Failed to delete log for {'future ' if is_future else ''}{name_of(key)} because it may be in one of the offline "
                    f"directories {','.join(self.dirs.offline)}"
                )
            return None
        if self.cleaner is not None and not is_future:
            self.cleaner.abort_cleaning(key)
            if checkpoint:
                self.cleaner.update_checkpoints(log.parent_dir, key)
        name = partition_dir_name(key.topic, key.partition, "stray" if is_stray else "delete", self.new_id())
        log.rename_dir(name, should_reinitialize=False)
        if is_stray:
            self.stray_logs[key] = log
        else:
            self.to_be_deleted.add(log)
        if checkpoint:
            self._checkpoint_dir(log.parent_dir)
        return log

    def async_delete_all(
        self, keys: Iterable[TopicPartition], on_error: Callable[[TopicPartition, KopsError], None], *, is_stray: bool = False
    ) -> None:
        """Run `async_delete` for the current and future logs of many partitions, and write the checkpoints once for all of them."""
        log_dirs: dict[str, None] = {}
        for key in keys:
            for is_future in (False, True):
                log = self.get_log(key, is_future=is_future)
                if log is None:
                    continue
                log_dirs[log.parent_dir] = None
                try:
                    self.async_delete(key, is_future=is_future, is_stray=is_stray, checkpoint=False)
                except KopsError as error:
                    on_error(key, error)
                    break
        for log_dir in log_dirs:
            if self.cleaner is not None:
                self.cleaner.update_checkpoints(log_dir)
            self._checkpoint_dir(log_dir)

    def delete_logs(self) -> int:
        """Delete the logs that are due. Returns the time in ms until the next call."""
        return self.to_be_deleted.delete_due(self.topics.default.file_delete_delay_ms, self.scheduler)

    # failed directories -----------------------------------------------------------------------------------------------------------

    def handle_failures(self) -> list[str]:
        """Stop serving every directory that the failure channel reports, and return them. Raises LogDirsFailedError with the last one."""
        handled = []
        while (log_dir := self.failures.take_next()) is not None:
            self.handle_log_dir_failure(log_dir)
            handled.append(log_dir)
        return handled

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """Take a directory offline: close the files of its logs, remove the logs from the tables, and write no further checkpoint of it."""
        self.dirs.take_offline(log_dir)
        if not self.dirs.live:
            raise LogDirsFailedError(f"Shutdown broker because all log dirs in {', '.join(self.dirs.paths)} have failed")
        if self.cleaner is not None:
            self.cleaner.handle_log_dir_failure(log_dir)
        for logs in (self.current_logs, self.future_logs, self.stray_logs):
            for key in [key for key, log in logs.items() if log.parent_dir == log_dir]:
                logs.pop(key).close_handlers()
        for log in self.to_be_deleted.drop_dir(log_dir):
            log.close_handlers()

    # periodic tasks ---------------------------------------------------------------------------------------------------------------

    def schedule_tasks(self) -> None:
        """Schedule the periodic tasks (`log_settings.PERIODIC_TASKS`). Each log has its own task for the expiration of producers."""
        for task, run in (
            (LOG_RETENTION, self._retention.begin),
            (LOG_FLUSHER, self.flush_dirty_logs),
            (RECOVERY_POINTS, self.checkpoint_recovery_points),
            (LOG_STARTS, self.checkpoint_log_start_offsets),
            (HIGH_WATERMARKS, self.checkpoint_high_watermarks),
        ):
            delay_ms = 0 if task.delay_key is None else self.config.value(task.delay_key)
            self._tasks[task.name] = self.scheduler.schedule(task.name, run, self.config.value(task.period_key), delay_ms)
        self._delete_logs_in(self.config.log_initial_task_delay_ms)

    def _delete_logs_in(self, delay_ms: int) -> None:
        name = DELETE_LOGS.name
        self._tasks[name] = self.scheduler.schedule_once(name, lambda: self._delete_logs_in(self.delete_logs()), delay_ms)

    def cleanup_logs(self) -> int:
        """Apply retention to the logs that are not compacted, and return the number of deleted segments."""
        return sum(self._delete_old_segments())

    def _delete_old_segments(self) -> Iterator[int]:
        """Delete a few segments in each step, and yield their number."""
        if self.cleaner is not None:
            deletable = dict(self.cleaner.pause_cleaning_for_non_compacted_partitions())
        else:
            deletable = {key: log for key, log in self.current_logs.items() if not log.config.compact}
        try:
            for key in deletable:
                for logs in (self.current_logs, self.future_logs):
                    # Between two steps, a log may be deleted or replaced.
                    while (log := logs.get(key)) is not None and (count := log.delete_old_segments(RETENTION_SLICE)):
                        yield count
                yield 0
        finally:
            if self.cleaner is not None:
                self.cleaner.resume_cleaning(deletable)

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose last flush is older than their `flush.ms`. A log reports a failure to the channel."""
        now_ms = self.now_ms()
        for log in self.all_logs:
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                try:
                    log.flush_aside(log.log_end_offset)
                except KafkaStorageError:
                    continue

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all directories. After a crash, nothing below them is recovered."""
        by_dir = self._logs_by_dir()
        for log_dir in self.dirs.live:
            self._checkpoint_recovery_points(log_dir, by_dir.get(log_dir, {}), aside=True)

    def checkpoint_log_start_offsets(self) -> None:
        """Write the start offsets of logs that do not start with their first segment, for example after DeleteRecords."""
        by_dir = self._logs_by_dir()
        for log_dir in self.dirs.live:
            self._checkpoint_log_starts(log_dir, by_dir.get(log_dir, {}), aside=True)

    def checkpoint_high_watermarks(self, *, aside: bool = True) -> None:
        """Write the high watermarks of all directories that have logs (ReplicaManager.checkpointHighWatermarks).

        A file that could not be read is not changed.
        """
        by_dir = self._logs_by_dir()
        for log_dir in self.dirs.live:
            logs = by_dir.get(log_dir)
            if logs and log_dir not in self._unreadable_high_watermarks:
                offsets = {key: log.high_watermark for key, log in logs.items()}
                self._checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT, offsets, aside=aside)

    def _checkpoint(
        self, log_dir: str, name: str, offsets: Mapping[TopicPartition, int], *, aside: bool, size_is_known: bool = True
    ) -> None:
        if aside:
            self._checkpoints.write_aside(self.scheduler, log_dir, name, offsets, size_is_known=size_is_known)
        else:
            self._checkpoints.write(log_dir, name, offsets, size_is_known=size_is_known)

    def _checkpoint_dir(self, log_dir: str) -> None:
        logs = self.logs_in_dir(log_dir)
        self._checkpoint_recovery_points(log_dir, logs)
        self._checkpoint_log_starts(log_dir, logs)

    def _checkpoint_recovery_points(self, log_dir: str, logs: Logs, *, aside: bool = False) -> None:
        offsets = {key: log.recovery_point for key, log in logs.items()}
        self._checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, offsets, aside=aside)

    def _checkpoint_log_starts(self, log_dir: str, logs: Logs, *, aside: bool = False) -> None:
        offsets = {key: log.log_start_offset for key, log in logs.items() if _begins_within_segment(log)}
        self._checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT, offsets, aside=aside, size_is_known=False)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def shutdown(self, broker_epoch: int = -1, *, run: Runner = run_in_turn) -> list[KopsError]:
        """Flush and close every log, write the checkpoints, mark the clean stop if there was no error, and release the locks.

        A broker shuts down its scheduler first. Returns the errors. The next start recovers the directories with errors.
        """
        for task in self._tasks.values():
            task.cancel()
        self.checkpoint_high_watermarks(aside=False)
        if self.cleaner is not None:
            self.cleaner.shutdown()
        by_dir = self._logs_by_dir()
        problems: dict[str, list[KopsError]] = {log_dir: [] for log_dir in self.dirs.live}
        jobs: list[list[Job]] = [
            [partial(_close, log, problems[log_dir]) for log in by_dir.get(log_dir, {}).values()] for log_dir in problems
        ]
        try:
            run(jobs)
            for log_dir, found in problems.items():
                if not found:
                    self._finish_dir(log_dir, by_dir.get(log_dir, {}), broker_epoch)
        finally:
            for log in self.stray_logs.values():
                log.close_handlers()
            self.to_be_deleted.close()
            self.dirs.release_locks()
        return [problem for found in problems.values() for problem in found]

    def _finish_dir(self, log_dir: str, logs: Logs, broker_epoch: int) -> None:
        self._checkpoint_recovery_points(log_dir, logs)
        self._checkpoint_log_starts(log_dir, logs)
        start = self.dirs.starts[log_dir]
        if self.failures.has_offline(log_dir) or not (start.had_clean_shutdown or start.remaining_logs == 0):
            return
        path = posixpath.join(log_dir, CLEAN_SHUTDOWN)
        try:
            with self.files.open(path, "create") as file:
                file.truncate(0)
                file.write(0, write_clean_shutdown(CleanShutdown(broker_epoch)))
                file.sync()
        except OSError as error:
            self.failures.maybe_add_offline_log_dir(log_dir, f"Error while writing {path}", error)


def key_of(log: UnifiedLog) -> TopicPartition:
    """The partition of a log."""
    return TopicPartition(log.topic, log.partition)


def name_of(key: TopicPartition) -> str:
    """A partition's name as in Kafka's messages."""
    return f"{key.topic}-{key.partition}"


def _begins_within_segment(log: UnifiedLog) -> bool:
    first = log.segments.first
    return first is not None and log.log_start_offset > first.base_offset


def _close(log: UnifiedLog, problems: list[KopsError]) -> None:
    try:
        log.flush(force_flush_active_segment=True)
        log.close()
    except KopsError as error:
        problems.append(error)
