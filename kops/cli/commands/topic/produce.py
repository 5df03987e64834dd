"""`kops topic produce`: writes records from lines of text or of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import OUTCOME_COLUMNS, Bootstrap, CommandConfig, CommandProperty, connect, outcome, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, DecodeError, KopsError, UnreachableError, UsageError

if TYPE_CHECKING:
    from kops.cli.inputs.line_source import LineSource
    from kops.client.producer import Producer, Sent
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
NULL_HELP = "A key or value that is this text is null: --null-marker '' makes empty values tombstones."


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Each line of a file a record.", "kops topic produce orders access.log"),
        ("Keys before a tab, compressed.", "kops topic produce orders --key-separator '\\t' --compression-codec zstd < pairs.tsv"),
        ("What another cluster has, with keys, headers and times.", "kops topic produce orders --input jsonl records.jsonl"),
    ],
)
def produce(
    out: Output,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines; - is stdin.")] = "-",
    input_: Annotated[str, typer.Option("--input", metavar="|".join(INPUTS), help="A line is a value, or a record as JSON.")] = "text",
    key_separator: Annotated[str | None, typer.Option("-K", "--key-separator", metavar="TEXT", help=KEY_HELP)] = None,
    null_marker: Annotated[str | None, typer.Option("--null-marker", metavar="TEXT", help=NULL_HELP)] = None,
    header: Annotated[list[str] | None, typer.Option("-H", "--header", metavar="K=V", help="A header of each record.")] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", metavar="N", min=0, help="The partition (default: by key, as Kafka's producer).")
    ] = None,
    codec: Annotated[
        str | None, typer.Option("-z", "--compression-codec", metavar="|".join(CODECS), help="How batches are compressed.")
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option("--acks", "--request-required-acks", metavar="all|1|0", help="Which replicas must acknowledge (default: all)."),
    ] = None,
    key_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How keys are encoded in lines of JSON.")] = "base64",
    value_encoding: Annotated[
        str, typer.Option(metavar="utf8|hex|base64", help="How values and headers are encoded in lines of JSON.")
    ] = "base64",
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Write records to a topic: idempotent and to all in-sync replicas, unless settings say otherwise.

    A line of JSON is a record as kops topic consume prints it; its key, value, headers and timestamp are used. On Ctrl-C, records that were
    read are still written. At the end one row for each partition shows what it got.

    1: records were not written.
    """
    from kops.cli.inputs.line_source import LineSource
    from kops.client.producer import Producer
    from kops.forensics.dump.filters import check_encoding

    if input_ not in INPUTS:
        raise UsageError(f"--input {input_}: not one of {', '.join(INPUTS)}")
    encodings = check_encoding(key_encoding, "--key-encoding"), check_encoding(value_encoding, "--value-encoding")
    separator = None if key_separator is None else ESCAPES.get(key_separator, key_separator).encode()
    headers = [_header(text) for text in header or ()]
    null = None if null_marker is None else null_marker.encode()
    more = {"compression.type": codec, "acks": acks}
    given = {name: value for name, value in more.items() if value is not None}
    with connect(out, bootstrap, config, properties, more=given) as client:
        job = _Job(Producer(client), topic, partition)
        lines = LineSource(file, client.network)

        def take(line: bytes) -> None:
            if input_ == "text":
                job.send(*_split(line, separator, null), headers, None)
            elif line.strip():
                job.send_document(line, job.lines, file, encodings, headers)

        try:
            stopped = job.run(lines, take, out.say)
        finally:
            lines.close()
    status = _print(out, job)
    if stopped is not None and not lines.is_over and file != "-":
        out.warn(f"{file}: nothing was sent behind line {job.lines}")
    if stopped is not None and not isinstance(stopped, UnreachableError):
        raise stopped
    return status


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None


def _split(line: bytes, separator: bytes | None, null: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Key and value of a line."""
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None and separator in line:
        key, _, value = line.partition(separator)
    return (None if key == null else key), (None if null is not None and value == null else value)


class _Job:
    """The sent records and their outcomes, by partition."""

    def __init__(self, producer: Producer, topic: str, partition: int | None) -> None:
        self.producer = producer
        self.topic = topic
        self.partition = partition
        self.rows: dict[int, dict[str, Any]] = {}
        self.failures: dict[str, tuple[KopsError, int]] = {}
        self.lines = 0
        self.sent = 0
        self._done = 0

    def run(self, lines: LineSource, take: Callable[[bytes], object], say: Callable[[str], object]) -> BaseException | None:
        """Send all lines and wait for their outcomes -> the exception that ended it early, if any. Raises that if nothing had been sent."""
        stopped: BaseException | None = None
        try:
            while not lines.is_over:
                self.producer.poll(0 if lines.is_readable else 100)
                for line in lines.take() if lines.is_readable else ():
                    self.lines += 1
                    take(line)
        except (KeyboardInterrupt, KopsError, OSError) as error:
            if not self.sent:
                raise
            stopped = error
            if isinstance(error, KeyboardInterrupt):
                say("what was read is still written; Ctrl-C again gives it up")
        try:
            self.producer.flush()
        except (KeyboardInterrupt, KopsError) as error:
            stopped = stopped or error
            self.give_up(error if isinstance(error, KopsError) else KopsError("interrupted before the cluster answered"))
        return stopped

    def give_up(self, error: KopsError) -> None:
        """Set this outcome for all records that have none yet."""
        left = self.sent - self._done
        if left:
            self.failures[str(error)] = error, self.failures.get(str(error), (error, 0))[1] + left
            self._done = self.sent

    def send(self, key: bytes | None, value: bytes | None, headers: list[Header], timestamp: int | None) -> None:
        """Queue a record as soon as there is space for it."""
        producer = self.producer
        while producer.buffered_size >= producer.settings.buffer_memory:
            producer.poll(100)
        producer.send(self.topic, key, value, headers, timestamp=timestamp, partition=self.partition, done=self.done)
        self.sent += 1

    def send_document(self, line: bytes, number: int, file: str, encodings: tuple[str, str], headers: list[Header]) -> None:
        """Queue the record of a line of JSON. Raises DecodeError if it is not a record."""
        from kops.forensics.lines.exporting import MALFORMED, content
        from kops.forensics.lines.importing import parse_lines

        for _, document in parse_lines([line], f"{file}, line {number}"):
            try:
                key, value, own = content(document, *encodings)
                timestamp = int(document.get("timestamp", -1))
            except (AttributeError, TypeError, ValueError) as error:
                raise DecodeError(f"line {number} is not a record: {error}", code=MALFORMED, file=file) from error
            if "control" not in document:
                self.send(key, value, own + headers, timestamp if timestamp >= 0 else None)

    def done(self, result: Sent | KopsError) -> None:
        """Take the outcome of a record."""
        self._done += 1
        if isinstance(result, KopsError):
            error, count = self.failures.get(str(result), (result, 0))
            self.failures[str(result)] = error, count + 1
            return
        row = self.rows.setdefault(
            result.partition,
            {"topic": result.topic, "partition": result.partition, "records": 0, "first_offset": None, "last_offset": None},
        )
        row["records"] += 1
        if result.offset >= 0:
            row["first_offset"] = result.offset if row["first_offset"] is None else row["first_offset"]
            row["last_offset"] = result.offset


def _print(out: Output, job: _Job) -> int:
    from kops.protocol.errors import by_name

    rows = [{**row, "failed": 0, **outcome(None)} for _, row in sorted(job.rows.items())]
    items: list[tuple[str, KopsError | None]] = [(job.topic, None)] * len(rows)
    none: dict[str, Any] = {"topic": job.topic, "partition": None, "records": 0, "first_offset": None, "last_offset": None}
    for error, count in job.failures.values():
        is_refused = isinstance(error, ApiError) and not by_name(error.name).retriable
        items.append((f"{job.topic}: {count} records were not {'written' if is_refused else 'acknowledged'}", error))
        rows.append({**none, "failed": count, **outcome(error)})
    status = report(out, items)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="partitions")
    return status
