"""`kops log stats`: sizes, codecs, producers, keys, gaps and times of partitions' logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.questions.reading import Jobs, Paths, Topic, now, tell_unread
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.questions.reading import Found
    from kops.forensics.questions.stats import LogStats

SCHEMA = "kops.stats/v1"
Deep = Annotated[bool, typer.Option("--deep", help="Also read the records: keys, tombstones, sizes, compression ratios.")]
Now = Annotated[
    str | None, typer.Option("--now", metavar="TIME", help="Later timestamps are in the future (default: now).", show_default=False)
]


def columns(*, deep: bool) -> list[Column]:
    """The columns of a table; those about records are shown if the records were read."""
    return [
        Column("name", "partition"),
        Column("segments", kind="int"),
        Column("batches", kind="int"),
        Column("records", kind="int"),
        Column("bytes", "size", kind="bytes"),
        Column("codecs", kind="list"),
        Column("ratio", kind="int", wide=not deep),
        Column("records_per_batch", "per batch", "int"),
        Column("keys", kind="int", wide=not deep),
        Column("tombstones", kind="int", wide=not deep),
        Column("producers", kind="int"),
        Column("first_offset", "first", "int"),
        Column("last_offset", "last", "int"),
        Column("gaps", kind="int"),
        Column("last_timestamp", "newest", "time_ms"),
        Column("steps_back", "back", "int"),
        Column("future_batches", "future", "int"),
        Column("damaged", kind="int"),
        Column("largest_batch", kind="bytes", wide=True),
        Column("missing_offsets", "missing", "int", wide=True),
        Column("first_timestamp", "oldest", "time_ms", wide=True),
        Column("largest_step_back_ms", "largest step back (ms)", "int", wide=True),
        Column("append_time_batches", "append time", "int", wide=True),
        Column("idempotent_batches", "idempotent", "int", wide=True),
        Column("transactional_batches", "transactional", "int", wide=True),
        Column("control_batches", "control", "int", wide=True),
        Column("commits", kind="int", wide=True),
        Column("aborts", kind="int", wide=True),
        Column("open_transactions", "open", "int", wide=True),
        Column("damaged_bytes", kind="bytes", wide=True),
        Column("null_keys", kind="int", wide=True),
        Column("headers", kind="int", wide=True),
        Column("key_bytes", kind="bytes", wide=True),
        Column("value_bytes", kind="bytes", wide=True),
        Column("largest_record", kind="bytes", wide=True),
        Column("estimated", kind="list", wide=True),
        Column("topic", wide=True),
        Column("broker", kind="int", wide=True),
        Column("dir", wide=True),
    ]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("What is in each partition of a broker.", "kops log stats /var/lib/kafka"),
        ("Keys, tombstones and compression ratios of a topic.", "kops log stats --deep --topic orders /var/lib/kafka"),
        ("All partitions together, for a program.", "kops log stats --total --format jsonl /var/lib/kafka"),
    ],
)
def stats(
    out: Output,
    paths: Paths,
    topic: Topic = None,
    deep: Deep = False,
    total: Annotated[bool, typer.Option("--total", help="Only one row, for all partitions together.")] = False,
    now_: Now = None,
    jobs: Jobs = 0,
) -> int:
    """Show sizes, codecs, producers, gaps and times of partitions; read-only.

    A row is a partition directory. Headers and checksums are read; with --deep also the records. PER BATCH is the mean number of records,
    RATIO how much larger the data is without compression. Up to 100,000 KEYS and PRODUCERS are counted exactly; larger numbers are
    estimated to about 1 %. GAPS are places where offsets are missing; compaction also leaves gaps. BACK counts batches that are older than
    the batch before them, and FUTURE batches with a timestamp later than now: retention by time keeps their segments. Damaged batches do
    not count in other numbers, and the exit code is then 4.
    """
    from kops.files import OsFiles
    from kops.forensics.questions.reading import find_logs

    now_ms = now(now_)
    found = find_logs(paths, OsFiles(read_only=True), topic or ())
    tell_unread(out, found.unread)
    parts: list[LogStats] = []
    rows = _rows(out, found, parts, now_ms, deep, jobs or None)
    show(out, rows, parts, now_ms, deep=deep, total=total)
    return out.status


def show(out: Output, rows: Iterator[dict[str, Any]], parts: list[LogStats], now_ms: int, *, deep: bool, total: bool) -> None:
    """Print the rows, and the numbers of all together; `parts` are complete when `rows` end. Sets the exit code for damage."""
    from kops.forensics.questions.stats import total_row

    def last() -> dict[str, Any]:
        return total_row(parts, now_ms, deep=deep)

    watch = Watch(out)

    def watched() -> Iterator[dict[str, Any]]:
        for row in rows:
            watch.row(row)
            if not total:
                yield row
        if total or (out.format in ("table", "wide") and len(parts) > 1):
            yield last()

    if out.format in ("json", "yaml") and not total:
        out.document({"partitions": watched(), "total": last}, schema=SCHEMA)
    else:
        out.rows(watched(), columns(deep=deep), schema=SCHEMA, key="partitions")
    watch.end()


class Watch:
    """Looks at the rows as they are printed: damage sets the exit code and gives a warning at the end."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._damaged: list[int] = []

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row, unchanged."""
        if row["damaged"]:
            self._out.status |= PROBLEMS
            self._damaged.append(row["damaged"])
        return row

    def end(self) -> None:
        """Say how much damage there was."""
        if self._damaged:
            ranges = "damaged range" if sum(self._damaged) == 1 else "damaged ranges"
            self._out.warn(f"{sum(self._damaged)} {ranges}; kops log verify shows them")


def _rows(out: Output, found: Found, parts: list[LogStats], now_ms: int, deep: bool, jobs: int | None) -> Iterator[dict[str, Any]]:
    from kops.files import OsFiles
    from kops.forensics.questions.stats import collect, row_of

    with out.progress("stats", sum(each.size for each in found.replicas)) as bar:
        for replica, one, unread in collect(OsFiles(read_only=True), found.replicas, now_ms, deep=deep, jobs=jobs, on_bytes=bar.update):
            tell_unread(out, unread)
            parts.append(one)
            yield row_of(replica, one)
