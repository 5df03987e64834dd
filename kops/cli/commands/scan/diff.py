"""`kops scan diff`: compares the replicas of a cluster's partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.scan.running import Paths, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    keeps=True,
    examples=[
        ("Where the replicas of a cluster differ.", "kops scan diff /data/broker-1 /data/broker-2 /data/broker-3"),
        ("What each choice of a leader loses.", "kops scan diff --replicas --format jsonl /data/broker-1 /data/broker-2 /data/broker-3"),
    ],
)
def diff(
    out: Output,
    scan: Scan,
    paths: Paths,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="List the replicas, and what each choice of a leader loses.", show_default=False)
    ] = False,
) -> int:
    """Compare the replicas of all partitions of a cluster, on Spark; read-only.

    Findings, output and exit codes are those of kops log diff. A task compares all replicas of a partition; those of a large
    partition are read by several tasks.
    """
    from kops.cli.commands.log.replicas.diff import print_diff
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.diff import scan_diff

    report = in_session(scan.start(out, light=True), lambda spark: scan_diff(spark, paths, **scan.options))
    return print_diff(out, report, replicas)
