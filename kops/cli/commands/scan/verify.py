"""`kops scan verify`: makes the checks of `kops log verify` on a Spark cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.verify import print_report
from kops.cli.commands.scan.running import Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.text import many


@scan_command(
    examples=[
        ("Three brokers' directories, on all cores of this machine.", "kops scan verify /data/broker-1 /data/broker-2 /data/broker-3"),
        (
            "On a standalone cluster whose workers see the same paths.",
            "kops scan verify --master spark://127.0.0.1:7077 --level deep /data",
        ),
        (
            "Again, reading only what changed since the last time.",
            "kops scan verify --state /var/lib/kops-scan /data/broker-1 /data/broker-2",
        ),
        ("The findings as lines of JSON.", "kops scan verify --format jsonl /data | head"),
    ],
)
def verify(
    out: Output,
    scan: Scan,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Log directories, partition directories or files, at paths that every worker sees, or URLs (s3://…)."
        ),
    ],
    level: Annotated[str, typer.Option("--level", metavar="quick|crc|deep|full", help="How thoroughly to check.")] = "crc",
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="DIR", help="Keep the results here, and read only segments that changed since.", show_default=False
        ),
    ] = None,
) -> int:
    """Verify a whole cluster's log directories on Spark; read-only.

    Levels, findings, output and exit codes are those of kops log verify. Tasks read parts of segments, and the
    driver derives the findings. The command starts a Spark session, on this machine unless --master is given; under spark-submit it uses
    the existing session. Needs kops[spark].

    With --state DIR the results of all segments are kept in DIR. The next scan with the same DIR and level reads only segments whose log or
    index has another size, time or inode. Bit rot changes none of them, so scan without --state from time to time.
    """
    from kops.errors import UsageError
    from kops.forensics.verify.facts.facts import LEVELS
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.verify import scan_verify
    from kops.spark.kept import Kept

    if level not in LEVELS:  # before Spark starts, which takes seconds
        raise UsageError(f"unknown level '{level}': one of {', '.join(LEVELS)}")
    start = scan.start(out, light=True)
    kept: Kept | None = None
    if state is not None:
        kept = Kept(state, level, paths=paths)
        if kept.warning:
            out.warn(kept.warning)
    report = in_session(start, lambda spark: scan_verify(spark, paths, level, task_bytes=scan.where.task_bytes, kept=kept))
    print_report(out, report)
    if kept is not None:
        out.say(f"kops: {many(kept.reused, 'segment')} unchanged since an earlier scan, {kept.read:,} read ({kept.bytes_read:,} bytes)")
    return out.status
