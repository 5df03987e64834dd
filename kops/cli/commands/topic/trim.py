"""`kops topic trim`: deletes the records below an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    connect,
    no_such,
    outcome,
    parse_partitions,
    report,
)
from kops.cli.inputs.files import read_text
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.topic-trim/v1"
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("offset", "up to", "int"),
    Column("low_watermark", "starts at", "int"),
    *OUTCOME_COLUMNS,
]
OFFSET_HELP = "Delete the records below it: N, -N (keep that many), latest (all), @MS or an ISO time (all older ones)."


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All records of partition 0 below offset 1000.", "kops topic trim orders --partition 0 --offset 1000"),
        ("All records before a time, in all partitions.", "kops topic trim orders --offset 2026-11-21T00:00:00Z"),
        ("The records in a file of Kafka's tool.", "kops topic trim --offset-json-file offsets.json"),
    ],
)
def trim(
    out: Output,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic.")] = None,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", metavar="N", help="Partitions: 0, a list 0,2 or a range 1-3 (default: all).")
    ] = None,
    offset: Annotated[str | None, typer.Option("--offset", metavar="OFFSET", help=OFFSET_HELP)] = None,
    file: Annotated[str | None, typer.Option("--offset-json-file", metavar="FILE", help="Kafka's file of offsets; - is stdin.")] = None,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show up to which offset records would be deleted.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Delete the records below an offset (Kafka's delete-records). This cannot be undone.

    The log then starts at the offset on all replicas. A segment is deleted when all its records are below the offset.
    """
    from kops.client.leaders.offsets import delete_records
    from kops.client.offsets import HIGH_WATERMARK, parse_delete_records

    if (topic is None) == (file is None) or (offset is None) == (file is None):
        raise UsageError("either TOPIC and --offset, or --offset-json-file")
    wanted = parse_partitions(partitions)
    with connect(out, bootstrap, config, properties) as client:
        targets: dict[TopicPartition, int | ApiError]
        if file is not None:
            targets = dict(parse_delete_records(read_text(file, "--offset-json-file"), file))
        else:
            targets = _targets(client, topic or "", wanted, offset or "")
        possible = {key: target for key, target in targets.items() if not isinstance(target, ApiError)}
        done = {} if dry_run else delete_records(client, possible)
    rows: list[dict[str, Any]] = []
    errors: list[tuple[str, KopsError | None]] = []
    for key, target in sorted(targets.items()):
        result = done.get(key, target)
        error = result if isinstance(result, ApiError) else None
        errors.append((f"{key.topic}-{key.partition}", error))
        mark = None if dry_run or isinstance(result, ApiError) else result
        up_to = None if isinstance(target, ApiError) or target == HIGH_WATERMARK else target
        rows.append({"topic": key.topic, "partition": key.partition, "offset": up_to, "low_watermark": mark, **outcome(error)})
    status = report(out, errors)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="partitions", dry_run=dry_run)
    return status


def _targets(client: Client, topic: str, wanted: list[int], offset: str) -> dict[TopicPartition, int | ApiError]:
    """Return the offset below which to delete, by partition. A number is sent unchanged, so that the server reports an invalid one."""
    from kops.client.leaders.offsets import resolve_offsets
    from kops.client.offsets import HIGH_WATERMARK, LATEST, parse_offset
    from kops.client.topics import list_topics
    from kops.records.log_offsets import TopicPartition

    spec = parse_offset(offset)
    info = next((info for info in list_topics(client) if info.name == topic), None)
    if info is None:
        raise no_such("topic", [topic])
    there = {one.partition for one in info.partitions}
    if set(wanted) - there:
        raise no_such("partition", sorted(f"{topic}-{number}" for number in set(wanted) - there))
    keys = [TopicPartition(topic, number) for number in (wanted or sorted(there))]
    if spec.kind == "offset":
        return dict.fromkeys(keys, spec.value)
    if spec == ("named", LATEST):
        return dict.fromkeys(keys, HIGH_WATERMARK)
    found = resolve_offsets(client, dict.fromkeys(keys, spec))
    return {key: one if isinstance(one, ApiError) else one.offset for key, one in found.items()}
