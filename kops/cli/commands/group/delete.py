"""`kops group delete` and `kops group delete-offsets`."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.group.choosing import AllGroups, GroupOption, Groups, TopicScope, chosen_groups
from kops.cli.inputs.connecting import OUTCOME_COLUMNS, Bootstrap, CommandConfig, CommandProperty, connect, outcome, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import UsageError

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")


@command(
    formats=FORMATS,
    examples=[
        ("Delete a group with its offsets.", "kops group delete billing-test"),
        ("The same, if the group exists.", "kops group delete --if-exists billing-test"),
    ],
)
def delete(
    out: Output,
    groups: Groups = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Delete groups with all their offsets. A group must have no members. This cannot be undone."""
    from kops.client.coordinators.groups import delete_groups

    with connect(out, bootstrap, config, properties) as client:
        done = delete_groups(client, chosen_groups(client, groups, group, everything=all_groups))
    if if_exists:
        done = {name: None if error is not None and error.name == "GROUP_ID_NOT_FOUND" else error for name, error in done.items()}
    status = report(out, done.items())
    rows = [{"group": name, **outcome(error)} for name, error in done.items()]
    out.rows(rows, [Column("group", kind="name"), *OUTCOME_COLUMNS], schema="kops.group-delete/v1", key="groups")
    return status


@command(
    formats=FORMATS,
    examples=[
        ("The offsets of a topic.", "kops group delete-offsets billing --topic orders"),
        ("Of two of its partitions.", "kops group delete-offsets billing --topic orders:0,2"),
    ],
)
def delete_offsets(
    out: Output,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The group.")] = None,
    option: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="The same as an option.")] = None,
    topic: TopicScope = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Delete a group's offsets for topics that none of its members reads. This cannot be undone."""
    from kops.client.coordinators.group_offsets import delete_offsets as run
    from kops.client.coordinators.resets import parse_topics

    name = group or option
    if name is None or (group is not None and option is not None):
        raise UsageError("name one group")
    if not topic:
        raise UsageError("name topics with --topic")
    with connect(out, bootstrap, config, properties) as client:
        done = run(client, name, parse_topics(client, topic))
    status = report(out, ((f"{key.topic}-{key.partition}", error) for key, error in done.items()))
    rows = [{"group": name, "topic": key.topic, "partition": key.partition, **outcome(error)} for key, error in done.items()]
    columns = [Column("group", kind="name"), Column("topic", kind="name"), Column("partition", kind="int"), *OUTCOME_COLUMNS]
    out.rows(rows, columns, schema="kops.group-delete-offsets/v1", key="partitions")
    return status
