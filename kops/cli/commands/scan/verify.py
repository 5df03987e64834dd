"""`kops scan verify`: the checks of `kops log verify`, read by a Spark cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.verify import print_report
from kops.cli.printing.output import Output
from kops.cli.running.options import command
from kops.errors import UsageError


@command(
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
        list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories or files; every worker sees them.")
    ],
    level: Annotated[str, typer.Option("--level", metavar="quick|crc|deep|full", help="How thoroughly to look.")] = "crc",
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master (default: local[*]).", show_default=False)
    ] = None,
    task_bytes: Annotated[int, typer.Option("--task-bytes", metavar="N", min=1, help="About how much one task reads.")] = 512 << 20,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark's.")] = None,
) -> int:
    """Verify a whole cluster's log directories on Spark; read-only.

    Levels, findings, output and exit codes are those of kops log verify, and so is the verdict: tasks read parts of segments, and the
    driver judges. The command starts a Spark session, on this machine unless --master says otherwise; under spark-submit it uses the
    session from there. Needs kops[spark].
    """
    from kops.spark import spark_session
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.verify import scan_verify

    settings: dict[str, str] = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(f"--conf {each}: not a setting of Spark's; allowed: spark.KEY=VALUE")
        settings[key] = value
    report = in_session(
        lambda: spark_session(master, "kops scan verify", settings, light=True),
        lambda spark: scan_verify(spark, paths, level, task_bytes=task_bytes),
    )
    print_report(out, report)
    return out.status
