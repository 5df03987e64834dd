"""Topics: list, describe, create, change, delete.

Source: Kafka's KafkaAdminClient (listTopics, describeTopics, createTopics, deleteTopics, createPartitions, describeConfigs,
incrementalAlterConfigs), TopicCommand, IncludeList (names as regular expressions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kops.client.client import Call, Client, To, check, error_of
from kops.errors import ApiError, NotFoundError, UsageError
from kops.protocol.errors import by_name
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponseTopic
    from kops.protocol.messages.metadata_response import MetadataResponseTopic

_PAGE_SIZE: Final = 2000  # partitions in a response of DescribeTopicPartitions
Outcomes = dict[str, ApiError | None]


@dataclass(slots=True)
class PartitionInfo:
    """A partition as the brokers report it. The leader is None if there is none, `elr` None if the broker does not report it (KIP-966)."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than required. Replicas that a reassignment adds do not count yet."""
        return len(self.isr) < len(self.replicas) - len(self.adding)


@dataclass(slots=True)
class TopicInfo:
    """A topic as the brokers describe it."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionInfo] = field(default_factory=list)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, which Kafka's tool reports."""
        return len(self.partitions[0].replicas) - len(self.partitions[0].adding) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created: partitions and replicas by number (None: the broker's defaults), or by assignment."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created."""

    name: str
    topic_id: str | None
    partitions: int
    replication_factor: int
    config: dict[str, str | None]


class ResourceType(IntEnum):
    """The kinds of resources that have settings (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting from DescribeConfigs. `source` is Kafka's ConfigSource."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    read_only: bool


DYNAMIC_TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5


# queries


def list_topics(client: Client) -> list[TopicInfo]:
    """Return all topics in the order of their names."""
    return sorted((_from_metadata(topic) for topic in client.fetch_metadata(None).topics), key=lambda topic: topic.name)


def _from_metadata(topic: MetadataResponseTopic) -> TopicInfo:
    info = TopicInfo(topic.name or "", uuid_text(topic.topic_id), topic.is_internal)
    for one in sorted(topic.partitions, key=lambda one: one.partition_index):
        leader = one.leader_id if one.leader_id >= 0 else None
        info.partitions.append(
            PartitionInfo(one.partition_index, leader, one.leader_epoch, one.replica_nodes, one.isr_nodes, one.offline_replicas)
        )
    return info


def describe_topics(client: Client, names: Iterable[str]) -> dict[str, TopicInfo | ApiError]:
    """Return topics by name, with eligible leader replicas if the brokers report them."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    try:
        return _describe_by_pages(client, wanted)
    except ApiError as error:
        if error.name != "UNSUPPORTED_VERSION":
            raise
    found: dict[str, TopicInfo | ApiError] = {}
    for topic in client.fetch_metadata(wanted).topics:
        found[topic.name or ""] = error_of(topic.error_code) or _from_metadata(topic)
    return found


def _describe_by_pages(client: Client, names: list[str]) -> dict[str, TopicInfo | ApiError]:
    from kops.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
    from kops.protocol.messages.describe_topic_partitions_request import Cursor, TopicRequest

    def handle(response: Message) -> DescribeTopicPartitionsResponse:
        assert isinstance(response, DescribeTopicPartitionsResponse)
        return response

    found: dict[str, TopicInfo | ApiError] = {}
    position: tuple[str, int] | None = None

    def build(_: int) -> Message:
        left = names if position is None else [name for name in names if name >= position[0]]
        cursor = None if position is None else Cursor(topic_name=position[0], partition_index=position[1])
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in left], response_partition_limit=_PAGE_SIZE, cursor=cursor
        )

    while True:
        response = client.call("describe topics", To.ANY, build, handle)
        for topic in response.topics:
            error = error_of(topic.error_code)
            if error is not None:
                found[topic.name or ""] = error
                continue
            info = found.setdefault(topic.name or "", TopicInfo(topic.name or "", uuid_text(topic.topic_id), topic.is_internal))
            assert isinstance(info, TopicInfo)
            info.partitions += _partitions(topic)
        if response.next_cursor is None:
            return found
        position = response.next_cursor.topic_name, response.next_cursor.partition_index


def _partitions(topic: DescribeTopicPartitionsResponseTopic) -> list[PartitionInfo]:
    return [
        PartitionInfo(
            one.partition_index,
            one.leader_id if one.leader_id >= 0 else None,
            one.leader_epoch,
            one.replica_nodes,
            one.isr_nodes,
            one.offline_replicas,
            one.eligible_leader_replicas or [],
            one.last_known_elr or [],
        )
        for one in topic.partitions
    ]


def match_topics(there: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return the names that match: a topic with exactly that name, else all that match the text as a regular expression, as in Kafka's
    tools.

    Without `wanted`, all names match. Raises NotFoundError, and UsageError for an invalid regular expression.
    """
    names = sorted(there)
    found: dict[str, None] = dict.fromkeys(names) if not wanted else {}
    for text in wanted:
        if text in names:
            found[text] = None
            continue
        try:
            pattern = re.compile(text.strip().replace(",", "|").replace(" ", "").strip("\"'"))
        except re.error as error:
            raise UsageError(f"{text}: neither a topic nor a regular expression: {error}") from None
        matching = [name for name in names if pattern.fullmatch(name)]
        if not matching:
            raise NotFoundError(f"no such topic: {text}")
        found.update(dict.fromkeys(matching))
    return [name for name in names if name in found]


def match_infos(there: Mapping[str, TopicInfo], wanted: Sequence[str], *, exclude_internal: bool) -> list[str]:
    """Do the same for known topics. `exclude_internal` omits Kafka's own topics."""
    return [name for name in match_topics(there, wanted) if not (exclude_internal and there[name].is_internal)]


# changes


def create_topics(client: Client, topics: Sequence[NewTopic], *, validate_only: bool = False) -> dict[str, CreatedTopic | ApiError]:
    """Create topics. Each has its own outcome."""
    from kops.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
    from kops.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

    outcomes: dict[str, CreatedTopic | ApiError] = {}

    def build(timeout_ms: int) -> Message:
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=-1 if topic.assignment is not None or topic.partitions is None else topic.partitions,
                    replication_factor=-1 if topic.assignment is not None or topic.replication_factor is None else topic.replication_factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in enumerate(topic.assignment or ())
                    ],
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()],
                )
                for topic in topics
                if topic.name not in outcomes
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def handle(response: Message) -> None:
        assert isinstance(response, CreateTopicsResponse)
        again: ApiError | None = None
        for one in response.topics:
            error = error_of(one.error_code, one.error_message)
            if error is None:
                config = {entry.name: entry.value for entry in one.configs or () if entry.config_source == DYNAMIC_TOPIC_CONFIG}
                topic_id = None if validate_only else uuid_text(one.topic_id)
                outcomes[one.name] = CreatedTopic(one.name, topic_id, one.num_partitions, one.replication_factor, config)
            elif _asks_again(error):
                again = error
            else:
                outcomes[one.name] = error
        if again is not None:
            raise again

    client.call("create topics", To.CONTROLLER, build, handle)
    return outcomes


def _asks_again(error: ApiError) -> bool:
    """Whether KafkaAdminClient retries after this error of one item among several."""
    return error.name in ("NOT_CONTROLLER", "THROTTLING_QUOTA_EXCEEDED")


def delete_topics(client: Client, names: Sequence[str]) -> Outcomes:
    """Delete topics. Each has its own outcome."""
    from kops.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
    from kops.protocol.messages.delete_topics_request import DeleteTopicState

    outcomes: Outcomes = {}

    def build(timeout_ms: int) -> Message:
        left = [name for name in names if name not in outcomes]
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in left], timeout_ms=timeout_ms)

    def handle(response: Message) -> None:
        assert isinstance(response, DeleteTopicsResponse)
        _take(outcomes, ((one.name or "", error_of(one.error_code, one.error_message)) for one in response.responses))

    client.call("delete topics", To.CONTROLLER, build, handle, versions=range(6, DeleteTopicsRequest.VERSIONS.stop))
    return outcomes


def _take(outcomes: Outcomes, results: Iterable[tuple[str, ApiError | None]]) -> None:
    """Store the outcome of each item. Raises ApiError if some must be sent again."""
    again: ApiError | None = None
    for name, error in results:
        if error is not None and _asks_again(error):
            again = error
        else:
            outcomes[name] = error
    if again is not None:
        raise again


def create_partitions(
    client: Client, counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]], *, validate_only: bool = False
) -> Outcomes:
    """Increase the number of partitions of topics to these counts. `assignments` are the replicas of the new partitions."""
    from kops.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
    from kops.protocol.messages.create_partitions_request import CreatePartitionsAssignment, CreatePartitionsTopic

    outcomes: Outcomes = {}

    def build(timeout_ms: int) -> Message:
        topics = []
        for name, count in counts.items():
            if name not in outcomes:
                rows = assignments.get(name)
                placed = None if rows is None else [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in rows]
                topics.append(CreatePartitionsTopic(name=name, count=count, assignments=placed))
        return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)

    def handle(response: Message) -> None:
        assert isinstance(response, CreatePartitionsResponse)
        _take(outcomes, ((one.name, error_of(one.error_code, one.error_message)) for one in response.results))

    client.call("create partitions", To.CONTROLLER, build, handle)
    return outcomes


# settings


def describe_configs(client: Client, resources: Iterable[tuple[ResourceType, str]]) -> dict[tuple[ResourceType, str], list[ConfigEntry]]:
    """Return the settings of topics and brokers. A broker's settings are requested from that broker. Raises ApiError if one request
    fails.
    """
    calls = []
    everyone: list[tuple[ResourceType, str]] = []
    for kind, name in resources:
        if kind is not ResourceType.TOPIC and name:
            calls.append(_describe_call(int(name), [(kind, name)]))
        else:
            everyone.append((kind, name))
    if everyone:
        calls.append(_describe_call(To.ANY, everyone))
    client.run(calls)
    found: dict[tuple[ResourceType, str], list[ConfigEntry]] = {}
    for call in calls:
        found |= call.value
    return found


def _describe_call(to: To | int, resources: list[tuple[ResourceType, str]]) -> Call[dict[tuple[ResourceType, str], list[ConfigEntry]]]:
    from kops.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
    from kops.protocol.messages.describe_configs_request import DescribeConfigsResource

    def build(_: int) -> Message:
        wanted = [DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in resources]
        return DescribeConfigsRequest(resources=wanted)

    def handle(response: Message) -> dict[tuple[ResourceType, str], list[ConfigEntry]]:
        assert isinstance(response, DescribeConfigsResponse)
        found = {}
        for one in response.results:
            check(one.error_code, one.error_message)
            found[ResourceType(one.resource_type), one.resource_name] = [
                ConfigEntry(entry.name, entry.value, entry.config_source, entry.is_sensitive, entry.read_only) for entry in one.configs
            ]
        return found

    return Call("describe configs", to, build, handle)


def overrides(entries: Iterable[ConfigEntry]) -> dict[str, str | None]:
    """Return the settings of the topic itself, in the order of their names."""
    return {entry.name: entry.value for entry in sorted(entries, key=lambda entry: entry.name) if entry.source == DYNAMIC_TOPIC_CONFIG}


def not_default(entries: Iterable[ConfigEntry]) -> dict[str, str | None]:
    """Return the settings that were set for the topic or for brokers, in the order of their names, as Kafka's tool shows them."""
    return {entry.name: entry.value for entry in sorted(entries, key=lambda entry: entry.name) if entry.source != DEFAULT_CONFIG}


SET, DELETE, APPEND, SUBTRACT = range(4)


def alter_configs(
    client: Client,
    changes: Mapping[tuple[ResourceType, str], Sequence[tuple[str, int, str | None]]],
    *,
    validate_only: bool = False,
) -> dict[tuple[ResourceType, str], ApiError | None]:
    """Change settings: for each resource (name, SET | DELETE | APPEND | SUBTRACT, value). Each resource has its own outcome."""
    calls = []
    everyone = {}
    for key, operations in changes.items():
        if key[0] is not ResourceType.TOPIC and key[1]:
            calls.append(_alter_call(int(key[1]), {key: operations}, validate_only))
        else:
            everyone[key] = operations
    if everyone:
        calls.append(_alter_call(To.ANY, everyone, validate_only))
    client.run(calls)
    outcomes: dict[tuple[ResourceType, str], ApiError | None] = {}
    for call in calls:
        outcomes |= call.value
    return outcomes


def _alter_call(
    to: To | int, changes: Mapping[tuple[ResourceType, str], Sequence[tuple[str, int, str | None]]], validate_only: bool
) -> Call[dict[tuple[ResourceType, str], ApiError | None]]:
    from kops.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource

    def build(_: int) -> Message:
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in operations],
                )
                for (kind, name), operations in changes.items()
            ],
            validate_only=validate_only,
        )

    def handle(response: Message) -> dict[tuple[ResourceType, str], ApiError | None]:
        assert isinstance(response, IncrementalAlterConfigsResponse)
        outcomes = {}
        for one in response.responses:
            error = error_of(one.error_code, one.error_message)
            if error is not None and by_name(error.name).retriable:
                raise error
            outcomes[ResourceType(one.resource_type), one.resource_name] = error
        return outcomes

    return Call("alter configs", to, build, handle)
