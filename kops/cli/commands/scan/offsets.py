"""`kops scan offsets`: shows committed offsets of consumer groups, from the directories of all brokers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.commands.scan.running import AsOrReset, Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.errors import UsageError

At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The state as of then: ms since 1970, or ISO (default: now).", show_default=False)
]
MINUTE_MS = 60_000


@scan_command(
    writes=True,
    keeps=True,
    as_=AsOrReset,
    examples=[
        ("Offsets and lag of all groups of a cluster.", "kops scan offsets /data/broker-1 /data/broker-2 /data/broker-3"),
        (
            "The offsets of a group last night, for kafka-consumer-groups.",
            "kops scan offsets --group billing --at 2026-11-21T03:00Z --as reset-csv /data",
        ),
        ("As Parquet, written by the tasks.", "kops scan offsets --out offsets.parquet /data"),
    ],
)
def offsets(
    out: Output,
    scan: Scan,
    paths: Paths,
    at: At = None,
    group: Annotated[list[str] | None, typer.Option("--group", metavar="G", help="Only this group.", show_default=False)] = None,
    retention_minutes: Annotated[
        int, typer.Option(metavar="N", min=1, help="The brokers' offsets.retention.minutes, for the times of expiry.")
    ] = 10_080,
) -> int:
    """Show the committed offsets of all consumer groups of a cluster, on Spark; read-only.

    The rows, options and exit codes are those of kops log offsets. If a partition of __consumer_offsets has several replicas, a task reads
    the one with the largest end offset. LAG is computed from the replica of the partition with the largest end offset.
    """
    from kops.cli.commands.log.state.offsets import COLUMNS, RESET_CSV, SCHEMA, tell_missing, write_reset_csv
    from kops.cli.commands.log.state.reporting import at_ms

    groups = group or []
    when = at_ms(at)
    is_csv = scan.target is None and scan.as_ is not None
    if is_csv and scan.as_ != RESET_CSV:
        raise UsageError(f"--as {scan.as_}: without --out only {RESET_CSV} is allowed")
    if is_csv and out.format not in ("table", "csv"):
        raise UsageError(f"give only one of --as {scan.as_} and --format {out.format}")

    def job(spark: Any) -> Any:
        from kops.spark.jobs.offsets import offsets as read

        retention_ms = retention_minutes * MINUTE_MS
        return read(spark, paths, at_ms=when, groups=groups, retention_ms=retention_ms, **scan.options)

    if is_csv:
        told = {"rows": 0}
        write_reset_csv(out, scan.stream(out, job, told), groups)
        count = told["rows"]
    else:
        count = scan.run(out, job, Rows(COLUMNS, SCHEMA, "offsets"))
    if not count and groups:
        tell_missing(out, groups, groups)
    elif not count and out.format in ("table", "wide"):
        out.say("no offsets")
    return out.status
