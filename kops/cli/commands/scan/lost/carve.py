"""`kops scan carve`: finds batches in large or many disk images."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.lost.carve import Force, LargeOffsets, MinMagic, Resume, TopicHint, print_report, resume_line
from kops.cli.commands.scan.running import Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.errors import UsageError


@scan_command(
    examples=[
        ("The disks of three brokers, on all cores of this machine.", "kops scan carve disk-1.img disk-2.img disk-3.img --out /rescue"),
        (
            "Images in a store, on a standalone cluster.",
            "kops scan carve --master spark://127.0.0.1:7077 's3://disks/*.img' --out s3://disks/rescued",
        ),
        ("Continue after an interruption.", "kops scan carve --resume disk-1.img disk-2.img disk-3.img --out /rescue"),
    ],
)
def carve(
    out: Output,
    scan: Scan,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE...",
            help="Disk images, devices, or files of unknown contents, at paths that every worker sees, or URLs (s3://…).",
        ),
    ],
    out_dir: Annotated[
        str,
        typer.Option(
            "--out", metavar="DIR", help="Where to write: an empty directory or a new one, at a path that every worker sees, or a URL."
        ),
    ],
    topic_hint: TopicHint = None,
    min_magic: MinMagic = 0,
    large_offsets: LargeOffsets = False,
    resume: Resume = False,
    force: Force = False,
) -> int:
    """Find intact batches in disk images and other files, and make logs of them, on Spark.

    Options, output and exit codes are those of kops log carve, whose help explains them. Tasks read ranges of the images, and the driver
    joins what they found. Tasks write the logs, and rename them into place, so failed or repeated tasks leave no partial output. If a log
    cannot be written, the exit code includes 8, and the others continue. Ranges and logs that are complete are kept for --resume.
    Needs kops[spark].

    0: all batches form complete logs. 1: some damage was skipped. 8: a log failed. 64: logs have gaps, or damaged batches were found.
    """
    if resume and force:
        raise UsageError("give only one of --resume and --force")
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.lost.carve import scan_carve

    out.resume = resume_line(
        "kops scan carve", images, out_dir, topic_hint, min_magic, large_offsets=large_offsets, more=scan.where.words()
    )
    report = in_session(
        scan.start(out, light=True),
        lambda spark: scan_carve(
            spark,
            images,
            out_dir,
            topic_hint=topic_hint,
            min_magic=min_magic,
            large_offsets=large_offsets,
            resume=resume,
            force=force,
            task_bytes=scan.where.task_bytes,
        ),
    )
    return print_report(out, report)
