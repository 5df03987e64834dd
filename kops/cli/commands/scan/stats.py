"""`kops scan stats`: the numbers of `kops log stats`, for every replica of a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.log.questions.reading import Topic, now
from kops.cli.commands.log.questions.stats import SCHEMA, Deep, Now, Watch, columns
from kops.cli.commands.scan.running import (
    TASK_BYTES,
    As,
    Conf,
    Master,
    OnSpark,
    Out,
    Paths,
    Rows,
    StateDir,
    TaskBytes,
    kept_state,
    run,
    tell_state,
)
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("What is on three brokers.", "kops scan stats /data/broker-1 /data/broker-2 /data/broker-3"),
        ("Keys, tombstones and compression ratios of a topic.", "kops scan stats --deep --topic orders /data"),
        ("For a program, with all columns.", "kops scan stats --format jsonl /data"),
    ],
)
def stats(
    out: Output,
    paths: Paths,
    topic: Topic = None,
    deep: Deep = False,
    total: Annotated[bool, typer.Option("--total", help="Only one row, for all replicas together.")] = False,
    now_: Now = None,
    target: Out = None,
    as_: As = None,
    state: StateDir = None,
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Show sizes, codecs, producers, gaps and times of all replicas, on Spark; read-only.

    A row is a replica. The columns are those of kops log stats, whose help explains them. Headers and checksums are read, with --deep also
    the records. The exit code is 4 if anything is damaged.
    """
    now_ms = now(now_)
    kept = kept_state(state, paths)

    def job(spark: Any) -> Any:
        from kops.spark.jobs.statistics import stats as scan

        return scan(spark, paths, topics=topic or (), deep=deep, total=total, now_ms=now_ms, task_bytes=task_bytes, state=kept)

    watch = Watch(out)
    rows = Rows(columns(deep=deep), SCHEMA, "partitions", watch.row, "damaged > 0")
    run(out, "stats", OnSpark(master, conf, task_bytes), job, rows, (target, as_))
    watch.end()
    tell_state(out, kept)
    return out.status
