"""`kops log timeline`: what happened to partitions, over time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.questions.reading import Jobs, Paths, Topic, tell_unread
from kops.cli.commands.log.questions.searching import FromTime, ToTime
from kops.cli.commands.log.state.reporting import LostLines, tell_replicas
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.inventory.replicas import Replica
    from kops.forensics.questions.timeline import Choice

SCHEMA = "kops.timeline/v1"
COLORS = {"deleted": "yellow", "topic-deleted": "yellow", "abort": "yellow", "election": "cyan"}
COLUMNS = [
    Column("time", kind="time_ms"),
    Column("event", style=COLORS.get),
    Column("topic"),
    Column("partition", kind="int"),
    Column("offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("records", kind="int"),
    Column("bytes", kind="bytes"),
    Column("leader_epoch", "epoch", "int"),
    Column("producer_id", "producer", "int"),
    Column("detail"),
    Column("broker", kind="int", wide=True),
    Column("path", wide=True),
]
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
Every = Annotated[
    str, typer.Option("--every", metavar="T", help="Appends and ends of transactions are summed over this: 90s, 15m, 1h, 1d.")
]


EventName = Annotated[list[str] | None, typer.Option("--event", metavar="NAME", help="Only this event.", show_default=False)]


def choice_of(every: str, topics: list[str] | None, events: list[str] | None, from_time: str | None, to_time: str | None) -> Choice:
    """What the options ask for. Raises UsageError."""
    from kops.forensics.dump.filters import parse_time
    from kops.forensics.questions.timeline import EVENTS, Choice

    for name in events or ():
        if name not in EVENTS:
            raise UsageError(f"--event {name}: not one of {', '.join(EVENTS)}")
    low = None if from_time is None else parse_time(from_time, "--from-time")
    high = None if to_time is None else parse_time(to_time, "--to-time")
    return Choice(interval_of(every), tuple(events or ()), tuple(topics or ()), low, high)


def interval_of(text: str) -> int:
    """The milliseconds of `90s`, `15m`, `1h`. Raises UsageError."""
    found = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", text)
    if found is None or not int(found[1]):
        raise UsageError(f"--every {text}: not a duration; allowed: a number above 0 followed by ms, s, m, h or d (90s, 15m, 1h)")
    return int(found[1]) * UNITS[found[2]]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv", "bodyfile"),
    examples=[
        ("What happened on a broker, by the hour.", "kops log timeline /var/lib/kafka"),
        (
            "One topic by the minute, in a quarter of an hour.",
            "kops log timeline --topic orders --every 1m --from-time 2026-11-21T03:00Z --to-time 2026-11-21T03:15Z /var/lib/kafka",
        ),
        ("Elections and deletions only.", "kops log timeline --event election --event deleted --event topic-deleted /var/lib/kafka"),
        ("For The Sleuth Kit, with the timeline of a disk.", "kops log timeline --format bodyfile /var/lib/kafka | mactime -b -"),
    ],
)
def timeline(
    out: Output,
    paths: Paths,
    every: Every = "1h",
    topic: Topic = None,
    event: EventName = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    jobs: Jobs = 0,
) -> int:
    """Show what happened to partitions over time, also as a body file; read-only.

    Events are appends, leader epochs, rolls, ends of transactions, elections and deletions. Appends, commits and aborts are summed over an
    interval and stand at its beginning; bars compare the records of appends. Times are those of the batches; they are the clients' clocks
    unless the topic has LogAppendTime. Elections, changes of the in-sync replicas, and created and deleted topics come from
    __cluster_metadata, if it is below the paths, and have its offsets. Deletions are files that wait for theirs. Of several replicas of a
    partition, one is read. --format bodyfile is for mactime. Damage is a warning, and the exit code is then 4.
    """
    from kops.files import OsFiles
    from kops.forensics.questions.reading import find_logs, one_of_each
    from kops.forensics.questions.timeline import bars, body_line, order_of

    choice = choice_of(every, topic, event, from_time, to_time)
    files = OsFiles(read_only=True)
    found = find_logs(paths, files, topic or (), needed=("__cluster_metadata",))
    tell_unread(out, found.unread)
    live, left_out = one_of_each(files, found.replicas)
    tell_replicas(out, left_out)
    dying = [each for each in found.listing.replicas if each.directory.state and (not topic or each.directory.topic in topic)]
    read = {each.directory.path for each in live}
    rows = _read(out, [*found.replicas, *dying], read, choice, jobs or None)
    rows.sort(key=order_of)
    if out.format == "bodyfile":
        for row in rows:
            out.line(body_line(row))
    elif out.format in ("table", "wide"):
        out.rows(bars(rows), [*COLUMNS[:7], Column("bar", ""), *COLUMNS[7:]], schema=SCHEMA, key="events")
    else:
        out.rows(rows, COLUMNS, schema=SCHEMA, key="events")
    return 0


def _read(out: Output, replicas: list[Replica], read: set[str], choice: Choice, jobs: int | None) -> list[dict[str, Any]]:
    """The events of all replicas; damage and files that can't be read are told."""
    from kops.files import OsFiles
    from kops.forensics.coordinators.records import Lost
    from kops.forensics.questions.reading import Unread
    from kops.forensics.questions.timeline import all_events

    rows: list[dict[str, Any]] = []
    lost = LostLines(out)
    with out.progress("timeline", sum(each.size for each in replicas if each.directory.path in read)) as bar:
        for found in all_events(OsFiles(read_only=True), replicas, read, choice, jobs=jobs, on_bytes=bar.update):
            if isinstance(found, Lost):
                lost.tell(found)
            elif isinstance(found, Unread):
                tell_unread(out, [found])
            else:
                rows.append(found)
    lost.end()
    return rows
