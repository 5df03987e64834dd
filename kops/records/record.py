"""A record as a reader sees it, and the control records of format v2.

Source: Kafka's `Record`, `ControlRecordType`, `EndTransactionMarker` and the message descriptors EndTxnMarker, LeaderChangeMessage,
SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from kops.errors import DecodeError

Header = tuple[str | bytes, bytes | None]

NO_TIMESTAMP_TYPE = "NoTimestampType"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


class _Record(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    sequence: int
    leader_epoch: int | None
    size: int
    attributes: int


class Record(_Record):
    """One record. `timestamp` is in ms since the epoch (-1: none). `size` is in bytes, uncompressed, with the length field.

    `headers` are pairs of key and value; a key that is not UTF-8 stays bytes. `sequence` is -1 without an idempotent producer.
    `leader_epoch` is None before format v2 and if the batch has -1. `attributes` is the signed byte of the record (unused in v2). A record
    is a tuple because this is the fastest way to make one from a row of the hot loop.
    """

    __slots__ = ()

    def __new__(
        cls,
        offset: int,
        timestamp: int,
        timestamp_type: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None = None,
        sequence: int = -1,
        leader_epoch: int | None = None,
        size: int = 0,
        attributes: int = 0,
    ) -> Record:
        fields = (offset, timestamp, timestamp_type, key, value, headers or [], sequence, leader_epoch, size, attributes)
        return tuple.__new__(cls, fields)


ABORT = "ABORT"
COMMIT = "COMMIT"
LEADER_CHANGE = "LEADER_CHANGE"
SNAPSHOT_HEADER = "SNAPSHOT_HEADER"
SNAPSHOT_FOOTER = "SNAPSHOT_FOOTER"
KRAFT_VERSION = "KRAFT_VERSION"
KRAFT_VOTERS = "KRAFT_VOTERS"
UNKNOWN = "UNKNOWN"
CONTROL_TYPES = (ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS)


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The value of a transaction marker (ABORT or COMMIT)."""

    version: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of a KRaft leader. Voter ids are as in the message. Version 1 also has directory ids (16 bytes each)."""

    version: int
    leader_id: int
    voters: tuple[tuple[int, bytes], ...]
    granting_voters: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The first record of a KRaft snapshot. The timestamp (ms) is that of the last log record that the snapshot contains."""

    version: int
    last_contained_log_timestamp: int


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The last record of a KRaft snapshot."""

    version: int


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The feature level of the quorum."""

    version: int
    kraft_version: int


@dataclass(frozen=True, slots=True)
class KRaftVoters:
    """The voters of a dynamic quorum, as the message's bytes."""

    version: int
    raw: bytes


ControlValue = EndTxnMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters | None


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record: version and type id of its key, the name of the type, and its value (None for an unknown type)."""

    key_version: int
    type_id: int
    type: str
    value: ControlValue

    @property
    def coordinator_epoch(self) -> int | None:
        """The coordinator epoch of a transaction marker, or None for any other type."""
        return self.value.coordinator_epoch if isinstance(self.value, EndTxnMarker) else None


def control_type_id(key: bytes | None) -> tuple[int, int]:
    """Return (version, type id) of the key of a control record. Raises DecodeError if `ControlRecordType.parseTypeId` throws."""
    if key is None or len(key) < 4:
        raise DecodeError(f"a control record's key needs 4 bytes and has {0 if key is None else len(key)}", code="bad-control-record")
    version, type_id = struct.unpack_from(">hh", key)
    if version < 0:
        raise DecodeError(f"a control record's key has the version {version}", code="bad-control-record")
    return version, type_id


def java_string(data: bytes) -> str:
    """Decode as Java's `new String(data, UTF_8)`, including bytes that are not UTF-8. This differs from Python for surrogates: their two or
    three bytes become a single U+FFFD."""
    import re

    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xef\xbf\xbd", data).decode(errors="replace")


def read_control_record(record: Record) -> ControlRecord:
    """Decode a record of a control batch. Raises DecodeError (`bad-control-record`) if the key or the value does not fit the type."""
    version, type_id = control_type_id(record.key)
    if not 0 <= type_id < len(CONTROL_TYPES):
        return ControlRecord(version, type_id, UNKNOWN, None)
    name = CONTROL_TYPES[type_id]
    try:
        value = _read_value(name, record.value)
    except (struct.error, IndexError, ValueError):
        raise DecodeError(f"the value of a control record of type {name} is cut or malformed", code="bad-control-record") from None
    return ControlRecord(version, type_id, name, value)


def _read_value(name: str, raw: bytes | None) -> ControlValue:
    if raw is None:
        raise ValueError(name)
    (version,) = struct.unpack_from(">h", raw)
    if version < 0:
        raise ValueError(version)
    if name in (ABORT, COMMIT):
        return EndTxnMarker(version, struct.unpack_from(">i", raw, 2)[0])
    if name == SNAPSHOT_HEADER:
        return SnapshotHeader(version, struct.unpack_from(">q", raw, 2)[0])
    if name == SNAPSHOT_FOOTER:
        return SnapshotFooter(version)
    if name == KRAFT_VERSION:
        return KRaftVersion(version, struct.unpack_from(">h", raw, 2)[0])
    if name == KRAFT_VOTERS:
        return KRaftVoters(version, raw)
    leader_id = struct.unpack_from(">i", raw, 2)[0]
    voters, position = _read_voters(raw, 6, version)
    granting, _ = _read_voters(raw, position, version)
    return LeaderChange(version, leader_id, voters, granting)


def _read_voters(raw: bytes, position: int, version: int) -> tuple[tuple[tuple[int, bytes], ...], int]:
    from kops.records.varint import read_unsigned_varint

    count, position = read_unsigned_varint(raw, position)
    voters = []
    for _ in range(count - 1):
        (voter,) = struct.unpack_from(">i", raw, position)
        position += 4
        directory = b""
        if version >= 1:
            directory = raw[position : position + 16]
            position += 16
            if len(directory) < 16:
                raise ValueError(position)
        tags, position = read_unsigned_varint(raw, position)
        for _ in range(tags):
            _, position = read_unsigned_varint(raw, position)
            size, position = read_unsigned_varint(raw, position)
            position += size
        voters.append((voter, directory))
    return tuple(voters), position
