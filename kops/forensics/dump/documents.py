"""Reads the files of a log directory as documents: batches or records, entries of indexes and checkpoints, and damage in its place.

Each document is a dict; its first key is `schema`. A record has `offset`, `timestamp` (ms), `tsType`, `key`, `value`, `headers`,
`leaderEpoch`, then what the dump adds (`topic`, `partition`, `sequence`, `batch`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.dump.control import control_fields
from kops.forensics.dump.decoders import Decoder, decode
from kops.forensics.dump.files import DAMAGE, Document, damage_document, file_documents
from kops.forensics.dump.filters import RecordFilter, encode_bytes
from kops.forensics.dump.isolation import ConsumerView, consumer_view
from kops.forensics.dump.messages import RecordParser
from kops.forensics.dump.text import INT_MAX, MAX_RECORD_BYTES, WatchedFile, with_option
from kops.forensics.inventory.tree import FileEntry, Inventory, PartitionDir, open_partition
from kops.records import Batch, Damage, Record, scan
from kops.records.scanning.source import ByteSource

RECORD: Final = "kops.record/v1"
BATCH: Final = "kops.batch/v1"
LOG_KINDS: Final = ("log", "checkpoint", "bootstrap-checkpoint")


@dataclass(slots=True)
class DocumentOptions:
    """What to show. `records`: the records of logs instead of their batches. `isolation`: only the records that such a consumer gets.

    `parser` decodes whole records, in place of both decoders; a record that it can't decode is shown encoded.
    """

    records: bool = False
    filter: RecordFilter = field(default_factory=RecordFilter)
    key_encoding: str = "base64"
    value_encoding: str = "base64"
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None
    isolation: str | None = None
    max_bytes: int = INT_MAX
    max_record_bytes: int = MAX_RECORD_BYTES
    parser: RecordParser | None = None


def chosen_files(inventory: Inventory, options: DocumentOptions) -> Iterator[tuple[FileEntry, PartitionDir | None]]:
    """Yield the files to dump, each with its partition. Records come from live segments and snapshots, or from files that were named."""
    for entry in inventory.loose_files:
        yield entry, None
    for log_dir in inventory.log_dirs:
        if not options.records:
            yield from ((entry, None) for entry in log_dir.files)
        for partition in log_dir.partitions:
            yield from ((entry, partition) for entry in _partition_files(partition, options))
        if not options.records:
            yield from ((entry, None) for entry in log_dir.unknown)
    for partition in inventory.loose_partitions:
        yield from ((entry, partition) for entry in _partition_files(partition, options))


def _partition_files(partition: PartitionDir, options: DocumentOptions) -> Iterator[FileEntry]:
    if not options.records:
        yield from partition.all_files()
        return
    for segment in partition.live_segments:
        assert segment.log is not None
        yield segment.log


class _Counted:
    """A file that reports its progress."""

    def __init__(self, file: ByteSource, on_read: Callable[[int], object] | None) -> None:
        self._file = file
        self._on_read = on_read
        self._end = 0

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, size: int) -> bytes:
        data = self._file.read(position, size)
        if self._on_read is not None and position + len(data) > self._end:
            self._on_read(position + len(data) - self._end)
            self._end = position + len(data)
        return data


class Documents:
    """The documents of some files. `damaged` is set after a document about damage. `on_read` gets the number of log bytes that were
    read."""

    def __init__(self, files: Files, options: DocumentOptions) -> None:
        self.files = files
        self.options = options
        self.damaged = False
        self.on_read: Callable[[int], object] | None = None
        self._views: dict[str, ConsumerView] = {}

    def of_file(self, entry: FileEntry, partition: PartitionDir | None = None) -> Iterator[Document]:
        """The documents of one file. OSError if it can't be read."""
        if entry.kind not in LOG_KINDS:
            if not self.options.records:
                for document in file_documents(self.files, entry):
                    self.damaged = self.damaged or document["schema"] == DAMAGE
                    yield document
            return
        if partition is None and entry.kind == "log":
            partition = open_partition(os.path.dirname(entry.path) or ".", self.files)
        yield from self._log(entry, partition)

    def _log(self, entry: FileEntry, partition: PartitionDir | None) -> Iterator[Document]:
        options = self.options
        view = self._view(partition)
        with self.files.open(entry.path) as file:
            watched = WatchedFile(file)
            for item in scan(_Counted(watched, self.on_read), 0, options.max_bytes):
                if isinstance(item, Damage):
                    yield self._damage(entry, item.position, item.length, item.code, item.reason, item.base_offset, item.last_offset)
                elif (view is None or view.shows(item)) and options.filter.batch_may_match(item):
                    if options.records:
                        yield from self._records(entry, partition, item, view)
                    elif not options.filter.of_records or any(self._matching(item)):
                        yield batch_document(entry, item)
            watched.check()

    def _view(self, partition: PartitionDir | None) -> ConsumerView | None:
        if self.options.isolation is None or partition is None:
            return None
        view = self._views.get(partition.path)
        if view is None:
            view = self._views[partition.path] = consumer_view(self.files, partition, self.options.isolation)
        return view

    def _matching(self, batch: Batch) -> Iterator[Record]:
        try:
            yield from filter(self.options.filter.record_matches, batch.iterate(self.options.max_record_bytes))
        except DecodeError:
            return

    def _records(self, entry: FileEntry, partition: PartitionDir | None, batch: Batch, view: ConsumerView | None) -> Iterator[Document]:
        about = batch_fields(entry, batch)
        where = (None, None) if partition is None or partition.topic is None else (partition.topic, partition.partition)
        matches = None if self.options.filter.empty else self.options.filter.record_matches
        try:
            for record in batch.iterate(self.options.max_record_bytes):
                if (view is None or view.shows_offset(record.offset)) and (matches is None or matches(record)):
                    yield self._record(entry, record, batch, about, where)
        except DecodeError as error:
            reason = with_option(error)
            yield self._damage(entry, batch.position, batch.size, error.code, reason, batch.base_offset, batch.last_offset)

    def _record(self, entry: FileEntry, record: Record, batch: Batch, about: Document, where: tuple[str | None, int | None]) -> Document:
        options = self.options
        key, value = _contents(record, None if batch.is_control else options.parser, options)
        document: Document = {
            "schema": RECORD,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "tsType": record.timestamp_type,
            "key": key,
            "value": value,
            "headers": [
                [name if isinstance(name, str) else name.decode("utf-8", "replace"), encode_bytes(value, options.value_encoding)]
                for name, value in record.headers
            ],
            "leaderEpoch": record.leader_epoch,
            "topic": where[0],
            "partition": where[1],
            "sequence": record.sequence,
            "batch": about,
        }
        if batch.is_control:
            try:
                document["control"] = control_fields(record.key, record.value)
            except DecodeError as error:
                document["control"] = {"error": error.reason}
        return document

    def _damage(
        self, entry: FileEntry, position: int, length: int, code: str, reason: str, base_offset: int | None, last_offset: int | None
    ) -> Document:
        self.damaged = True
        return damage_document(entry.path, position, length, code, reason, base_offset, last_offset)


def _contents(record: Record, parser: RecordParser | None, options: DocumentOptions) -> tuple[str | None, str | None]:
    """Key and value as text."""
    if parser is not None:
        shown = parser(record.offset, record.key, record.value)
        if shown.problem is None:
            key, value = (None if text is None else text.decode("utf-8", "replace") for text in (shown.key, shown.value))
            return key, value
    key_text = _shown(record.key, options.key_decoder, options.key_encoding)
    return key_text, _shown(record.value, options.value_decoder, options.value_encoding)


def _shown(data: bytes | None, decoder: Decoder | None, encoding: str) -> str | None:
    if decoder is None or data is None:
        return encode_bytes(data, encoding)
    try:
        return decode(decoder, data).decode("utf-8", "replace")
    except DecodeError:
        return encode_bytes(data, encoding)


def batch_fields(entry: FileEntry, batch: Batch) -> Document:
    """A record's fields about its batch."""
    flags = [
        ("transactional", batch.is_transactional),
        ("control", batch.is_control),
        ("deleteHorizon", batch.delete_horizon_ms is not None),
    ]
    return {
        "file": entry.path,
        "position": batch.position,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "magic": batch.magic,
        "codec": batch.codec,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "flags": [name for name, is_set in flags if is_set],
    }


def batch_document(entry: FileEntry, batch: Batch) -> Document:
    """A batch's header."""
    return {
        "schema": BATCH,
        "file": entry.path,
        "position": batch.position,
        "size": batch.size,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "magic": batch.magic,
        "codec": batch.codec,
        "tsType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "leaderEpoch": batch.partition_leader_epoch if batch.magic > 1 else None,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "crc": batch.crc,
    }
