"""`kops topic offsets`: shows where partitions start and end, and the offset of a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    TopicOption,
    Topics,
    connect,
    no_such,
    outcome,
    parse_partitions,
    report,
    wanted_topics,
)
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.offsets import ListedOffset, OffsetSpec
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.offsets/v1"
RANGE_COLUMNS = [
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("start_offset", "start", "int"),
    Column("end_offset", "end", "int"),
    Column("count", "records at most", "int"),
    *OUTCOME_COLUMNS,
]
OFFSET_COLUMNS = [
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("timestamp", kind="time_ms"),
    Column("leader_epoch", "epoch", "int"),
    *OUTCOME_COLUMNS,
]
TIME_HELP = "Which offset: earliest, latest, max-timestamp, earliest-local, latest-tiered, N, -N, @MS, ISO time (default: start and end)."


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Start and end of each partition.", "kops topic offsets orders"),
        ("The first record on or after a day.", "kops topic offsets orders --time 2026-11-21T00:00:00Z"),
        ("The record with the latest timestamp in one partition.", "kops topic offsets orders --partition 0 --time max-timestamp"),
    ],
)
def offsets(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "--partitions", metavar="N", help="Partitions: 0, a list 0,2 or a range 1-3.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", "--offset", metavar="OFFSET", help=TIME_HELP)] = None,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal-topics", help="Leave out Kafka's internal topics.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show where partitions start and end, or the offset for a time, a name or a number.

    With isolation.level=read_committed (--command-property) the end is where the first open transaction starts. "-" means that there is no
    such record. Compaction and transaction markers leave gaps, so there may be fewer records than offsets.
    """
    from kops.client.offsets import parse_offset
    from kops.client.topics import list_topics, match_infos
    from kops.records.log_offsets import TopicPartition

    spec = None if time is None else parse_offset(time, "--time")
    wanted = parse_partitions(partitions)
    with connect(out, bootstrap, config, properties) as client:
        found = {info.name: info for info in list_topics(client)}
        names = match_infos(found, wanted_topics(topics, topic), exclude_internal=exclude_internal)
        there = [TopicPartition(name, one.partition) for name in names for one in found[name].partitions]
        keys = [key for key in there if not wanted or key.partition in wanted]
        if wanted and not keys:
            raise no_such("partition", wanted)
        committed = client.settings.isolation_level == "read_committed"
        if spec is None:
            rows, errors = _ranges(client, keys, committed)
        elif spec.kind in ("named", "time"):
            rows, errors = _listed(client, keys, spec.value, committed)
        else:
            rows, errors = _resolved(client, keys, spec, committed)
    status = report(out, ((f"{row['topic']}-{row['partition']}", error) for row, error in zip(rows, errors, strict=True)))
    out.rows(rows, RANGE_COLUMNS if spec is None else OFFSET_COLUMNS, schema=SCHEMA, key="partitions")
    return status


Rows = tuple[list[dict[str, Any]], list[ApiError | None]]


def _ranges(client: Client, keys: Sequence[TopicPartition], committed: bool) -> Rows:
    from kops.client.leaders.offsets import list_offsets
    from kops.client.offsets import EARLIEST, LATEST

    starts = list_offsets(client, dict.fromkeys(keys, EARLIEST))
    ends = list_offsets(client, dict.fromkeys(keys, LATEST), committed=committed)
    rows: list[dict[str, Any]] = []
    errors: list[ApiError | None] = []
    for key in keys:
        start, end = starts[key], ends[key]
        error = start if isinstance(start, ApiError) else end if isinstance(end, ApiError) else None
        row: dict[str, Any] = {"topic": key.topic, "partition": key.partition, "start_offset": None, "end_offset": None, "count": None}
        if not isinstance(start, ApiError) and not isinstance(end, ApiError):
            row |= {"start_offset": start.offset, "end_offset": end.offset, "count": end.offset - start.offset}
        rows.append(row | outcome(error))
        errors.append(error)
    return rows, errors


def _listed(client: Client, keys: Sequence[TopicPartition], target: int, committed: bool) -> Rows:
    from kops.client.leaders.offsets import list_offsets

    return _rows(keys, list_offsets(client, dict.fromkeys(keys, target), committed=committed))


def _resolved(client: Client, keys: Sequence[TopicPartition], spec: OffsetSpec, committed: bool) -> Rows:
    from kops.client.leaders.offsets import resolve_offsets

    return _rows(keys, resolve_offsets(client, dict.fromkeys(keys, spec), committed=committed))


def _rows(keys: Sequence[TopicPartition], found: Mapping[TopicPartition, ListedOffset | ApiError]) -> Rows:
    rows: list[dict[str, Any]] = []
    errors: list[ApiError | None] = []
    for key in keys:
        one = found[key]
        error = one if isinstance(one, ApiError) else None
        numbers = [None, None, None] if isinstance(one, ApiError) else [number if number >= 0 else None for number in one]
        names = ("offset", "timestamp", "leader_epoch")
        rows.append({"topic": key.topic, "partition": key.partition, **dict(zip(names, numbers, strict=True)), **outcome(error)})
        errors.append(error)
    return rows, errors
