"""A broker's answers about topics, leaders and brokers, from its image.

Source: Kafka's KRaftMetadataCache, and the parts of KafkaApis and DescribeTopicPartitionsRequestHandler that depend only on the image. The
caller decides which topics are created and which ones a principal may see. It passes in the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr

from kops.config.values.topic_names import INTERNAL_TOPICS, check_topic_name
from kops.errors import ApiError
from kops.metadata.image.metadata_image import EMPTY
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kops.protocol.messages.describe_cluster_response import DescribeClusterBroker
from kops.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kops.metadata.broker_registration import BrokerRegistration
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.configs import ResourceType
    from kops.metadata.image.parts.topics import TopicImage
    from kops.metadata.partition_registration import PartitionRegistration
    from kops.protocol.messages.describe_topic_partitions_request import Cursor as RequestCursor
    from kops.protocol.messages.metadata_request import MetadataRequestTopic

NO_LEADER: Final = -1
NO_BROKER: Final = -1
_NO_ERROR: Final = 0
_ENDPOINT_TYPES: Final = {1: "BROKER", 2: "CONTROLLER"}
_BROKER_ENDPOINT: Final = 1


class BrokerNode(NamedTuple):
    """A broker at one of its listeners."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


NO_NODE: Final = BrokerNode(-1, "", -1, None)


def error_code(name: str) -> int:
    """Return the code of an error."""
    return by_name(name).code


def broker_node(broker: BrokerRegistration | None, listener: str) -> BrokerNode | None:
    """Return a broker at this listener, or None if there is no such broker or listener."""
    endpoint = None if broker is None else broker.listeners.get(listener)
    if broker is None or endpoint is None:
        return None
    return BrokerNode(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def unknown_topic_error(name: str) -> str:
    """Return the error for a missing topic: an impossible name is invalid."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.name
    return "UNKNOWN_TOPIC_OR_PARTITION"


def sort_key(name: str) -> bytes:
    """Return a sort key for Java's order of strings, by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


def named_topics(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """Return the topics of a request, or None if it asks for all (without a list, or in version 0 with an empty one)."""
    return None if version == 0 and not request.topics else request.topics


@mypyc_attr(allow_interpreted_subclasses=True)
class MetadataCache:
    """Look-ups in the current image. The owner sets `image` when there is a new one. Each look-up uses a single image."""

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self.image = image

    # Brokers.

    def broker_nodes(self, listener: str) -> list[BrokerNode]:
        """Return all registered brokers with this listener, by id."""
        brokers = self.image.cluster.brokers
        nodes = (broker_node(brokers[broker_id], listener) for broker_id in sorted(brokers))
        return [node for node in nodes if node is not None]

    def alive_brokers(self, listener: str) -> list[BrokerNode]:
        """Return the brokers that are not fenced."""
        return [node for node in self.broker_nodes(listener) if not node.is_fenced]

    def alive_broker(self, broker_id: int, listener: str) -> BrokerNode | None:
        """Return a broker that is not fenced and has this listener."""
        node = broker_node(self.image.cluster.brokers.get(broker_id), listener)
        return None if node is None or node.is_fenced else node

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of a broker that is not fenced."""
        broker = self.image.cluster.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch

    def is_broker_fenced(self, broker_id: int) -> bool:
        """Whether the broker is registered and fenced."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.fenced

    def is_broker_shutting_down(self, broker_id: int) -> bool:
        """Whether the broker is in controlled shutdown."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def random_alive_broker(self, draw: Callable[[int], int]) -> int:
        """Return a random broker, which clients see as the controller; this spreads them over the brokers. `draw(n)` returns one of 0 …
        n-1."""
        alive = sorted(broker.id for broker in self.image.cluster.brokers.values() if not broker.fenced)
        return alive[draw(len(alive))] if alive else NO_BROKER

    # Topics and partitions.

    def topic_id(self, name: str) -> bytes:
        """Return a topic's id, or ZERO_UUID if there is no such topic."""
        topic = self.image.topics.by_name.get(name)
        return ZERO_UUID if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return a topic's name, or None if there is no such topic."""
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic: str) -> int | None:
        """Return a topic's number of partitions, or None if there is no such topic."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else len(found.partitions)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return a partition with its leader, epochs, replicas and ISR, or None if there is none."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else found.partitions.get(partition)

    def leader_endpoint(self, topic: str, partition: int, listener: str) -> BrokerNode | None:
        """Return the leader's address. Returns None if no leader is known, and NO_NODE if it has no such listener."""
        found = self.partition(topic, partition)
        leader = None if found is None else self.image.cluster.brokers.get(found.leader)
        return None if leader is None else broker_node(leader, listener) or NO_NODE

    def replica_endpoints(self, topic: str, partition: int, listener: str) -> dict[int, BrokerNode]:
        """Return the addresses of the unfenced replicas by broker. A consumer's preferred replica is chosen among these."""
        found = self.partition(topic, partition)
        nodes = [self.alive_broker(replica, listener) for replica in (() if found is None else found.replicas)]
        return {node.id: node for node in nodes if node is not None and node.host and node.port >= 0}

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the settings of one resource, without defaults."""
        return self.image.configs.of(resource_type, name)

    def finalized_features(self, kraft_version: int) -> dict[str, int]:
        """Return all finalized features by name. `kraft_version` is that of the quorum. Their epoch is the image's offset."""
        version = self.image.features.metadata_version
        levels = dict(self.image.features.levels)
        if version is not None:
            levels["metadata.version"] = version.level
        return levels | ({"kraft.version": kraft_version} if kraft_version > 0 else {})

    # Responses.

    def metadata(
        self,
        request: MetadataRequest,
        version: int,
        listener: str,
        *,
        cluster_id: str,
        controller_id: int,
        topics: Iterable[str] | None = None,
    ) -> MetadataResponse:
        """Return the response to a Metadata request. Missing topics get an error; nothing is created.

        `topics` replaces the topics of the request. Raises ApiError INVALID_REQUEST if the request uses topic ids, or no name, before
        version 12.
        """
        unknown = self._check_ids(request, version)
        asked = self.requested_topics(request, version) if topics is None else list(topics)
        told = self.topic_metadata(asked, listener, error_unavailable_endpoints=version == 0, error_unavailable_listeners=version >= 6)
        if named_topics(request, version) is not None:
            names = {topic.name for topic in told}
            told += [self.missing_topic(name) for name in asked if name not in names]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node.id, node.host, node.port, node.rack) for node in self.alive_brokers(listener)],
            cluster_id=cluster_id,
            controller_id=controller_id,
            topics=unknown + told,
        )

    def requested_topics(self, request: MetadataRequest, version: int) -> list[str]:
        """Return the names of the requested topics: all, those of known ids, or those named."""
        named = named_topics(request, version)
        if named is None:
            return list(self.image.topics.by_name)
        ids = dict.fromkeys(topic.topic_id for topic in named if topic.topic_id != ZERO_UUID)
        if ids:
            return [name for name in map(self.topic_name, ids) if name is not None]
        return list(dict.fromkeys(topic.name for topic in named if topic.name is not None))

    def missing_topic(self, name: str) -> MetadataResponseTopic:
        """Return the Metadata entry of a topic that does not exist or has no partition yet."""
        code = error_code(unknown_topic_error(name))
        return MetadataResponseTopic(error_code=code, name=name, topic_id=self.topic_id(name), is_internal=name in INTERNAL_TOPICS)

    def topic_metadata(
        self, names: Iterable[str], listener: str, *, error_unavailable_endpoints: bool, error_unavailable_listeners: bool
    ) -> list[MetadataResponseTopic]:
        """Return the entries of those topics that exist and have partitions.

        With `error_unavailable_endpoints` (version 0), replicas on unreachable brokers are left out, and this is an error. With
        `error_unavailable_listeners` (version 6 and later), a leader without the listener is LISTENER_NOT_FOUND; before, it is
        LEADER_NOT_AVAILABLE.
        """
        listener_error = error_code("LISTENER_NOT_FOUND" if error_unavailable_listeners else "LEADER_NOT_AVAILABLE")
        view = _ListenerView(self.image, listener)
        told = []
        for name in names:
            topic = self.image.topics.by_name.get(name)
            if topic is not None and topic.partitions:
                partitions = [
                    view.partition(number, topic.partitions[number], listener_error, only_alive=error_unavailable_endpoints)
                    for number in sorted(topic.partitions)
                ]
                told.append(MetadataResponseTopic(_NO_ERROR, name, topic.id, name in INTERNAL_TOPICS, partitions))
        return told

    def describe_topic_partitions(
        self,
        request: DescribeTopicPartitionsRequest,
        listener: str,
        *,
        max_partitions: int,
        may_describe: Callable[[str], bool] = lambda name: True,
    ) -> DescribeTopicPartitionsResponse:
        """Return the response to a DescribeTopicPartitions request with at most `max_partitions` (max.request.partition.size.limit)
        partitions.

        Raises ApiError INVALID_REQUEST if the cursor is not among the topics or is before the first partition.
        """
        cursor = request.cursor
        first = sort_key(cursor.topic_name) if cursor is not None else b""
        asked = [topic.name for topic in request.topics] or self.image.topics.by_name
        names = {name for name in asked if sort_key(name) >= first}
        if cursor is not None:
            if request.topics and cursor.topic_name not in names:
                message = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
                raise ApiError("INVALID_REQUEST", message)
            if cursor.partition_index < 0:
                raise ApiError("INVALID_REQUEST", f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}")
        allowed = [name for name in sorted(names, key=sort_key) if may_describe(name)]
        limit = max(min(max_partitions, request.response_partition_limit), 1)
        response = self._described(allowed, listener, cursor, limit, bool(request.topics))
        if request.topics:
            code = error_code("TOPIC_AUTHORIZATION_FAILED")
            denied = sorted(names.difference(allowed), key=sort_key)
            response.topics += [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in denied]
        return response

    def describe_cluster(
        self, request: DescribeClusterRequest, version: int, listener: str, *, cluster_id: str, controller_id: int
    ) -> DescribeClusterResponse:
        """Return a broker's response to a DescribeCluster request. `controller_id` is set only if its broker is in the response."""
        kind = _ENDPOINT_TYPES.get(request.endpoint_type)
        if kind is None:
            name, message = "UNSUPPORTED_ENDPOINT_TYPE", f"Unsupported endpoint type {request.endpoint_type}"
        else:
            name = "MISMATCHED_ENDPOINT_TYPE"
            message = f"The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type {kind}"
        if request.endpoint_type != _BROKER_ENDPOINT:
            return DescribeClusterResponse(error_code=error_code("INVALID_REQUEST" if version == 0 else name), error_message=message)
        nodes = [node for node in self.broker_nodes(listener) if request.include_fenced_brokers or not node.is_fenced]
        return DescribeClusterResponse(
            cluster_id=cluster_id,
            controller_id=controller_id if any(node.id == controller_id for node in nodes) else NO_BROKER,
            brokers=[DescribeClusterBroker(node.id, node.host, node.port, node.rack, node.is_fenced) for node in nodes],
            endpoint_type=_BROKER_ENDPOINT,
        )

    def _check_ids(self, request: MetadataRequest, version: int) -> list[MetadataResponseTopic]:
        """Return the entries for the requested ids that no topic has."""
        named = named_topics(request, version) or []
        for topic in named:
            if version < 12 and topic.name is None:
                raise ApiError("INVALID_REQUEST", f"Topic name can not be null for version {version}")
            if version < 12 and topic.topic_id != ZERO_UUID:
                raise ApiError("INVALID_REQUEST", f"Topic IDs are not supported in requests for version {version}")
        code = error_code("UNKNOWN_TOPIC_ID")
        ids = dict.fromkeys(topic.topic_id for topic in named if topic.topic_id != ZERO_UUID)
        return [MetadataResponseTopic(error_code=code, name=None, topic_id=one) for one in ids if self.topic_name(one) is None]

    def _described(
        self, names: Sequence[str], listener: str, cursor: RequestCursor | None, limit: int, tell_missing: bool
    ) -> DescribeTopicPartitionsResponse:
        response = DescribeTopicPartitionsResponse()
        view = _ListenerView(self.image, listener)
        for name in names:
            if limit == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = self.image.topics.by_name.get(name)
            if topic is None:
                if tell_missing:
                    code = error_code(unknown_topic_error(name))
                    internal = name in INTERNAL_TOPICS
                    response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=internal))
                continue
            start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            end = min(len(topic.partitions), start + limit)
            partitions = view.described_partitions(topic, start, end)
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(_NO_ERROR, name, topic.id, name in INTERNAL_TOPICS, partitions=partitions)
            )
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
            limit -= len(partitions)
        return response


class _ListenerView:
    """An image as seen by the clients of one listener."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._listener = listener
        self._brokers = dict(image.cluster.brokers)
        self._alive = {broker.id for broker in self._brokers.values() if not broker.fenced and listener in broker.listeners}

    def partition(
        self, number: int, partition: PartitionRegistration, listener_error: int, *, only_alive: bool
    ) -> MetadataResponsePartition:
        """Return the Metadata entry of a partition."""
        replicas, isr = self._told(partition.replicas, only_alive), self._told(partition.isr, only_alive)
        leader = self._leader(partition)
        code = _NO_ERROR
        if leader == NO_LEADER:
            code = listener_error if partition.leader in self._brokers else error_code("LEADER_NOT_AVAILABLE")
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = error_code("REPLICA_NOT_AVAILABLE")
        return MetadataResponsePartition(code, number, leader, partition.leader_epoch, replicas, isr, self._offline(partition))

    def described_partitions(self, topic: TopicImage, start: int, end: int) -> list[DescribeTopicPartitionsResponsePartition]:
        """Return the DescribeTopicPartitions entries of those of these partitions that exist."""
        found = ((number, topic.partitions.get(number)) for number in range(start, end))
        return [
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=self._leader(partition),
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=self._offline(partition),
            )
            for number, partition in found
            if partition is not None
        ]

    def _told(self, replicas: Sequence[int], only_alive: bool) -> list[int]:
        return [replica for replica in replicas if replica in self._alive] if only_alive else list(replicas)

    def _leader(self, partition: PartitionRegistration) -> int:
        # A fenced broker may still lead for a moment. As in Kafka, it is returned.
        broker = self._brokers.get(partition.leader)
        return NO_LEADER if broker is None or self._listener not in broker.listeners else broker.id

    def _offline(self, partition: PartitionRegistration) -> list[int]:
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if replica not in self._alive or not self._brokers[replica].has_online_dir(directory)
        ]
