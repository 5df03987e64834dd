"""`kops log diff`: compares replicas of the same partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.verify import COLORS
from kops.cli.commands.log.verify import human as human_line
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, FAILED, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.replicas.report import DiffReport, PartitionDiff

FINDINGS = [
    Column("severity", style=COLORS.get),
    Column("code"),
    Column("file"),
    Column("position", kind="int"),
    Column("length", kind="int", wide=True),
    Column("base_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("detail"),
    Column("fix", wide=True),
]
REPLICAS = [
    Column("partition"),
    Column("directory"),
    Column("broker", kind="int"),
    Column("start_offset", kind="int"),
    Column("end_offset", kind="int"),
    Column("last_epoch", kind="int"),
    Column("high_watermark", kind="int"),
    Column("batches", kind="int", wide=True),
    Column("bytes", kind="bytes", wide=True),
    Column("damaged", kind="int"),
    Column("missing"),
    Column("loses"),
    Column("committed_lost", kind="int"),
    Column("best"),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Compare the replicas of three brokers.", "kops log diff /broker-1 /broker-2 /broker-3"),
        ("Show which replica to elect, and what would be lost.", "kops log diff --replicas /broker-1/orders-0 /broker-2/orders-0"),
        ("For a program.", "kops log diff --format json /broker-1 /broker-2 | jq .partitions"),
    ],
)
def diff(
    out: Output,
    dirs: Annotated[list[str], typer.Argument(metavar="DIR...", help="Log directories of several brokers, or partition directories.")],
    replicas: Annotated[
        bool, typer.Option("--replicas", help="List the replicas, and what each choice of a leader loses.", show_default=False)
    ] = False,
) -> int:
    """Compare the replicas of each partition, offset by offset; read-only.

    Batches are compared by offset, leader epoch and computed checksum, and by their records if these differ, so compaction and
    retention are not differences. The first divergence of a partition is explained: damage, missing offsets, a replica that is only behind,
    batches that the next fetch truncates (KIP-101), or an unclean election that dropped committed records. --replicas shows each replica
    with the offsets it lacks ("missing"), those lost by electing it ("loses"; "committed_lost" were below a high watermark), and the
    best choice. The table shows the findings, and the replicas of partitions with findings. jsonl and csv have findings, or with --replicas
    the replicas; json and yaml have both.

    0: the replicas agree, or some are only behind. 4: they differ, or are damaged.
    """
    from kops.forensics.replicas.run import diff as run

    if not dirs:
        raise UsageError("name the log directories of several brokers")
    with out.progress("diff") as bar:

        def start(total: int) -> None:
            bar.total = total

        report = run(dirs, on_bytes=bar.update, on_total=start)
    print_diff(out, report, replicas)
    if report.left_out:
        out.resume = f"kops log diff again; {many(len(report.left_out), 'partition')} not compared, from {report.left_out[0]} on"
        raise KeyboardInterrupt
    return out.status


def print_diff(out: Output, report: DiffReport, replicas: bool) -> int:
    """Print a report, the replicas if they are asked for. Returns the exit code."""
    from kops.forensics.replicas.run import SCHEMA

    out.status |= PROBLEMS if report.has_problems else CLEAN
    out.status |= FAILED if any(found.code == "file-unreadable" for found in report.findings) else CLEAN
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
        return out.status
    human = out.format in ("table", "wide")
    if replicas or not human:
        rows = _replicas(report.partitions, human) if replicas else (found.to_json() for found in report.findings)
        out.rows(rows, REPLICAS if replicas else FINDINGS, schema=SCHEMA, key="rows")
    else:
        _tables(out, report, SCHEMA)
    if human:
        _say(out, report)
    return out.status


def _tables(out: Output, report: DiffReport, schema: str) -> None:
    if out.format == "wide":
        out.rows((found.to_json() for found in report.findings), FINDINGS, schema=schema)
    else:
        for found in report.findings:
            if found.is_problem or out.verbosity > 0:
                out.line(human_line(out, found))
    shown = [each for each in report.partitions if each.first_divergence is not None]
    if shown:
        out.line()
        out.rows(_replicas(shown, True), REPLICAS, schema=schema)


def _replicas(partitions: list[PartitionDiff], human: bool) -> Iterator[dict[str, Any]]:
    for partition in partitions:
        for each in partition.replicas:
            row = {"partition": partition.name, **each.to_json()}
            if human:
                row["missing"], row["loses"] = _ranges(each.missing), _ranges(each.loses)
                row["best"] = "best" if each.best else None
            yield row


def _ranges(ranges: list[tuple[int, int]]) -> str | None:
    """Format the first of these ranges for a message."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:8]]
    return ", ".join([*shown, *(["…"] if len(ranges) > 8 else [])]) or None


def _say(out: Output, report: DiffReport) -> None:
    for partition in report.partitions:
        first = partition.first_divergence
        if first is None:
            continue
        out.say(f"{partition.name}: the first difference is at offset {first.offset}: {first.code}")
        if partition.lost:
            out.say(f"{partition.name}: no replica has offsets {_ranges(partition.lost)}")
    for path in report.alone:
        out.detail(f"{path}: there is no other replica")
    count = len(report.partitions)
    differing = sum(each.first_divergence is not None for each in report.partitions)
    out.say(f"{many(count, 'partition')} compared: {'no difference' if not differing else f'{differing} with differences'}")
