"""`kops topic list`: lists the topics of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, TopicOption, Topics, connect, wanted_topics
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.topics/v1"
COLUMNS = [
    Column("topic", kind="name"),
    Column("partitions", kind="int"),
    Column("replication_factor", "replicas", "int"),
    Column("under_replicated", "under-replicated", "int", style=lambda value: "yellow" if value else None),
    Column("offline", kind="int", style=lambda value: "red" if value else None),
    Column("internal", wide=True),
    Column("topic_id", "id", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All topics.", "kops topic list -b localhost:9092"),
        ("Those whose names begin with orders, as lines of JSON.", "kops topic list 'orders.*' --format jsonl"),
    ],
)
def list_(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's internal topics.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """List topics with partitions, replication factor and unhealthy partitions.

    under-replicated: partitions with a replica that is not in sync. offline: partitions without a leader.
    """
    from kops.client.partitions import mark_reassignments
    from kops.client.topics import list_topics, match_infos

    with connect(out, bootstrap, config, properties) as client:
        found = {info.name: info for info in list_topics(client)}
        mark_reassignments(client, found.values())
    wanted = match_infos(found, wanted_topics(topics, topic), exclude_internal=exclude_internal)
    rows = (
        {
            "topic": name,
            "partitions": len(info.partitions),
            "replication_factor": info.replication_factor,
            "under_replicated": sum(one.is_under_replicated for one in info.partitions),
            "offline": sum(one.leader is None for one in info.partitions),
            "internal": info.is_internal,
            "topic_id": info.topic_id,
        }
        for name, info in ((name, found[name]) for name in wanted)
    )
    out.rows(rows, COLUMNS, schema=SCHEMA, key="topics")
    if not wanted:
        out.say("no topics")
