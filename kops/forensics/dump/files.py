"""Reads the files of a log directory without records as documents: indexes, producer snapshots, checkpoints, properties; and damage.

`kops.storage` specifies and reads each format. This module names the fields and reports damage.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import FileEntry

DAMAGE: Final = "kops.damage/v1"
FILE: Final = "kops.file/v1"
INDEX_ENTRY: Final = "kops.index-entry/v1"
TIME_INDEX_ENTRY: Final = "kops.timeindex-entry/v1"
ABORTED_TXN: Final = "kops.aborted-txn/v1"
PRODUCER: Final = "kops.producer/v1"
CHECKPOINT_ENTRY: Final = "kops.checkpoint-entry/v1"
LEADER_EPOCH: Final = "kops.leader-epoch/v1"
Document = dict[str, Any]


def file_documents(files: Files, entry: FileEntry) -> Iterator[Document]:
    """The documents of one file; damage is one of them. OSError if it can't be read."""
    read = _READERS.get(entry.kind)
    if read is None:
        status = files.stat(entry.path)
        if not status.is_file and not status.is_dir:
            raise OSError(errno.ESPIPE, "Is a pipe or a device, not a file", entry.path)  # nobody knows its size before it is read
        yield {"schema": FILE, "file": entry.path, "kind": entry.kind, "size": entry.size}
        return
    data = files.read_all(entry.path)
    try:
        yield from read(entry, data)
    except DecodeError as error:
        yield damage_document(entry.path, error.position, None, error.code, error.reason)


def damage_document(
    path: str,
    position: int | None,
    length: int | None,
    code: str,
    reason: str,
    base_offset: int | None = None,
    last_offset: int | None = None,
) -> Document:
    """A document about bytes that violate their format."""
    return {
        "schema": DAMAGE,
        "damage": {
            "file": path,
            "position": position,
            "length": length,
            "code": code,
            "reason": reason,
            "baseOffset": base_offset,
            "lastOffset": last_offset,
        },
    }


def _base_offset(entry: FileEntry) -> int:
    if entry.offset is None:
        raise DecodeError("the file's name does not begin with the segment's base offset", code="file-name")
    return entry.offset


def _offset_index(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.segment_files.offset_index import read_offset_index

    index = read_offset_index(data, _base_offset(entry))
    for slot in range(index.written if index.written <= index.entries else index.entries):
        offset, position = index[slot]
        yield {"schema": INDEX_ENTRY, "file": entry.path, "offset": offset, "position": position}
    index.sanity_check(entry.path)


def _time_index(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.segment_files.time_index import read_time_index

    index = read_time_index(data, _base_offset(entry))
    for slot in range(index.written if index.written <= index.entries else index.entries):
        timestamp, offset = index[slot]
        yield {"schema": TIME_INDEX_ENTRY, "file": entry.path, "timestamp": timestamp, "offset": offset}
    if index.written == index.entries:  # The last entry of a preallocated tail is zero, which is not damage.
        index.sanity_check(entry.path)


def _transaction_index(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.segment_files.transaction_index import ENTRY_SIZE, check_transaction_index, read_transaction_index

    entries = read_transaction_index(data)
    for txn in entries:
        yield {
            "schema": ABORTED_TXN,
            "file": entry.path,
            "producerId": txn.producer_id,
            "firstOffset": txn.first_offset,
            "lastOffset": txn.last_offset,
            "lastStableOffset": txn.last_stable_offset,
            "version": txn.version,
        }
    if len(data) % ENTRY_SIZE:
        left = len(data) % ENTRY_SIZE
        raise DecodeError(f"{left} bytes are left after the last entry", code="corrupt-transaction-index", position=len(data) - left)
    check_transaction_index(entries, _base_offset(entry))


def _producer_snapshot(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.producer_snapshot import read_producer_snapshot

    for producer in read_producer_snapshot(data):
        yield {
            "schema": PRODUCER,
            "file": entry.path,
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "lastSequence": producer.last_sequence,
            "lastOffset": producer.last_offset,
            "offsetDelta": producer.offset_delta,
            "timestamp": producer.timestamp,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.current_txn_first_offset,
        }


def _offset_checkpoint(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.checkpoints import read_offset_checkpoint

    for (topic, partition), offset in read_offset_checkpoint(data).items():
        yield {"schema": CHECKPOINT_ENTRY, "file": entry.path, "topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.leader_epoch_checkpoint import read_leader_epoch_checkpoint

    for epoch, start_offset in read_leader_epoch_checkpoint(data):
        yield {"schema": LEADER_EPOCH, "file": entry.path, "epoch": epoch, "startOffset": start_offset}


def _meta_properties(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.meta_properties import read_meta_properties

    yield _fields(entry, asdict(read_meta_properties(data)))


def _partition_metadata(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.partition_metadata import read_partition_metadata

    yield _fields(entry, asdict(read_partition_metadata(data)))


def _quorum_state(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.quorum_state import read_quorum_state

    yield _fields(entry, asdict(read_quorum_state(data)))


def _clean_shutdown(entry: FileEntry, data: bytes) -> Iterator[Document]:
    from kops.storage.formats.clean_shutdown import read_clean_shutdown

    yield _fields(entry, asdict(read_clean_shutdown(data)))


def _fields(entry: FileEntry, fields: dict[str, Any]) -> Document:
    named = {_camel(name): value for name, value in fields.items()}
    return {"schema": FILE, "file": entry.path, "kind": entry.kind, "size": entry.size, "fields": named}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_READERS: Final[dict[str, Callable[[FileEntry, bytes], Iterator[Document]]]] = {
    "index": _offset_index,
    "timeindex": _time_index,
    "txnindex": _transaction_index,
    "snapshot": _producer_snapshot,
    "recovery-point-offset-checkpoint": _offset_checkpoint,
    "replication-offset-checkpoint": _offset_checkpoint,
    "log-start-offset-checkpoint": _offset_checkpoint,
    "cleaner-offset-checkpoint": _offset_checkpoint,
    "leader-epoch-checkpoint": _leader_epochs,
    "meta-properties": _meta_properties,
    "partition-metadata": _partition_metadata,
    "quorum-state": _quorum_state,
    "clean-shutdown": _clean_shutdown,
}
