"""The producer's metadata: its topics, when they must be requested, and their partitions and leaders.

Source: Kafka's ProducerMetadata, Metadata, NetworkClient.DefaultMetadataUpdater. New topics are requested alone, at once. All topics are
requested again after `metadata.max.age.ms` or after an error. A topic that was not used for `metadata.max.idle.ms` is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kops.client.errors import KafkaError, error_named
from kops.client.metadata import Metadata
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import Reaction, by_code, by_name
from kops.protocol.messages import MetadataRequest, MetadataResponse
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.client.node import Node
    from kops.protocol.declaration import Message

_LONG_AGO: Final = -1e12


class MetadataOptions(Protocol):
    """The settings about metadata."""

    @property
    def metadata_max_age_ms(self) -> int:
        """metadata.max.age.ms."""

    @property
    def metadata_max_idle_ms(self) -> int:
        """metadata.max.idle.ms."""

    @property
    def retry_backoff_ms(self) -> int:
        """retry.backoff.ms."""

    @property
    def retry_backoff_max_ms(self) -> int:
        """retry.backoff.max.ms."""

    @property
    def may_rebootstrap(self) -> bool:
        """Whether metadata.recovery.strategy is rebootstrap."""

    @property
    def rebootstrap_ms(self) -> int:
        """metadata.recovery.rebootstrap.trigger.ms."""


class ProducerMetadata:
    """The topics and nodes that the producer knows. `version` counts the responses, `leader_version` what may change leaders."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], options: MetadataOptions, draw: Callable[[], float]) -> None:
        self.cluster = Metadata(bootstrap, max_age_ms=options.metadata_max_age_ms)
        self.version = 0
        self.leader_version = 0
        self.error: KafkaError | None = None  # of the last request as a whole
        self.creates_topics = True
        self._options = options
        self._backoff = ExponentialBackoff(options.retry_backoff_ms, options.retry_backoff_max_ms, draw)
        self._topics: dict[str, float] = {}
        self._new: dict[str, None] = {}
        self._is_full_wanted = True
        self._attempts = 0
        self._refreshed_ms = _LONG_AGO
        self._succeeded_ms = _LONG_AGO
        self._failing_since_ms: float | None = None
        self._in_flight: list[str] | None = None
        self._is_full_in_flight = False
        self._available: dict[str, list[int]] = {}
        self._by_node: dict[int, list[TopicPartition]] | None = None

    # what is known

    def partition_count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, or None if the topic is not known."""
        return self.cluster.partition_counts.get(topic)

    def leader(self, key: TopicPartition) -> Node | None:
        """Return the leader of a partition, or None."""
        return self.cluster.leader_node(key)

    def leader_epoch(self, key: TopicPartition) -> int | None:
        """Return the epoch of a partition's leader, or None."""
        leader = self.cluster.leaders.get(key)
        return None if leader is None or leader.epoch < 0 else leader.epoch

    def available(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a leader."""
        found = self._available.get(topic)
        if found is None:
            count = self.partition_count(topic) or 0
            found = [index for index in range(count) if self.leader(TopicPartition(topic, index)) is not None]
            self._available[topic] = found
        return found

    def partitions_of(self, node_id: int) -> list[TopicPartition]:
        """Return the partitions that a node leads."""
        if self._by_node is None:
            self._by_node = {}
            for key, leader in self.cluster.leaders.items():
                self._by_node.setdefault(leader.node_id, []).append(key)
        return self._by_node.get(node_id, [])

    def topic_error(self, topic: str) -> KafkaError | None:
        """Return the last error of a topic, or None."""
        name = self.cluster.topic_errors.get(topic)
        return None if name is None else error_named(name, f"{topic}: {by_name(name).words}")

    def age_ms(self, now_ms: float) -> float:
        """Return the time since the last response."""
        return now_ms - self._succeeded_ms

    # what is wanted

    def use(self, topic: str, now_ms: float) -> None:
        """Keep a topic for a while longer, and request it if it is new."""
        if topic not in self._topics:
            self._new[topic] = None
            self._refreshed_ms = _LONG_AGO  # a new topic does not wait for the pause between refreshes
        self._topics[topic] = now_ms + self._options.metadata_max_idle_ms

    def begin_with(self, cluster: Metadata, now_ms: float) -> None:
        """Share what another client knows, which has just asked for the cluster."""
        self.cluster = cluster
        self.version += 1
        self.forget_views()
        self._is_full_wanted = False
        self._refreshed_ms = self._succeeded_ms = now_ms

    def learned(self, topic: str, now_ms: float) -> None:
        """Keep a topic that the other client has just asked for."""
        self._topics[topic] = now_ms + self._options.metadata_max_idle_ms
        self.version += 1
        self.forget_views()

    def want(self) -> None:
        """Request all topics again."""
        self._is_full_wanted = True

    def want_topic(self, topic: str) -> None:
        """Request one topic, by itself if it is new."""
        if topic not in self._new:
            self._is_full_wanted = True

    def wait_ms(self, now_ms: float) -> float:
        """Return the time until a request is due. Infinite while one is in flight."""
        if self._in_flight is not None:
            return float("inf")
        wanted_ms = 0.0
        if not self._is_full_wanted and not self._new:
            wanted_ms = self._succeeded_ms + self._options.metadata_max_age_ms - now_ms
            if wanted_ms >= max(self._refreshed_ms + self._options.retry_backoff_max_ms - now_ms, 0.0):
                return wanted_ms  # no pause is longer
        pause_ms = self._refreshed_ms + self._backoff.delay_ms(max(self._attempts - 1, 0)) - now_ms
        return max(wanted_ms, pause_ms, 0.0)

    def request(self, now_ms: float) -> MetadataRequest:
        """Return the request that is due."""
        self._is_full_in_flight = self._is_full_wanted or not self._new
        for topic, until_ms in list(self._topics.items()):
            if until_ms <= now_ms and topic not in self._new:
                del self._topics[topic]
        names = list(self._topics if self._is_full_in_flight else self._new)
        self._in_flight = names
        self._refreshed_ms = now_ms
        return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=self.creates_topics)

    def received(self, answer: Message | KafkaError, now_ms: float) -> None:
        """Handle the response to the request."""
        asked, self._in_flight = self._in_flight or [], None
        if isinstance(answer, KafkaError):
            self._fail(answer, now_ms)
            return
        assert isinstance(answer, MetadataResponse)
        code = by_code(answer.error_code).name
        if code != "NONE":
            self._fail(error_named(code), now_ms)
            return
        if not answer.brokers:  # a broker that has just started: Kafka's clients ask again
            self._fail(error_named("LEADER_NOT_AVAILABLE", "the broker does not know the cluster yet"), now_ms)
            return
        self._take(answer, asked, now_ms)

    def _take(self, answer: MetadataResponse, asked: list[str], now_ms: float) -> None:
        for name in asked:
            self._new.pop(name, None)
        if self._is_full_in_flight:
            self._is_full_wanted = False
        self.cluster.update(answer, now_ms)
        self.forget_views()
        self.error = None
        self.version += 1
        self._succeeded_ms = now_ms
        self._failing_since_ms = None
        is_incomplete = any(
            by_code(topic.error_code).reaction is Reaction.METADATA
            or any(by_code(one.error_code).reaction is Reaction.METADATA for one in topic.partitions)
            for topic in answer.topics
        )
        self._attempts = self._attempts + 1 if is_incomplete else 0
        self._is_full_wanted = self._is_full_wanted or is_incomplete

    def _fail(self, error: KafkaError, now_ms: float) -> None:
        self.error = error
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        self._attempts += 1
        if error.name == "REBOOTSTRAP_REQUIRED" and self._options.may_rebootstrap:
            self.rebootstrap()
        self.version += not error.retriable

    def maybe_rebootstrap(self, now_ms: float, *, are_all_failing: bool) -> None:
        """Return to the bootstrap servers if no known node can be reached, or none has answered for a long time (KIP-899, KIP-1102)."""
        if not self._options.may_rebootstrap or self.cluster.is_bootstrap:
            return
        since_ms = self._failing_since_ms
        is_late = since_ms is not None and now_ms - since_ms > self._options.rebootstrap_ms
        if are_all_failing or is_late:
            self.rebootstrap()

    def rebootstrap(self) -> None:
        """Forget the nodes except the bootstrap servers, and ask them."""
        self.cluster.rebootstrap()
        self._failing_since_ms = None
        self.forget_views()
        self._is_full_wanted = True

    def forget_views(self) -> None:
        """Forget what was derived from leaders and nodes."""
        self.leader_version += 1
        self._available.clear()
        self._by_node = None
