"""`kops cluster format`: formats log directories as kafka-storage format does."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.files import read_bytes
from kops.cli.inputs.lines import clock_ms
from kops.cli.printing.output import Output
from kops.cli.running.options import command
from kops.errors import UsageError

SCHEMA = "kops.cluster.format/v1"


@command(
    formats=("table", "json", "jsonl", "yaml"),
    examples=[
        ("Format the directories in a server.properties.", "kops cluster format --server-properties server.properties"),
        ("One directory for a node that is its own quorum.", "kops cluster format /data/broker-1 --node-id 1 --standalone"),
    ],
)
def format_(
    out: Output,
    dirs: Annotated[list[str] | None, typer.Argument(metavar="[DIR...]", help="Log directories (default: those of FILE).")] = None,
    server_properties: Annotated[
        str | None, typer.Option("-c", "--server-properties", metavar="FILE", help="The node's server.properties.", show_default=False)
    ] = None,
    node_id: Annotated[int | None, typer.Option("--node-id", metavar="N", min=0, help="The node's id.", show_default=False)] = None,
    cluster_id: Annotated[
        str | None, typer.Option("-t", "--cluster-id", metavar="ID", help="The cluster's id (default: a new one).", show_default=False)
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option("-r", "--release-version", metavar="V", help="The release to begin with.", show_default=False),
    ] = None,
    feature: Annotated[list[str] | None, typer.Option("-f", "--feature", metavar="NAME=LEVEL", help="A feature's level.")] = None,
    standalone: Annotated[bool, typer.Option("-s", "--standalone", help="A dynamic quorum of this node.", show_default=False)] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option("-I", "--initial-controllers", metavar="ID@HOST:PORT:DIR,...", help="A dynamic quorum of these.", show_default=False),
    ] = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("-N", "--no-initial-controllers", help="Join a dynamic quorum of other nodes.", show_default=False)
    ] = False,
    ignore_formatted: Annotated[
        bool, typer.Option("-g", "--ignore-formatted", help="Ignore directories that are already formatted.", show_default=False)
    ] = False,
) -> int:
    """Format log directories, as kafka-storage format does: meta.properties, bootstrap.checkpoint, the voters of a dynamic quorum.

    The options are those of Kafka's tool. Without FILE, the directories are those of a node with both roles and the id --node-id.
    kops cluster up formats the directories that it creates. kops cluster adopt makes a cluster from directories formatted by this command.
    """
    from kops.cluster.adoption import FormatRequest, format_directories

    properties = None
    if server_properties is not None:
        from kops.cluster.layout.settings import unknown_settings
        from kops.config.values.properties import read_properties

        properties = read_properties(read_bytes(server_properties, "--server-properties"), file=server_properties)
        for warning in unknown_settings(properties, file=server_properties):
            out.warn(warning)
    request = FormatRequest(
        dirs or (),
        properties,
        node_id,
        cluster_id,
        release_version,
        _levels(feature or ()),
        standalone,
        initial_controllers,
        no_initial_controllers,
        ignore_formatted,
    )
    found_id, said = format_directories(request, now_ms=clock_ms())
    if out.format == "table":
        for line in said:
            out.line(line)
        out.say(f"cluster {found_id}")
    else:
        out.document({"cluster_id": found_id, "said": said}, schema=SCHEMA)
    return 0


def _levels(pairs: list[str] | tuple[()]) -> dict[str, int]:
    levels = {}
    for pair in pairs:
        name, _, level = pair.partition("=")
        if not name or not level.isdigit():
            raise UsageError(f"--feature {pair}: allowed is NAME=LEVEL")
        levels[name] = int(level)
    return levels
