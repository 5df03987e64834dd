"""`kops scan grep`: finds records in all partitions of a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.scan.running import TASK_BYTES, As, Conf, Master, OnSpark, Out, Paths, Rows, TaskBytes, bytes_shown, run
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column

SCHEMA = "kops.grep/v1"
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("timestamp", kind="time_ms"),
    Column("key"),
    Column("value"),
    Column("headers", kind="list", wide=True),
    Column("leader_epoch", "epoch", "int", wide=True),
    Column("producer_id", "producer", "int", wide=True),
    Column("producer_epoch", kind="int", wide=True),
    Column("sequence", kind="int", wide=True),
    Column("path", wide=True),
    Column("broker", kind="int", wide=True),
]

Text = str | None
Number = int | None


def option(name: str, metavar: str, help: str) -> Any:
    """An option without a default."""
    return typer.Option(name, metavar=metavar, help=help, show_default=False)


@scan_command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Every record of a customer.", "kops scan grep --key '^customer-17$' /data/broker-1 /data/broker-2 /data/broker-3"),
        ("What was written in a quarter of an hour.", "kops scan grep --from-time 2026-11-21T03:00Z --to-time 2026-11-21T03:15Z /data"),
        ("Values with a word, as Parquet.", "kops scan grep --value timeout --topic logs --out found.parquet /data"),
    ],
)
def grep(
    out: Output,
    paths: Paths,
    key: Annotated[Text, option("--key", "RE", "Only records whose key matches this regular expression.")] = None,
    value: Annotated[Text, option("--value", "RE", "Only records whose value matches this regular expression.")] = None,
    header: Annotated[list[str] | None, option("--header", "K=V", "Only records with this header; K alone: with any value of it.")] = None,
    topic: Annotated[list[str] | None, option("--topic", "T", "Only this topic.")] = None,
    from_offset: Annotated[Number, option("--from-offset", "N", "Only records from this offset on.")] = None,
    to_offset: Annotated[Number, option("--to-offset", "N", "Only records up to this offset.")] = None,
    from_time: Annotated[Text, option("--from-time", "TIME", "Only records from this time on: ms, or ISO.")] = None,
    to_time: Annotated[Text, option("--to-time", "TIME", "Only records up to this time.")] = None,
    pid: Annotated[Number, option("--pid", "N", "Only records of this producer id.")] = None,
    epoch: Annotated[Number, option("--epoch", "N", "Only records of this producer epoch.")] = None,
    leader_epoch: Annotated[Number, option("--leader-epoch", "N", "Only batches of this leader epoch.")] = None,
    target: Out = None,
    as_: As = None,
    master: Master = None,
    task_bytes: TaskBytes = TASK_BYTES,
    conf: Conf = None,
) -> int:
    """Find records by key, value, header, offset, time or producer, on Spark; read-only.

    The filters are those of kops log dump, and a record must pass all of them. A regular expression may match anywhere in the bytes. One
    replica of each partition is read. Keys and values are text in tables and base64 elsewhere. Damage is a warning, and the exit code is
    then 4.
    """
    from kops.forensics.dump.filters import RecordFilter, parse_headers, parse_key, parse_time

    wanted = RecordFilter(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=None if from_time is None else parse_time(from_time, "--from-time"),
        to_time=None if to_time is None else parse_time(to_time, "--to-time"),
        producer_id=pid,
        producer_epoch=epoch,
        leader_epoch=leader_epoch,
        key=None if key is None else parse_key(key, "--key"),
        headers=parse_headers(header or ()),
        control=False,
    )
    pattern = None if value is None else parse_key(value, "--value")

    def job(spark: Any) -> Any:
        from kops.spark.jobs.grep import grep as scan

        return scan(spark, paths, wanted, value=pattern, topics=topic or (), task_bytes=task_bytes)

    rows = Rows(COLUMNS, SCHEMA, "records", bytes_shown(out, "key", "value"))
    run(out, "grep", OnSpark(master, conf, task_bytes), job, rows, (target, as_))
    return out.status
