"""A flush in two halves: what is to be synced is collected on the loop, and synced in a thread while the log goes on.

Kafka flushes in a thread of its scheduler and in the thread that appends; its locks keep a log from being cut meanwhile. Here a cut lowers
what the flush is worth (`cut`). A flush has handles of its own, so files may be closed, renamed and removed before it ends.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import File, Files
    from kops.storage.segment_files.mapped_index import MappedOffsetIndex, MappedTimeIndex


class Flush:
    """Below `offset` the log is on the disk once `run` has come back.

    `offset` falls where the log is cut meanwhile: what is appended behind the cut is not part of this flush.
    """

    def __init__(self, files: Files, offset: int) -> None:
        self.offset = offset
        self._files = files
        self._handles: list[File] = []
        self._indexes: list[tuple[MappedOffsetIndex | MappedTimeIndex, int]] = []
        self._first: list[Callable[[], None]] = []
        self.directory: str | None = None
        self.is_void = False
        """The directory was gone before its entries were synced: if it was renamed, the log's owner has to flush again."""
        self._begun = Lock()

    # on the loop ------------------------------------------------------------------------------------------------------------------

    def add(self, handle: File | None) -> None:
        """A file to sync, by a handle that becomes the flush's own."""
        if handle is not None:
            self._handles.append(handle)

    def add_index(self, index: MappedOffsetIndex | MappedTimeIndex) -> None:
        """An index, unless it is on the disk as it is."""
        handle = index.begin_force()
        if handle is not None:
            self._handles.append(handle)
            self._indexes.append((index, index.change_count))

    def add_first(self, work: Callable[[], None]) -> None:
        """What has to be on the disk before the log counts as flushed."""
        self._first.append(work)

    def add_directory(self, directory: str) -> None:
        """The directory has entries that are not on the disk."""
        self.directory = directory

    def cut(self, offset: int) -> None:
        """What is at and above `offset` is not part of this flush any more: the log was cut there, or its indexes changed."""
        self.offset = min(self.offset, offset)

    def end(self) -> None:
        """`run` has come back: the indexes are on the disk as they were."""
        for index, change_count in self._indexes:
            index.end_force(change_count)

    # in a thread ------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Sync everything. Raises OSError, and KafkaStorageError for what came first. A closed flush does nothing and is void."""
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
        """Close the handles of a flush that no thread has begun to run; it does not run any more. In any thread."""
        if self._begun.acquire(blocking=False):
            self._close()

    def _close(self) -> None:
        for handle in self._handles:
            handle.close()
        self._handles.clear()
