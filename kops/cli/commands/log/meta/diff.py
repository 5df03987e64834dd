"""`kops log meta diff`: shows changes of a cluster's metadata between two offsets, or differences between two directories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kops.cli.commands.log.meta.loading import Source, ToOffset, after, load
from kops.cli.commands.log.meta.nodes import shown
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import UsageError

SCHEMA = "kops.meta-diff/v1"
COLUMNS = [
    Column("change", style={"added": "green", "removed": "red", "changed": "yellow"}.get),
    Column("path"),
    Column("field"),
    Column("before"),
    Column("after"),
]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Changes since the newest snapshot.", "kops log meta diff /var/lib/kafka"),
        ("Changes made by a range of records.", "kops log meta diff --from-offset 4000 --to-offset 4711 /var/lib/kafka"),
        ("Differences between two controllers.", "kops log meta diff /controller1/__cluster_metadata-0 /controller2/__cluster_metadata-0"),
    ],
)
def diff(
    out: Output,
    path: Source,
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="Another metadata log or snapshot.", show_default=False)] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="First offset of the range (default: after the newest snapshot).", show_default=False),
    ] = None,
    to_offset: ToOffset = None,
) -> int:
    """Show what changed in a cluster's metadata; read-only.

    With one PATH, the metadata before --from-offset is compared with that at --to-offset. With two, both are compared at --to-offset, or
    at their ends. "before" is the first of the two. The exit code is 0, with or without differences, and 4 for damage.
    """
    from kops.forensics.metadata_log.compare import compare
    from kops.forensics.metadata_log.tree import tree

    if other is not None and from_offset is not None:
        raise UsageError("--from-offset: only with one PATH; two are compared at the same offset")
    first = from_offset if other is None else after(to_offset)
    if other is None and first is None:
        first = _newest_snapshot(path, after(to_offset))
    before, now = load(out, path, first), load(out, path if other is None else other, after(to_offset))
    if from_offset is not None and from_offset > now.image.offset + 1:
        raise UsageError(f"--from-offset {from_offset}: {path} has no record after offset {now.image.offset}")
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for each in compare(tree(before.image), tree(now.image)):
            count += 1
            yield {
                "change": each.change,
                "path": each.path,
                "field": each.field,
                "before": shown(out, each.before),
                "after": shown(out, each.after),
            }

    head = {"beforeOffset": before.image.offset, "afterOffset": now.image.offset}
    out.rows(rows(), COLUMNS, schema=SCHEMA, key="differences", **head)
    if out.format == "table":
        what = "nothing differs" if not count else f"{count} {'value differs' if count == 1 else 'values differ'}"
        out.say(f"{what} between offset {before.image.offset} and offset {now.image.offset}")
    return 0


def _newest_snapshot(path: str, end: int | None) -> int:
    from kops.files import OsFiles
    from kops.forensics.metadata_log.source import open_metadata

    offsets = [each.offset or 0 for each in open_metadata(path, OsFiles(read_only=True)).snapshots]
    return max((offset for offset in offsets if end is None or offset < end), default=0)
