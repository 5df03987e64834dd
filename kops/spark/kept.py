"""Results of segments that a later scan of the same files need not read again: `kops scan verify --state DIR`. Needs no Spark.

A result is used again while the segment's `.log` and indexes have the same name, size, times of modification and change, and inode, and
while the task is the same (level, place in its partition, clean stop). Damage that leaves a file's times alone, such as bit rot, is
therefore not seen: a scan without `--state` reads everything.

DIR has a file for each level. Its first line is JSON: the format, the job, a digest of the code that made the results, and a digest of
the rest, which is a compressed pickle. The pickle is read only if it names nothing but the classes of results.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as resources
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple

from kops.errors import UsageError
from kops.forensics.verify.partition import SegmentResult, SegmentTask

FORMAT: Final = "kops.scan-state/v1"
SETTLED_NS: Final = 2_000_000_000
"""A file that was changed more recently may change again without another time of modification, so its result is not kept."""
_LONGEST_HEADER: Final = 4096
_CODE: Final = ("kops.forensics.verify", "kops.forensics.findings", "kops.records")
_CLASSES: Final = ("kops.forensics.verify.", "kops.forensics.findings.finding")


class Identity(NamedTuple):
    """What a file looked like from outside."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class Entry(NamedTuple):
    """The result of a segment, and the state of its files before it was read: `.log`, `.index`, `.timeindex` (None: not there)."""

    files: tuple[Identity | None, ...]
    result: SegmentResult


class Kept:
    """The results in a state directory, for one job and level.

    `reused` and `read` are the numbers of segments of the last scan, `bytes_read` those of the latter. `warning` says why a state file was
    not used.
    """

    def __init__(self, folder: str, level: str, *, paths: Sequence[str] = ()) -> None:
        """Load what is there. Raises UsageError if `folder` can't be a state directory, or has a file that is no state of a scan."""
        self.path = os.path.join(folder, f"verify-{level}.kops-state")
        self.level = level
        self.warning = ""
        self.reused = self.read = self.bytes_read = 0
        self._seen: dict[str, tuple[Identity | None, ...]] = {}
        _check_folder(folder, paths)
        self._entries = self._load()

    def known(self, task: SegmentTask) -> SegmentResult | None:
        """The result of an earlier scan, if nothing has changed since. Looks at the files, so call it before they are read."""
        seen = self._seen[task.path] = tuple(identity(path) for path in _files_of(task))
        entry = self._entries.get(os.path.abspath(task.path))
        if entry is not None and entry.files == seen and entry.result.task == task:
            self.reused += 1
            return entry.result
        self.read += 1
        self.bytes_read += task.size
        return None

    def keep(self, results: Mapping[str, SegmentResult]) -> None:
        """Write the results of this scan (by the paths of their tasks), and those of other files that are still there. Raises OSError."""
        now = time.time_ns()
        entries = {path: entry for path, entry in self._entries.items() if os.path.lexists(path)}
        for path, result in results.items():
            seen = self._seen[path]
            entries.pop(os.path.abspath(path), None)
            if result.facts is not None and all(each is None or each.mtime_ns + SETTLED_NS < now for each in seen):
                entries[os.path.abspath(path)] = Entry(seen, result)
        body = zlib.compress(pickle.dumps(_plain(entries), protocol=5), 1)
        header = {"format": FORMAT, "job": "verify", "level": self.level, "code": code_digest(), "sha256": _digest(body)}
        _replace(self.path, json.dumps(header).encode() + b"\n" + body)
        self._entries = entries

    def _load(self) -> dict[str, Entry]:
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"--state: {self.path}: {error.strerror}") from error
        line, _, body = data.partition(b"\n")
        try:
            header = json.loads(line[:_LONGEST_HEADER])
            is_ours = isinstance(header, dict) and header.get("format") == FORMAT
        except ValueError:
            is_ours = False
        if not is_ours:
            raise UsageError(f"--state: {self.path} is not a state file of kops scan; name another directory")
        wanted = {"job": "verify", "level": self.level}
        if {name: header.get(name) for name in wanted} != wanted:
            self.warning = f"{self.path} belongs to another scan; everything is read"
        elif header.get("code") != code_digest():
            self.warning = f"{self.path} is of another version of kops; everything is read"
        else:
            try:
                return _entries(header, body)
            except _Damaged as error:
                self.warning = f"{self.path} is damaged ({error}); everything is read"
        return {}


def identity(path: str | None) -> Identity | None:
    """A file's identity now; None if it is not there."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@cache
def code_digest() -> str:
    """A digest of the sources that make results, so that no result of other code is used."""
    digest = hashlib.sha256()

    def add(folder: Traversable) -> None:
        for each in sorted(folder.iterdir(), key=lambda one: one.name):
            if each.is_dir():
                add(each)
            elif each.name.endswith(".py"):
                digest.update(each.name.encode() + b"\0" + each.read_bytes())

    for package in _CODE:
        add(resources(package))
    return digest.hexdigest()


class _Damaged(Exception):
    """The pickle of a state file is not what kops writes."""


class _Results(pickle.Unpickler):
    """Loads classes of results only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "set") or module.startswith(_CLASSES):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise _Damaged(f"it names {module}.{name}")


def _entries(header: Mapping[str, Any], body: bytes) -> dict[str, Entry]:
    if header.get("sha256") != _digest(body):
        raise _Damaged("its digest is wrong")
    try:
        loaded = _Results(io.BytesIO(zlib.decompress(body))).load()
        return {path: Entry(tuple(each and Identity(*each) for each in seen), result) for path, (seen, result) in loaded.items()}
    except (zlib.error, pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, ImportError, LookupError) as error:
        raise _Damaged(str(error)) from error


def _plain(entries: Mapping[str, Entry]) -> dict[str, tuple[tuple[tuple[int, ...] | None, ...], SegmentResult]]:
    """As it is pickled: no classes but those of results."""
    return {path: (tuple(each and tuple(each) for each in entry.files), entry.result) for path, entry in entries.items()}


def _files_of(task: SegmentTask) -> tuple[str | None, ...]:
    return task.path, task.index_path, task.time_index_path


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_folder(folder: str, paths: Sequence[str]) -> None:
    """A broker does not start if a log directory holds a directory that is not a partition."""
    around = whole = os.path.realpath(folder)
    for path in paths:
        if os.path.commonpath([whole, os.path.realpath(path)]) == os.path.realpath(path):
            raise UsageError(f"--state {folder}: is in {path}, which is scanned; name another directory")
    while around != (around := os.path.dirname(around)):
        if os.path.lexists(os.path.join(around, "meta.properties")):
            raise UsageError(f"--state {folder}: is in the log directory {around}; name another directory")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--state {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--state {folder}: not writable")


def _replace(path: str, data: bytes) -> None:
    """Write a file beside and rename it, so that there is the old state or the new one."""
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)
