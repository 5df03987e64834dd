"""A log manager on directories of a test. A test moves its clock and runs its tasks, and the names of files are counted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from kops.files import Files, MemoryFiles
from kops.records import BatchBuilder
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.formats.meta_properties import MetaProperties
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.manager.log_manager import LogManager
from kops.storage.manager.settings import LogManagerConfig, TopicConfigs
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import LogDirStart

START_MS = 1_700_000_000_000
DIRECTORY_IDS = {"/a": "AaaaaaaaaaaaaaaaaaaaaA", "/b": "BbbbbbbbbbbbbbbbbbbbbA", "/c": "CccccccccccccccccccccA"}


class Clock:
    """A clock in milliseconds, moved by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Broker:
    """The directories of one broker, and the log manager on them from `start` to `stop` (or to `kill`, which closes nothing)."""

    def __init__(
        self,
        files: Files | None = None,
        log_dirs: Sequence[str] = ("/a",),
        *,
        topics: Mapping[str, Mapping[str, str]] | None = None,
        config: LogManagerConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.files = MemoryFiles() if files is None else files
        self.log_dirs = list(log_dirs)
        self.clock = Clock() if clock is None else clock
        self.topics = {topic: dict(settings) for topic, settings in (topics or {}).items()}
        self.config = LogManagerConfig() if config is None else config
        self.task_errors: list[tuple[str, str]] = []
        self._ids = itertools.count()
        self.new()

    def new(self) -> LogManager:
        """Return a manager that has its directories, and has loaded nothing yet."""
        self.scheduler = Scheduler(self.clock, on_error=lambda name, error: self.task_errors.append((name, str(error))))
        self.manager = LogManager(
            self.files,
            [LogDirStart(path, meta=MetaProperties(1, "cluster", 1, DIRECTORY_IDS.get(path))) for path in self.log_dirs],
            now_ms=self.clock,
            scheduler=self.scheduler,
            new_id=lambda: f"{next(self._ids):032x}",
            failures=LogDirFailureChannel(),
            topics=TopicConfigs(lambda topic: self.topics.get(topic, {})),
            config=self.config,
        )
        return self.manager

    def start(self) -> LogManager:
        """Load everything and schedule the tasks."""
        self.manager.startup()
        self.manager.schedule_tasks()
        return self.manager

    def stop(self, broker_epoch: int = 7) -> None:
        """Stop cleanly, and create a new manager that is not started."""
        assert self.manager.shutdown(broker_epoch) == []
        self.new()

    def let_go(self) -> None:
        """Release the locks of a manager that was not started."""
        self.manager.dirs.release_locks()

    def kill(self) -> None:
        """End without a stop. The locks are gone, the files stay as they are."""
        self.manager.dirs.release_locks()
        self.new()

    def wait(self, ms: int) -> None:
        """Move the clock and run the tasks that are due."""
        self.clock.now_ms += ms
        self.scheduler.run_due()

    def names(self, log_dir: str = "/a") -> list[str]:
        """Return the folders of a directory."""
        return [name for name in self.files.list(log_dir) if self.files.stat(f"{log_dir}/{name}").is_dir]

    def checkpoint(self, name: str, log_dir: str = "/a") -> dict[TopicPartition, int]:
        """Return the contents of a checkpoint."""
        return read_offset_checkpoint(self.files.read_all(f"{log_dir}/{name}"))


def batch(count: int = 1, *, value: bytes = b"value", timestamp: int = START_MS, **fields: int | bool | str) -> bytes:
    """Return a batch of `count` records, as a producer sends it."""
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    for number in range(count):
        builder.append(timestamp + number, b"key %d" % number, value)
    return builder.build()
