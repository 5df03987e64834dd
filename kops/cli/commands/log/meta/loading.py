"""Shared code of the commands `kops log meta ...`: the path, the last offset to read, and warnings about damaged records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import PROBLEMS
from kops.errors import NotFoundError

if TYPE_CHECKING:
    from kops.forensics.metadata_log.replay import Replayed
    from kops.forensics.metadata_log.tree import Folder

SHOWN = 10
Source = Annotated[
    str, typer.Argument(metavar="PATH", help="A __cluster_metadata-0 directory, a log directory that has one, or one snapshot.")
]
ToOffset = Annotated[int | None, typer.Option(metavar="N", min=-1, help="Last offset to read (default: the last one).", show_default=False)]
Node = Annotated[str | None, typer.Argument(metavar="[NODE]", help="A node, such as topics/byName/orders.", show_default=False)]


def load(out: Output, path: str, end: int | None) -> Replayed:
    """Return the image made of the records below the offset `end`. Warn about everything that was left out."""
    from kops.files import OsFiles
    from kops.forensics.metadata_log.replay import replay
    from kops.forensics.metadata_log.source import open_metadata

    files = OsFiles(read_only=True)
    result = replay(open_metadata(path, files), files, end=end)
    for fault in result.faults[:SHOWN]:
        where = fault.file if fault.position is None else f"{fault.file}:{fault.position}"
        offsets = ""
        if fault.base_offset is not None and fault.last_offset is not None:
            span = "" if fault.last_offset == fault.base_offset else f"-{fault.last_offset}"
            offsets = f" [{fault.base_offset}{span}]"
        out.warn(f"{where}{offsets}: left out: {fault.reason}")
    if len(result.faults) > SHOWN:
        out.warn(f"{len(result.faults) - SHOWN} more; kops log meta verify shows all")
    if result.faults:
        out.status |= PROBLEMS
    began = "the beginning" if result.snapshot is None else result.snapshot.name
    out.detail(f"{path}: offset {result.image.offset}, from {began}")
    if result.open_transaction:
        out.say(f"{path}: the log ends in a metadata transaction that began after offset {result.image.offset}; it is not shown")
    return result


def after(offset: int | None) -> int | None:
    """Return the exclusive end of a range whose last offset is `offset`."""
    return None if offset is None else offset + 1


def node_at(root: Folder, path: str) -> Any:
    """Return the node at a path. Raises NotFoundError if there is none."""
    from kops.forensics.metadata_log.tree import find_node

    try:
        return find_node(root, path)
    except KeyError:
        raise NotFoundError(f"{path}: no such node; kops log meta find lists the nodes, and --name '*…*' searches for names") from None
