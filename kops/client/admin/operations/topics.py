"""Topics: create, delete, list, describe, and more partitions.

Source: Kafka's KafkaAdminClient (createTopics, deleteTopics, listTopics, describeTopics, createPartitions), NewTopic, NewPartitions,
TopicDescription, TopicPartitionInfo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import ask, call, deadline_ms, in_order, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, kafka_error, raise_error
from kops.client.admin.core.values import AclOperation, as_names, authorized_operations, check_config, parse_uuid
from kops.client.admin.operations.cluster import fetch_nodes
from kops.client.admin.operations.configs import ConfigEntry, ConfigSource
from kops.client.errors import KafkaError, error_named
from kops.client.node import Node
from kops.errors import UsageError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kops.protocol.messages.create_partitions_request import CreatePartitionsAssignment, CreatePartitionsTopic
from kops.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from kops.protocol.messages.describe_topic_partitions_request import Cursor, TopicRequest
from kops.protocol.messages.metadata_request import MetadataRequestTopic

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message
    from kops.protocol.messages.create_topics_response import CreatableTopicResult
    from kops.protocol.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponseTopic
    from kops.protocol.messages.metadata_response import MetadataResponseTopic

_FIRST_WITH_IDS: Final = 6  # version of DeleteTopics
_UNKNOWN: Final = -1
K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound="Message")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created: with these numbers (None: the broker's defaults), or with these replicas of each partition."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The number of partitions that a topic gets. `new_assignments` are the replicas of each new one."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or would be. Numbers and settings are None if the program may not describe topics."""

    topic_id: str
    num_partitions: int | None
    replication_factor: int | None
    configs: dict[str, ConfigEntry] | None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list."""

    name: str
    topic_id: str
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition. `elr` and `last_known_elr` are None if the broker does not report eligible leader replicas (KIP-966)."""

    partition: int
    leader: Node | None
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    elr: tuple[Node, ...] | None = None
    last_known_elr: tuple[Node, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions. `authorized_operations` is None unless it was asked for."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[AclOperation] | None


# changes


def create_topics(
    client: Client,
    topics: Iterable[NewTopic],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
    timeout: float | None = None,
) -> Steps[Results[str, CreatedTopic]]:
    """Create topics. `validate_only` only checks whether they could be created.

    `retry_on_quota_violation` repeats what exceeds a quota until the time is up.
    """
    wanted = {}
    for topic in [topics] if isinstance(topics, str) else topics:
        if not isinstance(topic, NewTopic):
            raise UsageError(f"{topic!r} is not a new topic; allowed: NewTopic")
        for name, value in topic.configs.items():
            check_config(name, value)
        wanted[topic.name] = topic
    as_names(wanted)

    def build(names: list[str], timeout_ms: int) -> Message:
        return CreateTopicsRequest(topics=[_creatable(wanted[name]) for name in names], timeout_ms=timeout_ms, validate_only=validate_only)

    def read(response: CreateTopicsResponse) -> Iterator[tuple[str, CreatedTopic | KafkaError]]:
        return ((one.name, error_of(one.error_code, one.error_message) or _created(one)) for one in response.topics)

    handle = of_controller(client, CreateTopicsResponse, lambda response: (one.error_code for one in response.topics))
    steps = _each_by_quota(client, "create topics", wanted, build, handle, read, deadline_ms(client, timeout), retry_on_quota_violation)
    return (yield from steps)


def _creatable(topic: NewTopic) -> CreatableTopic:
    is_assigned = topic.replicas_assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if is_assigned or topic.num_partitions is None else topic.num_partitions,
        replication_factor=-1 if is_assigned or topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in (topic.replicas_assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _created(one: CreatableTopicResult) -> CreatedTopic:
    if one.topic_config_error_code or one.num_partitions == _UNKNOWN:
        return CreatedTopic(uuid_text(one.topic_id), None, None, None)
    configs = {
        entry.name: ConfigEntry(entry.name, entry.value, ConfigSource(entry.config_source), entry.is_sensitive, entry.read_only)
        for entry in one.configs or ()
    }
    return CreatedTopic(uuid_text(one.topic_id), one.num_partitions, one.replication_factor, configs)


def delete_topics(
    client: Client,
    topics: Iterable[str],
    *,
    by_id: bool = False,
    retry_on_quota_violation: bool = True,
    timeout: float | None = None,
) -> Steps[Results[str, None]]:
    """Delete topics by name, or by id. Their records are deleted a little later."""
    wanted = as_names(topics)
    ids = {name: parse_uuid(name) for name in wanted} if by_id else {}
    failed = {name: _bad_topic(name) for name, topic_id in ids.items() if topic_id == ZERO_UUID}

    def build(names: list[str], timeout_ms: int) -> Message:
        states = [DeleteTopicState(name=None, topic_id=ids[name]) if by_id else DeleteTopicState(name=name) for name in names]
        return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)

    def read(response: DeleteTopicsResponse) -> Iterator[tuple[str, KafkaError | None]]:
        return (
            (uuid_text(one.topic_id) if by_id else one.name or "", error_of(one.error_code, one.error_message))
            for one in response.responses
        )

    handle = of_controller(client, DeleteTopicsResponse, lambda response: (one.error_code for one in response.responses))
    left = [name for name in wanted if name not in failed]
    deadline = deadline_ms(client, timeout)
    versions = range(_FIRST_WITH_IDS, DeleteTopicsRequest.VERSIONS.stop)
    steps = _each_by_quota(client, "delete topics", left, build, handle, read, deadline, retry_on_quota_violation, versions)
    found = yield from steps
    return Results({name: failed[name] if name in failed else found.errors().get(name) for name in wanted})


def create_partitions(
    client: Client,
    new_partitions: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
    timeout: float | None = None,
) -> Steps[Results[str, None]]:
    """Increase the number of partitions of topics to these totals."""
    wanted = {name: one if isinstance(one, NewPartitions) else NewPartitions(one) for name, one in new_partitions.items()}
    as_names(wanted)

    def build(names: list[str], timeout_ms: int) -> Message:
        topics = []
        for name in names:
            rows = wanted[name].new_assignments
            placed = None if rows is None else [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in rows]
            topics.append(CreatePartitionsTopic(name=name, count=wanted[name].total_count, assignments=placed))
        return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)

    def read(response: CreatePartitionsResponse) -> Iterator[tuple[str, KafkaError | None]]:
        return ((one.name, error_of(one.error_code, one.error_message)) for one in response.results)

    handle = of_controller(client, CreatePartitionsResponse, lambda response: (one.error_code for one in response.results))
    deadline = deadline_ms(client, timeout)
    return (yield from _each_by_quota(client, "create partitions", wanted, build, handle, read, deadline, retry_on_quota_violation))


def _each_by_quota(
    client: Client,
    name: str,
    keys: Iterable[str],
    build: Callable[[list[str], int], Message],
    handle: Callable[[Message], Any],
    read: Callable[[Any], Iterator[tuple[str, V | KafkaError]]],
    deadline: float,
    retries: bool,
    versions: range | None = None,
) -> Steps[Results[str, V]]:
    """Ask the controller for each key, and again for those that exceed a quota, after the time that it demands."""
    wanted = list(keys)
    outcomes: dict[str, V | KafkaError] = {}
    left, retry_ms, tries = wanted, 0.0, 0
    while left:
        new = call(client, name, Ask.CONTROLLER_OF_BROKERS, _bound(build, left), handle, deadline, versions=versions)
        new.retry_ms = retry_ms
        done = yield [new]
        if done.error is not None:
            error = kafka_error(done.error)
            outcomes |= {key: outcomes.get(key, error) if error.name == "REQUEST_TIMED_OUT" else error for key in left}
            break
        outcomes |= dict(read(done.value))
        left = [key for key in left if retries and _exceeds_quota(outcomes.get(key))]
        retry_ms = client.now_ms() + max(done.value.throttle_time_ms, client.backoff.delay_ms(tries))
        tries += 1
    return in_order(name, wanted, outcomes)


def _bound(build: Callable[[list[str], int], Message], keys: list[str]) -> Callable[[int], Message]:
    return lambda timeout_ms: build(keys, timeout_ms)


def _exceeds_quota(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.name == "THROTTLING_QUOTA_EXCEEDED"


def _bad_topic(name: str) -> KafkaError:
    return error_named("INVALID_TOPIC_EXCEPTION", f"{name!r} can't be sent in a request")


# questions


def list_topics(client: Client, *, list_internal: bool = False, timeout: float | None = None) -> Steps[dict[str, TopicListing]]:
    """Return all topics by name. `list_internal` adds Kafka's own."""

    def build(_: int) -> Message:
        return MetadataRequest(topics=None, allow_auto_topic_creation=False)

    response = yield from ask(client, "list topics", Ask.BROKER, build, is_a(MetadataResponse), deadline_ms(client, timeout))
    raise_error(response.error_code)
    topics = sorted(((topic.name or "", topic) for topic in response.topics), key=lambda one: one[0])
    return {
        name: TopicListing(name, uuid_text(topic.topic_id), topic.is_internal)
        for name, topic in topics
        if list_internal or not topic.is_internal
    }


def describe_topics(
    client: Client,
    topics: Iterable[str],
    *,
    by_id: bool = False,
    include_authorized_operations: bool = False,
    partition_size_limit_per_response: int = 2000,
    timeout: float | None = None,
) -> Steps[Results[str, TopicDescription]]:
    """Describe topics by name, or by id."""
    wanted = as_names(topics)
    deadline = deadline_ms(client, timeout)
    if not wanted:
        return Results({})
    if by_id:
        return (yield from _describe_by_id(client, wanted, include_authorized_operations, deadline))
    nodes = yield from fetch_nodes(client, "describe topics", deadline)
    try:
        return (
            yield from _describe_by_pages(client, wanted, include_authorized_operations, partition_size_limit_per_response, nodes, deadline)
        )
    except KafkaError as error:
        if error.name != "UNSUPPORTED_VERSION":
            raise
    return (yield from _describe_by_metadata(client, wanted, include_authorized_operations, deadline))


def _describe_by_pages(
    client: Client, names: list[str], with_operations: bool, limit: int, nodes: Mapping[int, Node], deadline: float
) -> Steps[Results[str, TopicDescription]]:
    left = sorted(names)
    outcomes: dict[str, KafkaError] = {}
    pages: dict[str, list[DescribeTopicPartitionsResponseTopic]] = {}
    cursor: Cursor | None = None
    while left:

        def build(_: int, left: list[str] = left, cursor: Cursor | None = cursor) -> Message:
            entries = [TopicRequest(name=name) for name in left]
            return DescribeTopicPartitionsRequest(topics=entries, response_partition_limit=limit, cursor=cursor)

        handle = is_a(DescribeTopicPartitionsResponse)
        response = yield from ask(client, "describe topics", Ask.BROKER, build, handle, deadline)
        for topic in response.topics:
            error = error_of(topic.error_code)
            if error is None:
                pages.setdefault(topic.name or "", []).append(topic)
            else:
                outcomes[topic.name or ""] = error
        following = response.next_cursor
        if following is None:
            break
        left = [name for name in left if name >= following.topic_name and name not in outcomes]
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)
    found = {name: _from_pages(name, parts, nodes, with_operations) for name, parts in pages.items()}
    return in_order("describe topics", names, {**found, **outcomes})


def _from_pages(
    name: str, pages: list[DescribeTopicPartitionsResponseTopic], nodes: Mapping[int, Node], with_operations: bool
) -> TopicDescription:
    def known(ids: Iterable[int] | None) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id, Node(node_id, "", -1)) for node_id in ids or ())

    partitions = [
        TopicPartitionInfo(
            one.partition_index,
            nodes.get(one.leader_id),
            known(one.replica_nodes),
            known(one.isr_nodes),
            known(one.eligible_leader_replicas),
            known(one.last_known_elr),
        )
        for page in pages
        for one in page.partitions
    ]
    operations = authorized_operations(pages[0].topic_authorized_operations) if with_operations else None
    return TopicDescription(name, uuid_text(pages[0].topic_id), pages[0].is_internal, tuple(partitions), operations)


def _describe_by_metadata(
    client: Client, names: list[str], with_operations: bool, deadline: float
) -> Steps[Results[str, TopicDescription]]:
    def build(_: int) -> Message:
        entries = [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=entries, allow_auto_topic_creation=False, include_topic_authorized_operations=with_operations)

    response = yield from ask(client, "describe topics", Ask.BROKER, build, is_a(MetadataResponse), deadline)
    raise_error(response.error_code)
    nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
    found = {topic.name or "": error_of(topic.error_code) or _from_metadata(topic, nodes) for topic in response.topics}
    return in_order("describe topics", names, found)


def _describe_by_id(client: Client, texts: list[str], with_operations: bool, deadline: float) -> Steps[Results[str, TopicDescription]]:
    ids = {text: parse_uuid(text) for text in texts}
    outcomes: dict[str, TopicDescription | KafkaError] = {text: _bad_topic(text) for text, one in ids.items() if one == ZERO_UUID}
    left = [text for text in texts if text not in outcomes]

    def build(_: int) -> Message:
        entries = [MetadataRequestTopic(topic_id=ids[text], name=None) for text in left]
        return MetadataRequest(topics=entries, allow_auto_topic_creation=False, include_topic_authorized_operations=with_operations)

    if left:
        response = yield from ask(client, "describe topics", Ask.BROKER, build, is_a(MetadataResponse), deadline)
        raise_error(response.error_code)
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        outcomes |= dict.fromkeys(left, error_named("UNKNOWN_TOPIC_ID", "there is no topic with this id"))
        outcomes |= {uuid_text(one.topic_id): error_of(one.error_code) or _from_metadata(one, nodes) for one in response.topics}
    return in_order("describe topics", texts, outcomes)


def _from_metadata(topic: MetadataResponseTopic, nodes: Mapping[int, Node]) -> TopicDescription:
    def known(ids: Iterable[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id, Node(node_id, "", -1)) for node_id in ids)

    partitions = [
        TopicPartitionInfo(one.partition_index, nodes.get(one.leader_id), known(one.replica_nodes), known(one.isr_nodes))
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
    operations = authorized_operations(topic.topic_authorized_operations)
    return TopicDescription(topic.name or "", uuid_text(topic.topic_id), topic.is_internal, tuple(partitions), operations)
