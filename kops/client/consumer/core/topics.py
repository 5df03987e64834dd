"""Looks up the partitions of topics for a program, apart from the metadata of the topics that it reads.

Source: Kafka's TopicMetadataFetcher, TopicMetadataRequestManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.client.consumer.errors import as_kafka, error_named
from kops.client.consumer.parts.requests import FOREVER, Outcome, Outgoing
from kops.client.consumer.records import PartitionInfo
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import MetadataRequest, MetadataResponse
from kops.protocol.messages.metadata_request import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.requests import Links
    from kops.client.metadata import Metadata
    from kops.protocol.declaration import Message
    from kops.protocol.messages.metadata_response import MetadataResponseTopic

Found = dict[str, list[PartitionInfo]]


class _Lookup:
    def __init__(self, topics: Sequence[str] | None) -> None:
        self.topics = topics
        self.outcome = Outcome()
        self.is_in_flight = False
        self.retry_ms = 0.0
        self.failures = 0


class TopicLookups:
    """The questions about topics that have no answer yet. `backoff_ms(failures)` is the pause after a failure."""

    def __init__(self, options: ConsumerOptions, cluster: Metadata, links: Links, backoff_ms: Callable[[int], float]) -> None:
        self._options = options
        self._cluster = cluster
        self._links = links
        self._backoff_ms = backoff_ms
        self._lookups: list[_Lookup] = []

    def look_up(self, topics: Sequence[str] | None) -> Outcome:
        """Ask for these topics, or for all. The outcome has the partitions of those that exist."""
        lookup = _Lookup(topics)
        self._lookups.append(lookup)
        return lookup.outcome

    def turn(self, now_ms: float) -> list[Outgoing]:
        """Return the requests to send now."""
        if not self._lookups:
            return []
        self._lookups = [lookup for lookup in self._lookups if not lookup.outcome.is_done]
        requests = []
        for lookup in self._lookups:
            node = self._links.least_loaded(self._cluster.nodes.values())
            if lookup.is_in_flight or now_ms < lookup.retry_ms or node is None or not self._links.is_ready(node):
                continue
            lookup.is_in_flight = True
            topics = None if lookup.topics is None else [MetadataRequestTopic(name=name) for name in lookup.topics]
            message = MetadataRequest(topics=topics, allow_auto_topic_creation=self._options.may_create_topics)

            def came(answer: Message | ApiError, later_ms: float, lookup: _Lookup = lookup) -> None:
                self._came(lookup, answer, later_ms)

            requests.append(Outgoing(node, message, came))
        return requests

    def wake_ms(self, now_ms: float) -> float:
        """Return the time of the next retry."""
        times = [max(one.retry_ms, now_ms + self._options.retry_backoff_ms) for one in self._lookups if not one.is_in_flight]
        return min(times, default=FOREVER)

    def _came(self, lookup: _Lookup, answer: Message | ApiError, now_ms: float) -> None:
        lookup.is_in_flight = False
        error = as_kafka(answer) if isinstance(answer, ApiError) else None
        found: Found = {}
        if isinstance(answer, MetadataResponse):
            for topic in answer.topics:
                kind = by_code(topic.error_code)
                if kind.name == "NONE":
                    found[topic.name or ""] = _partitions(topic.name or "", topic)
                elif kind.name != "UNKNOWN_TOPIC_OR_PARTITION":
                    error = error_named(kind.name, f"{topic.name}: {kind.words}")
        if error is None:
            lookup.outcome.succeed(found)
        elif error.retriable:
            lookup.retry_ms = now_ms + self._backoff_ms(lookup.failures)
            lookup.failures += 1
        else:
            lookup.outcome.fail(error)


def _partitions(name: str, topic: MetadataResponseTopic) -> list[PartitionInfo]:
    return [
        PartitionInfo(name, one.partition_index, one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes), tuple(one.offline_replicas))
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
