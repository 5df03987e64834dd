"""`kops log txnstate`: shows transactional ids and their transactions, from the files of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.state.reporting import At, at_ms, raw_rows, tell_lost, tell_replicas, tell_unread
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FAILED
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.coordinators.internal_topics import Chosen
    from kops.forensics.coordinators.transactional_ids import TransactionalId

SCHEMA = "kops.txnstate/v1"
COLORS = {"Ongoing": "yellow", "PrepareAbort": "yellow", "PrepareCommit": "yellow", "Deleted": "dim", "raw": "red"}
COLUMNS = [
    Column("transactional_id", kind="name"),
    Column("producer_id", "producer", "int"),
    Column("producer_epoch", "epoch", "int"),
    Column("state", style=COLORS.get),
    Column("partitions", kind="list"),
    Column("started", kind="time_ms"),
    Column("updated", kind="time_ms"),
    Column("overdue", kind="time_ms"),
    Column("expires", kind="time_ms"),
    Column("timeout_ms", "timeout", "int", wide=True),
    Column("previous_producer_id", "previous", "int", wide=True),
    Column("next_producer_id", "next", "int", wide=True),
    Column("client_transaction_version", "version", "int", wide=True),
    Column("log", wide=True),
    Column("record_offset", kind="int", wide=True),
    Column("note"),
]
KEYS = [column.key for column in COLUMNS]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The transactional ids that a broker coordinates.", "kops log txnstate /var/lib/kafka"),
        ("Open transactions, for a program.", "kops log txnstate --state Ongoing --format jsonl /var/lib/kafka"),
        ("One id as of an earlier time.", "kops log txnstate --transactional-id pay-1 --at 2026-11-21T03:00Z /var/lib/kafka"),
    ],
)
def txnstate(
    out: Output,
    paths: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Log directories, or directories of partitions of __transaction_state.")
    ],
    at: At = None,
    transactional_id: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this id.", show_default=False)] = None,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only ids in this state, such as Ongoing.", show_default=False)
    ] = None,
    expiration_ms: Annotated[
        int, typer.Option(metavar="N", min=1, help="The brokers' transactional.id.expiration.ms, for the times of expiry.")
    ] = 604_800_000,
) -> int:
    """Show transactional ids with their producers, states and partitions, from files; read-only.

    The newest record of each id counts. OVERDUE is the time at which the coordinator aborts an open transaction. EXPIRES is the time at
    which a broker would delete an unused id. "Deleted" ids have a tombstone. Records that cannot be decoded are shown raw, and the exit
    code is then 4. It is 8 if an id of --transactional-id is not in the files, and if a directory or a log could not be read; the
    others were. kops log txns shows the transactions in the partitions.
    """
    from kops.files import OsFiles
    from kops.forensics.coordinators.internal_topics import TRANSACTION_TOPIC, open_topic
    from kops.forensics.coordinators.transactional_ids import DELETED, STATES

    known = {each.lower(): each for each in (*STATES, DELETED)}
    for each in state or ():
        if each.lower() not in known:
            raise UsageError(f"--state {each}: no such state; allowed: {', '.join(known.values())}")
    states = [known[each.lower()] for each in state or ()]
    missing = dict.fromkeys(transactional_id or ())
    files = OsFiles(read_only=True)
    chosen = open_topic(paths, TRANSACTION_TOPIC, files)
    tell_replicas(out, chosen.left_out)
    tell_unread(out, (f"{each.path}: {each.reason}" for each in chosen.problems))
    rows = _rows(out, files, chosen, at_ms(at), (transactional_id or [], states), missing, expiration_ms)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="transactionalIds")
    if not out.wrote and out.format in ("table", "wide") and not missing:
        out.say("no transactional ids")
    for name in missing:
        (out.fail if len(missing) == len(set(transactional_id or ())) else out.warn)(f"{name}: there is no such id in these files")
        out.status |= FAILED
    return out.status


def _rows(
    out: Output,
    files: Files,
    chosen: Chosen,
    when: int | None,
    only: tuple[list[str], list[str]],
    missing: dict[str, None],
    expiration_ms: int,
) -> Iterator[dict[str, Any]]:
    from kops.forensics.coordinators.records import unread_line
    from kops.forensics.coordinators.transactional_ids import read_ids

    ids, states = only
    for partition in chosen.partitions:
        try:
            found = read_ids(files, partition, at_ms=when, expiration_ms=expiration_ms)
        except OSError as error:
            tell_unread(out, [unread_line(partition, error)])
            continue
        tell_lost(out, found.lost)
        for one in found.sorted_ids():
            missing.pop(one.transactional_id, None)
            if (not ids or one.transactional_id in ids) and (not states or one.state in states):
                yield _row(one)
        if not ids and not states:
            yield from raw_rows(out, found.raw, KEYS)


def _row(one: TransactionalId) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "partitions": [f"{topic}-{number}" for topic, number in one.partitions],
        "started": one.started_ms,
        "updated": one.updated_ms,
        "overdue": one.overdue_ms,
        "expires": one.expires_ms,
        "timeout_ms": one.timeout_ms,
        "previous_producer_id": one.previous_producer_id,
        "next_producer_id": one.next_producer_id,
        "client_transaction_version": one.client_transaction_version,
        "log": one.log,
        "record_offset": one.record_offset,
        "note": None,
    }
