"""Keeps results of segments, so that a later scan need not read the same files again: `kops scan verify --state DIR`. Needs no Spark.

A result is used again while the segment's `.log` and indexes have the same name, size, times of modification and change, and inode, and
while the task is the same (level, place in its partition, clean stop). So damage that does not change a file's times, such as bit rot, is
not seen. A scan without `--state` reads everything. Of an object behind a URL, size and time of upload tell.

DIR has a file for each level. Its first line is JSON: the format, the job, a digest of the code that made the results, and a digest of
the rest, which is a compressed pickle: for each path two strings of bytes, a digest of what its files looked like and the packed result. A
result stays packed until its segment is planned, so the driver has some 500 bytes of each. It is unpacked only if its pickle names nothing
but the classes of results.
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
from struct import Struct
from typing import Any, Final, NamedTuple

from kops.errors import UsageError
from kops.files.any_files import AnyFiles
from kops.files.urls import absolute_path, is_url, parts_of_url, plain_path
from kops.forensics.verify.partition import SegmentResult, SegmentTask
from kops.spark.packed import expand, squeeze

FORMAT: Final = "kops.scan-state/v2"
_FORMER: Final = "kops.scan-state/v1"
SETTLED_NS: Final = 2_000_000_000
"""The result of a file that changed more recently is not kept, because it may change again within the same time of modification."""
LONGEST_HEADER: Final = 4096
_CODE: Final = ("kops.forensics.verify", "kops.forensics.findings", "kops.records")
_CLASSES: Final = ("kops.forensics.verify.", "kops.forensics.findings.finding")


class Identity(NamedTuple):
    """What a file looked like from outside."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


Entry = tuple[bytes, bytes]
"""A digest of the state of a segment's files before it was read (`_look_of`), and its packed result."""
_LOOK: Final = Struct(">?QqqQ")


class Kept:
    """The results in a state directory, for one job and level.

    `reused` and `read` are the numbers of segments of the last scan, `bytes_read` those of the latter. `warning` says why a state file was
    not used.
    """

    def __init__(self, folder: str, level: str, *, paths: Sequence[str] = ()) -> None:
        """Load the existing state. `folder` is a path or a URL. Raises UsageError if it can't be a state directory, or has a file that is
        not the state of a scan."""
        folder = plain_path(folder)
        self.path = os.path.join(folder, f"verify-{level}.kops-state")
        self.level = level
        self.warning = ""
        self.reused = self.read = self.bytes_read = 0
        self._seen: dict[str, bytes] = {}
        self._found: dict[str, Entry | None] = {}
        self._files = AnyFiles(ahead=True)
        check_folder(folder, paths)
        self._entries = self._load()

    def known(self, task: SegmentTask) -> SegmentResult | None:
        """Return the result of an earlier scan, if nothing has changed since. It checks the files, so call it before they are read."""
        seen = tuple(identity(path, self._files) for path in _files_of(task))
        path, look = absolute_path(task.path), _look_of(seen)
        entry = self._entries.get(path)
        if entry is not None and entry[0] == look:
            result = self._unpacked(entry[1])
            if result is not None and result.task == task:
                self.reused += 1
                return result
        is_settled = all(each is None or each.mtime_ns + SETTLED_NS < time.time_ns() for each in seen)
        self._seen[path] = look if is_settled else b""
        self.read += 1
        self.bytes_read += task.size
        return None

    def _unpacked(self, data: bytes) -> SegmentResult | None:
        try:
            result = _unpickle(expand(data), _CLASSES)
        except (Damaged, zlib.error) as error:
            self.warning = f"{self.path} is damaged ({error}); what can't be used is read"
            return None
        return result if isinstance(result, SegmentResult) else None

    def add(self, results: Mapping[str, SegmentResult]) -> None:
        """Take the results of all segments that `known` did not know since the last call, by the paths of their tasks."""
        for given, result in results.items():
            path = absolute_path(given)
            look = self._seen[path]
            self._found[path] = (look, squeeze(result)) if look and result.facts is not None else None
        self._seen.clear()

    def keep(self) -> None:
        """Write the results of this scan, and those of other files that still exist. Raises OSError."""
        found = {path: entry for path, entry in self._entries.items() if path not in self._found and self._is_there(path)}
        found |= {path: entry for path, entry in self._found.items() if entry is not None}
        body = zlib.compress(pickle.dumps(found, protocol=5), 1)
        header = {"format": FORMAT, "job": "verify", "level": self.level, "code": code_digest(), "sha256": _digest(body)}
        replace_file(self.path, json.dumps(header).encode() + b"\n" + body)
        self._entries, self._found = found, {}

    def _is_there(self, path: str) -> bool:
        return self._files.exists(path) if is_url(path) else os.path.lexists(path)

    def _load(self) -> dict[str, Entry]:
        try:
            data = read_file(self.path, self._files)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"--state: {self.path}: {error.strerror}") from error
        line, _, body = data.partition(b"\n")
        try:
            header = json.loads(line[:LONGEST_HEADER])
            is_ours = isinstance(header, dict) and header.get("format") in (FORMAT, _FORMER)
        except ValueError:
            is_ours = False
        if not is_ours:
            raise UsageError(f"--state: {self.path} is not a state file of kops scan; name another directory")
        wanted = {"job": "verify", "level": self.level}
        if {name: header.get(name) for name in wanted} != wanted:
            self.warning = f"{self.path} belongs to another scan; everything is read"
        elif header["format"] != FORMAT or header.get("code") != code_digest():
            self.warning = f"{self.path} is from another version of kops; everything is read"
        else:
            try:
                return _entries(header, body)
            except Damaged as error:
                self.warning = f"{self.path} is damaged ({error}); everything is read"
        return {}


def identity(path: str | None, files: AnyFiles) -> Identity | None:
    """Return a file's current identity; None if it does not exist. An object behind a URL has only its size and the time of its upload.

    `files` reads the latter. Raises OSError if a store can't be asked.
    """
    if path is None:
        return None
    if is_url(path):
        try:
            seen = files.stat(path)
        except FileNotFoundError:
            return None
        return Identity(seen.size, seen.mtime_ms * 1_000_000, 0, 0)
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@cache
def code_digest(packages: tuple[str, ...] = _CODE) -> str:
    """A digest of the sources of these packages, which make results, so that no result of other code is used."""
    digest = hashlib.sha256()

    def add(folder: Traversable) -> None:
        for each in sorted(folder.iterdir(), key=lambda one: one.name):
            if each.is_dir():
                add(each)
            elif each.name.endswith(".py"):
                digest.update(each.name.encode() + b"\0" + each.read_bytes())

    for package in packages:
        add(resources(package))
    return digest.hexdigest()


class Damaged(Exception):
    """A state file, or the pickle in it, was not written by kops."""


class _Results(pickle.Unpickler):
    """Loads classes of results only: those of modules whose names begin so."""

    def __init__(self, data: bytes, modules: tuple[str, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self._modules = modules

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "set") or module.startswith(self._modules):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise Damaged(f"it names {module}.{name}")


def load_pickle(body: bytes, modules: tuple[str, ...]) -> Any:
    """Return what a compressed pickle has, if it names only classes of these modules. Raises Damaged."""
    try:
        data = zlib.decompress(body)
    except zlib.error as error:
        raise Damaged(str(error)) from error
    return _unpickle(data, modules)


def _unpickle(data: bytes, modules: tuple[str, ...]) -> Any:
    try:
        return _Results(data, modules).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, ImportError, LookupError) as error:
        raise Damaged(str(error)) from error


def _entries(header: Mapping[str, Any], body: bytes) -> dict[str, Entry]:
    if header.get("sha256") != _digest(body):
        raise Damaged("its digest is wrong")
    loaded = load_pickle(body, ())
    if not isinstance(loaded, dict):
        raise Damaged("it is no table")
    entries: dict[str, Entry] = {}
    for path, entry in loaded.items():
        if not (isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(each, bytes) for each in entry)):
            raise Damaged(f"the result of {path} is none")
        entries[path] = entry
    return entries


def _look_of(seen: Sequence[Identity | None]) -> bytes:
    """A digest of the identities of a segment's files: whether there is one, and its numbers."""
    numbers = b"".join(_LOOK.pack(each is not None, *(each or (0, 0, 0, 0))) for each in seen)
    return hashlib.blake2b(numbers, digest_size=16).digest()


def _files_of(task: SegmentTask) -> tuple[str | None, ...]:
    return task.path, task.index_path, task.time_index_path


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_folder(folder: str, paths: Sequence[str]) -> None:
    """Reject a folder in a log directory, with which a broker would not start, and a URL below one that is scanned."""
    if is_url(folder):
        place, below = parts_of_url(folder)
        for path in map(plain_path, paths):
            other, above = parts_of_url(path) if is_url(path) else ("", "")
            if other == place and (not above or f"{below}/".startswith(f"{above}/")):
                raise UsageError(f"--state {folder}: is inside {path}, which is scanned; name another URL")
        return
    paths = [path for path in paths if not is_url(path)]
    around = whole = os.path.realpath(folder)
    for path in paths:
        if os.path.commonpath([whole, os.path.realpath(path)]) == os.path.realpath(path):
            raise UsageError(f"--state {folder}: is inside {path}, which is scanned; name another directory")
    while around != (around := os.path.dirname(around)):
        if os.path.lexists(os.path.join(around, "meta.properties")):
            raise UsageError(f"--state {folder}: is inside the log directory {around}; name another directory")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--state {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--state {folder}: not writable")


def read_file(path: str, files: AnyFiles) -> bytes:
    """The contents of a state file; `files` reads URLs. Raises OSError, FileNotFoundError if there is none."""
    if is_url(path):
        return files.read_all(path)
    with open(path, "rb") as file:
        return file.read()


def replace_file(path: str, data: bytes) -> None:
    """Write a temporary file and rename it, so that either the old state or the new one exists. An object appears as a whole.

    Raises OSError, which names the file.
    """
    if is_url(path):
        from kops.files.uploads import UploadFiles

        files = UploadFiles()
        try:
            files.write_atomic(path, data)
        finally:
            files.close()
        return
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        if error.filename is None:  # A write does not know its file.
            error.filename = path
        raise
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)
