"""`kops scan stats`: shows sizes, codecs, producers and damage of every replica of a cluster."""

from __future__ import annotations

from typing import Any

from kops.cli.commands.scan.running import TASK_BYTES, As, Conf, Master, OnSpark, Out, Paths, Rows, TaskBytes, run
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import PROBLEMS

SCHEMA = "kops.stats/v1"
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("broker", kind="int"),
    Column("segments", kind="int"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("codecs", kind="list"),
    Column("producers", kind="int"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("last_timestamp", kind="time_ms"),
    Column("damaged", kind="int"),
    Column("largest_batch", kind="bytes", wide=True),
    Column("control_batches", kind="int", wide=True),
    Column("first_timestamp", kind="time_ms", wide=True),
    Column("damaged_bytes", kind="bytes", wide=True),
    Column("dir", wide=True),
]


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("What is on three brokers.", "kops scan stats /data/broker-1 /data/broker-2 /data/broker-3"),
        ("For a program, with all columns.", "kops scan stats --format jsonl /data"),
    ],
)
def stats(
    out: Output,
    paths: Paths,
    target: Out = None,
    as_: As = None,
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Count batches, records and bytes of every replica, on Spark; read-only.

    A row is a replica: its size, codecs, producers, offsets, times and damage. Only headers and checksums are read, so a compressed
    batch of an old format counts as one record. The exit code is 4 if anything is damaged.
    """

    def job(spark: Any) -> Any:
        from kops.spark.jobs.statistics import stats as scan

        return scan(spark, paths, task_bytes=task_bytes)

    damaged: list[int] = []

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        if row["damaged"]:
            out.status |= PROBLEMS
            damaged.append(row["damaged"])
        return row

    run(out, "stats", OnSpark(master, conf, task_bytes), job, Rows(COLUMNS, SCHEMA, "replicas", shown, "damaged > 0"), (target, as_))
    if damaged:
        out.warn(f"{sum(damaged)} damaged ranges in {len(damaged)} replicas; kops scan verify shows them")
    return out.status
