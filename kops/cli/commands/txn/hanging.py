"""`kops txn find-hanging` and `kops txn abort`."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.commands.txn.describe import PRODUCER_COLUMNS, producer_row, scope
from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, connect, no_such
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import PLAIN_FAILED
from kops.cli.running.options import command
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.records.log_offsets import TopicPartition

MINUTE_MS = 60_000
COLUMNS = [*PRODUCER_COLUMNS, Column("minutes", kind="int"), Column("command")]
TopicArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC[:N,...]...]", help="Topics, or some of their partitions (default: all).")
]
TopicOptions = Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC[:N,...]", help="The same as an option.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", metavar="N", min=0, help="This partition of the topic.", show_default=False)
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("In all topics.", "kops txn find-hanging"),
        ("In the replicas of one broker.", "kops txn find-hanging --broker-id 2"),
        ("Transactions that were last written to ten minutes ago or earlier.", "kops txn find-hanging orders --max-transaction-timeout 10"),
    ],
)
def find_hanging(
    out: Output,
    topics: TopicArguments = None,
    topic: TopicOptions = None,
    partition: PartitionOption = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Only partitions with a replica on this broker.", show_default=False)
    ] = None,
    timeout: Annotated[
        int,
        typer.Option("--max-transaction-timeout", metavar="MINUTES", min=0, help="Only transactions last written to longer ago than this."),
    ] = 15,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Find transactions that are open in a partition although no coordinator will end them.

    They block readers of committed records and the cleaner for ever. COMMAND ends the transaction. Transactions younger than
    --max-transaction-timeout may not have reached the coordinator yet. The exit code is 1 if a broker did not answer.
    """
    from kops.client.coordinators.transactions import find_hanging as search

    wanted = scope(topics, topic, partition)
    now_ms = int(time.time() * 1000)
    with connect(out, bootstrap, config, properties) as client:
        keys = _keys(client, wanted, broker_id)
        # A partition without a leader may soon have one again, but a search must not wait for it.
        led = keys if broker_id is not None else [key for key in keys if _has_leader(client, key)]
        found, errors = search(client, led, now_ms=now_ms, longer_than_ms=timeout * MINUTE_MS, broker_id=broker_id)
    left = {f"{key.topic}-{key.partition}": "it has no leader" for key in keys if key not in set(led)}
    for name, error in [*left.items(), *errors.items()]:
        out.warn(f"{name}: {error}")
        out.status = out.status or PLAIN_FAILED
    rows = [
        {
            **producer_row(one),
            "minutes": (now_ms - one.last_timestamp) // MINUTE_MS,
            "command": f"kops txn abort --topic {shlex.quote(one.key.topic)} --partition {one.key.partition} "
            f"--start-offset {one.txn_start_offset}",
        }
        for one in found
    ]
    out.rows(rows, COLUMNS, schema="kops.txn-hanging/v1", key="transactions")
    if not rows and out.format in ("table", "wide"):
        out.say("no hanging transactions")
    return out.status


def _has_leader(client: Client, key: TopicPartition) -> bool:
    leader = client.metadata.leaders.get(key)
    return leader is not None and leader.node_id >= 0


def _keys(client: Client, wanted: list[str], broker_id: int | None) -> list[TopicPartition]:
    from kops.client.coordinators.resets import check_partitions, parse_topics
    from kops.client.topics import list_topics
    from kops.records.log_offsets import TopicPartition

    infos = list_topics(client)
    if wanted:
        keys = parse_topics(client, wanted)
        check_partitions(client, keys)
    else:
        keys = [TopicPartition(info.name, one.partition) for info in infos for one in info.partitions]
    if broker_id is None:
        return keys
    if broker_id not in client.metadata.nodes:
        raise no_such("broker", [broker_id])
    there = {TopicPartition(info.name, one.partition) for info in infos for one in info.partitions if broker_id in one.replicas}
    return [key for key in keys if key in there]


@command(
    formats=(),
    examples=[
        ("A transaction found by find-hanging or kops log txns.", "kops txn abort --topic orders --partition 0 --start-offset 4711"),
        ("The open transaction of a transactional id.", "kops txn abort --transactional-id pay-1"),
    ],
)
def abort(
    out: Output,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic.")] = None,
    partition: PartitionOption = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", help="First offset of the transaction.", show_default=False)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", help="Its producer id, for brokers before 3.0.", show_default=False)
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", help="The producer's epoch.", show_default=False)
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option("--coordinator-epoch", metavar="N", help="The coordinator's epoch.", show_default=False)
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Abort the open transaction of this id.", show_default=False)
    ] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Abort a transaction. This cannot be undone, and requires permission to administer the cluster.

    Name a hanging transaction by its partition and first offset: the partition's leader then writes the marker. If a coordinator still
    knows the transaction, use --transactional-id: the coordinator fences the producer, aborts the transaction and writes all markers.
    """
    from kops.client.coordinators.transactions import abort_in_partition, abort_transactional_id
    from kops.records.log_offsets import TopicPartition

    numbers = (producer_id, producer_epoch, coordinator_epoch)
    ways = [transactional_id is not None, start_offset is not None, any(number is not None for number in numbers)]
    if sum(ways) != 1:
        ask = "--start-offset, or --producer-id with --producer-epoch and --coordinator-epoch, or --transactional-id"
        raise UsageError(f"name the transaction in exactly one way: {ask}")
    if transactional_id is not None:
        if topic is not None or partition is not None:
            raise UsageError("--transactional-id cannot be used with --topic or --partition")
        with connect(out, bootstrap, config, properties) as client:
            ended = _state_before(client, transactional_id)
            abort_transactional_id(client, transactional_id)
        out.say(f"{transactional_id}: {ended}, and its producer is fenced")
        return 0
    if topic is None or partition is None:
        raise UsageError("--topic and --partition are needed")
    if start_offset is None and None in numbers:
        raise UsageError("--producer-id, --producer-epoch and --coordinator-epoch are needed together")
    key = TopicPartition(topic, partition)
    with connect(out, bootstrap, config, properties) as client:
        about = _open_at(client, key, start_offset) if start_offset is not None else tuple(number or 0 for number in numbers)
        abort_in_partition(client, key, about[0], about[1], about[2])
    out.say(f"{topic}-{partition}: the transaction of producer {about[0]} is aborted")
    return 0


def _state_before(client: Client, transactional_id: str) -> str:
    """Return what will happen to the transaction of this id. Raises ApiError for an id that no coordinator has, because fencing would
    create it."""
    from kops.client.coordinators.transactions import describe_transactions

    found = describe_transactions(client, [transactional_id])[transactional_id]
    if isinstance(found, ApiError):
        if found.name != "UNSUPPORTED_VERSION":
            raise ApiError(found.name, f"{transactional_id}: {found}")
        return "aborted"
    if found.is_open:
        return "committed, as its producer had decided" if found.state == "PrepareCommit" else "aborted"
    return "no transaction was open"


def _open_at(client: Client, key: TopicPartition, start_offset: int) -> tuple[int, ...]:
    """Producer id, producer epoch and coordinator epoch of the open transaction that begins at an offset. Raises NotFoundError."""
    from kops.client.coordinators.transactions import describe_producers
    from kops.errors import NotFoundError

    found = describe_producers(client, [key])[key]
    if isinstance(found, ApiError):
        raise ApiError(found.name, f"{key.topic}-{key.partition}: {found}")
    for one in found:
        if one.txn_start_offset == start_offset:
            return one.producer_id, one.producer_epoch, one.coordinator_epoch
    raise NotFoundError(f"{key.topic}-{key.partition}: no open transaction begins at offset {start_offset}")
