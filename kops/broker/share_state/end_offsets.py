"""Looks up the ends of partitions on their leaders, for the lag of share groups.

Source: NetworkPartitionMetadataClient. Partitions that this broker leads need no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.broker.network.peer import Peers
from kops.broker.share_state.network_persister import peer_settings
from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import by_code
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kops.protocol.messages.list_offsets_response import ListOffsetsResponse
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.metadata.image.metadata_cache import BrokerNode, MetadataCache
    from kops.protocol.declaration import Message

_LATEST: Final = -1
_NO_EPOCH: Final = -1
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_BACKOFF_MS: Final = 1000
_BACKOFF_MAX_MS: Final = 30_000
_MAX_ATTEMPTS: Final = 5
_RETRIABLE: Final = ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")


class EndOffset(NamedTuple):
    """The offset after the last committed record (the high watermark), or -1 and an error."""

    offset: int
    error: str = "NONE"


Ends = dict[TopicPartition, EndOffset]


class EndOffsets:
    """Asks the leaders. `draw()` returns random numbers in [0, 1) for the back-off."""

    def __init__(self, loop: Loop, config: BrokerConfig, cache: MetadataCache, replicas: ReplicaManager, draw: Callable[[], float]) -> None:
        self._loop = loop
        self._config = config
        self._cache = cache
        self._replicas = replicas
        self._backoff = ExponentialBackoff(_BACKOFF_MS, _BACKOFF_MAX_MS, draw)
        self._peers = Peers(loop, draw=draw, settings=peer_settings(config, "NetworkPartitionMetadataClient"))
        self._is_closed = False

    def close(self) -> None:
        """Send no more requests."""
        self._is_closed = True
        self._peers.close()

    def find(self, partitions: Iterable[TopicPartition]) -> Promise[Mapping[TopicPartition, EndOffset]]:
        """Return the ends of these partitions. The promise does not fail."""
        ends: Ends = {}
        by_leader: dict[BrokerNode, list[TopicPartition]] = {}
        for key in partitions:
            leader = self._cache.leader_endpoint(key.topic, key.partition, self._config.inter_broker_listener_name)
            if leader is None or leader.id < 0:
                ends[key] = EndOffset(-1, "LEADER_NOT_AVAILABLE")
            elif leader.id == self._config.node_id:
                ends[key] = self._own_end(key)
            else:
                by_leader.setdefault(leader, []).append(key)
        promise: Promise[Mapping[TopicPartition, EndOffset]] = Promise()
        left = len(by_leader)

        def found(some: Ends) -> None:
            nonlocal left
            left -= 1
            ends.update(some)
            if not left:
                promise.complete(ends)

        if not by_leader:
            promise.complete(ends)
        for leader, keys in by_leader.items():
            self._ask(leader, keys, found, 0)
        return promise

    def _own_end(self, key: TopicPartition) -> EndOffset:
        try:
            found = self._replicas.list_offsets(
                key, _LATEST, replica_id=_CONSUMER, isolation_level=_READ_UNCOMMITTED, current_leader_epoch=None
            )
        except ApiError as error:
            return EndOffset(-1, error.name)
        return EndOffset(found.offset)

    def _ask(self, leader: BrokerNode, keys: list[TopicPartition], found: Callable[[Ends], None], attempts: int) -> None:
        def answered(answer: Message | ApiError) -> None:
            if self._is_closed:
                return
            if isinstance(answer, ApiError):
                if answer.name in _RETRIABLE and attempts < _MAX_ATTEMPTS:
                    self._loop.call_later(self._backoff.delay_ms(attempts + 1), lambda: self._ask(leader, keys, found, attempts + 1))
                    return
                error = "NETWORK_EXCEPTION" if answer.name in _RETRIABLE else "UNKNOWN_SERVER_ERROR"
                found(dict.fromkeys(keys, EndOffset(-1, error)))
                return
            assert isinstance(answer, ListOffsetsResponse)
            told = {
                TopicPartition(topic.name, each.partition_index): EndOffset(each.offset, by_code(each.error_code).name)
                for topic in answer.topics
                for each in topic.partitions
            }
            found({key: told.get(key, EndOffset(-1, "UNKNOWN_TOPIC_OR_PARTITION")) for key in keys})

        if not self._is_closed:
            self._peers.get(leader.id, leader.host, leader.port).send(_request(keys), answered)


def _request(keys: Iterable[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for key in keys:
        topic = topics.setdefault(key.topic, ListOffsetsTopic(key.topic))
        topic.partitions.append(ListOffsetsPartition(key.partition, _NO_EPOCH, _LATEST))
    return ListOffsetsRequest(_CONSUMER, _READ_UNCOMMITTED, list(topics.values()))
