"""`kops scan stats`: the numbers of `kops log stats`, for every replica of a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.log.questions.reading import Topic, now
from kops.cli.commands.log.questions.stats import SCHEMA, Deep, Now, Watch, columns
from kops.cli.commands.scan.running import Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        ("What is on three brokers.", "kops scan stats /data/broker-1 /data/broker-2 /data/broker-3"),
        ("Keys, tombstones and compression ratios of a topic.", "kops scan stats --deep --topic orders /data"),
        ("For a program, with all columns.", "kops scan stats --format jsonl /data"),
    ],
)
def stats(
    out: Output,
    scan: Scan,
    paths: Paths,
    topic: Topic = None,
    deep: Deep = False,
    total: Annotated[bool, typer.Option("--total", help="Only one row, for all replicas together.")] = False,
    now_: Now = None,
) -> int:
    """Show sizes, codecs, producers, gaps and times of all replicas, on Spark; read-only.

    A row is a replica. The columns are those of kops log stats, whose help explains them. Headers and checksums are read, with --deep also
    the records. The exit code is 4 if anything is damaged.
    """
    now_ms = now(now_)

    def job(spark: Any) -> Any:
        from kops.spark.jobs.statistics import stats as read

        return read(spark, paths, topics=topic or (), deep=deep, total=total, now_ms=now_ms, **scan.options)

    watch = Watch(out)
    rows = Rows(columns(deep=deep), SCHEMA, "partitions", watch.row, "damaged > 0")
    scan.run(out, job, rows)
    watch.end()
    return out.status
