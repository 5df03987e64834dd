"""`kops log index rebuild`: rebuilds indexes from their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.commands.log.verify import status_of
from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FIXED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.index.rebuild import RebuildReport
    from kops.forensics.plans.plan import Step

SCHEMA = "kops.index-rebuild/v1"
COLUMNS = [Column("action"), Column("path"), Column("why")]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show the plan without writing.", "kops log index rebuild -n /var/lib/kafka/orders-0"),
        ("Rebuild wrong indexes without confirmation.", "kops log index rebuild --yes /var/lib/kafka"),
        ("All indexes, as a 4.3 broker would write them.", "kops log index rebuild --all --yes /var/lib/kafka/orders-0"),
    ],
)
def rebuild(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Partition directories or log directories.")],
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Show the plan only.", show_default=False)] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.", show_default=False)] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also correct indexes that a broker would write differently now.", show_default=False)
    ] = False,
    index_interval_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="index.interval.bytes of the topic (default: inferred from its indexes).", show_default=False
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where journal and backup go (default: DIR.kops-journal next to the log directory)."),
    ] = None,
) -> int:
    """Rebuild wrong or missing indexes, byte for byte as a broker writes them.

    Unless --all is given, only indexes that "index check" finds wrong are written. The command locks the log directory; while a broker
    runs, it does nothing (exit code 8). Each index is written to a temporary file, flushed and renamed, with a
    journal that "kops log repair --rollback" undoes. The exit code is 1 if something was repaired, and the next check gives 0. 8 is added
    if a file could not be read, 4 if problems remain.
    """
    from kops.errors import UsageError
    from kops.forensics.index.rebuild import apply_rebuild, plan_rebuild

    report = plan_rebuild(paths, everything=everything, interval=index_interval_bytes)
    for note in report.notes:
        out.warn(note)
    if report.steps and not dry_run:
        if not yes:
            if not can_ask():
                raise UsageError("no terminal for a confirmation: give --yes to write, or -n to show only the plan")
            for step in report.steps:
                out.say(f"{step.action} {step.path}: {step.why}")
            yes = out.confirm(f"Write {_indexes(len(report.steps))}?")
        if yes:

            def on_step(number: int, total: int, step: Step) -> None:
                out.detail(f"{number}/{total} {step.action} {step.path}")

            out.resume = "the next kops log repair continues it; kops log repair --rollback JOURNAL undoes it"
            apply_rebuild(report, paths, journal=journal, on_step=on_step)
    _print(out, report)
    if report.applied:
        out.status |= FIXED
    out.status |= status_of(report.left)
    if report.steps and not report.applied:
        out.status |= PROBLEMS
    return out.status


def _print(out: Output, report: RebuildReport) -> None:
    rows = [{"action": step.action, "path": step.path, "why": step.why, "done": report.applied} for step in report.steps]
    if out.format in ("json", "yaml"):
        left = [found.to_json() for found in report.left]
        journals = [journal.path for journal in report.journals]
        out.document({"steps": rows, "journals": journals, "notes": report.notes, "left": left}, schema=SCHEMA)
    elif rows or out.format != "table":
        out.rows(rows, COLUMNS if out.format == "table" else [*COLUMNS, Column("done")], schema=SCHEMA, key="steps")
    for journal in report.journals:
        out.say(f"{_indexes(len(journal.steps))} written; journal: {journal.path}")
    for found in report.left:
        where = found.file if found.position is None else f"{found.file}:{found.position}"
        out.say(f"left: {found.code} {where}: {found.detail}")
    if not report.steps:
        out.say("no index has to be rebuilt")
    elif not report.applied:
        out.say(f"{_indexes(len(report.steps))} to write; nothing was written")


def _indexes(count: int) -> str:
    return f"{count} index" if count == 1 else f"{count} indexes"
