"""`kops evidence collect`: log directories become a case that can be proved unchanged."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import CLEAN, FAILED, INTERRUPTED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.evidence.collect import Collected

SCHEMA = "kops.evidence-collected/v1"


@command(
    formats=("table", "json", "yaml"),
    examples=[
        ("The log directories of a broker.", "kops evidence collect /disk1/kafka /disk2/kafka --out /cases/2026-17"),
        ("Only hashes and findings, no copy.", "kops evidence collect /var/lib/kafka --out /cases/2026-17 --reference"),
        ("Continue after an interruption.", "kops evidence collect /disk1/kafka /disk2/kafka --out /cases/2026-17 --resume"),
        (
            "With a name, a number and a note.",
            'kops evidence collect /var/lib/kafka --out /cases/17 --case-number 2026-17 --examiner "A. Miller" --note "disk 2 of broker 3"',
        ),
    ],
)
def collect(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Log directories, partition directories or any others.")],
    case: Annotated[str, typer.Option("--out", metavar="CASE", help="The new directory of the case.")],
    reference: Annotated[
        bool, typer.Option("--reference", help="Copy nothing; keep only hashes and findings.", show_default=False)
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a collection that was interrupted or killed.", show_default=False)
    ] = False,
    case_number: Annotated[str | None, typer.Option("--case-number", metavar="X", help="The number of the case, for the report.")] = None,
    examiner: Annotated[str | None, typer.Option("--examiner", metavar="NAME", help="The person who collects.")] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note for the report.")] = None,
    level: Annotated[
        str, typer.Option("--level", metavar="quick|crc|deep|full", help="How thoroughly to verify; see kops log verify.")
    ] = "full",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=0, help="Number of processes for verify; 0: chosen by the size of the logs.")
    ] = 0,
) -> int:
    """Collect directories as evidence: copies with hashes, and what verify and forecast find.

    Nothing is written to DIR and no lock is taken; symbolic links, pipes and devices are recorded and not followed or opened. CASE gets a
    copy of every file with its SHA-256, size, permissions, times and inode, the findings of kops log verify and kops log forecast, a map
    of each segment, manifest.json, and SHA256SUMS for sha256sum -c. Every file is read a second time at the end: a file that changed
    meanwhile is reported and kept as it was first read. Files that cannot be read are listed. Holes of sparse files stay holes.

    Write down the SHA-256 of the manifest that the command prints: with it, kops evidence verify proves that nothing was changed. After
    Ctrl-C, or when the disk of the case is full, the case has the files read so far, and is marked as incomplete. --resume continues it,
    also after a kill: it keeps copies whose hash is still right and whose original has the same times, size and inode.

    4: verify found problems, or files changed. 8: something could not be read; the rest is in the case.
    """
    import kops
    from kops.forensics.evidence.collect import CollectOptions
    from kops.forensics.evidence.collect import collect as run

    switches = [option for option, is_given in (("--reference", reference), ("--resume", resume)) if is_given]
    words = ["kops", "evidence", "collect", *paths, "--out", case, *switches, "--level", level]
    again = ["kops", "evidence", "collect", *paths, "--out", case, "--resume", "--level", level]
    for option, value in (("--case-number", case_number), ("--examiner", examiner), ("--note", note)):
        words += [option, value] if value is not None else []
        again += [option, value] if value is not None else []
    options = CollectOptions(
        reference=reference,
        resume=resume,
        level=level,
        jobs=jobs or None,
        examiner=examiner,
        note=note,
        case_number=case_number,
        version=kops.__version__,
        arguments=words,
    )
    if not resume:
        _tell_left(out, case)
    with out.progress("collect") as bar:

        def start(total: int) -> None:
            bar.total = total

        made = run(paths, case, options, on_total=start, on_bytes=bar.update)
    status = _print(out, made)
    if not made.complete and not reference:
        room = " when there is room" if made.stopped else ""
        out.say(f"kops: to continue{room}: {shlex.join(again)}")
    return status


def _tell_left(out: Output, case: str) -> None:
    from kops.forensics.evidence.resume import left_behind

    for left in left_behind(case):
        out.warn(f"{left}: from a collection that was killed or is at work; --resume continues one that was killed")


def _print(out: Output, made: Collected) -> int:
    status = PROBLEMS if made.problems["error"] or made.problems["warning"] or made.totals["changed"] else CLEAN
    status |= (FAILED if made.failed else CLEAN) | (CLEAN if made.complete or made.stopped else INTERRUPTED)
    out.status |= status
    for warning in made.warnings:
        out.warn(warning)
    for found in made.findings:
        place = found.file if found.position is None else f"{found.file}:{found.position}"
        out.warn(f"{place}: {found.detail}")
    if out.format != "table":
        document = {
            "case": made.path,
            "manifest_sha256": made.manifest_sha256,
            "complete": made.complete,
            "stopped": made.stopped or None,
            "totals": made.totals,
            "problems": made.problems,
            "warnings": made.warnings,
            "findings": [found.to_json() for found in made.findings],
        }
        out.document(document, schema=SCHEMA)
        return status
    from kops.cli.printing.text import human_bytes, many, one_line

    totals = made.totals
    out.line(f"case:             {one_line(made.path)}{'' if made.complete else ' (incomplete)'}")
    out.line(f"collected:        {many(totals['files'], 'file')}, {human_bytes(totals['bytes'])}")
    apart = [f"{totals[key]:,} {words}" for key, words in _APART if totals[key]]
    if apart:
        out.line(f"                  {', '.join(apart)}")
    counts = f"{many(made.problems['error'], 'error')}, {many(made.problems['warning'], 'warning')}"
    out.line(f"verify:           {counts if made.complete or any(made.problems.values()) else 'not run, the case is incomplete'}")
    out.line(f"manifest SHA-256: {made.manifest_sha256}")
    out.say(f"kops: to check it later: kops evidence verify {shlex.quote(made.path)} --manifest-sha256 {made.manifest_sha256}")
    return status


_APART = (
    ("changed", "changed meanwhile"),
    ("unreadable", "unreadable"),
    ("special", "links, pipes or devices (not followed)"),
    ("not_collected", "not collected"),
)
