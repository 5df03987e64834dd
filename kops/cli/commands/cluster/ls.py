"""`kops cluster ls`: lists the clusters of this user on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import STATE_COLORS
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.clusters/v1"
COLUMNS = [
    Column("data_dir", "data dir"),
    Column("state", style=STATE_COLORS.get),
    Column("brokers", kind="int"),
    Column("running", kind="int"),
    Column("bootstrap_servers", "bootstrap servers"),
]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[("Running clusters, and ./kops-data.", "kops cluster ls"), ("Also two directories.", "kops cluster ls /srv/a /srv/b")],
)
def ls(
    out: Output,
    dirs: Annotated[list[str] | None, typer.Argument(metavar="[DIR...]", help="Directories of clusters that may be down.")] = None,
) -> int:
    """List clusters: this user's running ones, the one in ./kops-data, and those in the given directories.

    States: up (all brokers run), partly, down, orphaned (brokers run without a supervisor; use kops cluster restart or down).
    """
    from kops.cluster.launch import running_directories
    from kops.cluster.layout.directory import DEFAULT_PATH, ClusterDirectory
    from kops.cluster.view import summary

    paths = running_directories()
    default = ClusterDirectory(DEFAULT_PATH)
    if default.is_cluster:
        paths.add(default.path)
    for name in dirs or ():
        named = ClusterDirectory(name)
        named.require()
        paths.add(named.path)
    rows = [summary(ClusterDirectory(path)) for path in sorted(paths)]
    if rows or out.format != "table":
        out.rows(rows, COLUMNS, schema=SCHEMA, key="clusters")
    else:
        out.say("no clusters (kops cluster up creates one)")
    return 0
