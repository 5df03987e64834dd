"""What Raft commits as metadata records: decoded once a batch, however many parts of a node listen.

Source: Kafka's RecordsBatchReader, RecordsSnapshotReader and MetadataRecordSerde.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import LoadedBatch
from kops.metadata.image.metadata_image import MetadataProvenance
from kops.metadata.raft.log.control_records import read_snapshot_header
from kops.metadata.raft.log.control_state import snapshot_batches
from kops.metadata.records import read_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kops.metadata.raft.log.log import SnapshotSource
    from kops.protocol.declaration import Message
    from kops.records import Batch


class CommittedRecords:
    """Decodes committed batches; the listeners of one delivery are given the same list."""

    def __init__(self) -> None:
        self._batches: Sequence[Batch] = ()
        self._decoded: list[LoadedBatch] = []

    def of(self, batches: Sequence[Batch]) -> list[LoadedBatch]:
        """The batches with their records; control batches have none. Raises DecodeError."""
        if batches is not self._batches:
            self._decoded = [_decoded(batch) for batch in batches]
            self._batches = batches
        return self._decoded


def _decoded(batch: Batch) -> LoadedBatch:
    return LoadedBatch(
        batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, batch.size, _messages(batch)
    )


def _messages(batch: Batch) -> Sequence[Message]:
    return () if batch.is_control else [read_record(record.value or b"")[0] for record in batch.records()]


def snapshot_records(snapshot: SnapshotSource) -> Iterator[Message]:
    """The metadata records of a snapshot, one by one. Raises DecodeError."""
    for batch in snapshot_batches(snapshot):
        yield from _messages(batch)


def snapshot_provenance(snapshot: SnapshotSource) -> MetadataProvenance:
    """The last record that a snapshot stands for. Raises DecodeError."""
    snapshot_id = snapshot.snapshot_id
    first = next(snapshot_batches(snapshot), None)
    if first is None:
        raise DecodeError(f"the snapshot of offset {snapshot_id.offset} and epoch {snapshot_id.epoch} is empty")
    return MetadataProvenance(snapshot_id.offset - 1, snapshot_id.epoch, read_snapshot_header(first), is_offset_batch_aligned=True)
