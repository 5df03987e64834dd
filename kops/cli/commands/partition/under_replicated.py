"""`kops partition under-replicated`: partitions with a replica that is not in sync."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, TopicOption, Topics, connect, wanted_topics
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.under-replicated/v1"
COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("leader", kind="int", style=lambda value: "red" if value is None else None),
    Column("replicas", kind="list"),
    Column("isr", kind="list"),
    Column("not_in_sync", "not in sync", "list", style=lambda _: "yellow"),
    Column("offline", kind="list", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All of them.", "kops partition under-replicated"),
        ("How many.", "kops partition under-replicated --format jsonl | wc -l"),
    ],
)
def under_replicated(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's internal topics.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """List partitions with a replica that is not in sync. Replicas that a reassignment is adding don't count yet."""
    from kops.client.partitions import mark_reassignments
    from kops.client.topics import list_topics, match_infos

    with connect(out, bootstrap, config, properties) as client:
        found = {info.name: info for info in list_topics(client)}
        mark_reassignments(client, found.values())
    names = match_infos(found, wanted_topics(topics, topic), exclude_internal=exclude_internal)
    rows = [
        {
            "topic": name,
            "partition": one.partition,
            "leader": one.leader,
            "replicas": one.replicas,
            "isr": one.isr,
            "not_in_sync": [replica for replica in one.replicas if replica not in one.isr],
            "offline": one.offline,
        }
        for name in names
        for one in found[name].partitions
        if one.is_under_replicated
    ]
    out.rows(rows, COLUMNS, schema=SCHEMA, key="partitions")
    if not rows:
        out.say("no partition is under-replicated")
