"""`kops log why-deleted`: why segments and partitions were deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.leftovers.why import Verdict

COLUMNS = [
    Column("path"),
    Column("what"),
    Column("first_offset", "from", "int"),
    Column("last_offset", "to", "int"),
    Column("cause"),
    Column("confidence"),
    Column("evidence"),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Everything of a log directory that was deleted.", "kops log why-deleted /var/lib/kafka"),
        ("One partition, with the evidence against other causes.", "kops log why-deleted --format json /var/lib/kafka/orders-0"),
    ],
)
def why_deleted(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories or partition directories.")],
) -> int:
    """Show why segments and partitions were deleted, how certain that is, and what the evidence is.

    The command examines .deleted, .cleaned and .swap segments, -delete and -stray directories, and logs whose beginning is gone. Causes are
    retention-time, retention-size, delete-records (the log start offset), compaction, split, recovery, truncation, topic-deletion,
    reassignment, moved-between-disks and no-topic-id. The evidence is the segments' offsets and times, the checkpoints of the log
    directory, and the topic's settings in the cluster's metadata, if __cluster_metadata-0 is in the same log directory.

    certain: the files rule out every other cause. likely: they point to this cause. possible: they do not rule it out. Kafka does not
    record why it deletes a segment, so retention is never certain.
    """
    from kops.forensics.leftovers.why import SCHEMA
    from kops.forensics.leftovers.why import why_deleted as run

    unreadable: list[str] = []
    verdicts = run(paths, now_ms=time.time_ns() // 1_000_000, unreadable=unreadable)
    if out.format in ("table", "wide", "csv"):
        if verdicts or out.format == "csv":
            out.rows(_rows(verdicts), COLUMNS, schema=SCHEMA, key="deleted")
    else:
        out.rows((each.to_json() for each in verdicts), COLUMNS, schema=SCHEMA, key="deleted")
    if not verdicts:
        out.say("nothing was deleted here")
    for line in unreadable:
        out.warn(line)
    return FAILED if unreadable else CLEAN


def _rows(verdicts: list[Verdict]) -> Iterator[dict[str, Any]]:
    """A row for each cause."""
    for verdict in verdicts:
        head = {key: getattr(verdict, key) for key in ("path", "what", "first_offset", "last_offset")}
        for cause in verdict.causes:
            yield {**head, "cause": cause.cause, "confidence": cause.confidence, "evidence": "; ".join(cause.evidence)}
        if not verdict.causes:
            yield {**head, "cause": "unknown", "confidence": None, "evidence": "; ".join(verdict.excluded)}
