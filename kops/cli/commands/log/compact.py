"""`kops log compact`: compacts logs as a broker's cleaner does, into a new directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.lines import topic_settings
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED, INTERRUPTED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.compact import CompactReport

COLUMNS = [
    Column("partition"),
    Column("first_dirty_offset", "dirty from", kind="int"),
    Column("clean_up_to", "clean up to", kind="int"),
    Column("log_end_offset", "end", kind="int", wide=True),
    Column("segments_before", "segments", kind="int", wide=True),
    Column("segments_after", "after", kind="int", wide=True),
    Column("bytes_before", "bytes", kind="bytes"),
    Column("bytes_after", "after", kind="bytes"),
    Column("records_read", "records", kind="int"),
    Column("records_kept", "kept", kind="int"),
    Column("records_without_key", "without key", kind="int", wide=True),
    Column("output", wide=True),
    Column("error", style=lambda _: "red"),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Every log of a log directory.", "kops log compact /var/lib/kafka --out /compacted"),
        (
            "One partition from beginning to end, without tombstones.",
            "kops log compact /var/lib/kafka/users-0 --out /compacted --roll --dirty-from 0 --config delete.retention.ms=0",
        ),
    ],
)
def compact(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories or partition directories.")],
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help="Where to write: an empty directory or a new one.")],
    config: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A topic setting, such as delete.retention.ms.")] = None,
    dirty_from: Annotated[
        int | None,
        typer.Option("--dirty-from", metavar="OFFSET", min=0, help="Start of the dirty part, instead of the checkpoint's offset."),
    ] = None,
    roll: Annotated[bool, typer.Option("--roll", help="Close the active segment first, so that it is cleaned as well.")] = False,
    now: Annotated[int | None, typer.Option("--now", metavar="MS", help="The time (ms) by which tombstones expire (default: now).")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if the directory is not empty; partitions of the same name are replaced.")
    ] = False,
) -> int:
    """Keep the latest record of each key, as a broker's cleaner does, and write the logs to a new directory.

    The input is never written to. Each log is copied, opened as a broker opens it, and cleaned from the offset of cleaner-offset-checkpoint
    (else its start) up to its active segment, an open transaction, or records younger than min.compaction.lag.ms. A log is cleaned however
    small its dirty part is. Tombstones and transaction markers are removed when delete.retention.ms has passed since they were first
    cleaned. Batches that keep all their records do not change. Segments and indexes are the same as Kafka writes. DIR gets the checkpoints
    from which a broker continues.

    0: every log was compacted. 4: a log was left out because of damage or because it cannot be compacted.
    """
    import time

    from kops.forensics.compact import SCHEMA, CompactOptions
    from kops.forensics.compact import compact as run

    options = CompactOptions(
        now_ms=int(time.time() * 1000) if now is None else now,
        overrides=topic_settings(config),
        dirty_from=dirty_from,
        roll=roll,
        force=force,
    )
    with out.progress("compact") as bar:
        report = run(paths, out_dir, options, on_bytes=bar.update)
    status = _status(report)
    out.status |= status
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        out.rows(_rows(report), COLUMNS, schema=SCHEMA, key="partitions")
    _say(out, report)
    return status


def _status(report: CompactReport) -> int:
    status = FAILED if report.unreadable else CLEAN
    return status | (PROBLEMS if report.has_problems else CLEAN) | (INTERRUPTED if report.interrupted else CLEAN)


def _rows(report: CompactReport) -> Iterator[dict[str, Any]]:
    return (entry.to_json() for entry in report.partitions)


def _say(out: Output, report: CompactReport) -> None:
    for path in (*report.unreadable, *report.skipped):
        out.warn(path)
    if not report.partitions and not report.interrupted:
        out.warn("nothing to compact: no partition was found")
    if report.interrupted:
        out.warn(f"interrupted; the partitions in {report.out} are complete, the others are missing. To continue, name these with --force")
