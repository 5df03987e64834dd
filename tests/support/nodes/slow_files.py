"""Files whose syncs wait: until the test releases them, or as long as on an old disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kops.files import OsFiles
from kops.files.api import Mode, text_of
from kops.files.os_files import OsFile

from .networking import PATIENCE_S

if TYPE_CHECKING:
    from kops.files.api import StrPath


class SlowFiles(OsFiles):
    """The file system. It calls `before_sync(path)` before each sync of a file or directory, in the thread that syncs."""

    def __init__(self, before_sync: Callable[[str], object]) -> None:
        super().__init__()
        self.before_sync = before_sync

    def open(self, path: StrPath, mode: Mode = "r") -> OsFile:
        # The plain handle has nothing of its own to close.
        return _SlowFile(self, text_of(path), super().open(path, mode).fileno(), mode != "r")

    def sync_dir(self, path: StrPath) -> None:
        self.before_sync(text_of(path))
        super().sync_dir(path)


class _SlowFile(OsFile):
    def __init__(self, files: SlowFiles, path: str, fd: int, writable: bool) -> None:
        super().__init__(path, fd, writable)
        self.files = files
        self.writable = writable

    def duplicate(self) -> OsFile:
        return _SlowFile(self.files, self.path, super().duplicate().fileno(), self.writable)

    def sync(self) -> None:
        self.files.before_sync(self.path)
        super().sync()


class Gate:
    """A gate that holds the syncs for which `holds(path)` is true, from `shut` to `open`."""

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self._holds = holds
        self._is_open = threading.Event()
        self._is_open.set()
        self.reached = threading.Event()
        """Whether a sync has been held."""

    def __call__(self, path: str) -> None:
        if self._holds(path) and not self._is_open.is_set():
            self.reached.set()
            assert self._is_open.wait(PATIENCE_S), f"the sync of {path} was never let go"

    def shut(self) -> None:
        """Hold the syncs that come from now on."""
        self.reached.clear()
        self._is_open.clear()

    def open(self) -> None:
        """Release all syncs."""
        self._is_open.set()
