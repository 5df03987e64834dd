"""`kops log import`: builds segments from an export of `kops log export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.inputs.lines import clock_ms, input_lines, topic_settings
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, LOST
from kops.cli.running.options import command
from kops.errors import KopsError

if TYPE_CHECKING:
    from kops.forensics.lines.importing import ImportReport

SCHEMA = "kops.import/v1"
COLUMNS = [
    Column("name", "partition"),
    Column("segments", kind="int"),
    Column("batches", kind="int"),
    Column("records", kind="int"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("log_start_offset", kind="int", wide=True),
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
    replica does, so the files of a log without compression are restored byte for byte, given the topic's index.interval.bytes. The log
    start offset goes to log-start-offset-checkpoint. An existing partition is not changed. The command locks DIR. After Ctrl-C or an
    invalid line, and if the last line of the export is missing, the batches imported so far are kept, in a log as after a clean stop.

    8: the export is cut, or lines of it are missing. 64: the export says that damaged data was left out.
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
            documents = parse_lines(lines, file, bar.update)
            try:
                import_lines(files, documents, out_dir, settings, file=file, now_ms=clock_ms, report=report)
            except (KopsError, OSError, KeyboardInterrupt):
                _say_imported(out, report)
                raise
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


def _say_imported(out: Output, report: ImportReport) -> None:
    """Say what was imported before an error."""
    if report.partitions:
        last = report.partitions[-1]
        end = "is empty" if last.last_offset is None else f"ends with offset {last.last_offset}"
        batches, records = sum(each.batches for each in report.partitions), sum(each.records for each in report.partitions)
        where = many(len(report.partitions), "partition")
        out.say(f"imported: {many(batches, 'batch')}, {many(records, 'record')} in {where}; {last.output} {end}")
