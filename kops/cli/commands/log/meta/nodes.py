"""`kops log meta ls`, `cat` and `find`: show the metadata of a cluster as a tree of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from kops.cli.commands.log.meta.loading import Node, Source, ToOffset, after, load, node_at
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import NotFoundError

SCHEMA = "kops.meta-node/v1"
FORMATS = ("table", "json", "jsonl", "yaml", "csv")
COLUMNS = [Column("path"), Column("children", kind="int"), Column("value")]


@command(
    formats=FORMATS,
    examples=[
        ("The top-level nodes.", "kops log meta ls /var/lib/kafka"),
        ("The topics.", "kops log meta ls /var/lib/kafka topics/byName"),
    ],
)
def ls(out: Output, path: Source, node: Node = None, to_offset: ToOffset = None) -> int:
    """List the nodes below one node of a cluster's metadata.

    The metadata comes from the newest intact snapshot and the log after it, as in a node that starts. Nodes have the names of
    Kafka's metadata shell. Damage is reported and left out; the exit code is then 4. Records at the end of a log may never have
    been committed. Nothing is written.
    """
    from kops.forensics.metadata_log.tree import Folder, tree

    root = tree(load(out, path, after(to_offset)).image)
    start = (node or "").strip("/")
    found = node_at(root, start)
    if isinstance(found, Folder):
        _print(out, found.items(), start)
    else:
        _print(out, [(start, found)], "")
    return 0


@command(
    formats=("json", "yaml", "jsonl"),
    examples=[
        ("A topic with its partitions.", "kops log meta cat /var/lib/kafka topics/byName/orders"),
        ("The brokers as of an offset.", "kops log meta cat --to-offset 4711 /var/lib/kafka/__cluster_metadata-0 cluster/brokers"),
        ("The contents of one snapshot.", "kops log meta cat --format yaml 00000000000000004711-0000000003.checkpoint"),
    ],
)
def cat(out: Output, path: Source, node: Node = None, to_offset: ToOffset = None) -> int:
    """Print a node of a cluster's metadata and everything below it.

    Without NODE all metadata is printed. Passwords and SCRAM credentials are shown as [redacted], as in Kafka's metadata shell. Damage
    is reported and left out; the exit code is then 4.
    """
    from kops.forensics.metadata_log.tree import tree

    root = tree(load(out, path, after(to_offset)).image)
    out.document({"path": (node or "").strip("/"), "value": node_at(root, node or "")}, schema=SCHEMA)
    return 0


@command(
    formats=FORMATS,
    examples=[
        ("Every node.", "kops log meta find /var/lib/kafka"),
        ("Nodes with orders in their name.", "kops log meta find --name '*orders*' /var/lib/kafka"),
        ("The partitions of a topic.", "kops log meta find --format jsonl /var/lib/kafka topics/byName/orders"),
    ],
)
def find(
    out: Output,
    path: Source,
    node: Node = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="PATTERN", help="Nodes whose name or path matches: * ? […].", show_default=False)
    ] = None,
    to_offset: ToOffset = None,
) -> int:
    """Find nodes of a cluster's metadata by name, at any depth.

    With --name, a node is shown if its last name or its whole path matches the pattern. Leaves are shown with their values.
    """
    from kops.forensics.metadata_log.tree import matching, tree

    root = tree(load(out, path, after(to_offset)).image)
    start = node or ""
    node_at(root, start)
    found = [(where, each) for where, each in matching(root, start, name) if where]
    if name is not None and not found:
        raise NotFoundError(f"{name}: no node matches")
    _print(out, found, "")
    return 0


def _print(out: Output, pairs: Iterable[tuple[str, Any]], start: str) -> None:
    out.rows(_rows(out, pairs, start), COLUMNS, schema=SCHEMA, key="nodes")


def _rows(out: Output, pairs: Iterable[tuple[str, Any]], start: str) -> Iterator[dict[str, Any]]:
    from kops.forensics.metadata_log.tree import Folder

    for name, node in pairs:
        where = f"{start}/{name}" if start else name
        folder = isinstance(node, Folder)
        yield {"path": where, "children": len(node) if folder else None, "value": None if folder else shown(out, node)}


def shown(out: Output, value: Any) -> Any:
    """Return a leaf unchanged for documents, and as one line for tables."""
    if out.format not in ("table", "csv") or not isinstance(value, dict | list):
        return value
    from kops.cli.printing.documents import compact

    return compact(value)
