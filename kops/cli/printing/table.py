"""Tables for people: aligned columns and readable numbers, safe with control characters and wide letters in the data.

tabulate measures and aligns text with colours or with letters of other widths. It takes 20 ms to import, so a table of plain ASCII is
aligned here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kops.cli.printing.text import human_bytes, iso_time, one_line

# This many rows are aligned at a time, which limits memory and prints the first lines early. Columns only get wider from one piece to the
# next.
PIECE = 1000
RIGHT = ("int", "bytes")
GAP = 2
SHORTEST_NAME = 16
"""A name never gets shorter than this, or than its heading."""
NO_TIMESTAMP = -1  # Kafka's


class Column:
    """One column of a listing.

    `key` is the key in a row. `title` is the heading in a table (by default the key). `kind` is how a value is shown: `text`, `int`,
    `bytes` (1.5 MiB), `time_ms` (milliseconds since 1970 as ISO time, UTC), `list`, `name` (may lose its middle on a narrow terminal).
    `wide` columns are shown only in `--format wide`.
    `style` returns the colour of a value. In json, jsonl, yaml and csv a value is unchanged.
    """

    __slots__ = ("key", "kind", "style", "title", "wide")

    def __init__(
        self,
        key: str,
        title: str | None = None,
        kind: str = "text",
        *,
        wide: bool = False,
        style: Callable[[Any], str | None] | None = None,
    ) -> None:
        self.key = key
        self.title = key.replace("_", " ") if title is None else title
        self.kind = kind
        self.wide = wide
        self.style = style


def cell(value: Any, kind: str) -> str:
    """A value as text for people; `-` for null."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if kind == "bytes":
            return human_bytes(value)
        if kind == "time_ms":
            return "-" if value == NO_TIMESTAMP else iso_time(value)
        return str(value)
    if isinstance(value, (list, tuple, set)):
        return ", ".join(cell(element, kind) for element in value) or "-"
    if isinstance(value, (bytes, bytearray)):
        return one_line(value.decode("utf-8", "surrogateescape"))
    return one_line(str(value))


def width(text: str) -> int:
    """The columns that the text takes on a terminal: two for East Asian wide letters, none for combining marks."""
    if text.replace("…", "").isascii():  # the mark of a cut text
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def without_middle(text: str, room: int) -> str:
    """The text in `room` columns of a terminal: its begin and its end, with `…` between them."""
    if width(text) <= room:
        return text
    head = (room - 1) // 2
    return _begin(text, head) + "…" + _begin(text[::-1], room - 1 - head)[::-1]


def _begin(text: str, room: int) -> str:
    size = 0
    for place, letter in enumerate(text):
        size += width(letter)
        if size > room:
            return text[:place]
    return text


def _fitted(cells: list[list[str]], columns: Sequence[Column], widest: Sequence[str], room: int) -> list[list[str]]:
    """Shorten names, the widest first, until the lines fit into `room` columns. If they can't, leave all names whole."""
    sizes = [max(map(width, texts)) for texts in zip(widest, *cells, strict=True)]
    least = {number: max(SHORTEST_NAME, len(column.title)) for number, column in enumerate(columns) if column.kind == "name"}
    excess = sum(sizes) + GAP * (len(columns) - 1) - room
    shortened = set()
    while excess > 0 and (able := [number for number, size in least.items() if sizes[number] > size]):
        number = max(able, key=sizes.__getitem__)
        floor = max([least[number], *(sizes[each] for each in able if each != number)])
        cut = min(excess, sizes[number] - floor) or 1  # several are as wide: take turns
        sizes[number] -= cut
        excess -= cut
        shortened.add(number)
    if not shortened or excess > 0:
        return cells
    return [[without_middle(text, sizes[number]) if number in shortened else text for number, text in enumerate(texts)] for texts in cells]


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[Column],
    paint: Callable[[str, str | None], str] | None = None,
    room: int | None = None,
) -> Iterator[str]:
    """The lines of a table, headings first; no lines if there are no rows. `paint(text, color)` colours a text; None: no colours.
    `room` is the width of the terminal; None: no name is shortened."""
    source = iter(rows)
    titles = [column.title.upper() for column in columns]
    widest = titles
    first = True
    while piece := list(islice(source, PIECE)):
        cells = [[cell(row.get(column.key), column.kind) for column in columns] for row in piece]
        if room is not None:
            cells = _fitted(cells, columns, widest, room)
        # The first aligned line is the headings. In later pieces, where they are not shown, it is a line as wide as any before.
        shown = [_painted(row, texts, columns, paint) for row, texts in zip(piece, cells, strict=True)] if paint else cells
        head, *lines = _aligned([widest, *shown], columns)
        if first:
            yield paint(head, "bold") if paint else head
        yield from lines
        widest = [max(texts, key=width) for texts in zip(widest, *cells, strict=True)]
        first = False


def _painted(row: Mapping[str, Any], texts: Sequence[str], columns: Sequence[Column], paint: Callable[[str, str | None], str]) -> list[str]:
    styles = [column.style(row.get(column.key)) if column.style else None for column in columns]
    return [paint(text, style) for text, style in zip(texts, styles, strict=True)]


def _aligned(lines: list[Sequence[str]], columns: Sequence[Column]) -> list[str]:
    """The lines with aligned cells. Cells are not changed: none is read as a number, none is wrapped."""
    if all(text.isascii() and text.isprintable() for line in lines for text in line):
        return _aligned_ascii(lines, columns)
    from tabulate import tabulate

    align = ["right" if column.kind in RIGHT else "left" for column in columns]
    text = tabulate(lines, tablefmt="plain", colalign=align, disable_numparse=True, preserve_whitespace=True)
    return [line.rstrip(" ") for line in text.split("\n")]


def _aligned_ascii(lines: list[Sequence[str]], columns: Sequence[Column]) -> list[str]:
    """The same for texts whose letters take one column each."""
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    pad = [str.rjust if column.kind in RIGHT else str.ljust for column in columns]
    return ["  ".join(put(text, size) for put, text, size in zip(pad, line, widths, strict=True)).rstrip(" ") for line in lines]
