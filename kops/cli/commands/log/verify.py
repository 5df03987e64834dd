"""`kops log verify`: checks that all files are as Apache Kafka would have written them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import human_bytes, many
from kops.cli.running.exit_codes import FAILED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.findings.finding import Finding
    from kops.forensics.verify.run import VerifyReport

SCHEMA = "kops.verify/v1"
COLORS = {"error": "red", "warning": "yellow", "info": "dim"}
COLUMNS = [
    Column("severity", style=COLORS.get),
    Column("code"),
    Column("file"),
    Column("position", kind="int"),
    Column("length", kind="int"),
    Column("base_offset", kind="int"),
    Column("last_offset", kind="int"),
    Column("records", kind="int"),
    Column("detail"),
    Column("fix", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Every checksum of a log directory.", "kops log verify /var/lib/kafka"),
        ("Everything that can be checked, on four cores.", "kops log verify --level full --jobs 4 /disk1/kafka /disk2/kafka"),
        ("One partition, for a program.", "kops log verify --format json /var/lib/kafka/orders-0"),
        ("A seventh of the segments; 2/7 checks another seventh.", "kops log verify --sample 1/7 /var/lib/kafka"),
    ],
)
def verify(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories or files.")],
    level: Annotated[str, typer.Option("--level", metavar="quick|crc|deep|full", help="How thoroughly to check.")] = "crc",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=0, help="Number of processes; 0: chosen by the size of the logs.")
    ] = 0,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="N/T|X%", help="Read only this part of the segments; it is the same part in every run."),
    ] = None,
    max_duration: Annotated[
        str | None, typer.Option("--max-duration", metavar="TIME", help="Start no segment after this time: 90, 90s, 15m, 2h.")
    ] = None,
    resume_from: Annotated[str | None, typer.Option("--resume-from", metavar="LOG", help="Begin with the partition of this .log.")] = None,
) -> int:
    """Verify segments, indexes and all other files of log directories; read-only.

    Each level includes the one before: "quick" checks headers, lengths, offsets, gaps and overlaps between segments, and each index on its
    own; "crc" checks every checksum; "deep" decompresses and parses every record; "full" checks files against each other: index entries
    against the log, producers and their snapshots, leader epochs, transaction indexes, checkpoints, meta.properties.

    Nothing is opened for writing. kops-findings(7) explains the findings. The exit code is 4 if there is an error or a warning. An info
    (a preallocated index after a crash, a directory that will be removed) does not count.
    """
    from kops.forensics.verify.run import VerifyInterrupted
    from kops.forensics.verify.run import verify as run

    seconds = duration_s(max_duration) if max_duration is not None else None
    try:
        with out.progress("verify") as bar:

            def start(total: int) -> None:
                bar.total = total

            report = run(
                paths,
                level,
                jobs=jobs or None,
                sample=sample,
                max_duration=seconds,
                resume_from=resume_from,
                progress=bar.update,
                on_start=start,
            )
    except VerifyInterrupted as stop:
        report = stop.report
        print_report(out, report)
        where = f"not read: {many(len(report.left_out), 'segment')}"
        out.resume = f"kops log verify --level {level} --resume-from {report.resume_from} {' '.join(paths)} ({where})"
        raise KeyboardInterrupt from None
    print_report(out, report)
    return out.status


def print_report(out: Output, report: VerifyReport) -> None:
    """Print the report in the chosen format, and set its exit code."""
    out.status |= status_of(report.findings)
    if out.format == "table":
        for found in report.findings:
            if found.is_problem or out.verbosity > 0:
                out.line(human(out, found))
        out.line(summary(report, out.verbosity > 0))
    elif out.format == "json" or out.format == "yaml":
        document = report.to_json()
        del document["schema"]
        out.document(document, schema=SCHEMA)
    else:
        out.rows((found.to_json() for found in report.findings), COLUMNS, schema=SCHEMA, key="findings")
    if out.format != "table":
        out.say(summary(report, True))
    if report.stopped == "time":
        out.say(f"kops: stopped after --max-duration; to continue: --resume-from {report.resume_from}")


def status_of(findings: Iterable[Finding]) -> int:
    """Return the exit code for findings. A file that could not be read counts as a failure, because it was not checked."""
    status = 0
    for found in findings:
        if found.code == "file-unreadable":
            status |= FAILED
        if found.is_problem:
            status |= PROBLEMS
    return status


def human(out: Output, found: Finding) -> str:
    """One finding as a line."""
    from kops.cli.printing.text import one_line

    where = found.file if found.position is None else f"{found.file}:{found.position}"
    offsets = ""
    if found.base_offset is not None and found.last_offset is not None:
        offsets = f" [{found.base_offset}-{found.last_offset}]" if found.last_offset != found.base_offset else f" [{found.base_offset}]"
        if found.records:
            offsets = f"{offsets[:-1]}, {found.records} {'record' if found.records == 1 else 'records'}]"
    severity = out.paint(f"{found.severity:<7}", COLORS.get(found.severity))
    return f"{severity} {one_line(where)} {found.code}{offsets}: {one_line(found.detail)}"


def summary(report: VerifyReport, all_shown: bool) -> str:
    """The last line: what was read, and the number of findings."""
    counts = {severity: sum(1 for found in report.findings if found.severity == severity) for severity in ("error", "warning", "info")}
    amounts = ((report.segments, "segment"), (report.batches, "batch"), (report.records, "record"))
    read = ", ".join([*(many(count, what) for count, what in amounts), human_bytes(report.bytes)])
    left = f"; {many(len(report.left_out), 'segment')} left out" if report.left_out else ""
    if left and not (report.segments or report.findings):
        return f"nothing was checked (level {report.level}){left}"
    if counts["error"] or counts["warning"]:
        verdict = f"{many(counts['error'], 'error')}, {many(counts['warning'], 'warning')}"
    else:
        verdict = "clean"
    if counts["info"]:
        verdict += f", {many(counts['info'], 'info')}" + ("" if all_shown else " (-v shows)")
    return f"{verdict} in {read} (level {report.level}){left}"


def duration_s(text: str) -> float:
    """Seconds from `90`, `90s`, `15m`, `2h`, `1d`. Raises `UsageError`."""
    from kops.errors import UsageError

    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"--max-duration {text}: must be a number above 0 followed by s, m, h or d (90s, 15m, 2h)")
    return value * units[unit]
