"""`kops log ls`: lists segments with their states and ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FAILED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.inventory.tree import Inventory

COLORS = {"live": None, "deleted": "dim", "cleaned": "yellow", "swap": "yellow"}


@command(
    formats=("table", "wide", "json", "jsonl", "csv", "yaml"),
    examples=[
        ("The segments of one partition.", "kops log ls /data/orders-0"),
        ("All partitions of a broker with counts of records and every leader epoch.", "kops log ls --deep --format wide /data"),
        ("Files that a broker was about to delete.", "kops log ls --format csv /data | grep -E 'deleted|delete'"),
    ],
)
def ls(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Partition directories, log directories, or single files.")],
    deep: Annotated[bool, typer.Option("--deep", help="Read every batch: counts, all epochs and producers, damage.")] = False,
) -> int:
    """List segments with their states, offsets, sizes, times and leader epochs.

    The list includes files renamed for deletion or left by a cleaner (.deleted .cleaned .swap), and partitions that are about to
    be deleted, are stray, or are moving to another log directory (-delete -stray -future). Without --deep only the beginning and end of
    each log are read. A directory without any of Kafka's files is wrong usage (16).
    """
    from kops.files import OsFiles
    from kops.forensics.inventory.ls import SCHEMA
    from kops.forensics.inventory.tree import open_paths, refuse_without_partitions

    files = OsFiles(read_only=True)
    inventory = open_paths(paths, files)
    refuse_without_partitions(paths, inventory, files)
    for problem in inventory.problems:
        out.warn(f"{problem.path}: {problem.reason}")
        out.status |= FAILED
    rows = _rows(out, inventory, deep)
    out.rows(rows, _columns(deep), schema=SCHEMA, key="segments")
    if not out.wrote and out.format in ("table", "wide"):
        out.say("no segments")
    return 0


def _rows(out: Output, inventory: Inventory, deep: bool) -> Iterator[dict[str, Any]]:
    from kops.files import OsFiles
    from kops.forensics.inventory.ls import segment_rows

    files = OsFiles(read_only=True)
    human = out.format in ("table", "wide")

    def tell(error: OSError) -> None:
        where = "" if error.filename is None else f"{error.filename}: "
        out.warn(f"{where}{error.strerror or error}")
        out.status |= FAILED

    for segment in segment_rows(files, inventory, deep=deep, on_error=tell):
        if "damaged" in segment.flags or "bad-index" in segment.flags:
            out.status |= PROBLEMS
        row = segment.to_json()
        if human and segment.dir_state:
            row["name"] = f"{segment.name} ({segment.dir_state})"
        yield row


def _columns(deep: bool) -> list[Column]:
    return [
        Column("name", "partition"),
        Column("dir_state", wide=True),
        Column("state", style=COLORS.get),
        Column("base_offset", kind="int"),
        Column("last_offset", kind="int"),
        Column("size", kind="bytes"),
        Column("batches", kind="int", wide=not deep),
        Column("records", kind="int", wide=not deep),
        Column("first_timestamp", "from", "time_ms"),
        Column("max_timestamp", "to", "time_ms"),
        Column("leader_epochs", "epochs", "list"),
        Column("index_entries", "index", "int"),
        Column("timeindex_entries", "timeindex", "int", wide=True),
        Column("aborted_txns", "aborted", "int", wide=True),
        Column("producers", kind="int", wide=True),
        Column("snapshot_producers", "snapshot", "int", wide=True),
        Column("codecs", kind="list", wide=True),
        Column("total_size", "all files", "bytes", wide=True),
        Column("dir", wide=True),
        Column("flags", kind="list"),
    ]
