"""`kops scan timeline`: shows what happened to the partitions of a cluster, over time."""

from __future__ import annotations

from typing import Any

from kops.cli.commands.log.questions.reading import Topic
from kops.cli.commands.log.questions.searching import FromTime, ToTime
from kops.cli.commands.log.questions.timeline import COLUMNS, SCHEMA, EventName, Every, choice_of
from kops.cli.commands.scan.running import Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        ("What happened, by the hour.", "kops scan timeline /data/broker-1 /data/broker-2 /data/broker-3"),
        ("Appends of every minute, for a program.", "kops scan timeline --every 1m --format jsonl /data"),
    ],
)
def timeline(
    out: Output,
    scan: Scan,
    paths: Paths,
    every: Every = "1h",
    topic: Topic = None,
    event: EventName = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
) -> int:
    """Show what happened in a cluster over time, on Spark; read-only.

    The events and options are those of kops log timeline, whose help explains them. One replica of each partition is read; deleted files
    are those of all brokers. Damage is a warning, and the exit code is then 4.
    """
    from kops.forensics.questions.timeline import ORDER

    choice = choice_of(every, topic, event, from_time, to_time)

    def job(spark: Any) -> Any:
        from kops.spark.jobs.timeline import events_frame

        return events_frame(spark, paths, choice, **scan.options)

    scan.run(out, job, Rows(COLUMNS, SCHEMA, "events", order=ORDER))
    return out.status
