"""The options of `kops log grep` and `kops scan grep`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.table import Column
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.questions.search import Search, ValueDecoder

SCHEMA = "kops.grep/v1"
COUNT_SCHEMA = "kops.grep-count/v1"
MAX_CELL = 60


def _option(name: str, metavar: str, help: str) -> Any:
    """An option without a default."""
    return typer.Option(name, metavar=metavar, help=help, show_default=False)


Key = Annotated[str | None, _option("--key", "RE", "Only records whose key matches this regular expression.")]
Value = Annotated[str | None, _option("--value", "RE", "Only records whose value matches this regular expression.")]
Header = Annotated[list[str] | None, _option("--header", "K[=RE]", "Only records with this header; RE must match its value.")]
JsonPath = Annotated[
    list[str] | None,
    _option("--jsonpath", "PATH[=V]", "Only records with this part in their value: $.a.b, $.a[0]=V, $..a=~RE. Values are JSON."),
]
Avro = Annotated[str | None, _option("--avro", "FILE", "Values are Avro with the schema in this file (.avsc).")]
Protobuf = Annotated[str | None, _option("--protobuf", "FILE", "Values are Protobuf with this descriptor set of protoc. Needs --message.")]
MessageName = Annotated[str | None, _option("--message", "NAME", "The message in --protobuf.")]
FromOffset = Annotated[int | None, _option("--from-offset", "N", "Only records from this offset on.")]
ToOffset = Annotated[int | None, _option("--to-offset", "N", "Only records up to this offset.")]
FromTime = Annotated[str | None, _option("--from-time", "TIME", "Only from this time on: ms, or ISO.")]
ToTime = Annotated[str | None, _option("--to-time", "TIME", "Only up to this time.")]
Pid = Annotated[int | None, _option("--pid", "N", "Only records of this producer id.")]
Epoch = Annotated[int | None, _option("--epoch", "N", "Only records of this producer epoch.")]
LeaderEpoch = Annotated[int | None, _option("--leader-epoch", "N", "Only batches of this leader epoch.")]
TxnId = Annotated[
    str | None, _option("--txn-id", "ID", "Only records in transactions of this id; needs __transaction_state below the paths.")
]
TxnState = Annotated[
    list[str] | None, _option("--txn-state", "STATE", "Only records in transactions that are committed, aborted or open, or in none.")
]
Invert = Annotated[bool, typer.Option("--invert-match", help="Only records whose key, value, headers and parts do not match.")]
Count = Annotated[bool, typer.Option("--count", "-c", help="Only the number of records in each partition.")]
MaxCount = Annotated[int | None, typer.Option("--max-count", "-m", metavar="N", min=1, help="Stop after N records.", show_default=False)]

COUNT_COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("records", kind="int"),
    Column("path", wide=True),
    Column("broker", kind="int", wide=True),
]


def columns(wanted: Search) -> list[Column]:
    """The columns: in a table a decoded value stands in the place of its bytes."""
    is_decoded = wanted.decode is not None
    return [
        Column("topic"),
        Column("partition", kind="int"),
        Column("offset", kind="int"),
        Column("timestamp", kind="time_ms"),
        Column("key"),
        Column("value", wide=is_decoded),
        Column("decoded", "value" if is_decoded else None, wide=not is_decoded),
        Column("headers", kind="list", wide=True),
        Column("leader_epoch", "epoch", "int", wide=True),
        Column("producer_id", "producer", "int", wide=True),
        Column("producer_epoch", kind="int", wide=True),
        Column("sequence", kind="int", wide=True),
        Column("path", wide=True),
        Column("broker", kind="int", wide=True),
    ]


def search_of(given: Mapping[str, Any]) -> Search:
    """What the options ask for, by the names of the command's parameters. Raises UsageError, OSError for a schema."""
    from kops.forensics.dump.filters import RecordFilter, parse_key, parse_time
    from kops.forensics.questions.outcomes import OUTCOMES
    from kops.forensics.questions.search import Search
    from kops.forensics.questions.values.json_path import parse_condition

    for each in given["txn_state"] or ():
        if each not in OUTCOMES:
            raise UsageError(f"--txn-state {each}: not one of {', '.join(OUTCOMES)}")
    limits = RecordFilter(
        from_offset=given["from_offset"],
        to_offset=given["to_offset"],
        from_time=None if given["from_time"] is None else parse_time(given["from_time"], "--from-time"),
        to_time=None if given["to_time"] is None else parse_time(given["to_time"], "--to-time"),
        producer_id=given["pid"],
        producer_epoch=given["epoch"],
        leader_epoch=given["leader_epoch"],
        control=False,
    )
    wanted = Search(
        limits,
        key=None if given["key"] is None else parse_key(given["key"], "--key"),
        value=None if given["value"] is None else parse_key(given["value"], "--value"),
        headers=tuple(_header(text) for text in given["header"] or ()),
        parts=tuple(parse_condition(text, "--jsonpath") for text in given["jsonpath"] or ()),
        outcomes=frozenset(given["txn_state"] or ()),
        invert=given["invert_match"],
    )
    wanted.decode = _decoder(given["avro"], given["protobuf"], given["message"], is_needed=bool(wanted.parts))
    if wanted.invert and not wanted.looks_into_records:
        raise UsageError("--invert-match: give --key, --value, --header or --jsonpath with it")
    return wanted


def _header(text: str) -> tuple[bytes, Any]:
    from kops.forensics.dump.filters import parse_key

    name, equals, pattern = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(pattern, f"--header {name}:") if equals else None


def _decoder(avro: str | None, protobuf: str | None, message: str | None, *, is_needed: bool) -> ValueDecoder | None:
    from kops.forensics.questions.search import decode_json

    if avro is not None and protobuf is not None:
        raise UsageError("--avro and --protobuf exclude each other")
    if (protobuf is None) != (message is None):
        raise UsageError("--protobuf and --message: give both")
    if avro is not None:
        from kops.forensics.questions.values.avro import AvroDecoder

        try:
            return AvroDecoder(_read(avro).decode())
        except (UsageError, UnicodeDecodeError) as error:
            raise UsageError(f"--avro {avro}: {error}") from None
    if protobuf is not None and message is not None:
        from kops.forensics.questions.values.protobuf import ProtobufDecoder

        try:
            return ProtobufDecoder(_read(protobuf), message)
        except UsageError as error:
            raise UsageError(f"--protobuf {protobuf} --message {message}: {error}") from None
    return decode_json if is_needed else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def shown(row: dict[str, Any], format: str) -> dict[str, Any]:
    """A row as it is printed: bytes are text in tables and base64 elsewhere, long ones are cut in tables only."""
    from kops.cli.printing.documents import compact
    from kops.forensics.dump.filters import encode_bytes

    is_table = format in ("table", "wide")
    encoding = "utf8" if is_table else "base64"
    texts = {name: encode_bytes(row[name], encoding) for name in ("key", "value")}
    texts["decoded"] = compact(row["decoded"]) if is_table and row["decoded"] is not None else row["decoded"]
    if format == "table":
        texts = {name: f"{text[: MAX_CELL - 1]}…" if text is not None and len(text) > MAX_CELL else text for name, text in texts.items()}
    headers = [
        [key if isinstance(key, str) else key.decode("utf-8", "replace"), encode_bytes(value, encoding)] for key, value in row["headers"]
    ]
    return {**row, **texts, "headers": headers}
