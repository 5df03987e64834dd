"""Fields and structures: the parts of messages, from which their readers and writers are compiled.

Source: Kafka's message descriptors (their README.md describes the keys) and KIP-482 (flexible versions, tagged fields). A structure is a
plain class with slots and an explicit `__init__`, which is cheap to import. A dataclass executes generated source for each class, although
a program never uses most of the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from kops.protocol.primitives import Buffer

Reader = Callable[[Buffer, int], tuple[Any, int]]
Writer = Callable[[Any, list[Any], bytearray], bytearray]

MAX_VERSION: Final = 0x7FFF
NO_VERSIONS: Final = range(0)
ZERO_UUID: Final = bytes(16)


class FileSlice(Protocol):
    """Records in a file. The encoder puts this object between its buffers, so that a sender can transmit the records without reading
    them."""

    @property
    def size(self) -> int:
        """The size in bytes."""


SMALL_RECORDS_SIZE: Final = 4096
"""Records in memory up to this size are copied into the buffer of their message."""
Records = bytes | bytearray | memoryview | FileSlice
Encoded = bytes | bytearray | memoryview | FileSlice


class _Unset:
    """Marks a missing value where None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


# Its type is Any, so that it can be the default of parameters of every type.
UNSET: Any = _Unset()


def parse_versions(text: str) -> range:
    """Parse versions as in a descriptor: `"0-3"`, `"2"`, `"4+"` or `"none"`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), MAX_VERSION + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Field:
    """A field's declaration.

    `versions`, `nullable` and `flexible` are texts as in descriptors. `of` is the class of a structure or of an array's structures.
    `default` is UNSET for the default of the type.
    """

    __slots__ = ("default", "entity", "flexible", "ignorable", "map_key", "name", "nullable", "of", "tag", "type", "versions")

    def __init__(
        self,
        name: str,
        type: str,
        versions: str,
        *,
        of: type[Struct] | None = None,
        nullable: str = "none",
        default: object = UNSET,
        tag: int | None = None,
        flexible: str | None = None,
        ignorable: bool = False,
        map_key: bool = False,
        entity: str = "",
    ) -> None:
        self.name = name
        self.type = type
        self.versions = versions
        self.of = of
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.flexible = flexible
        self.ignorable = ignorable
        self.map_key = map_key
        self.entity = entity

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of an array's elements, or the field's own type."""
        return self.type.removeprefix("[]")

    @property
    def json_name(self) -> str:
        """The name in Kafka's JSON and exceptions."""
        first, *others = self.name.split("_")
        return first + "".join(word[:1].upper() + word[1:] for word in others)

    def default_value(self) -> Any:
        """Return the value of a field that a version lacks. A mutable value is a new object each time."""
        if self.default is not UNSET:
            return self.default
        if self.is_array:
            return []
        return self.of() if self.of is not None else _ZERO[self.type]


_ZERO: Final[dict[str, object]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "records": None,
}


class Struct:
    """A structure of named fields. Two structures are equal if all their fields are equal, including unknown tagged ones."""

    __slots__ = ("unknown_tagged_fields",)
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    __hash__ = None  # type: ignore[assignment]

    # (tag, bytes) of tagged fields that are not in the declaration, in ascending order of tags. They are kept, and written again.
    unknown_tagged_fields: tuple[tuple[int, bytes], ...]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        assert isinstance(other, Struct)
        if self.unknown_tagged_fields != other.unknown_tagged_fields:
            return False
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"
