"""`kops log append`: appends records to a partition directory, offline."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kops.cli.inputs.lines import clock_ms, input_lines, parse_config
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN
from kops.cli.running.options import command
from kops.errors import UsageError

SCHEMA = "kops.append/v1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = [
    Column("directory"),
    Column("records", kind="int"),
    Column("batches", kind="int"),
    Column("bytes", kind="bytes"),
    Column("first_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("log_end_offset", kind="int", wide=True),
    Column("leader_epoch", kind="int", wide=True),
]
EPOCH_HELP = "The leader epoch of the batches (default: the last one in the log)."
SIZE_HELP = "Bytes of records in a batch, like the producer's batch.size."

Epoch = Annotated[int | None, typer.Option("--leader-epoch", "--partition-epoch", metavar="N", min=0, help=EPOCH_HELP, show_default=False)]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Records of a file.", "kops log append records.jsonl --to /var/lib/kafka/orders-0"),
        ("Records of another log, compressed.", "kops log append - --to /var/lib/kafka/orders-0 --compression zstd"),
    ],
)
def append(
    out: Output,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Records as jsonl; - is stdin.")],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The partition directory, in a log directory.")],
    leader_epoch: Epoch = None,
    config: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A topic setting, such as segment.bytes.")] = None,
    compression: Annotated[str, typer.Option(metavar="|".join(CODECS), help="How batches are compressed.")] = "none",
    batch_size: Annotated[int, typer.Option(metavar="BYTES", min=1, help=SIZE_HELP)] = 16384,
    key_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How keys are encoded in the file.")] = "base64",
    value_encoding: Annotated[
        str, typer.Option(metavar="utf8|hex|base64", help="How values and headers are encoded in the file.")
    ] = "base64",
) -> int:
    """Append records to a partition directory as its leader would, while no broker runs.

    Each line is a record as kops prints it: {"timestamp", "key", "value", "headers"}. The log assigns the offset. A record without a
    timestamp gets the current time. Control records and other lines of an export are ignored. The broker's log engine opens, writes and
    closes the log: settings, rolling, indexes, producer snapshots and leader epochs are those of a broker. The command locks the log
    directory. It rejects a log that a starting broker would truncate; repair such a log first.

    If a line is not a record, or a record is rejected, the records before it are appended.
    """
    from kops.files import OsFiles
    from kops.forensics.dump.filters import check_encoding
    from kops.forensics.lines.appending import AppendOptions, AppendReport, append_lines, partition_state
    from kops.forensics.lines.importing import parse_lines
    from kops.forensics.plans.journal import locked

    if compression not in CODECS:
        raise UsageError(f"--compression {compression}: not one of {', '.join(CODECS)}")
    encodings = check_encoding(key_encoding, "--key-encoding"), check_encoding(value_encoding, "--value-encoding")
    options = AppendOptions(leader_epoch, compression, batch_size, *encodings)
    settings = parse_config(config)
    files = OsFiles()
    directory = files.absolute(to)
    partition_state(files, directory)
    report = AppendReport(to)
    with input_lines(file) as (lines, size), locked(files, os.path.dirname(directory)), out.progress("append", size) as bar:
        documents = parse_lines(lines, file, bar.update)
        try:
            append_lines(files, documents, directory, settings, options, file=file, now_ms=clock_ms, report=report)
        finally:
            if report.log_end_offset is not None:
                out.say(f"{many(report.records, 'record')} appended; {to} ends at {report.log_end_offset}")
    if out.format in ("json", "yaml"):
        out.document(report.to_json(), schema=SCHEMA)
    else:
        out.rows([report.to_json()], COLUMNS, schema=SCHEMA, key="partitions")
    return CLEAN
