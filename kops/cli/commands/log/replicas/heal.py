"""`kops log heal`: fills damaged and missing ranges from other replicas, in place, with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.repair import DryRun, IndexInterval, JournalDir
from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, FIXED, LOST, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.heal.run import HealReport
    from kops.forensics.repair.run import Mode

COLUMNS = [Column("action"), Column("path"), Column("lossless", wide=True), Column("why")]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show what would be filled, and from where.", "kops log heal /broker-2 --from /broker-1 /broker-3"),
        ("Fill the damage.", "kops log heal -y /broker-2 --from /broker-1 /broker-3"),
        ("One partition, from a copy of another broker's replica.", "kops log heal -y /broker-2/orders-0 --from /mnt/broker-1/orders-0"),
    ],
    takes_rest="--from",
)
def heal(
    out: Output,
    target: Annotated[str, typer.Argument(metavar="DIR", help="The log directory or partition directory to heal.")],
    sources: Annotated[
        list[str],
        typer.Option(
            "--from", metavar="DIR", help="Log or partition directories of other replicas. Every DIR after --from is one. Repeatable."
        ),
    ],
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it.", show_default=False)] = False,
    journal: JournalDir = None,
    index_interval_bytes: IndexInterval = None,
) -> int:
    """Fill damage and gaps of a replica with intact batches of other replicas, while no broker runs on it.

    A batch is used only if it belongs to the history of the damaged replica: both continue with the same batch after the gap, or
    leader-epoch-checkpoint has the batch's leader epoch at its offset. Batches of a diverged history are never used, and intact batches
    are never replaced. A torn tail and lost last segments are filled up to the end of the other replica. A replica that is only behind is
    left to replication. Other findings of verify are repaired as by kops log repair -y: indexes, snapshots and epochs are
    rebuilt, and offsets that no replica has are filled with an empty batch. A later heal from another replica can fill them.

    Without -y only the plan is shown; at a terminal the command then asks for confirmation. It locks the log directory. The directories
    of --from are only read. A journal next to the log directory keeps everything that is replaced; kops log repair --rollback JOURNAL
    undoes it.

    1: healed. 4: the plan has steps, or problems remain. 64: no replica has some of the offsets.
    """
    if dry_run and yes:
        raise UsageError("give only one of -n and -y")
    from kops.forensics.heal.run import heal as run

    # Only this directory is written to, so the output names it.
    out.say(f"heals {target} from {', '.join(sources)}")

    def go(mode: Mode) -> HealReport:
        if mode != "plan":
            out.resume = "the next kops log heal or kops log repair -y continues it; kops log repair --rollback JOURNAL undoes it"
        return run(
            [target],
            sources,
            mode=mode,
            journal=journal,
            index_interval=index_interval_bytes,
            on_step=lambda number, total, step: out.detail(f"{number}/{total} {step.action} {step.path}"),
        )

    report = go("all" if yes else "plan")
    ask = not (yes or dry_run) and report.repair.steps and out.format in ("table", "wide") and can_ask()
    _print(out, report, hint=not ask)
    if ask and out.confirm(f"Do {_steps(report.repair.steps)}?"):
        report = go("all")
        _say(out, report)
    out.status |= _status(report)
    return out.status


def _status(report: HealReport) -> int:
    repair = report.repair
    is_plan = repair.mode == "plan"
    status = FIXED if repair.fixed and not is_plan else CLEAN
    if repair.left or (is_plan and (repair.resumed or any(plan.findings or plan.steps for plan in repair.plans))):
        status |= PROBLEMS
    return status | (LOST if report.lossy else CLEAN)


def _print(out: Output, report: HealReport, hint: bool) -> None:
    from kops.forensics.heal.run import SCHEMA

    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
        return
    rows: list[dict[str, Any]] = [row for plan in report.repair.plans for row in plan.to_json()["steps"]]
    if rows or out.format not in ("table", "wide"):
        out.rows(rows, COLUMNS, schema=SCHEMA, key="steps")
    _say(out, report)
    if report.repair.mode == "plan" and report.repair.steps and hint:
        out.say(f"{_steps(report.repair.steps)}; nothing was written. -y does them")


def _say(out: Output, report: HealReport) -> None:
    repair = report.repair
    is_plan = repair.mode == "plan"
    for path in repair.resumed:
        out.say(f"an interrupted repair {'waits to be finished' if is_plan else 'was finished'}: {path}")
    for path in report.alone:
        out.warn(f"{path}: no other replica was given, so it is only repaired")
    for each in report.partitions:
        for first, last, source in each.filled:
            out.say(f"{each.directory}: offsets {_range(first, last)} {'can come' if is_plan else 'come'} from {source}")
        for first, last in each.lost:
            out.say(f"{each.directory}: no replica has offsets {_range(first, last)}, or none of the same history")
    for plan in repair.plans:
        for note in plan.notes:
            out.warn(note)
        if plan.empty and not plan.findings:
            out.say(f"{plan.log_dir}: nothing to do")
    for done in repair.journals:
        out.say(f"{_steps(len(done.steps))} done; journal: {done.path}")
    for found in repair.left:
        where = found.file if found.position is None else f"{found.file}:{found.position}"
        out.say(f"left: {found.code} {where}: {found.detail}")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _steps(count: int) -> str:
    return many(count, "step")
