"""Shared code of the commands `kops scan ...`: their common options, running a job in a session, and printing or writing its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.spark.remembered import State

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Log directories or partition directories of all brokers, at paths that every worker sees, or URLs (s3://…).",
    ),
]
FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark's master (default: local[*]).", show_default=False)]
TaskBytes = Annotated[int, typer.Option("--task-bytes", metavar="N", min=1, help="The approximate number of bytes that one task reads.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A Spark setting.")]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="Write the rows to this new directory or URL, from Spark's tasks, and print none.", show_default=False
    ),
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="parquet|jsonl|csv", help="The format of the files in --out (default: parquet).", show_default=False),
]
AsOrReset = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="FORMAT",
        help="reset-csv: print the CSV of kafka-consumer-groups. With --out: parquet, jsonl, csv.",
    ),
]
StateDir = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="Keep the answers here, and read only files that changed since.", show_default=False),
]
TASK_BYTES = 512 << 20
FILES = ("parquet", "jsonl", "csv")


class OnSpark(NamedTuple):
    """Where a job runs: the options `--master`, `--conf` and `--task-bytes`."""

    master: str | None
    conf: Sequence[str] | None
    task_bytes: int

    def settings(self) -> dict[str, str]:
        """Spark's settings in `--conf`. UsageError for anything else."""
        found: dict[str, str] = {}
        for each in self.conf or ():
            key, equals, value = each.partition("=")
            if not equals or not key.startswith("spark."):
                raise UsageError(f"--conf {each}: not a Spark setting; allowed: spark.KEY=VALUE")
            found[key] = value
        return found

    def words(self) -> list[str]:
        """The options that say on which cluster the job runs."""
        return [*(["--master", self.master] if self.master else []), *(word for each in self.conf or () for word in ("--conf", each))]

    def start(self, out: Output, name: str, *, light: bool = False) -> Callable[[], Any]:
        """A function that starts the session of `kops scan NAME`, whose stages have a progress bar."""
        settings = self.settings()

        def start() -> Any:
            from kops.spark import spark_session
            from kops.spark.progress import watch

            spark = spark_session(self.master, f"kops scan {name}", settings, light=light)
            if out.progress("").enabled:
                watch(spark, _Bars(out))
            return spark

        return start


class _Bars:
    """A progress bar for each stage of a scan."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._bar = out.progress("")

    def begin(self, label: str, total: int, unit: str) -> None:
        """Called when a stage begins."""
        self._bar = self._out.progress(label, total, unit)

    def set(self, done: int) -> None:
        """So much is done."""
        self._bar.set(done)

    def end(self) -> None:
        """Called when a stage has ended."""
        self._bar.close()


class Rows(NamedTuple):
    """What a job's rows look like: the columns of a table, the schema of the documents and the name of their list.

    `shown` makes a row as it is printed. `problem` is SQL: rows that are written to files and fulfil it are a problem. `order`: the columns
    by which the job's rows still have to be sorted.
    """

    columns: Sequence[Column]
    schema: str
    key: str
    shown: Callable[[dict[str, Any]], dict[str, Any]] = dict
    problem: str = ""
    order: Sequence[str] = ()


Job = Callable[[Any], Any]
"""A session in, a DataFrame out; pyspark is imported in `kops.spark` only."""


class Scan(NamedTuple):
    """What the common options of a command say: `kops scan NAME`, where it runs, `--out` and `--as`, and the state of `--state`."""

    name: str
    where: OnSpark
    target: str | None = None
    as_: str | None = None
    state: State | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments `task_bytes` and `state` of a job."""
        return {"task_bytes": self.where.task_bytes, "state": self.state}

    def start(self, out: Output, *, light: bool = False) -> Callable[[], Any]:
        """A function that starts the session."""
        return self.where.start(out, self.name, light=light)

    def run(self, out: Output, job: Job, rows: Rows) -> int:
        """Run a job in a session of its own and print its rows, or write them where `--out` and `--as` say. Sets `out.status`.

        Returns the number of rows.
        """
        shape = self.as_ or FILES[0]
        if self.target is None and self.as_ is not None:
            raise UsageError(f"--as {shape}: give it with --out")
        told = {"rows": 0}
        if self.target is None:
            found = self.stream(out, job, told, order=rows.order)
            out.rows(map(rows.shown, found), rows.columns, schema=rows.schema, key=rows.key)
        else:
            target = check_target(self.target, shape)
            for _ in self.stream(out, job, told, (target, shape, rows.problem), rows.order):
                raise AssertionError("with --out the rows are not printed")
            out.say(f"{many(told['rows'], 'row')} written to {target}")
        return told["rows"]

    def stream(
        self,
        out: Output,
        job: Job,
        told: dict[str, int] | None = None,
        files: tuple[str | None, str, str] = (None, "", ""),
        order: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """The rows of a job that runs in a session of its own. Rows of damage become warnings, as in `kops log`. Sets `out.status`."""
        from kops.cli.commands.log.state.reporting import LostLines
        from kops.cli.running.exit_codes import PROBLEMS
        from kops.spark.interrupt import pieces_in_session
        from kops.spark.jobs.results import pieces

        counts = told if told is not None else {"rows": 0}
        lost = LostLines(out)
        for piece in pieces_in_session(self.start(out), lambda spark: pieces(job(spark), *files, order)):
            for one in piece.damage:
                lost.tell(one)
            counts["rows"] += piece.total
            if piece.has_problem:
                out.status |= PROBLEMS
            yield from piece.rows
        lost.end()


def kept_state(folder: str | None, paths: Sequence[str]) -> State | None:
    """The state directory of `--state`, None without it. Raises UsageError."""
    if folder is None:
        return None
    from kops.spark.remembered import State

    return State(folder, paths=paths)


def tell_state(out: Output, state: State | None) -> None:
    """Say how much was read, and what of the state was not used."""
    if state is not None:
        if state.warning:
            out.warn(state.warning)
        out.say(f"kops: {many(state.reused, 'part')} unchanged since an earlier scan, {state.read:,} read ({state.bytes_read:,} bytes)")


def check_target(target: str, shape: str) -> str:
    """The directory, a URL without its options. Raises UsageError for an unknown format or an existing directory."""
    from kops.files.any_files import AnyFiles
    from kops.files.urls import is_url, plain_path

    if shape not in FILES:
        raise UsageError(f"--as {shape}: not one of {', '.join(FILES)}")
    out = plain_path(target)
    if AnyFiles().exists(out) if is_url(out) else os.path.lexists(out):
        raise UsageError(f"--out {out}: exists; name a new directory")
    return out


def bytes_shown(out: Output, *names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that prints rows with keys or values: bytes as text in tables, as base64 elsewhere."""
    from kops.forensics.dump.filters import encode_bytes

    encoding = "utf8" if out.format in ("table", "wide") else "base64"

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        encoded: dict[str, Any] = {name: encode_bytes(row[name], encoding) for name in names}
        if row.get("headers") is not None:
            encoded["headers"] = [[each["key"], encode_bytes(each["value"], encoding)] for each in row["headers"]]
        return {**row, **encoded}

    return shown
