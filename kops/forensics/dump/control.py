"""Shows control records as Kafka's dump tool does: transaction markers, and the records of a KRaft quorum as JSON.

Sources: Kafka's `ControlRecordType`, `EndTransactionMarker`, `ControlRecordUtils` (which reads every KRaft value as version 0 of its
message, whatever the value says), the descriptors LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord,
VotersRecord.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from kops.errors import DecodeError
from kops.records.record import CONTROL_TYPES, UNKNOWN, control_type_id
from kops.records.varint import read_unsigned_varint

CODE: Final = "bad-control-record"
_MAX_STRING: Final = 0x7FFF
_ZERO_UUID: Final = "A" * 22


def control_type(key: bytes | None) -> tuple[str, int]:
    """The type of a control record by its key: name (`UNKNOWN` where Kafka has none) and number. DecodeError if Kafka throws."""
    _, number = control_type_id(key)
    return (CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else UNKNOWN), number


def control_fields(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """What a control record says, with its `type`. DecodeError (`bad-control-record`) where Kafka's tool throws."""
    name, number = control_type(key)
    if name == UNKNOWN:
        return {"type": name, "typeId": number}
    if value is None:
        raise DecodeError(f"a control record of type {name} has no value", code=CODE)
    if name in ("ABORT", "COMMIT"):
        return {"type": name, "coordinatorEpoch": _marker(value)}
    return {"type": name, **_READERS[name](_Reader(value))}


def control_text(key: bytes | None, value: bytes | None) -> str:
    """The end of a control record's line in Kafka's dump. DecodeError if Kafka's tool throws."""
    fields = control_fields(key, value)
    name = fields.pop("type")
    if name == UNKNOWN:
        return f" controlType: UNKNOWN({fields['typeId']})"
    if name in ("ABORT", "COMMIT"):
        return f" endTxnMarker: {name} coordinatorEpoch: {fields['coordinatorEpoch']}"
    return f" {_LABELS[name]} {json.dumps(fields, separators=(',', ':'), ensure_ascii=False)}"


_LABELS: Final = {
    "LEADER_CHANGE": "LeaderChange:",
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}


def _marker(value: bytes) -> int:
    if len(value) < 6:
        raise DecodeError(f"a transaction marker needs 6 bytes, but has {len(value)}", code=CODE)
    version, epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise DecodeError(f"a transaction marker has the version {version}", code=CODE)
    return int(epoch)


class _Reader:
    """Kafka's flexible encoding: compact arrays and strings, tagged fields after each structure."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, code: str) -> int:
        try:
            (value,) = struct.unpack_from(code, self.data, self.position)
        except struct.error:
            raise DecodeError("the value of a control record is cut", code=CODE) from None
        self.position += struct.calcsize(code)
        return int(value)

    def varint(self) -> int:
        value, self.position = read_unsigned_varint(self.data, self.position)
        return value

    def raw(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise DecodeError(f"{size} bytes are claimed, but {len(self.data) - self.position} are left", code=CODE)
        self.position += size
        return self.data[self.position - size : self.position]

    def array(self, read: Callable[[_Reader], dict[str, Any]]) -> list[dict[str, Any]]:
        count = self.varint() - 1
        if not 0 <= count <= len(self.data) - self.position:
            raise DecodeError(f"a list claims {count} entries, but {len(self.data) - self.position} bytes are left", code=CODE)
        return [read(self) for _ in range(count)]

    def string(self) -> str:
        size = self.varint() - 1
        if not 0 <= size <= _MAX_STRING:
            raise DecodeError(f"a string claims {size} bytes", code=CODE)
        return self.raw(size).decode("utf-8", "replace")

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.raw(16)).decode().rstrip("=")

    def tags(self) -> None:
        """Skip the tagged fields, none of which is known."""
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())


def _leader_change(reader: _Reader) -> dict[str, Any]:
    version = reader.number(">h")
    # The message is read as version 0 and written as the version it names, so a directory id is never read and always zero.
    extra = {"voterDirectoryId": _ZERO_UUID} if version >= 1 else {}

    def voter(reader: _Reader) -> dict[str, Any]:
        fields = {"voterId": reader.number(">i"), **extra}
        reader.tags()
        return fields

    fields: dict[str, Any] = {"version": version, "leaderId": reader.number(">i")}
    fields["voters"] = reader.array(voter)
    fields["grantingVoters"] = reader.array(voter)
    reader.tags()
    return fields


def _endpoint(reader: _Reader) -> dict[str, Any]:
    endpoint = {"name": reader.string(), "host": reader.string(), "port": reader.number(">H")}
    reader.tags()
    return endpoint


def _voter(reader: _Reader) -> dict[str, Any]:
    voter: dict[str, Any] = {"voterId": reader.number(">i"), "voterDirectoryId": reader.uuid()}
    voter["endpoints"] = reader.array(_endpoint)
    voter["kRaftVersionFeature"] = {"minSupportedVersion": reader.number(">h"), "maxSupportedVersion": reader.number(">h")}
    reader.tags()
    reader.tags()
    return voter


def _voters(reader: _Reader) -> dict[str, Any]:
    fields = {"version": reader.number(">h"), "voters": reader.array(_voter)}
    reader.tags()
    return fields


def _numbers(**codes: str) -> Callable[[_Reader], dict[str, Any]]:
    def read(reader: _Reader) -> dict[str, Any]:
        fields = {name: reader.number(code) for name, code in codes.items()}
        reader.tags()
        return fields

    return read


_READERS: Final[dict[str, Callable[[_Reader], dict[str, Any]]]] = {
    "LEADER_CHANGE": _leader_change,
    "SNAPSHOT_HEADER": _numbers(version=">h", lastContainedLogTimestamp=">q"),
    "SNAPSHOT_FOOTER": _numbers(version=">h"),
    "KRAFT_VERSION": _numbers(version=">h", kRaftVersion=">h"),
    "KRAFT_VOTERS": _voters,
}
