"""Checks files that were named by themselves: a `.log` without its partition, an index, a snapshot, a checkpoint.

Each file is judged alone, but an index with the log next to it. Files that were not named are not reported missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kops.errors import DecodeError, KopsError
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.inventory.tree import FileEntry, classify
from kops.forensics.verify.checks.metadata import check_snapshot
from kops.forensics.verify.facts.index import SegmentView, check_sanity, read_index

if TYPE_CHECKING:
    from kops.files import Files

_NO_LIMIT = (1 << 63) - 1


def logs_beside(entries: list[FileEntry], files: Files) -> list[FileEntry]:
    """The logs that belong to offset and time indexes named without them; the indexes are checked against these."""
    named = {os.path.abspath(entry.path) for entry in entries}
    found: dict[str, FileEntry] = {}
    for entry in entries:
        if entry.kind not in ("index", "timeindex") or entry.offset is None or entry.suffix:
            continue
        path = f"{entry.path.rpartition('.')[0]}.log"
        if os.path.abspath(path) not in named and files.exists(path):
            found[path] = classify(path, files.stat(path).size)
    return list(found.values())


def check_loose(entries: list[FileEntry], judged: set[str], files: Files) -> Iterator[Finding]:
    """Yield findings about each file by itself, except those in `judged` (paths), which were judged with their log."""
    for entry in entries:
        if entry.path in judged or entry.kind == "log":
            continue
        try:
            yield from _check(entry, files)
        except (OSError, KopsError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            yield finding("file-unreadable", entry.path, reason)


def _check(entry: FileEntry, files: Files) -> Iterator[Finding]:
    if entry.kind in ("index", "timeindex"):
        yield from _index(entry, files)
    elif entry.kind == "checkpoint":
        yield from check_snapshot(entry, files)
    elif entry.kind in _DECODERS:
        code, decode = _DECODERS[entry.kind]
        try:
            decode(files.read_all(entry.path))
        except DecodeError as error:
            yield finding(code, entry.path, error.reason, position=error.position)


def _index(entry: FileEntry, files: Files) -> Iterator[Finding]:
    """Check an index. Without its log, only the order of the entries can be judged."""
    base = entry.offset if entry.offset is not None else 0
    index = read_index(files.read_all(entry.path), entry.kind, base, entry.path)
    view = SegmentView("", base, _NO_LIMIT, _NO_LIMIT, -1, [], is_active=True, clean_stop=None, has_timestamps=False)
    yield from check_sanity(index, view)


def _offsets(data: bytes) -> None:
    from kops.storage.formats.checkpoints import read_offset_checkpoint

    read_offset_checkpoint(data)


def _epochs(data: bytes) -> None:
    from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint

    effective_epochs(read_leader_epoch_checkpoint(data))


def _snapshot(data: bytes) -> None:
    from kops.storage.formats.producer_snapshot import read_producer_snapshot

    read_producer_snapshot(data)


def _transactions(data: bytes) -> None:
    from kops.storage.segment_files.transaction_index import ENTRY_SIZE, read_transaction_index

    for number, entry in enumerate(read_transaction_index(data)):
        if entry.stored_version:
            raise DecodeError(f"entry {number} has version {entry.stored_version}", position=number * ENTRY_SIZE)
    if len(data) % ENTRY_SIZE:
        raise DecodeError(f"{len(data)} bytes are not a multiple of {ENTRY_SIZE}", position=len(data) - len(data) % ENTRY_SIZE)


def _metadata(data: bytes) -> None:
    from kops.storage.formats.partition_metadata import read_partition_metadata

    read_partition_metadata(data)


def _quorum(data: bytes) -> None:
    from kops.storage.formats.quorum_state import read_quorum_state

    read_quorum_state(data)


def _meta(data: bytes) -> None:
    from kops.storage.formats.meta_properties import read_meta_properties

    read_meta_properties(data)


_DECODERS: dict[str, tuple[str, Callable[[bytes], None]]] = {
    "recovery-point-offset-checkpoint": ("checkpoint-malformed", _offsets),
    "replication-offset-checkpoint": ("checkpoint-malformed", _offsets),
    "log-start-offset-checkpoint": ("checkpoint-malformed", _offsets),
    "cleaner-offset-checkpoint": ("checkpoint-malformed", _offsets),
    "leader-epoch-checkpoint": ("leader-epoch-file-malformed", _epochs),
    "snapshot": ("snapshot-malformed", _snapshot),
    "txnindex": ("transaction-index-malformed", _transactions),
    "partition-metadata": ("partition-metadata-malformed", _metadata),
    "quorum-state": ("quorum-state-malformed", _quorum),
    "meta-properties": ("meta-properties-malformed", _meta),
}
