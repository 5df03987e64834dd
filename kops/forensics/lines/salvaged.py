"""The records of logs as a consumer of the cluster would have got them, for sending them again (`kops log replay`).

The source is a partition directory. Control records, aborted transactions and records below the log start offset are left out, with
`read_committed` also transactions without a marker (see `kops.forensics.dump.isolation`). Unlike a consumer, a reader of a log on disk does
not stop at the last stable offset: nobody will end the transaction that is open there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.dump.isolation import READ_COMMITTED, ConsumerView, consumer_view
from kops.forensics.inventory.tree import PartitionDir
from kops.records import Batch, Damage, Record, scan

__all__ = ["LeftOut", "LogSource"]


@dataclass(slots=True)
class LeftOut:
    """What a reader did not return. `aborted` and `undecided` are records of transactions, `repeated` those whose offsets go back."""

    aborted: int = 0
    undecided: int = 0
    repeated: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LogSource:
    """The live segments of a partition directory. `target` is the topic to which the records go."""

    files: Files
    folder: PartitionDir
    target: str
    isolation: str = READ_COMMITTED
    on_bytes: Callable[[int], object] | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def name(self) -> str:
        """The partition directory's name."""
        return self.folder.name

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.folder.partition

    @property
    def size(self) -> int:
        """Bytes of its logs."""
        return sum(segment.log.size for segment in self.folder.live_segments if segment.log is not None)

    def records(self, start: int) -> Iterator[Record]:
        """The records from offset `start` on, with increasing offsets. Damage is left out. OSError if a segment can't be read."""
        view = consumer_view(self.files, self.folder, self.isolation)
        self.left_out = LeftOut()
        next_offset = max(start, view.log_start_offset)
        first = next_offset
        for batch in self._batches():
            if batch.is_control or batch.last_offset < first or not self._is_wanted(view, batch):
                continue
            try:
                for record in batch.iterate():
                    if record.offset >= next_offset:
                        next_offset = record.offset + 1
                        yield record
                    elif record.offset >= first:
                        self.left_out.repeated += 1
            except DecodeError as error:
                self.left_out.damaged.append(f"{error.file or self.name}, offset {batch.base_offset}: {error.reason}")

    def _batches(self) -> Iterator[Batch]:
        for segment in self.folder.live_segments:
            assert segment.log is not None
            with self.files.open(segment.log.path) as file:
                for item in scan(file):
                    if self.on_bytes is not None:
                        self.on_bytes(item.length if isinstance(item, Damage) else item.size)
                    if isinstance(item, Damage):
                        self.left_out.damaged.append(f"{segment.log.path}:{item.position}: {item.reason}")
                    else:
                        yield item

    def _is_wanted(self, view: ConsumerView, batch: Batch) -> bool:
        if self.isolation != READ_COMMITTED or not batch.is_transactional:
            return True
        is_committed = view.outcome(batch)
        self.left_out.aborted += (batch.count or 0) if is_committed is False else 0
        self.left_out.undecided += (batch.count or 0) if is_committed is None else 0
        return bool(is_committed)
