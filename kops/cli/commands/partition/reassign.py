"""`kops partition reassign generate|execute|verify|cancel|list`: moves partitions to other brokers and log directories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    Controllers,
    connect,
    outcome,
    parse_broker_ids,
    report,
)
from kops.cli.inputs.files import read_text
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from kops.client.reassignment import Executed, Plan

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
PLAN_COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("current", kind="list"),
    Column("proposed", kind="list"),
]
ITEM_COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("broker", kind="int"),
    Column("state"),
    Column("replicas", kind="list"),
    Column("target", kind="list"),
    *OUTCOME_COLUMNS,
]
LIST_COLUMNS = [
    Column("topic"),
    Column("partition", kind="int"),
    Column("replicas", kind="list"),
    Column("adding", kind="list"),
    Column("removing", kind="list"),
]
STATE_COLORS = {"completed": "green", "in-progress": "yellow", "differs": "red", "missing": "red"}

PlanFile = Annotated[
    str, typer.Option("-f", "--reassignment-json-file", metavar="FILE", help="The plan, in the format of Kafka's tool; - is stdin.")
]
KeepThrottles = Annotated[bool, typer.Option("--preserve-throttles", help="Leave the throttles as they are.")]
Timeout = Annotated[
    int,
    typer.Option(
        "--timeout",
        metavar="MS",
        min=0,
        help="How long to wait until replicas are on their brokers, so that their log directories can be changed.",
    ),
]


@command(
    formats=FORMATS,
    examples=[
        ("Propose a plan for orders on brokers 1 to 3.", "kops partition reassign generate --topic orders --broker-list 1,2,3"),
        (
            "Write a plan for execute, and one to revert it.",
            "kops partition reassign generate --topic orders --broker-list 1,2 --proposed-to plan.json --current-to back.json",
        ),
        ("The topics of Kafka's own file.", "kops partition reassign generate --topics-to-move-json-file topics.json --broker-list 1,2"),
    ],
)
def generate(
    out: Output,
    brokers: Annotated[str, typer.Option("--broker-list", metavar="ID,...", help="The brokers to move partitions to.")],
    topics: Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="A topic whose partitions to move.")] = None,
    file: Annotated[
        str | None, typer.Option("--topics-to-move-json-file", metavar="FILE", help="Topics in Kafka's own file; - is stdin.")
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    proposed_to: Annotated[str | None, typer.Option("--proposed-to", metavar="FILE", help="Write the plan to this file.")] = None,
    current_to: Annotated[
        str | None, typer.Option("--current-to", metavar="FILE", help="Write the current assignment to this file, to revert the plan.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """Propose replicas for the partitions of topics, spread over brokers and racks as for a new topic. Nothing is changed.

    In json and yaml `current` and `proposed` are the documents that execute takes.
    """
    from kops.client.reassignment import generate as run
    from kops.client.reassignment import parse_topics_to_move, plan_document, plan_text

    if (not topics) == (file is None):
        raise UsageError("either --topic or --topics-to-move-json-file")
    ids = parse_broker_ids(brokers, "--broker-list")
    names = list(topics or ()) if file is None else parse_topics_to_move(read_text(file, "--topics-to-move-json-file"), file)
    with connect(out, bootstrap, config, properties) as client:
        current, proposed = run(client, names, ids, rack_aware=not disable_rack_aware)
    for path, plan in ((current_to, current), (proposed_to, proposed)):
        if path is not None:
            with open(path, "x", encoding="utf-8") as target:
                target.write(plan_text(plan) + "\n")
    if out.format in ("json", "yaml"):
        out.document({"current": plan_document(current), "proposed": plan_document(proposed)}, schema="kops.reassign-plan/v1")
        return
    rows = [
        {"topic": key.topic, "partition": key.partition, "current": current.partitions[key], "proposed": replicas}
        for key, replicas in sorted(proposed.partitions.items())
    ]
    out.rows(rows, PLAN_COLUMNS, schema="kops.reassign-plan/v1")


@command(
    formats=FORMATS,
    examples=[
        ("Execute a plan.", "kops partition reassign execute -f plan.json"),
        ("At 10 MB a second.", "kops partition reassign execute -f plan.json --throttle 10000000"),
    ],
)
def execute(
    out: Output,
    file: PlanFile,
    additional: Annotated[bool, typer.Option("--additional", help="Allow it during another reassignment, or change the throttle.")] = False,
    throttle: Annotated[
        int | None, typer.Option("--throttle", metavar="BYTES", min=0, help="Bytes a second between brokers (default: no limit).")
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        typer.Option("--replica-alter-log-dirs-throttle", metavar="BYTES", min=0, help="Bytes a second between log directories."),
    ] = None,
    timeout: Timeout = 10_000,
    fixed_factor: Annotated[
        bool, typer.Option("--disallow-replication-factor-change", help="Reject a plan that changes the number of replicas.")
    ] = False,
    current_to: Annotated[
        str | None, typer.Option("--current-to", metavar="FILE", help="Write the current assignment to this file, to revert the plan.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Start to move partitions according to a plan. The moves continue on their own; verify shows their progress and removes the throttles.

    1: the move of a partition could not be started, or another reassignment is in progress.
    """
    from kops.client.reassignment import execute as run
    from kops.client.reassignment import parse_plan, plan_text

    plan = parse_plan(read_text(file, "--reassignment-json-file"), file)
    with connect(out, bootstrap, config, properties) as client:
        done = run(
            client,
            plan,
            additional=additional,
            throttle=throttle,
            log_dirs_throttle=log_dirs_throttle,
            timeout_ms=timeout,
            allow_replication_factor_change=not fixed_factor,
        )
    if current_to is not None:
        with open(current_to, "x", encoding="utf-8") as target:
            target.write(plan_text(done.before) + "\n")
    if throttle is not None or log_dirs_throttle is not None:
        out.say(f"throttled: run kops partition reassign verify -f {file} until all moves are complete; it removes the throttles")
    return _print(out, "execute", "begun", plan, done)


@command(
    formats=FORMATS,
    examples=[("Show the progress of a plan.", "kops partition reassign verify -f plan.json")],
)
def verify(
    out: Output,
    file: PlanFile,
    preserve_throttles: KeepThrottles = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show the progress of a plan: completed, in-progress, or differs (the partition is elsewhere and is not being moved).

    If no move is in progress in the cluster, the throttles of its brokers and of the plan's topics are removed.

    1: something differs from the plan, or is missing.
    """
    from kops.client.reassignment import parse_plan
    from kops.client.reassignment import verify as run

    plan = parse_plan(read_text(file, "--reassignment-json-file"), file)
    with connect(out, bootstrap, config, properties) as client:
        found = run(client, plan, preserve_throttles=preserve_throttles)
    rows: list[dict[str, Any]] = [
        {"topic": key.topic, "partition": key.partition, "state": one.state, "replicas": one.replicas, "target": one.target}
        for key, one in sorted(found.partitions.items())
    ]
    rows += [
        {**replica._asdict(), "state": one.state, "replicas": one.log_dir and [one.log_dir], "target": [one.target]}
        for replica, one in sorted(found.log_dirs.items())
    ]
    if found.throttles_cleared:
        out.detail("throttles were removed")
    status = 1 if any(row["state"] in ("differs", "missing") for row in rows) else 0
    out.status = status
    columns = [column for column in ITEM_COLUMNS if column not in OUTCOME_COLUMNS]
    columns = [Column("state", style=STATE_COLORS.get) if column.key == "state" else column for column in columns]
    head = {"ongoing": found.ongoing, "throttles_cleared": found.throttles_cleared}
    out.rows(rows, columns, schema="kops.reassign-verify/v1", key="items", **head)
    return status


@command(
    formats=FORMATS,
    examples=[("Cancel a plan.", "kops partition reassign cancel -f plan.json")],
)
def cancel(
    out: Output,
    file: PlanFile,
    preserve_throttles: KeepThrottles = False,
    timeout: Timeout = 10_000,
    bootstrap: Bootstrap = None,
    controllers: Controllers = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Cancel the moves of a plan that are in progress: partitions keep, or return to, the replicas that they had. Throttles are removed.

    1: a move could not be stopped.
    """
    from kops.client.reassignment import cancel as run
    from kops.client.reassignment import parse_plan

    plan = parse_plan(read_text(file, "--reassignment-json-file"), file)
    with connect(out, bootstrap, config, properties, controllers=controllers) as client:
        done = run(client, plan, preserve_throttles=preserve_throttles, timeout_ms=timeout)
    if not done.partitions and not done.log_dirs:
        out.say("none of its moves was in progress")
    return _print(out, "cancel", "cancelled", plan, done)


@command(
    formats=FORMATS,
    examples=[("All moves in progress.", "kops partition reassign list")],
)
def list_(
    out: Output,
    bootstrap: Bootstrap = None,
    controllers: Controllers = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """List the partitions that are being moved."""
    from kops.client.partitions import list_reassignments

    with connect(out, bootstrap, config, properties, controllers=controllers) as client:
        found = list_reassignments(client)
    rows = [
        {"topic": key.topic, "partition": key.partition, "replicas": one.replicas, "adding": one.adding, "removing": one.removing}
        for key, one in sorted(found.items())
    ]
    out.rows(rows, LIST_COLUMNS, schema="kops.reassignments/v1", key="partitions")
    if not rows:
        out.say("nothing is being moved")


def _print(out: Output, name: str, state: str, plan: Plan, done: Executed) -> int:
    from kops.client.reassignment import plan_document

    rows: list[dict[str, Any]] = []
    errors: list[tuple[str, KopsError | None]] = []
    for key, error in sorted(done.partitions.items()):
        row = {"topic": key.topic, "partition": key.partition, "replicas": done.before.partitions.get(key)}
        rows.append({**row, "target": plan.partitions.get(key), "state": state if error is None else "failed", **outcome(error)})
        errors.append((f"{key.topic}-{key.partition}", error))
    moves: Mapping[Any, KopsError | None] = done.log_dirs
    for replica, failed in sorted(moves.items()):
        path = plan.log_dirs.get(replica)
        rows.append({**replica._asdict(), "target": path and [path], "state": state if failed is None else "failed", **outcome(failed)})
        errors.append((f"{replica.topic}-{replica.partition} on broker {replica.broker}", failed))
    status = report(out, errors)
    head = {"before": plan_document(done.before)} if name == "execute" else {}
    out.rows(rows, ITEM_COLUMNS, schema=f"kops.reassign-{name}/v1", key="items", **head)
    return status
