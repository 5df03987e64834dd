"""`kops log carve`: batches found in disk images and other files of unknown contents."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FIXED, INTERRUPTED, LOST
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.carve.run import CarveReport

COLUMNS = [
    Column("log"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("fragments", kind="int"),
    Column("gaps", wide=True),
    Column("output", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Everything of Kafka's on a disk image.", "kops log carve disk.img --out /rescue"),
        ("An image of which it is known what it held.", "kops log carve lost.bin --out /rescue --topic-hint orders-0"),
        ("Go on after an interruption.", "kops log carve --resume disk.img --out /rescue"),
    ],
)
def carve(
    out: Output,
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Disk images, devices, or files of unknown contents.")],
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help="Where to write: an empty directory or a new one.")],
    topic_hint: Annotated[
        str | None,
        typer.Option("--topic-hint", metavar="NAME-PARTITION", help="Everything is of this partition.", show_default=False),
    ] = None,
    min_magic: Annotated[
        int, typer.Option("--min-magic", metavar="0|1|2", help="The oldest format to look for; 2 is the fastest.", min=0, max=2)
    ] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue where an earlier run ended.", show_default=False)] = False,
    force: Annotated[bool, typer.Option("--force", help="Write even if the directory is not empty.", show_default=False)] = False,
) -> int:
    """Find intact batches in disk images and other files, and make logs of them.

    Nothing but the bytes is used: no file system, no names. A batch of format v0, v1 or v2 is taken when its checksum is right. A batch in
    the value of an intact one is only counted. Batches that stand together make a fragment. Fragments are joined to logs by their offsets,
    leader epochs and the sequences of their producers. Where these do not decide, they stay apart. With --topic-hint, offsets alone
    decide, also across holes. The same batches found twice are in the output once.

    Each log is a directory DIR/carved-N (the largest one has the name of the hint), with segments, indexes, producer snapshots and
    leader-epoch-checkpoint, as a broker has them after a clean stop. DIR/kops-carve.fragments.jsonl says where in the images each fragment
    was found and where it went. The state is saved every 256 MiB for --resume. The images are only read. Unreadable places of a device are
    passed over.

    0: all batches found make whole logs. 1: some damage was passed over. 64: logs have holes, or damaged batches were seen.
    """
    if resume and force:
        raise UsageError("give only one of --resume and --force")
    from kops.forensics.carve.run import SCHEMA
    from kops.forensics.carve.run import carve as run

    more = [*(["--topic-hint", topic_hint] if topic_hint else []), *(["--min-magic", str(min_magic)] if min_magic else [])]
    out.resume = "kops log carve --resume " + shlex.join([*images, "--out", out_dir, *more])
    with out.progress("carve") as bar:

        def total(size: int) -> None:
            bar.total = size

        report = run(
            images,
            out_dir,
            topic_hint=topic_hint,
            min_magic=min_magic,
            resume=resume,
            force=force,
            on_bytes=bar.update,
            on_total=total,
        )
    status = _status(report)
    out.status |= status
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        rows = report.to_json()["logs"]
        if out.format in ("table", "wide"):
            for row in rows:
                row["gaps"] = ", ".join(f"{first}-{last}" for first, last in row["gaps"]) or None
        out.rows(rows, COLUMNS, schema=SCHEMA, key="logs")
    _say(out, report)
    return status


def _status(report: CarveReport) -> int:
    lossy = report.damaged or any(log.gaps for log in report.logs)
    status = LOST if lossy else FIXED if report.unreadable else CLEAN
    return status | (INTERRUPTED if report.interrupted else CLEAN)


def _say(out: Output, report: CarveReport) -> None:
    for log in report.logs:
        for note in log.notes:
            out.detail(f"{log.name}: {note}")
    for image, start, end in report.unreadable:
        out.warn(f"{image}: bytes {start} to {end - 1} cannot be read")
    batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
    out.say(
        f"{batches} in {report.fragments:,} fragments, {len(report.logs):,} logs; {report.copies:,} fragments are copies, "
        f"{report.nested:,} batches are in values of others, {report.damaged:,} are damaged"
    )
    if report.interrupted:
        out.warn(f"interrupted; what is in {report.out} so far is whole. To go on: {out.resume}")
