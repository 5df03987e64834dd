"""Text for people: messages on stderr, printable names, readable sizes and times."""

from __future__ import annotations

import sys
from typing import Final

_PLURALS: Final = {"batch": "batches", "index": "indexes"}
"""The irregular ones."""


def say(text: str) -> None:
    """Print one line on stderr, even if a name in it has line breaks. Errors of a closed or full stderr are ignored."""
    if sys.stderr is None:
        return
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def printable(text: str) -> str:
    """The text with control characters (except line breaks) and undecodable bytes as escapes: file names and keys are not trusted."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("utf-8", "surrogateescape").decode("latin-1").encode("unicode_escape").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """The same for text that must stay on one line: a line break in a name is shown as an escape, too."""
    return printable(text).replace("\n", "\\n")


def human_bytes(size: int | float) -> str:
    """`1.5 MiB`; whole bytes below 1 KiB."""
    if abs(size) < 1024:
        return f"{int(size)} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if abs(value) < 1024 or unit == "PiB":
            break
    return f"{value:.1f} {unit}"


def many(count: int, what: str) -> str:
    """A count with its noun: `1 file`, `1,024 files`, `2 batches`."""
    plural = _PLURALS.get(what, what + "s")
    return f"{count:,} {what if count == 1 else plural}"


def iso_time(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO time in UTC. A number outside the years 1 to 9999 stays a number."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
