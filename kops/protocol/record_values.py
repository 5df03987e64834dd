"""Reads and writes the messages in records of Kafka's internal topics, whose keys and values begin with their type and version.

Source: CoordinatorRecordSerde (two bytes of type before a key, of version before a value) and AbstractApiMessageSerde (unsigned varints:
frame version 1, type, version; then the message and nothing after it).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from kops.errors import ApiError, DecodeError
from kops.protocol.declaration import Message
from kops.protocol.primitives import BAD_MESSAGE, read_varint, varint, write_message
from kops.protocol.registry import message_class

UNKNOWN_TYPE: Final = "unknown-record-type"
FRAME_VERSION: Final = 1
_SHORT: Final = Struct(">h")
_MAX_SHORT: Final = 2**15 - 1


def read_versioned(message: type[Message], value: bytes) -> tuple[Message, int]:
    """Return (message, version) of bytes that begin with their version. Raises DecodeError, also for an unknown version."""
    version = _short(value)
    return _read(message, value, version, _SHORT.size)[0], version


def write_versioned(message: Message, version: int) -> bytes:
    """Return the version in two bytes, followed by the message."""
    return b"".join(write_message(message, version, bytearray(_SHORT.pack(version))))


def coordinator_type(key: bytes) -> int:
    """Return the type of a coordinator's record, from its key. Raises DecodeError."""
    return _short(key)


def read_coordinator_key(key: bytes, types: Mapping[int, str]) -> Message:
    """Return the key of a coordinator's record. `types` is one of the tables in kops.protocol.registry. Raises DecodeError
    (`unknown-record-type`, `bad-message`)."""
    name = _type_name(coordinator_type(key), types)
    return _read(message_class(f"{name}Key"), key, 0, _SHORT.size)[0]


def read_coordinator_value(key: bytes, value: bytes, types: Mapping[int, str]) -> tuple[Message, int]:
    """Return (message, version) of the value that belongs to a key. Raises DecodeError."""
    return read_versioned(message_class(f"{_type_name(coordinator_type(key), types)}Value"), value)


def write_coordinator_key(key: Message) -> bytes:
    """Return the type in two bytes, followed by the key."""
    assert key.API_KEY is not None
    return b"".join(write_message(key, 0, bytearray(_SHORT.pack(key.API_KEY))))


def read_frame(value: bytes) -> tuple[int, int, int]:
    """Return (type, version, position of the message) of a record of __cluster_metadata or __remote_log_metadata. Raises DecodeError."""
    try:
        frame, position = read_varint(value, 0)
        if frame != FRAME_VERSION:
            raise DecodeError(f"unknown frame version {frame}; known: {FRAME_VERSION}", code=BAD_MESSAGE, position=0)
        number, position = read_varint(value, position)
        version, position = read_varint(value, position)
    except IndexError:
        raise DecodeError(f"the record ends within its head, after {len(value)} byte(s)", code=BAD_MESSAGE, position=len(value)) from None
    return number, version, position


def read_framed(value: bytes, types: Mapping[int, str]) -> tuple[Message, int]:
    """Return (message, version) of such a record. Raises DecodeError if Kafka's serde throws.

    As in Kafka, a version above the newest is read like the newest and has to end where that ends, unless structures are in it.
    """
    number, version, position = read_frame(value)
    name = _type_name(number, types)
    if version > _MAX_SHORT:
        raise DecodeError(f"version {version} is too large", code=BAD_MESSAGE, position=0)
    found = message_class(name)
    newest = found.VERSIONS[-1]
    message, end = _read(found, value, min(version, newest), position)
    if version > newest and any(field.of is not None and getattr(message, field.name) for field in found.FIELDS):
        raise DecodeError(f"{name} has no version {version}", code=BAD_MESSAGE, position=0)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} byte(s) of garbage after {name}", code=BAD_MESSAGE, position=end)
    return message, version


def write_framed(message: Message, version: int) -> bytes:
    """Return a record's value, which begins with frame version, type and version."""
    assert message.API_KEY is not None
    return varint(FRAME_VERSION) + varint(message.API_KEY) + varint(version) + message.encode(version)


def _short(data: bytes) -> int:
    if len(data) < _SHORT.size:
        raise DecodeError(f"{len(data)} byte(s), but the type or version takes two", code=BAD_MESSAGE, position=0)
    return int(_SHORT.unpack_from(data)[0])


def _type_name(number: int, types: Mapping[int, str]) -> str:
    name = types.get(number)
    if name is None:
        raise DecodeError(f"unknown record type {number}", code=UNKNOWN_TYPE, position=0)
    return name


def _read(message: type[Message], data: bytes, version: int, position: int) -> tuple[Message, int]:
    try:
        return message.read(data, version, position)
    except ApiError as error:
        raise DecodeError(error.message, code=BAD_MESSAGE, position=0) from None
