"""The share consumer's metadata: the topics of its subscription, their ids and leaders.

Source: Kafka's ShareConsumerMetadata, Metadata (maybeThrowAnyException, updatePartitionLeadership).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.consumer.errors import as_kafka
from kops.client.producer.core.links import Links, Outgoing
from kops.client.producer.core.topics import ProducerMetadata
from kops.errors import ApiError
from kops.protocol.messages import MetadataRequest
from kops.protocol.messages.metadata_request import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kops.client.errors import KafkaError
    from kops.client.metadata import Leader
    from kops.client.node import Node
    from kops.client.share.core.options import ShareOptions
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition

_LONG_AGO: Final = -1e12
_RAISED: Final = ("TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION")


class ShareMetadata(ProducerMetadata):
    """The topics and nodes that the share consumer knows."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], options: ShareOptions, draw: Callable[[], float]) -> None:
        super().__init__(bootstrap, options, draw)
        self._may_create = options.may_create_topics
        self._pause_ms = options.retry_backoff_ms
        self._subscribed: tuple[str, ...] = ()
        self._asked_for: tuple[str, ...] = ()
        self._names: dict[bytes, str] = {}
        self._error: KafkaError | None = None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the topics. New ones are requested at once."""
        known, self._subscribed = self._subscribed, tuple(topics)
        if not set(self._subscribed) <= set(known):
            self._is_full_wanted = True
            self._refreshed_ms = _LONG_AGO

    def node(self, node_id: int) -> Node | None:
        """Return a node, or None."""
        return self.cluster.nodes.get(node_id)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of a topic, or None."""
        return self.cluster.topic_ids.get(topic)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None."""
        return self._names.get(topic_id)

    def moved(self, leaders: dict[TopicPartition, Leader], nodes: Iterable[Node]) -> None:
        """Take the leaders of an answer (KIP-951) that are newer than the known ones, and whose nodes are known."""
        cluster = self.cluster
        found = list(nodes)
        ids = cluster.nodes.keys() | {node.id for node in found}
        news = {
            key: leader
            for key, leader in leaders.items()
            if leader.node_id in ids and (known := cluster.leaders.get(key)) is not None and leader.epoch > known.epoch
        }
        if news:
            cluster.add_nodes(found)
            for key, leader in news.items():
                cluster.update_leader(key, leader)
            self.forget_views()

    @property
    def has_error(self) -> bool:
        """Whether there is an error that the program does not know yet."""
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Return an error that the program has to know, once."""
        error, self._error = self._error, None
        return error

    # requests

    def ask(self, links: Links, now_ms: float) -> tuple[Outgoing | None, float]:
        """Return the request that is due, and the time until the next look."""
        wait_ms = self.wait_ms(now_ms)
        if wait_ms > 0:
            return None, wait_ms
        nodes = self.cluster.nodes.values()
        self.maybe_rebootstrap(now_ms, are_all_failing=all(map(links.is_failing, nodes)))
        node = links.least_loaded(self.cluster.nodes.values())
        if node is None or not links.is_ready(node):
            return None, self._pause_ms if node is None else links.retry_ms(node)
        return Outgoing(node, self.request(now_ms), self.take_answer), float("inf")

    def request(self, now_ms: float) -> MetadataRequest:
        """Return the request that is due."""
        self._is_full_in_flight = True
        self._refreshed_ms = now_ms
        self._asked_for = self._subscribed
        self._in_flight = list(self._subscribed)
        topics = [MetadataRequestTopic(name=name) for name in self._subscribed]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._may_create)

    def take_answer(self, answer: Message | ApiError, now_ms: float) -> None:
        """Handle the answer to the request."""
        version = self.version
        self.received(as_kafka(answer) if isinstance(answer, ApiError) else answer, now_ms)
        if self.version == version:
            return
        self._names = {topic_id: topic for topic, topic_id in self.cluster.topic_ids.items()}
        if self._asked_for != self._subscribed:
            self._is_full_wanted = True  # the subscription has changed meanwhile
        errors = (self.topic_error(topic) for topic in self._subscribed)
        found = next((error for error in errors if error is not None and error.name in _RAISED), None)
        self._error = found or (self.error if self.error is not None and not self.error.retriable else None)
