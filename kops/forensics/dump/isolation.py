"""The records that a consumer gets from a partition: no control records, and with read_committed no aborted or open transactions.

Sources: Kafka's `UnifiedLog.fetchLastStableOffset`, `ProducerAppendInfo` (a transaction begins with the first transactional batch of a
producer after its last marker) and the consumer's `CompletedFetch` (it skips the data of a transaction up to its ABORT marker). The markers
come from the log itself, not from `.txnindex`, which is made from them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir
from kops.records import Batch, Damage, scan
from kops.records.record import control_type_id
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
ISOLATIONS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
_ABORT: Final = 0
_COMMIT: Final = 1


@dataclass(slots=True)
class ConsumerView:
    """The records that a consumer of this isolation gets. `end_offset` is exclusive: the last stable offset, or the log's end with
    read_uncommitted."""

    isolation: str
    log_start_offset: int = 0
    end_offset: int = 0
    _markers: dict[int, tuple[list[int], list[bool]]] = field(default_factory=dict)

    def shows(self, batch: Batch) -> bool:
        """Whether the consumer gets records of this batch (those from `log_start_offset` to `end_offset`)."""
        if batch.is_control or batch.last_offset < self.log_start_offset:
            return False
        if self.isolation != READ_COMMITTED:
            return True
        if batch.magic > 1 and batch.base_offset >= self.end_offset:
            return False
        return not (batch.is_transactional and self.outcome(batch) is False)

    def shows_offset(self, offset: int) -> bool:
        """Whether the consumer gets a record of a shown batch."""
        return self.log_start_offset <= offset and (self.isolation != READ_COMMITTED or offset < self.end_offset)

    def outcome(self, batch: Batch) -> bool | None:
        """How the transaction of the batch ended: True committed, False aborted, None not yet."""
        offsets, commits = self._markers.get(batch.producer_id, ([], []))
        index = bisect_right(offsets, batch.last_offset)
        return commits[index] if index < len(offsets) else None


def consumer_view(files: Files, partition: PartitionDir, isolation: str) -> ConsumerView:
    """Read the transactions in a partition's live segments, and its log start offset in the log directory.

    Damage is skipped. OSError if a segment can't be read.
    """
    return view_of(_batches(files, partition), isolation, log_start_offset(files, partition))


def _batches(files: Files, partition: PartitionDir) -> Iterator[Batch]:
    for segment in partition.live_segments:
        assert segment.log is not None
        with files.open(segment.log.path) as file:
            yield from (item for item in scan(file) if not isinstance(item, Damage))


def view_of(batches: Iterable[Batch], isolation: str, start: int = 0) -> ConsumerView:
    """Read the transactions in these batches; none of them is read with read_uncommitted. `start`: the log start offset."""
    view = ConsumerView(isolation, start)
    if isolation != READ_COMMITTED:
        return view
    transactional: list[tuple[int, int, int]] = []
    for item in batches:
        view.end_offset = item.next_offset
        if item.is_control:
            _add_markers(view, item)
        elif item.is_transactional:
            transactional.append((item.producer_id, item.base_offset, item.last_offset))
    for producer_id, base_offset, last_offset in transactional:
        offsets, _ = view._markers.get(producer_id, ([], []))
        if not offsets or last_offset > offsets[-1]:
            view.end_offset = min(view.end_offset, base_offset)
    return view


def _add_markers(view: ConsumerView, batch: Batch) -> None:
    try:
        records = batch.records()
        for record in records:
            _, type_id = control_type_id(record.key)
            if type_id in (_ABORT, _COMMIT):
                offsets, commits = view._markers.setdefault(batch.producer_id, ([], []))
                offsets.append(record.offset)
                commits.append(type_id == _COMMIT)
    except DecodeError:
        return  # A marker that can't be read ends nothing.


def log_start_offset(files: Files, partition: PartitionDir) -> int:
    """The partition's log start offset: that of the checkpoint in its log directory, at least the first segment's base offset."""
    live = partition.live_segments
    first = live[0].base_offset if live else 0
    path = os.path.join(os.path.dirname(os.path.abspath(partition.path)), LOG_START_OFFSET_CHECKPOINT)
    if partition.topic is None or not files.exists(path):
        return first
    try:
        offsets = read_offset_checkpoint(files.read_all(path), file=path)
    except DecodeError:
        return first
    return max(first, offsets.get(TopicPartition(partition.topic, partition.partition), first))
