"""Finds the input of a recovery: the partitions below the paths, and all copies of each."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import Final, NamedTuple

from kops.errors import DecodeError, KopsError
from kops.files import Files
from kops.forensics.inventory.tree import FileEntry, Inventory, PartitionDir, open_paths, refuse_foreign
from kops.forensics.recover.copies.evidence import Evidence, evidence_of
from kops.forensics.recover.copies.runs import Source
from kops.forensics.recover.output import refuse_overlap
from kops.forensics.recover.partition import Job
from kops.storage.formats.names import parse_partition_dir
from kops.storage.formats.partition_metadata import read_partition_metadata

__all__ = ["find_jobs"]

_LEFTOVERS: Final = (".swap", ".cleaned", ".deleted")


class FoundJobs(NamedTuple):
    """A job for each partition, notes about what is left out on purpose, and about directories that can't be listed."""

    jobs: list[Job]
    skipped: list[str]
    unreadable: list[str]


def find_jobs(paths: Sequence[str | os.PathLike[str]], target: str, files: Files, *, leftovers: bool = True) -> FoundJobs:
    """Return a job for each partition below `paths`, and notes about what is left out. `target`, the output, may not be inside them.

    Raises NotFoundError, UsageError and OSError.
    """
    inventory = open_paths(paths, files, packed=True)
    refuse_overlap(files, paths, target)
    jobs, skipped = _jobs(inventory, leftovers, files)
    if not jobs and not skipped:  # The path is wrong, or nothing is mounted there.
        refuse_foreign(paths, inventory, files)
    refuse_overlap(files, {posixpath.dirname(path) for job in jobs for source in job.sources for path in source.paths}, target)
    for job in jobs:
        job.size = sum(files.stat(path).size for source in job.sources for path in source.paths)
    return FoundJobs(jobs, skipped, [f"{problem.path}: {problem.reason}" for problem in inventory.problems])


def _jobs(inventory: Inventory, leftovers: bool, files: Files) -> tuple[list[Job], list[str]]:
    jobs: dict[str, Job] = {}
    skipped: list[str] = []
    folders: list[PartitionDir] = []
    for log_dir in inventory.log_dirs:
        for folder in log_dir.partitions:
            if folder.state == "delete":
                skipped.append(f"{folder.path}: the partition was deleted; name this directory itself to recover it")
            else:
                folders.append(folder)
    folders += inventory.loose_partitions
    beside = evidence_of(inventory, files)
    # The live directory decides the topic.
    for folder in sorted(folders, key=lambda folder: _RANKS.index(folder.state or "log")):
        other = _add_folder(jobs, folder, leftovers, beside[folder.path], files)
        if other:
            skipped.append(other)
    for entry in sorted(inventory.loose_files, key=lambda entry: (entry.offset or 0, entry.path)):
        if entry.kind == "log":
            _add_file(jobs, entry)
    for job in jobs.values():
        # Live logs first, then other copies, then leftovers.
        job.sources.sort(key=lambda source: _RANKS.index(source.kind))
    return sorted(jobs.values(), key=lambda job: (job.topic, job.partition)), skipped


_RANKS: Final = ("log", "stray", "future", "delete", "swap", "cleaned", "deleted")


def _job(jobs: dict[str, Job], topic: str | None, partition: int, name: str) -> Job:
    return jobs.setdefault(name, Job(name, topic if topic is not None else name, partition))


def _add_folder(jobs: dict[str, Job], folder: PartitionDir, leftovers: bool, beside: Evidence, files: Files) -> str:
    """Add a copy, or return why not: it belongs to another topic of the same name."""
    job = _job(jobs, folder.topic, folder.partition, folder.name)
    metadata = _partition_metadata(files, folder)
    if metadata is not None and job.metadata is not None:
        own, taken = (read_partition_metadata(data).topic_id for data in (metadata, job.metadata))
        if own != taken:
            return f"{folder.path}: it belongs to another topic of that name (topic id {own}, not {taken}); name it alone to recover it"
    job.metadata = job.metadata or metadata
    job.beside.append(beside)
    live = [segment.log.path for segment in folder.live_segments if segment.log is not None]
    if live:
        job.sources.append(Source(folder.state or "log", live))
    for suffix in _LEFTOVERS if leftovers else ():
        found = [segment.log.path for segment in folder.segments if segment.suffix == suffix and segment.log is not None]
        if found:
            job.sources.append(Source(suffix[1:], found))
    return ""


def _add_file(jobs: dict[str, Job], entry: FileEntry) -> None:
    parent = posixpath.basename(posixpath.dirname(os.path.abspath(entry.path)))
    try:
        parsed = parse_partition_dir(parent)
        job = _job(jobs, parsed.topic, parsed.partition, f"{parsed.topic}-{parsed.partition}")
    except DecodeError:
        name = f"{parent}-0" if parent else "recovered-0"
        job = _job(jobs, name.rpartition("-")[0], 0, name)
    kind = entry.suffix[1:] or "log"
    same = next((source for source in job.sources if source.kind == kind), None)
    if same is not None and kind in _RANKS:
        same.paths.append(entry.path)
    else:
        job.sources.append(Source(kind if kind in _RANKS else "log", [entry.path]))


def _partition_metadata(files: Files, folder: PartitionDir) -> bytes | None:
    """The bytes of a folder's partition.metadata, where it can be read."""
    path = posixpath.join(folder.path, "partition.metadata")
    try:
        data = files.read_all(path)
        read_partition_metadata(data, file=path)
    except (OSError, KopsError):
        return None
    return data
