"""Writes logs as lines of JSON, complete enough to make the same segments again, for `kops log export`.

A line is one of

* `kops.export-partition/v2`: a partition begins (`name`, `topicId`, and `logStartOffset`, which is null if only some of its segments were
  named);
* `kops.export-segment/v1`: a segment begins (`baseOffset`);
* `kops.export-epoch/v1`: an entry of leader-epoch-checkpoint that the batches do not tell (`leaderEpoch`, `startOffset`): the epoch has no
  batch, or its first batch begins later. It stands before the first batch behind its offset. Exports before it was known lack it;
* `kops.export-batch/v1`: a batch's header, field by field;
* `kops.record/v1`: a record of the batch before it, shaped as wherever kops lists records; `createTime` is the record's own time in a log
  that uses the append time;
* `kops.export-end/v1`: the export ends. It counts the lines before it (`partitions`, `segments`, `batches`, `records`, `damaged`), so that
  an import notices missing ones, also where a file was cut between two batches.

Exports whose partitions are `kops.export-partition/v1` have no `logStartOffset` and no last line. They are read as they are.

If the records of a batch, written again, would not give the same bytes (padding, odd varints, header names that are not UTF-8, inner
messages of old clients), the line also has the bytes as `raw`. For a compressed batch only the uncompressed bytes are compared, because the
compressed ones depend on the compressor. Source of the formats: DefaultRecordBatch, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import base64
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.dump.documents import RECORD
from kops.forensics.dump.files import damage_document
from kops.forensics.dump.filters import encode_bytes
from kops.forensics.dump.isolation import log_start_offset
from kops.forensics.inventory.tree import FileEntry, Inventory, PartitionDir, open_partition
from kops.records import Batch, Damage, Record, decompress, scan
from kops.records import decode as records_decode
from kops.records.batch import BATCH_OVERHEAD, CODEC_MASK, LOG_OVERHEAD, TIMESTAMP_TYPE_MASK
from kops.records.build import write_batch, write_message, write_record
from kops.records.compression import compress
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, Header
from kops.records.windows import WINDOW
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry, effective_epochs, read_leader_epoch_checkpoint
from kops.storage.formats.partition_metadata import read_partition_metadata

PARTITION: Final = "kops.export-partition/v2"
PARTITION_V1: Final = "kops.export-partition/v1"
SEGMENT: Final = "kops.export-segment/v1"
EPOCH: Final = "kops.export-epoch/v1"
BATCH: Final = "kops.export-batch/v1"
END: Final = "kops.export-end/v1"
COUNTED: Final = ("partitions", "segments", "batches", "records", "damaged")
MALFORMED: Final = "export-malformed"
Document = dict[str, Any]


@dataclass(slots=True)
class ExportCounts:
    """The result of an export. `damaged` lists ranges without an intact batch; their bytes are not exported. `unread` says which
    checkpoints could not be read."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    damaged: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def export_documents(
    files: Files, inventory: Inventory, counts: ExportCounts, *, raw: bool = False, on_bytes: Callable[[int], object] | None = None
) -> Iterator[Document]:
    """Yield the lines of everything in an inventory: live segments of partitions, and logs that were named by themselves.

    `raw`: compressed batches carry their bytes, too. `on_bytes` gets the number of log bytes that are done. OSError for what can't be read.
    """
    for partition, entries in _partitions(files, inventory):
        counts.partitions += 1
        # Logs that were named by themselves are a part of the log, and the checkpoints are about the whole.
        is_whole = len(entries) == sum(segment.log is not None for segment in partition.live_segments)
        start = _log_start(files, partition, counts) if is_whole else None
        yield {"schema": PARTITION, "name": partition.name, "topicId": _topic_id(files, partition), "logStartOffset": start}
        epochs = _Epochs(_entries(files, partition) if is_whole else deque())
        for entry in entries:
            counts.segments += 1
            yield {"schema": SEGMENT, "baseOffset": entry.offset}
            yield from _segment(files, entry, counts, raw, epochs)
            if on_bytes is not None:
                on_bytes(entry.size)
        if entries:
            yield from epochs.rest()
    yield {"schema": END, **{name: getattr(counts, name) for name in COUNTED[:-1]}, "damaged": len(counts.damaged)}


def _partitions(files: Files, inventory: Inventory) -> Iterator[tuple[PartitionDir, list[FileEntry]]]:
    loose: dict[str, list[FileEntry]] = {}
    for entry in inventory.loose_files:
        if entry.kind == "log":
            loose.setdefault(os.path.dirname(entry.path) or ".", []).append(entry)
    for folder, entries in loose.items():
        yield open_partition(files.absolute(folder), files), sorted(entries, key=lambda entry: entry.offset or 0)
    for partition in inventory.partitions():
        yield partition, [segment.log for segment in partition.live_segments if segment.log is not None]


def _log_start(files: Files, partition: PartitionDir, counts: ExportCounts) -> int | None:
    try:
        return log_start_offset(files, partition)
    except OSError as error:  # The records are more important than where they start.
        counts.unread.append(f"{error.filename}: {error.strerror}; the log start offset of {partition.name} is not in the export")
        return None


def _topic_id(files: Files, partition: PartitionDir) -> str | None:
    entry = partition.file("partition-metadata")
    if entry is None:
        return None
    try:
        return read_partition_metadata(files.read_all(entry.path), file=entry.path).topic_id
    except DecodeError:
        return None


def _entries(files: Files, partition: PartitionDir) -> deque[EpochEntry]:
    entry = partition.file("leader-epoch-checkpoint")
    if entry is None:
        return deque()
    try:
        return deque(effective_epochs(read_leader_epoch_checkpoint(files.read_all(entry.path), file=entry.path)))
    except DecodeError:
        return deque()


class _Epochs:
    """The entries of leader-epoch-checkpoint that the batches do not tell. One whose epoch an earlier batch has begun is of no use: an
    import takes the beginning of that batch. So it is where records were deleted up to the middle of a batch."""

    def __init__(self, entries: deque[EpochEntry]) -> None:
        self._entries = entries
        self._epoch = -1  # of the last batch

    def before(self, batch: Batch) -> Iterator[Document]:
        """Yield the entries that stand before a batch."""
        while self._entries and self._entries[0].start_offset <= batch.base_offset:
            begun = self._entries.popleft()
            if begun != (batch.partition_leader_epoch, batch.base_offset) and begun.epoch > self._epoch:
                yield _epoch_document(begun)
        self._epoch = batch.partition_leader_epoch

    def rest(self) -> Iterator[Document]:
        """Yield the entries behind the last batch."""
        return (_epoch_document(entry) for entry in self._entries if entry.epoch > self._epoch)


def _epoch_document(entry: EpochEntry) -> Document:
    return {"schema": EPOCH, "leaderEpoch": entry.epoch, "startOffset": entry.start_offset}


def _segment(files: Files, entry: FileEntry, counts: ExportCounts, raw: bool, epochs: _Epochs) -> Iterator[Document]:
    with files.open(entry.path) as file:
        for item in scan(file):
            if isinstance(item, Damage):
                counts.damaged.append(f"{entry.path}:{item.position}: {item.reason}")
                yield damage_document(entry.path, item.position, item.length, item.code, item.reason, item.base_offset, item.last_offset)
                continue
            yield from epochs.before(item)
            head, records = batch_documents(item, raw=raw)
            counts.batches += 1
            yield head
            for record in records:
                counts.records += 1
                yield record


def batch_documents(batch: Batch, *, raw: bool = False) -> tuple[Document, Iterable[Document]]:
    """Yield the line of a batch and those of its records. If the records can't be read, there are none, but the batch is kept.

    The line of a batch that decompresses to more than 4 MiB also carries its bytes, and the lines of its records are made one by one.
    """
    head: Document = {
        "schema": BATCH,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "magic": batch.magic,
        "codec": batch.codec,
        "attributes": batch.attributes,
        "leaderEpoch": batch.partition_leader_epoch,
        "baseTimestamp": batch.base_timestamp,
        "maxTimestamp": batch.max_timestamp,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "count": batch.count,
    }
    documents: list[Document] = []
    exact = False
    try:
        documents = list(_record_documents(batch, batch.records(WINDOW)))
        exact = _is_rebuilt(batch, head, documents)
    except DecodeError as error:
        if error.code == "too-large":
            return _large(batch, head)
        head["error"] = error.reason
    if not exact or (raw and batch.compressed):
        head["raw"] = base64.b64encode(batch.data()).decode()
    return head, documents


def _large(batch: Batch, head: Document) -> tuple[Document, Iterable[Document]]:
    head["raw"] = base64.b64encode(batch.data()).decode()
    for error in batch.check():
        if error.code in ("bad-records", "bad-compression"):
            head["error"] = error.reason
            return head, ()
    return head, _record_documents(batch, batch.iterate())


def _record_documents(batch: Batch, records: Iterable[Record]) -> Iterator[Document]:
    own_times = _with_own_times(batch) if batch.magic > 1 and batch.attributes & TIMESTAMP_TYPE_MASK else None
    for record in records:
        document = record_document(record)
        if own_times is not None:
            own = next(own_times)
            if own.timestamp != record.timestamp:
                document["createTime"] = own.timestamp
        yield document


def record_document(record: Record) -> Document:
    """A record as kops lists it."""
    return {
        "schema": RECORD,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "tsType": record.timestamp_type,
        "key": encode_bytes(record.key, "base64"),
        "value": encode_bytes(record.value, "base64"),
        "headers": [
            [name if isinstance(name, str) else name.decode("utf-8", "replace"), encode_bytes(value, "base64")]
            for name, value in record.headers
        ],
        "leaderEpoch": record.leader_epoch,
    }


def own_time(document: Document) -> int:
    """The time that the record itself holds, in ms."""
    time: int = document["createTime"] if "createTime" in document else document["timestamp"]
    return time


def _with_own_times(batch: Batch) -> Iterator[Record]:
    """The records with their own times, even if the log uses the append time."""
    own = Batch(batch.buffer, batch.index, batch.position)
    own.attributes &= ~TIMESTAMP_TYPE_MASK
    return own.iterate()


def _is_rebuilt(batch: Batch, head: Document, documents: Sequence[Document]) -> bool:
    """Whether the lines give the same batch again: the same bytes, or for a compressed batch the same uncompressed bytes."""
    try:
        if not batch.compressed:
            return rebuild_batch(head, documents) == batch.data()
        if batch.magic > 1:
            if not documents:
                return batch.size == BATCH_OVERHEAD
            return _body(head, documents) == decompress(batch.attributes & CODEC_MASK, batch.data()[BATCH_OVERHEAD:], limit=2 * WINDOW)
        again = Batch(rebuild_batch(head, documents))
        return _messages(again) == _messages(batch) and again.max_timestamp == batch.max_timestamp
    except (ValueError, OverflowError, TypeError):
        return False


def _messages(batch: Batch) -> list[records_decode.LegacyMessage]:
    message = bytes(batch.data()[LOG_OVERHEAD:])
    return list(records_decode.legacy_messages(batch, message))


# The reverse: from lines to batches.


def lack_of_records(head: Document, found: int) -> str | None:
    """Say what is wrong if the batch's header promises another number of records than was found: nobody could read such a batch."""
    count = head.get("count")
    if "raw" in head or count is None or count == found:
        return None
    many = "1 record follows" if found == 1 else f"{found} records follow"
    return f"{many}, but the batch has {count}; the export is cut, or lines of it are missing"


def rebuild_batch(head: Document, documents: Sequence[Document]) -> bytes:
    """Make the batch that a line and its records' lines describe. Raises KeyError, TypeError or ValueError for invalid lines."""
    if "raw" in head:
        return base64.b64decode(head["raw"], validate=True)
    if head["magic"] < 2:
        return _rebuild_legacy(head, documents)
    codec = head["attributes"] & CODEC_MASK
    body = _body(head, documents)
    return write_batch(
        compress(codec, body) if codec and body else body,
        base_offset=head["baseOffset"],
        last_offset=head["lastOffset"],
        count=head["count"],
        attributes=head["attributes"],
        base_timestamp=head["baseTimestamp"],
        max_timestamp=head["maxTimestamp"],
        producer_id=head["producerId"],
        producer_epoch=head["producerEpoch"],
        base_sequence=head["baseSequence"],
        partition_leader_epoch=head["leaderEpoch"],
        magic=head["magic"],
    )


def _body(head: Document, documents: Sequence[Document]) -> bytes:
    base_offset, base_time = head["baseOffset"], head["baseTimestamp"]
    parts = []
    for document in documents:
        offset_delta, time_delta = document["offset"] - base_offset, own_time(document) - base_time
        parts.append(write_record(offset_delta, time_delta, *content(document)))
    return b"".join(parts)


def _rebuild_legacy(head: Document, documents: Sequence[Document]) -> bytes:
    magic, codec, last = head["magic"], head["attributes"] & CODEC_MASK, head["lastOffset"]
    kind = LOG_APPEND_TIME if magic and head["attributes"] & TIMESTAMP_TYPE_MASK else CREATE_TIME
    base = head["baseOffset"] if magic and codec else 0
    parts = []
    for document in documents:
        key, value, headers = content(document)
        if headers:
            raise ValueError(f"format v{magic} has no headers")
        parts.append(write_message(magic, document["offset"] - base, own_time(document), key, value, timestamp_type=kind))
    body = b"".join(parts)
    if not codec:
        return body
    return write_message(magic, last, head["maxTimestamp"], None, compress(codec, body, magic=magic), codec=codec, timestamp_type=kind)


def content(
    document: Document, key_encoding: str = "base64", value_encoding: str = "base64"
) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers of a record's line. ValueError, TypeError or KeyError if they are invalid."""
    headers: list[Header] = [(str(name), decode_text(value, value_encoding)) for name, value in document.get("headers") or ()]
    return decode_text(document.get("key"), key_encoding), decode_text(document.get("value"), value_encoding), headers


def decode_text(text: str | None, encoding: str) -> bytes | None:
    """Decode the text that `encode_bytes` wrote."""
    if text is None:
        return None
    if encoding == "utf8":
        return text.encode("utf-8", "surrogateescape")
    return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
