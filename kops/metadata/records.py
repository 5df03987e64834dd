"""Metadata records, the contents of `__cluster_metadata`, with the names, versions and fields of Kafka's descriptors.

Format: `AbstractApiMessageSerde` and the messages TopicRecord, PartitionRecord, … of `kops.protocol.messages`. Uuids are strings, as
everywhere in kops except on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kops.errors import DecodeError
from kops.protocol.declaration import Field, Message
from kops.protocol.json_text import uuid_text
from kops.protocol.record_values import UNKNOWN_TYPE, read_frame, read_framed, write_framed
from kops.protocol.registry import METADATA_RECORDS
from kops.protocol.structure import parse_versions

CODE = "bad-metadata-record"


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record: the name and version of its type, and the fields of that version. Tagged fields are included only if they are not the
    default."""

    name: str
    version: int
    fields: dict[str, Any]


def read_record(value: bytes) -> tuple[Message, int]:
    """Return (message, version) of a value in `__cluster_metadata`. Raises DecodeError (`bad-metadata-record`) where Kafka's serde
    throws."""
    try:
        return read_framed(value, METADATA_RECORDS)
    except DecodeError as error:
        reason = f"Unknown metadata id {read_frame(value)[0]}" if error.code == UNKNOWN_TYPE else error.reason
        raise DecodeError(reason, code=CODE, position=error.position) from None


def write_record(message: Message, version: int) -> bytes:
    """Return the value of a record for `__cluster_metadata`. Raises ApiError UNSUPPORTED_VERSION if the version can't represent the
    message."""
    return write_framed(message, version)


def read_metadata_record(value: bytes) -> MetadataRecord:
    """Return the record with named fields. Raises DecodeError as `read_record` does."""
    message, version = read_record(value)
    return MetadataRecord(type(message).__name__, version, _fields(message, version))


def _fields(message: Message, version: int) -> dict[str, Any]:
    values = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version in parse_versions(field.versions) and (field.tag is None or value != field.default_value()):
            values[field.name] = _with_texts(field, value)
    return values


def _with_texts(field: Field, value: Any) -> Any:
    if field.element != "uuid" or value is None:
        return value
    return [uuid_text(one) for one in value] if field.is_array else uuid_text(value)


def read_kraft_voters(raw: bytes) -> list[tuple[int, str]]:
    """Return the node id and directory id of each voter in a KRaftVotersRecord (read as version 0, as in Kafka). Raises DecodeError."""
    from kops.protocol.messages import VotersRecord

    return [(voter.voter_id, uuid_text(voter.voter_directory_id)) for voter in VotersRecord.decode(raw, 0).voters]
