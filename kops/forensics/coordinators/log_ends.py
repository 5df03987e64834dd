"""The ends of partitions' logs, and the offsets of groups as rows with their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kops.forensics.inventory.ls import partition_rows
from kops.forensics.inventory.tree import PartitionDir, open_paths

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.coordinators.offsets import Position


def log_end(files: Files, partition: PartitionDir) -> int | None:
    """Return the offset after the last record of a partition directory; None if it has no live segment. Raises OSError if it can't be
    read."""
    last = partition.live_segments[-1:]
    found = [
        row.base_offset if row.last_offset is None else row.last_offset + 1
        for row in (partition_rows(files, partition, only=("", last[0].base_offset)) if last else ())
    ]
    return max(found, default=None)


class LogEnds:
    """The log end offsets of the partitions below some paths. An offset is looked up when it is first needed.

    `unreadable` has the errors of replicas that can't be read. Their partitions have no end then, unless there are other replicas.
    """

    def __init__(self, files: Files, paths: list[str]) -> None:
        self._files = files
        self._dirs: dict[tuple[str, int], list[PartitionDir]] = {}
        self._ends: dict[tuple[str, int], int | None] = {}
        self.unreadable: list[OSError] = []
        for each in open_paths(paths, files).partitions() if paths else ():
            if each.topic is not None and not each.state:
                self._dirs.setdefault((each.topic, each.partition), []).append(each)

    def of(self, topic: str, partition: int) -> int | None:
        """Return the largest log end offset of the partition's replicas, or None if there is no replica."""
        key = (topic, partition)
        if key not in self._ends:
            found = [self._of(each) for each in self._dirs.get(key, ())]
            self._ends[key] = max((end for end in found if end is not None), default=None)
        return self._ends[key]

    def _of(self, replica: PartitionDir) -> int | None:
        try:
            return log_end(self._files, replica)
        except OSError as error:
            self.unreadable.append(error)
            return None


def offset_row(one: Position, end: int | None) -> dict[str, Any]:
    """A position as a row of `kops log offsets`; `end` is the end of the partition that it is a position in."""
    return {
        "group": one.place.group,
        "topic": one.place.topic,
        "partition": one.place.partition,
        "offset": one.offset,
        "lag": None if end is None or one.offset is None else end - one.offset,
        "state": one.state,
        "timestamp": one.timestamp,
        "expires": one.expires_ms,
        "metadata": one.metadata,
        "leader_epoch": one.leader_epoch,
        "producer_id": one.producer_id,
        "log": one.log,
        "record_offset": one.record_offset,
        "note": None,
    }
