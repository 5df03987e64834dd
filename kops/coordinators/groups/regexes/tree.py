"""The syntax tree of a regular expression. Topic names are ASCII, so a set of characters is a 128-bit number."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

ALL: Final = (1 << 128) - 1
NEWLINE: Final = 1 << 10


class Assertion(Enum):
    """A condition between two characters."""

    BEGIN = 1
    END = 2
    WORD_BOUNDARY = 3
    NO_WORD_BOUNDARY = 4


class Chars(NamedTuple):
    """One character out of a set."""

    mask: int


class Concat(NamedTuple):
    """A sequence of nodes; empty matches the empty text."""

    parts: tuple[Node, ...]


class Alternate(NamedTuple):
    """One of several nodes."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """A node repeated `low` to `high` times; -1 for `high` means no limit."""

    part: Node
    low: int
    high: int


Node = Chars | Concat | Alternate | Repeat | Assertion


def mask_of(low: int, high: int) -> int:
    """Return the set of the ASCII characters from `low` to `high`."""
    high = min(high, 127)
    return 0 if low > high else (1 << high + 1) - (1 << low)


def mask_of_text(text: Iterable[str]) -> int:
    """Return the set of these ASCII characters."""
    mask = 0
    for char in text:
        mask |= 1 << ord(char)
    return mask


def folded(mask: int) -> int:
    """Return the set with both cases of each letter."""
    upper, lower = mask_of(65, 90), mask_of(97, 122)
    return mask | (mask & upper) << 32 | (mask & lower) >> 32
