"""Finds a topic's id if partition.metadata is missing: from other partitions of the topic, else from the cluster's metadata log.

Format: Kafka's PartitionMetadataFile; TopicRecord, RemoveTopicRecord and RegisterBrokerRecord of the metadata log (`kops.metadata`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import Inventory, PartitionDir
from kops.records import Damage, scan
from kops.storage.formats.names import METADATA_TOPIC
from kops.storage.formats.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from kops.metadata import ClusterImage

__all__ = ["TopicIds"]

METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The fixed id of the metadata topic (Uuid.METADATA_TOPIC_ID)."""


class TopicIds:
    """Topic ids by name, as far as all sources agree. Files are read at the first look-up."""

    def __init__(self, files: Files, inventory: Inventory) -> None:
        self.files = files
        self.inventory = inventory
        self._known: dict[str, str] | None = None
        self._image: ClusterImage | None = None

    def of(self, partition: PartitionDir) -> str | None:
        """Return the id of the partition's topic, None if it is not known or the sources disagree."""
        if partition.topic is None:
            return None
        if partition.topic == METADATA_TOPIC:
            return METADATA_TOPIC_ID
        if self._known is None:
            self._known = self._read()
        return self._known.get(partition.topic)

    def _read(self) -> dict[str, str]:
        found: dict[str, set[str]] = {}
        for partition in self.inventory.partitions():
            entry = partition.file("partition-metadata")
            if entry is None or partition.topic is None or partition.state in ("delete", "stray"):
                continue
            try:
                topic_id = read_partition_metadata(self.files.read_all(entry.path)).topic_id
            except (DecodeError, OSError):
                continue
            found.setdefault(partition.topic, set()).add(topic_id)
        known = {topic: ids.pop() for topic, ids in found.items() if len(ids) == 1}
        for topic, topic_id in self._from_metadata().items():
            if topic not in found:
                known[topic] = topic_id
        return known

    def brokers(self) -> dict[int, set[str]]:
        """Directory ids by broker, as the metadata log has them."""
        return self.image().brokers if self._metadata_logs() else {}

    def image(self) -> ClusterImage:
        """Read topic ids from the metadata logs, as far as these can be read."""
        # Few repairs have a metadata log, and the messages of its records take long to import.
        from kops.metadata import ClusterImage

        if self._image is None:
            self._image = ClusterImage()
            for partition in self._metadata_logs():
                self._read_metadata(self._image, partition)
        return self._image

    def _metadata_logs(self) -> list[PartitionDir]:
        logs = (partition for log_dir in self.inventory.log_dirs for partition in log_dir.partitions)
        return [partition for partition in logs if partition.topic == METADATA_TOPIC and not partition.state]

    def _read_metadata(self, image: ClusterImage, partition: PartitionDir) -> None:
        snapshots = [entry for entry in partition.files if entry.kind == "checkpoint" and not entry.suffix]
        for entry in sorted(snapshots, key=lambda entry: (entry.offset or 0, entry.epoch or 0))[-1:]:
            self._replay(image, entry.path)
        for segment in partition.live_segments:
            if segment.log is not None:
                self._replay(image, segment.log.path)

    def _from_metadata(self) -> dict[str, str]:
        if not self._metadata_logs():
            return {}
        names: dict[str, list[str]] = {}
        for topic_id, topic in self.image().topics.items():
            names.setdefault(topic, []).append(topic_id)
        return {topic: ids[0] for topic, ids in names.items() if len(ids) == 1}

    def _replay(self, image: ClusterImage, path: str) -> None:
        from kops.metadata import read_metadata_record

        with self.files.open(path) as log:
            for found in scan(log):
                if isinstance(found, Damage) or found.is_control:
                    continue
                try:
                    for record in found.iterate():
                        if record.value is not None:
                            image.replay(read_metadata_record(record.value))
                except DecodeError:
                    continue  # A contradictory record is not used; the ids of other topics are.
