"""The producer snapshot (`.snapshot`): the state of every producer id at an offset.

All numbers are big-endian. The header has the version int16 (always 1, from Kafka 0.11 to 4.3), the CRC-32C uint32 of everything after it,
and the number of entries int32. An entry has 46 bytes: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta
int32, timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1: none). Sources: Kafka's
ProducerStateManager.readSnapshot and ProducerSnapshot.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
ENTRY_SIZE: Final = 46
HEADER_SIZE: Final = 10
_CRC_END: Final = 6
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")


@dataclass(slots=True)
class ProducerSnapshotEntry:
    """A producer in a snapshot. -1 stands for a missing value (no batch yet, no open transaction)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def read_producer_snapshot(data: bytes, *, file: str | None = None) -> list[ProducerSnapshotEntry]:
    """Return the producers in the file's order.

    Raises DecodeError where Kafka throws CorruptSnapshotException: `snapshot-schema` (cut short, unknown version, impossible count) or
    `snapshot-crc`. Bytes after the last entry are ignored, but the checksum covers them.
    """
    if len(data) < 2:
        raise DecodeError(f"a producer snapshot of {len(data)} bytes has no version", code="snapshot-schema", position=0, file=file)
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != VERSION:
        raise DecodeError(f"unknown version {version} of a producer snapshot", code="snapshot-schema", position=0, file=file)
    if len(data) < HEADER_SIZE:
        reason = f"the producer snapshot ends in its header, after {len(data)} bytes"
        raise DecodeError(reason, code="snapshot-schema", position=len(data), file=file)
    _, stored, count = _HEADER.unpack_from(data)
    end = HEADER_SIZE + count * ENTRY_SIZE
    if count < 0 or end > len(data):
        reason = f"the producer snapshot claims {count} entries of {ENTRY_SIZE} bytes in {len(data) - HEADER_SIZE} bytes"
        raise DecodeError(reason, code="snapshot-schema", position=_CRC_END, file=file)
    computed = _crc(data)
    if stored != computed:
        reason = f"the producer snapshot's checksum is {stored}, its contents have {computed}"
        raise DecodeError(reason, code="snapshot-crc", position=2, file=file)
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[HEADER_SIZE:end])]


def write_producer_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Return the file's bytes. The producers stay in the given order. (A broker writes them in the order of its HashMap.)"""
    body = b"".join(
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    )
    data = _HEADER.pack(VERSION, 0, len(entries)) + body
    return data[:2] + _crc(data).to_bytes(4, "big") + data[_CRC_END:]


def _crc(data: bytes) -> int:
    from kops.records.crc import crc32c

    return crc32c(memoryview(data)[_CRC_END:])
