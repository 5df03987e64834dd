"""Finds a metadata log, with its segments and snapshots, below a path that a user gives.

Sources: Kafka's `KafkaRaftLog` (directory and snapshots of the metadata log), `Snapshots.parse` (names of snapshots).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.errors import NotFoundError, UsageError
from kops.forensics.inventory.tree import FileEntry, Inventory, open_paths

if TYPE_CHECKING:
    from kops.files import Files

METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(slots=True)
class MetadataSource:
    """A metadata log: `logs` are its live segments by offset, `snapshots` its complete snapshots by end offset and epoch."""

    path: str
    logs: list[FileEntry] = field(default_factory=list)
    snapshots: list[FileEntry] = field(default_factory=list)


def open_metadata(path: str, files: Files) -> MetadataSource:
    """The metadata log at or below a path, or one of its files. NotFoundError if nothing is there, UsageError if it is not a metadata
    log."""
    inventory = open_paths([path], files)
    if inventory.problems:
        raise NotFoundError(f"{inventory.problems[0].path}: {inventory.problems[0].reason}")
    if inventory.loose_files:
        return _of_file(inventory.loose_files[0])
    found = [_of_entries(each.path, list(each.all_files())) for each in inventory.partitions() if each.topic == METADATA_TOPIC]
    if not found:
        found = _by_snapshots(inventory)
    if not found:
        raise UsageError(f"{path}: no metadata log; name a {METADATA_TOPIC}-0 directory, a log directory that has one, or a snapshot")
    if len(found) > 1:
        raise UsageError(f"{path}: {len(found)} metadata logs; name one of them: {', '.join(each.path for each in found)}")
    return found[0]


def _of_file(entry: FileEntry) -> MetadataSource:
    source = MetadataSource(entry.path)
    if entry.kind == "log":
        source.logs.append(entry)
    elif entry.kind in ("checkpoint", "bootstrap-checkpoint"):
        source.snapshots.append(entry)
    else:
        raise UsageError(f"{entry.path}: neither a segment nor a snapshot of the metadata log")
    return source


def _of_entries(path: str, entries: list[FileEntry]) -> MetadataSource:
    source = MetadataSource(path)
    source.logs = sorted((each for each in entries if each.kind == "log" and each.suffix == ""), key=lambda each: each.offset or 0)
    named = [each for each in entries if each.kind == "checkpoint" and each.suffix == "" and each.offset is not None]
    source.snapshots = sorted(named, key=lambda each: (each.offset or 0, each.epoch or 0))
    return source


def _by_snapshots(inventory: Inventory) -> list[MetadataSource]:
    """Recognize a copy under another name by its snapshots or its quorum-state."""
    found = []
    for each in inventory.partitions():
        if each.topic is None and any(entry.kind in ("checkpoint", "quorum-state") for entry in each.files):
            found.append(_of_entries(os.path.normpath(each.path), list(each.all_files())))
    return found
