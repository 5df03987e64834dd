"""`kops evidence verify`: proves that a case is as it was collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, FAILED, PROBLEMS
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.evidence.check import CheckReport

COLORS = {"unreadable": "yellow"}
COLUMNS = [
    Column("state", style=lambda state: COLORS.get(state, "red")),
    Column("file"),
    Column("original", wide=True),
    Column("detail"),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        (
            "Against the hash that collect printed.",
            "kops evidence verify /cases/2026-17 --manifest-sha256 8b1a9953c4611296a827abf8c47804d7e6c49c6b97c4fb1f5a1b9c5d1c5e7f00",
        ),
        ("Also whether the collected directories are unchanged.", "kops evidence verify /cases/2026-17 --originals"),
    ],
)
def verify(
    out: Output,
    case: Annotated[str, typer.Argument(metavar="CASE", help="The directory that kops evidence collect made.")],
    manifest_sha256: Annotated[
        str | None, typer.Option("--manifest-sha256", metavar="HASH", help="The hash that collect printed.", show_default=False)
    ] = None,
    originals: Annotated[bool, typer.Option("--originals", help="Check the collected directories, too.", show_default=False)] = False,
) -> int:
    """Prove that a case is unchanged: nothing differs, is missing or was added; read-only.

    Without --manifest-sha256 the files are compared with the manifest, which could have been changed together with them. With --originals
    the collected directories are also compared with the manifest: contents, size, permissions, times and inode. Links are not followed, and
    a name in the manifest that leads out of the case is reported and not opened.

    0: unchanged. 4: something was changed, is missing or was added. 8: something could not be read.
    """
    from kops.forensics.evidence.check import check_case

    with out.progress("verify") as bar:
        report = check_case(case, manifest_sha256=manifest_sha256, originals=originals, on_bytes=bar.update)
    return _print(out, report)


def _print(out: Output, report: CheckReport) -> int:
    from kops.cli.printing.text import human_bytes, many
    from kops.forensics.evidence.check import SCHEMA

    status = CLEAN
    for each in report.differences:
        status |= FAILED if each.state == "unreadable" else PROBLEMS
    out.status |= status
    if out.format in ("json", "yaml"):
        document = report.to_json()
        document.pop("schema")
        out.document(document, schema=SCHEMA)
    elif report.differences or out.format in ("csv", "jsonl"):
        out.rows((each.to_json() for each in report.differences), COLUMNS, schema=SCHEMA, key="differences")
    for note in report.notes:
        out.warn(note)
    read = f"{many(report.files, 'file')}, {human_bytes(report.bytes)}"
    verdict = f"unchanged: {read}" if not report.differences else f"{many(len(report.differences), 'difference')} in {read}"
    if out.format == "table":
        out.line(verdict)
        out.line(f"manifest SHA-256: {report.manifest_sha256}")
    return status
