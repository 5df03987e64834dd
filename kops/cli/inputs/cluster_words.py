"""Helpers of the commands `kops cluster ...`: the cluster that a command means, and brokers as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.files import read_bytes
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.cluster.launch import Supervision
    from kops.cluster.layout.directory import ClusterDirectory

DataDir = Annotated[
    str | None,
    typer.Option("-d", "--data-dir", metavar="D", help="The cluster's directory (default: ./kops-data).", show_default=False),
]
AnyDataDir = Annotated[
    str | None,
    typer.Option(
        "-d",
        "--data-dir",
        metavar="D",
        help="The cluster's directory (default: ./kops-data, else that of the only running cluster).",
        show_default=False,
    ),
]
PortBase = Annotated[
    int | None,
    typer.Option("--port-base", metavar="P", help="Brokers listen on P and up, the quorum on P+100 and up.", show_default=False),
]
ServerProperties = Annotated[
    str | None,
    typer.Option("--server-properties", metavar="FILE", help="A server.properties file with settings for all brokers.", show_default=False),
]
Settings = Annotated[list[str] | None, typer.Option("--config", metavar="K=V", help="A broker setting, with Kafka's name.")]
BrokerIds = Annotated[list[int], typer.Argument(metavar="ID...", help="Brokers.")]
STATE_COLORS = {"running": "green", "up": "green", "ended": "red", "orphaned": "red", "partly": "yellow", "paused": "yellow"}
BROKER_COLUMNS = [
    Column("id", kind="int"),
    Column("pid", kind="int"),
    Column("address"),
    Column("state", style=STATE_COLORS.get),
    Column("controller", style=lambda value: "bold" if value is True else None),
    Column("roles", kind="list", wide=True),
    Column("exit_code", kind="int", wide=True),
    Column("log_dirs", kind="list", wide=True),
    Column("error", wide=True),
]


def given_settings(out: Output, config: list[str] | None, server_properties: str | None = None) -> dict[str, str]:
    """The settings of `--config` and `--server-properties`; `--config` overrides the file. Raises UsageError that names one of them,
    NotFoundError."""
    from kops.cluster.layout import settings

    chosen = settings.parse_settings(config or ())
    settings.check_given(chosen, source="--config")
    if server_properties is None:
        return chosen
    data = read_bytes(server_properties, "--server-properties")
    found, left_out = settings.parse_server_properties(data, file=server_properties)
    settings.check_given(found, source=server_properties, is_file=True)
    for warning in settings.unknown_settings(found, file=server_properties):
        out.warn(warning)
    if left_out:
        out.say(f"{server_properties}: {', '.join(left_out)}: ignored, because kops sets this for each broker")
    return {**found, **chosen}


def settings_source(config: list[str] | None, server_properties: str | None) -> str:
    """The source of the settings of `given_settings`, for messages."""
    if server_properties is None:
        return "--config"
    return f"{server_properties} and --config" if config else server_properties


def node_words(directory: ClusterDirectory) -> str:
    """`3 brokers`, and the number of nodes that are only controllers, if any."""
    brokers = len(directory.broker_ids())
    others = len(directory.node_ids()) - brokers
    words = f"{brokers} broker{'' if brokers == 1 else 's'}"
    return f"{words} and {others} controller{'' if others == 1 else 's'}" if others else words


def supervision_of(data_dir: str | None) -> Supervision:
    """The supervisor of the cluster that a command means. Raises NotFoundError, KopsError if the cluster is down."""
    from kops.cluster.launch import locate, require_supervision

    return require_supervision(locate(data_dir))


def asked_brokers(running: Supervision, ids: list[int]) -> list[int]:
    """The ids, each once. Raises NotFoundError for an unknown broker."""
    for node_id in ids:
        running.directory.require_node(node_id)
    if len(set(ids)) < len(ids):
        raise UsageError("a broker is given twice")
    return ids


def say_brokers(say: Any, brokers: list[dict[str, Any]], words: str) -> None:
    """Print a sentence for each broker."""
    for broker in brokers:
        pid = f" (process {broker['pid']})" if broker["pid"] is not None else ""
        say(f"broker {broker['id']} {words}{pid}")
