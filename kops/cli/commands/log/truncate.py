"""`kops log truncate`: truncates a partition's log at an offset, with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.commands.log.repair import DryRun, JournalDir
from kops.cli.inputs.lines import clock_ms, parse_config
from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.table import Column
from kops.cli.printing.text import human_bytes, iso_time, many
from kops.cli.running.exit_codes import CLEAN, LOST
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.plans.plan import Plan
    from kops.forensics.truncate import TruncateReport

SCHEMA = "kops.truncate/v1"
COLUMNS = [Column("action"), Column("path"), Column("lossless", wide=True), Column("why")]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show what would be removed.", "kops log truncate -n /var/lib/kafka/orders-0 --to 1000"),
        ("Truncate the log.", "kops log truncate --yes /var/lib/kafka/orders-0 --to 1000"),
    ],
)
def truncate(
    out: Output,
    path: Annotated[str, typer.Argument(metavar="DIR", help="The partition directory, in a log directory.")],
    to: Annotated[int, typer.Option("--to", metavar="OFFSET", min=0, help="The first offset to remove.")],
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.", show_default=False)] = False,
    journal: JournalDir = None,
    config: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A topic setting, such as index.interval.bytes.")] = None,
) -> int:
    """Truncate a partition's log at an offset, as a follower does, while no broker runs.

    Segments, indexes, producer snapshots, leader epochs and the checkpoints of the log directory are the same as after Kafka's truncation.
    Only whole batches are removed or kept: if OFFSET is inside a batch, the log ends before that batch. The plan is shown first. Without
    --yes the command asks at a terminal; without a terminal it only shows the plan. A journal next to the log directory keeps everything
    that is removed; kops log repair --rollback JOURNAL restores it. The command locks the log directory; while a broker runs, it does
    nothing.

    64: records were removed from the log.
    """
    if dry_run and yes:
        raise UsageError("give only one of -n and --yes")
    from kops.files import OsFiles
    from kops.forensics.truncate import plan_truncate
    from kops.forensics.truncate import truncate as run

    settings = parse_config(config)
    plan, report = plan_truncate(OsFiles(read_only=True), path, to, settings, now_ms=clock_ms)
    if not yes or not plan.steps:
        _say_loss(out, report)
    ask = not (yes or dry_run) and bool(plan.steps) and out.format in ("table", "wide") and can_ask()
    if plan.steps and (yes or (ask and out.confirm(f"Cut {path} at {to}?"))):
        out.resume = "kops log repair -y continues it (--journal DIR: on another disk); kops log repair --rollback JOURNAL undoes it"
        plan, report = run(path, to, settings, journal=journal, now_ms=clock_ms)
        _say_loss(out, report)
    out.status |= LOST if report.journal is not None and report.records else CLEAN
    _print(out, plan, report)
    return out.status


def _print(out: Output, plan: Plan, report: TruncateReport) -> None:
    steps = plan.to_json()["steps"]
    if out.format in ("json", "yaml"):
        out.document({**report.to_json(), "steps": steps, "notes": plan.notes}, schema=SCHEMA)
    elif steps or out.format not in ("table", "wide"):
        out.rows(steps, COLUMNS, schema=SCHEMA, key="steps")
    for note in plan.notes:
        out.say(note)
    if report.journal is not None:
        out.say(f"done; journal: {report.journal}")
    elif steps:
        out.say("nothing was written; --yes does it")


def _say_loss(out: Output, report: TruncateReport) -> None:
    if report.first_lost is None:
        out.say(f"{report.directory} ends at {report.log_end_offset}: nothing to cut")
        return
    newest = f", the newest of {iso_time(report.max_timestamp)}" if report.max_timestamp >= 0 else ""
    went = "are gone" if report.journal is not None else "go"
    out.say(
        f"{report.directory}: offsets {report.first_lost} to {report.last_lost} {went}: {many(report.records, 'record')} in "
        f"{many(report.batches, 'batch')}, {human_bytes(report.bytes)}{newest}; the log ends at {report.new_end_offset} instead of "
        f"{report.log_end_offset}"
    )
    if report.damaged:
        out.say(f"damaged places removed with them: {report.damaged}")
