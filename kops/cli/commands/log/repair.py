"""`kops log repair`: repairs what `verify` finds, in place, with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, FIXED, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.plans.plan import Plan
    from kops.forensics.repair.run import Mode, RepairReport

SCHEMA = "kops.repair/v1"

DRY_RUN_HELP = "Show the plan only, don't ask."
PREEN_HELP = "Do only steps that lose nothing: indexes, snapshots, checkpoints, leftovers, a torn tail."
JOURNAL_HELP = "Directory for journal and backup (default: DIR.kops-journal next to the log directory)."
ROLLBACK_HELP = "Undo the repair that wrote this journal, byte for byte."
FORCE_HELP = "With --rollback: even if files have changed since the repair."
HOLES_HELP = "Leave gaps in the offsets: brokers before 0.11 cannot read empty batches."
INTERVAL_HELP = "index.interval.bytes of the topics (default: inferred from their indexes)."

DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help=DRY_RUN_HELP, show_default=False)]
Preen = Annotated[bool, typer.Option("-p", "--preen", help=PREEN_HELP, show_default=False)]
JournalDir = Annotated[str | None, typer.Option("--journal", metavar="DIR", help=JOURNAL_HELP, show_default=False)]
Rollback = Annotated[str | None, typer.Option("--rollback", metavar="JOURNAL", help=ROLLBACK_HELP, show_default=False)]
Force = Annotated[bool, typer.Option("--force", help=FORCE_HELP, show_default=False)]
KeepHoles = Annotated[bool, typer.Option("--keep-holes", help=HOLES_HELP, show_default=False)]
IndexInterval = Annotated[int | None, typer.Option("--index-interval-bytes", metavar="N", min=0, help=INTERVAL_HELP, show_default=False)]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show the plan.", "kops log repair /var/lib/kafka"),
        ("Repair everything.", "kops log repair -y /var/lib/kafka"),
        (
            "Do only steps that lose nothing, with the journal on another disk.",
            "kops log repair -p --journal /backup /var/lib/kafka/orders-0",
        ),
        ("Undo a repair.", "kops log repair --rollback /var/lib/kafka.kops-journal/20260101T120000.000Z"),
    ],
)
def repair(
    out: Output,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="Log directories or partition directories.")] = None,
    dry_run: DryRun = False,
    preen: Preen = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do everything.", show_default=False)] = False,
    journal: JournalDir = None,
    rollback: Rollback = None,
    force: Force = False,
    keep_holes: KeepHoles = False,
    index_interval_bytes: IndexInterval = None,
) -> int:
    """Repair what verify finds, keeping every intact batch at its offset.

    Damaged and repeated batches and garbage are removed from the logs. Base offsets and leader epochs are corrected if their neighbours
    determine them. Gaps are filled with empty batches, as compaction leaves them. Indexes, producer snapshots, leader epochs, checkpoints
    and partition.metadata are rebuilt if they are wrong. So a broker that starts after a clean stop or a crash loses nothing that is still
    intact. Without -p or -y only the plan is shown; at a terminal the command then asks for confirmation. It locks the log
    directory; while a broker runs, it does nothing.

    The journal keeps everything that is replaced or removed. It is next to the log directory, not in it. The next repair finishes an
    interrupted one; --rollback undoes it.

    A repair exits with 1, and the next verify with 0. It never adds 64: the bytes that it removes from a log were unreadable, and stay in
    the journal. kops log recover lists the lost records.
    """
    if sum((dry_run, preen, yes)) > 1:
        raise UsageError("give only one of -n, -p and -y")
    if rollback is not None:
        return _rollback(out, rollback, paths, dry_run or preen or yes, force)
    if not paths:
        raise UsageError("name the log directories or partition directories to repair, or --rollback a journal")
    from kops.forensics.repair.run import repair as run

    def go(mode: Mode) -> RepairReport:
        if mode != "plan":
            out.resume = "the next kops log repair -y continues it (--journal DIR: on another disk); --rollback JOURNAL undoes it"
        return run(
            paths,
            mode=mode,
            journal=journal,
            index_interval=index_interval_bytes,
            keep_holes=keep_holes,
            on_step=lambda number, total, step: out.detail(f"{number}/{total} {step.action} {step.path}"),
        )

    report = go("all" if yes else "preen" if preen else "plan")
    ask = not (yes or preen or dry_run) and report.steps and out.format in ("table", "wide") and can_ask()
    _print(out, report, hint=not ask)
    if ask and out.confirm(f"Do {_steps(report.steps)}?"):
        report = go("all")
        _say_done(out, report)
    out.status |= _status(report)
    return out.status


def _status(report: RepairReport) -> int:
    status = FIXED if report.fixed and report.mode != "plan" else CLEAN
    planned = report.mode == "plan" and any(plan.findings for plan in report.plans)
    return status | (PROBLEMS if report.left or planned or (report.mode == "plan" and report.resumed) else CLEAN)


def _print(out: Output, report: RepairReport, hint: bool = True) -> None:
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
        return
    columns = [Column("action"), Column("path"), Column("lossless", wide=True), Column("why")]
    rows = [row for plan in report.plans for row in plan.to_json()["steps"]]
    if rows or out.format not in ("table", "wide"):
        out.rows(rows, columns, schema=SCHEMA, key="steps")
    _say_done(out, report)
    if report.mode == "plan" and report.steps and hint:
        out.say(f"{_steps(report.steps)}; nothing was written. -y does them, -p only those that lose nothing")


def _say_done(out: Output, report: RepairReport) -> None:
    for path in report.resumed:
        out.say(f"an interrupted repair {'waits to be finished' if report.mode == 'plan' else 'was finished'}: {path}")
    for plan in report.plans:
        _say_plan(out, report, plan)
    for done in report.journals:
        out.say(f"{_steps(len(done.steps))} done; journal: {done.path}")
    for found in report.left:
        where = found.file if found.position is None else f"{found.file}:{found.position}"
        out.say(f"left: {found.code} {where}: {found.detail}")


def _steps(count: int) -> str:
    return many(count, "step")


def _say_plan(out: Output, report: RepairReport, plan: Plan) -> None:
    for note in plan.notes:
        out.warn(note)
    if plan.lossy_held_back and report.mode == "preen":
        out.say(f"{plan.log_dir}: -p held back some repairs; -y does them")
    if plan.empty and not plan.findings:
        out.say(f"{plan.log_dir}: nothing to do")


def _rollback(out: Output, path: str, paths: list[str] | None, other: bool, force: bool) -> int:
    from kops.files import OsFiles
    from kops.forensics.repair.run import locked, open_journal
    from kops.forensics.repair.run import rollback as run

    if paths or other:
        raise UsageError("--rollback takes the journal alone, without paths, -n, -p or -y")
    files = OsFiles()
    journal = open_journal(files, path)
    out.resume = f"kops log repair --rollback {path}"
    with locked(files, journal.log_dir):
        undone = run(files, journal, force=force)
    out.say(f"{_steps(undone)} undone in {journal.log_dir}" if undone else f"{path}: was undone before")
    return FIXED if undone else CLEAN
