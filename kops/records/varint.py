"""Variable-length integers of message format v2: Protocol Buffers' zig-zag varints.

Source: Kafka's `ByteUtils`. A varint ends within 5 bytes and a varlong within 10. Bits beyond 32 or 64 are dropped.
"""

from __future__ import annotations

from kops.errors import DecodeError

Buffer = bytes | bytearray | memoryview


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value as a signed 32-bit int, as in Java; position after it). Raises DecodeError for a varint that is cut off or does not
    end."""
    return _signed(*_read(buffer, position, 5), 32)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (signed 32-bit value, position after it)."""
    raw, position = _read(buffer, position, 5)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (signed 64-bit value, position after it)."""
    raw, position = _read(buffer, position, 10)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def write_unsigned_varint(value: int) -> bytes:
    """Return the bytes of an unsigned varint of any width (`value` >= 0)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_varint(value: int) -> bytes:
    """Return the zig-zag bytes of a signed value, which are the same for a varint and a varlong."""
    return write_unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def size_of_varint(value: int) -> int:
    """Return the size of `write_varint(value)`."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    return max(1, (raw.bit_length() + 6) // 7)


def _read(buffer: Buffer, position: int, most: int) -> tuple[int, int]:
    start = position
    end = min(len(buffer), position + most)
    value = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    if position - start == most:
        raise DecodeError(f"a variable-length integer does not end within {most} bytes", code="bad-varint", position=start)
    raise DecodeError("the bytes end within a variable-length integer", code="bad-varint", position=start)


def _signed(value: int, position: int, bits: int) -> tuple[int, int]:
    value &= (1 << bits) - 1
    return (value - (1 << bits) if value >> (bits - 1) else value), position
