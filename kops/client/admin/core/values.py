"""Values that several operations share: ids as texts, partitions, and the operations that a principal may do.

Source: Kafka's Uuid (its text), AclOperation, Utils.from32BitField (authorized operations).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

from kops.client.settings import is_text
from kops.errors import UsageError
from kops.records.log_offsets import TopicPartition

V = TypeVar("V")
Partition = tuple[str, int]
"""A partition as a program may give it: a TopicPartition, or the pair of a topic and a number."""
ByPartition = Mapping[TopicPartition, V] | Mapping[Partition, V]

_OMITTED: Final = -(1 << 31)  # authorized operations that were not asked for
_ID_CHARACTERS: Final = 22


class AclOperation(IntEnum):
    """The operations that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


def authorized_operations(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations of a bit field, or None if they were not asked for."""
    if bits == _OMITTED:
        return None
    return frozenset(one for one in AclOperation if one > AclOperation.ALL and bits >> one & 1)


def as_names(given: Iterable[str]) -> list[str]:
    """Return the names that a program gives, each once. One text is one name, and not a list of letters. Raises UsageError."""
    names = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for one in names:
        if not is_text(one):
            raise UsageError(f"{one!r} is not a name; allowed: text that UTF-8 can encode")
    return names


def as_partitions(given: Iterable[Partition]) -> list[TopicPartition]:
    """Return the partitions that a program gives, each once. One partition need not be in a list. Raises UsageError."""
    one = isinstance(given, str) or (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str))
    return list(dict.fromkeys(_as_partition(each) for each in ((given,) if one else given)))


def by_partition(given: ByPartition[V]) -> dict[TopicPartition, V]:
    """Return what a program gives for each partition. Raises UsageError."""
    check_mapping(given, "('topic', 0): …")
    return {_as_partition(key): value for key, value in given.items()}


def check_mapping(given: object, example: str) -> None:
    """Raise UsageError for anything but a mapping, with an example of what is in it."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r} is not a mapping; allowed: {{{example}}}")


def _as_partition(given: object) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if is_text(topic) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise UsageError(f"{given!r} is not a partition; allowed: TopicPartition or a pair of a topic and a number")


def check_config(name: object, value: object) -> None:
    """Raise UsageError for a setting that is not a text: Kafka's settings have texts for numbers and booleans, too."""
    if not isinstance(name, str):
        raise UsageError(f"{name!r} is not the name of a setting; allowed: text")
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name}={value!r}: not a text; allowed: the value as text, such as {str(value)!r}")


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of an id in Kafka's text. Raises UsageError."""
    try:
        data = base64.urlsafe_b64decode(text + "==") if len(text) == _ID_CHARACTERS else b""
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != 16:
        raise UsageError(f"{text!r} is not an id; allowed: {_ID_CHARACTERS} letters, digits, - and _")
    return data
