"""File names in evidence: any bytes are kept without loss, and no name leads out of its directory.

On Linux, a name may have all bytes except `/` and NUL, but JSON has only text. So a name that is not UTF-8 is stored twice: as text with
escapes, for people, and in base64. `SHA256SUMS` follows `sha256sum` of GNU coreutils: a name with a line break or a backslash is escaped,
and its line begins with a backslash.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from kops.errors import DecodeError

_ESCAPES = ((b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"))


def put_name(document: dict[str, Any], key: str, name: bytes) -> None:
    """Put a name into a JSON object, and its bytes in base64 beside it if it is not UTF-8."""
    try:
        document[key] = name.decode()
    except UnicodeDecodeError:
        document[key] = shown(name)
        document[f"{key}_base64"] = base64.b64encode(name).decode()


def get_name(document: Mapping[str, Any], key: str) -> bytes:
    """Return the bytes of a name that `put_name` has stored. Raises DecodeError."""
    text, encoded = document.get(key), document.get(f"{key}_base64")
    if not isinstance(text, str) or not isinstance(encoded, str | None):
        raise DecodeError(f"{key} is not a name: {text!r}")
    try:
        return text.encode() if encoded is None else base64.b64decode(encoded, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise DecodeError(f"{key} is not a name: {text!r}") from error


def shown(name: bytes) -> str:
    """Return a name for people. Bytes that are not UTF-8 are escaped."""
    return name.decode("utf-8", "backslashreplace")


def parts_of(name: bytes) -> tuple[bytes, ...]:
    """Return the components of a relative path. Raises DecodeError if it may lead elsewhere: absolute, empty, with `.`, `..` or NUL."""
    parts = tuple(name.split(b"/"))
    if b"\0" in name or any(part in (b"", b".", b"..") for part in parts):
        raise DecodeError(f"{shown(name)!r} is not a path below the case", code="unsafe-name")
    return parts


def sum_line(digest: str, name: bytes) -> bytes:
    """Return a line of `SHA256SUMS`."""
    escaped = name
    for plain, escape in _ESCAPES:
        escaped = escaped.replace(plain, escape)
    return (b"\\" if escaped != name else b"") + digest.encode() + b"  " + escaped + b"\n"
