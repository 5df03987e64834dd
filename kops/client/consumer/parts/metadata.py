"""The consumer's metadata: the topics that it reads, or all topics for a pattern.

Source: Kafka's ConsumerMetadata (newMetadataRequestBuilder, retainTopic), Metadata, OffsetFetcher (transient topics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.client.consumer.errors import as_kafka
from kops.client.consumer.parts.requests import Outgoing
from kops.client.producer.core.topics import ProducerMetadata
from kops.errors import ApiError
from kops.protocol.messages import MetadataRequest, MetadataResponse
from kops.protocol.messages.metadata_request import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.requests import Links
    from kops.client.consumer.parts.state import Subscriptions
    from kops.client.errors import KafkaError
    from kops.protocol.declaration import Message
    from kops.protocol.messages.metadata_response import MetadataResponseTopic
    from kops.records.log_offsets import TopicPartition


class ConsumerMetadata(ProducerMetadata):
    """The topics and nodes that the consumer knows."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], options: ConsumerOptions, draw: Callable[[], float], subscriptions: Subscriptions
    ) -> None:
        super().__init__(bootstrap, options, draw)
        self._subscriptions = subscriptions
        self._may_create = options.may_create_topics
        self._excludes_internal = options.excludes_internal
        self.topic_ids: frozenset[bytes] = frozenset()  # of the topics that a pattern of the server assigns
        self._transient: dict[str, int] = {}
        self._is_for_all = False
        self.topics: dict[str, MetadataResponseTopic] = {}  # with replicas, as in the last response about each
        self.names: frozenset[str] = frozenset()  # of the last response about all topics

    @property
    def is_wanted(self) -> bool:
        """Whether the topics are to be requested again before they are too old."""
        return self._is_full_wanted

    def see_epoch(self, key: TopicPartition, epoch: int | None) -> None:
        """Learn an epoch from an offset. If the known leader is older, the topics are requested again."""
        if epoch is not None and self.cluster.see_epoch(key, epoch):
            self.want()

    def is_online(self, key: TopicPartition, node_id: int) -> bool:
        """Whether a node has a replica of a partition that can be read (Cluster.nodeIfOnline)."""
        topic = self.topics.get(key.topic)
        found = None if topic is None else next((one for one in topic.partitions if one.partition_index == key.partition), None)
        return (
            found is not None and node_id in self.cluster.nodes and node_id in found.replica_nodes and node_id not in found.offline_replicas
        )

    def add_transient(self, topics: Iterable[str]) -> None:
        """Keep topics for a call, such as the lookup of an offset."""
        for topic in topics:
            self._transient[topic] = self._transient.get(topic, 0) + 1
            if topic not in self.cluster.partition_counts:
                self.want_soon()

    def drop_transient(self, topics: Iterable[str]) -> None:
        """Forget topics after the call."""
        for topic in topics:
            left = self._transient.get(topic, 0) - 1
            if left > 0:
                self._transient[topic] = left
            else:
                self._transient.pop(topic, None)

    def want_soon(self) -> None:
        """Request the topics at once, because there are new ones."""
        self._is_full_wanted = True
        self._refreshed_ms = -1e12
        if self._in_flight is not None:
            self._is_full_in_flight = False  # that request does not ask for them

    def turn(self, links: Links, now_ms: float) -> tuple[list[Outgoing], float]:
        """Return the request that is due, if any, and the time until the next one."""
        wait_ms = self.wait_ms(now_ms)
        if wait_ms > 0:
            return [], wait_ms
        nodes = list(self.cluster.nodes.values())
        self.maybe_rebootstrap(now_ms, are_all_failing=all(map(links.is_failing, nodes)))
        node = links.least_loaded(self.cluster.nodes.values())
        if node is None or not links.is_ready(node):
            return [], self._options.retry_backoff_ms if node is None else links.retry_ms(node)
        message = self.request(now_ms)

        def answered(answer: Message | ApiError, later_ms: float) -> None:
            self.received(as_kafka(answer) if isinstance(answer, ApiError) else answer, later_ms)

        return [Outgoing(node, message, answered)], wait_ms

    def request(self, now_ms: float) -> MetadataRequest:
        """Return the request that is due."""
        self._is_full_in_flight = True
        self._refreshed_ms = now_ms
        self._is_for_all = self._subscriptions.pattern is not None
        if self._is_for_all:
            self._in_flight = []
            return MetadataRequest(topics=None, allow_auto_topic_creation=self._may_create)
        if self._subscriptions.server_pattern is not None and not self._transient:
            self._in_flight = []
            topics = [MetadataRequestTopic(topic_id=one, name=None) for one in sorted(self.topic_ids)]
            return MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        names = sorted(self._subscriptions.metadata_topics() | self._transient.keys())
        self._in_flight = names
        return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=self._may_create)

    def received(self, answer: Message | KafkaError, now_ms: float) -> None:
        """Handle the response to the request."""
        asked = self._in_flight
        super().received(answer, now_ms)
        if not isinstance(answer, MetadataResponse) or answer.error_code or not answer.brokers:
            return
        known = {one.name: one for one in answer.topics if one.name is not None and not one.error_code}
        self.topics = {**({} if self._is_for_all else self.topics), **known}
        if asked:
            self.cluster.retain(asked)  # what is known about other topics grows old
        if self._is_for_all:
            self.names = frozenset(name for name, one in known.items() if not (self._excludes_internal and one.is_internal))

    def racks(self, topics: Iterable[str]) -> dict[str, list[frozenset[str]]]:
        """Return the racks of the replicas of each partition, for topics that exist."""
        nodes = self.cluster.nodes
        found = {}
        for topic in topics:
            one = self.topics.get(topic)
            if one is None or topic in self.cluster.topic_errors:
                continue
            partitions = sorted(one.partitions, key=lambda partition: partition.partition_index)
            found[topic] = [
                frozenset(rack for node in partition.replica_nodes if (rack := nodes[node].rack if node in nodes else None))
                for partition in partitions
            ]
        return found

    @property
    def is_idle(self) -> bool:
        """Whether no request is wanted or in flight."""
        return self._in_flight is None and not self._is_full_wanted
