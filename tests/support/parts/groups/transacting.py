"""A transaction coordinator without a broker. Its log is in memory, the test answers for the brokers, and the clock is the test's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kops.coordinators.transactions.config import TransactionConfig
from kops.coordinators.transactions.coordinator import InitProducerIdResult, TransactionCoordinator
from kops.coordinators.transactions.markers import MarkerRequest, TransactionMarkers
from kops.coordinators.transactions.state_manager import TransactionStateManager
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import WriteTxnMarkersResponse
from kops.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from kops.records.log_offsets import TopicPartition


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a matcher with Python's rules."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ApiError("INVALID_REGULAR_EXPRESSION", f"{pattern} is not a valid regular expression") from error
    return lambda text: compiled.fullmatch(text) is not None


class Node(NamedTuple):
    """A broker."""

    id: int
    host: str = "host"
    port: int = 9092


class Append(NamedTuple):
    """A batch that is being appended to the log."""

    partition: int
    batch: bytes
    timeout_ms: int
    done: Callable[[str], None]


@dataclass
class MemoryLog:
    """The log. `written` holds the batches by partition. While `is_parking`, appends wait in `waiting`. Else they end with `error`."""

    error: str = "NONE"
    is_parking: bool = False
    max_size: int | None = 1_048_588
    waiting: list[Append] = field(default_factory=list)
    written: list[tuple[int, bytes]] = field(default_factory=list)

    def append(self, partition: int, batch: bytes, timeout_ms: int, done: Callable[[str], None]) -> None:
        append = Append(partition, batch, timeout_ms, done)
        if self.is_parking:
            self.waiting.append(append)
        else:
            self._end(append, self.error)

    def max_batch_size(self, partition: int) -> int | None:
        return self.max_size

    def end_next(self, error: str = "NONE") -> None:
        """End the oldest waiting append."""
        self._end(self.waiting.pop(0), error)

    def _end(self, append: Append, error: str) -> None:
        if error == "NONE":
            self.written.append((append.partition, append.batch))
        append.done(error)


@dataclass
class World:
    """A coordinator of all partitions, or only of those that `elect` is called for.

    `leaders` has the leaders of partitions; 1 leads the others.
    """

    config: TransactionConfig = field(default_factory=TransactionConfig)
    version: int = 2
    now_ms: int = 1_700_000_000_000
    next_producer_id: int = 1000
    partition_count: int = 1
    leaders: dict[TopicPartition, Node | None] = field(default_factory=dict)
    woken: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = MemoryLog()
        self.manager = TransactionStateManager(
            self.config,
            self.log,
            partition_count=self.partition_count,
            now_ms=lambda: self.now_ms,
            transaction_version=lambda: self.version,
            matcher=matcher,
        )
        self.markers = TransactionMarkers(self.manager, self.leader_of, self.woken.append)
        self.coordinator = TransactionCoordinator(self.manager, self.markers, self.new_producer_id)

    def leader_of(self, topic: str, partition: int) -> Node | None:
        return self.leaders.get(TopicPartition(topic, partition), Node(1))

    def new_producer_id(self) -> int:
        if self.next_producer_id < 0:
            raise ApiError("COORDINATOR_LOAD_IN_PROGRESS")
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def elect(self, epoch: int = 3, partition: int = 0) -> World:
        """Lead a partition whose log is empty."""
        self.coordinator.end_load(self.coordinator.begin_load(partition, epoch))
        return self

    def init(self, expected: tuple[int, int] | None = None, *, name: str = "t", timeout_ms: int = 60_000, **options: bool) -> Any:
        """Return (producer id, epoch, error), or None if there is no answer yet."""
        told: list[InitProducerIdResult] = []
        self.coordinator.init_producer_id(name, timeout_ms, expected, told.append, **options)
        return tuple(told[0]) if told else None

    def add(self, producer: tuple[int, int], *partitions: tuple[str, int], name: str = "t", version: int = 2) -> str | None:
        """Return the error, or None if there is no answer yet."""
        told: list[str] = []
        named = [TopicPartition(*each) for each in partitions]
        self.coordinator.add_partitions(name, *producer, named, version, told.append)
        return told[0] if told else None

    def end(self, producer: tuple[int, int], *, is_commit: bool = True, name: str = "t", version: int = 2) -> Any:
        """Return (error, producer id, epoch), or None if there is no answer yet."""
        told: list[Any] = []

        def done(*answer: Any) -> None:
            told.append(answer)

        self.coordinator.end_transaction(name, *producer, version, done, is_commit=is_commit)
        return told[0] if told else None

    def state(self, name: str = "t") -> str:
        """Return the state of an id."""
        known = self.manager.get(name)
        assert known is not None
        return known.metadata.state.label

    def answer_markers(self, error: str = "NONE") -> list[MarkerRequest]:
        """Let all brokers answer their requests. Return these requests."""
        requests = self.markers.take_requests()
        for request in requests:
            self.markers.on_answer(request, answer_of(request, error))
        return requests


def answer_of(request: MarkerRequest, error: str = "NONE") -> WriteTxnMarkersResponse:
    """Return a broker's answer with this error for all partitions."""
    code = by_name(error).code
    made, results = WritableTxnMarkerPartitionResult, []
    for marker in request.message().markers:
        topics = [
            WritableTxnMarkerTopicResult(topic.name, [made(each, code) for each in topic.partition_indexes]) for topic in marker.topics
        ]
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(results)
