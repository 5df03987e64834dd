"""`kops log carve`: finds batches in disk images and other files of unknown contents."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED, FIXED, INTERRUPTED, LOST
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.carve.run import CarveReport

TopicHint = Annotated[
    str | None,
    typer.Option("--topic-hint", metavar="NAME-PARTITION", help="The partition that all batches belong to.", show_default=False),
]
MinMagic = Annotated[
    int, typer.Option("--min-magic", metavar="0|1|2", help="The oldest format to look for; 2 is the fastest.", min=0, max=2)
]
LargeOffsets = Annotated[
    bool,
    typer.Option("--large-offsets", help="Also look for v2 batches at offsets of 2^48 and more; slower.", show_default=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue where an earlier run ended.", show_default=False)]
Force = Annotated[
    bool,
    typer.Option("--force", help="Write even if the directory is not empty. No other directory in it is replaced.", show_default=False),
]
COLUMNS = [
    Column("log"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("fragments", kind="int"),
    Column("gaps"),
    Column("output", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All batches on a disk image.", "kops log carve disk.img --out /rescue"),
        ("An image of a known partition.", "kops log carve lost.bin --out /rescue --topic-hint orders-0"),
        ("Continue after an interruption.", "kops log carve --resume disk.img --out /rescue"),
    ],
)
def carve(
    out: Output,
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Disk images, devices, or files of unknown contents.")],
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help="Where to write: an empty directory or a new one.")],
    topic_hint: TopicHint = None,
    min_magic: MinMagic = 0,
    large_offsets: LargeOffsets = False,
    resume: Resume = False,
    force: Force = False,
) -> int:
    """Find intact batches in disk images and other files, and make logs of them.

    The command uses only the bytes, not file names or a file system. It takes batches of the formats v0, v1 and v2 with a correct checksum.
    A batch in the value of an intact one is only counted. Adjacent batches form a fragment. Fragments are joined into logs by their
    offsets, leader epochs and producer sequences. If these do not decide, fragments stay separate. With --topic-hint, offsets alone decide,
    even across gaps. Batches that are found twice are written once.

    Each log is a directory DIR/carved-N (the largest one has the name of the hint), with segments, indexes, producer snapshots and
    leader-epoch-checkpoint, as a broker leaves them after a clean stop. DIR/kops-carve.fragments.jsonl lists where each fragment
    was found and where it was written. The state is saved every 256 MiB for --resume. The images are only read. Unreadable ranges of a
    device are skipped.

    0: all batches form complete logs. 1: some damage was skipped. 64: logs have gaps, or damaged batches were found.
    """
    if resume and force:
        raise UsageError("give only one of --resume and --force")
    from kops.forensics.carve.run import carve as run

    out.resume = resume_line("kops log carve", images, out_dir, topic_hint, min_magic, large_offsets=large_offsets)
    with out.progress("carve") as bar:
        report = run(
            images,
            out_dir,
            topic_hint=topic_hint,
            min_magic=min_magic,
            large_offsets=large_offsets,
            resume=resume,
            force=force,
            on_bytes=bar.update,
            on_total=lambda size: setattr(bar, "total", size),
        )
    return print_report(out, report)


def resume_line(
    words: str,
    images: Sequence[str],
    out_dir: str,
    topic_hint: str | None,
    min_magic: int,
    *,
    large_offsets: bool,
    more: Sequence[str] = (),
) -> str:
    """Return the command that continues an interrupted run with the same options."""
    options = ["--topic-hint", topic_hint] if topic_hint else []
    options += (["--min-magic", str(min_magic)] if min_magic else []) + (["--large-offsets"] if large_offsets else [])
    return f"{words} --resume {shlex.join([*images, '--out', out_dir, *options, *more])}"


def print_report(out: Output, report: CarveReport) -> int:
    """Print what was found, and return the exit code."""
    from kops.forensics.carve.run import SCHEMA

    out.status |= _status(report)
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        rows = report.to_json()["logs"]
        if out.format in ("table", "wide"):
            for row in rows:
                row["gaps"] = ", ".join(f"{first}-{last}" for first, last in row["gaps"]) or None
        out.rows(rows, COLUMNS, schema=SCHEMA, key="logs")
    _say(out, report)
    return out.status


def _status(report: CarveReport) -> int:
    lossy = report.damaged or any(log.gaps for log in report.logs)
    status = LOST if lossy else FIXED if report.unreadable else CLEAN
    return status | (INTERRUPTED if report.interrupted else CLEAN) | (FAILED if report.failed else CLEAN)


def _say(out: Output, report: CarveReport) -> None:
    from kops.cli.printing.text import many

    for log in report.logs:
        for note in log.notes:
            out.detail(f"{log.name}: {note}")
        if log.failure is not None:
            out.warn(f"{log.name}: not written: {log.failure}")
    for image, start, end in report.unreadable:
        out.warn(f"{image}: bytes {start} to {end - 1} cannot be read")
    out.say(
        f"{many(report.batches, 'batch')} in {many(report.fragments, 'fragment')}, {many(len(report.logs), 'log')}; "
        f"fragments that are copies: {report.copies:,}, batches in values of others: {report.nested:,}, damaged batches: {report.damaged:,}"
    )
    if report.failed:
        out.warn(f"the other logs are complete. To try again: {out.resume}")
    if report.interrupted:
        out.warn(f"interrupted; the logs in {report.out} are complete so far. To continue: {out.resume}")
