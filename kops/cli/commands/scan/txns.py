"""`kops scan txns`: shows open and hanging transactions, from the directories of all brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.scan.running import Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from kops.spark.jobs.txns import TransactionScan


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        (
            "Transactions that block readers of committed records.",
            "kops scan txns /data/broker-1 /data/broker-2 /data/broker-3",
        ),
        ("The hanging ones, for a program.", "kops scan txns --hanging --format jsonl /data"),
        ("With empty transactions, as Parquet.", "kops scan txns --empty --out transactions.parquet /data"),
    ],
)
def txns(
    out: Output,
    scan: Scan,
    paths: Paths,
    hanging: Annotated[bool, typer.Option("--hanging", help="Only transactions that hang.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Also show markers of producers that wrote nothing.")] = False,
) -> int:
    """Show the transactions that are open in the partitions of a cluster, on Spark; read-only.

    The rows, options and exit codes are those of kops log txns. Name the directories of all brokers, so that the whole transaction log is
    there. Tasks read the logs. Of several replicas, they read the one with the largest end offset.

    8: a directory or a log could not be read. The others were.
    """
    from kops.cli.commands.log.state.reporting import tell_replicas, tell_unread
    from kops.cli.commands.log.state.txns import COLUMNS, SCHEMA, tell_counts

    answers: list[TransactionScan] = []

    def job(spark: Any) -> Any:
        from kops.spark.jobs.txns import scan_txns, transactions_frame

        answers.append(scan_txns(spark, paths, empty=empty, **scan.options))
        return transactions_frame(spark, answers[0], hanging=hanging)

    scan.run(out, job, Rows(COLUMNS, SCHEMA, "transactions"))
    [found] = answers
    tell_replicas(out, found.left_out)
    tell_unread(out, found.unread)
    counts = {state: sum(row.state == state for row in found.rows) for state in ("open", "hanging")}
    if counts["hanging"]:
        out.status |= PROBLEMS
    tell_counts(out, counts, found, has_log=found.has_log, partitions=found.partitions)
    return out.status
