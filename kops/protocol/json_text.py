"""Converts messages to JSON, with the names, order and text that Kafka's tools print.

Source: JsonConverterGenerator (the `JsonConverter` classes of the messages), Jackson's JsonNode.toString, Double.toString.
"""

from __future__ import annotations

import binascii
import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

from kops.config.values.java import double_text
from kops.protocol.declaration import Field, Struct
from kops.protocol.primitives import not_carried, size_of
from kops.protocol.structure import parse_versions

Json = dict[str, Any] | list[Any] | str | int | float | bool | None
_ESCAPE: Final = re.compile(r"\\\\|\\u[0-9a-f]{4}")


def to_json(message: Struct, version: int) -> dict[str, Json]:
    """Return the fields of a version. Tagged fields are included only if they are not the default. Bytes become base64, records their size.

    Raises ApiError (UNSUPPORTED_VERSION) for a value that the version can't represent. As in Kafka, unknown tagged fields are left out.
    """
    node: dict[str, Json] = {}
    for field, there in _plan(message.FIELDS, version):
        value = getattr(message, field.name)
        if there:
            if field.tag is None or value != field.default_value():
                key = f"{field.json_name}SizeInBytes" if field.type == "records" and value is not None else field.json_name
                node[key] = None if value is None else _value(field, value, version)
        elif not field.ignorable and value != field.default_value():
            raise not_carried(field.json_name, version)
    return node


@functools.cache
def _plan(fields: tuple[Field, ...], version: int) -> list[tuple[Field, bool]]:
    return [(field, version in parse_versions(field.versions)) for field in fields]


def _value(field: Field, value: Any, version: int) -> Json:
    if field.is_array:
        return [_element(field, item, version) for item in value]
    return _element(field, value, version)


def _element(field: Field, value: Any, version: int) -> Json:
    if field.of is not None:
        return to_json(value, version)
    converter = _CONVERTERS.get(field.element)
    return value if converter is None else converter(value)


def uuid_text(data: bytes) -> str:
    """Return Kafka's text of a Uuid: URL-safe base64 without padding."""
    return binascii.b2a_base64(data, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def base64_text(data: bytes) -> str:
    """Return bytes as text."""
    return binascii.b2a_base64(data, newline=False).decode()


_CONVERTERS: Final[dict[str, Callable[[Any], Json]]] = {"uuid": uuid_text, "bytes": base64_text, "records": size_of}


def json_text(node: Json) -> str:
    """Return one line without blanks, as Jackson prints a node."""
    match node:
        case dict():
            return "{" + ",".join(f"{_text(name)}:{json_text(value)}" for name, value in node.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, node)) + "]"
        case str():
            return _text(node)
        case float():
            text = double_text(node)
            return text if math.isfinite(node) else f'"{text}"'
        case _:
            return json.dumps(node)


def _text(value: str) -> str:
    return _ESCAPE.sub(_jackson_escape, json.dumps(value, ensure_ascii=False))


def _jackson_escape(found: re.Match[str]) -> str:
    """Jackson writes upper-case hexadecimal digits."""
    return found[0] if found[0] == "\\\\" else "\\u" + found[0][2:].upper()
