"""Batches of every message format: parse, validate, build, scan.

In: bytes. Out: batches and records, and back. The package does no I/O. Source: Kafka's `org.apache.kafka.common.record.internal`. Positions
are bytes in a file, sizes are in bytes, times in ms, offsets are log offsets.
"""

from __future__ import annotations

from kops.late import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.records.batch import Batch, decrement_sequence, increment_sequence
    from kops.records.build import BatchBuilder, build_batch, empty_batch, end_txn_marker
    from kops.records.compression import compress
    from kops.records.crc import crc32, crc32c
    from kops.records.record import ControlRecord, Record, read_control_record
    from kops.records.scanning.columns import Columns, scan_columns
    from kops.records.scanning.damage import Damage
    from kops.records.scanning.scanner import file_batches, read_batches, scan
    from kops.records.scanning.source import ByteSource, BytesSource
    from kops.records.streams.pieces import decompress

__all__ = [
    "Batch",
    "BatchBuilder",
    "ByteSource",
    "BytesSource",
    "Columns",
    "ControlRecord",
    "Damage",
    "Record",
    "build_batch",
    "compress",
    "crc32",
    "crc32c",
    "decompress",
    "decrement_sequence",
    "empty_batch",
    "end_txn_marker",
    "file_batches",
    "increment_sequence",
    "read_batches",
    "read_control_record",
    "scan",
    "scan_columns",
]

_LATER = {
    "Batch": "kops.records.batch",
    "BatchBuilder": "kops.records.build",
    "ByteSource": "kops.records.scanning.source",
    "BytesSource": "kops.records.scanning.source",
    "Columns": "kops.records.scanning.columns",
    "ControlRecord": "kops.records.record",
    "Damage": "kops.records.scanning.damage",
    "Record": "kops.records.record",
    "build_batch": "kops.records.build",
    "compress": "kops.records.compression",
    "crc32": "kops.records.crc",
    "crc32c": "kops.records.crc",
    "decompress": "kops.records.streams.pieces",
    "decrement_sequence": "kops.records.batch",
    "empty_batch": "kops.records.build",
    "end_txn_marker": "kops.records.build",
    "file_batches": "kops.records.scanning.scanner",
    "increment_sequence": "kops.records.batch",
    "read_batches": "kops.records.scanning.scanner",
    "read_control_record": "kops.records.record",
    "scan": "kops.records.scanning.scanner",
    "scan_columns": "kops.records.scanning.columns",
}


# Clients often need `kops.records.log_offsets`, but rarely the scanner of files.
__getattr__ = late(globals(), _LATER)
