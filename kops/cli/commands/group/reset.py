"""`kops group reset`, `export` and `import`: offsets of groups, set and saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.group.choosing import AllGroups, GroupOption, Groups, TopicScope, chosen_groups
from kops.cli.inputs.connecting import OUTCOME_COLUMNS, Bootstrap, CommandConfig, CommandProperty, connect, outcome, report
from kops.cli.inputs.files import read_text
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError, NotFoundError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.coordinators.group_offsets import GroupOffsets
    from kops.client.coordinators.resets import Plan, Target
    from kops.records.log_offsets import TopicPartition

SCHEMA = "kops.group-reset/v1"
FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
COLUMNS = [
    Column("group", kind="name"),
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("offset", "old offset", "int"),
    Column("new_offset", kind="int"),
    *OUTCOME_COLUMNS,
]
Execute = Annotated[bool, typer.Option("--execute", help="Set the offsets. Without this option they are only shown.")]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show the new offsets (the default).")]
Errors = dict[str, KopsError | None]


@command(
    formats=FORMATS,
    examples=[
        ("Show the offsets for starting again at the beginning of a topic.", "kops group reset billing --topic orders --to-earliest"),
        ("Go back an hour, in all topics of the group.", "kops group reset billing --all-topics --by-duration PT1H --execute"),
        ("A hundred records forward, in two partitions.", "kops group reset billing --topic orders:0,2 --shift-by 100 --execute"),
        ("Set the offsets in a file of Kafka's tool.", "kops group reset billing --from-file offsets.csv --execute"),
    ],
)
def reset(
    out: Output,
    groups: Groups = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    topic: TopicScope = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions for which the group has offsets.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of each log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each log.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To the current offsets, or the end where there is none.")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="To this offset.", show_default=False)] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="To the first record at that time or later: ISO, or ms.", show_default=False)
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The same for a time that long ago, such as PT1H30M or P7D.", show_default=False)
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Forward by this many records, or back if negative.", show_default=False)
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="To the offsets in Kafka's CSV; - is stdin.", show_default=False)
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as Kafka's CSV.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Set offsets of groups without members.

    The rules are those of Kafka's consumer-groups tool. Without --execute the old and new offsets are only shown. Offsets
    outside a log become its start or end, with a warning. A time after the last record means the log's end. --from-file takes lines
    of "group,topic,partition,offset", or for one group of "topic,partition,offset".
    """
    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    target = _target(
        {"earliest": to_earliest, "latest": to_latest, "current": to_current}, to_offset, to_datetime, by_duration, shift_by, from_file
    )
    if from_file is None and bool(topic) == all_topics:
        raise UsageError("give either --all-topics or --topic")
    if from_file is not None and (topic or all_topics):
        raise UsageError("--from-file names the partitions; it cannot be used with --topic or --all-topics")
    with connect(out, bootstrap, config, properties) as client:
        wanted = chosen_groups(client, groups, group, everything=all_groups)
        job = _Reset(out, client, wanted)
        if from_file is not None:
            job.from_file(from_file, "--from-file")
        else:
            assert target is not None
            job.to(target, topic)
        if execute:
            job.execute()
    return job.print(export=export, dry_run=not execute, named=not all_groups)


@command(
    formats=(),
    examples=[
        ("Save the offsets of a group.", "kops group export billing -o billing.csv"),
        ("Those of all groups.", "kops group export --all-groups"),
    ],
)
def export(
    out: Output,
    groups: Groups = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Print the offsets of groups as Kafka's CSV: topic, partition and offset, after the group's name if there are several groups.

    "kops group import", "kops group reset --from-file" and Kafka's consumer-groups tool read it.
    """
    from kops.client.coordinators.group_offsets import fetch_offsets

    with connect(out, bootstrap, config, properties) as client:
        wanted = chosen_groups(client, groups, group, everything=all_groups)
        found = fetch_offsets(client, wanted)
    plan: Plan = {}
    errors: Errors = {}
    for name, one in found.items():
        errors[name] = one if isinstance(one, ApiError) else None
        if not isinstance(one, ApiError):
            plan[name] = {key: committed.offset for key, committed in one.items()}
            if not one:
                errors[name] = NotFoundError("no committed offsets")
    _csv(out, plan, with_group=all_groups or len(wanted) != 1)
    return report(out, errors.items())


@command(
    formats=FORMATS,
    examples=[
        ("Show what a saved file would change.", "kops group import billing.csv --group billing"),
        ("Set the offsets of all groups in a file.", "kops group import groups.csv --execute"),
    ],
)
def import_(
    out: Output,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Kafka's CSV of offsets; - is stdin.")],
    group: GroupOption = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Set the offsets in a file, for its groups or only for the named ones.

    The file is that of "kops group export", of "kops log offsets --as reset-csv", or of Kafka's consumer-groups tool. Without --execute
    the old and new offsets are only shown. Groups must have no members.
    """
    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    with connect(out, bootstrap, config, properties) as client:
        job = _Reset(out, client, list(group or ()))
        job.from_file(file)
        if execute:
            job.execute()
    return job.print(export=False, dry_run=not execute, named=True)


def _target(
    named: dict[str, bool], offset: int | None, datetime: str | None, duration: str | None, shift: int | None, file: str | None
) -> Target | None:
    """Return the target of the options, None for a file. Raises UsageError unless exactly one target is given."""
    import time

    from kops.client.coordinators.resets import Target, parse_duration_ms
    from kops.forensics.dump.filters import parse_time

    given = [Target(name) for name, chosen in named.items() if chosen]
    given += [Target(kind, value) for kind, value in (("offset", offset), ("shift", shift)) if value is not None]
    if datetime is not None:
        given.append(Target("time", parse_time(datetime, "--to-datetime")))
    if duration is not None:
        given.append(Target("time", int(time.time() * 1000) - parse_duration_ms(duration, "--by-duration")))
    if len(given) + (file is not None) != 1:
        ways = "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, --shift-by, --from-file"
        raise UsageError(f"give exactly one of {ways}")
    return given[0] if given else None


def _csv(out: Output, plan: Plan, *, with_group: bool) -> None:
    import csv

    from kops.client.coordinators.resets import csv_rows

    class Lines:
        write = staticmethod(out.write)

    csv.writer(Lines, lineterminator="\n").writerows(csv_rows(plan, with_group=with_group))


class _Reset:
    """One reset: the new offsets, and the result of setting them."""

    def __init__(self, out: Output, client: Client, groups: list[str]) -> None:
        self.out = out
        self.client = client
        self.groups = groups
        self.plan: Plan = {}
        self.errors: Errors = {}
        self.before: dict[str, GroupOffsets] = {}
        self.outcomes: dict[tuple[str, TopicPartition], ApiError | None] = {}

    def to(self, target: Target, topics: Sequence[str] | None) -> None:
        """Plan to set this target for topics, or for all partitions with offsets."""
        from kops.client.coordinators.resets import check_partitions, parse_topics, plan

        keys = None if topics is None else parse_topics(self.client, topics)
        self._look()
        for name in self._inactive():
            before = self.before[name]
            try:
                wanted = sorted(before) if keys is None else keys
                check_partitions(self.client, wanted)
                self.plan[name] = plan(self.client, wanted, target, before, self.out.warn)
            except KopsError as error:
                self.errors[name] = error

    def from_file(self, file: str, option: str = "") -> None:
        """Plan to set the offsets in a file. `option` is the option that named it."""
        from kops.client.coordinators.resets import check_partitions, read_csv, within_logs

        wanted = read_csv(read_text(file, option), self.groups, file)
        self.groups = self.groups or sorted(wanted)
        self._look()
        for name in self._inactive():
            if name not in wanted:
                self.errors[name] = NotFoundError(f"{file} has no offsets of this group")
                continue
            try:
                check_partitions(self.client, wanted[name])
                self.plan[name] = within_logs(self.client, wanted[name], self.out.warn)
            except NotFoundError as error:
                self.errors[name] = NotFoundError(f"{file}: {error}")
            except KopsError as error:
                self.errors[name] = error

    def execute(self) -> None:
        """Set the offsets."""
        from kops.client.coordinators.group_offsets import commit_offsets

        for name, offsets in self.plan.items():
            for key, error in commit_offsets(self.client, name, offsets).items():
                self.outcomes[name, key] = error

    def print(self, *, export: bool, dry_run: bool, named: bool) -> int:
        """Print the changes, or the CSV. Returns the exit code."""
        failures = [(name, error) for name, error in self.errors.items() if error is not None]
        failures += [(f"{name} {key.topic}-{key.partition}", error) for (name, key), error in self.outcomes.items() if error is not None]
        done: list[tuple[str, KopsError | None]] = [(name, None) for name in self.plan if name not in dict(failures)]
        status = report(self.out, [*done, *failures])
        if export:
            _csv(self.out, self.plan, with_group=not (named and len(self.groups) == 1))
            return status
        self.out.rows(self._rows(), COLUMNS, schema=SCHEMA, key="offsets", dryRun=dry_run)
        if dry_run and self.plan:
            self.out.say("nothing was changed; --execute does it")
        return status

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for name in sorted(self.plan):
            for key, offset in sorted(self.plan[name].items()):
                before = self.before[name].get(key)
                rows.append(
                    {
                        "group": name,
                        "topic": key.topic,
                        "partition": key.partition,
                        "offset": None if before is None else before.offset,
                        "new_offset": offset,
                        **outcome(self.outcomes.get((name, key))),
                    }
                )
        return rows

    def _look(self) -> None:
        """Fetch the states and the offsets of the groups. A group that does not exist yet gets its first offsets."""
        from kops.client.coordinators.all_kinds import describe_committing_groups
        from kops.client.coordinators.group_offsets import fetch_offsets

        for name, one in describe_committing_groups(self.client, self.groups).items():
            self.errors[name] = None
            if isinstance(one, ApiError):
                self.errors[name] = None if one.name == "GROUP_ID_NOT_FOUND" else one
            elif not one.is_inactive:
                why = f"offsets can only be reset if the group is inactive, but its state is {one.state}"
                self.errors[name] = ApiError("NON_EMPTY_GROUP", why)
        for name, found in fetch_offsets(self.client, self._inactive()).items():
            if not isinstance(found, ApiError):
                self.before[name] = found
            elif found.name == "GROUP_ID_NOT_FOUND":
                self.before[name] = {}
            else:
                self.errors[name] = found

    def _inactive(self) -> list[str]:
        return [name for name in self.groups if self.errors.get(name) is None]
