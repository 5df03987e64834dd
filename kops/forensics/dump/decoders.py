"""Decoders of keys and values for `dump`: Kafka's built-in ones (`org.apache.kafka.tools.api.*`) and any Python callable.

`StringDecoder` is the default and the fast one: valid UTF-8 goes to the output without being decoded.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from typing import Final

from kops.errors import DecodeError, UsageError
from kops.forensics.dump._hot_dump import java_text

Decoder = Callable[[bytes], object]
PACKAGE: Final = "org.apache.kafka.tools.api."


def _string(data: bytes) -> str:
    return java_text(data).decode("utf-8")


def _integer(data: bytes) -> int:
    return int(struct.unpack_from(">i", data)[0])


def _long(data: bytes) -> int:
    return int(struct.unpack_from(">q", data)[0])


def _default(data: bytes) -> str:
    """Kafka prints the address of the array. This prints the bytes in hex."""
    return data.hex()


BUILT_IN: Final[dict[str, Decoder]] = {
    "DefaultDecoder": _default,
    "StringDecoder": _string,
    "IntegerDecoder": _integer,
    "LongDecoder": _long,
}


def find_decoder(name: str | None, option: str) -> Decoder | None:
    """Return the decoder of this name; None for the default, strings.

    `name` is one of Kafka's classes, with or without their package, or `module:callable`, a function of bytes. UsageError, naming `option`,
    for anything else.
    """
    if name is None:
        return None
    short = name.removeprefix(PACKAGE)
    if short in BUILT_IN:
        return None if short == "StringDecoder" else BUILT_IN[short]
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        known = ", ".join(PACKAGE + known for known in BUILT_IN)
        raise UsageError(f"{option} {name}: no such decoder; allowed are {known}, or module:callable of Python")
    try:
        found: object = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, SyntaxError, ValueError) as error:
        raise UsageError(f"{option} {name}: the module {module_name} can't be imported: {error}") from error
    except AttributeError as error:
        raise UsageError(f"{option} {name}: {error}") from error
    if not callable(found):
        raise UsageError(f"{option} {name}: not a callable, but {type(found).__name__}")
    return found


def decode(decoder: Decoder | None, data: bytes) -> bytes:
    """The printed text of a key or value. DecodeError if the decoder rejects the bytes."""
    if decoder is None:
        return java_text(data)
    try:
        return str(decoder(data)).encode("utf-8", "replace")
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error, DecodeError) as error:
        raise DecodeError(f"the decoder rejects {len(data)} bytes: {type(error).__name__}: {error}", code="undecodable") from error
