"""Avro values as JSON-like data, with or without the prefix of a schema registry (a zero byte and the id of the schema).

Source: the Apache Avro 1.12 specification (schemas, names, binary encoding), Confluent's wire format. The schema is the writer's. Bytes and
fixed become text of ISO 8859-1, as in Avro's JSON encoding. Values of unions are not wrapped, logical types stay numbers or bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

from kops.errors import DecodeError, UsageError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MAX_DEPTH: Final = 100
_PREFIX: Final = 5
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")

Schema = str | list[Any] | dict[str, Any]
"""A primitive or the full name of a type, a union, or a type with its attributes."""


class AvroDecoder:
    """A decoder of values of one schema. Raises UsageError if the text is no schema."""

    def __init__(self, text: str) -> None:
        self._named: dict[str, dict[str, Any]] = {}
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise UsageError(f"not JSON: {error}") from None
        self._schema = self._resolve(schema, "")
        self._check_names(self._schema, set())

    def __call__(self, data: bytes) -> Any:
        """Return the value. All bytes have to be used. Raises DecodeError."""
        if len(data) >= _PREFIX and data[0] == 0:
            try:
                return self._whole(data, _PREFIX)
            except DecodeError:
                return self._whole(data, 0)
        return self._whole(data, 0)

    def _whole(self, data: bytes, start: int) -> Any:
        value, end = self._read(self._schema, data, start, 0)
        if end != len(data):
            raise DecodeError(f"{len(data) - end} bytes follow the Avro value")
        return value

    # schemas ----------------------------------------------------------------------------------------------------------------------

    def _resolve(self, schema: Any, namespace: str) -> Schema:
        """Return the schema with full names. A named type is kept, and its name is put in its place."""
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else _full_name(schema, namespace)
        if isinstance(schema, list):
            return [self._resolve(each, namespace) for each in schema]
        if not isinstance(schema, dict) or "type" not in schema:
            raise UsageError(f"not an Avro schema: {json.dumps(schema)[:80]}")
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, namespace)
        if kind == "array":
            return {"type": "array", "items": self._resolve(_attribute(schema, "items"), namespace)}
        if kind == "map":
            return {"type": "map", "values": self._resolve(_attribute(schema, "values"), namespace)}
        return self._resolve(kind, namespace)

    def _define(self, kind: str, schema: dict[str, Any], namespace: str) -> str:
        name = _full_name(str(_attribute(schema, "name")), str(schema.get("namespace", namespace)))
        inner = name.rpartition(".")[0]
        if name in self._named:
            raise UsageError(f"the Avro type {name} is defined twice")
        own: dict[str, Any] = {"type": kind}
        self._named[name] = own
        if kind == "enum":
            own["symbols"] = [str(each) for each in _attribute(schema, "symbols")]
        elif kind == "fixed":
            own["size"] = int(_attribute(schema, "size"))
        else:
            fields = _attribute(schema, "fields")
            own["fields"] = [(str(_attribute(each, "name")), self._resolve(_attribute(each, "type"), inner)) for each in fields]
        return name

    def _check_names(self, schema: Schema, seen: set[str]) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._check_names(each, seen)
        elif isinstance(schema, dict):
            self._check_names(schema["items"] if "items" in schema else schema["values"], seen)
        elif schema not in PRIMITIVES and schema not in seen:
            if schema not in self._named:
                raise UsageError(f"the Avro type {schema} is not defined")
            seen.add(schema)
            for _, each in self._named[schema].get("fields", ()):
                self._check_names(each, seen)

    # values -----------------------------------------------------------------------------------------------------------------------

    def _read(self, schema: Schema, data: bytes, place: int, depth: int) -> tuple[Any, int]:
        if depth > _MAX_DEPTH:
            raise DecodeError(f"the Avro value is nested more than {_MAX_DEPTH} times")
        if isinstance(schema, list):
            branch, place = _read_long(data, place)
            if not 0 <= branch < len(schema):
                raise DecodeError(f"the Avro union has {len(schema)} branches, not number {branch}")
            return self._read(schema[branch], data, place, depth + 1)
        if isinstance(schema, str):
            primitive = _READERS.get(schema)
            if primitive is not None:
                return primitive(data, place)
            schema = self._named[schema]
        kind = schema["type"]
        if kind == "enum":
            number, place = _read_long(data, place)
            if not 0 <= number < len(schema["symbols"]):
                raise DecodeError(f"the Avro enum has {len(schema['symbols'])} symbols, not number {number}")
            return schema["symbols"][number], place
        if kind == "fixed":
            return _take(data, place, schema["size"]).decode("latin-1"), place + schema["size"]
        if kind == "array":
            return self._read_array(schema["items"], data, place, depth)
        if kind == "map":
            return self._read_map(schema["values"], data, place, depth)
        record: dict[str, Any] = {}
        for name, field in schema["fields"]:
            record[name], place = self._read(field, data, place, depth + 1)
        return record, place

    def _read_array(self, items: Schema, data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, place = _read_block(data, place)
            if not count:
                return found, place
            for _ in range(count):
                value, place = self._read(items, data, place, depth + 1)
                found.append(value)

    def _read_map(self, values: Schema, data: bytes, place: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, place = _read_block(data, place)
            if not count:
                return found, place
            for _ in range(count):
                key, place = _read_string(data, place)
                found[key], place = self._read(values, data, place, depth + 1)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _attribute(schema: Any, name: str) -> Any:
    if not isinstance(schema, dict) or name not in schema:
        raise UsageError(f"the attribute {name} is missing in the Avro schema: {json.dumps(schema)[:80]}")
    return schema[name]


def _take(data: bytes, place: int, size: int) -> bytes:
    if size < 0 or place + size > len(data):
        raise DecodeError(f"an Avro value of {size} bytes, {len(data) - place} are left")
    return data[place : place + size]


def _read_long(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise DecodeError("the bytes end within an Avro number" if place >= len(data) else "an Avro number of more than 64 bits")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
        shift += 7


def _read_block(data: bytes, place: int) -> tuple[int, int]:
    """Return the number of elements in a block. A negative number is followed by the block's size."""
    count, place = _read_long(data, place)
    if count < 0:
        _, place = _read_long(data, place)
        count = -count
    if count > len(data):
        raise DecodeError(f"an Avro block of {count} elements in {len(data)} bytes")
    return count, place


def _read_null(data: bytes, place: int) -> tuple[None, int]:
    return None, place


def _read_boolean(data: bytes, place: int) -> tuple[bool, int]:
    byte = _take(data, place, 1)[0]
    if byte > 1:
        raise DecodeError(f"an Avro boolean of {byte}")
    return byte == 1, place + 1


def _read_float(data: bytes, place: int) -> tuple[float, int]:
    return _FLOAT.unpack(_take(data, place, 4))[0], place + 4


def _read_double(data: bytes, place: int) -> tuple[float, int]:
    return _DOUBLE.unpack(_take(data, place, 8))[0], place + 8


def _read_bytes(data: bytes, place: int) -> tuple[str, int]:
    size, place = _read_long(data, place)
    return _take(data, place, size).decode("latin-1"), place + size


def _read_string(data: bytes, place: int) -> tuple[str, int]:
    size, place = _read_long(data, place)
    try:
        return _take(data, place, size).decode(), place + size
    except UnicodeDecodeError:
        raise DecodeError("an Avro string is not UTF-8") from None


_READERS: Final[dict[str, Callable[[bytes, int], tuple[Any, int]]]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_long,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}
