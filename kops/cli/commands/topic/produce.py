"""`kops topic produce`: writes records from lines of text or of JSON."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.topic.sending import Job
from kops.cli.inputs.connecting import OUTCOME_COLUMNS, Bootstrap, CommandConfig, CommandProperty, connect, outcome, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, UnreachableError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.records.record import Header

SCHEMA = "kops.produce/v1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
INPUTS = ("text", "jsonl")
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("records", kind="int"),
    Column("first_offset", "first", "int"),
    Column("last_offset", "last", "int"),
    Column("failed", kind="int", style=lambda value: "red" if value else None),
    *OUTCOME_COLUMNS,
]
ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}
KEY_HELP = "The text between key and value in a line (\\t is a tab); lines without it have no key."
NULL_HELP = "A key or value equal to this text is null: --null-marker '' makes empty values tombstones."


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Each line of a file as a record.", "kops topic produce orders access.log"),
        ("Keys before a tab, compressed.", "kops topic produce orders --key-separator '\\t' --compression-codec zstd < pairs.tsv"),
        (
            "All lines or none, for readers with isolation level read_committed.",
            "kops topic produce orders batch.log --transactional-id loader",
        ),
        ("Records of another cluster, with keys, headers and times.", "kops topic produce orders --input jsonl records.jsonl"),
    ],
)
def produce(
    out: Output,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines; - is stdin.")] = "-",
    input_: Annotated[
        str, typer.Option("--input", metavar="|".join(INPUTS), help="A line is a value (text) or a record as JSON (jsonl).")
    ] = "text",
    key_separator: Annotated[str | None, typer.Option("-K", "--key-separator", metavar="TEXT", help=KEY_HELP)] = None,
    null_marker: Annotated[str | None, typer.Option("--null-marker", metavar="TEXT", help=NULL_HELP)] = None,
    header: Annotated[list[str] | None, typer.Option("-H", "--header", metavar="K=V", help="A header of each record.")] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", metavar="N", min=0, help="The partition (default: by key, as Kafka's producer does).")
    ] = None,
    codec: Annotated[
        str | None, typer.Option("-z", "--compression-codec", metavar="|".join(CODECS), help="How batches are compressed.")
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option("--acks", "--request-required-acks", metavar="all|1|0", help="Which replicas must acknowledge (default: all)."),
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Write all records in one transaction of this id.")
    ] = None,
    transaction_timeout_ms: Annotated[
        int | None,
        typer.Option("--transaction-timeout-ms", metavar="MS", min=1, help="The coordinator aborts a longer transaction (default: 60000)."),
    ] = None,
    key_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How keys are encoded in lines of JSON.")] = "base64",
    value_encoding: Annotated[
        str, typer.Option(metavar="utf8|hex|base64", help="How values and headers are encoded in lines of JSON.")
    ] = "base64",
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Write records to a topic, by default idempotently and to all in-sync replicas.

    A line of JSON is a record as kops topic consume prints it; its key, value, headers and timestamp are used. After Ctrl-C, records that
    were already read are still written. At the end, a row for each partition shows its records and offsets.

    With --transactional-id the records of a run are one transaction. It is committed at the end of the input, and aborted on an error or
    Ctrl-C. An earlier producer with this id is fenced, and its open transaction is aborted.

    1: records were not written.
    """
    from kops.cli.commands.topic.ending import end_transaction
    from kops.cli.inputs.line_source import LineSource
    from kops.forensics.dump.filters import check_encoding

    if input_ not in INPUTS:
        raise UsageError(f"--input {input_}: not one of {', '.join(INPUTS)}")
    encodings = check_encoding(key_encoding, "--key-encoding"), check_encoding(value_encoding, "--value-encoding")
    separator = None if key_separator is None else ESCAPES.get(key_separator, key_separator).encode()
    headers = [_header(text) for text in header or ()]
    null = None if null_marker is None else null_marker.encode()
    more = {"compression.type": codec, "acks": acks, "transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
    given = {name: str(value) for name, value in more.items() if value is not None}
    with connect(out, bootstrap, config, properties, more=given) as client, closing(LineSource(file, client.network)) as lines:
        job = _job(client, topic, partition, transaction_timeout_ms)

        def take(line: bytes) -> None:
            if input_ == "text":
                job.send(*_split(line, separator, null), headers, None)
            elif line.strip():
                job.send_document(line, job.lines, file, encodings, headers)

        stopped = job.run(lines, take, out.say)
        stopped = job.finish(stopped) if job.transaction is None else end_transaction(job, job.transaction, stopped, out.say)
    return _print(out, job, stopped, "" if lines.is_over else file)


def _job(client: Client, topic: str, partition: int | None, transaction_timeout_ms: int | None) -> Job:
    """Make the job, with a transaction if the settings have a transactional id."""
    if transaction_timeout_ms is not None and not client.settings.transactional_id:
        raise UsageError("--transaction-timeout-ms: only with --transactional-id")
    return Job(client, topic, partition)


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None


def _split(line: bytes, separator: bytes | None, null: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Split a line into key and value."""
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None and separator in line:
        key, _, value = line.partition(separator)
    return (None if key == null else key), (None if null is not None and value == null else value)


def _print(out: Output, job: Job, stopped: BaseException | None, unread: str) -> int:
    """Print the records and offsets of each partition, and raise the exception that ended the run early."""
    from kops.protocol.errors import by_name

    rows = [{**row, "failed": 0, **outcome(None)} for _, row in sorted(job.rows.items())]
    items: list[tuple[str, KopsError | None]] = [(job.topic, None)] * len(rows)
    none: dict[str, Any] = {"topic": job.topic, "partition": None, "records": 0, "first_offset": None, "last_offset": None}
    for error, count in job.failures.values():
        is_refused = isinstance(error, ApiError) and not by_name(error.name).retriable
        what = "committed" if job.transaction is not None else "written" if is_refused else "acknowledged"
        items.append((f"{job.topic}: {many(count, 'record')} {'was' if count == 1 else 'were'} not {what}", error))
        rows.append({**none, "failed": count, **outcome(error)})
    status = report(out, items)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="partitions")
    if stopped is not None and job.transaction is None and unread not in ("", "-"):
        out.warn(f"{unread}: nothing was sent after line {job.lines}")
    if stopped is not None and not isinstance(stopped, UnreachableError):
        raise stopped
    return status
