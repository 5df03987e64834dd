"""The records of logs as a consumer of the cluster would have got them, for sending them again (`kops log replay`).

The source is a partition directory, or a partition in an export of `kops log export`. Control records, aborted transactions and records
below the log start offset are left out, with `read_committed` also transactions without a marker (see `kops.forensics.dump.isolation`).
Unlike a consumer, a reader of a log on disk does not stop at the last stable offset: nobody will end the transaction that is open there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.dump.isolation import READ_COMMITTED, ConsumerView, consumer_view, view_of
from kops.forensics.inventory.tree import PartitionDir
from kops.forensics.lines.exported import ExportedPartition
from kops.records import Batch, Damage, Record, scan

__all__ = ["ExportSource", "LeftOut", "LogSource", "RecordSource"]


@dataclass(slots=True)
class LeftOut:
    """What a reader did not return. `aborted` and `undecided` are records of transactions, `repeated` those whose offsets go back."""

    aborted: int = 0
    undecided: int = 0
    repeated: int = 0
    damaged: list[str] = field(default_factory=list)


class RecordSource(ABC):
    """A partition to replay. `target` is the topic to which the records go, `where` its place in messages."""

    def __init__(self, name: str, topic: str, partition: int, where: str, target: str, isolation: str = READ_COMMITTED) -> None:
        self.name = name
        self.topic = topic
        self.partition = partition
        self.where = where
        self.target = target
        self.isolation = isolation
        self.on_bytes: Callable[[int], object] | None = None
        self.left_out = LeftOut()

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes to read."""

    @abstractmethod
    def view(self) -> ConsumerView:
        """Which transactions were committed. OSError if a file can't be read."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """The batches in file order. Damage goes to `left_out`. OSError if a file can't be read."""

    def records(self, start: int) -> Iterator[Record]:
        """The records from offset `start` on, with increasing offsets. Damage is left out. OSError if a file can't be read."""
        view = self.view()
        self.left_out = LeftOut()
        next_offset = max(start, view.log_start_offset)
        first = next_offset
        for batch in self.batches():
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

    def _is_wanted(self, view: ConsumerView, batch: Batch) -> bool:
        if self.isolation != READ_COMMITTED or not batch.is_transactional:
            return True
        is_committed = view.outcome(batch)
        self.left_out.aborted += (batch.count or 0) if is_committed is False else 0
        self.left_out.undecided += (batch.count or 0) if is_committed is None else 0
        return bool(is_committed)


class LogSource(RecordSource):
    """The live segments of a partition directory."""

    def __init__(self, files: Files, folder: PartitionDir, target: str, isolation: str = READ_COMMITTED) -> None:
        super().__init__(folder.name, folder.topic or "", folder.partition, folder.path, target, isolation)
        self._files = files
        self._folder = folder

    @property
    def size(self) -> int:
        """The bytes of its logs."""
        return sum(segment.log.size for segment in self._folder.live_segments if segment.log is not None)

    def view(self) -> ConsumerView:
        """The transactions in the live segments."""
        return consumer_view(self._files, self._folder, self.isolation)

    def batches(self) -> Iterator[Batch]:
        """The batches of the live segments."""
        for segment in self._folder.live_segments:
            assert segment.log is not None
            with self._files.open(segment.log.path) as file:
                for item in scan(file):
                    if self.on_bytes is not None:
                        self.on_bytes(item.length if isinstance(item, Damage) else item.size)
                    if isinstance(item, Damage):
                        self.left_out.damaged.append(f"{segment.log.path}:{item.position}: {item.reason}")
                    else:
                        yield item


class ExportSource(RecordSource):
    """A partition in an export."""

    def __init__(self, exported: ExportedPartition, target: str, isolation: str = READ_COMMITTED) -> None:
        super().__init__(exported.name, exported.topic, exported.partition, exported.file, target, isolation)
        self._exported = exported

    @property
    def size(self) -> int:
        """The bytes of its lines."""
        return self._exported.end - self._exported.start

    def view(self) -> ConsumerView:
        """The transactions in the lines, and the log start offset."""
        start = self._exported.log_start_offset
        if self.isolation != READ_COMMITTED:
            return ConsumerView(self.isolation, start)
        return view_of((item for item in self._exported.batches() if isinstance(item, Batch)), self.isolation, start)

    def batches(self) -> Iterator[Batch]:
        """The batches that the lines describe."""
        for item in self._exported.batches(self.on_bytes):
            if isinstance(item, Batch):
                yield item
            else:
                self.left_out.damaged.append(item)
