"""Writes recovered records as tables: jsonl, in the shape that kops uses for records everywhere, and Parquet. Transaction markers are left
out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kops.errors import MissingDependencyError
from kops.files import File, Files
from kops.forensics.dump.documents import RECORD
from kops.forensics.recover.copies.batches import batches
from kops.forensics.recover.copies.runs import Run
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.records.decode import chunks

if TYPE_CHECKING:
    from kops.records import Batch, Record

_FLUSH: Final = 1 << 20
_ROWS: Final = 50_000
_ROW_BYTES: Final = 32 << 20


def require_pyarrow() -> Any:
    """The pyarrow module. Raises MissingDependencyError that names the extra to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("--as parquet needs pyarrow: pip install 'kops[spark]' (or pyarrow alone)") from error
    return pyarrow


def write_table(files: Files, out_files: Files, path: str, report: RecoverReport, entry: RecoveredPartition, runs: Sequence[Run]) -> None:
    """Write all records of a partition into one file. An interruption ends it after the last whole batch; then `entry.complete` is
    False."""
    partition = entry.name.rpartition("-")[2]
    rows = _Rows(entry, batches(files, runs, report.renumbered), int(partition) if partition.isdigit() else 0)
    if report.shape == "jsonl":
        _write_jsonl(out_files, path, rows)
    else:
        _write_parquet(out_files, path, rows)


class _Rows:
    """Iterates over the batches of a partition with their records, and counts them. Ctrl-C ends it between two batches.

    A batch with many records comes several times.
    """

    def __init__(self, entry: RecoveredPartition, found: Iterator[Batch], partition: int) -> None:
        self.entry = entry
        self.found = found
        self.partition = partition

    def __iter__(self) -> Iterator[tuple[Batch, list[Record]]]:
        entry = self.entry
        while True:
            try:
                batch = next(self.found, None)
            except KeyboardInterrupt:
                entry.complete = False
                return
            if batch is None:
                return
            entry.batches += 1
            entry.bytes += batch.size
            if entry.first_offset is None:
                entry.first_offset = batch.base_offset
            entry.last_offset = batch.last_offset
            for records in () if batch.is_control else chunks(batch):
                entry.records += len(records)
                yield batch, records


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _document(record: Record, batch: Batch, partition: int) -> dict[str, Any]:
    return {
        "schema": RECORD,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "tsType": record.timestamp_type,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name if isinstance(name, str) else name.decode("utf-8", "replace"), _text(value)] for name, value in record.headers],
        "leaderEpoch": record.leader_epoch,
        "partition": partition,
        "batch": {
            "baseOffset": batch.base_offset,
            "codec": batch.codec,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "sequence": record.sequence,
            "transactional": batch.is_transactional,
        },
    }


def _write_jsonl(files: Files, path: str, rows: _Rows) -> None:
    with files.open(path, "new") as file:
        position = 0
        lines: list[bytes] = []
        size = 0
        for batch, records in rows:
            for record in records:
                line = json.dumps(_document(record, batch, rows.partition), separators=(",", ":")).encode() + b"\n"
                lines.append(line)
                size += len(line)
            if size >= _FLUSH:
                file.write(position, b"".join(lines))
                position, size, lines = position + size, 0, []
        file.write(position, b"".join(lines))
        file.sync()


def _write_parquet(files: Files, path: str, rows: _Rows) -> None:
    pyarrow = require_pyarrow()
    from pyarrow import parquet

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            pyarrow.field("partition", pyarrow.int32(), nullable=False),
            pyarrow.field("offset", pyarrow.int64(), nullable=False),
            pyarrow.field("timestamp", pyarrow.int64(), nullable=False),
            pyarrow.field("tsType", pyarrow.string(), nullable=False),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
            ("leaderEpoch", pyarrow.int32()),
            ("producerId", pyarrow.int64()),
            ("sequence", pyarrow.int32()),
        ]
    )
    # Through a file object: pyarrow rejects paths that are not UTF-8, and a partition directory may have such a name.
    with files.open(path, "new") as file, parquet.ParquetWriter(Sink(file), schema, compression="zstd") as writer:
        waiting: list[dict[str, Any]] = []
        size = 0
        for batch, records in rows:
            waiting += [_row(record, batch, rows.partition) for record in records]
            size += sum(record.size for record in records)
            if len(waiting) >= _ROWS or size >= _ROW_BYTES:
                writer.write_table(pyarrow.Table.from_pylist(waiting, schema=schema))
                waiting, size = [], 0
        writer.write_table(pyarrow.Table.from_pylist(waiting, schema=schema))
        writer.close()
        file.sync()


class Sink:
    """A file for pyarrow, which appends to it and asks for the position."""

    closed = False

    def __init__(self, file: File) -> None:
        self.file = file
        self.position = 0

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self.file.write(self.position, data)
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.position

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Do nothing: the code that opened the file closes it."""
        self.closed = True

    def readable(self) -> bool:
        """False: nothing is read back."""
        return False

    def writable(self) -> bool:
        """True: the file is written."""
        return True

    def seekable(self) -> bool:
        """False: Parquet is written from front to back."""
        return False


def _row(record: Record, batch: Batch, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "tsType": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": [
            {"key": name if isinstance(name, str) else name.decode("utf-8", "replace"), "value": value} for name, value in record.headers
        ],
        "leaderEpoch": record.leader_epoch,
        "producerId": batch.producer_id,
        "sequence": record.sequence,
    }
