"""A flush of a log in two halves. The loop collects the files to sync. A side thread syncs them while the log accepts more records.

Kafka flushes in a thread of its scheduler or in the thread that appends. Its locks prevent a truncation during the flush. kops allows one:
a truncation lowers the offset of the flush (`cut`). A flush has its own file handles, so the log may close, rename or remove the files.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import File, Files
    from kops.storage.segment_files.mapped_index import MappedOffsetIndex, MappedTimeIndex


class Flush:
    """After `run` has returned, everything below `offset` is on disk.

    A truncation during the flush lowers `offset`, because the flush does not cover records that are appended afterwards.
    """

    def __init__(self, files: Files, offset: int) -> None:
        self.offset = offset
        self._files = files
        self._handles: list[File] = []
        self._indexes: list[tuple[MappedOffsetIndex | MappedTimeIndex, int]] = []
        self._first: list[Callable[[], None]] = []
        self.directory: str | None = None
        self.is_void = False
        """Whether the flush proves nothing, because its directory was gone before it was synced or because it was closed before it ran. If
        the directory was renamed, the log's owner has to flush again."""
        self._begun = Lock()

    # on the loop ------------------------------------------------------------------------------------------------------------------

    def add(self, handle: File | None) -> None:
        """Add a file to sync. The flush closes the handle."""
        if handle is not None:
            self._handles.append(handle)

    def add_index(self, index: MappedOffsetIndex | MappedTimeIndex) -> None:
        """Add an index, unless all its changes are already on disk."""
        handle = index.begin_force()
        if handle is not None:
            self._handles.append(handle)
            self._indexes.append((index, index.change_count))

    def add_first(self, work: Callable[[], None]) -> None:
        """Add work that `run` does before it syncs the files, such as writing a checkpoint."""
        self._first.append(work)

    def add_directory(self, directory: str) -> None:
        """Also sync this directory, because files were created or renamed in it."""
        self.directory = directory

    def cut(self, offset: int) -> None:
        """Exclude everything from `offset` on: the log was truncated there, or its indexes changed."""
        self.offset = min(self.offset, offset)

    def end(self) -> None:
        """Record which changes of the indexes are on disk. Called after `run`."""
        for index, change_count in self._indexes:
            index.end_force(change_count)

    # in a thread ------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Sync everything. Raises OSError, or KafkaStorageError from the work of `add_first`. A closed flush does nothing and is void."""
        if not self._begun.acquire(blocking=False):
            self.is_void = True
            return
        try:
            for work in self._first:
                work()
            for handle in self._handles:
                handle.sync()
        finally:
            self._close()
        if self.directory is not None:
            try:
                self._files.sync_dir(self.directory)
            except FileNotFoundError:
                self.is_void = True

    def close(self) -> None:
        """Close the handles, unless `run` has begun. After that, `run` does nothing. May be called in any thread."""
        if self._begun.acquire(blocking=False):
            self._close()

    def _close(self) -> None:
        for handle in self._handles:
            handle.close()
        self._handles.clear()
