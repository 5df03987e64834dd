"""`kops log index check`: checks indexes against their logs."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.log.verify import COLUMNS, human, status_of
from kops.cli.printing.output import Output
from kops.cli.running.options import command

SCHEMA = "kops.index-check/v1"


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The indexes of one partition.", "kops log index check /var/lib/kafka/orders-0"),
        ("Those of a whole log directory, on four cores.", "kops log index check --jobs 4 /var/lib/kafka"),
    ],
)
def check(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Partition directories, log directories or files.")],
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes.")] = 1,
) -> int:
    """Check offset, time and transaction indexes against their logs; read-only.

    Every entry is compared with the batches: order, positions, offsets, timestamps, missing entries at the end, aborted transactions. An
    entry may differ from that of another replica. It is correct if a look-up through it finds the correct batch. The exit code is 4 if
    there is a problem. 8 is added if a file could not be read.
    """
    from kops.cli.printing.text import human_bytes, many
    from kops.forensics.index.check import check_indexes

    with out.progress("check") as bar:

        def start(total: int) -> None:
            bar.total = total

        report = check_indexes(paths, jobs=jobs, progress=bar.update, on_start=start)
    out.status |= status_of(report.findings)
    words = many(len(report.problems), "problem") if report.problems else "no problems"
    words += f" in {many(report.indexes, 'index')} of {many(report.segments, 'segment')}, {human_bytes(report.bytes)} of logs"
    if out.format == "table":
        for found in report.findings:
            if found.is_problem or out.verbosity > 0:
                out.line(human(out, found))
        out.line(words)
    elif out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        out.rows((found.to_json() for found in report.findings), COLUMNS, schema=SCHEMA, key="findings")
    if out.format != "table":
        out.say(words)
    return out.status
