"""Numbers, sizes, offsets, times and command lines as the report shows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 segment`, `1,024 segments`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """Bytes for people: `1.5 MiB`."""
    if number < 1024:
        return count(number, "byte")
    value = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1024 or unit == "PiB":
            break
    return f"{value:.1f} {unit}"


def offsets(first: int | None, last: int | None) -> str:
    """A range of offsets, inclusive: `5`, `5-9`; empty if it is not known."""
    if first is None or last is None:
        return ""
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def ranges(each: Sequence[tuple[int, int]], most: int = 6) -> str:
    """Several ranges of offsets; the last ones are only counted if there are many."""
    shown = ", ".join(offsets(first, last) for first, last in each[:most])
    return shown if len(each) <= most else f"{shown} and {count(len(each) - most, 'more range')}"


def merged(each: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges (inclusive) in order, without overlap."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(each):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        elif last >= first:
            result.append((first, last))
    return result


def total(each: Iterable[tuple[int, int]]) -> int:
    """How many offsets there are in the ranges."""
    return sum(last - first + 1 for first, last in each)


def moment(time_ms: int | None) -> str:
    """Milliseconds since 1970 as a time in UTC, to the second."""
    found = _datetime(time_ms)
    return "" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def is_time(time_ms: int | None) -> bool:
    """Whether it is a time of the years 1970 to 9999."""
    return _datetime(time_ms) is not None


def _datetime(time_ms: int | None) -> datetime | None:
    if time_ms is None or time_ms < 0:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def command(*words: str) -> str:
    """A command line that a shell of POSIX (and bash, for bytes that are not printable) reads as these words."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    try:
        data = word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, which no file name gives
        data = word.encode("utf-8", "backslashreplace")
    return "$'" + "".join(chr(each) if 32 <= each < 127 and each not in b"\\'" else f"\\x{each:02x}" for each in data) + "'"
