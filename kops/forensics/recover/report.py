"""The report of a recovery, with a row for each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kops.forensics.recover.copies.evidence import joined
from kops.forensics.recover.copies.merge import Conflict

__all__ = ["RecoverReport", "RecoveredPartition"]


@dataclass(slots=True)
class RecoveredPartition:
    """The result of one partition. `lost` are offset ranges whose batches are damaged in every copy, or missing according to other files.
    `gaps` are all offsets between kept batches that no batch has (compaction leaves gaps, too). `complete` is False after an interruption.
    `conflicts`: where copies disagree, and which one was taken. `failure`: why the partition could not be read or written.
    """

    name: str
    output: str
    sources: list[str]
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    lost: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    damaged: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compacted: bool = False
    complete: bool = True
    conflicts: list[Conflict] = field(default_factory=list)
    failure: str | None = None

    @property
    def lossy(self) -> bool:
        """Whether records are known to be lost: damaged everywhere, or missing in a log that was not compacted."""
        return bool(self.missing)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The offsets of records that are known to be lost, sorted: `lost`, and `gaps` of a log that was not compacted."""
        return joined([*self.lost, *(() if self.compacted else self.gaps)])

    def to_json(self) -> dict[str, Any]:
        """As in the report; ranges are `[first, last]`, both inclusive."""
        return {
            "partition": self.name,
            "output": self.output,
            "sources": self.sources,
            "complete": self.complete,
            "compacted": self.compacted,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "lost": [list(found) for found in self.lost],
            "gaps": [list(found) for found in self.gaps],
            "damaged": self.damaged,
            "notes": self.notes,
            "conflicts": [found.to_json() for found in self.conflicts],
            "failure": self.failure,
        }


@dataclass(slots=True)
class RecoverReport:
    """The result of a run: partitions in order, what was skipped, directories that can't be listed, and whether it was interrupted."""

    out: str
    shape: str
    renumbered: bool
    partitions: list[RecoveredPartition] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def damaged(self) -> bool:
        """Whether the input was damaged."""
        return any(partition.damaged or partition.lossy or partition.notes or partition.conflicts for partition in self.partitions)

    @property
    def failed(self) -> bool:
        """Whether a partition could not be read or written."""
        return bool(self.unreadable) or any(partition.failure is not None for partition in self.partitions)

    @property
    def lossy(self) -> bool:
        """Whether records are known to be lost."""
        return any(partition.lossy for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.recover/v1` without its schema."""
        return {
            "out": self.out,
            "as": self.shape,
            "renumbered": self.renumbered,
            "interrupted": self.interrupted,
            "partitions": [partition.to_json() for partition in self.partitions],
            "skipped": [*self.unreadable, *self.skipped],
        }
