"""`kops quorum describe`: describes the controllers of a cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, Controllers, connect
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.client.quorum import QuorumInfo

SCHEMA = "kops.quorum/v1"
STATUS_COLUMNS = [
    Column("cluster_id", "cluster"),
    Column("leader_id", "leader", "int"),
    Column("leader_epoch", "epoch", "int"),
    Column("high_watermark", "high watermark", "int"),
    Column("max_follower_lag", "max lag", "int"),
    Column("max_follower_lag_time_ms", "max lag ms", "int"),
    Column("voters", kind="list"),
    Column("observers", kind="list"),
]
REPLICA_COLUMNS = [
    Column("node_id", "node", "int"),
    Column("status", style={"Leader": "green"}.get),
    Column("log_end_offset", "end", "int"),
    Column("lag", kind="int"),
    Column("last_fetch_timestamp", "last fetch", "time_ms"),
    Column("last_caught_up_timestamp", "last caught up", "time_ms"),
    Column("directory_id", "directory", wide=True),
    Column("endpoints", kind="list", wide=True),
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("State and replicas.", "kops quorum describe"),
        ("Only the state, from a controller.", "kops quorum describe --status --bootstrap-controller localhost:9093"),
        ("Voters and observers as csv.", "kops quorum describe --replication --format csv"),
    ],
)
def describe(
    out: Output,
    status: Annotated[bool, typer.Option("--status", help="Only the state.")] = False,
    replication: Annotated[bool, typer.Option("--replication", "--re", help="Only the replicas.")] = False,
    bootstrap: Bootstrap = None,
    controllers: Controllers = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """Describe the quorum of controllers: leader, epoch, high watermark, and the lag of voters and observers.

    The times of the leader are those of its answer. csv and jsonl have a row for each replica.
    """
    from kops.client.quorum import describe_quorum

    with connect(out, bootstrap, config, properties, controllers=controllers) as client:
        info = describe_quorum(client)
    state = _state(info)
    replicas = _replicas(info)
    both = status == replication
    if out.format in ("json", "yaml"):
        document: dict[str, Any] = {}
        if status or both:
            document |= state
        if replication or both:
            document["replicas"] = replicas
        out.document(document, schema=SCHEMA)
    elif out.format in ("jsonl", "csv"):
        out.rows([state] if status and not replication else replicas, STATUS_COLUMNS if status else REPLICA_COLUMNS, schema=SCHEMA)
    else:
        if status or both:
            out.rows([state], STATUS_COLUMNS, schema=SCHEMA)
        if both:
            out.line("")
        if replication or both:
            out.rows(replicas, REPLICA_COLUMNS, schema=SCHEMA)


def _state(info: QuorumInfo) -> dict[str, Any]:
    return {
        "cluster_id": info.cluster_id,
        "leader_id": info.leader_id,
        "leader_epoch": info.leader_epoch,
        "high_watermark": info.high_watermark,
        "max_follower_lag": info.max_follower_lag,
        "max_follower_lag_time_ms": info.max_follower_lag_time_ms,
        "voters": [one.node_id for one in info.voters],
        "observers": [one.node_id for one in info.observers],
    }


def _replicas(info: QuorumInfo) -> list[dict[str, Any]]:
    """The leader, the other voters, the observers."""
    voters = sorted(info.voters, key=lambda one: one.node_id != info.leader_id)
    named = [("Leader" if one.node_id == info.leader_id else "Follower", one) for one in voters]
    named += [("Observer", one) for one in info.observers]
    return [
        {
            **asdict(one),
            "lag": info.leader_end_offset - one.log_end_offset,
            "status": status,
            "endpoints": [f"{name}://{host}:{port}" for name, host, port in info.endpoints.get(one.node_id, ())]
            if status != "Observer"
            else [],
        }
        for status, one in named
    ]
