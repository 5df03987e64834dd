"""`kops log dump`: prints the contents of segments, indexes, snapshots and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FAILED, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.cli.printing.progress import Progress
    from kops.forensics.dump.documents import DocumentOptions, Documents
    from kops.forensics.dump.filters import RecordFilter
    from kops.forensics.dump.messages import RecordParser
    from kops.forensics.dump.text import DumpOptions, DumpProblem
    from kops.forensics.inventory.tree import Inventory

INT_MAX = 0x7FFFFFFF
MAX_CELL = 60
SCHEMA = "kops.dump/v1"
DAMAGE = "kops.damage/v1"

Paths = Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="Files, partition directories, log directories.")]
Files = Annotated[str | None, typer.Option(metavar="A,B", help="Files, separated by commas, as Kafka's tool takes them.")]
PrintDataLog = Annotated[bool, typer.Option("--print-data-log", help="Show records with their contents.")]
DeepIteration = Annotated[
    bool, typer.Option("--deep-iteration", help="Print a line for each record. Kafka format: --print-data-log adds contents.")
]
SkipMetadata = Annotated[bool, typer.Option("--skip-record-metadata", help="Kafka format: keys and payloads only, no control records.")]
VerifyIndexOnly = Annotated[bool, typer.Option("--verify-index-only", help="Kafka format: compare indexes, don't print them.")]
SanityCheck = Annotated[bool, typer.Option("--index-sanity-check", help="Kafka format: only check indexes as a starting broker does.")]
MaxBytes = Annotated[
    int, typer.Option(metavar="N", min=0, max=INT_MAX, help="Read at most this many bytes of each log.", show_default=False)
]
MaxMessageSize = Annotated[
    int, typer.Option(metavar="N", min=0, max=INT_MAX, help="Kafka format: the largest batch to expect at an index entry.")
]
MaxRecordBytes = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=INT_MAX, help="The largest record that is shown of a batch of over 4 MiB uncompressed."),
]
KeyDecoder = Annotated[
    str | None,
    typer.Option("--key-decoder-class", metavar="NAME", help="One of Kafka's decoders, or module:callable of Python.", show_default=False),
]
ValueDecoder = Annotated[str | None, typer.Option("--value-decoder-class", metavar="NAME", help="The same for values.", show_default=False)]
OffsetsDecoder = Annotated[bool, typer.Option("--offsets-decoder", help="Records of __consumer_offsets as JSON.")]
TransactionDecoder = Annotated[bool, typer.Option("--transaction-log-decoder", help="Records of __transaction_state as JSON.")]
MetadataDecoder = Annotated[bool, typer.Option("--cluster-metadata-decoder", help="Records of __cluster_metadata as JSON.")]
RemoteDecoder = Annotated[bool, typer.Option("--remote-log-metadata-decoder", help="Records of __remote_log_metadata as text.")]
ShareDecoder = Annotated[bool, typer.Option("--share-group-state-decoder", help="Records of __share_group_state as JSON.")]
FromOffset = Annotated[int | None, typer.Option(metavar="N", help="First offset to show.", show_default=False)]
ToOffset = Annotated[int | None, typer.Option(metavar="N", help="Last offset to show.", show_default=False)]
FromTime = Annotated[str | None, typer.Option(metavar="TIME", help="First timestamp to show: ms since 1970, or ISO.", show_default=False)]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Last timestamp to show.", show_default=False)]
Pid = Annotated[int | None, typer.Option(metavar="N", help="Only of this producer id.", show_default=False)]
Epoch = Annotated[int | None, typer.Option(metavar="N", help="Only of this producer epoch.", show_default=False)]
LeaderEpoch = Annotated[int | None, typer.Option(metavar="N", help="Only of this leader epoch.", show_default=False)]
TxnId = Annotated[
    str | None, typer.Option("--txn-id", metavar="ID", help="Only records of __transaction_state about this id.", show_default=False)
]
Key = Annotated[str | None, typer.Option(metavar="RE", help="Only records whose key matches this regular expression.", show_default=False)]
Headers = Annotated[list[str] | None, typer.Option(metavar="K[=V]", help="Only records with this header.", show_default=False)]
Control = Annotated[bool | None, typer.Option("--control/--no-control", help="Only control records, or none of them.", show_default=False)]
Isolation = Annotated[
    str | None, typer.Option(metavar="LEVEL", help="What a consumer gets: read_committed or read_uncommitted.", show_default=False)
]
KeyEncoding = Annotated[
    str | None, typer.Option(metavar="utf8|hex|base64", help="Keys as text (default: base64, in a table utf8).", show_default=False)
]
ValueEncoding = Annotated[str | None, typer.Option(metavar="utf8|hex|base64", help="Values and header values as text.", show_default=False)]
EXAMPLES = (
    ("The batches of a segment.", "kops log dump /data/orders-0/00000000000000000000.log"),
    ("Byte for byte what kafka-dump-log prints.", "kops log dump --format kafka --print-data-log 00000000000000000000.log"),
    (
        "Records of an hour whose key begins with eu, as JSON.",
        "kops log dump --print-data-log --format jsonl --from-time 2026-11-21T03:00Z --to-time 2026-11-21T04:00Z --key ^eu orders-0",
    ),
    (
        "Offsets of groups, as Kafka's tool shows them.",
        "kops log dump --format kafka --offsets-decoder /data/__consumer_offsets-7/00000000000000000000.log",
    ),
    ("Records that a read_committed consumer gets.", "kops log dump --isolation read_committed --format jsonl /data/orders-0"),
)


@command(formats=("table", "wide", "kafka", "jsonl", "json", "csv", "yaml"), examples=EXAMPLES)
def dump(
    out: Output,
    paths: Paths = None,
    files: Files = None,
    print_data_log: PrintDataLog = False,
    deep_iteration: DeepIteration = False,
    skip_record_metadata: SkipMetadata = False,
    verify_index_only: VerifyIndexOnly = False,
    index_sanity_check: SanityCheck = False,
    max_bytes: MaxBytes = INT_MAX,
    max_message_size: MaxMessageSize = 5 * 1024 * 1024,
    max_record_bytes: MaxRecordBytes = 128 * 1024 * 1024,
    key_decoder: KeyDecoder = None,
    value_decoder: ValueDecoder = None,
    offsets_decoder: OffsetsDecoder = False,
    transaction_log_decoder: TransactionDecoder = False,
    cluster_metadata_decoder: MetadataDecoder = False,
    remote_log_metadata_decoder: RemoteDecoder = False,
    share_group_state_decoder: ShareDecoder = False,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    pid: Pid = None,
    epoch: Epoch = None,
    leader_epoch: LeaderEpoch = None,
    txn_id: TxnId = None,
    key: Key = None,
    header: Headers = None,
    control: Control = None,
    isolation: Isolation = None,
    key_encoding: KeyEncoding = None,
    value_encoding: ValueEncoding = None,
) -> int:
    """Show the contents of segments, indexes, snapshots, checkpoints and the other files of Kafka's directories.

    Logs show their batches, or their records with --print-data-log. All other files are decoded as well. Damage is shown in its place,
    followed by the intact data after it, and the exit code is 4. With --format kafka the text is that of Apache Kafka 4.3's kafka-dump-log.
    Where that tool fails with an exception, this one continues. The files are only read. Ranges include both ends. A directory without any
    of Kafka's files is wrong usage (16).
    """
    wanted = [*(paths or []), *_split(files)]
    if not wanted:
        raise UsageError("name the files or directories to dump, as arguments or with --files")
    chosen = _filter(from_offset, to_offset, from_time, to_time, pid, epoch, leader_epoch, key, header or [], control, txn_id)
    decoders = _decoders(key_decoder, value_decoder)
    flags = (offsets_decoder, transaction_log_decoder, cluster_metadata_decoder, remote_log_metadata_decoder, share_group_state_decoder)
    parser = _parser(flags)
    asked = (key_decoder, value_decoder, isolation, key, txn_id, parser)
    records = print_data_log or bool(header) or any(option is not None for option in asked)
    if out.format != "kafka":
        _only_in_kafkas(
            verify_index_only=verify_index_only, index_sanity_check=index_sanity_check, skip_record_metadata=skip_record_metadata
        )
    encodings, sizes = (key_encoding, value_encoding), (max_bytes, max_record_bytes)
    options = _document_options(out, records or deep_iteration, chosen, (*decoders, parser), isolation, *encodings, sizes)
    inventory = _inventory(out, wanted)
    if out.format == "kafka":
        from kops.forensics.dump.text import DumpOptions

        limits = (verify_index_only, index_sanity_check, max_bytes, max_message_size, max_record_bytes)
        shown_as = (*decoders, None if chosen.empty else chosen, parser)
        return _kafka(out, inventory, wanted, DumpOptions(records, deep_iteration, skip_record_metadata, *limits, *shown_as))
    return _documents(out, inventory, options)


def _inventory(out: Output, wanted: list[str]) -> Inventory:
    """What is at these paths. What can't be read is reported."""
    from kops.files import OsFiles
    from kops.forensics.inventory.tree import open_paths, refuse_without_partitions

    files = OsFiles(read_only=True)
    inventory = open_paths(wanted, files)
    refuse_without_partitions(wanted, inventory, files)
    for problem in inventory.problems:
        out.warn(f"{problem.path}: {problem.reason}")
        out.status |= FAILED
    return inventory


def _only_in_kafkas(**flags: bool) -> None:
    for name, given in flags.items():
        if given:
            raise UsageError(f"--{name.replace('_', '-')}: only with --format kafka")


def _split(files: str | None) -> list[str]:
    """Split as Java does: without empty names at the end."""
    names = [] if files is None else files.split(",")
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise UsageError(f"--files {files}: a name between two commas is empty")
    return names


def _decoders(key: str | None, value: str | None) -> tuple[Any, Any]:
    if key is None and value is None:
        return None, None
    from kops.forensics.dump.decoders import find_decoder

    return find_decoder(key, "--key-decoder-class"), find_decoder(value, "--value-decoder-class")


def _parser(flags: tuple[bool, ...]) -> RecordParser | None:
    """The decoder of an internal topic's records, if one was requested."""
    if not any(flags):
        return None
    from kops.forensics.dump.messages import PARSERS

    chosen = [name for name, given in zip(PARSERS, flags, strict=True) if given]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(f'--{name}-decoder' for name in chosen)}: choose one decoder")
    return PARSERS[chosen[0]]


def _filter(
    from_offset: int | None,
    to_offset: int | None,
    from_time: str | None,
    to_time: str | None,
    pid: int | None,
    epoch: int | None,
    leader_epoch: int | None,
    key: str | None,
    headers: list[str],
    control: bool | None,
    txn_id: str | None,
) -> RecordFilter:
    from kops.forensics.dump.filters import RecordFilter, parse_headers, parse_key, parse_time

    first = None if from_time is None else parse_time(from_time, "--from-time")
    last = None if to_time is None else parse_time(to_time, "--to-time")
    if from_offset is not None and to_offset is not None and from_offset > to_offset:
        raise UsageError(f"--from-offset {from_offset} is after --to-offset {to_offset}")
    if first is not None and last is not None and first > last:
        raise UsageError(f"--from-time {from_time} is later than --to-time {to_time}")
    return RecordFilter(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=first,
        to_time=last,
        producer_id=pid,
        producer_epoch=epoch,
        leader_epoch=leader_epoch,
        key=None if key is None else parse_key(key, "--key"),
        headers=parse_headers(headers),
        control=control,
        transactional_id=txn_id,
    )


def _kafka(out: Output, inventory: Inventory, named: list[str], options: DumpOptions) -> int:
    """Print the text of Kafka's tool, and then the messages about damage."""
    import os
    import sys

    from kops.files import OsFiles
    from kops.forensics.dump.kafka_text import KafkaDump
    from kops.forensics.dump.text import KNOWN_SUFFIXES, DumpText

    def say(line: bytes) -> None:
        # If both streams have the same destination, the lines are in Kafka's order.
        out.flush()
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()

    text = DumpText(out.write, say)
    run = KafkaDump(OsFiles(read_only=True), options, text)
    loose = {entry.path for entry in inventory.loose_files}
    paths = [path for path in named if path in loose]
    paths += [entry.path for entry in inventory.all_files() if entry.path not in loose and entry.name.endswith(KNOWN_SUFFIXES)]
    with _progress(out, inventory) as bar:
        text.on_read = bar.update
        for path in paths:
            try:
                run.file(path)
            except OSError as error:
                out.warn(f"{os.fsdecode(path)}: {error.strerror or error}")
                out.status |= FAILED
            if text.problems:
                out.status |= PROBLEMS
    run.finish()
    for problem in _bundled(text.problems):
        out.say(f"kops: {problem}")
    return 0


def _bundled(problems: list[DumpProblem]) -> Iterator[str]:
    """A line for each problem; at most 20 for a file."""
    for path, group in groupby(problems, key=lambda problem: problem.path):
        found = list(group)
        yield from (str(problem) for problem in found[:20])
        if len(found) > 20:
            yield f"{path}: and {len(found) - 20} more"


def _document_options(
    out: Output,
    records: bool,
    chosen: RecordFilter,
    decoders: tuple[Any, Any, RecordParser | None],
    isolation: str | None,
    key_encoding: str | None,
    value_encoding: str | None,
    limits: tuple[int, int],
) -> DocumentOptions:
    from kops.forensics.dump.documents import DocumentOptions
    from kops.forensics.dump.filters import check_encoding
    from kops.forensics.dump.isolation import ISOLATIONS

    if isolation is not None and isolation not in ISOLATIONS:
        raise UsageError(f"--isolation {isolation}: not one of {', '.join(ISOLATIONS)}")
    if isolation is not None and out.format == "kafka":
        raise UsageError("--isolation: not available with --format kafka")
    default = "utf8" if out.format in ("table", "wide") else "base64"
    return DocumentOptions(
        records=records,
        filter=chosen,
        key_encoding=check_encoding(key_encoding or default, "--key-encoding"),
        value_encoding=check_encoding(value_encoding or default, "--value-encoding"),
        key_decoder=decoders[0],
        value_decoder=decoders[1],
        parser=decoders[2],
        isolation=isolation,
        max_bytes=limits[0],
        max_record_bytes=limits[1],
    )


def _documents(out: Output, inventory: Inventory, options: DocumentOptions) -> int:
    from kops.files import OsFiles
    from kops.forensics.dump.documents import Documents

    source = Documents(OsFiles(read_only=True), options)
    stream = _stream(out, inventory, source)
    with _progress(out, inventory) as bar:
        source.on_read = bar.update
        _print(out, stream)
    return 0


def _progress(out: Output, inventory: Inventory) -> Progress:
    """A progress bar over the bytes of all logs, unless the data goes to the terminal."""
    total = sum(entry.size for entry in inventory.all_files() if entry.kind in ("log", "checkpoint"))
    if not out.is_terminal:
        return out.progress("dump", total)
    from kops.cli.printing.progress import Progress

    return Progress("dump", total, "B", enabled=False, color=False)


def _print(out: Output, stream: Iterator[dict[str, Any]]) -> None:
    if out.format == "jsonl":
        for document in stream:
            out.record(document)
    elif out.format in ("json", "yaml"):
        out.document({"documents": stream}, schema=SCHEMA)
    elif out.format == "csv":
        _csv(out, stream)
    else:
        from kops.cli.printing.text import one_line

        for (schema, file), group in groupby(_without_damage(out, stream), key=_section):
            out.line(one_line(file))
            out.rows(_rows(group, human=True, cut=out.format == "table"), _columns(schema), schema=schema)
            out.line()


def _stream(out: Output, inventory: Inventory, source: Documents) -> Iterator[dict[str, Any]]:
    """All documents of all files; a file that can't be read is reported and skipped."""
    from kops.forensics.dump.documents import chosen_files

    last: dict[str, Any] = {}
    try:
        for entry, partition in chosen_files(inventory, source.options):
            try:
                for last in source.of_file(entry, partition):
                    if last["schema"] == DAMAGE:
                        out.status |= PROBLEMS
                    yield last
            except OSError as error:
                out.warn(f"{entry.path}: {error.strerror or error}")
                out.status |= FAILED
    except KeyboardInterrupt:
        if "offset" in last:
            out.resume = f"kops log dump … --from-offset {last['offset'] + 1}"
        raise


def _section(document: dict[str, Any]) -> tuple[str, str]:
    file = document["batch"]["file"] if "batch" in document else document["file"]
    return document["schema"], file


def _without_damage(out: Output, documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """With a table or csv, damage is reported on stderr."""
    for document in documents:
        if document["schema"] == DAMAGE:
            damage = document["damage"]
            where = damage["file"] if damage["position"] is None else f"{damage['file']}:{damage['position']}"
            end = "on" if damage["lastOffset"] is None else f"to {damage['lastOffset']}"
            offsets = "" if damage["baseOffset"] is None else f" (offsets {damage['baseOffset']} {end})"
            out.warn(f"{where}: {damage['code']}: {damage['reason']}{offsets}")
        else:
            yield document


def _csv(out: Output, documents: Iterable[dict[str, Any]]) -> None:
    """A csv has one kind of rows: batches or records if there are any, else the first kind found. Rows of other kinds are reported."""
    others: dict[str, int] = {}
    stream = _without_damage(out, documents)
    held: list[dict[str, Any]] = []
    for document in stream:
        held.append(document)
        if document["schema"] in _SEGMENT_ROWS or len(held) >= _HELD:
            break
    if not held:
        return
    shown = held[-1]["schema"] if held[-1]["schema"] in _SEGMENT_ROWS else held[0]["schema"]

    def of_kind() -> Iterator[dict[str, Any]]:
        for document in chain(held, stream):
            if document["schema"] == shown:
                yield document
            else:
                others[document["schema"]] = others.get(document["schema"], 0) + 1

    out.rows(_rows(of_kind(), human=False, cut=False), _columns(shown), schema=shown)
    for schema, count in others.items():
        out.warn(f"{count} rows of another kind, {schema}, are not in this csv; dump those files alone")


_SEGMENT_ROWS = ("kops.batch/v1", "kops.record/v1")
_HELD = 100_000
"""This many rows of other kinds are kept while waiting for the first batch."""


def _rows(documents: Iterable[dict[str, Any]], *, human: bool, cut: bool) -> Iterator[dict[str, Any]]:
    """Documents as flat rows. For people, nested values become text, and with `cut` long keys and values are shortened."""
    for document in documents:
        row = dict(document)
        if "batch" in row:
            batch = row.pop("batch")
            row.update({name: batch[name] for name in ("position", "codec", "producerId", "producerEpoch", "flags", "file")})
            if human:
                row["headers"] = [name if value is None else f"{name}={value}" for name, value in row["headers"]]
                row["control"] = _words(row.get("control"))
        elif human and "fields" in row:
            row["fields"] = _words(row["fields"])
        if cut:
            for name in ("key", "value"):
                if isinstance(row.get(name), str) and len(row[name]) > MAX_CELL:
                    row[name] = row[name][: MAX_CELL - 1] + "…"
        yield row


def _words(fields: dict[str, Any] | None) -> str | None:
    return None if fields is None else " ".join(f"{name}={value}" for name, value in fields.items())


def _columns(schema: str) -> list[Column]:
    """The columns for a kind of document; `wide` columns are for --format wide and csv."""
    return [Column(key, title, kind, wide=wide) for key, title, kind, wide in _COLUMNS[schema]]


_COLUMNS: dict[str, list[tuple[str, str | None, str, bool]]] = {
    "kops.record/v1": [
        ("offset", None, "int", False),
        ("timestamp", None, "time_ms", False),
        ("tsType", "type", "text", True),
        ("key", None, "text", False),
        ("value", None, "text", False),
        ("headers", None, "list", False),
        ("control", None, "text", False),
        ("leaderEpoch", "epoch", "int", False),
        ("topic", None, "text", True),
        ("partition", None, "int", True),
        ("sequence", None, "int", True),
        ("position", None, "int", True),
        ("codec", None, "text", True),
        ("producerId", "producer", "int", True),
        ("producerEpoch", "producer epoch", "int", True),
        ("flags", None, "list", True),
    ],
    "kops.batch/v1": [
        ("baseOffset", "base offset", "int", False),
        ("lastOffset", "last offset", "int", False),
        ("count", None, "int", False),
        ("position", None, "int", False),
        ("size", None, "bytes", False),
        ("magic", None, "int", False),
        ("codec", None, "text", False),
        ("maxTimestamp", "max timestamp", "time_ms", False),
        ("tsType", "type", "text", True),
        ("leaderEpoch", "epoch", "int", False),
        ("producerId", "producer", "int", False),
        ("producerEpoch", "producer epoch", "int", True),
        ("baseSequence", "sequence", "int", False),
        ("lastSequence", "last sequence", "int", True),
        ("isTransactional", "txn", "text", False),
        ("isControl", "control", "text", False),
        ("deleteHorizonMs", "delete horizon", "time_ms", True),
        ("crc", None, "int", True),
    ],
    "kops.index-entry/v1": [("offset", None, "int", False), ("position", None, "int", False)],
    "kops.timeindex-entry/v1": [("timestamp", None, "time_ms", False), ("offset", None, "int", False)],
    "kops.aborted-txn/v1": [
        ("producerId", "producer", "int", False),
        ("firstOffset", "first offset", "int", False),
        ("lastOffset", "last offset", "int", False),
        ("lastStableOffset", "last stable offset", "int", False),
        ("version", None, "int", True),
    ],
    "kops.producer/v1": [
        ("producerId", "producer", "int", False),
        ("producerEpoch", "epoch", "int", False),
        ("lastSequence", "last sequence", "int", False),
        ("lastOffset", "last offset", "int", False),
        ("offsetDelta", "delta", "int", True),
        ("timestamp", None, "time_ms", False),
        ("coordinatorEpoch", "coordinator epoch", "int", False),
        ("currentTxnFirstOffset", "transaction from", "int", False),
    ],
    "kops.checkpoint-entry/v1": [("topic", None, "text", False), ("partition", None, "int", False), ("offset", None, "int", False)],
    "kops.leader-epoch/v1": [("epoch", None, "int", False), ("startOffset", "start offset", "int", False)],
    "kops.file/v1": [("kind", None, "text", False), ("size", None, "bytes", False), ("fields", None, "text", False)],
}
