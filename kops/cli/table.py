"""Tables for people: aligned columns, human numbers, no surprises from control characters or wide letters in the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from kops.cli.failures import printable
from kops.cli.output import Column, human_bytes, iso_time

# Widths are taken from so many rows; what comes later and is wider sticks out. It bounds memory, and the first lines come early.
LOOK_AHEAD = 1000
GAP = "  "
RIGHT = ("int", "bytes")


def cell(value: Any, kind: str) -> str:
    """A value as a person reads it; `-` for null."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if kind == "bytes":
            return human_bytes(value)
        return iso_time(value) if kind == "time_ms" else str(value)
    if isinstance(value, (list, tuple, set)):
        return ", ".join(cell(element, kind) for element in value) or "-"
    if isinstance(value, (bytes, bytearray)):
        return printable(value.decode("utf-8", "surrogateescape")).replace("\n", "\\n")
    return printable(str(value)).replace("\n", "\\n")


def width(text: str) -> int:
    """Columns of a terminal that the text takes: East Asian wide letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], paint: Callable[[str, str | None], str] | None = None
) -> Iterator[str]:
    """The lines of a table, head first; no lines at all where there are no rows. `paint(text, color)` colours, None prints plainly."""
    source = iter(rows)
    ahead = [(row, [cell(row.get(column.key), column.kind) for column in columns]) for row in islice(source, LOOK_AHEAD)]
    if not ahead:
        return
    titles = [column.title.upper() for column in columns]
    widths = [max(width(titles[i]), *(width(cells[i]) for _, cells in ahead)) for i in range(len(columns))]
    head = _line(titles, columns, widths)
    yield paint(head, "bold") if paint else head
    later = ((row, [cell(row.get(column.key), column.kind) for column in columns]) for row in source)
    for row, cells in chain(ahead, later):
        styles = [column.style(row.get(column.key)) if column.style else None for column in columns] if paint else None
        yield _line(cells, columns, widths, styles, paint)


def _line(
    cells: Sequence[str],
    columns: Sequence[Column],
    widths: Sequence[int],
    styles: Sequence[str | None] | None = None,
    paint: Callable[[str, str | None], str] | None = None,
) -> str:
    parts = []
    last = len(cells) - 1
    for i, text in enumerate(cells):
        space = " " * (widths[i] - width(text))
        painted = paint(text, styles[i]) if paint and styles else text
        right = columns[i].kind in RIGHT
        parts.append(space + painted if right else painted if i == last else painted + space)
    return GAP.join(parts).rstrip()
