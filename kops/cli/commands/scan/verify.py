"""`kops scan verify`: makes the checks of `kops log verify` on a Spark cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.verify import print_report
from kops.cli.commands.scan.running import TASK_BYTES, Conf, Master, OnSpark, TaskBytes
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Three brokers' directories, on all cores of this machine.", "kops scan verify /data/broker-1 /data/broker-2 /data/broker-3"),
        (
            "On a standalone cluster whose workers see the same paths.",
            "kops scan verify --master spark://127.0.0.1:7077 --level deep /data",
        ),
        ("The findings as lines of JSON.", "kops scan verify --format jsonl /data | head"),
    ],
)
def verify(
    out: Output,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Log directories, partition directories or files, at paths that every worker sees."),
    ],
    level: Annotated[str, typer.Option("--level", metavar="quick|crc|deep|full", help="How thoroughly to check.")] = "crc",
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Verify a whole cluster's log directories on Spark; read-only.

    Levels, findings, output and exit codes are those of kops log verify. Tasks read parts of segments, and the
    driver derives the findings. The command starts a Spark session, on this machine unless --master is given; under spark-submit it uses
    the existing session. Needs kops[spark].
    """
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.verify import scan_verify

    report = in_session(
        OnSpark(master, conf, task_bytes).start("verify", light=True),
        lambda spark: scan_verify(spark, paths, level, task_bytes=task_bytes),
    )
    print_report(out, report)
    return out.status
