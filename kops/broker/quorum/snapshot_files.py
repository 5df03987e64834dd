"""The snapshot files of the metadata log: `<offset>-<epoch>.checkpoint` in its directory, written as `.part` and frozen by a rename.

Source: Kafka's Snapshots, FileRawSnapshotWriter and FileRawSnapshotReader (KIP-630). A frozen snapshot is read-only (mode 0400). A snapshot
to be deleted is renamed to `.deleted` first and unlinked later.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.storage.failures.load_errors import ILLEGAL_STATE, NUMBER_FORMAT, LoadError
from kops.storage.formats.names import log_file_name, parse_log_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import Files
    from kops.storage.formats.names import FileSuffix

READ_ONLY: Final = 0o400
_SUFFIXES: Final = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")


def snapshot_path(directory: str, snapshot_id: OffsetAndEpoch, suffix: FileSuffix = "") -> str:
    """The path of a snapshot."""
    return posixpath.join(directory, log_file_name(snapshot_id.offset, "checkpoint", suffix, epoch=snapshot_id.epoch))


def parse_snapshot_name(name: str) -> tuple[OffsetAndEpoch, FileSuffix] | None:
    """The snapshot to which a file belongs, and the file's suffix; None for other files. Raises LoadError if Kafka can't read the name."""
    if not name.endswith(_SUFFIXES):
        return None
    found = parse_log_file(name)
    if found is None or found.epoch is None:
        raise LoadError(f"'{name}' does not begin with an offset and an epoch", exception=NUMBER_FORMAT)
    return OffsetAndEpoch(offset=found.offset, epoch=found.epoch), found.suffix


class SnapshotFileWriter:
    """Writes a snapshot (SnapshotSink) into a `.part` file with a unique name. Calls `frozen` when the file has become a snapshot."""

    def __init__(self, files: Files, directory: str, snapshot_id: OffsetAndEpoch, frozen: Callable[[OffsetAndEpoch], None]) -> None:
        self.snapshot_id = snapshot_id
        self._files = files
        self._directory = directory
        self._frozen = frozen
        self._is_settled = self._is_frozen = False
        self._size = 0
        self._path = self._free_path()
        self._file = files.open(self._path, "new")

    def _free_path(self) -> str:
        stem = log_file_name(self.snapshot_id.offset, "checkpoint", epoch=self.snapshot_id.epoch).removesuffix(".checkpoint")
        number = 0
        while self._files.exists(path := posixpath.join(self._directory, f"{stem}-{number}.checkpoint.part")):
            number += 1
        return path

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return self._size

    def append(self, data: bytes) -> None:
        """Add bytes. Raises LoadError (IllegalStateException) once the snapshot is settled."""
        self._check_not_settled("Append")
        self._file.write(self._size, data)
        self._size += len(data)

    def settle(self) -> None:
        """Sync the file, rename it and sync the directory. May be called in any thread, because it waits for the disk."""
        self._check_not_settled("Freeze")
        self._file.sync()
        self._file.close()
        self._files.set_mode(self._path, READ_ONLY)
        self._files.rename(self._path, snapshot_path(self._directory, self.snapshot_id))
        self._files.sync_dir(self._directory)
        self._is_settled = True

    def freeze(self) -> None:
        """Make it one of the log's snapshots. Settles it first if that has not been done."""
        if self._is_frozen:
            self._check_not_settled("Freeze")
        if not self._is_settled:
            self.settle()
        self._is_frozen = True
        self._frozen(self.snapshot_id)

    def close(self) -> None:
        """Delete the file unless it is settled. A second call does nothing."""
        self._file.close()
        if not self._is_settled and self._files.exists(self._path):
            self._files.unlink(self._path)

    def _check_not_settled(self, operation: str) -> None:
        if self._is_settled:
            reason = f"{operation} is not supported. Snapshot is already frozen: id = {self.snapshot_id}; temp path = {self._path}"
            raise LoadError(reason, exception=ILLEGAL_STATE)


class SnapshotFileReader:
    """Reads a frozen snapshot (SnapshotSource). Raises FileNotFoundError if the file is gone."""

    def __init__(self, files: Files, directory: str, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self._file = files.open(snapshot_path(directory, snapshot_id))
        self._size = self._file.size()

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._size

    def read(self, position: int, max_size: int) -> bytes:
        """Read up to `max_size` bytes from `position`; fewer at the end."""
        return self._file.read(position, max(0, min(max_size, self._size - position)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
