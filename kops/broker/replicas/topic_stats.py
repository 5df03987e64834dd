"""The traffic of a broker's topics: records, bytes and requests, counted since its start.

Source: Kafka's BrokerTopicStats and BrokerTopicMetrics. Kafka marks a meter of the topic and one of all topics. Here only the topic's
counters grow, because this happens for every partition of every request. The sum is computed on request. The kinds of invalid records, the
bytes of reassignments and remote storage are not counted. Nothing is converted for a Fetch.
"""

from __future__ import annotations

from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PREFIX: Final = "kafka.server:type=BrokerTopicMetrics,name="
NAMES: Final = {  # The counters of `TopicStats`, with Kafka's names.
    "messages_in": "MessagesInPerSec",
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "bytes_rejected": "BytesRejectedPerSec",
    "total_produce_requests": "TotalProduceRequestsPerSec",
    "failed_produce_requests": "FailedProduceRequestsPerSec",
    "total_fetch_requests": "TotalFetchRequestsPerSec",
    "failed_fetch_requests": "FailedFetchRequestsPerSec",
    "total_share_fetch_requests": "TotalShareFetchRequestsPerSec",
    "failed_share_fetch_requests": "FailedShareFetchRequestsPerSec",
    "total_share_acknowledgement_requests": "TotalShareAcknowledgementRequestsPerSec",
    "failed_share_acknowledgement_requests": "FailedShareAcknowledgementRequestsPerSec",
    "produce_message_conversions": "ProduceMessageConversionsPerSec",
}

_numbers: Callable[[TopicStats], tuple[int, ...]] = attrgetter(*NAMES)
_AT_ONCE: Final = 50


class TopicStats:
    """The counters of one topic. Bytes in are those of requests, bytes out those sent to consumers, bytes rejected those of too large
    batches. A request counts once for each partition, or for share groups once for each topic. Conversions are records that were
    recompressed.

    Failures are the broker's own: requests to the wrong broker and invalid records do not count.
    """

    __slots__ = tuple(NAMES)

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0
        self.total_share_fetch_requests = 0
        self.failed_share_fetch_requests = 0
        self.total_share_acknowledgement_requests = 0
        self.failed_share_acknowledgement_requests = 0
        self.produce_message_conversions = 0


class BrokerTopicStats:
    """The counters of all topics, and the bytes sent to other brokers. The fetchers know the bytes received from them."""

    __slots__ = ("_gone", "replication_bytes_out", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self.replication_bytes_out = 0
        self._gone = TopicStats()

    def of(self, topic: str) -> TopicStats:
        """Return the counters of a topic, for the caller to increase."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicStats()
        return found

    def forget(self, topic: str) -> None:
        """Drop a topic that no longer has a replica here. The sums keep its counts."""
        found = self.topics.pop(topic, None)
        if found is not None:
            for name in NAMES:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(found, name))

    def metrics(self, replication_bytes_in: int) -> Iterator[dict[str, float]]:
        """Yield the metrics by Kafka's names, a rate as the number since the start: first those of all topics, then those of a few topics
        at a time."""
        sums = [*_numbers(self._gone)]
        for stats in self.topics.values():
            sums = list(map(add, sums, _numbers(stats)))
        told: dict[str, float] = {f"{_PREFIX}{name}": count for name, count in zip(NAMES.values(), sums, strict=True)}
        told[f"{_PREFIX}ReplicationBytesInPerSec"] = replication_bytes_in
        told[f"{_PREFIX}ReplicationBytesOutPerSec"] = self.replication_bytes_out
        yield told
        topics = sorted(self.topics.items())
        for first in range(0, len(topics), _AT_ONCE):
            yield {
                f"{_PREFIX}{name},topic={topic}": count
                for topic, stats in topics[first : first + _AT_ONCE]
                for name, count in zip(NAMES.values(), _numbers(stats), strict=True)
                if count
            }
