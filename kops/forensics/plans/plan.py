"""A repair plan as data: steps that change files, and a view of the directory after these steps.

Nothing here writes. A plan belongs to one log directory and is a list of steps; each replaces, makes, renames or removes one file. New
contents are ranges of files as they were before the repair, and some new bytes, so a plan for a segment of a GiB is small. `PlannedFiles`
shows the directory as the plan will leave it, without copying a byte. So the result can be verified before anything is changed.
`kops.forensics.plans.journal` applies a plan.
"""

from __future__ import annotations

import errno
import os
import posixpath
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kops.files import File, Files, FileStat, Mode
from kops.files.read_only import ReadOnlyFile, ReadOnlyFiles, refuse
from kops.forensics.findings.finding import Finding
from kops.records.scanning.checked import Checked
from kops.records.scanning.columns import Columns

__all__ = ["Copy", "Data", "Move", "Part", "Plan", "PlannedFiles", "Put", "Remove", "Step", "parts_size"]


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of a file as it was before the repair. `crc` is their CRC-32 if the file belongs to another directory, which may change."""

    path: str
    position: int
    length: int
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """New bytes, which are in the plan itself."""

    data: bytes

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self.data)


Part = Copy | Data


def parts_size(parts: Iterable[Part]) -> int:
    """Bytes of all parts together."""
    return sum(part.length for part in parts)


@dataclass(frozen=True, slots=True)
class _Step:
    """The fields of all steps.

    `action` is the stable name of the step in outputs (`rewrite-log`, `rebuild-index`, `remove-leftover`, ...), `why` a sentence,
    `lossless` says that the step removes only data that can be made again from the log.
    """

    path: str
    action: str
    why: str
    lossless: bool


@dataclass(frozen=True, slots=True)
class Put(_Step):
    """Make or replace a file, with the contents `parts`. `mtime_ms` is that of the replaced file if times matter."""

    parts: tuple[Part, ...] = ()
    mtime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Move(_Step):
    """Rename a file to a path that does not exist."""

    target: str = ""


@dataclass(frozen=True, slots=True)
class Remove(_Step):
    """Remove a file or a whole directory (into the backup)."""


Step = Put | Move | Remove


@dataclass(slots=True)
class Plan:
    """All steps for one log directory, in the order in which they are carried out.

    `findings` are the problems found before, `left` those that the steps leave. `lost` says which records the steps remove from the log;
    these are never readable ones. `notes` are sentences for a person.
    """

    log_dir: str
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lossy_held_back: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    def to_json(self) -> dict[str, Any]:
        """The plan for `kops log repair --format json`."""
        return {
            "log_dir": self.log_dir,
            "steps": [_step_json(step) for step in self.steps],
            "findings": [found.to_json() for found in self.findings],
            "left": [found.to_json() for found in self.left],
            "notes": self.notes,
            "held_back": self.lossy_held_back,
        }


def _step_json(step: Step) -> dict[str, Any]:
    document: dict[str, Any] = {"action": step.action, "path": step.path, "why": step.why, "lossless": step.lossless}
    if isinstance(step, Move):
        document["target"] = step.target
    if isinstance(step, Put):
        document["size"] = parts_size(step.parts)
        document["kept_bytes"] = sum(part.length for part in step.parts if isinstance(part, Copy))
    return document


class ComposedFile(ReadOnlyFile):
    """A file made of parts, for reading; satisfies `ByteSource`. Not thread-safe."""

    def __init__(self, files: Files, path: str, parts: Sequence[Part]) -> None:
        self.path = path
        self._files = files
        self._parts = [part for part in parts if part.length]
        self._starts: list[int] = []
        self._open: dict[str, File] = {}
        size = 0
        for part in self._parts:
            self._starts.append(size)
            size += part.length
        self._size = size

    @cached_property
    def checked(self) -> Checked[Columns] | None:
        """What is known of the parts' batches, if `files` remembers it. The parts of a log begin and end between batches."""
        found: Checked[Columns] = Checked()
        for part, start in zip(self._parts, self._starts, strict=True):
            if isinstance(part, Data):
                continue
            known: Checked[Columns] | None = getattr(self._file(part.path), "checked", None)
            if known is None:
                return None
            for first, end, is_sound in known.part(part.position, part.position + part.length):
                found.add(start + first - part.position, start + end - part.position, is_sound)
            for window in known.moved(part.position, part.position + part.length, start):
                found.windows[window.position] = window
        return found

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self._size)
        pieces = []
        i = bisect_right(self._starts, position) - 1
        while position < end and i >= 0:
            part, start = self._parts[i], self._starts[i]
            take = min(end, start + part.length) - position
            piece = self._piece(part, position - start, take)
            pieces.append(piece)
            if len(piece) < take:
                break
            position += take
            i += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, part: Part, position: int, size: int) -> bytes:
        if isinstance(part, Data):
            return part.data[position : position + size]
        return self._file(part.path).read(part.position + position, size)

    def _file(self, path: str) -> File:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._files.open(path)
        return file

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


class PlannedFiles(ReadOnlyFiles):
    """`base` as it will be after the steps, for reading only. Directories stay as they are."""

    def __init__(self, base: Files, steps: Iterable[Step] = ()) -> None:
        self.base = base
        self._changed: dict[str, tuple[tuple[Part, ...], int | None] | None] = {}
        self._names: dict[str, dict[str, bool]] = {}  # By directory: the names that the steps add, and those that they remove.
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        """Show one more step. Parts of a `Put` name files of `base`."""
        path = self.base.absolute(step.path)
        if isinstance(step, Put):
            self._set(path, (step.parts, step.mtime_ms))
            return
        if isinstance(step, Move):
            status = self.stat(path)
            parts, _ = self._changed.get(path) or ((Copy(path, 0, status.size),), None)
            self._set(self.base.absolute(step.target), (parts, status.mtime_ms))
        self._set(path, None)

    def _set(self, path: str, change: tuple[tuple[Part, ...], int | None] | None) -> None:
        self._changed[path] = change
        directory, name = posixpath.split(path)
        self._names.setdefault(directory, {})[name] = change is not None

    def absolute(self, path: str) -> str:
        return self.base.absolute(path)

    def open(self, path: str, mode: Mode = "r") -> File:
        if mode != "r":
            refuse(path)
        name = self.base.absolute(path)
        if name not in self._changed:
            return self.base.open(path)
        change = self._changed[name]
        if change is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return ComposedFile(self.base, path, change[0])

    def exists(self, path: str) -> bool:
        name = self.base.absolute(path)
        return self._changed[name] is not None if name in self._changed else self.base.exists(path)

    def stat(self, path: str) -> FileStat:
        name = self.base.absolute(path)
        if name not in self._changed:
            return self.base.stat(path)
        change = self._changed[name]
        if change is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        parts, mtime_ms = change
        if mtime_ms is None:
            mtime_ms = self.base.stat(path).mtime_ms if self.base.exists(path) else 0
        return FileStat(parts_size(parts), mtime_ms, False, 0o644)

    def list(self, path: str) -> list[str]:
        names = set(self.base.list(path))
        for name, there in self._names.get(self.base.absolute(path), {}).items():
            (names.add if there else names.discard)(name)
        return sorted(names)
