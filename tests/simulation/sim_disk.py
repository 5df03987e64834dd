"""The disk of a simulated machine. It forgets data without power, and directories of it may be full or fail.

It is based on `CrashFiles`. A directory may be full (a write stores what still fits, then ENOSPC), dead (every write and sync fails with
EIO) or bad at one place (one operation fails with EIO, the others succeed). A directory may also be unreadable (every read fails with EIO),
or only the logs of its partitions are (but not the metadata log, without which a node ends), or one read of a log fails.

Index files and producer snapshots can always be read here. Indexes are mapped into memory, where a failed read is no I/O error (Java ends
the thread, Linux the process), and for a producer snapshot that can't be read Kafka empties a segment.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Literal

from kops.files.crash import CrashFiles, Fault, Operation
from kops.files.tree import MemoryFiles
from kops.storage.start.log_dirs import METADATA_DIR

Failure = Literal["full", "dead", "bad", "unreadable", "bad logs", "bad read"]
READ_FAILURES = ("unreadable", "bad logs", "bad read")
MOST_GOOD_READS = 30
READABLE = (".index", ".timeindex", ".txnindex", ".snapshot")
GROWING = {"create", "write", "mkdir"}
FORGIVEN = {"sync_all", "unlink", "rmdir"}


class SimDisk(CrashFiles):
    """A disk with the files of `content`, all of them durable."""

    def __init__(self, now_ms: Callable[[], int], chance: Random, content: MemoryFiles | None = None) -> None:
        super().__init__(now_ms=now_ms)
        self.chance = chance
        self.failing: dict[str, Failure] = {}
        self.failures = 0
        self.read_failures = 0
        self._good_reads = 0
        self.is_at_work: Callable[[], bool] = lambda: True
        """Whether the node is reading now, not one of the checks."""
        if content is not None:
            for name in content.list("/"):
                copy_tree(content, self, f"/{name}")
            self.sync_all()
        self.fault = self._fault
        self.read_fault = self._read_fault

    def break_directory(self, path: str, failure: Failure) -> None:
        """Let a directory and everything below it fail from now on."""
        self._good_reads = self.chance.randrange(MOST_GOOD_READS) if failure == "bad read" else 0
        self.failing[path] = failure

    def keep_failing(self, before: SimDisk) -> None:
        """Continue with the failures that this disk had before the reboot."""
        self.failing, self.read_failures, self._good_reads = before.failing, before.read_failures, before._good_reads

    def rebooted(self) -> SimDisk:
        """Return a working disk as a power loss leaves it. Data that was not synced may be lost, torn or written in another order."""
        self.fault = None
        left = self.after_power_loss("random", seed=self.chance.randrange(1 << 30))
        return SimDisk(self.now_ms, self.chance, left)

    def repaired(self) -> SimDisk:
        """Repair the disk, so that it has room again. Everything that was written is there."""
        self.failing.clear()
        return self

    def _fault(self, operation: Operation) -> Fault | None:
        for path, failure in self.failing.items():
            if not operation.path.startswith(f"{path}/") and operation.path != path:
                continue
            if failure in READ_FAILURES:
                continue
            if failure == "full":
                if operation.kind not in GROWING or (operation.kind == "write" and not self._grows(operation)):
                    return None
                self.failures += 1
                return Fault(errno.ENOSPC, self.chance.randint(0, len(operation.data) - 1) if operation.data else 0)
            if operation.kind in FORGIVEN:
                return None
            self.failures += 1
            if failure == "bad":
                del self.failing[path]
            return Fault(errno.EIO)
        return None

    def _read_fault(self, path: str) -> int | None:
        if not self.failing or path.endswith(READABLE) or not self.is_at_work():
            return None
        for broken, failure in self.failing.items():
            if failure in READ_FAILURES and path.startswith(f"{broken}/"):
                if failure != "unreadable" and not path.endswith(".log"):
                    continue
                if failure == "bad logs" and METADATA_DIR in path:
                    continue
                if failure == "bad read":
                    self._good_reads -= 1
                    if self._good_reads >= 0:
                        continue
                    del self.failing[broken]
                self.read_failures += 1
                return errno.EIO
        return None

    def _grows(self, operation: Operation) -> bool:
        end = operation.position + len(operation.data)
        return not self.exists(operation.path) or self.stat(operation.path).size < end


def copy_tree(source: MemoryFiles, target: MemoryFiles, path: str) -> None:
    """Copy a directory and everything below it. Only the ranges of a file that were ever written are read."""
    target.mkdir(path)
    for name in source.list(path):
        below = f"{path}/{name}"
        status = source.stat(below)
        if status.is_dir:
            copy_tree(source, target, below)
        else:
            node = source.open(below)._open_node()
            with target.open(below, "new") as file:
                for start, data in zip(node.starts, node.data, strict=True):
                    file.write(start, data)
                file.truncate(status.size)
            target.set_mtime(below, status.mtime_ms)


def remove_tree(files: MemoryFiles, path: str) -> None:
    """Remove a directory and everything below it."""
    for name in files.list(path):
        below = f"{path}/{name}"
        if files.stat(below).is_dir:
            remove_tree(files, below)
        else:
            files.unlink(below)
    files.rmdir(path)
