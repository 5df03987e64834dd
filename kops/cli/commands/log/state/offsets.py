"""`kops log offsets`: the positions of consumer groups, from the files of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.state.reporting import At, at_ms, raw_rows, tell_lost, tell_replicas
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.coordinators.internal_topics import Chosen
    from kops.forensics.coordinators.offsets import Position

SCHEMA = "kops.offsets/v1"
RESET_CSV = "reset-csv"
MINUTE_MS = 60_000
COLORS = {"pending": "yellow", "deleted": "dim", "raw": "red"}
COLUMNS = [
    Column("group"),
    Column("topic"),
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
        ("Where the groups are, by a broker's files.", "kops log offsets /var/lib/kafka"),
        ("Where a group was last night.", "kops log offsets --group billing --at 2026-11-21T03:00Z /var/lib/kafka"),
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
    """Show the positions of consumer groups, from files; read-only.

    The records of __consumer_offsets are replayed as a group coordinator replays them. "pending" offsets count when their transaction is
    committed. "deleted" ones have a tombstone. EXPIRES is when a broker would delete the offset if nothing happens; there is none while the
    group's members use it. LAG is measured against the partition's log, if it is below the same paths.

    With --at, only records up to that time count. Positions that were overwritten later may be gone: a broker's cleaner removes them. What
    can't be decoded is shown raw, and the exit code is then 4.
    """
    from kops.files import OsFiles
    from kops.forensics.coordinators.internal_topics import GROUP_TOPIC, open_topic

    if as_ not in (None, RESET_CSV):
        raise UsageError(f"--as {as_}: only {RESET_CSV} is known")
    when = at_ms(at)
    files = OsFiles(read_only=True)
    chosen = open_topic(paths, GROUP_TOPIC, files)
    tell_replicas(out, chosen)
    if as_ == RESET_CSV:
        _reset_csv(out, files, chosen, when, group or [])
        return 0
    ends = _LogEnds(files, paths if when is None else [])
    rows = _rows(out, files, chosen, when, group or [], retention_minutes * MINUTE_MS, ends)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="offsets")
    if not out.wrote and out.format in ("table", "wide"):
        out.say("no offsets")
    return 0


def _rows(
    out: Output, files: Files, chosen: Chosen, when: int | None, groups: list[str], retention_ms: int, ends: _LogEnds
) -> Iterator[dict[str, Any]]:
    from kops.forensics.coordinators.offsets import read_offsets

    for partition in chosen.partitions:
        found = read_offsets(files, partition, at_ms=when)
        tell_lost(out, found.lost)
        for one in found.replay.positions(partition.name, retention_ms):
            if not groups or one.place.group in groups:
                yield _row(one, ends)
        if not groups:
            yield from raw_rows(out, found.raw, KEYS)


def _row(one: Position, ends: _LogEnds) -> dict[str, Any]:
    end = None if one.offset is None else ends.of(one.place.topic, one.place.partition)
    return {
        "group": one.place.group,
        "topic": one.place.topic,
        "partition": one.place.partition,
        "offset": one.offset,
        "lag": None if end is None or one.offset is None else end - one.offset,
        "state": one.state,
        "timestamp": one.timestamp,
        "expires": one.expires_ms,
        "metadata": one.metadata,
        "leader_epoch": one.leader_epoch,
        "producer_id": one.producer_id,
        "log": one.log,
        "record_offset": one.record_offset,
        "note": None,
    }


def _reset_csv(out: Output, files: Files, chosen: Chosen, when: int | None, groups: list[str]) -> None:
    """Lines of `topic,partition,offset` for one group, else of `group,topic,partition,offset`, as Kafka's tool writes and reads them."""
    import csv

    from kops.forensics.coordinators.offsets import COMMITTED, DEFAULT_RETENTION_MS, read_offsets

    class Lines:
        write = staticmethod(out.write)

    writer = csv.writer(Lines, lineterminator="\n")
    for partition in chosen.partitions:
        found = read_offsets(files, partition, at_ms=when)
        tell_lost(out, found.lost)
        for one in found.replay.positions(partition.name, DEFAULT_RETENTION_MS):
            if one.state == COMMITTED and (not groups or one.place.group in groups):
                place = (one.place.topic, one.place.partition, one.offset)
                writer.writerow(place if len(groups) == 1 else (one.place.group, *place))


class _LogEnds:
    """Where the logs of partitions below some paths end, found when they are first asked for."""

    def __init__(self, files: Files, paths: list[str]) -> None:
        from kops.forensics.inventory.tree import PartitionDir, open_paths

        self._files = files
        self._dirs: dict[tuple[str, int], list[PartitionDir]] = {}
        self._ends: dict[tuple[str, int], int | None] = {}
        for each in open_paths(paths, files).partitions() if paths else ():
            if each.topic is not None and not each.state:
                self._dirs.setdefault((each.topic, each.partition), []).append(each)

    def of(self, topic: str, partition: int) -> int | None:
        """The end of the replica that reaches furthest; None if there is none."""
        from kops.forensics.inventory.ls import partition_rows

        key = (topic, partition)
        if key not in self._ends:
            found = []
            for each in self._dirs.get(key, ()):
                last = each.live_segments[-1:]
                for row in partition_rows(self._files, each, only=("", last[0].base_offset)) if last else ():
                    found.append(row.base_offset if row.last_offset is None else row.last_offset + 1)
            self._ends[key] = max(found, default=None)
        return self._ends[key]
