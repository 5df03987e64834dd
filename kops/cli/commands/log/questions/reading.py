"""Options and messages that the questions about logs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import FAILED

if TYPE_CHECKING:
    from kops.forensics.questions.reading import Unread

Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories or .log files.")]
Topic = Annotated[list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic.", show_default=False)]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=0, help="Number of processes; 0: chosen by the size of the logs.")]


def tell_unread(out: Output, unread: Iterable[Unread]) -> None:
    """Report files that could not be read. The answer lacks them, so that is a failure."""
    for one in unread:
        out.fail(f"{one.file}: {one.reason}")
        out.status |= FAILED


def now(text: str | None) -> int:
    """The time in `--now` in milliseconds since 1970, by default the clock's. Raises UsageError if the text is not a time."""
    if text is None:
        import time

        return time.time_ns() // 1_000_000
    from kops.forensics.dump.filters import parse_time

    return parse_time(text, "--now")
