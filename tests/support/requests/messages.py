"""Random messages: values for every field that a version has, from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from kops.protocol import messages
from kops.protocol.declaration import Field, Message, Struct
from kops.protocol.registry import message_class
from kops.protocol.structure import parse_versions

INTEGERS = {"int8": (-(2**7), 2**7), "int16": (-(2**15), 2**15), "int32": (-(2**31), 2**31), "int64": (-(2**63), 2**63)}
INTEGERS |= {"uint16": (0, 2**16), "uint32": (0, 2**32)}
TEXTS = ("", "a", "orders-0", "grüße, 世界 🎉", "x" * 126, "x" * 127, "y" * 300, '"\\\n\x01/')
SIZES = (0, 1, 7, 127, 128, 400)


def all_messages() -> list[type[Message]]:
    """Return every message class by name."""
    return [message_class(name) for name in sorted(messages.MODULES)]


def all_versions() -> list[tuple[type[Message], int]]:
    """Return every (message, version)."""
    return [(declared, version) for declared in all_messages() for version in declared.VERSIONS]


def random_message(declared: type[Message], version: int, seed: int) -> Message:
    """Return a message of this version.

    Arrays have 0 to 3 elements, fields are null where that is allowed, and tagged fields (also unknown ones) are there or not.
    """
    rng = random.Random(f"{declared.__name__} {version} {seed}")
    made = random_struct(declared, version, rng, flexible=declared.is_flexible(version))
    assert isinstance(made, Message)
    return made


def random_struct(declared: type[Struct], version: int, rng: random.Random, *, flexible: bool) -> Struct:
    """Return a structure with values in all fields of the version."""
    made = declared()
    for field in declared.FIELDS:
        if version in parse_versions(field.versions) and (field.tag is None or rng.random() < 0.6):
            setattr(made, field.name, random_value(field, version, rng, flexible=flexible))
    if flexible and rng.random() < 0.2:
        made.unknown_tagged_fields = tuple((1000 + 7 * number, rng.randbytes(rng.choice(SIZES))) for number in range(rng.randint(1, 2)))
    return made


def random_value(field: Field, version: int, rng: random.Random, *, flexible: bool) -> object:
    """Return a value that a field can have."""
    if version in parse_versions(field.nullable) and rng.random() < 0.2:
        return None
    if field.is_array:
        return [random_element(field, version, rng, flexible=flexible) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return random_element(field, version, rng, flexible=flexible)


def random_element(field: Field, version: int, rng: random.Random, *, flexible: bool) -> object:
    """Return a value that is no array and not null."""
    kind = field.element
    if field.of is not None:
        return random_struct(field.of, version, rng, flexible=flexible)
    if kind in INTEGERS:
        low, end = INTEGERS[kind]
        return rng.choice((0, 1, low, end - 1, rng.randrange(low, end)))
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.5, 1e-5, 123456789.25, struct.unpack(">d", b"\x40" + rng.randbytes(7))[0]))
        case "string":
            return rng.choice(TEXTS)
        case "uuid":
            return rng.randbytes(16)
        case _:
            return rng.randbytes(rng.choice(SIZES))


def seeded(count: int) -> Iterator[tuple[type[Message], int, int]]:
    """Yield (message, version, seed): all versions over and over until there are `count`."""
    versions = all_versions()
    for number in range(count):
        declared, version = versions[number % len(versions)]
        yield declared, version, number // len(versions)
