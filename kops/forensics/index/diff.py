"""`kops log index diff`: shows the index entries that differ from those that a broker would write now; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kops.errors import DecodeError, KopsError
from kops.files import Files, OsFiles
from kops.forensics.findings.finding import Finding
from kops.forensics.index.check import KINDS
from kops.forensics.index.rebuild import Rebuilt, rebuild_partition
from kops.forensics.verify.facts.facts import CRC
from kops.forensics.verify.facts.index import IndexFile, read_index
from kops.forensics.verify.run import plan_verify

if TYPE_CHECKING:
    from os import PathLike


@dataclass(slots=True)
class EntryDifference:
    """One entry that only one of the two indexes has. `existing` and `rebuilt` are `(offset, position)`, `(offset, timestamp)` or the
    fields of an aborted transaction; None if there is none."""

    file: str
    kind: str
    entry: int
    existing: tuple[int, ...] | None
    rebuilt: tuple[int, ...] | None


def diff_indexes(
    paths: Sequence[str | PathLike[str]],
    *,
    interval: int | None = None,
    files: Files | None = None,
    on_unreadable: Callable[[Finding], None] | None = None,
) -> Iterator[EntryDifference]:
    """Yield the entries in which the existing indexes differ from those that a broker would write now, file by file. A difference need not
    be an error: followers and older versions write other, equally valid entries. `on_unreadable` gets each unreadable file on which indexes
    depend; without it KopsError is raised. Raises `NotFoundError`."""
    reader = files if files is not None else OsFiles(read_only=True)
    plan = plan_verify(paths, CRC, reader)
    for each in plan.partitions:
        for rebuilt in rebuild_partition(each.partition, reader, interval):
            for found in rebuilt.unreadable:
                if on_unreadable is None:
                    raise KopsError(f"{found.file}: {found.detail}")
                on_unreadable(found)
            for kind in KINDS:
                if kind in rebuilt.indexes and rebuilt.differs(kind):
                    yield from _entries_that_differ(rebuilt, kind)


def _entries_that_differ(rebuilt: Rebuilt, kind: str) -> Iterator[EntryDifference]:
    path = rebuilt.path(kind)
    base = rebuilt.segment.base_offset
    before = _entries(rebuilt.existing[kind] or b"", kind, base, path)
    after = _entries(rebuilt.indexes[kind], kind, base, path)
    have, want = set(before), set(after)
    for number, entry in enumerate(before):
        if entry not in want:
            yield EntryDifference(path, kind, number, entry, None)
    for number, entry in enumerate(after):
        if entry not in have:
            yield EntryDifference(path, kind, number, None, entry)


def _entries(data: bytes, kind: str, base_offset: int, path: str) -> list[tuple[int, ...]]:
    if kind == "txnindex":
        from kops.storage.segment_files.transaction_index import read_transaction_index

        try:
            return [tuple(entry) for entry in read_transaction_index(data, file=path)]
        except DecodeError:
            return []
    index: IndexFile = read_index(data, kind, base_offset, path)
    return list(zip(index.offsets, index.numbers, strict=True))
