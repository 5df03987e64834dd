"""What goes through the topics of a broker: records, bytes and requests, counted since its start.

Source: Kafka's BrokerTopicStats and BrokerTopicMetrics. Kafka marks a meter of the topic and one of all topics; here only the topic's
numbers grow, as this happens for every partition of every request, and the sum is made when somebody asks. Conversions, the kinds of
invalid records, the bytes of reassignments, share groups and remote storage are not counted.
"""

from __future__ import annotations

from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PREFIX: Final = "kafka.server:type=BrokerTopicMetrics,name="
_NAMES: Final = {
    "messages_in": "MessagesInPerSec",
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "bytes_rejected": "BytesRejectedPerSec",
    "total_produce_requests": "TotalProduceRequestsPerSec",
    "failed_produce_requests": "FailedProduceRequestsPerSec",
    "total_fetch_requests": "TotalFetchRequestsPerSec",
    "failed_fetch_requests": "FailedFetchRequestsPerSec",
}

_numbers: Callable[[TopicStats], tuple[int, ...]] = attrgetter(*_NAMES)
_AT_ONCE: Final = 50


class TopicStats:
    """One topic. Bytes in are those of the requests, bytes out those that went to consumers, bytes rejected those of too large batches.
    A request counts once a partition.

    Failures are those that are a broker's own: who asks the wrong broker, or sends what no log takes, is not counted.
    """

    __slots__ = tuple(_NAMES)

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0


class BrokerTopicStats:
    """All topics, and the bytes that went to other brokers; what came from them is known where they are followed."""

    __slots__ = ("_gone", "replication_bytes_out", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self.replication_bytes_out = 0
        self._gone = TopicStats()

    def of(self, topic: str) -> TopicStats:
        """A topic's numbers, to be added to."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicStats()
        return found

    def forget(self, topic: str) -> None:
        """No replica of it is here any more; the sums keep what was."""
        found = self.topics.pop(topic, None)
        if found is not None:
            for name in _NAMES:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(found, name))

    def metrics(self, replication_bytes_in: int) -> Iterator[dict[str, float]]:
        """By Kafka's names, a rate as the number since the start: of all topics, then of some topics at a time what they have."""
        sums = [*_numbers(self._gone)]
        for stats in self.topics.values():
            sums = list(map(add, sums, _numbers(stats)))
        told: dict[str, float] = {f"{_PREFIX}{name}": count for name, count in zip(_NAMES.values(), sums, strict=True)}
        told[f"{_PREFIX}ReplicationBytesInPerSec"] = replication_bytes_in
        told[f"{_PREFIX}ReplicationBytesOutPerSec"] = self.replication_bytes_out
        yield told
        topics = sorted(self.topics.items())
        for first in range(0, len(topics), _AT_ONCE):
            yield {
                f"{_PREFIX}{name},topic={topic}": count
                for topic, stats in topics[first : first + _AT_ONCE]
                for name, count in zip(_NAMES.values(), _numbers(stats), strict=True)
                if count
            }
