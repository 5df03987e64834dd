"""Loads batches of the metadata log into images. A transaction takes effect as a whole (Kafka MetadataBatchLoader, LogDeltaManifest;
KIP-868)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from kops.errors import DecodeError
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.image.parts.changes import contradiction
from kops.metadata.image.parts.configs import SupportedConfig, any_config
from kops.protocol.declaration import Message


class LoadedBatch(NamedTuple):
    """A committed batch. `append_time_ms` is the time in its header, `size` its size on disk in bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    size: int
    records: Sequence[Message]


class Manifest(NamedTuple):
    """What an image was built from: its last record, and the number of batches and bytes since the previous image (0 for a snapshot)."""

    provenance: MetadataProvenance
    batch_count: int = 0
    size: int = 0
    is_snapshot: bool = False


class _Transaction(Enum):
    NONE = auto()
    STARTED = auto()
    CONTINUED = auto()
    ENDED = auto()
    ABORTED = auto()


_OPEN = (_Transaction.STARTED, _Transaction.CONTINUED)

# Called with changes: the delta, the image after it, and the manifest.
Update = Callable[[MetadataDelta, MetadataImage, Manifest], None]
# Called with a record that does not fit. If this raises, loading ends, otherwise the record is skipped.
Fault = Callable[[str, DecodeError], None]


class BatchLoader:
    """Loads committed batches in order and passes each image to `update`. A transaction's records become visible at its end."""

    def __init__(self, update: Update, on_fault: Fault, is_supported: SupportedConfig = any_config) -> None:
        self._update = update
        self._on_fault = on_fault
        self._is_supported = is_supported
        self.reset(EMPTY)

    @property
    def image(self) -> MetadataImage:
        """The last image."""
        return self._image

    @property
    def has_seen_record(self) -> bool:
        """Whether the controller has written a record other than the frame of a transaction."""
        return self._has_seen_record

    def reset(self, image: MetadataImage) -> None:
        """Continue from this image, and forget changes that were not flushed."""
        self._image = image
        self._has_seen_record = not image.is_empty
        self._delta = MetadataDelta(image, self._is_supported)
        self._transaction = _Transaction.NONE
        last = image.provenance
        self._last_offset = last.last_contained_offset
        self._last_epoch = last.last_contained_epoch
        self._last_time_ms = last.last_contained_log_time_ms
        self._size = 0
        self._batch_count = 0

    def load(self, batch: LoadedBatch) -> None:
        """Load the records of a batch. A transaction that begins in it first flushes an image of the preceding records."""
        self._last_time_ms = batch.append_time_ms
        self._last_epoch = batch.epoch
        for index, record in enumerate(batch.records):
            try:
                self._replay(record)
            except DecodeError as error:
                self._on_fault(f"Error loading metadata log record from offset {batch.base_offset + index}", error)
            if self._transaction is _Transaction.STARTED and (index > 0 or self._batch_count > 0):
                self._publish(self._delta, is_aligned=index == 0)
                self._transaction = _Transaction.STARTED
            self._last_offset = batch.base_offset + index
        self._last_offset = batch.last_offset
        self._size += batch.size
        self._batch_count += 1

    def flush(self, *, is_aligned: bool = True) -> None:
        """Build an image from all batches that were loaded so far, unless a transaction is open."""
        if self._transaction in _OPEN:
            return
        if self._transaction is _Transaction.ABORTED:
            self._publish(MetadataDelta(self._image, self._is_supported), is_aligned=is_aligned)
        else:
            self._publish(self._delta, is_aligned=is_aligned)

    def _replay(self, record: Message) -> None:
        kind = type(record).__name__
        if kind == "BeginTransactionRecord":
            if self._transaction in _OPEN:
                raise contradiction("Encountered BeginTransactionRecord while already in a transaction")
            self._transaction = _Transaction.STARTED
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._transaction not in _OPEN:
                raise contradiction(f"Encountered {kind} without having seen a BeginTransactionRecord")
            self._transaction = _Transaction.ENDED if kind == "EndTransactionRecord" else _Transaction.ABORTED
        else:
            self._transaction = _Transaction.CONTINUED if self._transaction in _OPEN else _Transaction.NONE
            self._has_seen_record = True
            self._delta.replay(record)

    def _publish(self, delta: MetadataDelta, *, is_aligned: bool) -> None:
        provenance = MetadataProvenance(self._last_offset, self._last_epoch, self._last_time_ms, is_aligned)
        manifest = Manifest(provenance, self._batch_count, self._size)
        image = delta.apply(provenance)
        self._update(delta, image, manifest)
        self.reset(image)
