"""`verify`: checks that a case, and the originals, are as they were when they were collected.

The manifest lists what the case must contain. Somebody may have changed the manifest, too. Only its hash, noted at the collection,
proves that nobody did. Names in it are not trusted: a name that leads out of the case is reported and never opened. No link is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError, UsageError
from kops.forensics.evidence.case import (
    DATA,
    MANIFEST,
    SUMS,
    Document,
    case_file_of,
    entry_of,
    open_case,
    read_file,
    read_manifest,
    source_of,
    sums_bytes,
)
from kops.forensics.evidence.contents import DescriptorFile, read_contents
from kops.forensics.evidence.names import get_name, parts_of, shown
from kops.forensics.evidence.walk import Parts, Tree

SCHEMA: Final = "kops.evidence-check/v1"
STATES: Final = ("changed", "missing", "additional", "unsafe-name", "unreadable")
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(slots=True)
class Difference:
    """A changed file, directory or link. `state` is one of `STATES`. `original`: it is in a collected directory, not in the case."""

    state: str
    file: str
    detail: str
    original: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {"state": self.state, "file": self.file, "original": self.original, "detail": self.detail}


@dataclass(slots=True)
class CheckReport:
    """The result of a check: what was compared, and what differs. `notes` say what the check does not prove."""

    case: str
    manifest_sha256: str
    mode: str
    files: int = 0
    bytes: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the document `kops.evidence-check/v1`."""
        return {
            "schema": SCHEMA,
            "case": self.case,
            "manifest_sha256": self.manifest_sha256,
            "mode": self.mode,
            "files": self.files,
            "bytes": self.bytes,
            "differences": [each.to_json() for each in self.differences],
            "notes": self.notes,
        }


def check_case(
    path: str, *, manifest_sha256: str | None = None, originals: bool = False, on_bytes: Callable[[int], None] | None = None
) -> CheckReport:
    """Compare a case with its manifest. With `originals`, also compare the collected directories. Raises NotFoundError if there is no
    case, DecodeError if the manifest is malformed, UsageError if `manifest_sha256` is not a hash."""
    if manifest_sha256 is not None and not _HASH.fullmatch(manifest_sha256):
        raise UsageError(f"--manifest-sha256 {manifest_sha256}: must be the 64 hexadecimal digits that kops evidence collect printed")
    with open_case(path) as tree:
        manifest, actual = read_manifest(tree, path)
        report = CheckReport(path, actual, manifest["mode"])
        if manifest_sha256 is not None and manifest_sha256.lower() != actual:
            report.differences.append(Difference("changed", MANIFEST, f"its SHA-256 is {actual}, not {manifest_sha256.lower()}"))
        if manifest_sha256 is None:
            report.notes.append("without --manifest-sha256, a manifest that was changed together with the files is not noticed")
        if not manifest.get("complete", True):
            report.notes.append("the collection was interrupted: the case is not complete")
        report.differences += _Check(report, tree, manifest, on_bytes).run()
    if originals:
        for source in manifest["sources"]:
            report.differences += _originals(report, manifest, source, on_bytes)
    elif manifest["mode"] == "reference":
        report.notes.append("the case is by reference and has no copies; --originals checks the files themselves")
    return report


class _Check:
    """The check of the case itself."""

    def __init__(self, report: CheckReport, tree: Tree, manifest: Document, on_bytes: Callable[[int], None] | None) -> None:
        self.report = report
        self.tree = tree
        self.manifest = manifest
        self.on_bytes = on_bytes
        self.expected: set[Parts] = {(MANIFEST.encode(),), (SUMS.encode(),)}

    def run(self) -> Iterator[Difference]:
        """Yield all differences: wrong hashes first, then files that are not in the manifest."""
        yield from self._sums()
        for document in self.manifest["documents"]:
            yield from self._file(document, document["size"])
        for entry in self.manifest["entries"]:
            yield from self._entry(entry)
        for seen in self.tree.walk():
            if seen.error is not None:
                yield Difference("unreadable", shown(b"/".join(seen.parts)), seen.error)
            elif seen.parts and seen.parts not in self.expected:
                yield Difference("additional", shown(b"/".join(seen.parts)), f"a {seen.kind} that is not in the manifest")

    def _sums(self) -> Iterator[Difference]:
        try:
            data = read_file(self.tree, SUMS)
        except FileNotFoundError:
            yield Difference("missing", SUMS, "it is not there")
            return
        except OSError as error:
            yield Difference("unreadable", SUMS, error.strerror or str(error))
            return
        try:
            wanted = sums_bytes(self.manifest, self.report.manifest_sha256)
        except DecodeError:
            return  # reported with the entry of that name
        if data != wanted:
            yield Difference("changed", SUMS, f"it does not say what {MANIFEST} says")

    def _entry(self, entry: Document) -> Iterator[Difference]:
        try:
            name = case_file_of(self.manifest, entry)
            if name is not None:
                yield from self._copy(name, entry)
            elif self._has_copy(entry):
                yield from self._directory(entry)
        except DecodeError as error:
            yield Difference("unsafe-name", entry["path"], str(error))

    def _has_copy(self, entry: Document) -> bool:
        """Whether the entry is of a directory that is in the case."""
        is_copied = entry.get("status") not in ("appeared", "not-collected")
        return self.manifest["mode"] == "copy" and entry["type"] == "directory" and is_copied

    def _directory(self, entry: Document) -> Iterator[Difference]:
        source = source_of(self.manifest, entry)
        parts = parts_of(get_name(source, "data"))
        if parts[0] != DATA:
            raise DecodeError(f"{source['data']!r} is not below {DATA.decode()}", code="unsafe-name")
        name = get_name(entry, "path")
        parts = parts if name == b"." else parts + parts_of(name)
        self.expected.update(parts[:count] for count in range(1, len(parts) + 1))
        try:
            kind = self.tree.look(parts).kind
        except OSError:
            yield Difference("missing", shown(b"/".join(parts)), "the directory is not there")
            return
        if kind != "directory":
            yield Difference("changed", shown(b"/".join(parts)), f"it was a directory and is a {kind}")

    def _file(self, document: Document, size: int) -> Iterator[Difference]:
        try:
            yield from self._compare(parts_of(get_name(document, "path")), size, document["sha256"])
        except DecodeError as error:
            yield Difference("unsafe-name", document["path"], str(error))

    def _copy(self, name: bytes, entry: Document) -> Iterator[Difference]:
        yield from self._compare(parts_of(name), entry["size_read"], entry["sha256"])

    def _compare(self, parts: Parts, size: int, sha256: str) -> Iterator[Difference]:
        self.expected.add(parts)
        name = shown(b"/".join(parts))
        try:
            fd = self.tree.open(parts)
        except (FileNotFoundError, NotADirectoryError):
            yield Difference("missing", name, "it is not there")
            return
        except OSError as error:
            kind = self.tree.look(parts).kind if os.path.lexists(os.path.join(self.tree.path, *parts)) else "file"
            if kind != "file":
                yield Difference("changed", name, f"it was a file and is a {kind}")
            else:
                yield Difference("unreadable", name, error.strerror or str(error))
            return
        try:
            read = read_contents(DescriptorFile(fd), None, self.on_bytes)
        except OSError as error:
            yield Difference("unreadable", name, error.strerror or str(error))
            return
        finally:
            os.close(fd)
        self.report.files += 1
        self.report.bytes += read.size
        if read.unreadable:
            yield Difference("unreadable", name, f"{_bytes(read.unreadable)} bytes cannot be read")
        elif read.size != size:
            yield Difference("changed", name, f"it had {size} bytes and has {read.size}")
        elif read.sha256 != sha256:
            yield Difference("changed", name, f"its SHA-256 was {sha256} and is {read.sha256}")


def _bytes(ranges: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


def _originals(report: CheckReport, manifest: Document, source: Document, on_bytes: Callable[[int], None] | None) -> Iterator[Difference]:
    """Compare a collected directory as it is now."""
    root = get_name(source, "path")
    try:
        tree = Tree(root)
    except OSError as error:
        state = "missing" if isinstance(error, FileNotFoundError | NotADirectoryError) else "unreadable"
        yield Difference(state, shown(root), error.strerror or str(error), original=True)
        return
    with tree:
        known: set[Parts] = set()
        for entry in manifest["entries"]:
            if entry["source"] != source["number"]:
                continue
            try:
                name = get_name(entry, "path")
                parts = () if name == b"." else parts_of(name)
            except DecodeError as error:
                yield Difference("unsafe-name", entry["path"], str(error), original=True)
                continue
            known.add(parts)
            yield from _original(report, tree, parts, entry, on_bytes)
        for seen in tree.walk():
            if seen.parts not in known:
                yield Difference("additional", _name(tree, seen.parts), f"a {seen.kind} that was not there", original=True)


def _original(
    report: CheckReport, tree: Tree, parts: Parts, entry: Document, on_bytes: Callable[[int], None] | None
) -> Iterator[Difference]:
    name = _name(tree, parts)
    try:
        now = entry_of(entry["source"], tree.look(parts))
    except (FileNotFoundError, NotADirectoryError):
        if not (
            "sha256" in entry and "sha256_after" not in entry and entry.get("status") == "changed"
        ):  # it had been removed before the collection ended
            yield Difference("missing", name, "it is not there", original=True)
        return
    except OSError as error:
        yield Difference("unreadable", name, error.strerror or str(error), original=True)
        return
    before = entry | entry.get("after", {})
    keys = ["type", "target", "target_base64", "special", "mode", "inode", *(("size", "mtime") if entry["type"] == "file" else ())]
    differing = [f"{key} was {before.get(key)} and is {now.get(key)}" for key in keys if before.get(key) != now.get(key)]
    if now["type"] == "file" and "sha256" in entry:
        try:
            fd = tree.open(parts)
            try:
                read = read_contents(DescriptorFile(fd), None, on_bytes)
            finally:
                os.close(fd)
        except OSError as error:
            yield Difference("unreadable", name, error.strerror or str(error), original=True)
            return
        report.files += 1
        report.bytes += read.size
        wanted = entry.get("sha256_after", entry["sha256"])
        if read.sha256 != wanted:
            differing.insert(0, f"its SHA-256 was {wanted} and is {read.sha256}")
    if differing:
        yield Difference("changed", name, "; ".join(differing), original=True)


def _name(tree: Tree, parts: Parts) -> str:
    return shown(os.path.join(tree.path, *parts))
