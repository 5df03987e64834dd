"""`kops group list`: lists groups."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.group.choosing import tell_brokers
from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, known_words
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.groups/v1"
TYPES = ("classic", "consumer", "share", "streams")
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
COLUMNS = [
    Column("group", kind="name"),
    Column("type"),
    Column("protocol"),
    Column("state"),
    Column("coordinator", kind="int"),
]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All groups.", "kops group list"),
        ("Groups without members.", "kops group list --state Empty"),
        ("Share groups, for a program.", "kops group list --type share --format jsonl"),
    ],
)
def list_(
    out: Output,
    state: Annotated[list[str] | None, typer.Option("--state", metavar="STATE,...", help="Only groups in these states.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE,...", help="Only groups of these types: classic, consumer, share, streams.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", metavar="NAME", help="Only groups with this protocol, such as consumer or connect.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """List groups with their types, protocols, states and coordinators.

    A group without a protocol has only committed offsets. The command asks every broker. If one does not answer, it is reported, and the
    exit code is 1.
    """
    from kops.client.coordinators.groups import list_groups

    states = known_words(state, STATES, "--state")
    types = known_words(kind, TYPES, "--type")
    with connect(out, bootstrap, config, properties) as client:
        found, errors = list_groups(client, states=states, types=types)
    tell_brokers(out, errors)
    rows = [
        {
            "group": one.group_id,
            "type": one.type or None,
            "protocol": one.protocol_type or None,
            "state": one.state or None,
            "coordinator": one.coordinator,
        }
        for one in found
        if protocol is None or one.protocol_type == protocol
    ]
    out.rows(rows, COLUMNS, schema=SCHEMA, key="groups")
    if not rows and out.format == "table":
        out.say("no groups")
    return out.status
