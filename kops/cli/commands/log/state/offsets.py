"""`kops log offsets`: shows committed offsets of consumer groups, from the files of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.state.reporting import At, at_ms, raw_rows, tell_lost, tell_replicas, tell_unread
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.coordinators.internal_topics import Chosen
    from kops.forensics.coordinators.log_ends import LogEnds
    from kops.forensics.coordinators.offsets import PartitionOffsets
    from kops.forensics.inventory.tree import PartitionDir

SCHEMA = "kops.offsets/v1"
RESET_CSV = "reset-csv"
COMMITTED = "committed"
MINUTE_MS = 60_000
COLORS = {"pending": "yellow", "deleted": "dim", "raw": "red"}
COLUMNS = [
    Column("group", kind="name"),
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("lag", kind="int"),
    Column("state", style=COLORS.get),
    Column("timestamp", "committed", "time_ms"),
    Column("expires", kind="time_ms"),
    Column("metadata"),
    Column("leader_epoch", "epoch", "int", wide=True),
    Column("producer_id", "producer", "int", wide=True),
    Column("log", wide=True),
    Column("record_offset", kind="int", wide=True),
    Column("note"),
]
KEYS = [column.key for column in COLUMNS]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The offsets of all groups in a broker's files.", "kops log offsets /var/lib/kafka"),
        ("The offsets of a group last night.", "kops log offsets --group billing --at 2026-11-21T03:00Z /var/lib/kafka"),
        (
            "The same as a file that kops group reset --from-file and Kafka's tool take.",
            "kops log offsets --group billing --at 2026-11-21T03:00Z --as reset-csv -o billing.csv /var/lib/kafka",
        ),
    ],
)
def offsets(
    out: Output,
    paths: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Log directories, or directories of partitions of __consumer_offsets.")
    ],
    at: At = None,
    group: Annotated[list[str] | None, typer.Option("--group", metavar="G", help="Only this group.", show_default=False)] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="reset-csv", help="Print the CSV of kafka-consumer-groups.", show_default=False)
    ] = None,
    retention_minutes: Annotated[
        int, typer.Option(metavar="N", min=1, help="The brokers' offsets.retention.minutes, for the times of expiry.")
    ] = 10_080,
) -> int:
    """Show the committed offsets of consumer groups, from files; read-only.

    The records of __consumer_offsets are replayed as a group coordinator replays them. "pending" offsets take effect when their transaction
    is committed. "deleted" offsets have a tombstone. EXPIRES is the time at which a broker would delete an unused offset; it is empty while
    the group's members use the offset. LAG is computed from the partition's log, if that is below the same paths.

    With --at, only records up to that time count. Offsets that were overwritten later may be missing, because a broker's cleaner removes
    them. Records that cannot be decoded are shown raw, and the exit code is then 4. It is 8 if a group of --group has no
    offsets, and if a directory or a log could not be read; the others were.
    """
    from kops.files import OsFiles
    from kops.forensics.coordinators.internal_topics import GROUP_TOPIC, open_topic
    from kops.forensics.coordinators.log_ends import LogEnds

    if as_ not in (None, RESET_CSV):
        raise UsageError(f"--as {as_}: only {RESET_CSV} is known")
    if as_ is not None and out.format not in ("table", "csv"):
        raise UsageError(f"give only one of --as {as_} and --format {out.format}")
    when = at_ms(at)
    files = OsFiles(read_only=True)
    chosen = open_topic(paths, GROUP_TOPIC, files)
    tell_replicas(out, chosen.left_out)
    tell_unread(out, (f"{each.path}: {each.reason}" for each in chosen.problems))
    missing = dict.fromkeys(group or ())
    if as_ == RESET_CSV:
        _reset_csv(out, files, chosen, when, missing)
        return tell_missing(out, group, missing)
    ends = LogEnds(files, paths if when is None else [])
    rows = _rows(out, files, chosen, when, missing, retention_minutes * MINUTE_MS, ends)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="offsets")
    if not out.wrote and not group and out.format in ("table", "wide"):
        out.say("no offsets")
    for error in ends.unreadable:
        out.warn(f"{error.filename}: {error.strerror}; the lag of its partition is not known")
        out.status |= FAILED
    return tell_missing(out, group, missing)


def tell_missing(out: Output, groups: Sequence[str] | None, missing: Collection[str]) -> int:
    """Report the groups of --group that have no offsets. Returns the exit code."""
    wanted = dict.fromkeys(groups or ())
    for name in wanted:
        if name in missing:
            (out.fail if len(missing) == len(wanted) else out.warn)(f"{name}: the group has no offsets in these files")
    out.status |= FAILED if missing else CLEAN
    return out.status


def _rows(
    out: Output, files: Files, chosen: Chosen, when: int | None, missing: dict[str, None], retention_ms: int, ends: LogEnds
) -> Iterator[dict[str, Any]]:
    """Yield the rows, of the groups in `missing` if it has any. Those that are found are removed from it."""
    from kops.forensics.coordinators.log_ends import offset_row

    groups = list(missing)
    for partition, found in _read(out, files, chosen, when):
        for one in found.replay.positions(partition.name, retention_ms):
            if not groups or one.place.group in groups:
                missing.pop(one.place.group, None)
                yield offset_row(one, None if one.offset is None else ends.of(one.place.topic, one.place.partition))
        if not groups:
            yield from raw_rows(out, found.raw, KEYS)


def _read(out: Output, files: Files, chosen: Chosen, when: int | None) -> Iterator[tuple[PartitionDir, PartitionOffsets]]:
    """Yield the partitions that can be read, replayed. Tells the damage, and those that can't be read."""
    from kops.forensics.coordinators.offsets import read_offsets
    from kops.forensics.coordinators.records import unread_line

    for partition in chosen.partitions:
        try:
            found = read_offsets(files, partition, at_ms=when)
        except OSError as error:
            tell_unread(out, [unread_line(partition, error)])
            continue
        tell_lost(out, found.lost)
        yield partition, found


def _reset_csv(out: Output, files: Files, chosen: Chosen, when: int | None, missing: dict[str, None]) -> None:
    from kops.forensics.coordinators.log_ends import offset_row
    from kops.forensics.coordinators.offsets import DEFAULT_RETENTION_MS

    groups = list(missing)

    def rows() -> Iterator[dict[str, Any]]:
        for partition, found in _read(out, files, chosen, when):
            for one in found.replay.positions(partition.name, DEFAULT_RETENTION_MS):
                if not groups or one.place.group in groups:
                    missing.pop(one.place.group, None)
                    yield offset_row(one, None)

    write_reset_csv(out, rows(), groups)


def write_reset_csv(out: Output, rows: Iterable[Mapping[str, Any]], groups: list[str]) -> None:
    """Lines of `topic,partition,offset` for one group, else of `group,topic,partition,offset`, as Kafka's tool writes and reads them."""
    import csv

    class Lines:
        write = staticmethod(out.write)

    writer = csv.writer(Lines, lineterminator="\n")
    for row in rows:
        if row["state"] == COMMITTED:
            place = (row["topic"], row["partition"], row["offset"])
            writer.writerow(place if len(groups) == 1 else (row["group"], *place))
