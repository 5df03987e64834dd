"""`kops group lag`: how far groups are behind, by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.group.choosing import AllGroups, GroupOption, Groups, Watch, chosen_groups, show_again
from kops.cli.commands.group.describe import log_ends
from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import PLAIN_FAILED
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from kops.client.client import Client

SCHEMA = "kops.group-lag/v1"
COLUMNS = [
    Column("group", kind="name"),
    Column("topic", kind="name"),
    Column("partitions", kind="int"),
    Column("lag", kind="int"),
    Column("max_lag", kind="int"),
    Column("max_partition", "of partition", "int"),
    Column("unknown", kind="int"),
]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("How far a group is behind.", "kops group lag billing"),
        ("The same again every two seconds.", "kops group lag billing --watch 2"),
        (
            "For a script: exit with 1 if a group is more than 10,000 records behind in a topic.",
            "kops group lag --all-groups --max 10000 -q",
        ),
    ],
)
def lag(
    out: Output,
    groups: Groups = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", min=0, help="Exit with 1 if a topic's lag is larger.", show_default=False)
    ] = None,
    watch: Watch = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show how far groups are behind, by topic.

    The lag of a partition is the log end offset minus the committed offset. Partitions whose end is unknown (deleted topics, partitions
    without a leader) count as UNKNOWN. A group without offsets has no rows.
    """
    with connect(out, bootstrap, config, properties) as client:
        return show_again(out, watch, lambda: _show(out, client, chosen_groups(client, groups, group, everything=all_groups), most))


def _show(out: Output, client: Client, wanted: list[str], most: int | None) -> int:
    rows, errors = _rows(client, wanted)
    status = report(out, errors.items())
    for name in sorted(set(wanted) - {row["group"] for row in rows}):
        if errors.get(name) is None:
            out.say(f"{name}: no committed offsets")
    out.rows(rows, COLUMNS, schema=SCHEMA, key="lags")
    behind = [row for row in rows if most is not None and row["lag"] > most]
    for row in behind:
        out.warn(f"{row['group']}: {many(row['lag'], 'record')} of {row['topic']} behind")
    return status or (PLAIN_FAILED if behind else 0)


def _rows(client: Client, wanted: list[str]) -> tuple[list[dict[str, Any]], dict[str, KopsError | None]]:
    from kops.client.coordinators.all_kinds import describe_committing_groups
    from kops.client.coordinators.group_offsets import fetch_offsets

    errors: dict[str, KopsError | None] = {
        name: one if isinstance(one, ApiError) else None for name, one in describe_committing_groups(client, wanted).items()
    }
    offsets = fetch_offsets(client, [name for name, error in errors.items() if error is None])
    found = {name: one for name, one in offsets.items() if not isinstance(one, ApiError)}
    errors |= {name: one for name, one in offsets.items() if isinstance(one, ApiError)}
    ends = log_ends(client, {key for one in found.values() for key in one})
    rows = []
    for name in sorted(found):
        for topic in sorted({key.topic for key in found[name]}):
            keys = [key for key in sorted(found[name]) if key.topic == topic]
            lags = {key.partition: end - found[name][key].offset for key in keys if (end := ends[key]) is not None}
            largest = max(lags, key=lags.__getitem__, default=None)
            rows.append(
                {
                    "group": name,
                    "topic": topic,
                    "partitions": len(keys),
                    "lag": sum(lags.values()),
                    "max_lag": None if largest is None else lags[largest],
                    "max_partition": largest,
                    "unknown": len(keys) - len(lags),
                }
            )
    return rows, errors
