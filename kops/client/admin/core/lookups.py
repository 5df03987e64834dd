"""The brokers of keys: coordinators of groups and of transactional ids, leaders of partitions, a given broker.

Source: Kafka's CoordinatorStrategy, PartitionLeaderStrategy, StaticBrokerStrategy, AllBrokersStrategy.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import ask
from kops.client.admin.core.keyed import Found
from kops.client.admin.core.results import error_of, of_partition
from kops.client.errors import KafkaError, error_named
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message
    from kops.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic

_BATCHED: Final = 4
_LATER: Final = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_TOPIC_LATER: Final = ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE")
_PARTITION_LATER: Final = (
    "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "BROKER_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION",
)
K = TypeVar("K")


class KeyType(IntEnum):
    """The kinds of coordinators (FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1


class _Plain(Generic[K]):
    """A look-up by one request, without fixed brokers and without another way for old brokers."""

    versions: range | None = None

    def fixed(self, key: K) -> int | None:
        return None

    def batches(self, keys: list[K]) -> list[list[K]]:
        return [keys]

    def unsupported(self, keys: list[K], error: KafkaError) -> dict[K, KafkaError]:
        return dict.fromkeys(keys, error)


class Coordinators(_Plain[str]):
    """Finds coordinators: all with one request, or one by one with brokers before 3.0."""

    def __init__(self, client: Client, kind: KeyType) -> None:
        self._client = client
        self._kind = kind
        self._is_batched = True

    @property
    def versions(self) -> range:  # type: ignore[override]  # it changes
        return range(_BATCHED, FindCoordinatorRequest.VERSIONS.stop) if self._is_batched else range(1, _BATCHED)

    def batches(self, keys: list[str]) -> list[list[str]]:
        return [keys] if self._is_batched else [[key] for key in keys]

    def build(self, keys: list[str]) -> Message:
        if self._is_batched:
            return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=keys)
        return FindCoordinatorRequest(key_type=self._kind, key=keys[0])

    def handle(self, keys: list[str], response: Message) -> Found[str]:
        assert isinstance(response, FindCoordinatorResponse)
        found = Found[str]()
        if response.coordinators:
            for one in response.coordinators:
                self._take(found, one.key, Node(one.node_id, one.host, one.port), error_of(one.error_code, one.error_message))
        else:
            node = Node(response.node_id, response.host, response.port)
            self._take(found, keys[0], node, error_of(response.error_code, response.error_message))
        return found

    def _take(self, found: Found[str], key: str, node: Node, error: KafkaError | None) -> None:
        if error is None:
            found.brokers[key] = node.id
            self._client.metadata.add_nodes([node])
        elif error.name in _LATER:
            found.later[key] = error
        else:
            found.failed[key] = error

    def unsupported(self, keys: list[str], error: KafkaError) -> dict[str, KafkaError]:
        if not self._is_batched:
            return dict.fromkeys(keys, error)
        self._is_batched = False
        return {}


class Leaders(_Plain[TopicPartition]):
    """Finds the leaders of partitions. `tolerates_unknown` waits for a topic that brokers do not know yet.

    A client that is not patient waits only for leaders: what the brokers do not know is an error at once.
    """

    def __init__(self, client: Client, *, tolerates_unknown: bool = True) -> None:
        self._client = client
        self._tolerates_unknown = tolerates_unknown

    def build(self, keys: list[TopicPartition]) -> Message:
        topics = [MetadataRequestTopic(name=name) for name in dict.fromkeys(key.topic for key in keys)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    def handle(self, keys: list[TopicPartition], response: Message) -> Found[TopicPartition]:
        assert isinstance(response, MetadataResponse)
        found = Found[TopicPartition]()
        error = error_of(response.error_code)
        if error is not None:
            found.failed = dict.fromkeys(keys, error)
            return found
        self._client.metadata.update(response, self._client.now_ms())
        topics = {topic.name: topic for topic in response.topics}
        partitions = {TopicPartition(topic.name or "", one.partition_index): one for topic in response.topics for one in topic.partitions}
        for key in keys:
            self._take(found, key, topics.get(key.topic), partitions.get(key))
        return found

    def _take(
        self,
        found: Found[TopicPartition],
        key: TopicPartition,
        topic: MetadataResponseTopic | None,
        partition: MetadataResponsePartition | None,
    ) -> None:
        is_patient = self._client.is_patient
        error = None if topic is None else error_of(topic.error_code)
        if error is not None:
            is_tolerated = self._tolerates_unknown and is_patient
            is_late = error.name in _TOPIC_LATER or (error.name == "UNKNOWN_TOPIC_OR_PARTITION" and is_tolerated)
        elif partition is None:
            if is_patient:
                return
            error, is_late = error_named("UNKNOWN_TOPIC_OR_PARTITION", "there is no such partition"), False
        elif partition.leader_id >= 0 and not (partition.error_code and is_patient):
            found.brokers[key] = partition.leader_id
            return
        elif not is_patient:
            error, is_late = error_named("LEADER_NOT_AVAILABLE", "it has no leader"), True
        else:
            error = error_of(partition.error_code)
            if error is None:
                return
            is_late = error.name in _PARTITION_LATER
        (found.later if is_late else found.failed)[key] = of_partition(self._client, key, error)


class Fixed(_Plain[K]):
    """Keys whose brokers are known."""

    def __init__(self, brokers: Mapping[K, int]) -> None:
        self._brokers = brokers

    def fixed(self, key: K) -> int | None:
        return self._brokers[key]

    def build(self, keys: list[K]) -> Message:
        raise AssertionError("nothing to look up")

    def handle(self, keys: list[K], response: Message) -> Found[K]:
        raise AssertionError("nothing to look up")


def find_brokers(client: Client, name: str, deadline: float) -> Steps[list[int]]:
    """Return the ids of all brokers. Waits for a broker that knows some."""

    def handle(response: Message) -> list[int]:
        assert isinstance(response, MetadataResponse)
        if not response.brokers:
            raise ApiError("LEADER_NOT_AVAILABLE", "the broker knows no brokers yet")
        client.metadata.update(response, client.now_ms())
        return sorted(one.node_id for one in response.brokers)

    return ask(client, name, Ask.BROKER, lambda _: MetadataRequest(topics=[], allow_auto_topic_creation=False), handle, deadline)
