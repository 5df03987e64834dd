"""`kops group describe`: shows the offsets, members and states of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.group.choosing import AllGroups, GroupOption, Groups, Watch, chosen_groups, show_again
from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.coordinators.group_offsets import GroupOffsets
    from kops.client.coordinators.groups import GroupDescription, GroupMember
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.group/v1"
OFFSET_COLUMNS = [
    Column("group", kind="name"),
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("leader_epoch", "epoch", "int", wide=True),
    Column("offset", "current offset", "int"),
    Column("end_offset", "log end", "int"),
    Column("lag", kind="int"),
    Column("member", kind="name"),
    Column("host", kind="name"),
    Column("client_id", "client", kind="name"),
    Column("metadata", wide=True),
]
MEMBER_COLUMNS = [
    Column("group", kind="name"),
    Column("member", kind="name"),
    Column("instance_id", "instance", kind="name"),
    Column("host", kind="name"),
    Column("client_id", "client", kind="name"),
    Column("partition_count", "partitions", "int"),
    Column("epoch", kind="int"),
    Column("assignment", kind="list", wide=True),
    Column("target_assignment", "target", "list", wide=True),
    Column("rack", wide=True),
]
STATE_COLUMNS = [
    Column("group", kind="name"),
    Column("type"),
    Column("state"),
    Column("coordinator"),
    Column("assignor"),
    Column("member_count", "members", "int"),
    Column("epoch", kind="int", wide=True),
    Column("assignment_epoch", "target epoch", "int", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The offsets of a group, and which member reads which partition.", "kops group describe billing"),
        ("Its members with their partitions.", "kops group describe billing --members --format wide"),
        ("The states of all groups, every two seconds.", "kops group describe --all-groups --state --watch 2"),
    ],
)
def describe(
    out: Output,
    groups: Groups = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets and lag by partition (the default).")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show states and coordinators.")] = False,
    watch: Watch = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show the offsets, members and states of groups (Kafka's consumer-groups --describe).

    LAG is the number of offsets between the group and the log's end. Share groups are shown with the offsets from which they read, members
    of streams groups with the partitions of their active tasks. In json, jsonl and yaml, one document holds everything about a group. A
    group that does not exist is reported, and the exit code is then 3.
    """
    if offsets + members + state > 1:
        raise UsageError("give only one of --offsets, --members and --state")
    shown = "members" if members else "state" if state else "offsets"
    with connect(out, bootstrap, config, properties) as client:
        return show_again(out, watch, lambda: _show(out, client, chosen_groups(client, groups, group, everything=all_groups), shown))


def _show(out: Output, client: Client, wanted: Sequence[str], shown: str) -> int:
    from kops.client.coordinators.all_kinds import describe_all_kinds
    from kops.client.coordinators.group_offsets import fetch_offsets
    from kops.client.coordinators.share_groups import SHARE, fetch_share_offsets

    found = describe_all_kinds(client, wanted)
    descriptions = {group_id: one for group_id, one in found.items() if not isinstance(one, ApiError)}
    errors: dict[str, KopsError | None] = {group_id: one if isinstance(one, ApiError) else None for group_id, one in found.items()}
    offsets: dict[str, GroupOffsets] = {}
    ends: Mapping[TopicPartition, int | None] = {}
    whole = out.format in ("json", "jsonl", "yaml")
    if (shown == "offsets" or whole) and descriptions:
        shares = [group_id for group_id, one in descriptions.items() if one.type == SHARE]
        others = descriptions.keys() - shares
        for group_id, fetched in (fetch_offsets(client, others) | fetch_share_offsets(client, shares)).items():
            if isinstance(fetched, ApiError):
                errors[group_id] = fetched
            else:
                offsets[group_id] = fetched
        ends = log_ends(client, {key for group_id in offsets for key in keys_of(descriptions[group_id], offsets[group_id])})
    status = report(out, errors.items())
    documents = [document_of(descriptions[name], offsets.get(name, {}), ends) for name in sorted(descriptions) if errors[name] is None]
    if whole:
        out.rows(documents, [], schema=SCHEMA, key="groups")
        return status
    columns = {"offsets": OFFSET_COLUMNS, "members": MEMBER_COLUMNS, "state": STATE_COLUMNS}[shown]
    rows = documents if shown == "state" else [{"group": one["group"], **row} for one in documents for row in one[shown]]
    out.rows(rows, columns, schema=SCHEMA, key="groups")
    for one in documents:
        if one["state"] == "Empty":
            out.say(f"{one['group']}: no active members")
        elif one["state"] != "Stable":
            out.say(f"{one['group']}: the group is rebalancing ({one['state']})")
    return status


def keys_of(group: GroupDescription, offsets: GroupOffsets) -> set[TopicPartition]:
    """The partitions for which a group has offsets, or which a member reads."""
    return {*offsets, *(key for member in group.members for key in member.assignment)}


def log_ends(client: Client, keys: set[TopicPartition]) -> dict[TopicPartition, int | None]:
    """The log end offsets; None for a partition that is gone or has no leader."""
    from kops.client.leaders.offsets import list_offsets
    from kops.client.offsets import LATEST
    from kops.client.topics import describe_topics

    topics = describe_topics(client, {key.topic for key in keys})
    led = {
        (name, one.partition)
        for name, info in topics.items()
        if not isinstance(info, ApiError)
        for one in info.partitions
        if one.leader is not None
    }
    found = list_offsets(client, {key: LATEST for key in keys if key in led})
    return {key: None if key not in found or isinstance(one := found[key], ApiError) else one.offset for key in keys}


def document_of(group: GroupDescription, offsets: GroupOffsets, ends: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    """Everything about a group. Partitions with a member come first, those of the members with most partitions before others."""
    rows: list[dict[str, Any]] = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda one: -len(one.assignment)):
        assigned.update(member.assignment)
        rows += [_offset_row(key, offsets, ends, member) for key in sorted(member.assignment)]
    rows += [_offset_row(key, offsets, ends, None) for key in sorted(offsets) if key not in assigned]
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type or None,
        "coordinator": None if group.coordinator is None else f"{group.coordinator.id} ({group.coordinator.address})",
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
        "members": [_member_row(one) for one in group.members],
        "offsets": rows,
    }


def _offset_row(
    key: TopicPartition, offsets: GroupOffsets, ends: Mapping[TopicPartition, int | None], member: GroupMember | None
) -> dict[str, Any]:
    committed, end = offsets.get(key), ends.get(key)
    lag = None if committed is None or end is None else end - committed.offset if committed.lag is None else committed.lag
    return {
        "topic": key.topic,
        "partition": key.partition,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "offset": None if committed is None else committed.offset,
        "end_offset": end,
        "lag": lag,
        "member": None if member is None else member.member_id,
        "host": None if member is None else member.host,
        "client_id": None if member is None else member.client_id,
        "metadata": None if committed is None else committed.metadata,
    }


def _member_row(one: GroupMember) -> dict[str, Any]:
    return {
        "member": one.member_id,
        "instance_id": one.instance_id,
        "host": one.host,
        "client_id": one.client_id,
        "partition_count": len(one.assignment),
        "epoch": one.epoch,
        "assignment": [f"{key.topic}-{key.partition}" for key in one.assignment],
        "target_assignment": None if one.target is None else [f"{key.topic}-{key.partition}" for key in one.target],
        "rack": one.rack,
        "upgraded": one.is_upgraded,
    }
