"""The output of a command: one `Output` object, six formats, data to stdout or `-o FILE`, messages to stderr.

A command gives its answer once, as rows (`Output.rows`) or as one document (`Output.document`), and every format is made from that. Rows
may be a generator: jsonl, csv, json and yaml are streamed. Every JSON document (each line of jsonl is one) begins with `"schema":
"kops.<thing>/v1"`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from kops.cli.printing.progress import Progress
from kops.cli.printing.sink import FileSink, OutputClosed, OutputError, StdoutSink
from kops.cli.printing.table import Column, table
from kops.cli.printing.text import say
from kops.errors import KopsError

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
BUFFER_BYTES = 64 * 1024
HOLD_BACK_S = 0.2  # The output of a slow command is flushed after this time.
COLORS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "bold": "1", "dim": "2"}


class Output:
    """The output of one run of a command. Commands get it as their first argument, `out`.

    `format` is the chosen format. `status` is the exit code so far. A command that finds a problem does `out.status |= PROBLEMS` at once,
    so that the code is right even if the reader of stdout ends or Ctrl-C comes. `resume` is the hint in the message after Ctrl-C that says
    how to continue.
    """

    def __init__(self, *, format: str = "table", file: str | None = None, verbosity: int = 0, color: bool = True) -> None:
        self.format = format
        self.verbosity = verbosity
        self.status = 0
        self.resume = ""
        self.wrote = False
        self.file = None if file == "-" else file
        self._color_wanted = color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._opened: StdoutSink | FileSink | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._progress: Progress | None = None
        self._csv_heading: list[str] = []
        self._drained = 0.0
        if self.file is not None:
            self._opened = FileSink(self.file)

    # Words

    def say(self, text: str) -> None:
        """Print a message on stderr, unless `-q`."""
        if self.verbosity >= 0:
            self._words(text)

    def detail(self, text: str) -> None:
        """Print a message on stderr if `-v`."""
        if self.verbosity >= 1:
            self._words(text)

    def warn(self, text: str) -> None:
        """Print a warning on stderr, even with `-q`."""
        self._words(f"kops: warning: {text}")

    def fail(self, text: str) -> None:
        """Print an error on stderr; the command continues and prints what it has."""
        self._words(f"kops: error: {text}")

    def _words(self, text: str) -> None:
        if self._progress is not None:
            self._progress.clear()
        if self._pending and self.is_terminal:
            self.flush()
        say(text)

    def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question at the terminal, on stderr. No is the default, also at the end of the input.

        Ctrl-C interrupts as usual. Ask only if `can_ask()` is true.
        """
        import click

        if self._progress is not None:
            self._progress.clear()
        self.flush()
        try:
            return click.confirm(question, err=True)
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise abort.__context__ from None
            self._words("")
            return False

    def progress(self, label: str, total: int | None = None, unit: str = "B") -> Progress:
        """A progress bar on stderr: `with out.progress("verify", size) as bar: bar.update(n)`. Shows nothing if stderr is not a terminal,
        and under `-q`."""
        self._progress = Progress(label, total, unit, enabled=self.verbosity >= 0 and stderr_is_terminal(), color=self._color_wanted)
        return self._progress

    # Data

    @property
    def is_terminal(self) -> bool:
        """Whether the data goes to a terminal."""
        return self._sink().is_terminal

    @property
    def color(self) -> bool:
        """Whether data may be coloured."""
        return self._color_wanted and self.is_terminal

    def paint(self, text: str, color: str | None) -> str:
        """The text in a colour of `COLORS` if colours are shown, else unchanged."""
        return f"\x1b[{COLORS[color]}m{text}\x1b[0m" if color and self.color else text

    def write(self, data: str | bytes | memoryview) -> None:
        """Write text or bytes, buffered. Text is encoded as UTF-8; undecodable bytes of file names become the original bytes."""
        chunk = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        self.wrote = True
        if len(chunk) >= BUFFER_BYTES:
            self._drain()
            self._sink().write(chunk)
            return
        self._pending.append(bytes(chunk))
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= BUFFER_BYTES:
            self._drain()
        elif time.monotonic() - self._drained >= HOLD_BACK_S:
            self.flush()

    @property
    def pending_bytes(self) -> int:
        """How much of what was written waits in the buffer of this object."""
        return self._pending_bytes

    def line(self, text: str = "") -> None:
        """Write a line of text."""
        self.write(text + "\n")

    def flush(self) -> None:
        """Flush the buffer, so that a reader sees it now."""
        self._drain()
        self._sink().flush()

    def check_reader(self) -> None:
        """Raise OutputClosed if the reader of the output has ended. For a command that waits for data."""
        self._sink().check_reader()

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Iterable[Column], *, schema: str, key: str = "rows", **head: Any) -> None:
        """Print a listing.

        `schema` is `kops.<thing>/v1`. json and yaml print `{"schema": …, **head, key: [rows]}`, jsonl prints a document with `schema` for
        each row, csv prints the columns' keys (once for the same listing again) and values, table and wide print the columns for people.
        On a terminal, table shortens names that would make the lines wrap.
        """
        chosen = list(columns)
        if self.format in ("table", "wide"):
            shown = [column for column in chosen if self.format == "wide" or not column.wide]
            room = self._sink().columns if self.format == "table" else None
            for text in table(rows, shown, self.paint if self.color else None, room):
                self.line(text)
        elif self.format == "csv":
            self._csv(rows, [column.key for column in chosen])
        elif self.format == "jsonl":
            from kops.cli.printing.documents import compact

            for row in rows:
                self.line(compact({"schema": schema, **row}))
        else:
            self.document({**head, key: iter(rows)}, schema=schema)

    def document(self, document: Mapping[str, Any], *, schema: str) -> None:
        """Print one document, as json (also for table formats), yaml, or one line of jsonl.

        A value may be an iterator (a streamed array) or a function without arguments (called when its turn comes, for totals that are known
        only after the stream). An interrupt or an error in the middle closes the document, so that what was printed can be parsed.
        """
        from kops.cli.printing import documents

        whole = {"schema": schema, **document}
        if self.format == "jsonl":
            self.line(documents.compact(documents.settled(whole)))
            return
        writer = documents.YamlDocument(whole) if self.format == "yaml" else documents.JsonDocument(whole)
        try:
            for text in writer:
                self.write(text)
        except KeyboardInterrupt:
            self.write(writer.ending({"interrupted": True}))
            raise
        except OutputError:
            raise
        except KopsError as error:
            self.write(writer.ending({"error": str(error)}))
            raise

    def record(self, document: Mapping[str, Any]) -> None:
        """Print one line of jsonl with exactly these keys."""
        from kops.cli.printing.documents import compact

        self.line(compact(document))

    def _csv(self, rows: Iterable[Mapping[str, Any]], keys: list[str]) -> None:
        import csv

        from kops.cli.printing.documents import csv_cell, csv_line

        class Lines:
            write = staticmethod(self.write)

        writer = csv.writer(Lines, lineterminator="\n")
        if keys != self._csv_heading:
            writer.writerow(keys)
            self._csv_heading = keys
        for row in rows:
            values = map(row.get, keys)
            cells = [value if value.__class__ is str or value.__class__ is int else csv_cell(value) for value in values]
            if "" in cells:
                self.write(csv_line(cells))
            else:
                writer.writerow(cells)

    # The end

    def commit(self) -> None:
        """The command succeeded: flush everything and give the file its name."""
        self._end("commit")

    def keep(self) -> None:
        """The command was interrupted: keep the output so far."""
        self._end("keep")

    def abandon(self) -> None:
        """The command failed: remove an incomplete file."""
        self._end("abandon")

    def _end(self, how: str) -> None:
        if self._progress is not None:
            self._progress.close()
        if self._opened is None and not self._pending:
            return
        sink = self._sink()
        if how == "abandon" and isinstance(sink, FileSink):
            self._pending.clear()
        try:
            self._drain()
        except (OutputError, OutputClosed):
            # The rest is missing: an older file keeps its name.
            how = "abandon"
            raise
        finally:
            getattr(sink, how)()

    def _drain(self) -> None:
        self._drained = time.monotonic()
        if self._pending:
            if self._progress is not None and self.is_terminal:
                self._progress.clear()
            pending = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._sink().write(pending)

    def _sink(self) -> StdoutSink | FileSink:
        if self._opened is None:
            self._opened = StdoutSink()
        return self._opened


def can_ask() -> bool:
    """Whether a question can be asked: stdin and stderr are a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty() and stderr_is_terminal()


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
