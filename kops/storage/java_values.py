"""Java's integers where Kafka's files depend on them: 32 and 64 bits that wrap."""

from __future__ import annotations

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)


def to_long(value: int) -> int:
    """An integer wrapped to 64 bits, as Java's long arithmetic does."""
    if LONG_MIN <= value <= LONG_MAX:
        return value
    return (value - LONG_MIN) % 2**64 + LONG_MIN


def to_int(value: int) -> int:
    """An integer cut to its low 32 bits, as `(int)` does."""
    return (value + 2**31) % 2**32 - 2**31
