"""`kops log compaction`: what the log cleaner would do with each compacted partition, and when tombstones go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.log.questions.reading import Jobs, Topic, now, tell_unread
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FAILED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.questions.compaction import Compaction

SCHEMA = "kops.compaction/v1"
COLORS = {"due": "green", "held-back": "yellow", "not-loaded": "red"}
COLUMNS = [
    Column("name", "partition"),
    Column("verdict", style=COLORS.get),
    Column("turn", kind="int"),
    Column("ratio"),
    Column("min_ratio", "min"),
    Column("clean_bytes", "clean", "bytes"),
    Column("cleanable_bytes", "dirty", "bytes"),
    Column("uncleanable_bytes", "held back", "bytes"),
    Column("first_dirty_offset", "from", "int"),
    Column("clean_until", "to", "int"),
    Column("log_end_offset", "end", "int"),
    Column("tombstones", kind="int"),
    Column("tombstones_due", "due", "int"),
    Column("next_horizon", "next go", "time_ms"),
    Column("reason"),
    Column("policy", wide=True),
    Column("policy_from", wide=True),
    Column("checkpoint", kind="int", wide=True),
    Column("overdue_ms", "overdue (ms)", "int", wide=True),
    Column("tombstones_waiting", "waiting", "int", wide=True),
    Column("tombstones_new", "new", "int", wide=True),
    Column("last_horizon", "last go", "time_ms", wide=True),
    Column("records_without_key", "without key", "int", wide=True),
    Column("damaged", kind="int", wide=True),
    Column("limits", kind="list", wide=True),
    Column("topic", wide=True),
    Column("broker", kind="int", wide=True),
    Column("dir", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("What the cleaner would do on a broker.", "kops log compaction /var/lib/kafka"),
        ("As if the topic were compacted, with a lower ratio.", "kops log compaction --config cleanup.policy=compact orders-0"),
        ("In a week, for a program.", "kops log compaction --now 2026-12-01T00:00Z --format jsonl /var/lib/kafka"),
    ],
)
def compaction(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories or partition directories.")],
    topic: Topic = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="K=V", help="A topic setting, in place of the topic's own.", show_default=False)
    ] = None,
    now_: Annotated[
        str | None, typer.Option("--now", metavar="TIME", help="The state as of then (default: now).", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the records; leaves out tombstones.")] = False,
    jobs: Jobs = 0,
) -> int:
    """Show what the log cleaner would do, and when tombstones go; read-only.

    VERDICT is what a broker's cleaner would decide: due (TURN: its place in the order), below-ratio, held-back (REASON says by what),
    nothing-dirty or not-loaded. The offsets FROM to TO are what the cleaner would clean now: from the cleaner's checkpoint on, up to the
    active segment, an open transaction, the high watermark or min.compaction.lag.ms. DUE tombstones go at the next cleaning; NEXT GO is
    when the next ones may go. Settings are those of the cluster's metadata in the same log directory. Without metadata, a partition counts
    as compacted if its topic is internal or the cleaner's checkpoint names it. The exit code is 4 for damage and logs that a broker cannot
    load.
    """
    from kops.files import OsFiles
    from kops.forensics.questions.compaction import CompactionReport
    from kops.forensics.questions.reading import find_logs

    now_ms = now(now_)
    files = OsFiles(read_only=True)
    found = find_logs(paths, files, topic or (), directories_only=True)
    tell_unread(out, found.unread)
    report = CompactionReport(files, found.replicas, _settings(config or []), now_ms)
    for other in report.others:
        out.detail(f"{other.given}: not compacted")
    with out.progress("compaction", sum(each[0].size for each in report.compacted)) as bar:
        answers = report.answers(with_tombstones=not quick, jobs=jobs or None, on_bytes=bar.update)
    out.rows(_rows(out, answers), COLUMNS, schema=SCHEMA, key="partitions")
    if out.format in ("table", "wide"):
        names = "partition is" if len(report.others) == 1 else "partitions are"
        out.say(f"{len(answers)} compacted; {len(report.others)} {names} not")
    return 0


def _rows(out: Output, answers: list[Compaction]) -> Iterator[dict[str, Any]]:
    for one in answers:
        row = one.to_row()
        if one.unread:
            out.fail(one.reason)
            out.status |= FAILED
        elif one.verdict == "not-loaded":
            out.status |= PROBLEMS
        if row["damaged"]:
            out.status |= PROBLEMS
            out.warn(f"{row['dir']}: {row['damaged']} damaged ranges; kops log verify shows them")
        if out.format in ("table", "wide"):
            row["limits"] = [f"{each['cause']} from {each['offset']}" for each in row["limits"]]
        yield row


def _settings(texts: list[str]) -> dict[str, str]:
    from kops.errors import UsageError

    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--config {text}: not a setting; allowed: K=V, with the name of a topic's setting")
        found[key] = value
    return found
