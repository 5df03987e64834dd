"""The leader epochs of a partition and their start offsets: the cache of `leader-epoch-checkpoint`.

Source: Kafka's LeaderEpochFileCache (KIP-101, KIP-279, KIP-320). Epochs and start offsets of the entries are strictly increasing. Assigning
an entry with a lower epoch or offset removes the entries that it contradicts. Assigning writes the file. Truncation only marks the file as
outdated, and `flush` writes it. (In Kafka a scheduler task writes it.) The loader calls `flush` at the point where Kafka's task has run.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kops.config.values.java import NumberFormatError
from kops.errors import DecodeError
from kops.storage.background.replaced_file import ReplacedFile
from kops.storage.failures.load_errors import (
    ILLEGAL_ARGUMENT,
    NUMBER_FORMAT,
    KafkaStorageError,
    LoadError,
    illegal_argument,
    io_error,
    words_of,
)
from kops.storage.formats.leader_epoch_checkpoint import (
    EpochEntry,
    assign_epoch,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import Files

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1
_MALFORMED = "checkpoint-malformed"


class LeaderEpochFileCache:
    """The entries of one partition, and the file in its directory.

    The constructor reads the file, and creates it if it is missing. It raises `KafkaStorageError` if the file is malformed, and a
    `LoadError` with Java's class if a number in it is invalid or negative.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = posixpath.join(directory, FILE_NAME)
        self._entries: list[EpochEntry] = []
        self._flush_due = False
        self._on_disk = b""
        self._file = ReplacedFile(files, self._path)
        self._last_write: Callable[[], None] | None = None
        self.write_aside: Callable[[Callable[[], None]], object] | None = None
        """Runs a function that writes the file in a side thread. If it is None, the file is written at once. See `settle`."""
        try:
            if not files.exists(self._path):
                files.open(self._path, "create").close()
        except OSError as error:
            raise io_error(error) from error
        for entry in self._read():
            self._assign(entry)

    # the file ---------------------------------------------------------------------------------------------------------------------

    def _read(self) -> list[EpochEntry]:
        try:
            self._on_disk = self._files.read_all(self._path)
            return read_leader_epoch_checkpoint(self._on_disk, file=self._path)
        except OSError as error:
            raise KafkaStorageError(f"Error while reading checkpoint file {self._path}", words=words_of(error)) from error
        except DecodeError as error:
            if error.code == _MALFORMED:
                raise KafkaStorageError(f"Error while reading checkpoint file {self._path}", words=str(error)) from error
            number = error.__cause__
            if isinstance(number, NumberFormatError):
                raise LoadError(str(number), exception=NUMBER_FORMAT, words=str(error)) from error
            raise LoadError(error.reason, exception=ILLEGAL_ARGUMENT, words=str(error)) from error

    def _write(self) -> None:
        try:
            self._replace()
        except OSError as error:
            raise self._not_written() from error

    def _replace(self) -> None:
        data = write_leader_epoch_checkpoint(self._entries)
        write = self._last_write = self._file.next(data)
        if self.write_aside is None:
            write()
        else:
            self.write_aside(write)
        self._on_disk = data
        self._flush_due = False

    def settle(self) -> None:
        """Wait until the last write of the file is on disk. May be called in any thread. Raises KafkaStorageError.

        If a crash removes an epoch from the file, recovery finds it again in the batches, but only above the recovery point. So this is
        called before the recovery point moves, and before a clean stop.
        """
        write = self._last_write
        if write is not None:
            try:
                write()
            except OSError as error:
                raise self._not_written() from error

    def _not_written(self) -> KafkaStorageError:
        return KafkaStorageError(f"Error while writing to checkpoint file {self._path}")

    @property
    def flush_due(self) -> bool:
        """Whether a truncation has yet to be written to the file."""
        return self._flush_due

    def update_directory(self, directory: str) -> None:
        """Use the directory's new name, and create the file if it is missing there."""
        self._path = posixpath.join(directory, FILE_NAME)
        self._file = ReplacedFile(self._files, self._path)
        self._last_write = None
        if not self._files.exists(self._path):
            self._files.open(self._path, "create").close()
            self._on_disk = b""

    def clear(self) -> None:
        """Remove all entries. The file stays."""
        self._entries.clear()
        self._flush_due = False

    def flush(self) -> None:
        """Write the file if a truncation has not been written yet and has changed its contents. (Every load truncates, but few truncations
        change anything.)

        Writing also removes the leftovers of a write that a crash interrupted. Nothing is written if the directory is gone because it was
        renamed or deleted meanwhile (a stray log while others are still being loaded; CheckpointFile.writeIfDirExists).
        """
        directory = posixpath.dirname(self._path)
        if self._flush_due and (self._on_disk != write_leader_epoch_checkpoint(self._entries) or self._files.exists(f"{self._path}.tmp")):
            try:
                self._replace()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or self._files.exists(directory):
                    raise self._not_written() from error
        self._flush_due = False

    # changes ----------------------------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin a new epoch at `start_offset`, and write the file."""
        if self._assign(EpochEntry(epoch, start_offset)):
            self._write()

    def _assign(self, entry: EpochEntry) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            illegal_argument(
                f"Received invalid partition leader epoch entry EpochEntry[epoch={entry.epoch}, startOffset={entry.start_offset}]"
            )
        return assign_epoch(self._entries, entry)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the entries that begin at or after `end_offset`. `flush` writes the file."""
        self._flush_due |= _cut_end(self._entries, end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the entries before `start_offset` except the last of them, which then begins there. `flush` writes the file."""
        self._flush_due |= _cut_start(self._entries, start_offset)

    def clear_and_flush(self) -> None:
        """Remove all entries, and write the file."""
        self._entries.clear()
        self._write()

    # look-ups ---------------------------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, by epoch."""
        return tuple(self._entries)

    @property
    def latest_entry(self) -> EpochEntry | None:
        """The newest epoch's entry."""
        return self._entries[-1] if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The oldest epoch's entry."""
        return self._entries[0] if self._entries else None

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch."""
        return self._entries[-1].epoch if self._entries else None

    def entry(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        return next((entry for entry in self._entries if entry.epoch == epoch), None)

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of the largest epoch below this one."""
        return next((entry for entry in reversed(self._entries) if entry.epoch < epoch), None)

    def next_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of the smallest epoch above this one."""
        return next((entry for entry in self._entries if entry.epoch > epoch), None)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was written, or None before the first entry."""
        return next((entry.epoch for entry in reversed(self._entries) if entry.start_offset <= offset), None)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above the requested one, and its end offset: the answer to OffsetForLeaderEpoch.

        Returns (-1, -1) if nothing is known, and the requested epoch with the first known start offset if the log begins later.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = self.next_entry(epoch)
        if higher is None:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        floor = self.previous_entry(epoch + 1)
        return (epoch if floor is None else floor.epoch), higher.start_offset


def _cut_end(entries: list[EpochEntry], end_offset: int) -> bool:
    before = len(entries)
    if end_offset >= 0:
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
    return len(entries) != before


def _cut_start(entries: list[EpochEntry], start_offset: int) -> bool:
    count = 0
    while count < len(entries) and entries[count].start_offset <= start_offset:
        count += 1
    if count:
        entries[:count] = [EpochEntry(entries[count - 1].epoch, start_offset)]
    return count > 0
