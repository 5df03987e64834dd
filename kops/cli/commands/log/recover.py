"""`kops log recover`: writes every intact batch of damaged logs to another directory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED, FIXED, INTERRUPTED, LOST
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.recover.copies.merge import Conflict
    from kops.forensics.recover.report import RecoverReport
    from kops.forensics.recover.run import Shape

COLUMNS = [
    Column("partition"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("lost"),
    Column("gaps", wide=True),
    Column("output", wide=True),
]

As = Annotated[str, typer.Option("--as", metavar="segment|jsonl|parquet", help="What to write: directories of segments, or records.")]
Renumber = Annotated[bool, typer.Option("--renumber", help="Renumber the records, so that offsets have no gaps.", show_default=False)]
NoLeftovers = Annotated[bool, typer.Option("--no-leftovers", help="Ignore .swap, .cleaned and .deleted files.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Write even if the directory is not empty; partitions of the same name are replaced.")]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All intact batches of a log directory.", "kops log recover /var/lib/kafka --out /rescue"),
        ("One partition, as records.", "kops log recover /var/lib/kafka/orders-0 --out /rescue --as jsonl"),
        ("One partition from two damaged replicas.", "kops log recover /disk1/orders-0 /disk2/orders-0 --out /rescue"),
    ],
)
def recover(
    out: Output,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories or segments; also several copies.")
    ],
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help="Where to write: an empty directory or a new one.")],
    as_: As = "segment",
    keep_gaps: Annotated[
        bool, typer.Option("--keep-gaps", help="Keep each batch at its offset (the default).", show_default=False)
    ] = False,
    renumber: Renumber = False,
    no_leftovers: NoLeftovers = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue where an earlier run ended.", show_default=False)] = False,
    force: Force = False,
) -> int:
    """Copy every intact batch into a new directory, past any damage, keeping its offset.

    The input is never changed. Batches come from the live segments first. Gaps are filled from .swap, .cleaned and .deleted files, from
    -future and -stray directories and from the other named copies. If two batches have the same offsets, the one with the later
    leader epoch is kept, and the report names the conflict. Segments are written to DIR/topic-partition/ as a broker leaves them after a
    clean stop, with indexes, producer snapshots, leader-epoch-checkpoint and partition.metadata; records are written to
    DIR/topic-partition.jsonl or .parquet.
    DIR/kops-recover.json lists what was kept and lost, and from which files. Lost offsets remain gaps. A broker reads across them, and
    kops log verify reports them as offset-gap.

    0: nothing was damaged. 1: there was damage, and all records were saved. 64: records are lost.
    """
    if keep_gaps and renumber:
        raise UsageError("give only one of --keep-gaps and --renumber")
    if resume and force:
        raise UsageError("give only one of --resume and --force")
    shape = chosen_shape(as_)
    from kops.forensics.recover.run import recover as run

    out.resume = resume_line("kops log recover", paths, out_dir, as_, renumber=renumber, no_leftovers=no_leftovers)
    with out.progress("recover") as bar:
        report = run(
            paths,
            out_dir,
            shape=shape,
            renumber=renumber,
            leftovers=not no_leftovers,
            force=force,
            resume=resume,
            on_bytes=bar.update,
        )
    return print_report(out, report)


def chosen_shape(name: str) -> Shape:
    """Return what `--as` names. Raises UsageError."""
    from kops.forensics.recover.run import SHAPES

    for shape in SHAPES:
        if shape == name:
            return shape
    raise UsageError(f"--as {name}: not one of {', '.join(SHAPES)}")


def resume_line(
    command: str, paths: Sequence[str], out_dir: str, as_: str, *, renumber: bool, no_leftovers: bool, more: Sequence[str] = ()
) -> str:
    """Return the command that continues an interrupted run with the same options."""
    options = [*(["--as", as_] if as_ != "segment" else []), *(["--renumber"] if renumber else [])]
    options += [*(["--no-leftovers"] if no_leftovers else []), *more]
    return f"{command} --resume {shlex.join([*paths, '--out', out_dir, *options])}"


def print_report(out: Output, report: RecoverReport) -> int:
    """Print what was recovered, and return the exit code."""
    from kops.forensics.recover.run import SCHEMA

    status = _status(report)
    out.status |= status
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        out.rows(_rows(report, human=out.format in ("table", "wide")), COLUMNS, schema=SCHEMA, key="partitions")
    _say(out, report)
    return status


def _status(report: RecoverReport) -> int:
    status = LOST if report.lossy else FIXED if report.damaged else CLEAN
    return status | (INTERRUPTED if report.interrupted else CLEAN) | (FAILED if report.failed else CLEAN)


def _rows(report: RecoverReport, *, human: bool) -> Iterator[dict[str, Any]]:
    for entry in report.partitions:
        row = entry.to_json()
        if human:
            row["lost"], row["gaps"] = _ranges(entry.missing), _ranges(entry.gaps)
        yield row


def _ranges(ranges: list[tuple[int, int]]) -> str | None:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or None


def _say(out: Output, report: RecoverReport) -> None:
    for path in (*report.unreadable, *report.skipped):
        out.warn(path)
    if not report.partitions and not report.interrupted:
        out.warn("nothing to recover: no segment was found")
    for entry in report.partitions:
        for damage in entry.damaged:
            if damage["code"] == "file-unreadable":
                first, size = damage["position"], damage["length"]
                out.warn(f"{damage['file']}: {damage['reason']}; bytes {first} to {first + max(size, 1) - 1} are not recovered")
                continue
            out.detail(f"{damage['file']}:{damage['position']}: {damage['code']}, {damage['length']} bytes")
        for conflict in entry.conflicts:
            out.warn(f"{entry.name}: {_conflict_words(conflict)}")
        for note in entry.notes:
            out.detail(note)
        if entry.failure is not None:
            out.warn(f"{entry.name}: not recovered: {entry.failure}")
    if report.interrupted:
        out.warn(f"interrupted; the partitions in {report.out} are complete so far. To continue: {out.resume}")


def _conflict_words(found: Conflict) -> str:
    where = f"offsets {found.first} to {found.last}" if found.first < found.last else f"offset {found.first}"
    if found.why == "contents":
        return f"{where} differ in {found.copy}; left out there"
    older = f"{where} of {found.copy} are of leader epoch {found.other_epoch}"
    if found.why == "behind-the-end":
        return f"{older}, behind the end of epoch {found.kept_epoch}; kept, with that epoch"
    return f"{older}, overruled by epoch {found.kept_epoch}; left out"
