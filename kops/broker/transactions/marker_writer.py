"""Writes markers into the partitions that this broker leads (Kafka's KafkaApis.handleWriteTxnMarkersRequest).

A marker is a control batch. For offsets in a transaction, the group coordinator of the partition writes the marker itself.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.protocol.errors import by_name
from kops.protocol.messages import WriteTxnMarkersResponse
from kops.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from kops.records.build import end_txn_marker
from kops.records.log_offsets import TopicPartition, topic_partition
from kops.records.validation.validate import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kops.broker.replicas.manager import ReplicaManager
    from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker
    from kops.replication.waiting.delayed import PartitionResponse

log = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"
_ALL: Final = -1
_NOT_READY: Final = frozenset({"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"})
Errors = dict[TopicPartition, str]


class MarkerWriter:
    """Writes markers. `complete_in_groups(partition, marker, done)` does so in a partition of `__consumer_offsets`; `done` gets the
    error."""

    def __init__(
        self,
        replicas: ReplicaManager,
        complete_in_groups: Callable[[TopicPartition, WritableTxnMarker, Callable[[str], None]], None],
        *,
        now_ms: Callable[[], int],
        request_timeout_ms: int,
    ) -> None:
        self._replicas = replicas
        self._complete_in_groups = complete_in_groups
        self._now_ms = now_ms
        self._request_timeout_ms = request_timeout_ms

    def write(self, markers: Sequence[WritableTxnMarker], done: Callable[[WriteTxnMarkersResponse], None]) -> None:
        """Write the markers; `done` gets the response when all replicas have them."""
        _Writing(markers, done).run(self._write)

    def _write(self, marker: WritableTxnMarker, partition_done: Callable[[TopicPartition, str], None]) -> None:
        online = self._replicas.hosted.online
        named = (topic_partition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes)
        partitions = list(dict.fromkeys(named))
        batches: dict[TopicPartition, bytes] = {}
        in_groups: deque[TopicPartition] = deque()
        for key in partitions:
            if key not in online:
                partition_done(key, "UNKNOWN_TOPIC_OR_PARTITION")
            elif key.topic == CONSUMER_OFFSETS:
                in_groups.append(key)
            else:
                batches[key] = end_txn_marker(
                    0,
                    self._now_ms(),
                    commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                )

        def group_done(key: TopicPartition, error: str) -> None:
            partition_done(key, _told(error))

        for key in in_groups:
            self._complete_in_groups(key, marker, partial(group_done, key))

        def appended(answers: Mapping[TopicPartition, PartitionResponse]) -> None:
            for key, answer in answers.items():
                partition_done(key, answer.error)

        if batches:
            self._replicas.append_records(
                batches,
                _ALL,
                self._request_timeout_ms,
                appended,
                internal_topics_allowed=True,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )


class _Writing:
    """A request in progress."""

    def __init__(self, markers: Sequence[WritableTxnMarker], done: Callable[[WriteTxnMarkersResponse], None]) -> None:
        self._markers = markers
        self._done = done
        self._errors: dict[int, Errors] = {}
        self._left = 0

    def run(self, write: Callable[[WritableTxnMarker, Callable[[TopicPartition, str], None]], None]) -> None:
        self._left = 1 + sum(
            len({(topic.name, number) for topic in marker.topics for number in topic.partition_indexes}) for marker in self._markers
        )
        for marker in self._markers:
            if any(topic.partition_indexes for topic in marker.topics):  # The response has no entry for a marker without partitions.
                errors = self._errors.setdefault(marker.producer_id, {})
                write(marker, partial(self._partition_done, errors))
        self._count_down()

    def _partition_done(self, errors: Errors, key: TopicPartition, error: str) -> None:
        errors[key] = error
        self._count_down()

    def _count_down(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(WriteTxnMarkersResponse([_result(*found) for found in self._errors.items()]))


def _result(producer_id: int, errors: Errors) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for key, error in errors.items():
        topic = topics.setdefault(key.topic, WritableTxnMarkerTopicResult(key.topic))
        topic.partitions.append(WritableTxnMarkerPartitionResult(key.partition, by_name(error).code))
    return WritableTxnMarkerResult(producer_id, list(topics.values()))


def _told(error: str) -> str:
    """Replace errors of a group coordinator that the transaction coordinator does not expect with one that makes it retry."""
    return "NOT_LEADER_OR_FOLLOWER" if error in _NOT_READY else error
