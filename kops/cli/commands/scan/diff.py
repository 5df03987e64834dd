"""`kops scan diff`: compares the replicas of a cluster's partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.scan.running import TASK_BYTES, Conf, Master, OnSpark, Paths, StateDir, TaskBytes, kept_state, tell_state
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Where the replicas of a cluster differ.", "kops scan diff /data/broker-1 /data/broker-2 /data/broker-3"),
        ("What each choice of a leader loses.", "kops scan diff --replicas --format jsonl /data/broker-1 /data/broker-2 /data/broker-3"),
    ],
)
def diff(
    out: Output,
    paths: Paths,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="List the replicas, and what each choice of a leader loses.", show_default=False)
    ] = False,
    state: StateDir = None,
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Compare the replicas of all partitions of a cluster, on Spark; read-only.

    Findings, output and exit codes are those of kops log diff. A task compares all replicas of a partition; those of a large
    partition are read by several tasks.
    """
    from kops.cli.commands.log.replicas.diff import print_diff
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.diff import scan_diff

    kept = kept_state(state, paths)
    report = in_session(
        OnSpark(master, conf, task_bytes).start(out, "diff", light=True),
        lambda spark: scan_diff(spark, paths, task_bytes=task_bytes, state=kept),
    )
    status = print_diff(out, report, replicas)
    tell_state(out, kept)
    return status
