"""`kops txn list`: lists transactional ids."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.commands.group.choosing import tell_brokers
from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, known_words
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.txn-list/v1"
COLUMNS = [
    Column("transactional_id", kind="name"),
    Column("coordinator", kind="int"),
    Column("producer_id", "producer", "int"),
    Column("state"),
]

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All transactional ids.", "kops txn list"),
        ("Transactions that have been open for more than a minute.", "kops txn list --state Ongoing --duration-filter 60000"),
    ],
)
def list_(
    out: Output,
    state: Annotated[list[str] | None, typer.Option("--state", metavar="STATE", help="Only ids in this state, such as Ongoing.")] = None,
    producer_id: Annotated[list[int] | None, typer.Option("--producer-id", metavar="N", help="Only ids with this producer id.")] = None,
    duration: Annotated[
        int | None,
        typer.Option("--duration-filter", metavar="MS", help="Only transactions that have run longer than this.", show_default=False),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="RE", help="Only ids that match this RE2 expression.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """List transactional ids with their coordinators, producers and states.

    The command asks every broker. If one does not answer, it is reported, and the exit code is 1.
    """
    from kops.client.coordinators.transactions import list_transactions
    from kops.errors import ApiError, UsageError

    states = known_words(state, STATES, "--state")
    with connect(out, bootstrap, config, properties) as client:
        found, errors = list_transactions(
            client,
            states=states,
            producer_ids=producer_id or (),
            longer_than_ms=-1 if duration is None else duration,
            pattern=pattern,
        )
    if any(isinstance(error, ApiError) and error.name == "INVALID_REGULAR_EXPRESSION" for error in errors.values()):
        raise UsageError(f"--transactional-id-pattern {pattern}: not a valid RE2 expression")
    tell_brokers(out, errors)
    rows = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "state": one.state,
        }
        for one in found
    ]
    out.rows(rows, COLUMNS, schema=SCHEMA, key="transactions")
    if not rows and out.format == "table":
        out.say("no transactional ids")
    return out.status
