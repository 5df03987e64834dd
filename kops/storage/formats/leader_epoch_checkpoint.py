"""`leader-epoch-checkpoint`: the first offset that each leader of the partition wrote.

The first line is `0` (the version), the second the number of entries. Each further line is `epoch start_offset`. Sources: Kafka's
CheckpointFile and LeaderEpochCheckpointFile. The reader accepts the entries in any order. The order matters only to LeaderEpochFileCache,
which adds them one by one (see `effective_epochs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java import parse_int, parse_long, split_spaces
from kops.errors import DecodeError
from kops.storage.formats.checkpoints import read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    start_offset: int


def read_leader_epoch_checkpoint(data: bytes, *, file: str | None = None) -> list[EpochEntry]:
    """Return the entries in the file's order. Raises DecodeError with the codes of `kops.storage.formats.checkpoints`."""
    return read_checkpoint(data, _parse_entry, file=file)


def write_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """Return the file's bytes."""
    return write_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def effective_epochs(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Return the entries that a broker keeps after it has added the file's entries one by one (LeaderEpochFileCache.assign).

    Raises DecodeError (`epoch-negative`) where Kafka throws IllegalArgumentException.
    """
    epochs: list[EpochEntry] = []
    for entry in entries:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise DecodeError(f"epoch {entry.epoch} with start offset {entry.start_offset} is not valid", code="epoch-negative")
        assign_epoch(epochs, entry)
    return epochs


def assign_epoch(epochs: list[EpochEntry], entry: EpochEntry) -> bool:
    """Add an entry at the end and return whether anything changed (LeaderEpochFileCache.assign).

    An entry with the epoch of the last one is ignored unless its offset is smaller. Otherwise the last entries are removed as long as their
    epoch or their offset is not smaller than that of the new entry.
    """
    if epochs and entry.epoch == epochs[-1].epoch and entry.start_offset >= epochs[-1].start_offset:
        return False
    while epochs and (epochs[-1].epoch >= entry.epoch or epochs[-1].start_offset >= entry.start_offset):
        epochs.pop()
    epochs.append(entry)
    return True


def _parse_entry(line: str) -> EpochEntry | None:
    fields = split_spaces(line)
    return EpochEntry(parse_int(fields[0]), parse_long(fields[1])) if len(fields) == 2 else None
