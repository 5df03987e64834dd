"""The partition directories of many brokers below some paths, each with the id of its broker.

Source of the ids: `node.id` or `broker.id` in the `meta.properties` of a log directory (Kafka's `MetaProperties`).
"""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kops.errors import DecodeError, NotFoundError
from kops.files import Files, OsFiles
from kops.files.urls import absolute_path, is_url, parts_of_url, plain_paths
from kops.forensics.inventory.tree import (
    FileEntry,
    Inventory,
    LogDir,
    PackedPartition,
    PartitionDir,
    open_paths,
    partition_from,
    refuse_foreign,
    refuse_missing,
    walk_paths,
)
from kops.storage.formats.meta_properties import read_meta_properties

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Replica:
    """One partition directory, with absolute paths, because a worker has another working directory. `given` is its path as it was given.

    `broker` is None where no `meta.properties` tells it, `log_dir` where the directory was named itself.
    """

    directory: PartitionDir
    given: str
    broker: int | None = None
    log_dir: str | None = None

    @property
    def key(self) -> tuple[str | None, int]:
        """Topic and partition."""
        return self.directory.topic, self.directory.partition

    def as_given(self, path: str) -> str:
        """A path below the directory, named as the directory was given."""
        return self.given + path.removeprefix(self.directory.path) if path.startswith(self.directory.path) else path

    @property
    def size(self) -> int:
        """Bytes of the live segments' logs."""
        return self.directory.live_bytes


@dataclass(slots=True)
class Listing:
    """What is below some paths. `replicas` are all partition directories, also those that are about to be deleted."""

    paths: list[str]
    inventory: Inventory
    replicas: list[Replica] = field(default_factory=list)

    def by_partition(self) -> dict[tuple[str, int], list[Replica]]:
        """The live replicas of each partition that has a topic, sorted by topic and partition."""
        found: dict[tuple[str, int], list[Replica]] = {}
        for each in self.replicas:
            if each.directory.topic is not None and not each.directory.state:
                found.setdefault((each.directory.topic, each.directory.partition), []).append(each)
        return dict(sorted(found.items()))


def expand(paths: Sequence[str | os.PathLike[str]], files: Files) -> list[str]:
    """The paths, with the matches of a pattern (`/data/broker-*`) in its place. NotFoundError for a pattern without a match."""
    found: list[str] = []
    for path in paths:
        text = os.fspath(path)
        if not _MAGIC & set(text) or (not is_url(text) and os.path.lexists(text)):
            found.append(text)
            continue
        matches = _matching_urls(text, files) if is_url(text) else sorted(glob.glob(text))
        if not matches:
            raise NotFoundError(f"{text}: no file or directory matches")
        found += matches
    return found


def _matching_urls(pattern: str, files: Files) -> list[str]:
    """The URLs that match, name by name, as `glob` does for local paths. The bucket is no pattern."""
    place, below = parts_of_url(pattern)
    found = [place]
    for name in below.split("/"):
        if _MAGIC & set(name):
            found = [
                posixpath.join(path, each) for path in found if files.stat(path).is_dir for each in fnmatch.filter(files.list(path), name)
            ]
        else:
            found = [path for path in (posixpath.join(path, name) for path in found) if files.exists(path)]
    return found


def list_replicas(paths: Sequence[str | os.PathLike[str]], files: Files) -> Listing:
    """All partition directories below the paths. Raises NotFoundError for a path that does not exist.

    Segments that were named one by one count as the partition directory that they are in, with nothing else.
    """
    expanded = expand(paths, files)
    inventory = open_paths(expanded, files, packed=True)
    listing = Listing(expanded, inventory)
    for log_dir in inventory.log_dirs:
        broker = broker_id(files, log_dir)
        listing.replicas += [replica(each, broker, log_dir.path) for each in log_dir.partitions]
    listing.replicas += [replica(each) for each in (*inventory.loose_partitions, *_around(inventory.loose_files))]
    return listing


def list_kafkas(paths: Sequence[str | os.PathLike[str]], files: Files) -> Listing:
    """As `list_replicas`. Raises UsageError for a path that holds no files of Kafka, which is more often a mistake than an answer."""
    listing = list_replicas(paths, files)
    refuse_foreign(listing.paths, listing.inventory, files)
    return listing


def check_paths(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raise the errors of `list_kafkas` for local paths, and for URLs with a scheme or an option that nothing can be read with.

    It is quick: no store is asked, and below each path at most one log directory is listed.
    """
    plain, files = plain_paths(paths), OsFiles(read_only=True)
    if urls := list(filter(is_url, plain)):
        from kops.files.objects import check_url

        for url in urls:
            check_url(url)
    local = expand([path for path in plain if not is_url(path)], files)
    for path in local:
        refuse_missing(path, files)
    for path in local:
        found = next(walk_paths([path], files))
        if not found.log_dirs:  # So this is everything.
            refuse_foreign([path], found, files)


def broker_id(files: Files, log_dir: LogDir) -> int | None:
    """The id in `meta.properties`; None if there is none. `kops log verify` reports one that is wrong."""
    entry = log_dir.file("meta-properties")
    if entry is None:
        return None
    try:
        return read_meta_properties(files.read_all(entry.path), file=entry.path).node_id
    except (DecodeError, OSError):
        return None


def _around(loose: Iterable[FileEntry]) -> Iterator[PartitionDir]:
    beside: dict[str, list[FileEntry]] = {}
    for entry in loose:
        beside.setdefault(os.path.dirname(entry.path), []).append(entry)
    for folder, entries in beside.items():
        yield partition_from(folder, entries)


def replica(directory: PartitionDir, broker: int | None = None, log_dir: str | None = None) -> Replica:
    """A partition directory with its paths made absolute."""
    files = [replace(entry, path=absolute_path(entry.path)) for entry in directory.files]
    path, log_dir = absolute_path(directory.path), None if log_dir is None else absolute_path(log_dir)
    if isinstance(directory, PackedPartition):
        return Replica(directory.moved(path, files), directory.path, broker, log_dir)
    segments = [
        replace(each, files={kind: replace(entry, path=absolute_path(entry.path)) for kind, entry in each.files.items()})
        for each in directory.segments
    ]
    moved = replace(directory, path=path, segments=segments, files=files)
    return Replica(moved, directory.path, broker, log_dir)
