"""The log directories that are online: created, checked and locked at the start, and removed one by one as they fail.

Sources: Kafka's LogManager (createAndValidateLogDirs, lockLogDirs, loadDirectoryIds, nextLogDirs, createLogDirectory, isLogDirOnline) and
DirectoryId.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError, KopsError
from kops.storage.failures.load_errors import KafkaStorageError
from kops.storage.start.log_dirs import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogDirStart,
    StartRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.files import Files, Lock
    from kops.storage.log_dir_failure import LogDirFailureChannel

MIGRATING: Final = "AAAAAAAAAAAAAAAAAAAAAA"
UNASSIGNED: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
LOST: Final = "AAAAAAAAAAAAAAAAAAAAAg"
_CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class LogDirsFailedError(KopsError):
    """Every log directory has failed. The broker must stop."""


class LiveLogDirs:
    """The directories by absolute path, in the order of `log.dirs`. `ids` are the directory ids of those that are online."""

    def __init__(self, files: Files, starts: Iterable[LogDirStart], failures: LogDirFailureChannel) -> None:
        """Create missing directories, check and lock the others. An unusable directory is reported to `failures`.

        Raises StartRefusedError if a directory is named twice or none can be used, and LockHeldError if another process has locked one.
        """
        self._files = files
        self._failures = failures
        given = [(files.absolute(start.path), start) for start in starts]
        self.starts = dict(given)
        self.paths = list(self.starts)
        self.cordoned: frozenset[str] = frozenset()
        self.ids: dict[str, str] = {}
        self._live: list[str] = []
        self._locks: dict[str, Lock] = {}
        if len(given) != len(self.paths):
            raise StartRefusedError(f"Duplicate log directory found: {', '.join(path for path, _ in given)}")
        try:
            for path, start in self.starts.items():
                self._take(path, start)
            self._make_checkpoints()
        except BaseException:
            self.release_locks()
            raise
        if not self._live:
            self.release_locks()
            raise StartRefusedError(
                f"Shutdown broker because none of the specified log dirs from {', '.join(self.paths)} can be created or validated"
            )

    def _take(self, path: str, start: LogDirStart) -> None:
        if start.outcome != "started":
            error = start.error or OSError(f"Failed to load {path} during broker startup")
            self._failures.maybe_add_offline_log_dir(path, start.reason or str(error), error)
            return
        try:
            self._make(path)
            self._files.list(path)
        except OSError as error:
            self._fail(start, path, f"Failed to create or validate data directory {path}", error)
            return
        self._live.append(path)
        try:
            self._locks[path] = self._files.lock(path)
        except OSError as error:
            self._live.remove(path)
            self._fail(start, path, f"Disk error while locking directory {path}", error)
            return
        if start.meta is not None and start.meta.directory_id is not None:
            self.ids[path] = start.meta.directory_id

    def _make_checkpoints(self) -> None:
        """Create missing checkpoints as empty files (LogManager's and ReplicaManager's constructors). If that fails, startup is aborted."""
        for log_dir in self._live:
            for name in _CHECKPOINTS:
                path = posixpath.join(log_dir, name)
                try:
                    if not self._files.exists(path):
                        self._files.open(path, "create").close()
                except OSError as error:
                    raise StartRefusedError(f"Fatal error during broker startup: {path}: {error.strerror or error}") from error

    def _make(self, path: str) -> None:
        if self._files.exists(path):
            return
        parent = posixpath.dirname(path)
        self._make(parent)
        self._files.mkdir(path)
        self._files.sync_dir(parent)

    def _fail(self, start: LogDirStart, path: str, message: str, error: OSError) -> None:
        start.go_offline(f"{message}: {error}", error)
        self._failures.maybe_add_offline_log_dir(path, message, error)

    @property
    def live(self) -> list[str]:
        """The directories that are online."""
        return list(self._live)

    @property
    def offline(self) -> list[str]:
        """The directories that are offline."""
        return [path for path in self.paths if path not in self._live]

    def is_online(self, path: str) -> bool:
        """Whether the directory is online. Raises ApiError LOG_DIR_NOT_FOUND if it is not a directory of this broker."""
        if path not in self.starts:
            raise ApiError("LOG_DIR_NOT_FOUND", f"Log dir {path} is not found in the config.")
        return path in self._live

    def path_of(self, directory_id: str) -> str | None:
        """The online directory with this id, or None."""
        return next((path for path, found in self.ids.items() if found == directory_id), None)

    def take_offline(self, path: str) -> None:
        """Stop using a directory and release its lock. A second call does nothing."""
        if path in self._live:
            self._live.remove(path)
        self.ids.pop(path, None)
        lock = self._locks.pop(path, None)
        if lock is not None:
            lock.release()

    def by_fewest_logs(self, log_counts: dict[str, int]) -> list[str]:
        """Return the directories for a new partition, best first: those that are not cordoned, fewest logs first. If all are cordoned,
        return the first one.
        """
        if len(self._live) == 1:
            return self.live
        free = [path for path in self._live if path not in self.cordoned]
        return sorted(free, key=lambda path: log_counts.get(path, 0)) or self._live[:1]

    def make_partition_dir(self, paths: Iterable[str], name: str) -> str:
        """Create the folder `name` in the first directory where that succeeds, and return its path. Raises KafkaStorageError if none
        succeeds.
        """
        tried = list(paths)
        for path in tried:
            if not self.is_online(path):
                continue
            folder = posixpath.join(path, name)
            try:
                if not self._files.exists(folder):
                    self._files.mkdir(folder)
            except OSError as error:
                self._failures.maybe_add_offline_log_dir(path, f"Error while creating log for {name} in dir {path}", error)
                continue
            return folder
        raise KafkaStorageError(f"No log directories available. Tried {', '.join(tried)}")

    def release_locks(self) -> None:
        """Release all locks."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()
