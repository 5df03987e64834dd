"""Compaction of all logs of a broker in steps. The owner's loop calls `step`, which returns when to call it again (Kafka LogCleaner).

Kafka has threads. Here, each of `log.cleaner.threads` is a `CleanerWorker` with its own offset map, and one step reads one window of one
segment. The limit on the I/O rate lengthens the wait before the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.values.definition import ConfigDef
from kops.config.values.java import INT_MAX
from kops.errors import KopsError, UsageError
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import Cleaner, CleaningAbortedError, CleanResult, Steps
from kops.storage.cleaning.cleaner_manager import CleanerManager, LogToClean, UncleanableError
from kops.storage.cleaning.cleaner_stats import CleanerStats, PreCleanStats, Throttler
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from kops.storage.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from kops.files import Files
    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.unified_log import UnifiedLog

LOOK_AGAIN_MS: Final = 20
"""The delay in ms until a round that waits for the disk is checked again."""
NO_LIMIT: Final = 1.7976931348623157e308

CLEANER_CONFIG_DEF: Final = ConfigDef(
    KAFKA_CONFIG_DEF.keys[name]
    for name in (
        "log.cleaner.threads",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.backoff.ms",
        "log.cleaner.enable",
    )
)


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The broker settings `log.cleaner.*`. Sizes are bytes, for all workers together."""

    threads: int = 1
    io_max_bytes_per_second: float = NO_LIMIT
    dedupe_buffer_size: int = 128 << 20
    io_buffer_size: int = 512 << 10
    io_buffer_load_factor: float = 0.9
    backoff_ms: int = 15_000
    enable: bool = True


def cleaner_config(broker: Mapping[str, str]) -> CleanerConfig:
    """Read the settings from a broker's server.properties. Raises UsageError for a value that is not allowed."""
    values = CLEANER_CONFIG_DEF.parse({key: text for key, text in broker.items() if key in CLEANER_CONFIG_DEF.keys})
    arguments: dict[str, Any] = {key.removeprefix("log.cleaner.").replace(".", "_"): value for key, value in values.items()}
    return CleanerConfig(**arguments)


class CleanerWorker:
    """Cleans one log at a time, from choosing it to writing its checkpoint. The round can be aborted between two steps."""

    def __init__(self, manager: CleanerManager, cleaner: Cleaner, failures: LogDirFailureChannel, scheduler: Scheduler) -> None:
        self.last_stats = CleanerStats()
        self.last_pre_clean_stats = PreCleanStats()
        self._manager = manager
        self._cleaner = cleaner
        self._failures = failures
        self._cleanable: LogToClean | None = None
        self._steps: Steps[CleanResult] | None = None
        self._scheduler = scheduler
        self._failed: BaseException | None = None
        self.is_waiting = False
        """Whether a side thread is working for the round."""

    @property
    def cleaning(self) -> TopicPartition | None:
        """The partition that it cleans now."""
        return None if self._cleanable is None else self._cleanable.key

    def step(self, now_ms: int) -> bool:
        """Run one step. Returns False if there is nothing to clean, or if it can't be cleaned."""
        if self.is_waiting:
            return True
        try:
            if self._steps is None and not self._begin(now_ms):
                self._delete_old_segments()
                return False
            if self._go_on():
                self._delete_old_segments()
        except UncleanableError as error:
            self._manager.warn(f"{error.reason}. Marking partition {error.log.topic_partition} as uncleanable. {error.__cause__}")
            self._manager.mark_uncleanable(error.log.parent_dir, error.key)
            return False
        return True

    def abort(self) -> None:
        """Abort the round. Groups that were already replaced stay replaced."""
        if self._steps is not None:
            self._go_on(aborted=True)

    def _begin(self, now_ms: int) -> bool:
        stats = PreCleanStats()
        cleanable = self._manager.grab_filthiest(now_ms, stats)
        if cleanable is None:
            return False
        self.last_pre_clean_stats = stats
        self._cleanable = cleanable
        self._steps = self._cleaner.steps(cleanable.log, cleanable.span)
        return True

    def _go_on(self, *, aborted: bool = False) -> bool:
        """Run one step of the round, and return whether the round is over."""
        cleanable, steps = self._cleanable, self._steps
        assert cleanable is not None and steps is not None
        end_offset = cleanable.span.first_dirty_offset
        log = cleanable.log
        try:
            failed, self._failed = self._failed, None
            if failed is not None:
                steps.throw(failed)
            elif aborted:
                steps.throw(CleaningAbortedError("the cleaning was aborted"))
            elif (work := next(steps)) is not None:
                self._wait_for(work, steps, log)
            return False
        except StopIteration as done:
            end_offset, self.last_stats = done.value
        except (CleaningAbortedError, KafkaStorageError):
            pass  # aborted, or the log has already reported the error to the failure channel
        except OSError as error:
            self._io_failed(log, error)
        except LoadError as error:
            if error.kind != "log-dir-offline":
                self._end(end_offset)
                raise UncleanableError(cleanable.key, log, f"Cleaning of {log.topic_partition} failed") from error
            self._io_failed(log, error)
        except KopsError as error:
            self._end(end_offset)
            raise UncleanableError(cleanable.key, log, f"Cleaning of {log.topic_partition} failed") from error
        self._end(end_offset)
        return True

    def _wait_for(self, work: Callable[[], None], steps: Steps[CleanResult], log: UnifiedLog) -> None:
        self.is_waiting = True

        def ended(future: Future[None]) -> None:
            # The round may have been aborted meanwhile, and another one may have begun.
            if self._steps is steps:
                self.is_waiting = False
                self._failed = future.exception()
            elif isinstance(error := future.exception(), OSError):
                self._io_failed(log, error)

        self._scheduler.aside("log-cleaner", work, ended)

    def _io_failed(self, log: UnifiedLog, error: Exception) -> None:
        message = f"Failed to clean up log for {log.topic_partition} in dir {log.parent_dir} due to IOException"
        self._failures.maybe_add_offline_log_dir(log.parent_dir, message, error)

    def _end(self, end_offset: int) -> None:
        cleanable = self._cleanable
        assert cleanable is not None
        self._cleanable = self._steps = self._failed = None
        self.is_waiting = False
        self._manager.done_cleaning(cleanable.key, cleanable.log.parent_dir, end_offset)

    def _delete_old_segments(self) -> None:
        deletable = self._manager.deletable_logs()
        try:
            for key, log in deletable.items():
                try:
                    log.delete_old_segments()
                except (KopsError, OSError) as error:
                    raise UncleanableError(key, log, f"Deletion in {log.topic_partition} failed") from error
        finally:
            self._manager.done_deleting(deletable)


class LogCleaner:
    """The cleaner of a broker (`CleanerControl` of LogManager).

    `logs` is the owner's live table, and `log_dirs` are absolute paths. `scheduler` may have side threads. `now_ms` is the wall clock,
    `now_ns` a monotonic clock.
    """

    def __init__(
        self,
        files: Files,
        log_dirs: Sequence[str],
        logs: Mapping[TopicPartition, UnifiedLog],
        failures: LogDirFailureChannel,
        config: CleanerConfig,
        *,
        now_ms: Callable[[], int],
        now_ns: Callable[[], int],
        warn: Callable[[str], None],
        scheduler: Scheduler | None = None,
    ) -> None:
        self.config = config
        self._scheduler = Scheduler(now_ms) if scheduler is None else scheduler
        self.manager = CleanerManager(files, list(log_dirs), logs, failures, warn, scheduler)
        self.manager.last_run_ms = now_ms()
        self.throttler = Throttler(config.io_max_bytes_per_second, now_ns=now_ns, sleep_ms=self._pause)
        self.workers: list[CleanerWorker] = []
        self._failures = failures
        self._now_ms = now_ms
        self._pause_ms = 0
        self._start()

    def _start(self) -> None:
        config, count = self.config, self.config.threads
        if not config.enable or not count:
            return
        for _ in range(count):
            cleaner = Cleaner(
                OffsetMap(min(config.dedupe_buffer_size // count, INT_MAX)),
                now_ms=self._now_ms,
                io_buffer_bytes=config.io_buffer_size // count,
                load_factor=config.io_buffer_load_factor,
                throttle=self.throttler.maybe_throttle,
            )
            self.workers.append(CleanerWorker(self.manager, cleaner, self._failures, self._scheduler))

    def _pause(self, pause_ms: int) -> None:
        self._pause_ms += pause_ms

    def step(self) -> int:
        """Run one step, and return in how many ms the next one is due: 0, a pause for the rate limit, or `log.cleaner.backoff.ms`."""
        self._pause_ms = 0
        found = [worker.step(self._now_ms()) for worker in self.workers]
        self.manager.maintain_uncleanable()
        if not any(found):
            return self.config.backoff_ms
        is_waiting = all(worker.is_waiting for worker, was_found in zip(self.workers, found, strict=True) if was_found)
        return max(self._pause_ms, LOOK_AGAIN_MS) if is_waiting else self._pause_ms

    def shutdown(self) -> None:
        """Stop cleaning. Running rounds leave only the groups that they have already replaced."""
        self._stop_workers()
        self.manager.settle()

    def _stop_workers(self) -> None:
        for worker in self.workers:
            worker.abort()
        self.workers.clear()

    def reconfigure(self, config: CleanerConfig) -> None:
        """Restart with other settings. Raises UsageError if the number of threads differs too much from the current one."""
        present = self.config.threads
        if not max(1, present // 2) <= config.threads <= present * 2:
            raise UsageError(f"log.cleaner.threads={config.threads}: not allowed; allowed: {max(1, present // 2)} to {present * 2}")
        self.config = config
        self.throttler.rate = config.io_max_bytes_per_second
        self._stop_workers()
        self._start()

    # CleanerControl ---------------------------------------------------------------------------------------------------------------

    def abort_cleaning(self, topic_partition: TopicPartition) -> None:
        """Abort the partition's round, if there is one."""
        self.abort_and_pause_cleaning(topic_partition)
        self.manager.resume([topic_partition])

    def abort_and_pause_cleaning(self, topic_partition: TopicPartition) -> None:
        """Abort the partition's round, if there is one, and start none before `resume_cleaning`."""
        if self.manager.abort_and_pause(topic_partition):
            for worker in self.workers:
                if worker.cleaning == topic_partition:
                    worker.abort()

    def resume_cleaning(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each partition."""
        self.manager.resume(topic_partitions)

    def pause_cleaning_for_non_compacted_partitions(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Pause the logs that retention may process, and return them."""
        return self.manager.pause_non_compacted()

    def update_checkpoints(self, log_dir: str, partition_to_remove: TopicPartition | None = None) -> None:
        """Rewrite the directory's checkpoint."""
        self.manager.update_checkpoints(log_dir, remove=partition_to_remove)

    def maybe_truncate_checkpoint(self, log_dir: str, topic_partition: TopicPartition, offset: int) -> None:
        """Set the checkpoint back after the log was truncated."""
        self.manager.maybe_truncate_checkpoint(log_dir, topic_partition, offset)

    def alter_checkpoint_dir(self, topic_partition: TopicPartition, source_log_dir: str, target_log_dir: str) -> None:
        """Move the partition's checkpoint to its new directory."""
        self.manager.alter_checkpoint_dir(topic_partition, source_log_dir, target_log_dir)

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """Stop using a directory that is offline."""
        self.manager.handle_log_dir_failure(log_dir)

    # metrics, by Kafka's names ----------------------------------------------------------------------------------------------------

    @property
    def max_dirty_percent(self) -> int:
        """The dirty part of the dirtiest log at the last choice."""
        return int(100 * self.manager.dirtiest_ratio)

    @property
    def time_since_last_run_ms(self) -> int:
        """The time since the last choice."""
        return self._now_ms() - self.manager.last_run_ms

    def uncleanable_partitions_count(self, log_dir: str) -> int:
        """The number of partitions in a directory that are marked as uncleanable."""
        return len(self.manager.uncleanable.get(log_dir, ()))

    def uncleanable_bytes(self, log_dir: str) -> int:
        """The number of bytes in a directory that are not cleaned because their partition is marked as uncleanable."""
        return self.manager.uncleanable_bytes(log_dir, self._now_ms())

    @property
    def max_buffer_utilization_percent(self) -> int:
        """The largest utilization of the workers' offset maps in their last rounds."""
        return int(max((worker.last_stats.buffer_utilization for worker in self.workers), default=0.0) * 100)

    @property
    def cleaner_recopy_percent(self) -> int:
        """The ratio of bytes written to bytes read in the workers' last rounds."""
        written = sum(worker.last_stats.bytes_written for worker in self.workers)
        return int(100 * (written / max(sum(worker.last_stats.bytes_read for worker in self.workers), 1)))

    @property
    def max_clean_time_s(self) -> int:
        """The longest of the workers' last rounds."""
        return int(max((worker.last_stats.elapsed_s for worker in self.workers), default=0.0))

    @property
    def max_compaction_delay_s(self) -> int:
        """The longest delay of an overdue log in the workers' last choices."""
        return int(max((worker.last_pre_clean_stats.max_compaction_delay_ms for worker in self.workers), default=0) / 1000)
