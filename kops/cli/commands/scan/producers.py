"""`kops scan producers`: shows the producers of every partition, and breaks in their sequences."""

from __future__ import annotations

from typing import Any

from kops.cli.commands.scan.running import Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import PROBLEMS

SCHEMA = "kops.producers/v1"
BREAKS = ("gaps", "duplicates", "epochs_back")
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("producer_id", "producer", "int"),
    Column("producer_epoch", "epoch", "int"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("transactional"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("gaps", kind="int"),
    Column("duplicates", kind="int"),
    Column("epochs_back", kind="int"),
    Column("first_break", kind="int"),
    Column("last_timestamp", "last written", "time_ms"),
    Column("last_sequence", kind="int", wide=True),
    Column("first_timestamp", kind="time_ms", wide=True),
    Column("broker", kind="int", wide=True),
]


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        ("The producers of a whole cluster.", "kops scan producers /data/broker-1 /data/broker-2 /data/broker-3"),
        ("As lines of JSON.", "kops scan producers --format jsonl /data | head"),
    ],
)
def producers(out: Output, scan: Scan, paths: Paths) -> int:
    """Show producers of all partitions, and breaks in their sequences; read-only.

    Only idempotent and transactional producers are shown; others leave no trace. A gap is a batch whose sequence does not follow the one
    before. A duplicate is a batch whose sequence was already there. In a compacted partition gaps are no loss, because the cleaner removes
    batches. One replica of each partition is read, on Spark. The exit code is 4 for a break and for damage.
    """

    def job(spark: Any) -> Any:
        from kops.spark.jobs.producers import producers as read

        return read(spark, paths, **scan.options)

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        if any(row[name] for name in BREAKS):
            out.status |= PROBLEMS
        return row

    scan.run(out, job, Rows(COLUMNS, SCHEMA, "producers", shown, "gaps + duplicates + epochs_back > 0"))
    return out.status
