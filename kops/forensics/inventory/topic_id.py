"""The topic id that a partition directory has in its partition.metadata (Kafka's `PartitionMetadataFile`)."""

from __future__ import annotations

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir
from kops.storage.formats.partition_metadata import read_partition_metadata

__all__ = ["topic_id_of"]


def topic_id_of(files: Files, partition: PartitionDir) -> str | None:
    """The id in partition.metadata, None if there is none that can be read."""
    entry = partition.file("partition-metadata")
    if entry is None:
        return None
    try:
        return read_partition_metadata(files.read_all(entry.path), file=entry.path).topic_id
    except (DecodeError, OSError):
        return None
