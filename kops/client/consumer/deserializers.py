"""Deserializers of keys and values, by name, by Kafka's class name, or a program's own.

Source: Kafka's org.apache.kafka.common.serialization (StringDeserializer, ShortDeserializer … ListDeserializer). A deserializer is a
function of (topic, headers, bytes), or an object with such a method `deserialize`. A function of one argument is also accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kops.client.config.serdes import short_name, takes_one_argument
from kops.client.errors import SerializationError
from kops.errors import UsageError

if TYPE_CHECKING:
    import uuid

    from kops.records.record import Header

Deserializer = Callable[[str, Sequence["Header"], "bytes | None"], Any]


def _unpacked(form: str) -> Deserializer:
    packer = struct.Struct(form)

    def deserialize(topic: str, headers: Sequence[Header], data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != packer.size:
            raise SerializationError(f"{len(data)} bytes, where {packer.size} are needed")
        return packer.unpack(data)[0]

    return deserialize


def _bytes(topic: str, headers: Sequence[Header], data: bytes | None) -> bytes | None:
    return data


def _text(topic: str, headers: Sequence[Header], data: bytes | None) -> str | None:
    # Java replaces bytes that are not UTF-8.
    return None if data is None else data.decode(errors="replace")


def _uuid(topic: str, headers: Sequence[Header], data: bytes | None) -> uuid.UUID | None:
    if data is None:
        return None
    import uuid

    try:
        return uuid.UUID(data.decode())
    except ValueError as error:
        raise SerializationError(f"{data!r} is not a UUID") from error


def _nothing(topic: str, headers: Sequence[Header], data: bytes | None) -> None:
    if data is not None:
        raise SerializationError("the void deserializer takes only null")


def list_deserializer(inner: object) -> Deserializer:
    """Return the deserializer of lists whose elements `inner` reads (ListDeserializer: elements of primitive types have no size)."""
    element = find_deserializer(inner)
    size = _FIXED_SIZES.get(short_name(inner, "Deserializer"))

    def deserialize(topic: str, headers: Sequence[Header], data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return _read_list(data, size, lambda part: element(topic, headers, part))
        except (struct.error, IndexError) as error:
            raise SerializationError("the list ends too early") from error

    return deserialize


def _read_list(data: bytes, size: int | None, element: Callable[[bytes], Any]) -> list[Any]:
    position, nulls = 1, set()
    if data[0] == 0:
        (count,) = struct.unpack_from(">i", data, position)
        nulls = set(struct.unpack_from(f">{max(count, 0)}i", data, position + 4))
        position += 4 + 4 * max(count, 0)
    (length,) = struct.unpack_from(">i", data, position)
    position += 4
    found: list[Any] = []
    for index in range(length):
        step = size
        if size is None or data[0] != 0:
            (step,) = struct.unpack_from(">i", data, position)
            position += 4
        assert step is not None
        if index in nulls or step < 0:
            found.append(None)
            continue
        if position + step > len(data):
            raise IndexError(position)
        found.append(element(data[position : position + step]))
        position += step
    return found


_FIXED_SIZES: Final = {"short": 2, "int": 4, "long": 8, "float": 4, "double": 8, "uuid": 36}
BYTES: Final[Deserializer] = _bytes
"""The deserializer of bytes, which changes nothing."""
_BY_NAME: Final[dict[str, Deserializer]] = {
    "bytes": _bytes,
    "string": _text,
    "short": _unpacked(">h"),
    "int": _unpacked(">i"),
    "long": _unpacked(">q"),
    "float": _unpacked(">f"),
    "double": _unpacked(">d"),
    "uuid": _uuid,
    "void": _nothing,
}


def find_deserializer(given: object) -> Deserializer:
    """Return the deserializer for a setting. None is that of bytes. Raises UsageError."""
    if given is None:
        return _bytes
    if isinstance(given, str):
        found = _BY_NAME.get(short_name(given, "Deserializer"))
        if found is None:
            raise UsageError(f"{given!r} is no deserializer; allowed: {', '.join(_BY_NAME)}, Kafka's class for one of them, or a function")
        return found
    if isinstance(given, type) and hasattr(given, "deserialize"):
        given = given()
    method = getattr(given, "deserialize", given)
    if not callable(method):
        raise UsageError(f"{given!r} is no deserializer; allowed: {', '.join(_BY_NAME)}, or a function")
    if takes_one_argument(method):
        return lambda topic, headers, data: method(data)
    return method
