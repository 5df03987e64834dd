"""`kops log undelete`: restores files that Kafka renamed for deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, FAILED, FIXED, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.leftovers.undelete import UndeleteReport

COLUMNS = [Column("action"), Column("path"), Column("target"), Column("why", wide=True)]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show what can be restored.", "kops log undelete -n /var/lib/kafka"),
        ("Restore the deleted segments of a partition.", "kops log undelete -y /var/lib/kafka/orders-0"),
        ("Restore a deleted partition.", "kops log undelete -y /var/lib/kafka/orders-0.bedfa0622697425e891d1c9dd79ba6fd-delete"),
    ],
)
def undelete(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Log directories or partition directories.")],
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Show the plan only, don't ask.", show_default=False)] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.", show_default=False)] = False,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Also segments with missing offsets between them and the log.", show_default=False)
    ] = False,
    journal: Annotated[
        str | None,
        typer.Option("--journal", metavar="DIR", help="Where the journal goes (default: DIR.kops-journal).", show_default=False),
    ] = None,
) -> int:
    """Restore .deleted, .cleaned and .swap segments, and -delete and -stray directories, while no broker runs.

    A segment gets its name back if it is intact, its offsets are not in the log, and it fits the log without a gap. Its indexes and
    snapshots are restored with it, and log-start-offset-checkpoint and leader-epoch-checkpoint get the values of the longer log. A
    directory gets its name back if no other directory has it and the cluster has no other topic of that name. Other files stay where they
    are, and the command gives the reason. Without -y it shows the plan; at a terminal it then asks for confirmation. It locks the log
    directory. kops log repair --rollback JOURNAL undoes everything.

    Raise retention before the broker starts, or it deletes the segments again. 1: something was restored. 4: something was rejected.
    """
    if dry_run and yes:
        raise UsageError("give only one of -n and -y")
    from kops.forensics.leftovers.undelete import undelete as run

    def go(apply: bool) -> UndeleteReport:
        if apply:
            out.resume = "kops log repair -y continues it (--journal DIR: on another disk); kops log repair --rollback JOURNAL undoes it"
        return run(paths, apply=apply, allow_gaps=allow_gaps, journal=journal)

    report = go(yes)
    ask = not (yes or dry_run) and bool(report.steps) and out.format in ("table", "wide") and can_ask()
    _print(out, report)
    if ask and out.confirm(f"Do {many(report.steps, 'step')}?"):
        report = go(True)
        _say_done(out, report)
    elif report.steps and not report.journals:
        out.say("nothing was written; -y does it")
    out.status |= FAILED if report.unreadable else CLEAN
    out.status |= (FIXED if report.journals or report.resumed else CLEAN) | (PROBLEMS if report.refused else CLEAN)
    return out.status


def _print(out: Output, report: UndeleteReport) -> None:
    from kops.forensics.leftovers.undelete import SCHEMA

    rows = [{"target": None, **step} for plan in report.plans for step in plan.to_json()["steps"]]
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    elif rows or out.format not in ("table", "wide"):
        out.rows(rows, COLUMNS, schema=SCHEMA, key="steps")
    for plan in report.plans:
        for note in plan.notes:
            out.warn(note)
    for line in report.unreadable:
        out.warn(line)
    for each in report.refused:
        out.say(f"left: {each.path}: {each.reason}")
    if not rows and not report.refused:
        out.say("there is nothing to restore")
    _say_done(out, report)


def _say_done(out: Output, report: UndeleteReport) -> None:
    for path in report.resumed:
        out.say(f"an interrupted repair was finished: {path}")
    for done in report.journals:
        out.say(f"{len(done.steps)} {'step' if len(done.steps) == 1 else 'steps'} done; journal: {done.path}")
