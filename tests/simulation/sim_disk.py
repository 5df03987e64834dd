"""The disk of a machine of the simulation: what it forgets without power, and directories of it that are full or fail.

It stands on `CrashFiles`. A directory may be full (a write puts down what still fits, ENOSPC), dead (nothing more is written or synced,
EIO) or bad at one place (one operation fails with EIO, the others don't). What is read is always there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Literal

from kops.files.crash import CrashFiles, Fault, Operation
from kops.files.tree import MemoryFiles

Failure = Literal["full", "dead", "bad"]
GROWING = {"create", "write", "mkdir"}
FORGIVEN = {"sync_all", "unlink", "rmdir"}


class SimDisk(CrashFiles):
    """A disk with what `content` holds, all of it durable."""

    def __init__(self, now_ms: Callable[[], int], chance: Random, content: MemoryFiles | None = None) -> None:
        super().__init__(now_ms=now_ms)
        self.chance = chance
        self.failing: dict[str, Failure] = {}
        self.failures = 0
        if content is not None:
            for name in content.list("/"):
                copy_tree(content, self, f"/{name}")
            self.sync_all()
        self.fault = self._fault

    def break_directory(self, path: str, failure: Failure) -> None:
        """From now on a directory, with what is below it, fails."""
        self.failing[path] = failure

    def rebooted(self) -> SimDisk:
        """The disk behind a power loss, in order again: what was not synced may be gone, torn or in another order."""
        self.fault = None
        left = self.after_power_loss("random", seed=self.chance.randrange(1 << 30))
        return SimDisk(self.now_ms, self.chance, left)

    def repaired(self) -> SimDisk:
        """The disk with room again, everything that was written is there."""
        self.failing.clear()
        return self

    def _fault(self, operation: Operation) -> Fault | None:
        for path, failure in self.failing.items():
            if not operation.path.startswith(f"{path}/") and operation.path != path:
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

    def _grows(self, operation: Operation) -> bool:
        end = operation.position + len(operation.data)
        return not self.exists(operation.path) or self.stat(operation.path).size < end


def copy_tree(source: MemoryFiles, target: MemoryFiles, path: str) -> None:
    """A directory with all that is below it; of a file that is nearly empty only what was ever written is looked at."""
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
    """A directory with all that is below it is gone."""
    for name in files.list(path):
        below = f"{path}/{name}"
        if files.stat(below).is_dir:
            remove_tree(files, below)
        else:
            files.unlink(below)
    files.rmdir(path)
