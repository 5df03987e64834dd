"""`kops evidence report`: a case as one HTML page."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import CLEAN, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError


@command(
    formats=(),
    examples=[
        ("A page to read in a browser, to print, or to send.", "kops evidence report /cases/2026-17 -o report.html"),
        ("To standard output.", "kops evidence report /cases/2026-17 > report.html"),
    ],
)
def report(
    out: Output,
    case: Annotated[str, typer.Argument(metavar="CASE", help="The directory that kops evidence collect made.")],
) -> int:
    """Make a report of a case: one HTML page with maps and explanations.

    The page shows what the case contains, what is damaged, what is lost, and what to do next, with command lines. It draws damaged segments
    to the byte, sizes and times, explains the findings as kops log explain does, and lists the hashes. It needs no script and loads
    nothing, so it can be read anywhere. It has a few MB at most: for a very large case it shows the damaged part and says what it leaves
    out.

    The page is made from the documents in the case. 4: they differ from the manifest; the page then says so. kops evidence verify
    checks all files.
    """
    from kops.forensics.evidence.report.model import read_case
    from kops.forensics.evidence.report.page import page

    if out.file is None and out.is_terminal:
        raise UsageError("the report is an HTML page: name a file with -o report.html")
    inside, target = os.path.realpath(case), os.path.realpath(out.file or "")
    if out.file is not None and os.path.commonpath((inside, target)) == inside:
        raise UsageError(f"-o {out.file}: lies in the case, where nothing may be written")
    found = read_case(case)
    status = PROBLEMS if found.altered else CLEAN
    out.status |= status
    for each in found.altered:
        out.warn(f"the case was changed: {each}")
    for piece in page(found):
        out.write(piece)
    if out.file is not None:
        out.say(f"kops: report: {out.file}")
    return status
