"""`kops topic consume`: reads records by partition, or as a member of a group."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, no_such, parse_partitions
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, UnreachableError, UsageError

if TYPE_CHECKING:
    from typing import Self

    from kops.cli.printing.sink import OutputError
    from kops.client.client import Client
    from kops.client.consumer.core.collecting import Fetched
    from kops.client.offsets import ListedOffset, OffsetSpec
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
PIECE_BYTES = 16 * 1024
ASK_MS = 1000
GROUP_SETTINGS = ("auto.offset.reset", "exclude.internal.topics", "group.id", "group.protocol", "group.remote.assignor", "max.poll.records")
OFFSET_HELP = "Where to begin: earliest, latest (the default), max-timestamp, N, -N (the last N records), @MS or an ISO time."
FORMATTER_HELP = "With --format kafka: a property of Kafka's formatter, such as print.key=true, print.offset=true, key.separator=:"


@command(
    formats=("jsonl", "kafka", "json", "yaml", "csv", "table", "wide"),
    examples=[
        ("New records, as they come.", "kops topic consume orders"),
        ("All records, then stop; values as text.", "kops topic consume orders --from-beginning --until-end --format kafka"),
        ("The last ten of a partition, readable.", "kops topic consume orders --partition 0 --offset -10 -e --value-encoding utf8"),
        ("As a member of a group, from its committed offsets.", "kops topic consume orders --group billing --from-beginning"),
        (
            "Ten committed records from a given time.",
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
    offset: Annotated[str | None, typer.Option("--offset", metavar="OFFSET", help=OFFSET_HELP)] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --offset earliest.")] = False,
    until_end: Annotated[bool, typer.Option("-e", "--until-end", help="Stop at the end that the partitions have now.")] = False,
    max_messages: Annotated[
        int | None, typer.Option("-c", "--max-messages", metavar="N", min=0, help="Stop after this many records.")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", metavar="MS", min=0, help="Stop when no record has arrived for this long.")
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation-level",
            "--isolation",
            metavar="|".join(ISOLATION),
            help="Whether records of open and aborted transactions are returned.",
        ),
    ] = None,
    key_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How keys are printed.")] = "base64",
    value_encoding: Annotated[str, typer.Option(metavar="utf8|hex|base64", help="How values and headers are printed.")] = "base64",
    group: Annotated[
        str | None, typer.Option("-g", "--group", metavar="GROUP", help="Read as a member of this consumer group, and commit its offsets.")
    ] = None,
    batch: Annotated[bool, typer.Option("--batch", help="Show for each record the batch that it is in.")] = False,
    formatter: Annotated[list[str] | None, typer.Option("--formatter-property", "--property", metavar="K=V", help=FORMATTER_HELP)] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """Read the records of a topic, and wait for new ones until stopped.

    With --group, the command reads as a member of that group: it reads the partitions that the group assigns to it, from the
    committed offsets (or from --offset or auto.offset.reset where there are none), commits printed records every
    auto.commit.interval.ms and at the end, and leaves the group. For tables and -o FILE it commits only at the end. Settings have the
    names of Kafka's consumer, such as group.protocol or session.timeout.ms.

    Records of one partition come in order. A line of JSON has offset, timestamp, tsType, key, value, headers, leaderEpoch, topic and
    partition. An offset outside a partition becomes its start or end. --format kafka prints what kafka-console-consumer prints.
    """
    from kops.forensics.dump.filters import check_encoding

    encodings = check_encoding(key_encoding, "--key-encoding"), check_encoding(value_encoding, "--value-encoding")
    _start(None, offset, from_beginning)  # errors come before the connection
    text = KafkaText(formatter or ()) if out.format == "kafka" else None
    if formatter and text is None:
        raise UsageError("--formatter-property: only with --format kafka")
    more = {} if isolation is None else {"isolation.level": isolation}
    wanted = parse_partitions(partitions)
    _check_group(group, wanted)
    used = ("auto.offset.reset",) if group is None else GROUP_SETTINGS
    with connect(out, bootstrap, config, properties, more=more, used=used) as client, warnings_of_client(out):
        spec = _start(_checked(client.settings.given, group).get("auto.offset.reset"), offset, from_beginning)
        with _source(out, client, _find_partitions(client, topic, wanted), spec, until_end, group) as source:
            try:
                batches = _limited(_fetched(out, source, timeout_ms), max_messages)
                if text is not None:
                    _print_text(out, batches, source, text)
                else:
                    _print(out, _documents(batches, source, *encodings, batch), batch)
            except (KeyboardInterrupt, UnreachableError):
                out.resume = source.resume()
                raise


def _checked(given: Mapping[str, str], group: str | None) -> Mapping[str, str]:
    """Return the settings. Raises UsageError if they name another group."""
    if group is not None and given.get("group.id", group) != group:
        raise UsageError(f"--group {group} and group.id={given['group.id']}: different groups")
    return given


def _source(
    out: Output, client: Client, keys: list[TopicPartition], spec: OffsetSpec | None, until_end: bool, group: str | None
) -> _Partitions | _Group:
    if group is not None:
        return _Group(out, client, keys, spec, until_end, group)
    if spec is None:
        raise UsageError("auto.offset.reset=none: only with --group")
    return _Partitions(out, client, keys, spec, until_end)


def _check_group(group: str | None, partitions: list[int]) -> None:
    if group is not None and partitions:
        raise UsageError("--group and --partition exclude each other: a group divides the partitions among its members")
    if group == "":
        raise UsageError("--group: not allowed; allowed: a name")


def _start(reset: str | None, offset: str | None, from_beginning: bool) -> OffsetSpec | None:
    """Return where to begin without a committed offset, or None for auto.offset.reset=none."""
    from kops.client.offsets import EARLIEST, LATEST, OffsetSpec, parse_offset

    if reset is None:
        return OffsetSpec("named", EARLIEST) if from_beginning else parse_offset("latest" if offset is None else offset)
    from kops.client.config.consumer import CONSUMER_CONFIG_DEF
    from kops.client.consumer.options import Reset

    if offset is not None or (from_beginning and reset != "earliest"):
        raise UsageError(f"{'--from-beginning' if from_beginning else '--offset'} and auto.offset.reset={reset} exclude each other")
    wanted = Reset.of(str(CONSUMER_CONFIG_DEF.keys["auto.offset.reset"].parse(reset)))
    if wanted is None:
        return None
    target = wanted.timestamp(time.time_ns() // 1_000_000)
    return OffsetSpec("named" if target in (EARLIEST, LATEST) else "time", target)


def _print_text(out: Output, batches: Iterator[Fetched], source: _Partitions | _Group, text: KafkaText) -> None:
    for fetched in batches:
        for record in fetched.records:
            out.write(text.line(record, fetched.key.partition))
            source.done(fetched.key, record.offset + 1)


class _Partitions:
    """The partitions to read without a group."""

    def __init__(self, out: Output, client: Client, keys: list[TopicPartition], spec: OffsetSpec, until_end: bool) -> None:
        from kops.client.consumer.faces.batches import BatchConsumer

        self.client = client
        self.ends = end_offsets(client, keys) if until_end else None
        self._consumer = BatchConsumer(client, start_offsets(client, keys, spec), on_reset=lambda key, start: tell_reset(out, key, start))

    def poll(self, timeout_ms: float) -> Iterable[Fetched]:
        """The next batches."""
        return self._consumer.poll(timeout_ms)

    def is_over(self) -> bool:
        """Whether all ends are reached. Stops reading partitions that are at their end."""
        if self.ends is None:
            return False
        for key, position in self._consumer.positions.items():
            if position >= self.ends[key]:
                self._consumer.drop(key)
        return not self._consumer.positions

    @property
    def is_reading(self) -> bool:
        """True: without a group, all partitions are read from the beginning."""
        return True

    def done(self, key: TopicPartition, next_offset: int) -> None:
        """Do nothing: without a group no offset is committed."""

    def resume(self) -> str:
        """The command line that continues where this one stopped, for one partition."""
        positions = self._consumer.positions
        if len(positions) != 1:
            return ""
        [(key, position)] = positions.items()
        return f"kops topic consume {key.topic} --partition {key.partition} --offset {position}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Group:
    """The partitions that a group assigns to this member. Offsets of printed records are committed."""

    def __init__(
        self, out: Output, client: Client, keys: list[TopicPartition], spec: OffsetSpec | None, until_end: bool, group: str
    ) -> None:
        from kops.client.consumer.faces.grouped import GroupReader

        settings = client.settings
        self.client = client
        self.ends = end_offsets(client, keys) if until_end else None
        self._out = out
        self._name, self._topic = group, keys[0].topic
        self._is_ending = self._has_lost_output = False
        self._written: dict[TopicPartition, int] = {}
        self._ask_ms = 0.0  # when to ask whether this member gets partitions
        # A table buffers rows, and an incomplete file is removed after an error, so offsets cannot be committed earlier.
        self._streams = out.file is None and out.format not in ("table", "wide")
        self._commits = settings.enable_auto_commit
        self._consumer = GroupReader(
            settings,
            group,
            self._topic,
            start_offsets=None if spec is None else lambda missing: start_offsets(client, list(missing), spec),
            commit_interval_ms=settings.auto_commit_interval_ms if self._streams and self._commits else None,
            settle=self._settle,
            on_change=self._changed,
            on_reset=self._tell_reset,
            on_trouble=out.warn,
            on_wait=client.tell,
        )

    def poll(self, timeout_ms: float) -> Iterable[Fetched]:
        """The next batches."""
        return self._consumer.read(timeout_ms / 1000)

    def is_over(self) -> bool:
        """Whether all ends of this member's partitions are reached."""
        if self.ends is None or not self._consumer.is_assigned:
            return False
        if not self._consumer.positions and not self._is_left_out():
            return False
        return all(position is not None and position >= self.ends.get(key, 0) for key, position in self._consumer.positions.items())

    def _is_left_out(self) -> bool:
        """Whether the group is stable without partitions for this member. A new member often gets none at first (KIP-429, KIP-848)."""
        from kops.client.coordinators.groups import GroupDescription, describe_groups

        now_ms = self.client.now_ms()
        if now_ms < self._ask_ms:
            return False
        self._ask_ms = now_ms + ASK_MS
        found = describe_groups(self.client, [self._name])[self._name]
        if not isinstance(found, GroupDescription) or found.state != "Stable":
            return False
        # The member may hear of its partitions only later.
        ours = self._consumer.group_metadata().member_id
        return any(one.member_id == ours and not one.assignment and not one.target for one in found.members)

    @property
    def is_reading(self) -> bool:
        """Whether the group has assigned partitions to this member."""
        return self._consumer.is_assigned

    def done(self, key: TopicPartition, next_offset: int) -> None:
        """Note that all records before this offset are printed."""
        self._written[key] = next_offset
        # Commit in pieces smaller than a pipe's buffer: if the reader of the pipe exits, only uncommitted records are read again.
        if self._streams and not 0 < self._out.pending_bytes < PIECE_BYTES:
            self._settle()

    def resume(self) -> str:
        """The command line that continues at the group's offsets."""
        return f"kops topic consume {self._topic} --group {shlex.quote(self._name)}"

    def _settle(self) -> None:
        from kops.cli.printing.sink import OutputClosed

        if self._has_lost_output:
            return
        try:
            self._out.flush()
        except OutputClosed:
            if not self._is_ending:
                raise
            return
        for key, offset in self._written.items():
            self._consumer.done(key, offset)
        self._written.clear()

    def _changed(self, taken: Sequence[TopicPartition], given: Sequence[TopicPartition]) -> None:
        if taken:
            self._out.detail(f"group {self._name}: this member reads {_names(self._consumer.positions)}")
        elif given:
            self._out.detail(f"group {self._name}: this member no longer reads {_names(given)}")
        elif not self._consumer.positions:
            self._out.say(f"group {self._name}: no partition is left for this member")

    def _tell_reset(self, key: TopicPartition, position: int, start: int) -> None:
        self._out.warn(f"{key.topic}-{key.partition}: the log has no offset {position} any more; continuing at {start}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from kops.cli.printing.sink import OutputClosed, OutputError

        self._is_ending = True
        failure = error if isinstance(error, OutputError) else self._flush_failure()
        # Records that were not written when the output failed must not be committed. A flush would succeed now, because its buffer is
        # empty.
        self._has_lost_output = failure is not None
        is_complete = failure is None and (kind is None or issubclass(kind, KeyboardInterrupt | OutputClosed))
        self._consumer.finish(commits=self._commits and (self._streams or is_complete))
        if failure is not None and failure is not error:
            raise failure

    def _flush_failure(self) -> OutputError | None:
        from kops.cli.printing.sink import OutputClosed, OutputError

        try:
            self._out.flush()
        except OutputClosed:
            return None
        except OutputError as error:
            return error
        return None


@contextmanager
def warnings_of_client(out: Output) -> Iterator[None]:
    """Print the warnings of the client as the command's own."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out.warn(record.getMessage())

    handler, log = Handler(logging.WARNING), logging.getLogger("kops.client")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{key.topic}-{key.partition}" for key in sorted(keys))


def tell_reset(out: Output, key: TopicPartition, start: int) -> None:
    """Warn that records are gone."""
    out.warn(f"{key.topic}-{key.partition}: the next records were deleted; continuing at {start}, where the log starts now")


def _find_partitions(client: Client, topic: str, wanted: list[int]) -> list[TopicPartition]:
    from kops.client.client import error_of
    from kops.records.log_offsets import TopicPartition

    (found,) = client.fetch_metadata([topic]).topics
    error = error_of(found.error_code)
    if error is not None:
        raise no_such("topic", [topic]) if error.name == "UNKNOWN_TOPIC_OR_PARTITION" else ApiError(error.name, f"{topic}: {error}")
    there = sorted(one.partition_index for one in found.partitions)
    if set(wanted) - set(there):
        raise no_such("partition", sorted(f"{topic}-{number}" for number in set(wanted) - set(there)))
    return [TopicPartition(topic, number) for number in (wanted or there)]


def start_offsets(client: Client, keys: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    """Return the offsets at which to begin. Raises ApiError."""
    from kops.client.leaders.offsets import resolve_offsets

    return _plain(resolve_offsets(client, dict.fromkeys(keys, spec), committed=client.settings.isolation_level == "read_committed"))


def end_offsets(client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets at which the partitions end now. Raises ApiError."""
    from kops.client.leaders.offsets import list_offsets
    from kops.client.offsets import LATEST

    return _plain(list_offsets(client, dict.fromkeys(keys, LATEST), committed=client.settings.isolation_level == "read_committed"))


def _plain(found: Mapping[TopicPartition, ListedOffset | ApiError]) -> dict[TopicPartition, int]:
    offsets = {}
    for key, one in found.items():
        if isinstance(one, ApiError):
            raise ApiError(one.name, f"{key.topic}-{key.partition}: {one}")
        offsets[key] = one.offset
    return offsets


def _fetched(out: Output, source: _Partitions | _Group, timeout_ms: int | None) -> Iterator[Fetched]:
    """The fetched batches, until all ends are reached or no record arrives for `timeout_ms`."""
    client, ends = source.client, source.ends
    heard_ms = client.now_ms()
    while not source.is_over():
        came = False
        for fetched in source.poll(100):
            came = True
            if ends is None:
                yield fetched
                continue
            records = [record for record in fetched.records if record.offset < ends.get(fetched.key, 0)]
            if records:
                yield fetched._replace(records=records)
        now_ms = client.now_ms()
        if came or not source.is_reading:
            heard_ms = now_ms
        if came:
            continue
        # Flush before a pause, so that the reader sees all records.
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


def _print(out: Output, documents: Iterator[dict[str, Any]], with_batch: bool) -> None:
    if out.format == "jsonl":
        for document in documents:
            out.record({"schema": SCHEMA, **document})
        return
    columns = [*COLUMNS, Column("batch", wide=True)] if with_batch else COLUMNS
    if out.format not in ("table", "wide"):
        out.rows(documents, columns, schema="kops.records/v1", key="records")
        return
    # Lines are aligned in pieces. After an interrupt, the last piece must still be printed.
    rows = _UntilInterrupt(documents)
    out.rows(rows, columns, schema="kops.records/v1", key="records")
    if rows.interrupt is not None:
        raise rows.interrupt


class _UntilInterrupt:
    """Yields the same rows and ends at Ctrl-C. `interrupt` keeps the exception."""

    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
        self._rows = rows
        self.interrupt: KeyboardInterrupt | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self._rows
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt


def _documents(
    batches: Iterator[Fetched], source: _Partitions | _Group, key_encoding: str, value_encoding: str, with_batch: bool
) -> Iterator[dict[str, Any]]:
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
            source.done(fetched.key, record.offset + 1)


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


class KafkaText:
    """A record as kafka-console-consumer prints it (Kafka's DefaultMessageFormatter)."""

    SWITCHES = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
    TEXTS = ("key.separator", "line.separator", "headers.separator", "null.literal")

    def __init__(self, properties: Any) -> None:
        """`properties` are texts such as `print.key=true`, `key.separator=:`. Raises UsageError for an unknown one."""
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
            return b"Epoch:NOT_PRESENT"  # The records that Kafka's tool passes to its formatter have no epoch.
        if switch == "headers":
            return self._headers_separator.join(map(self._header, record.headers)) or b"NO_HEADERS"
        content: bytes | None = record.key if switch == "key" else record.value
        return self._null if content is None else content

    def _header(self, header: Any) -> bytes:
        name, value = header
        return (name.encode() if isinstance(name, str) else name) + b":" + (self._null if value is None else value)
