"""`kops log replay`: sends the records of logs on disk to a running cluster."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import FAILED, PROBLEMS
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, NotFoundError, UnreachableError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.replay.rounds import Entry
    from kops.client.replay.state import State
    from kops.files import Files
    from kops.forensics.lines.salvaged import RecordSource
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.replay/v1"
REJECTED_SCHEMA = "kops.rejected-record/v1"
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
PARTITION = ("same", "key")
ISOLATION = ("read_committed", "read_uncommitted")
STATE = "kops-replay.json"
REJECTED = "kops-replay.rejected.jsonl"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = [
    Column("log"),
    Column("topic"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("rejected", kind="int"),
    Column("aborted", kind="int", wide=True),
    Column("undecided", kind="int", wide=True),
    Column("next_offset", kind="int", wide=True),
]

Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.")]
Map = Annotated[list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="Send the records of topic OLD to topic NEW; repeatable.")]
Partition = Annotated[str, typer.Option(metavar="same|key", help="Keep each record's partition, or choose it by the record's key.")]
Isolation = Annotated[
    str, typer.Option(metavar="read_committed|read_uncommitted", help="Whether to send also records of transactions that have not ended.")
]
Codec = Annotated[str | None, typer.Option("-z", "--compression-codec", metavar="|".join(CODECS), help="How batches are compressed.")]
Throttle = Annotated[int | None, typer.Option(metavar="BYTES", help="Send at most this many bytes a second.", min=1)]
StateFile = Annotated[str, typer.Option("--state", metavar="FILE", help="The file with the progress, for --resume.")]
RejectedFile = Annotated[str, typer.Option("--rejected", metavar="FILE", help="The file for records that the cluster rejects.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an earlier run with the same options.", show_default=False)]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Show what would be sent; send nothing.", show_default=False)]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Show what would be sent.", "kops log replay -n /rescue -b broker:9092"),
        ("Send recovered records to the topics that they were in.", "kops log replay /rescue -b broker:9092"),
        ("One topic, under another name.", "kops log replay /rescue --topic orders --map orders=orders.restored"),
        ("What kops log export wrote.", "kops log replay orders-0.jsonl -b broker:9092"),
        ("Continue after an interruption.", "kops log replay --resume /rescue -b broker:9092"),
    ],
)
def replay(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories, or exports (.jsonl).")],
    topic: Topics = None,
    map_: Map = None,
    partition: Partition = "same",
    isolation: Isolation = "read_committed",
    codec: Codec = None,
    throttle: Throttle = None,
    state: StateFile = STATE,
    rejected: RejectedFile = REJECTED,
    resume: Resume = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Send the records of logs on disk to a running cluster, in the order of their offsets.

    Keys, values, headers and timestamps stay the same. The cluster assigns new offsets. Control records and records of aborted transactions
    are not sent. Damage is skipped; run kops log recover first to merge replicas and leftovers. With --partition key, records without
    a key keep their partition. Kafka's internal topics are left out. The directories are only read. A file of kops log export is sent like
    a directory; its name must end with .jsonl.

    An idempotent producer sends each record once, with acks=all. The file of --state has its id, its sequences and the batches in flight.
    After Ctrl-C or a failure, --resume looks for these batches in the cluster and sends the missing ones. The topics must keep them until
    then: replayed records have their old timestamps, so retention.ms may soon delete them. Raise it before a replay.

    Records that the cluster rejects (too large, invalid, no such topic or partition) are written to the file of --rejected, with the
    reason.

    4: records were rejected, or damage was skipped. 8: the cluster did not take a batch in time; --resume continues.
    """
    choices = _choices(paths, topic, map_, partition, isolation)
    if dry_run and resume:
        raise UsageError("give only one of -n and --resume")
    from kops.client.replay.run import begin
    from kops.files import OsFiles

    files = OsFiles(read_only=True)
    sources = _sources(out, files, paths, choices)
    begun = None if dry_run else _state(state, rejected, choices, resume=resume)
    more = {"isolation.level": "read_uncommitted", **({} if codec is None else {"compression.type": codec})}
    with connect(out, bootstrap, config, properties, more=more) as client:
        if begun is None:
            return _plan(out, client, sources, by_key=partition == "key")
        given: dict[str, object] = {
            "-b": bootstrap,
            "--command-config": config,
            "--command-property": properties,
            "--topic": topic,
            "--map": map_,
        }
        given |= {"--partition": partition, "--isolation": isolation, "-z": codec, "--throttle": throttle}
        begin(client, begun, sources)
        begun.save(OsFiles(), state)
        out.resume = _again(paths, {**given, "--state": state, "--rejected": rejected})
        return _run(out, client, begun, sources, (state, rejected), throttle)


def _again(paths: Sequence[str], given: Mapping[str, object]) -> str:
    """The command line that continues the run."""
    usual = {"--partition": PARTITION[0], "--isolation": ISOLATION[0], "--state": STATE, "--rejected": REJECTED}
    words: list[str] = []
    for name, value in given.items():
        if value is not None and value != usual.get(name):
            words += [word for each in (value if isinstance(value, list) else [value]) for word in (name, str(each))]
    return f"kops log replay --resume {shlex.join([*paths, *words])}"


def _choices(paths: Sequence[str], topics: list[str] | None, names: list[str] | None, partition: str, isolation: str) -> dict[str, Any]:
    """What decides which records are sent where, checked."""
    renamed: dict[str, str] = {}
    for text in names or ():
        old, equals, new = text.partition("=")
        if not (old and equals and new) or renamed.get(old, new) != new:
            raise UsageError(f"--map {text}: not allowed; allowed: OLD=NEW, once for each OLD")
        renamed[old] = new
    for value, allowed, option in ((partition, PARTITION, "--partition"), (isolation, ISOLATION, "--isolation")):
        if value not in allowed:
            raise UsageError(f"{option} {value}: not one of {', '.join(allowed)}")
    real = [os.path.realpath(path) for path in paths]
    return {"paths": real, "topics": topics or [], "map": renamed, "partition": partition, "isolation": isolation}


def _sources(out: Output, files: Files, paths: Sequence[str], choices: Mapping[str, Any]) -> list[RecordSource]:
    """The partitions to send, each once. Raises NotFoundError and UsageError."""
    found: dict[str, RecordSource] = {}
    wanted, renamed = choices["topics"], choices["map"]
    for source in _given(out, files, paths, choices):
        if source.name in found:
            where = f"{found[source.name].where} and in {source.where}"
            raise UsageError(f"{source.name} is in {where}; name one of them, or join them with kops log recover")
        found[source.name] = source
    topics = {source.topic for source in found.values()}
    for topic, option in [*((topic, "--topic") for topic in wanted), *((topic, "--map") for topic in renamed)]:
        if topic not in topics:
            raise NotFoundError(f"{option} {topic}: no partition of this topic is under {', '.join(paths)}")
    if not found:
        raise NotFoundError(f"no partition to send is under {', '.join(paths)}")
    return sorted(found.values(), key=lambda source: (source.topic, source.partition))


def _given(out: Output, files: Files, paths: Sequence[str], choices: Mapping[str, Any]) -> Iterator[RecordSource]:
    """What the paths have of the chosen topics: directories, and exports."""
    from kops.forensics.inventory.tree import open_paths, refuse_foreign
    from kops.forensics.lines.exported import exported_partitions
    from kops.forensics.lines.salvaged import ExportSource, LogSource

    if "-" in paths:
        raise UsageError("-: an export is read more than once, so it must be a file")
    exports = [path for path in paths if path.endswith(".jsonl") and not os.path.isdir(path)]
    directories = [path for path in paths if path not in exports]
    if directories:
        inventory = open_paths(directories, files)
        refuse_foreign(directories, inventory, files)
        for problem in inventory.problems:
            out.warn(f"{problem.path}: {problem.reason}")
            out.status |= FAILED
        if inventory.loose_files:
            raise UsageError(f"{inventory.loose_files[0].path}: is a file; name directories, or exports whose names end with .jsonl")
        for folder in inventory.partitions():
            if not folder.state and folder.topic is not None and _is_chosen(out, folder.topic, folder.path, choices):
                yield LogSource(files, folder, choices["map"].get(folder.topic, folder.topic), choices["isolation"])
    for path in dict.fromkeys(exports):
        if not os.path.lexists(path):
            raise NotFoundError(f"{path}: there is no such file")
        for part in exported_partitions(path):
            if _is_chosen(out, part.topic, f"{path}, {part.name}", choices):
                yield ExportSource(part, choices["map"].get(part.topic, part.topic), choices["isolation"])


def _is_chosen(out: Output, topic: str, where: str, choices: Mapping[str, Any]) -> bool:
    """Whether to send this topic. Raises UsageError if it is chosen, but internal."""
    wanted = choices["topics"]
    if wanted and topic not in wanted:
        return False
    if topic not in INTERNAL:
        return True
    if wanted:
        raise UsageError(f"--topic {topic}: an internal topic, whose records only Kafka's own coordinators write")
    out.say(f"{where}: left out, an internal topic")
    return False


def _state(path: str, rejected: str, choices: dict[str, Any], *, resume: bool) -> State:
    from kops.client.replay.state import State
    from kops.files import OsFiles

    files = OsFiles()
    if not resume:
        for each, option in ((path, "--state"), (rejected, "--rejected")):
            if os.path.lexists(each):
                raise UsageError(f"{option} {each}: exists already, from an earlier run; --resume continues that, or name another file")
        return State(choices)
    if not os.path.exists(path):
        raise UsageError(f"--state {path}: there is no such file, so there is nothing to resume")
    state = State.load(files, path)
    for name, value in choices.items():
        if state.choices.get(name) != value:
            raise UsageError(f"--state {path}: the earlier run had other {name}: {state.choices.get(name)}; resume it with the same")
    return state


class Rejections:
    """The file of records that the cluster rejects; it is made when the first one comes. `size`: what an earlier run wrote."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        self._lines: list[bytes] = []
        self.reasons: dict[str, int] = {}

    def add(self, entry: Entry, target: TopicPartition, error: KopsError) -> None:
        """Write a record with the reason."""
        from kops.forensics.lines.exporting import record_document

        topic, _, partition = entry.source.rpartition("-")
        code = getattr(error, "name", type(error).__name__)
        reason = str(error) if code in str(error) else f"{code}: {error}"
        row = {"topic": topic, "partition": int(partition), **record_document(entry.record), "schema": REJECTED_SCHEMA}
        row |= {"target": f"{target.topic}-{target.partition}", "reason": reason}
        self._lines.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def flush(self) -> int:
        """Make what was added durable; -> the size of all of it. Lines behind `size` are of a run that ended here, and come again."""
        if self._lines:
            with open(self._path, "ab") as file:
                file.truncate(self._size)
                file.write(b"".join(self._lines))
                file.flush()
                os.fsync(file.fileno())
            self._size += sum(map(len, self._lines))
            self._lines.clear()
        return self._size


def _run(out: Output, client: Client, state: State, sources: Sequence[RecordSource], paths: tuple[str, str], throttle: int | None) -> int:
    from kops.client.replay.run import Replay
    from kops.files import OsFiles
    from kops.protocol.errors import by_name

    state_path, rejected_path = paths
    rejections = Rejections(rejected_path, state.rejected_size)
    stopped: BaseException | None = None
    with out.progress("replay", sum(source.size for source in sources)) as bar:
        for source in sources:
            source.on_bytes = bar.update
        by_key = state.choices["partition"] == "key"
        run = Replay(client, state, sources, rejections, files=OsFiles(), path=state_path, by_key=by_key, bytes_per_second=throttle)
        try:
            run.run()
        except (KeyboardInterrupt, KopsError) as error:
            stopped = error
    _print(out, sources, state, rejections, rejected_path)
    if isinstance(stopped, ApiError) and by_name(stopped.name).retriable:
        raise UnreachableError(str(stopped)) from stopped
    if stopped is not None:
        raise stopped
    return out.status


def _print(out: Output, sources: Sequence[RecordSource], state: State, rejections: Rejections, path: str) -> None:
    rows = []
    for source in sources:
        known, left_out = state.sources[source.name], source.left_out
        row = {"log": source.name, "topic": source.target, "records": known.sent, "bytes": known.bytes, "rejected": known.rejected}
        rows.append({**row, "aborted": left_out.aborted, "undecided": left_out.undecided, "next_offset": known.position})
    out.rows(rows, COLUMNS, schema=SCHEMA, key="logs")
    count = sum(each.rejected for each in state.sources.values())
    if count:
        out.status |= PROBLEMS
        for reason, number in rejections.reasons.items():
            out.warn(f"{number} rejected: {reason}")
        out.warn(f"{many(count, 'record')} rejected, and written to {path}")
    _say_left_out(out, sources)


def _say_left_out(out: Output, sources: Sequence[RecordSource]) -> None:
    """Say what the logs had and was not sent."""
    for source in sources:
        left_out = source.left_out
        for place in left_out.damaged:
            out.status |= PROBLEMS
            out.warn(f"skipped: {place}")
        if left_out.repeated:
            out.status |= PROBLEMS
            out.warn(f"{source.where}: out of order: {many(left_out.repeated, 'record')}; kops log recover sorts them")
        if left_out.undecided:
            words = "records of transactions without an end were left out; --isolation read_uncommitted sends them"
            out.say(f"{source.where}: {left_out.undecided} {words}")


def _plan(out: Output, client: Client, sources: Sequence[RecordSource], *, by_key: bool) -> int:
    """Count what would be sent, and say which topics and partitions are not there."""
    from kops.client.replay.rounds import record_size
    from kops.client.replay.run import find_topics

    topics = find_topics(client, [source.target for source in sources])
    rows = []
    with out.progress("replay -n", sum(source.size for source in sources)) as bar:
        for source in sources:
            source.on_bytes = bar.update
            records = size = 0
            next_offset: int | None = None
            for record in source.records(0):
                records, size, next_offset = records + 1, size + record_size(record), record.offset + 1
            count = topics[source.target][1] if source.target in topics else 0
            is_there = count > 0 if by_key else source.partition < count
            row = {"log": source.name, "topic": source.target, "records": records, "bytes": size, "rejected": 0 if is_there else records}
            rows.append({**row, "aborted": source.left_out.aborted, "undecided": source.left_out.undecided, "next_offset": next_offset})
            if not is_there:
                out.status |= PROBLEMS
                lacks = f"has {many(count, 'partition')} and no partition {source.partition}" if count else "is no topic of the cluster"
                out.warn(f"{source.name}: {source.target} {lacks}")
    out.rows(rows, COLUMNS, schema=SCHEMA, key="logs")
    _say_left_out(out, sources)
    out.say("nothing was sent")
    return out.status
