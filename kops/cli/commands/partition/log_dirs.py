"""`kops partition log-dirs`: lists the replicas in the log directories of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    TopicOption,
    Topics,
    connect,
    no_such,
    outcome,
    parse_broker_ids,
    report,
    wanted_topics,
)
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from kops.client.partitions import LogDirInfo

SCHEMA = "kops.log-dirs/v1"
COLUMNS = [
    Column("broker", kind="int"),
    Column("log_dir", "log directory"),
    Column("topic"),
    Column("partition", kind="int"),
    Column("size", kind="bytes"),
    Column("offset_lag", "lag", "int"),
    Column("is_future", "moving here"),
    Column("total_bytes", "disk", "bytes", wide=True),
    Column("usable_bytes", "free", "bytes", wide=True),
    Column("is_cordoned", "cordoned", wide=True),
    *OUTCOME_COLUMNS,
]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("All brokers.", "kops partition log-dirs"),
        ("One topic on two brokers.", "kops partition log-dirs orders --broker-list 1,2"),
        ("In the structure of Kafka's tool: brokers, directories, partitions.", "kops partition log-dirs --format json"),
    ],
)
def log_dirs(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    brokers: Annotated[str | None, typer.Option("--broker-list", metavar="ID,...", help="Brokers to ask (default: all).")] = None,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """List replicas by broker and log directory, with their sizes and the free space.

    A directory without replicas, or one that failed, has its own row. lag: records behind the high watermark; for a replica that is
    moving to this directory (moving here), records behind the replica that it replaces.
    """
    from kops.client.partitions import describe_log_dirs
    from kops.client.topics import list_topics, match_topics
    from kops.records.log_offsets import TopicPartition

    wanted = wanted_topics(topics, topic)
    ids = None if brokers is None else parse_broker_ids(brokers, "--broker-list")
    with connect(out, bootstrap, config, properties) as client:
        there = {info.name: info for info in list_topics(client)}
        unknown = sorted(set(ids or ()) - set(client.metadata.nodes))
        if unknown:
            raise no_such("broker", unknown)
        keys = None
        if wanted:
            names = match_topics(there, wanted)
            keys = [TopicPartition(name, one.partition) for name in names for one in there[name].partitions]
        found = describe_log_dirs(client, ids or sorted(client.metadata.nodes), keys)
    errors: list[tuple[str, KopsError | None]] = []
    for broker, infos in found.items():
        if isinstance(infos, KopsError):
            errors.append((f"broker {broker}", infos))
            continue
        for info in infos:
            failed = None if info.error is None else ApiError(info.error, info.error)
            errors.append((f"broker {broker}, {info.path}", failed))
    status = report(out, errors)
    if out.format in ("json", "yaml"):
        out.document({"brokers": list(_brokers(found))}, schema=SCHEMA)
    else:
        out.rows(_rows(found), COLUMNS, schema=SCHEMA)
    return status


def _brokers(found: Mapping[int, list[LogDirInfo] | KopsError]) -> Iterator[dict[str, Any]]:
    for broker, infos in found.items():
        if isinstance(infos, KopsError):
            yield {"broker": broker, **outcome(infos), "log_dirs": []}
            continue
        dirs = [
            {
                **_about(info),
                "partitions": [
                    {**one.key._asdict(), "size": one.size, "offset_lag": one.offset_lag, "is_future": one.is_future}
                    for one in sorted(info.replicas)
                ],
            }
            for info in sorted(infos, key=lambda info: info.path)
        ]
        yield {"broker": broker, **outcome(None), "log_dirs": dirs}


def _rows(found: Mapping[int, list[LogDirInfo] | KopsError]) -> Iterator[dict[str, Any]]:
    for broker, infos in found.items():
        if isinstance(infos, KopsError):
            yield {"broker": broker, **outcome(infos)}
            continue
        for info in sorted(infos, key=lambda info: info.path):
            about = {"broker": broker, **_about(info)}
            if not info.replicas:
                yield about
            for one in sorted(info.replicas):
                yield {**about, **one.key._asdict(), "size": one.size, "offset_lag": one.offset_lag, "is_future": one.is_future}


def _about(info: LogDirInfo) -> dict[str, Any]:
    return {
        "log_dir": info.path,
        "error": info.error,
        "total_bytes": info.total_bytes,
        "usable_bytes": info.usable_bytes,
        "is_cordoned": info.is_cordoned,
    }
