"""`kops log txns`: shows open, hanging and empty transactions in partitions, from files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from kops.cli.commands.log.state.reporting import tell_lost, tell_replicas, tell_unread
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.coordinators.hanging import TransactionSearch

SCHEMA = "kops.txns/v1"
COLORS = {"open": "yellow", "hanging": "red", "empty": "dim"}
COLUMNS = [
    Column("name", "partition"),
    Column("state", style=COLORS.get),
    Column("producer_id", "producer", "int"),
    Column("producer_epoch", "epoch", "int"),
    Column("first_offset", "first", "int"),
    Column("last_offset", "last", "int"),
    Column("since_ms", "since", "time_ms"),
    Column("transactional_id", kind="name"),
    Column("coordinator"),
    Column("holds_lso", "holds LSO"),
    Column("command"),
    Column("note"),
    Column("dir", wide=True),
    Column("last_timestamp", "last written", "time_ms", wide=True),
    Column("records", kind="int", wide=True),
    Column("coordinator_epoch", kind="int", wide=True),
    Column("last_stable_offset", "LSO", "int", wide=True),
    Column("end_offset", "log end", "int", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Transactions that block readers of committed records.", "kops log txns /var/lib/kafka"),
        ("All log directories of a broker together, with empty transactions.", "kops log txns --empty /disk1/kafka /disk2/kafka"),
        ("The hanging ones, for a program.", "kops log txns --hanging --format jsonl /var/lib/kafka"),
    ],
)
def txns(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Log directories or partition directories.")],
    hanging: Annotated[bool, typer.Option("--hanging", help="Only transactions that hang.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Also show markers of producers that wrote nothing.")] = False,
) -> int:
    """Show the transactions that are open in partitions, from files; read-only.

    An open transaction hangs if its coordinator does not know that it is in this partition, so that nothing will end it. To find out, the
    transaction log must be below the same paths: name all log directories of a broker. COMMAND ends the transaction in a running cluster.
    The oldest open transaction of a partition holds back the last stable offset (LSO), at which readers of committed records stop. The exit
    code is 4 if a transaction hangs, and for damage.

    8: a directory or a log could not be read. The others were.
    """
    from kops.files import OsFiles
    from kops.forensics.coordinators.hanging import TransactionSearch

    search = TransactionSearch(paths, OsFiles(read_only=True))
    tell_replicas(out, search.replicas.left_out)
    counts = {"open": 0, "hanging": 0}
    out.rows(_rows(out, search, counts, hanging=hanging, empty=empty), COLUMNS, schema=SCHEMA, key="transactions")
    tell_lost(out, search.lost)
    tell_unread(out, search.unread)
    tell_counts(out, counts, search, has_log=search.log.is_there, partitions=search.partitions)
    return 0


class Ended(Protocol):
    """The number of transactions by their end."""

    committed: int
    aborted: int
    empty: int


def tell_counts(out: Output, counts: dict[str, int], ended: Ended, *, has_log: bool, partitions: int) -> None:
    """Print the last line: the number of transactions."""
    if not has_log and counts["open"]:
        out.say("the transaction log is not below these paths, so kops cannot tell which of them hang")
    words = f"{ended.committed} committed, {ended.aborted} aborted, {ended.empty} empty"
    out.say(f"{counts['open']} open, {counts['hanging']} hanging, {words} in {many(partitions, 'partition')}")


def _rows(out: Output, search: TransactionSearch, counts: dict[str, int], *, hanging: bool, empty: bool) -> Iterator[dict[str, Any]]:
    for row in search.rows(with_empty=empty):
        if row.state in counts:
            counts[row.state] += 1
        if row.state == "hanging":
            out.status |= PROBLEMS
        elif hanging:
            continue
        yield {"name": f"{row.topic}-{row.partition}" if row.topic is not None else row.dir, **row.to_json()}
