"""`kops topic describe`: shows partitions, replicas and settings of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kops.cli.inputs.connecting import Bootstrap, CommandConfig, CommandProperty, TopicOption, Topics, connect, wanted_topics
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import ApiError, NotFoundError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.topics import PartitionInfo, TopicInfo

SCHEMA = "kops.topic/v1"
TOPIC_COLUMNS = [
    Column("topic", kind="name"),
    Column("partition_count", "partitions", "int"),
    Column("replication_factor", "replicas", "int"),
    Column("topic_id", "id"),
    Column("settings", kind="list"),
]
PARTITION_COLUMNS = [
    Column("topic", kind="name"),
    Column("partition", kind="int"),
    Column("leader", kind="int", style=lambda value: "red" if value is None else None),
    Column("leader_epoch", "epoch", "int", wide=True),
    Column("replicas", kind="list"),
    Column("isr", kind="list"),
    Column("offline", kind="list", wide=True),
    Column("elr", kind="list"),
    Column("last_known_elr", "last known elr", kind="list"),
    Column("adding", kind="list", wide=True),
    Column("removing", kind="list", wide=True),
]
CSV_COLUMNS = [*PARTITION_COLUMNS, Column("topic_id")]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("One topic.", "kops topic describe orders -b localhost:9092"),
        ("Every partition that has no leader.", "kops topic describe --unavailable-partitions"),
        ("Topics with overridden settings, as JSON.", "kops topic describe --topics-with-overrides --format json"),
    ],
)
def describe(
    out: Output,
    topics: Topics = None,
    topic: TopicOption = None,
    topic_id: Annotated[str | None, typer.Option("--topic-id", metavar="ID", help="The topic of this id.")] = None,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's internal topics.")] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with a replica that is not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable-partitions", help="Only partitions without an available leader.")] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions with fewer in-sync replicas than min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions with exactly min.insync.replicas in-sync replicas.")
    ] = False,
    with_overrides: Annotated[bool, typer.Option("--topics-with-overrides", help="Only topics with overridden settings.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> None:
    """Describe topics: partitions with leader, replicas, in-sync and eligible leader replicas, and overridden settings.

    A table lists topics first and their partitions below. In json, jsonl and yaml a topic holds its partitions; configs are all settings
    that are set for the topic or for its brokers, overrides only those set for the topic.
    """
    wanted = wanted_topics(topics, topic)
    if wanted and topic_id is not None:
        raise UsageError("topics by name and --topic-id exclude each other")
    filters = [
        name
        for name, is_set in (
            ("under-replicated", under_replicated),
            ("unavailable", unavailable),
            ("under-min-isr", under_min_isr),
            ("at-min-isr", at_min_isr),
        )
        if is_set
    ]
    if filters and with_overrides:
        raise UsageError("--topics-with-overrides filters topics, the others filter partitions: they exclude each other")
    with connect(out, bootstrap, config, properties) as client:
        infos = _find(client, wanted, topic_id, exclude_internal)
        settings = _settings(client, infos)
        alive = set(client.metadata.nodes)
    if with_overrides:
        infos = [info for info in infos if settings[info.name].overrides]
    chosen = [(info, [one for one in info.partitions if _is_shown(one, filters, settings[info.name].min_isr, alive)]) for info in infos]
    documents = [_document(info, partitions, settings[info.name]) for info, partitions in chosen if partitions or not filters]
    _print(out, documents, with_overrides)


def _find(client: Client, wanted: list[str], topic_id: str | None, exclude_internal: bool) -> list[TopicInfo]:
    from kops.client.partitions import mark_reassignments
    from kops.client.topics import describe_topics, list_topics, match_infos

    found = {info.name: info for info in list_topics(client)}
    if topic_id is not None:
        names = [name for name, info in found.items() if info.topic_id == topic_id]
        if not names:
            raise NotFoundError(f"no topic with id {topic_id}")
    else:
        names = match_infos(found, wanted, exclude_internal=exclude_internal)
    infos = []
    for name, info in sorted(describe_topics(client, names).items()):
        if isinstance(info, ApiError):
            # The topic was deleted between the two requests: skip it, unless it was named.
            if info.name == "UNKNOWN_TOPIC_OR_PARTITION" and not wanted:
                continue
            raise ApiError(info.name, f"{name}: {info}")
        infos.append(info)
    mark_reassignments(client, infos)
    return infos


class Settings(NamedTuple):
    """A topic's settings: those set for it or for its brokers, those set only for it, and its min.insync.replicas."""

    configs: dict[str, str | None]
    overrides: dict[str, str | None]
    min_isr: int


def _settings(client: Client, infos: Iterable[TopicInfo]) -> dict[str, Settings]:
    from kops.client.topics import ResourceType, describe_configs, not_default, overrides

    names = [info.name for info in infos]
    if not names:
        return {}
    found = describe_configs(client, [(ResourceType.TOPIC, name) for name in names])
    settings = {}
    for name in names:
        entries = found[ResourceType.TOPIC, name]
        least = next((entry.value for entry in entries if entry.name == "min.insync.replicas"), None)
        settings[name] = Settings(not_default(entries), overrides(entries), int(least or 1))
    return settings


def _is_shown(one: PartitionInfo, filters: list[str], min_isr: int, alive: set[int]) -> bool:
    """Whether one of the filters matches; without filters all partitions are shown."""
    holds = {
        "under-replicated": one.is_under_replicated,
        "unavailable": one.leader is None or one.leader not in alive,
        "under-min-isr": one.leader is None or len(one.isr) < min_isr,
        "at-min-isr": len(one.isr) == min_isr,
    }
    return not filters or any(holds[name] for name in filters)


def _document(info: TopicInfo, partitions: Iterable[PartitionInfo], settings: Settings) -> dict[str, Any]:
    return {
        "topic": info.name,
        "topic_id": info.topic_id,
        "internal": info.is_internal,
        "partition_count": len(info.partitions),
        "replication_factor": info.replication_factor,
        "configs": settings.configs,
        "overrides": settings.overrides,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "isr": one.isr,
                "offline": one.offline,
                "elr": one.elr,
                "last_known_elr": one.last_known_elr,
                "adding": one.adding,
                "removing": one.removing,
            }
            for one in partitions
        ],
    }


def _print(out: Output, documents: list[dict[str, Any]], topics_only: bool) -> None:
    if out.format in ("json", "jsonl", "yaml"):
        out.rows(documents, [], schema=SCHEMA, key="topics")
        return
    if not documents:
        out.say("no topic or partition matches")
    if out.format == "csv":
        out.rows(_partition_rows(documents), CSV_COLUMNS, schema=SCHEMA)
        return
    lines = ({**one, "settings": [f"{name}={value}" for name, value in one["configs"].items()]} for one in documents)
    out.rows(lines, TOPIC_COLUMNS, schema=SCHEMA)
    if documents and not topics_only:
        out.line("")
        out.rows(_partition_rows(documents), PARTITION_COLUMNS, schema=SCHEMA)


def _partition_rows(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in documents:
        for one in document["partitions"]:
            yield {"topic": document["topic"], "topic_id": document["topic_id"], **one}
