"""Protobuf messages as JSON-like data, with or without the prefix of a schema registry (a zero byte, the id of the schema, indexes).

Sources: the Protocol Buffers encoding, `descriptor.proto` (a file that `protoc --include_imports --descriptor_set_out` writes), Confluent's
wire format. Fields have the names of the .proto file. Fields that are not in the message are left out. Enums become names, bytes base64,
as in Protobuf's JSON. 64-bit numbers stay numbers. Unknown fields are skipped.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError, UsageError

_MAX_DEPTH: Final = 100
_PREFIX: Final = 5
_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_REPEATED: Final = 3
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED_64, _FIXED_32, _BOOL, _STRING, _GROUP, _MESSAGE, _RAW = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_WIRE_TYPES: Final = {
    **dict.fromkeys((_DOUBLE, _FIXED_64, _SFIXED64), _FIXED64),
    **dict.fromkeys((_FLOAT, _FIXED_32, _SFIXED32), _FIXED32),
    **dict.fromkeys((_INT64, _UINT64, _INT32, _BOOL, _UINT32, _ENUM, _SINT32, _SINT64), _VARINT),
    **dict.fromkeys((_STRING, _MESSAGE, _RAW), _BYTES),
    _GROUP: _START_GROUP,
}
_FIXED: Final = {
    _DOUBLE: struct.Struct("<d"),
    _FLOAT: struct.Struct("<f"),
    _FIXED_64: struct.Struct("<Q"),
    _FIXED_32: struct.Struct("<I"),
    _SFIXED32: struct.Struct("<i"),
    _SFIXED64: struct.Struct("<q"),
}

Piece = tuple[int, int, Any]
"""Number and wire type of a field, and its bytes or its number."""


@dataclass(slots=True)
class Field:
    """A field of a message, as the descriptor has it."""

    name: str
    type: int
    is_repeated: bool
    type_name: str


@dataclass(slots=True)
class Message:
    """The fields of a message by their numbers."""

    fields: dict[int, Field] = field(default_factory=dict)
    is_map_entry: bool = False


class ProtobufDecoder:
    """A decoder of one message type. Raises UsageError if the bytes are no descriptor set, or have no such message."""

    def __init__(self, descriptors: bytes, message: str) -> None:
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, dict[int, str]] = {}
        try:
            for file in _all(descriptors, 1):
                package = _text(file, 2)
                self._define(f".{package}" if package else "", _all(file, 4), _all(file, 5))
        except (DecodeError, TypeError):
            raise UsageError("not a descriptor set, which protoc --include_imports --descriptor_set_out=FILE writes") from None
        self._name = self._find(message)
        self._check(self._name, set())

    def _define(self, scope: str, messages: list[bytes], enums: list[bytes]) -> None:
        for enum in enums:
            self._enums[f"{scope}.{_text(enum, 1)}"] = {_signed(_number(each, 2), 32): _text(each, 1) for each in reversed(_all(enum, 2))}
        for one in messages:
            name = f"{scope}.{_text(one, 1)}"
            found = self._messages[name] = Message(is_map_entry=any(_number(options, 7) for options in _all(one, 7)))
            for each in _all(one, 2):
                found.fields[_number(each, 3)] = Field(_text(each, 1), _number(each, 5), _number(each, 4) == _REPEATED, _text(each, 6))
            self._define(name, _all(one, 3), _all(one, 4))

    def _find(self, message: str) -> str:
        wanted = "." + message.lstrip(".")
        known = [name for name, one in self._messages.items() if not one.is_map_entry]
        matches = [name for name in known if name == wanted] or [name for name in known if name.endswith(wanted)]
        if len(matches) != 1:
            reason = "more than one message has this name" if matches else "the descriptor set has no such message"
            raise UsageError(f"{reason}; it has {', '.join(name[1:] for name in matches or known) or 'none'}")
        return matches[0]

    def _check(self, name: str, seen: set[str]) -> None:
        seen.add(name)
        for one in self._messages[name].fields.values():
            if one.type not in _WIRE_TYPES:
                raise UsageError(f"the field {one.name} of {name[1:]} has the unknown type {one.type}")
            if one.type in (_MESSAGE, _GROUP) and one.type_name not in seen:
                if one.type_name not in self._messages:
                    raise UsageError(f"{one.type_name[1:]} is not in the descriptor set; protoc needs --include_imports")
                self._check(one.type_name, seen)

    def __call__(self, data: bytes) -> Any:
        """Return the message. Raises DecodeError."""
        # No message begins with a zero byte, because a field's number is at least 1.
        place = _after_indexes(data, _PREFIX) if len(data) > _PREFIX and data[0] == 0 else 0
        return self._message(self._name, data[place:], 0)

    def _message(self, name: str, data: bytes, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._fill(found, name, _pieces(data), depth)
        return found

    def _fill(self, found: dict[str, Any], name: str, pieces: Iterator[Piece], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise DecodeError(f"the Protobuf message is nested more than {_MAX_DEPTH} times")
        fields = self._messages[name].fields
        for number, wire, content in pieces:
            one = fields.get(number)
            if one is None:
                continue
            if wire == _BYTES and one.is_repeated and _WIRE_TYPES[one.type] in (_VARINT, _FIXED64, _FIXED32):
                found.setdefault(one.name, []).extend(self._packed(one, content))
            elif wire == _WIRE_TYPES[one.type]:
                self._put(found, one, content, depth)

    def _put(self, found: dict[str, Any], one: Field, content: Any, depth: int) -> None:
        if one.type not in (_MESSAGE, _GROUP):
            value = self._scalar(one, content)
        elif self._messages[one.type_name].is_map_entry:
            entry = self._message(one.type_name, content, depth + 1)
            key, value = (entry.get(name, self._default(one.type_name, name)) for name in ("key", "value"))
            found.setdefault(one.name, {})[_map_key(key)] = value
            return
        else:
            # A message field that occurs again is merged, unless it is repeated.
            before = found.get(one.name)
            value = before if isinstance(before, dict) else {}
            self._fill(value, one.type_name, iter(content) if one.type == _GROUP else _pieces(content), depth + 1)
        if one.is_repeated:
            found.setdefault(one.name, []).append(value)
        else:
            found[one.name] = value

    def _default(self, entry: str, name: str) -> Any:
        """Return the default of the key or value that a map's entry lacks."""
        kind, type_name = next((one.type, one.type_name) for one in self._messages[entry].fields.values() if one.name == name)
        if kind in (_STRING, _RAW):
            return ""
        return {} if kind == _MESSAGE else False if kind == _BOOL else self._enums.get(type_name, {}).get(0, 0) if kind == _ENUM else 0

    def _packed(self, one: Field, data: bytes) -> Iterator[Any]:
        place = 0
        wire = _WIRE_TYPES[one.type]
        while place < len(data):
            if wire == _VARINT:
                content, place = _varint(data, place)
                yield self._scalar(one, content)
            else:
                size = 8 if wire == _FIXED64 else 4
                yield self._scalar(one, _take(data, place, size))
                place += size

    def _scalar(self, one: Field, content: Any) -> Any:
        kind = one.type
        if kind in _FIXED:
            return _FIXED[kind].unpack(content)[0]
        if kind == _STRING:
            return content.decode("utf-8", "replace")
        if kind == _RAW:
            return base64.b64encode(content).decode()
        if kind == _BOOL:
            return content != 0
        if kind == _ENUM:
            number = _signed(content, 32)
            return self._enums.get(one.type_name, {}).get(number, number)
        if kind in (_SINT32, _SINT64):
            content &= 0xFFFFFFFF if kind == _SINT32 else 0xFFFFFFFFFFFFFFFF
            return (content >> 1) ^ -(content & 1)
        return {_INT32: _signed(content, 32), _INT64: _signed(content, 64), _UINT32: content & 0xFFFFFFFF}.get(kind, content)


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _after_indexes(data: bytes, place: int) -> int:
    """Return the place after the indexes that say which message of its file it is.

    Their number comes first, then each of them. A single 0 is the first message.
    """
    count, place = _varint(data, place)
    for _ in range((count >> 1) ^ -(count & 1)):
        _, place = _varint(data, place)
    return place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, place
        shift += 7
    raise DecodeError("the bytes end within a Protobuf number" if place >= len(data) else "a Protobuf number of more than 64 bits")


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _take(data: bytes, place: int, size: int) -> bytes:
    if place + size > len(data):
        raise DecodeError(f"a Protobuf field of {size} bytes, {len(data) - place} are left")
    return data[place : place + size]


def _pieces(data: bytes) -> Iterator[Piece]:
    """Yield the fields of a message. The content of a group is the list of its fields."""
    open_groups: list[tuple[int, list[Piece]]] = []
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        content: Any
        if not 0 < number < 1 << 29:
            raise DecodeError(f"a Protobuf field with the number {number}")
        if wire == _VARINT:
            content, place = _varint(data, place)
        elif wire == _BYTES:
            size, place = _varint(data, place)
            content = _take(data, place, size)
            place += size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            content = _take(data, place, size)
            place += size
        elif wire == _START_GROUP and len(open_groups) < _MAX_DEPTH:
            open_groups.append((number, []))
            continue
        elif wire == _END_GROUP and open_groups and open_groups[-1][0] == number:
            content = open_groups.pop()[1]
            wire = _START_GROUP
        else:
            raise DecodeError(f"a Protobuf field with the wire type {wire}")
        piece = (number, wire, content)
        if open_groups:
            open_groups[-1][1].append(piece)
        else:
            yield piece
    if open_groups:
        raise DecodeError("the bytes end within a Protobuf group")


def _all(data: bytes, number: int) -> list[bytes]:
    """Return the contents of all fields of this number, which hold bytes."""
    return [content for found, wire, content in _pieces(data) if found == number and wire == _BYTES]


def _text(data: bytes, number: int) -> str:
    found = _all(data, number)
    return found[-1].decode("utf-8", "replace") if found else ""


def _number(data: bytes, number: int) -> int:
    found = [content for field_number, wire, content in _pieces(data) if field_number == number and wire == _VARINT]
    return int(found[-1]) if found else 0
