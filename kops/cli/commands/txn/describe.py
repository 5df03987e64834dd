"""`kops txn describe` and `kops txn producers`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import OUTCOME_COLUMNS, Bootstrap, CommandConfig, CommandProperty, connect, outcome, report
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from kops.client.coordinators.transactions import Producer, TransactionDescription

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv")
COLUMNS = [
    Column("transactional_id", kind="name"),
    Column("coordinator", kind="int"),
    Column("producer_id", "producer", "int"),
    Column("producer_epoch", "epoch", "int"),
    Column("state"),
    Column("timeout_ms", "timeout", "int"),
    Column("started", kind="time_ms"),
    Column("duration_ms", "ms open", "int"),
    Column("partitions", kind="list"),
    *OUTCOME_COLUMNS,
]
PRODUCER_COLUMNS = [
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("producer_id", "producer", "int"),
    Column("producer_epoch", "epoch", "int"),
    Column("coordinator_epoch", "coordinator epoch", "int"),
    Column("last_sequence", "sequence", "int"),
    Column("last_timestamp", "last written", "time_ms"),
    Column("txn_start_offset", "transaction from", "int"),
]


@command(
    formats=FORMATS,
    examples=[
        ("The transaction of a transactional id.", "kops txn describe pay-1"),
        ("For a program.", "kops txn describe pay-1 --format json"),
    ],
)
def describe(
    out: Output,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Transactional ids.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="The same as an option, for users of Kafka's tools.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show the state of transactional ids: producer, state, start time and partitions."""
    from kops.client.coordinators.transactions import describe_transactions

    wanted = list(dict.fromkeys([*(ids or ()), *(option or ())]))
    if not wanted:
        raise UsageError("name a transactional id")
    with connect(out, bootstrap, config, properties) as client:
        found = describe_transactions(client, wanted)
    status = report(out, ((name, one if isinstance(one, ApiError) else None) for name, one in found.items()))
    now_ms = int(time.time() * 1000)
    rows = [_row(one, now_ms) for one in found.values() if not isinstance(one, ApiError)]
    out.rows(rows, COLUMNS, schema="kops.txn/v1", key="transactions")
    return status


def _row(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "started": one.started_ms,
        "duration_ms": now_ms - one.started_ms if one.is_open and one.started_ms is not None else None,
        "partitions": [f"{key.topic}-{key.partition}" for key in one.partitions],
        **outcome(None),
    }


@command(
    formats=FORMATS,
    examples=[
        ("Producers of a partition.", "kops txn producers orders:0"),
        ("Producers that the replica on broker 2 remembers.", "kops txn producers orders:0 --broker-id 2"),
    ],
)
def producers(
    out: Output,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC[:N,...]...]", help="Topics, or some of their partitions.")] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC[:N,...]", help="The same as an option.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", min=0, help="This partition of the topic.", show_default=False)
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Ask this broker's replica, not the leader.", show_default=False)
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Show the idempotent and transactional producers that partitions remember.

    TRANSACTION FROM is the first offset of an open transaction. Readers of committed records stop at this offset.
    """
    from kops.client.coordinators.resets import check_partitions, parse_topics
    from kops.client.coordinators.transactions import describe_producers

    wanted = scope(topics, topic, partition)
    if not wanted:
        raise UsageError("name a topic")
    with connect(out, bootstrap, config, properties) as client:
        keys = parse_topics(client, wanted)
        check_partitions(client, keys)
        found = describe_producers(client, keys, broker_id=broker_id)
    errors = [(f"{key.topic}-{key.partition}", one if isinstance(one, ApiError) else None) for key, one in sorted(found.items())]
    status = report(out, errors)
    rows = [producer_row(one) for key in sorted(found) if not isinstance(listed := found[key], ApiError) for one in listed]
    out.rows(rows, PRODUCER_COLUMNS, schema="kops.txn-producers/v1", key="producers")
    if not rows and out.format in ("table", "wide") and not status:
        out.say("no producers")
    return status


def scope(topics: list[str] | None, option: list[str] | None, partition: int | None) -> list[str]:
    """Topics with their partitions; `--partition` belongs to a single topic, as in Kafka's tool."""
    wanted = [*(topics or ()), *(option or ())]
    if partition is None:
        return wanted
    if len(wanted) != 1 or ":" in wanted[0]:
        raise UsageError("--partition: only with a single topic, given without partitions")
    return [f"{wanted[0]}:{partition}"]


def producer_row(one: Producer) -> dict[str, Any]:
    """A producer's columns."""
    return {
        "topic": one.key.topic,
        "partition": one.key.partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp": one.last_timestamp,
        "txn_start_offset": one.txn_start_offset,
    }
