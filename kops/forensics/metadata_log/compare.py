"""Compares two trees of nodes: leaves that are in one only, and leaves that differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kops.forensics.metadata_log.tree import Folder, walk

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"


class Difference(NamedTuple):
    """A leaf that differs; `field` names the part of a leaf with named fields. A missing value is None."""

    path: str
    field: str | None
    change: str
    before: Any
    after: Any


def compare(before: Folder, after: Folder) -> Iterator[Difference]:
    """The leaves that differ, in the order of the trees. Topics appear by name only, and the provenance does not count."""
    old, new = (dict(_leaves(root)) for root in (before, after))
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            yield Difference(path, None, REMOVED, old[path], None)
        elif path not in old:
            yield Difference(path, None, ADDED, None, new[path])
        elif old[path] != new[path]:
            yield from _fields(path, old[path], new[path])


def _leaves(root: Folder) -> Iterator[tuple[str, Any]]:
    for path, node in walk(root, twice=False):
        if not isinstance(node, Folder) and path != "provenance":
            yield path, node


def _fields(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield Difference(path, None, CHANGED, before, after)
        return
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Difference(path, name, CHANGED, before.get(name), after.get(name))
