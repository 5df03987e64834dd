"""What a regular expression is made of. Topics' names are ASCII, so a set of characters is a number of 128 bits."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

ALL: Final = (1 << 128) - 1
NEWLINE: Final = 1 << 10


class Assertion(Enum):
    """What holds between characters."""

    BEGIN = 1
    END = 2
    WORD_BOUNDARY = 3
    NO_WORD_BOUNDARY = 4


class Chars(NamedTuple):
    """One character of a set."""

    mask: int


class Concat(NamedTuple):
    """One after the other; nothing if there are none."""

    parts: tuple[Node, ...]


class Alternate(NamedTuple):
    """One of several."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """Several times: from `low` to `high`, any number if that is -1."""

    part: Node
    low: int
    high: int


Node = Chars | Concat | Alternate | Repeat | Assertion


def mask_of(low: int, high: int) -> int:
    """The characters from `low` to `high`, as far as they are ASCII."""
    high = min(high, 127)
    return 0 if low > high else (1 << high + 1) - (1 << low)


def mask_of_text(text: Iterable[str]) -> int:
    """These ASCII characters."""
    mask = 0
    for char in text:
        mask |= 1 << ord(char)
    return mask


def folded(mask: int) -> int:
    """Both cases of each letter."""
    upper, lower = mask_of(65, 90), mask_of(97, 122)
    return mask | (mask & upper) << 32 | (mask & lower) >> 32
