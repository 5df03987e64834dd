"""Decodes committed batches into metadata records and passes them to the metadata loader. Each batch is decoded once, however many parts of
a node listen.

Source: Kafka's RecordsBatchReader, RecordsSnapshotReader and MetadataRecordSerde; MetadataLoader as a RaftClient.Listener (handleCommit,
handleLoadSnapshot, scheduleInitializeNewPublishers). Kafka checks every 100 ms whether a new publisher can be started; kops checks at each
commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import LoadedBatch
from kops.metadata.image.metadata_image import MetadataProvenance
from kops.metadata.raft.log.control_records import check_control_record, read_snapshot_header
from kops.metadata.raft.log.control_state import snapshot_batches
from kops.metadata.raft.log.entries import data_value
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID
from kops.metadata.records import read_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kops.metadata.image.loader import MetadataLoader
    from kops.metadata.raft.log.log import SnapshotSource
    from kops.metadata.raft.voters.replica import LeaderAndEpoch
    from kops.protocol.declaration import Message
    from kops.records import Batch


class CommittedRecords:
    """Decodes committed batches. All listeners of one delivery get the same list."""

    def __init__(self) -> None:
        self._batches: Sequence[Batch] = ()
        self._decoded: list[LoadedBatch] = []

    def of(self, batches: Sequence[Batch]) -> list[LoadedBatch]:
        """Return the batches with their records; control batches have none. Raises DecodeError."""
        if batches is not self._batches:
            self._decoded = [_decoded(batch) for batch in batches]
            self._batches = batches
        return self._decoded


def _decoded(batch: Batch) -> LoadedBatch:
    return LoadedBatch(
        batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, batch.size, _messages(batch)
    )


def _messages(batch: Batch) -> Sequence[Message]:
    if batch.is_control:
        for record in batch.iterate():
            check_control_record(batch, record)
        return ()
    return [read_record(data_value(batch, record))[0] for record in batch.iterate()]


def snapshot_records(snapshot: SnapshotSource) -> Iterator[Message]:
    """The metadata records of a snapshot, one by one. Raises DecodeError."""
    for batch in snapshot_batches(snapshot):
        yield from _messages(batch)


def snapshot_provenance(snapshot: SnapshotSource) -> MetadataProvenance:
    """The last record that a snapshot covers. Raises DecodeError."""
    snapshot_id = snapshot.snapshot_id
    first = next(snapshot_batches(snapshot), None)
    if first is None:
        raise DecodeError(f"the snapshot of offset {snapshot_id.offset} and epoch {snapshot_id.epoch} is empty")
    return MetadataProvenance(snapshot_id.offset - 1, snapshot_id.epoch, read_snapshot_header(first), is_offset_batch_aligned=True)


class MetadataReader:
    """A RaftListener that feeds a loader."""

    def __init__(self, loader: MetadataLoader, records: CommittedRecords) -> None:
        self._loader = loader
        self._records = records

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        """Replace the state with that of a snapshot."""
        if snapshot.snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
            self._loader.load_snapshot(snapshot_records(snapshot), snapshot_provenance(snapshot))
            self._loader.initialize_publishers()

    def on_committed(self, batches: Sequence[Batch]) -> None:
        """Pass on batches that are now committed."""
        self._loader.load_batches(self._records.of(batches))
        self._loader.initialize_publishers()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Do nothing: images do not depend on the leader."""

    def on_shut_down(self) -> None:
        """Do nothing: there is nothing to close."""
