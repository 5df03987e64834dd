"""Writes documents as JSON, YAML and csv, streamed, for `--format json|jsonl|yaml|csv` in `kops.cli.printing.output`.

Values are those of `json`, and bytes (base64), paths (text), sets (sorted lists), dataclasses (objects), iterators (arrays) and functions
without arguments (their result, computed when their turn comes).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# Plain YAML scalars that every parser of YAML 1.1 and 1.2 reads as the same string.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+()-]*(?: [A-Za-z0-9_./@+()-]+)*\Z")
_TO_QUOTE = re.compile('[,"\r\n]').search
_YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"))


def plain(value: Any) -> Any:
    """The `default` of `json.dumps`, for types that JSON does not have."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        import base64

        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Iterator):
        return list(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if callable(value):
        return value()
    raise TypeError(f"no JSON for {type(value).__name__}")


def _readable() -> Callable[[Any], str]:
    """A function that encodes a value as one line of JSON, without escapes. It makes the encoder in C once; `json` makes one for each
    value, which takes as long as to encode a record.
    """
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # The interpreter has no C encoder.
        return json.JSONEncoder(ensure_ascii=False, default=plain).encode
    pieces = make(None, plain, json.encoder.encode_basestring, None, ": ", ", ", False, False, True)
    return lambda value: "".join(pieces(value, 0))


_READABLE = _readable()
_ASCII = json.JSONEncoder(default=plain).encode


def compact(value: Any) -> str:
    """One line of JSON in readable UTF-8. A lone surrogate, from an undecodable file name, becomes an escape."""
    text = _READABLE(value)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = _ASCII(value)
    return text


def settled(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with iterators and functions at its top level replaced by their results, in order."""
    return {key: list(value) if isinstance(value, Iterator) else value() if callable(value) else value for key, value in document.items()}


def csv_cell(value: Any) -> Any:
    """A value as one csv cell: None for null, JSON for nested values, `true` and `false`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return plain(value)
    return compact(value) if isinstance(value, (bool, list, tuple, dict, set)) else value


def csv_line(cells: list[Any]) -> str:
    """A line as `csv.writer` writes it, except that an empty text is `""`, which differs from null (RFC 4180 has no null; PostgreSQL and
    Spark read it this way)."""
    return ",".join("" if cell is None else _quoted(str(cell)) for cell in cells) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _TO_QUOTE(text) else text


class JsonDocument:
    """Yields a JSON document in pieces: each key on a line, and each element of an iterator or of a list of objects on a line.

    `ending(more)` closes the document after any piece, if the values end early.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._open = ""
        self._comma = ""

    def __iter__(self) -> Iterator[str]:
        yield "{"
        for key, late in self._document.items():
            value = late() if callable(late) else late
            if isinstance(value, Iterator) or (isinstance(value, list) and value and isinstance(value[0], Mapping)):
                yield from self._array(key, value)
            else:
                yield f"{self._comma}\n  {compact(key)}: {compact(value)}"
            self._comma = ","
        yield "\n}\n"

    def _array(self, key: str, values: Iterable[Any]) -> Iterator[str]:
        # The state changes only after a piece has been taken: until then it is not printed, and `ending` must not close it.
        comma = ""
        yield f"{self._comma}\n  {compact(key)}: ["
        self._open = "]"
        for value in values:
            yield f"{comma}\n    {compact(value)}"
            comma = ","
            self._open = "\n  ]"
        yield self._open
        self._open = ""

    def ending(self, more: Mapping[str, Any]) -> str:
        """Return the text that closes the document, with these keys added."""
        comma = "," if self._open else self._comma
        rest = ",".join(f"\n  {compact(key)}: {compact(value)}" for key, value in more.items())
        return f"{self._open}{comma if rest else ''}{rest}\n}}\n"


class YamlDocument:
    """Yields a YAML document in block style, in pieces of whole lines."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def __iter__(self) -> Iterator[str]:
        for key, late in self._document.items():
            value = late() if callable(late) else late
            if not isinstance(value, Iterator):
                yield _lines(_yaml_pair(key, _json_like(value)))
                continue
            empty = True
            for element in value:
                head = f"{yaml_scalar(key)}:\n" if empty else ""
                empty = False
                yield head + _lines(_yaml_item(_json_like(element)))
            if empty:
                yield f"{yaml_scalar(key)}: []\n"

    def ending(self, more: Mapping[str, Any]) -> str:
        """Return the text that closes the document, with these keys added."""
        return "".join(_lines(_yaml_pair(key, value)) for key, value in more.items())


def _json_like(value: Any) -> Any:
    """The value with all types that JSON does not have replaced."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {key: _json_like(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_like(element) for element in value]
    return _json_like(plain(value))


def _lines(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _yaml_pair(key: Any, value: Any) -> Iterator[str]:
    name = yaml_scalar(key)
    if isinstance(value, dict) and value:
        yield f"{name}:"
        for inner, element in value.items():
            yield from (f"  {line}" for line in _yaml_pair(inner, element))
    elif isinstance(value, list) and value:
        yield f"{name}:"
        for element in value:
            yield from _yaml_item(element)
    else:
        yield f"{name}: {yaml_scalar(value)}"


def _yaml_item(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        inner = (line for key, element in value.items() for line in _yaml_pair(key, element))
    elif isinstance(value, list) and value:
        inner = (line for element in value for line in _yaml_item(element))
    else:
        yield f"- {yaml_scalar(value)}"
        return
    mark = "- "
    for line in inner:
        yield mark + line
        mark = "  "


def yaml_scalar(value: Any) -> str:
    """A scalar, an empty list or an empty mapping as YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, (list, dict)):
        return "[]" if isinstance(value, list) else "{}"
    if _PLAIN.match(value) and value.lower() not in _YAML_WORDS:
        return str(value)
    return '"' + "".join(_yaml_character(character) for character in value) + '"'


def _yaml_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _yaml_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
