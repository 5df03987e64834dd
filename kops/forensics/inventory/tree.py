"""Lists the files on disk, before anything is decoded: paths in, a typed tree of log directories, partitions, segments and files out.

Names follow Kafka's `UnifiedLog`, `LocalLog` and `LogFileUtils` (files), `LocalLog.parseTopicPartitionName` (folders), `Snapshots.parse`
(KRaft snapshots) and `LogManager` (checkpoints of a log directory). No file is opened. A path that cannot be listed becomes a `Problem` and
does not end the listing.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kops.errors import DecodeError, KopsError, NotFoundError, UsageError
from kops.files import Files, FileStat, OsFiles
from kops.storage.formats.names import offset_digits, parse_log_file, parse_partition_dir

SEGMENT_KINDS: Final = ("log", "index", "timeindex", "txnindex", "snapshot")
"""Kinds of files that belong to a segment, in the order in which they are shown."""

BROKER_FILES: Final = {
    "meta.properties": "meta-properties",
    "recovery-point-offset-checkpoint": "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint": "replication-offset-checkpoint",
    "log-start-offset-checkpoint": "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint": "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown": "clean-shutdown",
    ".lock": "lock",
    "bootstrap.checkpoint": "bootstrap-checkpoint",
}
"""Files of a log directory itself, by name."""

PARTITION_FILES: Final = {
    "leader-epoch-checkpoint": "leader-epoch-checkpoint",
    "partition.metadata": "partition-metadata",
    "quorum-state": "quorum-state",
}
"""Files of a partition directory that belong to no segment, by name."""


@dataclass(slots=True)
class FileEntry:
    """One file: `kind` says how it is decoded, `offset` is the number in its name, `epoch` that of a KRaft snapshot's name.

    `suffix` is the one that Kafka appends to replace or delete it: `""`, `.deleted`, `.cleaned`, `.swap`. Size in bytes. A listing of a
    large cluster has hundreds of thousands of these, so none has anything that follows from the rest.
    """

    path: str
    kind: str
    size: int
    mtime_ms: int
    offset: int | None = None
    suffix: str = ""
    epoch: int | None = None

    @property
    def name(self) -> str:
        """The name without the directory."""
        return os.path.basename(self.path)


@dataclass(slots=True)
class Segment:
    """The files that share one base offset and one suffix; `files` maps a kind of `SEGMENT_KINDS` to the file."""

    base_offset: int
    suffix: str = ""
    files: dict[str, FileEntry] = field(default_factory=dict)

    @property
    def log(self) -> FileEntry | None:
        """The `.log`, None if only other files of the segment are left."""
        return self.files.get("log")

    @property
    def state(self) -> str:
        """`live`, `deleted`, `cleaned` or `swap`."""
        return self.suffix.lstrip(".") or "live"

    @property
    def size(self) -> int:
        """The size of all its files in bytes."""
        return sum(entry.size for entry in self.files.values())


@dataclass(slots=True)
class PartitionDir:
    """One partition directory. `topic` is None if the directory's name is not that of a partition (a copy called `rescue`, for example).

    `state` is `""` (live), `delete`, `stray` or `future` and `uuid` the id in such a name. `segments` are sorted by base offset, live ones
    first; a producer snapshot is in the segment of its offset, or in `files` if there is none (usually the newest one).
    """

    path: str
    topic: str | None
    partition: int
    state: str = ""
    uuid: str | None = None
    segments: list[Segment] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)
    unknown: list[FileEntry] = field(default_factory=list)
    subdirs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`topic-partition`, or the folder's name."""
        return f"{self.topic}-{self.partition}" if self.topic is not None else os.path.basename(os.path.normpath(self.path))

    @property
    def live_bytes(self) -> int:
        """The size of the logs of the live segments."""
        return sum(segment.log.size for segment in self.live_segments if segment.log is not None)

    @property
    def live_segments(self) -> list[Segment]:
        """Segments a broker would load: a `.log` without suffix."""
        return [segment for segment in self.segments if segment.suffix == "" and segment.log is not None]

    def file(self, kind: str) -> FileEntry | None:
        """Return the first file of this kind among those that belong to no segment."""
        return next((entry for entry in self.files if entry.kind == kind), None)

    def all_files(self) -> Iterator[FileEntry]:
        """Every file of the folder: segments in order, then the others, then the unknown ones."""
        for segment in self.segments:
            yield from segment.files.values()
        yield from self.files
        yield from self.unknown


class PackedPartition(PartitionDir):
    """A partition directory whose segments take some 30 bytes each, instead of a kilobyte. `segments` makes them anew each time."""

    __slots__ = ("_live_bytes", "_packed")

    @classmethod
    def of(cls, directory: PartitionDir) -> PartitionDir:
        """The directory, packed. As it is, if a file has a name that does not follow from its segment."""
        for segment in directory.segments:
            for kind, entry in segment.files.items():
                plain = (kind, segment.base_offset, segment.suffix, None)
                if (entry.kind, entry.offset, entry.suffix, entry.epoch) != plain or entry.path != _path_of(directory.path, segment, kind):
                    return directory
        return cls(**{each.name: getattr(directory, each.name) for each in fields(directory)})

    @property
    def segments(self) -> list[Segment]:
        """The segments, unpacked. A change of this list changes nothing here."""
        found = []
        for base_offset, suffix, entries in pickle.loads(zlib.decompress(self._packed)):
            segment = Segment(base_offset, suffix)
            for kind, size, mtime_ms in entries:
                segment.files[kind] = FileEntry(_path_of(self.path, segment, kind), kind, size, mtime_ms, base_offset, suffix)
            found.append(segment)
        return found

    @segments.setter
    def segments(self, segments: list[Segment]) -> None:
        rows = [
            (segment.base_offset, segment.suffix, [(kind, entry.size, entry.mtime_ms) for kind, entry in segment.files.items()])
            for segment in segments
        ]
        live = (segment.log for segment in segments if segment.suffix == "" and segment.log is not None)
        self._live_bytes = sum(log.size for log in live)
        self._packed = zlib.compress(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL), _FASTEST)

    @property
    def live_bytes(self) -> int:
        """The size of the logs of the live segments."""
        return self._live_bytes

    def moved(self, path: str, files: list[FileEntry]) -> PackedPartition:
        """The same directory at another path, with other files that belong to no segment. Nothing is unpacked."""
        made = object.__new__(type(self))
        made.__setstate__(self.__getstate__())
        made.path, made.files = path, files
        return made

    def __getstate__(self) -> tuple[Any, ...]:
        """Packed, as in memory."""
        return (*(getattr(self, name) for name in _UNPACKED), self._live_bytes, self._packed)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(_UNPACKED, state[:-2], strict=True):
            setattr(self, name, value)
        self._live_bytes, self._packed = state[-2:]


_FASTEST: Final = 1
_UNPACKED: Final = tuple(each.name for each in fields(PartitionDir) if each.name != "segments")


def _path_of(folder: str, segment: Segment, kind: str) -> str:
    """Where a broker would have a file of the segment."""
    return os.path.join(folder, f"{offset_digits(segment.base_offset)}.{kind}{segment.suffix}")


@dataclass(slots=True)
class LogDir:
    """One of a broker's log directories: its own files, its partitions, and directories whose names are not those of partitions."""

    path: str
    files: list[FileEntry] = field(default_factory=list)
    partitions: list[PartitionDir] = field(default_factory=list)
    unknown: list[FileEntry] = field(default_factory=list)
    unknown_dirs: list[str] = field(default_factory=list)

    def file(self, kind: str) -> FileEntry | None:
        """The broker file of this kind."""
        return next((entry for entry in self.files if entry.kind == kind), None)


@dataclass(slots=True)
class Problem:
    """A path that could not be listed, and the reason as a sentence."""

    path: str
    reason: str


@dataclass(slots=True)
class Inventory:
    """All that was found under the given paths, in their order: log directories, partitions and files named on their own."""

    log_dirs: list[LogDir] = field(default_factory=list)
    loose_partitions: list[PartitionDir] = field(default_factory=list)
    loose_files: list[FileEntry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def partitions(self) -> Iterator[PartitionDir]:
        """Every partition directory, those of the log directories first."""
        for log_dir in self.log_dirs:
            yield from log_dir.partitions
        yield from self.loose_partitions

    def all_files(self) -> Iterator[FileEntry]:
        """Every file, in the order a dump goes through them."""
        yield from self.loose_files
        for log_dir in self.log_dirs:
            yield from log_dir.files
            for partition in log_dir.partitions:
                yield from partition.all_files()
            yield from log_dir.unknown
        for partition in self.loose_partitions:
            yield from partition.all_files()


def classify(path: str, size: int = 0, mtime_ms: int = 0) -> FileEntry:
    """Return the kind of a file from its name alone; `unknown` if Kafka has no such name. Raises nothing."""
    name = os.path.basename(path)
    entry = FileEntry(path, "unknown", size, mtime_ms)
    known = BROKER_FILES.get(name) or PARTITION_FILES.get(name)
    if known is None and name.endswith(".tmp"):  # CheckpointFileWriteBuffer and PropertiesUtils write a temporary file, then rename it.
        known = BROKER_FILES.get(name[:-4]) or PARTITION_FILES.get(name[:-4])
        entry.suffix = ".tmp" if known else ""
    if known is not None:
        entry.kind = known
        return entry
    parsed = parse_log_file(name)
    if parsed is not None:
        entry.kind, entry.offset, entry.suffix, entry.epoch = parsed.kind, parsed.offset, parsed.suffix, parsed.epoch
        return entry
    # Somebody renamed the file. The extension still says how to read it, as in Kafka's own dump tool.
    stem, _, extension = name.rpartition(".")
    if (stem and extension in SEGMENT_KINDS) or (extension == "checkpoint" and stem):
        entry.kind = extension
        number = stem.split(".")[0]
        entry.offset = int(number) if number.isascii() and number.isdigit() and int(number) < 1 << 63 else None
    return entry


class _Walker:
    """One walk over some paths. `inventory.problems` gets those that cannot be listed."""

    def __init__(self, files: Files, *, packed: bool = False) -> None:
        self.files = files
        self.partition = _packed_partition_from if packed else partition_from
        self.inventory = Inventory()
        self._seen: set[str] = set()

    def problem(self, path: str, error: Exception) -> None:
        """Record a path that cannot be listed."""
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        self.inventory.problems.append(Problem(path, reason))

    def listing(self, path: str) -> tuple[list[FileEntry], list[str]] | None:
        """Return the files (classified) and folders in a directory; None, and a problem, if it cannot be listed or was already seen."""
        real = os.path.realpath(path)
        if real in self._seen:  # A symbolic link to a parent would be walked forever.
            return None
        self._seen.add(real)
        try:
            names = self.files.list(path)
        except (OSError, KopsError) as error:
            self.problem(path, error)
            return None
        entries: list[FileEntry] = []
        dirs: list[str] = []
        for name in names:
            child = os.path.join(path, name)
            try:
                stat = self.files.stat(child)
            except (OSError, KopsError) as error:
                # A running broker has deleted or renamed it since it was listed. A broken link stays a problem.
                if not isinstance(error, FileNotFoundError) or os.path.islink(child):
                    self.problem(child, error)
                continue
            if stat.is_dir:
                dirs.append(child)
            else:
                entries.append(classify(child, stat.size, stat.mtime_ms))
        return entries, dirs

    def stat(self, path: str) -> FileStat | None:
        """Return the kind of the path. If it cannot be determined (a broken link, for example), record a problem and return None."""
        try:
            return self.files.stat(path)
        except (OSError, KopsError) as error:
            self.problem(path, error)
            return None

    def walk(self, paths: Sequence[str | os.PathLike[str]]) -> Iterator[None]:
        """Walk all paths, with a stop after each log directory. Raises NotFoundError."""
        for path in paths:
            text = os.fspath(path)
            refuse_missing(text, self.files)
            stat = self.stat(text)
            if stat is None:
                continue
            if stat.is_dir:
                yield from self.directory(text)
            else:
                self.inventory.loose_files.append(classify(text, stat.size, stat.mtime_ms))

    def directory(self, path: str) -> Iterator[None]:
        """Decide what kind of directory this is and add it to the inventory."""
        listed = self.listing(path)
        if listed is None:
            return
        entries, dirs = listed
        if _looks_like_partition(entries):
            self.inventory.loose_partitions.append(self.partition(path, entries, dirs))
        elif _looks_like_log_dir(entries):
            self.log_dir(path, entries, dirs)
            yield
        elif not entries and not dirs and _partition_name(path) is not None:
            self.inventory.loose_partitions.append(self.partition(path, entries, dirs))
        else:
            self.inventory.loose_files.extend(entry for entry in entries if entry.kind != "unknown")
            yield from self.container(path, dirs)

    def container(self, path: str, dirs: list[str]) -> Iterator[None]:
        """Walk a directory of directories: a cluster's, a node's, or a log directory without any broker file."""
        here = self._partitions_below(dirs)
        if here:
            self.inventory.log_dirs.append(LogDir(path, partitions=here))
            yield
        for child in dirs:
            yield from self.directory(child)

    def _partitions_below(self, dirs: list[str]) -> list[PartitionDir]:
        """Walk the partitions right below a folder without broker files: together they are one log directory."""
        found = []
        for child in dirs:
            if _partition_name(child) is None or os.path.realpath(child) in self._seen:
                continue
            try:
                names = self.files.list(child)
            except (OSError, KopsError):
                continue  # Reported when the walk reaches it.
            if any(_is_partition_file(classify(name)) for name in names):
                listed = self.listing(child)
                if listed is not None:
                    found.append(self.partition(child, *listed))
        return found

    def log_dir(self, path: str, entries: list[FileEntry], dirs: list[str]) -> None:
        """Walk a directory that has broker files, or in which every folder is a partition."""
        broker_kinds = set(BROKER_FILES.values())
        log_dir = LogDir(path)
        for entry in entries:
            (log_dir.files if entry.kind in broker_kinds else log_dir.unknown).append(entry)
        for child in dirs:
            if _partition_name(child) is None:
                listed = self.listing(child)
                if listed is not None and _looks_like_partition(listed[0]):
                    log_dir.partitions.append(self.partition(child, *listed))
                else:
                    log_dir.unknown_dirs.append(child)
                continue
            listed = self.listing(child)
            if listed is not None:
                log_dir.partitions.append(self.partition(child, *listed))
        self.inventory.log_dirs.append(log_dir)


def _is_partition_file(entry: FileEntry) -> bool:
    # The name must have a number. Otherwise any folder with somebody's `server.log` would be a partition.
    numbered = entry.offset is not None and (entry.kind in SEGMENT_KINDS or entry.kind == "checkpoint")
    return numbered or entry.kind in PARTITION_FILES.values()


def _looks_like_partition(entries: Iterable[FileEntry]) -> bool:
    return any(_is_partition_file(entry) for entry in entries)


def _looks_like_log_dir(entries: list[FileEntry]) -> bool:
    broker_kinds = set(BROKER_FILES.values())
    return any(entry.kind in broker_kinds for entry in entries)


def _partition_name(path: str) -> tuple[str, int, str, str | None] | None:
    """Topic, partition, state and id from a folder's name; None if Kafka would not take it for a partition's."""
    name = os.path.basename(os.path.normpath(path))
    try:
        parsed = parse_partition_dir(name)
    except DecodeError:
        return None
    return parsed.topic, parsed.partition, parsed.state, parsed.unique_id or None


def partition_from(path: str, entries: Sequence[FileEntry], dirs: Sequence[str] = ()) -> PartitionDir:
    """Make a partition directory from its listing: segments, grouped and sorted, and the other files."""
    named = _partition_name(path)
    if named is None and not os.path.basename(os.path.normpath(path)).strip("."):
        named = _partition_name(os.path.abspath(path))  # Resolve `.` and `..`, so that they have a name, too.
    topic, partition, state, uuid = named if named is not None else (None, -1, "", None)
    result = PartitionDir(path, topic, partition, state, uuid, subdirs=list(dirs))
    segments: dict[tuple[str, int], Segment] = {}
    snapshots: list[FileEntry] = []
    for entry in entries:
        if entry.kind == "unknown" or entry.kind in BROKER_FILES.values():
            result.unknown.append(entry)
        elif entry.kind == "snapshot" and entry.offset is not None:
            snapshots.append(entry)
        elif entry.kind in SEGMENT_KINDS and entry.offset is not None:
            key = (entry.suffix, entry.offset)
            segment = segments.setdefault(key, Segment(entry.offset, entry.suffix))
            segment.files[entry.kind] = entry
            entry.offset = segment.base_offset  # one number for all files of the segment
        else:
            result.files.append(entry)
    for entry in snapshots:
        owner = segments.get((entry.suffix, entry.offset if entry.offset is not None else -1))
        if owner is not None:
            owner.files["snapshot"] = entry
        else:
            result.files.append(entry)
    for segment in segments.values():
        segment.files = {kind: segment.files[kind] for kind in SEGMENT_KINDS if kind in segment.files}
    result.segments = [segments[key] for key in sorted(segments)]
    result.files.sort(key=lambda entry: (entry.kind, entry.name))
    return result


def _packed_partition_from(path: str, entries: Sequence[FileEntry], dirs: Sequence[str] = ()) -> PartitionDir:
    return PackedPartition.of(partition_from(path, entries, dirs))


def open_paths(paths: Sequence[str | os.PathLike[str]], files: Files | None = None, *, packed: bool = False) -> Inventory:
    """List every path: a file of any kind, a partition directory, a log directory, or a directory of those (a node, a cluster).

    `files` is the file system (default: the real one, read-only). `packed`: segments take little memory, and each look at
    them takes longer. Raises `NotFoundError` for the first path that does not exist.
    Directories and files that cannot be listed are in the result's `problems`. A directory that is named twice counts once.
    """
    walker = _Walker(files if files is not None else OsFiles(read_only=True), packed=packed)
    for _ in walker.walk(paths):
        pass  # Everything is wanted at once.
    return walker.inventory


def walk_paths(paths: Sequence[str | os.PathLike[str]], files: Files) -> Iterator[Inventory]:
    """What `open_paths` returns, in pieces: each log directory as soon as it is listed, then everything else.

    So a caller that drops a piece before it asks for the next one has one log directory in memory.
    """
    walker = _Walker(files)
    for _ in walker.walk(paths):
        found, walker.inventory.log_dirs = walker.inventory.log_dirs, []
        yield Inventory(log_dirs=found)
    yield walker.inventory


def refuse_missing(path: str, files: Files) -> None:
    """Raise NotFoundError for a path that does not exist."""
    if not files.exists(path):
        if os.path.islink(path):
            raise NotFoundError(f"{path}: the symbolic link points to nothing")
        raise NotFoundError(f"{path}: no such file or directory")


def refuse_foreign(paths: Sequence[str | os.PathLike[str]], inventory: Inventory, files: Files) -> None:
    """Raise UsageError for a path without any of Kafka's files, so that a wrong path or an empty mount is never reported as clean."""
    for entry in inventory.loose_files:
        if entry.kind == "unknown" or (entry.kind in ("log", "index", "timeindex", "txnindex") and entry.offset is None):
            raise UsageError(f"{entry.path}: not a name that Kafka gives its files; kops log dump shows what is in it")
    refuse_without_partitions(paths, inventory, files)


def refuse_without_partitions(paths: Sequence[str | os.PathLike[str]], inventory: Inventory, files: Files) -> None:
    """Raise UsageError for a directory that neither is nor contains a log directory or a partition. Files may have any name."""
    seen = [each.path for each in inventory.log_dirs] + [each.path for each in inventory.loose_partitions]
    seen += [each.path for each in inventory.loose_files] + [each.path for each in inventory.problems]
    absolute = {files.absolute(path) for path in seen}
    found = absolute | {os.path.realpath(path) for path in absolute}
    found |= {above for path in found for above in _above(path)}
    for path in paths:
        here = files.absolute(os.fspath(path))
        if here not in found and os.path.realpath(here) not in found:
            raise UsageError(f"{os.fspath(path)}: not a log directory or a partition directory, and contains none")


def _above(path: str) -> Iterator[str]:
    """The directories around a path, the nearest first."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def open_partition(path: str | os.PathLike[str], files: Files | None = None) -> PartitionDir:
    """Open one partition directory with any name. Raises `NotFoundError` if there is none."""
    text = os.fspath(path)
    walker = _Walker(files if files is not None else OsFiles(read_only=True))
    if not walker.files.exists(text) or not walker.files.stat(text).is_dir:
        raise NotFoundError(f"{text}: no such directory")
    listed = walker.listing(text)
    if listed is None:
        problem = walker.inventory.problems[0]
        raise NotFoundError(f"{problem.path}: {problem.reason}")
    return partition_from(text, *listed)
