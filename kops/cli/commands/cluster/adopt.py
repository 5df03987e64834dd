"""`kops cluster adopt`: makes a cluster from existing log directories."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import PortBase, ServerProperties, Settings, given_settings, settings_source
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

SCHEMA = "kops.cluster.adopt/v1"
COLUMNS = [Column("id", kind="int"), Column("roles", kind="list"), Column("address"), Column("log_dirs", "log dirs", kind="list")]


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        (
            "The directories of three brokers of Apache Kafka, stopped.",
            "kops cluster adopt /srv/kafka1/data /srv/kafka2/data /srv/kafka3/data --data-dir ./taken",
        ),
        ("Then start it.", "kops cluster adopt /srv/kafka/data -d ./taken && kops cluster up -d ./taken"),
    ],
)
def adopt(
    out: Output,
    dirs: Annotated[list[str], typer.Argument(metavar="DIR...", help="All log directories of all nodes.")],
    data_dir: Annotated[
        str | None,
        typer.Option(
            "-d", "--data-dir", metavar="D", help="The directory for the cluster's settings (default: ./kops-data).", show_default=False
        ),
    ] = None,
    port_base: PortBase = None,
    config: Settings = None,
    server_properties: ServerProperties = None,
) -> int:
    """Make a cluster from existing log directories of Apache Kafka or of kops; kops cluster up starts it.

    meta.properties says which node a directory belongs to, and the metadata log says which nodes vote. A node may have several directories.
    Name the directories of all voters. The directories do not change until the cluster is started. D gets an N.properties for each node. In
    a dynamic quorum the controllers keep the ports in the metadata log. If a broker runs on one of the directories, the command does
    nothing.
    """
    from kops.cluster.adoption import adopt as take_over
    from kops.cluster.layout import settings
    from kops.cluster.layout.directory import DEFAULT_PATH, ClusterDirectory

    chosen = given_settings(out, config, server_properties)
    directory = ClusterDirectory(DEFAULT_PATH if data_dir is None else data_dir)
    nodes = take_over(directory, dirs, base_port=port_base, own_settings=chosen, source=settings_source(config, server_properties))
    rows = []
    for node in nodes:
        properties = directory.properties(node.node_id)
        host, port = settings.node_address(properties)
        rows.append(
            {"id": node.node_id, "roles": properties["process.roles"].split(","), "address": f"{host}:{port}", "log_dirs": node.log_dirs}
        )
    out.rows(rows, COLUMNS, schema=SCHEMA, key="nodes", data_dir=directory.path, cluster_id=nodes[0].cluster_id)
    out.say(f"kops cluster up --data-dir {directory.path} starts it")
    return 0
