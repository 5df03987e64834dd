"""Whether findings point at the damaged bytes: the positions that the cases of the corpus have in `damage`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kops.files import OsFiles
from kops.forensics.findings.finding import Finding
from kops.records import Batch, scan

BYTES = ("write", "flipBit", "append", "truncate", "cut")
"""The operations of `damage` that change bytes of a file. The others create, delete, rename or rewrite whole files."""
OF_OTHERS = {"index-entry-wrong", "index-beyond-log", "index-incomplete", "index-missing", "time-index-missing", "snapshot-beyond-end"}
"""Findings in a file that follow from damage in the log beside it."""


def where(damage: dict[str, Any], size: int) -> tuple[int, int]:
    """Return the damaged bytes of a file: (first, end). What was cut out or off is between the bytes beside it."""
    operation = damage["op"]
    if operation == "append":
        return damage["oldSize"], size
    if operation == "truncate":
        return max(damage["newSize"] - 1, 0), damage["newSize"] + 1
    first = damage["position"]
    if operation == "cut":
        return max(first - 1, 0), first + 1
    return first, first + (len(damage["new"]) // 2 if damage.get("new") else 1)


def extent(found: Finding) -> tuple[int, int]:
    """Return the bytes that a finding points at. A finding without a length points at the batch at its position, or at the end: what is
    missing there follows the byte before.
    """
    assert found.position is not None
    if found.length is not None:
        return found.position, found.position + found.length
    path = Path(found.file)
    if path.suffix == ".log" and found.code != "offset-gap":
        with OsFiles(read_only=True).open(found.file) as log:
            for item in scan(log, found.position):
                assert isinstance(item, Batch)
                return item.position, item.end
    return max(found.position - 1, 0), path.stat().st_size + 1


def touches(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def check_positions(findings: Sequence[Finding], damages: Sequence[dict[str, Any]], folder: Path) -> None:
    """Check that each damage of bytes is in a finding, and that each finding with a position is at such damage."""
    placed = [found for found in findings if found.is_problem and found.position is not None]
    by_file: dict[str, list[dict[str, Any]]] = {}
    for damage in damages:
        by_file.setdefault(damage["file"], []).append(damage)
    for name, here in by_file.items():
        path = folder / name
        if not path.is_file() or not all(damage["op"] in BYTES for damage in here):
            continue
        ranges = [where(damage, path.stat().st_size) for damage in here]
        own = [extent(found) for found in placed if Path(found.file) == path]
        if not own:  # A file of text has no positions, nor has an empty one.
            assert path.suffix == ".properties" or path.stat().st_size == 0
            assert any(stem(found.file) == stem(str(path)) for found in findings if found.is_problem)
        for each in ranges if own else ():
            assert any(touches(each, one) for one in own), (name, each, own)
        for one in own:
            assert any(touches(each, one) for each in ranges), (name, ranges, one)
    changed = {name for damage in damages for name in (damage["file"], damage.get("to", damage["file"]))}
    for found in placed:
        name = Path(found.file).relative_to(folder).as_posix()
        assert name in changed or (found.code in OF_OTHERS and stem(name) in map(stem, changed)), found


def stem(name: str) -> str:
    """Return a file's path without what follows the first dot within its name."""
    path = Path(name)
    return str(path.with_name(path.name[:1] + path.name[1:].partition(".")[0]))
