"""`kops topic create`: creates topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    connect,
    need_topics,
    outcome,
    parse_assignment,
    report,
)
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, UsageError

SCHEMA = "kops.topic-create/v1"
COLUMNS = [
    Column("topic"),
    Column("partitions", kind="int"),
    Column("replication_factor", "replicas", "int"),
    Column("topic_id", "id"),
    *OUTCOME_COLUMNS,
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("A topic of three partitions, each on two brokers.", "kops topic create orders --partitions 3 --replication-factor 2"),
        ("A topic with its own settings.", "kops topic create users --config cleanup.policy=compact --config segment.ms=60000"),
        ("Two partitions with given replicas.", "kops topic create orders --replica-assignment 1:2,2:3"),
    ],
)
def create(
    out: Output,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Names of the topics.")] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same as an option.")] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", min=1, help="Number of partitions (default: the broker's num.partitions).")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", metavar="N", min=1, help="The number of replicas of each partition (default: the broker's)."),
    ] = None,
    replica_assignment: Annotated[
        str | None, typer.Option("--replica-assignment", metavar="1:2,2:3", help="Brokers of each partition, the leader first.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of the topic.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail when the topic exists.")] = False,
    dry_run: Annotated[bool, typer.Option("-n", "--validate-only", help="Only check whether the cluster would accept the topics.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Create topics, all with the same partitions, replicas and settings.

    1: a topic could not be created; the others were.
    """
    from kops.client.topics import NewTopic, create_topics
    from kops.config.topic import parse_settings

    names = need_topics(topics, topic)
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise UsageError("--replica-assignment cannot be used with --partitions or --replication-factor")
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    own = parse_settings(settings or (), source="--config")
    for name in names:
        if "." in name or "_" in name:
            out.detail(f"{name}: metric names replace . with _, so the metrics of topics that differ only in these characters collide")
    with connect(out, bootstrap, config, properties) as client:
        wanted = [NewTopic(name, partitions, replication_factor, assignment, own) for name in dict.fromkeys(names)]
        results = create_topics(client, wanted, validate_only=dry_run)
    rows: list[dict[str, Any]] = []
    errors: list[tuple[str, KopsError | None]] = []
    for name in dict.fromkeys(names):
        result = results[name]
        error = result if isinstance(result, ApiError) else None
        if error is not None and error.name == "TOPIC_ALREADY_EXISTS" and if_not_exists:
            out.say(f"{name} already exists")
            continue
        errors.append((name, error))
        made = None if isinstance(result, ApiError) else result
        rows.append(
            {
                "topic": name,
                "topic_id": made and made.topic_id,
                "partitions": made and (made.partitions if made.partitions >= 0 else None),
                "replication_factor": made and (made.replication_factor if made.replication_factor >= 0 else None),
                "configs": made and made.config,
                **outcome(error),
            }
        )
    status = report(out, errors)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="topics", validate_only=dry_run)
    return status
