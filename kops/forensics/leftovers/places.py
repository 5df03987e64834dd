"""Finds the leftovers below some paths, with their log directory, its checkpoints, and the cluster's metadata.

Sources: Kafka's `LogFileUtils` (the suffixes), `UnifiedLog` (names of directories), `LogManager` (the checkpoints).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kops.errors import DecodeError, UsageError
from kops.files import Files
from kops.forensics.inventory.replicas import broker_id
from kops.forensics.inventory.tree import BROKER_FILES, LogDir, PartitionDir, Segment, open_paths
from kops.forensics.repair.topics import TopicIds
from kops.metadata import ClusterImage
from kops.records import Damage, scan
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT

__all__ = ["Contents", "Place", "contents_of", "log_starts", "places"]

STATES: Final = ("delete", "stray")


@dataclass(slots=True)
class Place:
    """One log directory, or the directory around partitions that were named alone. `chosen` are the requested partitions."""

    path: str
    log_dir: LogDir
    is_log_dir: bool
    chosen: list[PartitionDir]
    topics: TopicIds
    node_id: int | None = None

    @property
    def image(self) -> ClusterImage | None:
        """The cluster's metadata, None if the log directory has none."""
        return self.topics.image() if any(each.topic == "__cluster_metadata" for each in self.log_dir.partitions) else None


@dataclass(slots=True)
class Contents:
    """The contents of a `.log`. `problem` says why it is not a whole segment."""

    first: int = -1
    last: int = -1
    batches: int = 0
    max_timestamp: int = -1
    epochs: list[EpochEntry] = field(default_factory=list)
    problem: str = ""


def places(paths: Sequence[str | os.PathLike[str]], files: Files, unreadable: list[str]) -> list[Place]:
    """Find the log directories of the paths. `unreadable` gets a line for each directory that can't be listed.

    Raises NotFoundError, and UsageError for a path that is neither a log directory nor a partition directory.
    """
    found: dict[str, Place] = {}
    for path in paths:
        inventory = open_paths([path], files)
        unreadable += [f"{problem.path}: {problem.reason}" for problem in inventory.problems]
        if inventory.loose_files and not inventory.log_dirs and not inventory.loose_partitions:
            raise UsageError(f"{os.fspath(path)}: is a file; name log directories or partition directories")
        for log_dir in inventory.log_dirs:
            _place(found, log_dir.path, files).chosen += log_dir.partitions
        for partition in inventory.loose_partitions:
            _place(found, posixpath.dirname(files.absolute(partition.path)), files).chosen.append(partition)
    if not found:
        raise UsageError(f"{os.fspath(paths[0])}: not a log directory or a partition directory")
    for place in found.values():
        place.chosen = list({files.absolute(partition.path): partition for partition in place.chosen}.values())
    return list(found.values())


def _place(found: dict[str, Place], path: str, files: Files) -> Place:
    path = files.absolute(path)
    if path not in found:
        inventory = open_paths([path], files)
        own = [each for each in inventory.log_dirs if files.absolute(each.path) == path]
        log_dir = own[0] if own else LogDir(path, partitions=[])
        is_log_dir = bool(set(files.list(path)) & set(BROKER_FILES))
        found[path] = Place(path, log_dir, is_log_dir, [], TopicIds(files, inventory), broker_id(files, log_dir))
    return found[path]


def log_starts(files: Files, place: Place) -> dict[tuple[str, int], int]:
    """Return the offsets in log-start-offset-checkpoint, as far as it can be read."""
    path = posixpath.join(place.path, LOG_START_OFFSET_CHECKPOINT)
    try:
        return {(key.topic, key.partition): offset for key, offset in read_offset_checkpoint(files.read_all(path), file=path).items()}
    except (DecodeError, OSError):
        return {}


def contents_of(files: Files, segment: Segment) -> Contents:
    """Read a segment's batches with their checksums."""
    result = Contents()
    assert segment.log is not None
    with files.open(segment.log.path) as file:
        for item in scan(file):
            if isinstance(item, Damage):
                result.problem = f"it is damaged at byte {item.position}: {item.reason}"
                return result
            if result.batches and item.base_offset <= result.last:
                result.problem = f"its offsets go back at byte {item.position}"
                return result
            if result.first < 0:
                result.first = item.base_offset
            result.last = item.last_offset
            result.batches += 1
            result.max_timestamp = max(result.max_timestamp, item.max_timestamp)
            epoch = item.partition_leader_epoch
            if epoch >= 0 and (not result.epochs or epoch > result.epochs[-1].epoch):
                result.epochs.append(EpochEntry(epoch, item.base_offset))
    if result.batches and result.first < segment.base_offset:
        result.problem = f"it begins with offset {result.first}, below the offset in its name"
    return result
