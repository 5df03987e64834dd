"""`kops log import`: builds segments from an export of `kops log export`."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.lines import clock_ms, input_lines, topic_settings
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, LOST
from kops.cli.running.options import command

SCHEMA = "kops.import/v1"
COLUMNS = [
    Column("name", "partition"),
    Column("segments", kind="int"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("output", wide=True),
]
OUT_HELP = "The log directory to put the partitions in; created if missing."


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Segments from an export.", "kops log import orders-0.jsonl --out /tmp/logs"),
        ("With the index settings of the topic.", "kops log import - --out /tmp/logs --config index.interval.bytes=1024"),
    ],
)
def import_(
    out: Output,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    out_dir: Annotated[str, typer.Option("--out", metavar="DIR", help=OUT_HELP)],
    config: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A topic setting, such as index.interval.bytes.")] = None,
) -> int:
    """Build segments, indexes, producer snapshots and leader epochs from an export.

    Every batch keeps its offset, header and flags. Segments begin where those of the export began. The broker's log engine writes them as a
    replica does, so the files of a log without compression are restored byte for byte, given the topic's index.interval.bytes. An existing
    partition is not changed. The command locks DIR. After Ctrl-C or an invalid line, the batches imported so far are kept, in a log as
    after a clean stop.

    64: the export says that damaged data was left out.
    """
    import os

    from kops.files import OsFiles
    from kops.forensics.lines.importing import ImportReport, import_config, import_lines, parse_lines
    from kops.forensics.plans.journal import locked

    settings = import_config(topic_settings(config))
    files = OsFiles()
    report = ImportReport(out_dir)
    with input_lines(file) as (lines, size):
        os.makedirs(out_dir, exist_ok=True)
        with locked(files, out_dir), out.progress("import", size) as bar:
            import_lines(files, parse_lines(lines, file, bar.update), out_dir, settings, file=file, now_ms=clock_ms, report=report)
    if not report.partitions:
        out.warn(f"{file}: no batches, so nothing was written")
    if report.damaged:
        out.warn(f"damaged places that are not in the export: {report.damaged}")
        out.status |= LOST
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        out.rows((entry.to_json() for entry in report.partitions), COLUMNS, schema=SCHEMA, key="partitions")
    return CLEAN
