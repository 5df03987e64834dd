"""`partition.metadata`: the id of the topic that a partition's directory belongs to.

The file has two lines, `version: 0` and `topic_id: <base64 UUID>`, without a line end after the second. Sources: Kafka's PartitionMetadata,
PartitionMetadataFile, PartitionMetadataReadBuffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.config.values.java import SPACES, NumberFormatError, parse_int, read_lines, split
from kops.errors import DecodeError
from kops.storage.formats.kafka_uuid import ZERO_UUID, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

CURRENT_VERSION: Final = 0
MALFORMED: Final = "partition-metadata-malformed"
INVALID: Final = "partition-metadata-invalid"
_SEPARATOR: Final = ":" + SPACES


@dataclass(slots=True)
class PartitionMetadata:
    """The file's fields. The topic id is Kafka's text of it."""

    topic_id: str
    version: int = CURRENT_VERSION


def read_partition_metadata(data: bytes, *, file: str | None = None) -> PartitionMetadata:
    """Return the fields. Lines after the second are ignored, and any version from 0 up is accepted.

    Raises DecodeError: `partition-metadata-malformed` where Kafka throws IOException and the log directory goes offline,
    `partition-metadata-invalid` where Kafka throws an unchecked exception, for a missing line or an id that is not 16 bytes in base64.
    """
    lines = read_lines(data)
    version_text = _value(lines, 1, file)
    try:
        version = parse_int(version_text)
    except NumberFormatError as error:
        raise DecodeError(f"line 1: version '{version_text}' is not a number", code=MALFORMED, file=file) from error
    if version < CURRENT_VERSION:
        raise DecodeError(f"line 1: version {version} is unknown", code=MALFORMED, file=file)
    id_text = _value(lines, 2, file)
    try:
        topic_id = parse_uuid(id_text)
    except ValueError as error:
        raise DecodeError(f"line 2: topic id {error}", code=INVALID, file=file) from error
    if topic_id == ZERO_UUID:
        raise DecodeError("line 2: the topic id is zero", code=MALFORMED, file=file)
    return PartitionMetadata(topic_id, version)


def write_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Return the file's bytes."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def _value(lines: Iterator[str], number: int, file: str | None) -> str:
    try:
        line = next(lines, None)
    except UnicodeDecodeError as error:
        raise DecodeError(f"line {number}: not UTF-8 text", code=MALFORMED, file=file) from error
    if line is None:
        raise DecodeError(f"line {number} is missing", code=INVALID, file=file)
    parts = split(_SEPARATOR, line)
    if len(parts) != 2:
        raise DecodeError(f"line {number} is malformed: {line[:200]}", code=MALFORMED, file=file)
    return parts[1]
