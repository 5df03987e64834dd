"""`collect`: directories become a case. Nothing is written into them, no lock is taken, no link is followed.

Each file is read twice: once to keep it (the hash is of what was read), once when everything was read. If the hashes differ, the file
changed meanwhile, as under a running broker; the copy stays as it was read. The case is written beside its place and renamed. After
Ctrl-C, or when its disk is full, it has what was read so far, and says that it is not complete. `kops.forensics.evidence.resume` continues
it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from kops.errors import KopsError, NotFoundError, UsageError
from kops.files import File, OsFiles
from kops.forensics.evidence.analysis import forecasts, segment_map
from kops.forensics.evidence.case import (
    DATA,
    DOCUMENTS,
    FORECAST,
    MANIFEST,
    SCHEMA,
    SEGMENTS,
    SEGMENTS_SCHEMA,
    SUMS,
    VERIFY,
    Document,
    entry_of,
    manifest_bytes,
    sums_bytes,
    utc,
)
from kops.forensics.evidence.contents import CaseWriteError, Contents, DescriptorFile, read_contents
from kops.forensics.evidence.names import put_name, shown
from kops.forensics.evidence.plain_files import PlainFiles
from kops.forensics.evidence.resume import PARTIAL, Earlier, find_earlier, hold
from kops.forensics.evidence.walk import Seen, Tree
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.verify.facts.facts import LEVELS
from kops.forensics.verify.run import SCHEMA as VERIFY_SCHEMA
from kops.forensics.verify.run import verify

FORECASTS_SCHEMA: Final = "kops.evidence-forecasts/v1"
CHECKPOINT_BYTES = 1 << 30
"""After so many bytes the manifest is written, for --resume."""


@dataclass(slots=True)
class CollectOptions:
    """What to collect and what to note. `reference`: no copy. `resume`: continue an interrupted collection. `level` and `jobs` are those of
    verify."""

    reference: bool = False
    resume: bool = False
    level: str = "full"
    jobs: int | None = None
    examiner: str | None = None
    note: str | None = None
    case_number: str | None = None
    version: str = ""
    arguments: Sequence[str] = ()


@dataclass(slots=True)
class Collected:
    """A finished case: where it is, the hash of its manifest, what is in it, and what was found.

    `complete` is false after Ctrl-C, and if the case could not be written to its end. `stopped` then is the reason, as for a full disk.
    """

    path: str
    manifest_sha256: str
    totals: dict[str, int]
    findings: list[Finding]
    warnings: list[str]
    problems: dict[str, int]
    complete: bool
    failed: bool
    stopped: str = ""


@dataclass(slots=True)
class _Source:
    """One directory, and what lies in it: `(entry, as it was seen)`."""

    number: int
    given: str
    path: bytes
    lock_holder: int | None
    entries: list[tuple[Document, Seen]] = field(default_factory=list)

    @property
    def copy_name(self) -> bytes:
        """Where its copy is in the case."""
        return b"/".join((DATA, str(self.number).encode(), os.path.basename(self.path) or b"root"))


def collect(
    paths: Sequence[str],
    out: str,
    options: CollectOptions,
    *,
    on_total: Callable[[int], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    open_file: Callable[[int, str], File] = DescriptorFile,
) -> Collected:
    """Collect directories into the new directory `out`.

    `on_total` gets the bytes to read, `on_bytes` each step; `open_file` makes a file of a descriptor. Raises UsageError, NotFoundError,
    CaseWriteError.
    """
    if options.level not in LEVELS:
        raise UsageError(f"unknown level '{options.level}': one of {', '.join(LEVELS)}")
    if options.resume and options.reference:
        raise UsageError("--reference copies nothing, so there is nothing to resume; give only one of --reference and --resume")
    sources = [*_sources(paths, out, options.resume)]
    with find_earlier(out, {source.path for source in sources}) if options.resume else nullcontext() as earlier:
        parent = os.path.dirname(os.path.abspath(out))
        try:
            place = tempfile.mkdtemp(prefix=f".{os.path.basename(os.path.normpath(out))}.", suffix=PARTIAL, dir=parent)
        except OSError as error:
            raise CaseWriteError(f"{parent}: the case cannot be written: {error.strerror}") from error
        try:
            with _held(place):
                made = _Collection(sources, place, options, open_file, on_bytes, earlier).run(on_total)
                _publish(place, out, earlier)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        if earlier is not None:
            earlier.remove()
    made.path = out
    return made


@contextmanager
def _held(place: str) -> Iterator[None]:
    """Show other collections that this one is at work here."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        hold(fd, place)
        yield
    finally:
        os.close(fd)


def _sources(paths: Sequence[str], out: str, resume: bool) -> Iterator[_Source]:
    """The directories to collect, each once. Raises NotFoundError, and UsageError where a directory lies in another one or in the case."""
    if os.path.lexists(out) and not resume:
        raise UsageError(f"--out {out}: already exists; a case is never changed (--resume continues one that was interrupted)")
    if not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise NotFoundError(f"--out {out}: the directory for it does not exist")
    target = os.path.realpath(out)
    real: list[str] = []
    for given in paths:
        path = os.path.realpath(given)
        if not os.path.lexists(path):
            raise NotFoundError(f"{given}: no such directory")
        if not os.path.isdir(path):
            raise UsageError(f"{given}: not a directory; evidence is collected from directories")
        if os.path.commonpath((path, target)) == path:
            raise UsageError(f"--out {out}: lies in {given}, where nothing may be written")
        if path in real:
            continue
        other = next((each for each in real if os.path.commonpath((each, path)) in (each, path)), None)
        if other is not None:
            raise UsageError(f"{given} and {other}: one lies in the other; name only the outer one")
        real.append(path)
        yield _Source(len(real), given, os.fsencode(path), _lock_holder(path))


def _lock_holder(path: str) -> int | None:
    """The process that holds the lock of a log directory (0: not known), None if nobody does. The lock is not taken."""
    lock = os.path.join(path, ".lock")
    try:
        if not stat.S_ISREG(os.lstat(lock).st_mode):
            return None
        return OsFiles(read_only=True).lock_owner(path)
    except OSError:
        return None  # the walk reports it


class _Collection:
    """One collection into `place`."""

    def __init__(
        self,
        sources: list[_Source],
        place: str,
        options: CollectOptions,
        open_file: Callable[[int, str], File],
        on_bytes: Callable[[int], None] | None,
        earlier: Earlier | None = None,
    ) -> None:
        self.sources = sources
        self.place = os.fsencode(place)
        self.options = options
        self.open_file = open_file
        self.on_bytes = on_bytes
        self.earlier = earlier
        self.started = time.time_ns()
        self.unsaved = 0
        self.findings: list[Finding] = []
        self.warnings: list[str] = []
        self.documents: list[Document] = []
        self.found: list[Finding] = []
        self.complete = True
        self.stopped = ""

    def run(self, on_total: Callable[[int], None] | None) -> Collected:
        """List, read, examine, read again, and write the manifest."""
        for source in self.sources:
            if source.lock_holder is not None:
                who = f"process {source.lock_holder}" if source.lock_holder else "another process"
                self.warnings.append(f"{shown(source.path)}: a broker is running here ({who} holds .lock) and changes files")
            with _tree(source) as tree:
                source.entries = [(entry_of(source.number, seen), seen) for seen in tree.walk()]
        if on_total is not None:
            on_total(2 * sum(seen.status.st_size for _, seen in self._all() if seen.kind == "file" and seen.status is not None))
        try:
            for source in self.sources:
                self._read(source)
            if self.earlier is not None:
                words = "its copy is not what the interrupted collection wrote; it was read again"
                self.warnings += [f"{shown(path)}: {words}" for path in self.earlier.damaged]
            self._examine()
            for source in self.sources:
                self._read_again(source)
        except KeyboardInterrupt:
            self.complete = False
            then = "" if self.options.reference else "; --resume continues it"
            self.warnings.append(f"interrupted: the case has only what was read so far{then}")
            self._keep_earlier()
        except CaseWriteError as error:
            if self.options.reference or not self._has_copies():
                raise
            self.complete, self.stopped = False, str(error)
            self.warnings.append(f"{error}: the case has only what was read so far; --resume continues it")
            self._keep_earlier()
        for source in self.sources:
            self._finish_copies(source)
        os.sync()  # all copies at once: one by one, thousands of small files take minutes
        while True:
            try:
                return self._write()
            except CaseWriteError as error:
                if self.options.reference or not self._give_up_a_copy():
                    raise
                if self.complete:
                    self.complete, self.stopped = False, str(error)
                    self.warnings.append(f"{error}: the case has only what there was room for; --resume continues it")

    def _all(self) -> Iterator[tuple[Document, Seen]]:
        for source in self.sources:
            yield from source.entries

    # Reading

    def _read(self, source: _Source) -> None:
        """Hash every file, and copy it."""
        with _tree(source) as tree:
            for entry, seen in source.entries:
                if seen.kind == "directory" and not self.options.reference:
                    with _writing(self._copy(source, seen)):
                        os.makedirs(self._copy(source, seen), mode=0o700)
                if seen.error is not None:
                    self._unreadable(source, entry, seen, seen.error)
                elif seen.kind == "file":
                    self._read_file(source, tree, entry, seen)

    def _copy(self, source: _Source, seen: Seen) -> bytes:
        return os.path.join(self.place, source.copy_name, *seen.parts)

    def _read_file(self, source: _Source, tree: Tree, entry: Document, seen: Seen) -> None:
        target = None if self.options.reference else self._copy(source, seen)
        if self.earlier is not None and target is not None:
            known = self.earlier.take(source.path, entry, target, self.on_bytes)
            if known is not None:
                entry |= {"status": "collected", "sha256": known, "size_read": entry["size"]}
                return
        try:
            fd = tree.open(seen.parts)
        except FileNotFoundError:
            self._changed(source, entry, seen, "it was removed during the collection, before it was read")
            return
        except OSError as error:
            self._unreadable(source, entry, seen, error.strerror or str(error))
            return
        try:
            file = self.open_file(fd, os.fsdecode(os.path.join(source.path, *seen.parts)))
            read = read_contents(file, None, self.on_bytes) if target is None else self._read_and_copy(file, target)
        except OSError as error:
            self._unreadable(source, entry, seen, error.strerror or str(error))
            return
        finally:
            os.close(fd)
        entry |= {"status": "collected", "sha256": read.sha256, "size_read": read.size}
        if read.unreadable:
            entry["status"] = "partial"
            entry["unreadable"] = [list(each) for each in read.unreadable]
            for start, end in read.unreadable:
                detail = "the disk does not return these bytes; they are zeros here"
                self.findings.append(finding("file-unreadable", _full(source, seen), detail, position=start, length=end - start))
        self.unsaved += read.size
        if self.unsaved >= CHECKPOINT_BYTES and target is not None:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Write a manifest of what was read so far, from which --resume continues if the process is killed."""
        path = os.path.join(self.place, MANIFEST.encode())
        _write_file(path + b".new", manifest_bytes(self._head() | {"complete": False}, [entry for entry, _ in self._all()]))
        os.rename(path + b".new", path)
        self.unsaved = 0

    def _has_copies(self) -> bool:
        return any("sha256" in entry for entry, _ in self._all())

    def _give_up_a_copy(self) -> bool:
        """Make room for the documents of the case: remove them, and the copy that this run made last. Returns False if there is none.

        What was taken over from an earlier run is linked. Removing it would make no room.
        """
        for name in (MANIFEST, SUMS, *(each["path"] for each in self.documents)):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.place, name.encode()))
        self.documents = []
        for source in reversed(self.sources):
            for entry, seen in reversed(source.entries):
                target = self._copy(source, seen)
                if "sha256" in entry and os.lstat(target).st_nlink == 1:
                    os.unlink(target)
                    for key in ("sha256", "sha256_after", "size_read", "after", "detail", "unreadable"):
                        entry.pop(key, None)
                    entry["status"] = "not-collected"
                    return True
        return False

    def _keep_earlier(self) -> None:
        """Take over what an earlier run had and this one has not come to, so that no run has less than the one before."""
        if self.earlier is None:
            return
        for source in self.sources:
            for entry, seen in source.entries:
                target = self._copy(source, seen)
                if seen.kind != "file" or "status" in entry or os.path.lexists(target):
                    continue
                with _writing(target):
                    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
                known = self.earlier.take(source.path, entry, target, None, check=False)
                if known is not None:
                    entry |= {"status": "collected", "sha256": known, "size_read": entry["size"]}

    def _read_and_copy(self, file: File, target: bytes) -> Contents:
        """Copy a file and read the copy again. One that is not complete is removed."""
        with _writing(target):
            out_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            read = read_contents(file, out_fd, self.on_bytes)
            if read_contents(DescriptorFile(out_fd)).sha256 != read.sha256:
                raise CaseWriteError(f"{shown(target)}: the copy is not what was written; check the disk of the case")
        except BaseException:
            os.unlink(target)
            raise
        finally:
            os.close(out_fd)
        return read

    def _unreadable(self, source: _Source, entry: Document, seen: Seen, reason: str) -> None:
        entry |= {"status": "unreadable", "detail": reason}
        self.findings.append(finding("file-unreadable", _full(source, seen), reason))

    def _read_again(self, source: _Source) -> None:
        """Hash every file once more, and look for what came and went."""
        with _tree(source) as tree:
            for entry, seen in source.entries:
                if "sha256" in entry:
                    self._compare(source, tree, entry, seen)
            known = {seen.parts for _, seen in source.entries}
            for seen in tree.walk():
                if seen.parts not in known:
                    entry = entry_of(source.number, seen) | {"status": "appeared", "detail": "it appeared during the collection"}
                    source.entries.append((entry, seen))
                    self.findings.append(finding("file-changed", _full(source, seen), "it appeared during the collection"))

    def _compare(self, source: _Source, tree: Tree, entry: Document, seen: Seen) -> None:
        try:
            now = tree.look(seen.parts)
            fd = tree.open(seen.parts)
            try:
                again = read_contents(self.open_file(fd, _full(source, seen)), None, self.on_bytes)
            finally:
                os.close(fd)
        except FileNotFoundError:
            self._changed(source, entry, seen, "it was removed during the collection")
            return
        except OSError as error:
            self._changed(source, entry, seen, f"it could not be read a second time: {error.strerror}")
            return
        entry["sha256_after"] = again.sha256
        after = entry_of(source.number, now)
        differing = {key: after[key] for key in ("size", "mode", "mtime", "inode") if after.get(key) != entry[key]}
        if differing:
            entry["after"] = differing
        if again.sha256 != entry["sha256"]:
            size = f"; {entry['size_read']} bytes were read, now it has {again.size}" if again.size != entry["size_read"] else ""
            self._changed(source, entry, seen, f"its contents changed during the collection{size}")

    def _changed(self, source: _Source, entry: Document, seen: Seen, detail: str) -> None:
        entry |= {"status": "changed", "detail": detail}
        self.findings.append(finding("file-changed", _full(source, seen), detail))

    # Findings

    def _examine(self) -> None:
        """Run verify and forecast on the copies, or on the originals of a case by reference, and write what they say."""
        copies = {os.fsdecode(os.path.join(self.place, each.copy_name)): os.fsdecode(each.path) for each in self.sources}
        if self.options.reference:
            copies = dict.fromkeys(copies.values(), "")
        files = PlainFiles(OsFiles(read_only=True)) if self.options.reference else OsFiles(read_only=True)
        roots = list(copies)
        try:
            report = verify(roots, self.options.level, files=files, jobs=self.options.jobs)
            self.found = report.findings
            document = report.to_json()
        except KopsError as error:
            document = {"schema": VERIFY_SCHEMA, "error": str(error), "findings": []}
        answers, errors = forecasts(files, roots, time.time_ns() // 1_000_000)
        self._document(VERIFY, document, copies)
        self._document(FORECAST, {"schema": FORECASTS_SCHEMA, "forecasts": [each.to_json() for each in answers], "errors": errors}, copies)
        segments = [*segment_map(files, roots, self.found, answers)]
        self._document(SEGMENTS, {"schema": SEGMENTS_SCHEMA, "partitions": segments}, copies)
        for found in self.found:
            found.file = _original(found.file, copies)
        self.warnings += [_original(each, copies) for each in (*errors, *([str(document["error"])] if "error" in document else []))]

    def _document(self, name: str, document: Document, copies: dict[str, str]) -> None:
        """Write a document of the case; paths in the copy become those of the originals."""
        data = json.dumps(_original(document, copies), indent=None).encode() + b"\n"
        _write_file(os.path.join(self.place, name.encode()), data)
        self.documents.append({"path": name, "size": len(data), "sha256": sha256(data).hexdigest()})

    # The end

    def _finish_copies(self, source: _Source) -> None:
        """Times and permissions of the copies: as the originals, but not writable. Directories come last, the innermost first."""
        for entry, seen in source.entries:
            if seen.kind == "file":
                entry.setdefault("status", "not-collected")
        if self.options.reference:
            return
        for entry, seen in source.entries:
            if seen.kind == "directory" and not os.path.lexists(self._copy(source, seen)):
                entry.setdefault("status", "not-collected")
        for entry, seen in reversed(source.entries):
            is_copied = "sha256" in entry or (seen.kind == "directory" and entry.get("status") != "appeared")
            target = self._copy(source, seen)
            if not is_copied or seen.status is None or not os.path.lexists(target):
                continue
            mode = seen.status.st_mode
            os.chmod(target, (mode & 0o444) | 0o400 if seen.kind == "file" else (mode & 0o555) | 0o700)
            os.utime(target, ns=(seen.status.st_mtime_ns, seen.status.st_mtime_ns))

    def _write(self) -> Collected:
        written = {each["path"] for each in self.documents}
        for name in {*DOCUMENTS, MANIFEST, SUMS} - written:  # begun when Ctrl-C came, or a checkpoint
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.place, name.encode()))
        entries = [entry for entry, _ in self._all()]
        head = self._head()
        data = manifest_bytes(head, entries)
        manifest_sha256 = sha256(data).hexdigest()
        _write_file(os.path.join(self.place, MANIFEST.encode()), data)
        _write_file(os.path.join(self.place, SUMS.encode()), sums_bytes(head | {"entries": entries}, manifest_sha256))
        problems = {name: sum(1 for each in self.found if each.severity == name) for name in ("error", "warning", "info")}
        failed = any(found.code == "file-unreadable" for found in self.findings)
        failed |= bool(self.stopped)
        return Collected("", manifest_sha256, head["totals"], self.findings, self.warnings, problems, self.complete, failed, self.stopped)

    def _head(self) -> Document:
        """Return the manifest without its entries."""
        entries = [entry for entry, _ in self._all()]
        totals = {
            "files": sum(1 for entry in entries if entry["type"] == "file"),
            "bytes": sum(entry.get("size_read", 0) for entry in entries),
            "changed": sum(1 for entry in entries if entry.get("status") in ("changed", "appeared")),
            "unreadable": sum(1 for entry in entries if entry.get("status") in ("unreadable", "partial")),
            "special": sum(1 for entry in entries if entry["type"] not in ("file", "directory", "unknown")),
            "not_collected": sum(1 for entry in entries if entry.get("status") == "not-collected" and entry["type"] == "file"),
        }
        options = self.options
        head: Document = {
            "schema": SCHEMA,
            "case": {"number": options.case_number, "examiner": options.examiner, "note": options.note},
            "mode": "reference" if options.reference else "copy",
            "complete": self.complete,
            "started": utc(self.started),
            "finished": utc(time.time_ns()),
            "tool": {"name": "kops", "version": options.version, "python": platform.python_version(), "system": platform.system()},
            "arguments": list(options.arguments),
            "verify_level": options.level,
            "sources": [self._source_document(source) for source in self.sources],
            "totals": totals,
            "warnings": self.warnings,
            "findings": [found.to_json() for found in self.findings],
            "documents": sorted(self.documents, key=lambda each: DOCUMENTS.index(each["path"])),
        }
        return head if self.earlier is None else head | {"resumed": self.earlier.runs}

    def _source_document(self, source: _Source) -> Document:
        document: Document = {"number": source.number}
        put_name(document, "path", source.path)
        put_name(document, "given", os.fsencode(source.given))
        if not self.options.reference:
            put_name(document, "data", source.copy_name)
        document["lock_holder"] = source.lock_holder
        return document


def _tree(source: _Source) -> Tree:
    try:
        return Tree(source.path)
    except OSError as error:
        raise KopsError(f"{shown(source.path)}: {error.strerror}") from error


def _full(source: _Source, seen: Seen) -> str:
    return os.fsdecode(os.path.join(source.path, *seen.parts))


def _original(value: Any, copies: dict[str, str]) -> Any:
    """A JSON value with the paths of the originals instead of those of the copies."""
    if isinstance(value, str):
        for copy, original in copies.items():
            if original:
                value = value.replace(copy, original)
        return value
    if isinstance(value, dict):
        return {key: _original(each, copies) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_original(each, copies) for each in value]
    return value


@contextmanager
def _writing(path: bytes) -> Iterator[None]:
    """An error of the operating system here is one of the case, not of what is collected."""
    try:
        yield
    except OSError as error:
        raise CaseWriteError(f"{shown(path)}: the case cannot be written: {error.strerror}") from error


def _write_file(path: bytes, data: bytes) -> None:
    """Write a file of the case, for reading only."""
    with _writing(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _sync(path: bytes) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _publish(place: str, out: str, earlier: Earlier | None) -> None:
    """Give the case its name. `mkdir` fails if something has the name by now; the rename replaces only the directory that it made.

    An incomplete case steps aside, under a name from which --resume can continue.
    """
    _sync(os.fsencode(place))
    try:
        if earlier is not None and earlier.path == out:
            os.rename(out, place.removesuffix(PARTIAL) + ".before" + PARTIAL)
            earlier.path = place.removesuffix(PARTIAL) + ".before" + PARTIAL
        os.mkdir(out)
        os.rename(place, out)
    except FileExistsError as error:
        raise UsageError(f"--out {out}: already exists; a case is never changed") from error
    except OSError as error:
        raise CaseWriteError(f"{out}: the case cannot be written: {error.strerror}") from error
    _sync(os.fsencode(os.path.dirname(os.path.abspath(out))))
