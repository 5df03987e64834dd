"""`kops scan keys`: shows the keys with the most records."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.scan.running import Paths, Rows, Scan, bytes_shown
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column

SCHEMA = "kops.keys/v1"
COLUMNS = [
    Column("topic"),
    Column("key"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("tombstones", kind="int"),
    Column("partitions", kind="int"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("last_timestamp", kind="time_ms"),
]


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        ("The hot keys of a cluster.", "kops scan keys /data/broker-1 /data/broker-2 /data/broker-3"),
        ("All keys of one topic, as Parquet.", "kops scan keys --topic orders --top 0 --out keys.parquet /data"),
    ],
)
def keys(
    out: Output,
    scan: Scan,
    paths: Paths,
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic.", show_default=False)] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=0, help="The number of keys to show; 0: all.")] = 50,
) -> int:
    """Show the keys with the most records, on Spark; read-only.

    Each key has its counts, sizes and tombstones. One replica of each partition is read: the one with the largest end offset. Keys are text
    in tables and base64 elsewhere. Damage is a warning, and the exit code is then 4.
    """

    def job(spark: Any) -> Any:
        from kops.spark.jobs.statistics import keys as read

        return read(spark, paths, topics=topic or (), top=top or None, **scan.options)

    scan.run(out, job, Rows(COLUMNS, SCHEMA, "keys", bytes_shown(out, "key")))
    return out.status
