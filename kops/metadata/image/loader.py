"""Builds images from the metadata log and its snapshots, and passes them to publishers (Kafka's MetadataLoader, MetadataPublisher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import BatchLoader, Fault, LoadedBatch, Manifest
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.image.parts.configs import SupportedConfig, any_config
from kops.metadata.image.writer import WriterOptions, write_image
from kops.protocol.declaration import Message


class Publisher(Protocol):
    """Receives new images."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Receive the image after a delta. The first delta is based on the empty image and contains everything."""


class MetadataLoader:
    """Loads what Raft commits. Publishers get nothing until the log has been read up to the high watermark once.

    `high_watermark` returns the metadata log's, or None if it is not known yet. `on_fault` is called with records that don't fit. Unless it
    raises, they are skipped.
    """

    def __init__(self, high_watermark: Callable[[], int | None], on_fault: Fault, is_supported: SupportedConfig = any_config) -> None:
        self._high_watermark = high_watermark
        self._on_fault = on_fault
        self._is_supported = is_supported
        self._batches = BatchLoader(self._publish, on_fault, is_supported)
        self._image = EMPTY
        self._is_catching_up = True
        self._new_publishers: list[Publisher] = []
        self._publishers: list[Publisher] = []

    @property
    def image(self) -> MetadataImage:
        """The last image, whether published or not."""
        return self._image

    def install(self, publisher: Publisher) -> None:
        """Install a publisher. It gets images from the next `initialize_publishers`."""
        self._new_publishers.append(publisher)

    def remove(self, publisher: Publisher) -> None:
        """Remove a publisher. Raises ValueError if it was not installed."""
        (self._publishers if publisher in self._publishers else self._new_publishers).remove(publisher)

    def load_batches(self, batches: Iterable[LoadedBatch]) -> None:
        """Load batches that were committed together."""
        for batch in batches:
            self._batches.load(batch)
        self._batches.flush()

    def load_snapshot(self, records: Iterable[Message], provenance: MetadataProvenance) -> None:
        """Load a snapshot, which replaces everything. `provenance` is that of the last record that it contains."""
        delta = MetadataDelta(self._image, self._is_supported)
        for index, record in enumerate(records):
            try:
                delta.replay(record)
            except DecodeError as error:
                place = f"{index} in snapshot at offset {provenance.last_contained_offset}"
                self._on_fault(f"Error loading metadata log record {place}", error)
        delta.finish_snapshot()
        image = delta.apply(provenance)
        self._batches.reset(image)
        self._publish(delta, image, Manifest(provenance, is_snapshot=True))

    def initialize_publishers(self) -> bool:
        """Pass the whole image to new publishers. Returns False if it is too early; the caller tries again soon (Kafka after 100 ms)."""
        if not self._new_publishers:
            return True
        if self._must_catch_up():
            return False
        delta = MetadataDelta(EMPTY, self._is_supported)
        for record, _ in write_image(self._image, WriterOptions.of(self._image)):
            delta.replay(record)
        delta.finish_snapshot()
        for publisher in self._new_publishers:
            publisher.on_metadata_update(delta, self._image, Manifest(self._image.provenance, is_snapshot=True))
        self._publishers += self._new_publishers
        self._new_publishers = []
        return True

    def _publish(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self._image = image
        if self._must_catch_up():
            return
        for publisher in list(self._publishers):
            publisher.on_metadata_update(delta, image, manifest)

    def _must_catch_up(self) -> bool:
        if self._is_catching_up:
            end = self._high_watermark()
            self._is_catching_up = end is None or end - 1 > self._image.offset or not self._batches.has_seen_record
        return self._is_catching_up
