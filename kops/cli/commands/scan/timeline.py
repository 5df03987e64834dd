"""`kops scan timeline`: shows what happened to the partitions of a cluster, over time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.scan.running import TASK_BYTES, As, Conf, Master, OnSpark, Out, Paths, Rows, TaskBytes, run
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column

SCHEMA = "kops.timeline/v1"
COLUMNS = [
    Column("time", kind="time_ms"),
    Column("event"),
    Column("topic"),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("leader_epoch", "epoch", "int"),
    Column("producer_id", "producer", "int"),
    Column("detail"),
    Column("broker", kind="int", wide=True),
]


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("What happened, by the hour.", "kops scan timeline /data/broker-1 /data/broker-2 /data/broker-3"),
        ("Appends of every minute, for a program.", "kops scan timeline --interval-ms 60000 --format jsonl /data"),
    ],
)
def timeline(
    out: Output,
    paths: Paths,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", metavar="N", min=1, help="The interval over which appends are summed.")
    ] = 3_600_000,
    target: Out = None,
    as_: As = None,
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Show what happened in a cluster over time, on Spark; read-only.

    Events are appends, leader epochs, rolls, ends of transactions and deleted files. Times are those of the batches; they are the clients'
    clocks unless the topic has LogAppendTime. One replica of each partition is read; deleted files are those of all brokers. Damage is a
    warning, and the exit code is then 4.
    """

    def job(spark: Any) -> Any:
        from kops.spark.jobs.timeline import timeline as scan

        return scan(spark, paths, interval_ms=interval_ms, task_bytes=task_bytes)

    run(out, "timeline", OnSpark(master, conf, task_bytes), job, Rows(COLUMNS, SCHEMA, "events"), (target, as_))
    return out.status
