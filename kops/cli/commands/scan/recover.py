"""`kops scan recover`: merges the intact batches of all replicas of a cluster, on Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.recover import As, Force, NoLeftovers, Renumber, chosen_shape, print_report, resume_line
from kops.cli.commands.scan.running import Paths, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.errors import UsageError


@scan_command(
    examples=[
        (
            "Three damaged brokers: every record that one of them has intact.",
            "kops scan recover /data/broker-1 /data/broker-2 /data/broker-3 --out /rescue",
        ),
        ("Show what would be kept and lost, without writing.", "kops scan recover -n /data --out /rescue"),
        ("As Parquet, on a standalone cluster.", "kops scan recover --master spark://127.0.0.1:7077 --as parquet /data --out /rescue"),
    ],
)
def recover(
    out: Output,
    scan: Scan,
    paths: Paths,
    out_dir: Annotated[
        str,
        typer.Option(
            "--out", metavar="DIR", help="Where to write: an empty directory or a new one, at a path that every worker sees, or a URL."
        ),
    ],
    plan: Annotated[
        bool, typer.Option("--plan", "-n", help="Read everything and show what would be kept and lost; write nothing.", show_default=False)
    ] = False,
    as_: As = "segment",
    renumber: Renumber = False,
    no_leftovers: NoLeftovers = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what an earlier run completed.", show_default=False)] = False,
    force: Force = False,
) -> int:
    """Recover a whole cluster on Spark: every batch that any replica has intact, once, at its offset.

    Output, messages and exit codes are those of kops log recover. Replicas of a partition are merged: if they differ, the later leader
    epoch wins, then the majority, and the report names the conflict. DIR/kops-recover.json lists the offsets that no replica has. A task
    writes whole partitions and renames them into place, so failed or repeated tasks leave no partial output. If a partition cannot be read
    or written, the exit code includes 8, and the others continue; --resume retries it and keeps the rest. Needs kops[spark].

    0: nothing was damaged. 1: there was damage, and all records were saved. 8: a partition failed. 64: records are lost.
    """
    if resume and force:
        raise UsageError("give only one of --resume and --force")
    shape = chosen_shape(as_)
    from kops.spark.interrupt import in_session
    from kops.spark.jobs.recover import scan_recover

    if not plan:
        more = scan.where.words()
        out.resume = resume_line("kops scan recover", paths, out_dir, as_, renumber=renumber, no_leftovers=no_leftovers, more=more)
    report = in_session(
        scan.start(out, light=True),
        lambda spark: scan_recover(
            spark,
            paths,
            out_dir,
            shape=shape,
            renumber=renumber,
            leftovers=not no_leftovers,
            force=force,
            resume=resume,
            plan=plan,
            task_bytes=scan.where.task_bytes,
        ),
    )
    return print_report(out, report)
