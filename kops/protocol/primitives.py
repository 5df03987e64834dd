"""Helpers of the compiled readers and writers: variable-length numbers, text, tagged fields, errors.

Source: Kafka's ByteUtils, Readable, RawTaggedFieldWriter and the code that its message generator writes.
"""

from __future__ import annotations

from typing import Any, Final

from kops.errors import ApiError, DecodeError

Buffer = bytes | bytearray | memoryview
BAD_MESSAGE: Final = "bad-message"
MAX_STRING_BYTES: Final = 0x7FFF
ONE_BYTE: Final = tuple(bytes([number]) for number in range(128))


def size_of(buffer: Any) -> int:
    """Return the size in bytes of a buffer, or of a slice of a file (`kops.protocol.structure.FileSlice`)."""
    if isinstance(buffer, bytes | bytearray | memoryview):
        return len(buffer)
    size: int = buffer.size
    return size


def write_message(message: Any, version: int, prefix: bytearray | None) -> list[Any]:
    """Do the work of `Message.write`. Compiled code calls this instead."""
    writer = message.WRITERS.get(version)
    if writer is None:
        writer = message.new_writer(version)
    buffers: list[Any] = []
    last = writer(message, buffers, bytearray() if prefix is None else prefix)
    if last or not buffers:
        buffers.append(last)
    return buffers


def read_message(message: Any, buffer: Buffer, version: int, position: int) -> tuple[Any, int]:
    """Do the work of `Message.read` for the class `message`. Compiled code calls this instead."""
    reader = message.READERS.get(version)
    if reader is None:
        reader = message.new_reader(version)
    found: tuple[Any, int] = reader(buffer, position)
    return found


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (unsigned varint as a signed 32-bit int, as in Java; position after it). Raises IndexError at the end of the bytes."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise DecodeError("a variable-length integer does not end within 5 bytes", code=BAD_MESSAGE, position=position - 5)
    value &= 0xFFFFFFFF
    return (value - 0x1_0000_0000 if value >> 31 else value), position


def varint(value: int) -> bytes:
    """Return the bytes of an unsigned varint; `value` >= 0."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def ends_early(message: str, position: int, size: int) -> DecodeError:
    """Return the error for bytes that end inside a field."""
    return DecodeError(f"{message}: the bytes end at {size}, within a field", code=BAD_MESSAGE, position=position)


def is_null(field: str, position: int) -> DecodeError:
    """Return the error for a null that the version does not allow."""
    return DecodeError(f"{field} is null, which is not allowed", code=BAD_MESSAGE, position=position)


def bad_size(field: str, length: int, left: int, position: int) -> DecodeError:
    """Return the error for a length that exceeds the remaining bytes, or the limit of a text."""
    return DecodeError(f"{field} has a length of {length}, {left} byte(s) are left", code=BAD_MESSAGE, position=position)


def too_long(field: str, size: int) -> ApiError:
    """Return the error for a text that is too long for any version. Kafka throws a RuntimeException here."""
    return ApiError("UNKNOWN_SERVER_ERROR", f"'{field}' field is too long to be serialized: {size} bytes, {MAX_STRING_BYTES} are the most")


def not_carried(field: str, version: int) -> ApiError:
    """Return the error for a value that is set, and must not be ignored, in a version that lacks the field."""
    return ApiError("UNSUPPORTED_VERSION", f"Attempted to write a non-default {field} at version {version}")


def no_tags(version: int) -> ApiError:
    """Return the error for unknown tagged fields in a version without tagged fields."""
    return ApiError("UNSUPPORTED_VERSION", f"Tagged fields were set, but version {version} of this message does not support them.")


def tagged_section(known: list[tuple[int, bytes | bytearray]], unknown: tuple[tuple[int, bytes], ...]) -> bytes:
    """Return the tagged fields at the end of a structure: `known` in ascending order, with `unknown` inserted by their tags."""
    if len(known) == 1 and not unknown:
        ((tag, data),) = known
        size = len(data)
        return (bytes((1, tag, size)) if tag < 128 and size < 128 else b"\1" + varint(tag) + varint(size)) + data
    if not unknown:
        return varint(len(known)) + b"".join([varint(tag) + varint(len(data)) + data for tag, data in known])
    last = -1
    numbers = {tag for tag, _ in known}
    for tag, _ in unknown:
        if tag in numbers:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Attempted to use tag {tag} as an undefined tag.")
        if tag <= last:
            message = f"Invalid raw tag field list: tag {tag} comes after tag {last}, but is not higher than it."
            raise ApiError("UNKNOWN_SERVER_ERROR", message)
        last = tag
    fields = sorted([*known, *unknown], key=lambda field: field[0])
    return varint(len(fields)) + b"".join([varint(tag) + varint(len(data)) + data for tag, data in fields])
