"""Commands for the tests of the frame, registered below `kops log` and `kops probe`. Each does one thing that a real command may do.

`python tests/cli/probe.py log slow …` runs the command line with them in a separate process. `register()` adds them in this process.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kops.cli import main as frame
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running import tree
from kops.cli.running.exit_codes import PROBLEMS
from kops.cli.running.options import command
from kops.errors import DecodeError, NotFoundError, UsageError

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
COLUMNS = (Column("name"), Column("size", kind="bytes"), Column("time", kind="time_ms"), Column("note", wide=True))
ROWS = (
    {"name": "orders-0", "size": 1536, "time": 1700000000123, "note": None},
    {"name": "páté\x1b[31m", "size": None, "time": -1, "note": 'a "b", c'},
)


@command(formats=FORMATS, examples=[("Two rows.", "kops log rows")])
def rows(
    out: Output,
    head: Annotated[int, typer.Option("--total", min=0, max=99, help="A number.")] = 2,
    share: Annotated[float | None, typer.Option(max=1, help="A share.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word, many times.")] = None,
) -> None:
    """Print two rows."""
    more = {} if share is None else {"share": share, "tags": tag}
    out.rows(ROWS, COLUMNS, schema="kops.probe/v1", key="things", total=head, **more)


@command(formats=FORMATS, examples=[("A long name.", "kops log names")])
def names(out: Output) -> None:
    """Print a long name between other columns."""
    columns = [Column("name", kind="name"), Column("size", kind="bytes"), Column("time", kind="time_ms")]
    row = {"name": "orders-of-the-customers-of-the-world", "size": 1536, "time": 1700000000123}
    out.rows([row], columns, schema="kops.probe/v1")


@command(formats=("jsonl", "json", "table"), examples=[("Many rows.", "kops log many")])
def many(out: Output, count: Annotated[int, typer.Argument(help="How many.")] = 100_000) -> int:
    """Print many rows, and find a problem early."""
    out.status |= PROBLEMS
    out.rows(({"number": number} for number in range(count)), [Column("number", kind="int")], schema="kops.probe/v1")
    return 0


@command(formats=("json", "jsonl", "yaml", "csv", "table"), examples=[("Rows until Ctrl-C.", "kops log slow")])
def slow(out: Output) -> None:
    """Print rows until somebody interrupts."""
    out.resume = "kops log slow --again"

    def numbers() -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            if number == 3:
                out.say("ready")
                # A signal just before a long sleep would wait for its end.
                for _ in range(12_000):
                    time.sleep(0.05)
            yield {"number": number}

    out.rows(numbers(), [Column("number", kind="int")], schema="kops.probe/v1")


@command(formats=("text", "json"), examples=[("Fail.", "kops log fail usage")])
def fail(out: Output, how: Annotated[str, typer.Argument(help="The way.")]) -> None:
    """Print a line, then fail."""
    out.line("half")
    if how == "usage":
        raise UsageError("--level no is not one of quick, crc")
    if how == "decode":
        raise DecodeError("the length is negative", position=17, file="x.log")
    if how == "missing":
        raise NotFoundError("no such directory: x")
    if how == "os":
        os.stat("/nowhere/at all")
    if how == "memory":
        raise MemoryError
    if how == "bug":
        raise ZeroDivisionError("a bug")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "document":
        document = {"first": 1, "rows": iter(_until_bad()), "never": 2}
        out.document(document, schema="kops.probe/v1")


def _until_bad() -> Iterator[dict[str, int]]:
    yield {"number": 1}
    yield {"number": 2}
    raise DecodeError("no more")


@command(examples=[("Words.", "kops log words x")])
def words(out: Output, paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Inputs.")]) -> None:
    """Print something on every channel, and draw a progress bar."""
    with out.progress("reading", 10_000) as bar:
        for _ in range(10):
            bar.update(1000)
            time.sleep(0.03)
        out.say("said")
        out.detail("in detail")
        out.warn("warned")
    out.line(out.paint("painted", "red"))


PROBES = ("rows", "names", "many", "slow", "fail", "words")


def register() -> list[tree.Entry]:
    """Add the probes to the tree, below `log` (exit codes are sums) and `probe` (plain exit codes)."""
    sys.modules["kops.cli.commands.probe"] = sys.modules[__name__]
    entries = [tree.Entry(f"{group} {name}", f"probe:{name}", f"Probe {name}") for group in ("log", "probe") for name in PROBES]
    tree.GROUPS[("probe",)] = "Probes of the frame"
    return entries


if __name__ == "__main__":
    tree.COMMANDS += tuple(register())
    sys.exit(frame.main())
