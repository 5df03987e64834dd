"""Tables of offsets by group, topic and partition, and of the offsets of open transactions (from Kafka's OffsetMetadataManager)."""

from __future__ import annotations

from collections.abc import Iterable

from kops.coordinators.groups.offset_and_metadata import OffsetAndMetadata
from kops.timeline import Timeline, TimelineDict

Place = tuple[str, int]
"""Topic and partition."""
Offsets = TimelineDict[Place, OffsetAndMetadata]


class OffsetTable:
    """The offsets of all groups, or those of one transaction."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.by_group: TimelineDict[str, Offsets] = TimelineDict(timeline)

    def get(self, group_id: str, place: Place) -> OffsetAndMetadata | None:
        """Return the offset at a place."""
        offsets = self.by_group.get(group_id)
        return None if offsets is None else offsets.get(place)

    def put(self, group_id: str, place: Place, offset: OffsetAndMetadata) -> None:
        """Store an offset."""
        offsets = self.by_group.get(group_id)
        if offsets is None:
            offsets = self.by_group[group_id] = TimelineDict(self._timeline)
        offsets[place] = offset

    def remove(self, group_id: str, place: Place) -> None:
        """Remove an offset. The group is removed with its last offset."""
        offsets = self.by_group.get(group_id)
        if offsets is None or offsets.pop(place, None) is None:
            return
        if not offsets:
            del self.by_group[group_id]


class PendingOffsets:
    """The offsets of open transactions by producer id, and for each partition the producers that have an offset for it."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._by_producer: TimelineDict[int, OffsetTable] = TimelineDict(timeline)
        self._open: TimelineDict[str, TimelineDict[Place, TimelineDict[int, None]]] = TimelineDict(timeline)

    def put(self, producer_id: int, group_id: str, place: Place, offset: OffsetAndMetadata) -> None:
        """Store an offset until the producer's transaction ends."""
        table = self._by_producer.get(producer_id)
        if table is None:
            table = self._by_producer[producer_id] = OffsetTable(self._timeline)
        table.put(group_id, place, offset)
        places = self._open.get(group_id)
        if places is None:
            places = self._open[group_id] = TimelineDict(self._timeline)
        producers = places.get(place)
        if producers is None:
            producers = places[place] = TimelineDict(self._timeline)
        if producer_id not in producers:
            producers[producer_id] = None

    def clear(self, group_id: str, place: Place) -> None:
        """Remove the offsets of all transactions for a partition."""
        places = self._open.get(group_id)
        producers = None if places is None else places.get(place)
        if places is None or producers is None:
            return
        for producer_id in producers:
            table = self._by_producer.get(producer_id)
            if table is not None:
                table.remove(group_id, place)
        self._close(group_id, places, place)

    def end(self, producer_id: int) -> OffsetTable | None:
        """Remove and return the offsets of a producer's transaction that has ended, or None."""
        table = self._by_producer.pop(producer_id, None)
        if table is None:
            return None
        for group_id, offsets in table.by_group.items():
            for place in offsets:
                places = self._open.get(group_id)
                producers = None if places is None else places.get(place)
                if places is None or producers is None or producer_id not in producers:
                    continue
                del producers[producer_id]
                if not producers:
                    self._close(group_id, places, place)
        return table

    def has_group(self, group_id: str) -> bool:
        """Whether the group has pending offsets."""
        return group_id in self._open

    def has(self, group_id: str, place: Place) -> bool:
        """Whether a partition has a pending offset."""
        places = self._open.get(group_id)
        return places is not None and place in places

    def places(self, group_id: str) -> Iterable[Place]:
        """Return the partitions for which the group has pending offsets."""
        return list(self._open.get(group_id, ()))

    def by_producer(self) -> Iterable[tuple[int, OffsetTable]]:
        """The producer id of each transaction, and its offsets."""
        return self._by_producer.items()

    def tables(self) -> Iterable[OffsetTable]:
        """The offsets of each transaction."""
        return self._by_producer.values()

    def _close(self, group_id: str, places: TimelineDict[Place, TimelineDict[int, None]], place: Place) -> None:
        del places[place]
        if not places:
            del self._open[group_id]
