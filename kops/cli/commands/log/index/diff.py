"""`kops log index diff`: shows entries that differ from what a broker would write now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import FAILED
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.forensics.findings.finding import Finding

SCHEMA = "kops.index-diff/v1"


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[("Changes that a rebuild would make, entry by entry.", "kops log index diff /var/lib/kafka/orders-0")],
)
def diff(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Partition directories or log directories.")],
    index_interval_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="index.interval.bytes of the topic (default: inferred from its indexes).", show_default=False
        ),
    ] = None,
) -> int:
    """Show the index entries that differ from those that a broker would write now; read-only.

    An entry is (offset, position) in an .index, (offset, timestamp) in a .timeindex, (producer id, first offset, last offset, last stable
    offset, version) in a .txnindex; "existing" entries are only in the file, "rebuilt" ones only in the rebuilt index. A difference is not
    always an error: followers and older versions write other, equally valid entries ("kops log index check" decides). The exit code is
    0, with or without differences, and 8 if a file could not be read.
    """
    from kops.forensics.index.diff import diff_indexes

    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for each in diff_indexes(paths, interval=index_interval_bytes, on_unreadable=tell):
            count += 1
            yield {
                "file": each.file,
                "entry": each.entry,
                "existing": None if each.existing is None else list(each.existing),
                "rebuilt": None if each.rebuilt is None else list(each.rebuilt),
            }

    def tell(found: Finding) -> None:
        out.status |= FAILED
        out.fail(f"{found.file}: {found.detail}: data that depends on it is not compared")

    columns = [Column("file"), Column("entry", kind="int"), Column("existing", kind="list"), Column("rebuilt", kind="list")]
    out.rows(rows(), columns, schema=SCHEMA, key="differences")
    out.say(f"{count or 'no'} {'entry differs' if count == 1 else 'entries differ'}")
    return out.status
