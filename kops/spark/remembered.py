"""Keeps the answers of a job's questions about files, so that a later scan need not read the same files again: `kops scan JOB --state DIR`.

A unit of work is a part of a segment, or a partition. Its answer is kept in a file of its own, which the task writes and a later task
reads, so neither the driver nor a task has all of them in memory. It is used again while the unit's files have the same name, size, times
of modification and change, and inode, and while the question and the code are the same. The rules are those of `kops.spark.kept`, which
keeps the results of `kops scan verify`.

The first line of a file is JSON: format, job, question, unit, files, and a digest of the rest, which is a compressed pickle. The pickle is
read only if it names nothing but classes of answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from kops.files.any_files import AnyFiles
from kops.files.urls import absolute_path, is_url, plain_path
from kops.spark.kept import (
    LONGEST_HEADER,
    SETTLED_NS,
    Damaged,
    Identity,
    check_folder,
    code_digest,
    identity,
    load_pickle,
    read_file,
    replace_file,
)
from kops.spark.stores.reading import at_once

FORMAT: Final = "kops.scan-answer/v1"
UNUSED_S: Final = 30 * 24 * 3600
"""Answers that no scan has used for this time are removed."""
_CODE: Final = ("kops.forensics", "kops.records", "kops.spark.jobs", "kops.spark.source")
_CLASSES: Final = ("kops.forensics.", "kops.spark.jobs.")

Answer = TypeVar("Answer")


class Unit(NamedTuple):
    """What is asked about: a name that no other unit of the job has, the files that the answer depends on, and the bytes to read."""

    name: tuple[str | int | None, ...]
    files: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one question of a job. It has plain values only, because tasks use it, too.

    `since`: the answer depends on the present time (ms). Only answers from before it are used, and the question says which are kept.
    """

    folder: str
    job: str
    question: str
    since: int = 0

    def of(self, unit: Unit, read: Callable[[], Answer], *, keep: Callable[[Answer], bool] = lambda _: True) -> Answer:
        """Return the kept answer about a unit, or that of `read`, which is then kept. Runs in a task.

        Raises what `read` raises, and OSError if the answer can't be kept.
        """
        files = AnyFiles()
        seen = tuple(identity(path, files) for path in unit.files)
        found = self._load(unit, seen, files)
        if found is not None:
            answer: Answer = found[0]
            return answer
        made = read()
        now = time.time_ns()
        if keep(made) and all(each is not None and each.mtime_ns + SETTLED_NS < now for each in seen):
            body = zlib.compress(pickle.dumps(made, protocol=5), 1)
            header = {**self._header(unit, seen), "since": self.since, "sha256": hashlib.sha256(body).hexdigest()}
            path = self.path(unit)
            if not is_url(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            replace_file(path, json.dumps(header).encode() + b"\n" + body)
        return made

    def has(self, unit: Unit, files: AnyFiles) -> bool:
        """Whether the answer is known. Raises Damaged for a file that is none of kops's, or was changed."""
        found = self._read(unit, tuple(identity(path, files) for path in unit.files), files)
        if found is None:
            return False
        if not is_url(self.folder):
            with suppress(OSError):
                os.utime(self.path(unit))  # in use
        return True

    def path(self, unit: Unit) -> str:
        """The file of an answer."""
        name = hashlib.sha256(json.dumps(unit.name).encode()).hexdigest()
        return os.path.join(self.folder, f"{self.job}-{self.question}", name[:2], f"{name[2:34]}.kops-state")

    def _header(self, unit: Unit, seen: tuple[Identity | None, ...]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "job": self.job,
            "question": self.question,
            "unit": list(unit.name),
            "files": [each and list(each) for each in seen],
        }

    def _read(self, unit: Unit, seen: tuple[Identity | None, ...], files: AnyFiles) -> bytes | None:
        try:
            data = read_file(self.path(unit), files)
        except FileNotFoundError:
            return None
        line, _, body = data.partition(b"\n")
        try:
            header = json.loads(line[:LONGEST_HEADER])
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise Damaged("it is not an answer of kops scan")
        if {name: header.get(name) for name in ("format", "job", "question", "unit", "files")} != self._header(unit, seen):
            return None
        since = header.get("since")
        if not isinstance(since, int) or since > self.since:
            return None
        if header.get("sha256") != hashlib.sha256(body).hexdigest():
            raise Damaged("its digest is wrong")
        return body

    def _load(self, unit: Unit, seen: tuple[Identity | None, ...], files: AnyFiles) -> tuple[Any] | None:
        try:
            body = self._read(unit, seen, files)
            return None if body is None else (load_pickle(body, _CLASSES),)
        except Damaged:
            return None  # The driver has said so.


class State:
    """A state directory on the driver.

    `reused` and `read` are the numbers of units of the scan, `bytes_read` those of the latter. `warning` says what was not used.
    """

    def __init__(self, folder: str, *, paths: Sequence[str] = ()) -> None:
        """`folder` is a path or a URL. Raises UsageError if it can't be a state directory."""
        plain = plain_path(folder)
        check_folder(plain, paths)
        self.folder = absolute_path(plain)
        self._files = AnyFiles(ahead=True)
        self.reused = self.read = self.bytes_read = 0
        self.damaged: list[str] = []

    def answers(self, job: str, question: object, *, since: int = 0) -> Answers:
        """The answers of a job to this question: a value that JSON can express."""
        digest = hashlib.sha256(f"{code_digest(_CODE)}\n{json.dumps(question)}".encode()).hexdigest()[:32]
        self._remove_unused(job)
        return Answers(self.folder, job, digest, since)

    def known(self, answers: Answers, units: Iterable[Unit]) -> list[bool]:
        """Whether each unit has an answer, and count them."""
        found: list[bool] = []

        def look(unit: Unit) -> tuple[Unit, bool | None]:
            try:
                return unit, answers.has(unit, self._files)
            except (Damaged, OSError):
                return unit, None

        for unit, is_known in at_once(look, units, threads=is_url(self.folder)):
            if is_known is None:
                self.damaged.append(answers.path(unit))
            found.append(bool(is_known))
            self.reused += found[-1]
            self.read += not found[-1]
            self.bytes_read += 0 if found[-1] else unit.size
        return found

    @property
    def warning(self) -> str:
        """What was not used, and what is done instead."""
        if not self.damaged:
            return ""
        others = f" and {len(self.damaged) - 1:,} others" if len(self.damaged) > 1 else ""
        return f"{self.damaged[0]}{others}: damaged, or not from kops scan; the files that it is about are read"

    def _remove_unused(self, job: str) -> None:
        """Remove answers that no scan has used for a month. An object does not tell when it was used."""
        if is_url(self.folder):
            return
        now = time.time()
        for folder, _, names in os.walk(self.folder):
            if not os.path.relpath(folder, self.folder).startswith(f"{job}-"):
                continue
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):  # another scan was faster
                    if name.endswith(".kops-state") and os.stat(path).st_mtime + UNUSED_S < now:
                        os.unlink(path)
