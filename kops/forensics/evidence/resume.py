"""The remains of an interrupted collection, from which a later one continues.

Ctrl-C leaves a case that says it is not complete; a killed collection leaves a hidden directory beside the place of the case, with the
manifest of some moment. Of either, a copy is taken over if the original still has the size, times and inode that the manifest says, and if
the copy has the manifest's hash: the copy is read for that. Everything else is collected as if it had not been there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kops.errors import KopsError, UsageError
from kops.forensics.evidence.case import MANIFEST, Document, case_file_of, open_case, read_manifest
from kops.forensics.evidence.contents import DescriptorFile, OnBytes, read_contents
from kops.forensics.evidence.names import get_name, shown
from kops.forensics.evidence.walk import Parts, Tree

__all__ = ["PARTIAL", "Earlier", "find_earlier", "hold", "left_behind"]

PARTIAL: Final = ".partial"
_MUST_BE_EQUAL: Final = ("type", "size", "mtime", "ctime", "device", "inode")


class Earlier:
    """An interrupted collection in the directory `path`. Raises DecodeError, NotFoundError."""

    def __init__(self, path: str, tree: Tree) -> None:
        self.path = path
        self._tree = tree
        self.manifest, self.manifest_sha256 = read_manifest(self._tree, path)
        self.sources = {get_name(source, "path"): int(source["number"]) for source in self.manifest["sources"]}
        self._entries = {(int(entry["source"]), get_name(entry, "path")): entry for entry in self.manifest["entries"]}
        self.damaged: list[bytes] = []

    @property
    def runs(self) -> list[Document]:
        """The interrupted runs so far, for the manifest."""
        times = {key: self.manifest.get(key) for key in ("started", "finished")}
        return [*self.manifest.get("resumed", []), {**times, "manifest_sha256": self.manifest_sha256}]

    def take(self, source: bytes, entry: Document, target: bytes, on_bytes: OnBytes | None, *, check: bool = True) -> str | None:
        """Make its copy of an unchanged file the copy `target`. Returns the hash, None if there is no such copy.

        Without `check` the copy is not read; a case that is not complete may have such copies, since a later run checks them.
        """
        number = self.sources.get(source)
        old = self._entries.get((number, get_name(entry, "path"))) if number is not None else None
        if old is None or old.get("status") != "collected" or old.get("size") != old.get("size_read"):
            return None
        if any(old.get(key) != entry.get(key) for key in _MUST_BE_EQUAL):
            return None
        name = case_file_of(self.manifest, old)
        parts: Parts = tuple(name.split(b"/")) if name is not None else ()
        try:
            if check and self._hash(parts, on_bytes) != old["sha256"]:
                self.damaged.append(os.path.join(source, get_name(entry, "path")))
                return None
            self._tree.link(parts, target)
        except OSError:
            return None  # It is not there, or the file system has no links.
        return str(old["sha256"])

    def _hash(self, parts: Parts, on_bytes: OnBytes | None) -> str:
        fd = self._tree.open(parts)
        try:
            return read_contents(DescriptorFile(fd), None, on_bytes).sha256
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Remove it: another case has everything."""
        shutil.rmtree(self.path, ignore_errors=True)


def hold(fd: int, path: str) -> None:
    """Hold the directory of a collection while it is at work. Raises KopsError if another one is at work there."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise KopsError(f"{path}: another collection is at work there") from error
    except OSError:
        return  # The file system has no locks.


def left_behind(out: str) -> list[str]:
    """Return what killed collections left beside the place of a case, the latest first."""
    place = os.path.abspath(out)
    parent, start = os.path.dirname(place), f".{os.path.basename(place)}."
    with suppress(OSError):
        found = [each for each in os.scandir(parent) if each.name.startswith(start) and each.name.endswith(PARTIAL)]
        found = [each for each in found if each.is_dir(follow_symlinks=False)]
        return [each.path for each in sorted(found, key=lambda each: each.stat(follow_symlinks=False).st_mtime_ns, reverse=True)]
    return []


@contextmanager
def find_earlier(out: str, sources: Collection[bytes]) -> Iterator[Earlier]:
    """Give the interrupted collection of a case of these directories, and hold it meanwhile.

    Raises UsageError if there is none to continue, DecodeError, KopsError.
    """
    place = out
    if not os.path.lexists(out):
        known = [path for path in left_behind(out) if os.path.isfile(os.path.join(path, MANIFEST))]
        if not known:
            raise UsageError(f"--resume: there is no {out}, and nothing beside it that an interrupted collection left")
        place = known[0]
    with open_case(place) as tree:
        hold(tree.root, place)
        earlier = Earlier(place, tree)
        manifest = earlier.manifest
        if manifest.get("mode") != "copy":
            raise UsageError(f"--resume: {place} has no copies, so there is nothing to continue")
        if manifest.get("complete") is not False:
            raise UsageError(f"--resume: {place} is complete; a case is never changed")
        if {*sources} != earlier.sources.keys():
            named = ", ".join(map(shown, earlier.sources))
            raise UsageError(f"--resume: {place} is of {named}; resume it with the same directories")
        for entry in manifest["entries"]:
            case_file_of(manifest, entry)
        yield earlier
