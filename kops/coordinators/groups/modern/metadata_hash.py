"""Hashes of the metadata of a group's topics (Kafka's Utils.computeTopicHash, computeGroupHash). A changed hash means a new group epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import pack
from typing import Final

from kops.coordinators.groups.modern.xxh3 import xxh3_64
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage, TopicView

_MAGIC: Final = b"\0"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _chars(text: str) -> bytes:
    """Encode a string for the hash as hash4j does: Java's chars followed by their number."""
    data = text.encode("utf-16-le", "surrogatepass")
    return data + pack("<i", len(data) // 2)


def topic_hash(topic: TopicView) -> int:
    """Return the hash of a topic: its id, name, partitions, and the racks of their replicas."""
    parts = [_MAGIC, topic.id[7::-1], topic.id[:7:-1], _chars(topic.name), pack("<i", topic.partition_count)]
    for partition in range(topic.partition_count):
        parts.append(pack("<i", partition))
        for rack in sorted(topic.partition_racks(partition), key=_utf16):
            chars = _chars(rack)
            parts.append(chars[-4:] + chars)
    return _signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of topics by name."""
    if not topic_hashes:
        return 0
    return _signed(xxh3_64(b"".join(pack("<q", topic_hashes[name]) for name in sorted(topic_hashes, key=_utf16))))


def _utf16(text: str) -> bytes:
    """Return the sort key of Java's string order."""
    return text.encode("utf-16-be", "surrogatepass")


class TopicHashes:
    """A cache of the hashes of topics."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}
        self._image_before: CoordinatorImage | None = None

    def forget(self, topic: str) -> None:
        """Drop a topic that has changed or has no more subscribers."""
        self._kept.pop(topic, None)

    def forget_changed(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> list[str]:
        """Drop the topics that new metadata changes or deletes. Returns their names. The first metadata comes without a delta."""
        before, self._image_before = self._image_before, image
        if delta is None:
            return []
        topics = [image.topic_by_id(topic_id) for topic_id in delta.changed_topic_ids]
        if before is not None:
            topics += (before.topic_by_id(topic_id) for topic_id in delta.deleted_topic_ids)
        names = [topic.name for topic in topics if topic is not None]
        for name in names:
            self.forget(name)
        return names

    def of_topics(self, names: Iterable[str], image: CoordinatorImage) -> int:
        """Return the hash for a group that subscribes to these topics (ModernGroup.computeMetadataHash). Missing topics are ignored."""
        hashes: dict[str, int] = {}
        for name in names:
            topic = image.topic(name)
            if topic is not None:
                kept = self._kept.get(name)
                if kept is None:
                    kept = self._kept[name] = topic_hash(topic)
                hashes[name] = kept
        return group_hash(hashes)
