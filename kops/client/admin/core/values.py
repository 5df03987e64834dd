"""Values that several operations share: ids as texts, and the operations that a principal may do.

Source: Kafka's Uuid (its text), AclOperation, Utils.from32BitField (authorized operations).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from kops.errors import UsageError

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
        if not isinstance(one, str):
            raise UsageError(f"{one!r} is not a name; allowed: text")
    return names


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
