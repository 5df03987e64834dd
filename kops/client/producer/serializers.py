"""Serializers of keys and values, by name, by Kafka's class name, or a program's own.

Source: Kafka's org.apache.kafka.common.serialization (StringSerializer, ShortSerializer … ListSerializer) and KafkaProducer.doSend. A
serializer is a function of (topic, headers, value), or an object with such a method `serialize`. A function of one argument is also
accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kops.client.config.serdes import short_name, takes_one_argument
from kops.client.errors import SerializationError
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.records.record import Header

Serializer = Callable[[str, Sequence["Header"], Any], bytes | None]


def _packed(form: str, kinds: tuple[type, ...], words: str) -> Serializer:
    packer = struct.Struct(form)

    def serialize(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise SerializationError(f"{value!r} is not {words}")
        try:
            return packer.pack(value)
        except (struct.error, OverflowError) as error:
            raise SerializationError(f"{value!r} is not {words}") from error

    return serialize


def _of_bytes(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SerializationError(f"{type(value).__name__} is not bytes; another serializer is needed")


def _of_text(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise SerializationError(f"{type(value).__name__} is not text")
    # Java writes a lone surrogate as a question mark.
    return value.encode(errors="replace")


def _of_uuid(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
    if value is None:
        return None
    import uuid

    if not isinstance(value, uuid.UUID):
        raise SerializationError(f"{type(value).__name__} is not a UUID")
    return str(value).encode()


def _of_nothing(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
    if value is not None:
        raise SerializationError("the void serializer takes only None")
    return None


def list_serializer(inner: object) -> Serializer:
    """Return the serializer of lists whose elements `inner` serializes (ListSerializer: elements of primitive types have no size)."""
    element = find_serializer(inner)
    is_fixed = short_name(inner, "Serializer") in _FIXED_SIZES

    def serialize(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise SerializationError(f"{type(value).__name__} is not a list")
        nulls = [index for index, one in enumerate(value) if one is None]
        parts = [b"\x00" if is_fixed else b"\x01"]
        if is_fixed:
            parts.append(struct.pack(f">i{len(nulls)}i", len(nulls), *nulls))
        parts.append(struct.pack(">i", len(value)))
        for one in value:
            data = None if one is None else element(topic, headers, one)
            if is_fixed:
                parts.append(data or b"")
            else:
                parts.append(struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data)
        return b"".join(parts)

    return serialize


_FIXED_SIZES: Final = ("short", "int", "long", "float", "double", "uuid")
BYTES: Final[Serializer] = _of_bytes
"""The serializer of bytes, which changes nothing."""
_BY_NAME: Final[dict[str, Serializer]] = {
    "bytes": _of_bytes,
    "string": _of_text,
    "short": _packed(">h", (int,), "a 16-bit integer"),
    "int": _packed(">i", (int,), "a 32-bit integer"),
    "long": _packed(">q", (int,), "a 64-bit integer"),
    "float": _packed(">f", (int, float), "a number that fits in 32 bits"),
    "double": _packed(">d", (int, float), "a number"),
    "uuid": _of_uuid,
    "void": _of_nothing,
}


def find_serializer(given: object) -> Serializer:
    """Return the serializer for a setting. None is that of bytes. Raises UsageError."""
    if given is None:
        return _of_bytes
    if isinstance(given, str):
        found = _BY_NAME.get(short_name(given, "Serializer"))
        if found is None:
            raise UsageError(f"{given!r} is no serializer; allowed: {', '.join(_BY_NAME)}, Kafka's class for one of them, or a function")
        return found
    if isinstance(given, type):
        given = given()
    method = getattr(given, "serialize", given)
    if not callable(method):
        raise UsageError(f"{given!r} is no serializer; allowed: {', '.join(_BY_NAME)}, or a function")
    return _checked(method, has_one=takes_one_argument(method))


def _checked(method: Callable[..., object], *, has_one: bool) -> Serializer:
    """Return a program's serializer, which must return bytes. Any other result would fail only when its batch is sent."""

    def serialize(topic: str, headers: Sequence[Header], value: Any) -> bytes | None:
        data = method(value) if has_one else method(topic, headers, value)
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationError(f"it returned {type(data).__name__}; allowed: bytes or None")

    return serialize
