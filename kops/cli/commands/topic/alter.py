"""`kops topic alter`: adds partitions to topics and changes their settings."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    TopicOption,
    Topics,
    connect,
    need_topics,
    outcome,
    parse_assignment,
    report,
)
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, UsageError

SCHEMA = "kops.topic-alter/v1"
COLUMNS = [Column("topic"), Column("change"), *OUTCOME_COLUMNS]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Six partitions.", "kops topic alter orders --partitions 6"),
        ("Keep records for a day.", "kops topic alter orders --config retention.ms=86400000"),
        ("Back to the broker's setting.", "kops topic alter orders --delete-config retention.ms"),
    ],
)
def alter(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    partitions: Annotated[int | None, typer.Option("--partitions", metavar="N", min=1, help="The new number of partitions.")] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option("--replica-assignment", metavar="1:2,2:3", help="Brokers of all partitions; only those of new partitions are used."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--config", "--add-config", metavar="K=V", help="A setting of the topic.")] = None,
    delete_settings: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="K", help="A setting to remove; the broker's default applies again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("-n", "--validate-only", help="Only check whether the cluster would accept the change.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Add partitions to topics, or change their settings.

    The number of partitions cannot be reduced. After an increase, records with the same key may go to another partition than before.
    """
    from kops.client.topics import DELETE, SET, ResourceType, alter_configs, create_partitions, list_topics, match_topics
    from kops.config.topic import parse_settings

    if partitions is None and not settings and not delete_settings:
        raise UsageError("nothing to change: give --partitions, --config or --delete-config")
    if replica_assignment is not None and partitions is None:
        raise UsageError("--replica-assignment needs --partitions")
    wanted = need_topics(topics, topic)
    operations: list[tuple[str, int, str | None]] = [
        (name, SET, value) for name, value in parse_settings(settings or (), source="--config").items()
    ]
    operations += [(name, DELETE, None) for text in delete_settings or () for name in text.split(",")]
    with connect(out, bootstrap, config, properties) as client:
        found = {info.name: info for info in list_topics(client)}
        names = match_topics(found, wanted)
        results: list[tuple[str, str, ApiError | None]] = []
        if partitions is not None:
            assignments = {}
            if replica_assignment is not None:
                rows_wanted = parse_assignment(replica_assignment)
                assignments = {name: rows_wanted[len(found[name].partitions) :] for name in names}
            done = create_partitions(client, dict.fromkeys(names, partitions), assignments, validate_only=dry_run)
            results += [(name, f"partitions={partitions}", error) for name, error in done.items()]
        if operations:
            change = ", ".join(name if value is None else f"{name}={value}" for name, _, value in operations)
            changes = {(ResourceType.TOPIC, name): operations for name in names}
            results += [(key[1], change, error) for key, error in alter_configs(client, changes, validate_only=dry_run).items()]
    rows = [{"topic": name, "change": change, **outcome(error)} for name, change, error in results]
    status = report(out, ((name, error) for name, _, error in results))
    out.rows(rows, COLUMNS, schema=SCHEMA, key="changes", validate_only=dry_run)
    return status
