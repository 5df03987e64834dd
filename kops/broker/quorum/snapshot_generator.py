"""Writes a snapshot of the metadata after a number of bytes of new log, or after some time.

Source: Kafka's SnapshotGenerator, SnapshotEmitter and RaftSnapshotWriter (KIP-630). An image never changes, so a side thread encodes its
records, writes the file, syncs it and gives it its name. The loop only adds the snapshot to those of the log.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from kops.errors import KopsError
from kops.metadata.image.writer import UnwritableMetadata, WriterOptions, write_image
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.metadata.records import write_record

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kops.broker.network.events.loop import Loop
    from kops.broker.quorum.raft_manager import RaftManager
    from kops.metadata.image.batch_loader import Manifest
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.raft.log.snapshot import SnapshotWriter

log = logging.getLogger(__name__)

_BATCH_RECORDS: Final = 1024
# These failures leave the log intact, so the next snapshot may succeed.
_FAILURES: Final = (OSError, KopsError, UnwritableMetadata)


class SnapshotGenerator:
    """A Publisher. It writes a snapshot after `max_bytes` of new records, or `max_interval_ms` after the last one (0: only by size)."""

    def __init__(self, loop: Loop, raft: RaftManager, *, max_bytes: int, max_interval_ms: int) -> None:
        self.disabled_reason: str | None = None
        self._loop = loop
        self._raft = raft
        self._max_bytes = max_bytes
        self._max_interval_ms = max_interval_ms
        self._writer: SnapshotWriter | None = None
        self._reset()

    def _reset(self) -> None:
        self._size = 0
        self._last_ms = self._loop.monotonic_ms()

    def disable(self, reason: str) -> None:
        """Write no more snapshots. The first reason is kept."""
        self.disabled_reason = self.disabled_reason or reason

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Count the new records, and write a snapshot if one is due."""
        if manifest.is_snapshot:
            self._reset()
            return
        self._size += manifest.size
        if self._size >= self._max_bytes:
            reason = f"we have replayed at least {self._max_bytes} bytes"
        elif self._max_interval_ms and self._loop.monotonic_ms() - self._last_ms >= self._max_interval_ms:
            reason = f"we have waited at least {self._max_interval_ms // 60_000} minute(s)"
        else:
            return
        if self._writer is not None or not manifest.provenance.is_offset_batch_aligned:
            return
        if self.disabled_reason is not None:
            log.error("Not writing a snapshot although %s: %s", reason, self.disabled_reason)
            return
        self._reset()
        self._write(image, reason)

    def _write(self, image: MetadataImage, reason: str) -> None:
        offset, epoch = image.provenance.snapshot_id
        snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
        try:
            writer = self._raft.create_snapshot(snapshot_id, image.provenance.last_contained_log_time_ms)
        except _FAILURES as error:
            _tell(snapshot_id, error)
            return
        if writer is None:
            log.error("Not generating snapshot %s because it already exists", snapshot_id)
            return
        log.info("Creating new KRaft snapshot %s because %s", snapshot_id, reason)
        self._writer = writer
        now_ms = self._loop.now_ms()
        self._raft.side_work.add(lambda: _write_all(writer, image, now_ms), lambda future: self._finish(writer, snapshot_id, future))

    def _finish(self, writer: SnapshotWriter, snapshot_id: OffsetAndEpoch, future: Future[None]) -> None:
        self._writer = None
        try:
            future.result()
            if not self._raft.is_closed:
                size = writer.freeze(self._loop.now_ms())
                log.info("Successfully wrote snapshot %s of %d bytes", snapshot_id, size)
        except _FAILURES as error:
            _tell(snapshot_id, error)
        finally:
            writer.close()

    def close(self) -> None:
        """Drop a snapshot that no thread has finished. Called when the Raft node is closed and no thread is at work any more."""
        if self._writer is not None:
            self._writer.close()


def _tell(snapshot_id: OffsetAndEpoch, error: Exception) -> None:
    log.error("KRaft snapshot file generation error: %s: %s", snapshot_id, error)


def _write_all(writer: SnapshotWriter, image: MetadataImage, now_ms: int) -> None:
    values = (write_record(*record) for record in write_image(image, WriterOptions.of(image)))
    while batch := list(itertools.islice(values, _BATCH_RECORDS)):
        writer.append(batch, now_ms)
    writer.settle(now_ms)
