"""`kops topic consume`: reads records by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, no_such, parse_partitions
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, UnreachableError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.consumer import Consumer, Fetched
    from kops.client.offsets import OffsetSpec
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.record/v1"
ISOLATION = ("read_uncommitted", "read_committed")
COLUMNS = [
    Column("topic", wide=True),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("timestamp", "time", "time_ms"),
    Column("tsType", "time is", wide=True),
    Column("key"),
    Column("value"),
    Column("headers", kind="list"),
    Column("leaderEpoch", "epoch", "int", wide=True),
]
OFFSET_HELP = "Where to begin: earliest, latest, max-timestamp, N, -N (that many before the end), @MS or an ISO time."
FORMATTER_HELP = "With --format kafka: a property of Kafka's formatter, as print.key=true, print.offset=true, key.separator=:"


@command(
    formats=("jsonl", "kafka", "json", "yaml", "csv", "table", "wide"),
    examples=[
        ("What comes from now on.", "kops topic consume orders"),
        ("All there is, then stop; values as text.", "kops topic consume orders --from-beginning --until-end --format kafka"),
        ("The last ten of a partition, readable.", "kops topic consume orders --partition 0 --offset -10 -e --value-encoding utf8"),
        (
            "Ten decided records from a time on.",
            "kops topic consume orders --offset 2026-11-21T08:00Z --isolation-level read_committed | head",
        ),
    ],
)
def consume(
    out: Output,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partitions: Annotated[
        list[str] | None, typer.Option("-p", "--partition", metavar="N", help="Partitions: 0, a list 0,2 or a range 1-3 (default: all).")
    ] = None,
    offset: Annotated[str, typer.Option("--offset", metavar="OFFSET", help=OFFSET_HELP)] = "latest",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --offset earliest.")] = False,
    until_end: Annotated[bool, typer.Option("-e", "--until-end", help="Stop where the partitions ended at the start.")] = False,
    max_messages: Annotated[
        int | None, typer.Option("-c", "--max-messages", metavar="N", min=0, help="Stop after this many records.")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", metavar="MS", min=0, help="Stop when no record has arrived for this long.")
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation-level", metavar="|".join(ISOLATION), help="Whether records of open and aborted transactions are returned."
        ),
    ] = None,
    key_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How keys are printed.")] = "base64",
    value_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How values and headers are printed.")] = "base64",
    batch: Annotated[bool, typer.Option("--batch", help="Show for each record the batch it came in.")] = False,
    formatter: Annotated[list[str] | None, typer.Option("--formatter-property", "--property", metavar="K=V", help=FORMATTER_HELP)] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """Read the records of a topic by partition, without a group; follows until it is stopped.

    Records of one partition come in order. A line of JSON has offset, timestamp, tsType, key, value, headers, leaderEpoch, topic and
    partition. Offsets outside of a partition are brought within it. --format kafka prints what kafka-console-consumer prints.
    """
    from kops.client.consumer import Consumer
    from kops.client.offsets import EARLIEST, OffsetSpec, parse_offset
    from kops.forensics.dump.filters import check_encoding

    encodings = check_encoding(key_encoding, "--key-encoding"), check_encoding(value_encoding, "--value-encoding")
    spec = OffsetSpec("named", EARLIEST) if from_beginning else parse_offset(offset)
    text = KafkaText(formatter or ()) if out.format == "kafka" else None
    if formatter and text is None:
        raise UsageError("--formatter-property is for --format kafka")
    more = {} if isolation is None else {"isolation.level": isolation}
    wanted = parse_partitions(partitions)
    with connect(out, bootstrap, config, properties, more=more) as client:
        keys = _find_partitions(client, topic, wanted)
        positions, ends = _offsets(client, keys, spec, until_end)

        def reset(key: TopicPartition, start: int) -> None:
            out.warn(f"{key.topic}-{key.partition}: the next records were deleted; continuing at {start}, where the log starts now")

        consumer = Consumer(client, positions, on_reset=reset)
        batches = _limited(_fetched(out, consumer, ends, timeout_ms), max_messages)
        try:
            if text is not None:
                for fetched in batches:
                    for line in map(text.line, fetched.records, [fetched.key.partition] * len(fetched.records)):
                        out.write(line)
            else:
                _print(out, batches, encodings, batch)
        except (KeyboardInterrupt, UnreachableError):
            out.resume = _resume(topic, consumer.positions)
            raise


def _find_partitions(client: Client, topic: str, wanted: list[int]) -> list[TopicPartition]:
    from kops.client.topics import error_of
    from kops.records.log_offsets import TopicPartition

    (found,) = client.fetch_metadata([topic]).topics
    error = error_of(found.error_code)
    if error is not None:
        raise no_such("topic", [topic]) if error.name == "UNKNOWN_TOPIC_OR_PARTITION" else ApiError(error.name, f"{topic}: {error}")
    there = sorted(one.partition_index for one in found.partitions)
    if set(wanted) - set(there):
        raise no_such("partition", sorted(f"{topic}-{number}" for number in set(wanted) - set(there)))
    return [TopicPartition(topic, number) for number in (wanted or there)]


def _offsets(
    client: Client, keys: list[TopicPartition], spec: OffsetSpec, until_end: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """-> (where to begin, where to end)"""
    from kops.client.offsets import LATEST, ListedOffset, list_offsets, resolve_offsets

    committed = client.settings.isolation_level == "read_committed"

    def plain(found: Mapping[TopicPartition, ListedOffset | ApiError]) -> dict[TopicPartition, int]:
        offsets = {}
        for key, one in found.items():
            if isinstance(one, ApiError):
                raise ApiError(one.name, f"{key.topic}-{key.partition}: {one}")
            offsets[key] = one.offset
        return offsets

    ends = plain(list_offsets(client, dict.fromkeys(keys, LATEST), committed=committed)) if until_end else None
    return plain(resolve_offsets(client, dict.fromkeys(keys, spec), committed=committed)), ends


def _fetched(out: Output, consumer: Consumer, ends: dict[TopicPartition, int] | None, timeout_ms: int | None) -> Iterator[Fetched]:
    """The fetched batches, until all ends are reached or no record arrives for `timeout_ms`."""
    client = consumer.client
    heard_ms = client.now_ms()
    while True:
        if ends is not None:
            for key, position in consumer.positions.items():
                if position >= ends[key]:
                    consumer.drop(key)
            if not consumer.positions:
                return
        came = False
        for fetched in consumer.poll(100):
            came = True
            if ends is None:
                yield fetched
                continue
            records = [record for record in fetched.records if record.offset < ends[fetched.key]]
            if records:
                yield fetched._replace(records=records)
        now_ms = client.now_ms()
        if came:
            heard_ms = now_ms
            continue
        # A reader sees all records before a pause.
        out.flush()
        out.check_reader()
        if timeout_ms is not None and now_ms - heard_ms >= timeout_ms:
            return


def _limited(batches: Iterator[Fetched], limit: int | None) -> Iterator[Fetched]:
    """The first `limit` records."""
    left = limit
    if left == 0:
        return
    for fetched in batches:
        if left is None or len(fetched.records) < left:
            yield fetched
            left = None if left is None else left - len(fetched.records)
        else:
            yield fetched._replace(records=fetched.records[:left])
            return


def _print(out: Output, batches: Iterator[Fetched], encodings: tuple[str, str], with_batch: bool) -> None:
    documents = _documents(batches, *encodings, with_batch)
    if out.format == "jsonl":
        for document in documents:
            out.record({"schema": SCHEMA, **document})
        return
    columns = [*COLUMNS, Column("batch", wide=True)] if with_batch else COLUMNS
    if out.format not in ("table", "wide"):
        out.rows(documents, columns, schema="kops.records/v1", key="records")
        return
    # Lines are aligned in pieces: an interrupt must print the last piece, too.
    rows = _UntilInterrupt(documents)
    out.rows(rows, columns, schema="kops.records/v1", key="records")
    if rows.interrupt is not None:
        raise rows.interrupt


class _UntilInterrupt:
    """The same rows, which end at Ctrl-C; it is kept as `interrupt`."""

    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
        self._rows = rows
        self.interrupt: KeyboardInterrupt | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self._rows
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt


def _documents(batches: Iterator[Fetched], key_encoding: str, value_encoding: str, with_batch: bool) -> Iterator[dict[str, Any]]:
    from kops.forensics.dump.filters import encode_bytes

    for fetched in batches:
        topic, partition = fetched.key
        about = {"batch": _about(fetched)} if with_batch else {}
        for record in fetched.records:
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "tsType": record.timestamp_type,
                "key": encode_bytes(record.key, key_encoding),
                "value": encode_bytes(record.value, value_encoding),
                "headers": [
                    [name if isinstance(name, str) else name.decode("utf-8", "replace"), encode_bytes(value, value_encoding)]
                    for name, value in record.headers
                ],
                "leaderEpoch": record.leader_epoch,
                "topic": topic,
                "partition": partition,
                **about,
            }


def _about(fetched: Fetched) -> dict[str, Any]:
    """A record's fields about its batch, as in `kops log dump`."""
    batch = fetched.batch
    flags = (("transactional", batch.is_transactional), ("deleteHorizon", batch.delete_horizon_ms is not None))
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "magic": batch.magic,
        "codec": batch.codec,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "flags": [name for name, is_set in flags if is_set],
    }


def _resume(topic: str, positions: dict[TopicPartition, int]) -> str:
    """The command line that continues where this one stopped, for one partition."""
    if len(positions) != 1:
        return ""
    [(key, position)] = positions.items()
    return f"kops topic consume {topic} --partition {key.partition} --offset {position}"


class KafkaText:
    """A record as kafka-console-consumer prints it (Kafka's DefaultMessageFormatter)."""

    SWITCHES = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
    TEXTS = ("key.separator", "line.separator", "headers.separator", "null.literal")

    def __init__(self, properties: Any) -> None:
        """`properties` are texts as `print.key=true`, `key.separator=:`. Raises UsageError for an unknown one."""
        self._shown = {"value"}
        texts = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}
        for one in properties:
            name, equals, value = one.partition("=")
            switch = name.removeprefix("print.")
            if equals and name in texts:
                texts[name] = value
            elif equals and name.startswith("print.") and switch in self.SWITCHES:
                (self._shown.add if value.strip().lower() == "true" else self._shown.discard)(switch)
            else:
                known = ", ".join([*(f"print.{one}" for one in self.SWITCHES), *self.TEXTS])
                raise UsageError(f"--formatter-property {one}: not allowed; allowed: {known}, each with =VALUE")
        self._key_separator, self._line_separator, self._headers_separator, self._null = (texts[name].encode() for name in self.TEXTS)

    def line(self, record: Any, partition: int) -> bytes:
        """The text of one record."""
        parts = []
        for switch in self.SWITCHES:
            if switch in self._shown:
                parts.append(self._part(switch, record, partition))
        return self._key_separator.join(parts) + self._line_separator if parts else b""

    def _part(self, switch: str, record: Any, partition: int) -> bytes:
        if switch == "timestamp":
            known = record.timestamp_type != "NoTimestampType"
            return f"{record.timestamp_type}:{record.timestamp}".encode() if known else b"NO_TIMESTAMP"
        if switch == "partition":
            return b"Partition:%d" % partition
        if switch == "offset":
            return b"Offset:%d" % record.offset
        if switch == "delivery":
            return b"Delivery:NOT_PRESENT"
        if switch == "epoch":
            return b"Epoch:NOT_PRESENT"  # the tool's records for its formatter don't have it
        if switch == "headers":
            return self._headers_separator.join(map(self._header, record.headers)) or b"NO_HEADERS"
        content: bytes | None = record.key if switch == "key" else record.value
        return self._null if content is None else content

    def _header(self, header: Any) -> bytes:
        name, value = header
        return (name.encode() if isinstance(name, str) else name) + b":" + (self._null if value is None else value)
