"""Reports to the controller in which log directory each replica is, in batches, until it has confirmed (KIP-858).

Source: Kafka's AssignmentsManager, AssignmentsManagerDeadlineFunction and Assignment. An assignment waits 0.1 s for others, to share a
request. Obsolete assignments (the topic was deleted, or the replica is no longer here) are dropped before sending.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import ApiError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import by_code
from kops.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.controller_link.lifecycle import Cancellable
    from kops.broker.controller_link.to_controller import ToController
    from kops.broker.network.events.loop import Loop
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.protocol.declaration import Message
    from kops.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse

log = logging.getLogger(__name__)

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2250
INITIAL_DELAY_MS: Final = 100
MAX_DELAY_MS: Final = 10_000
_JITTER: Final = 0.02

Key = tuple[bytes, int]
"""Topic id, partition."""


class _Assignment(NamedTuple):
    directory_id: bytes
    on_success: Callable[[], object]


class AssignmentsManager:
    """The assignments of one broker. `image()` returns the broker's present metadata, `draw()` random numbers from 0 to below 1."""

    def __init__(
        self, loop: Loop, channel: ToController, node_id: int, image: Callable[[], MetadataImage], *, draw: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._node_id = node_id
        self._image = image
        self._backoff = ExponentialBackoff(INITIAL_DELAY_MS, MAX_DELAY_MS, draw, jitter=_JITTER)
        self._ready: dict[Key, _Assignment] = {}
        self._in_flight: dict[Key, _Assignment] = {}
        self._failure_count = 0
        self._next: tuple[float, Cancellable] | None = None  # Its time (monotonic, ms), and the timer.
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """The number of assignments that the controller has not confirmed (Kafka's gauge QueuedReplicaToDirAssignments)."""
        return len(self._ready) + len(self._in_flight)

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, on_success: Callable[[], object] = lambda: None) -> None:
        """Report that a replica is in a directory. A later report replaces an earlier one. Calls `on_success` when the controller has
        confirmed."""
        self._ready[topic_id, partition] = _Assignment(directory_id, on_success)
        self._schedule()

    def close(self) -> None:
        """Report nothing more."""
        self._is_closed = True
        if self._next is not None:
            self._next[1].cancel()
            self._next = None

    # sending ----------------------------------------------------------------------------------------------------------------------

    def _delay_ms(self) -> float:
        if self._failure_count:
            return self._backoff.delay_ms(self._failure_count)
        is_full = len(self._ready) > MAX_ASSIGNMENTS_PER_REQUEST and not self._in_flight
        return 0 if is_full else INITIAL_DELAY_MS

    def _schedule(self) -> None:
        if self._is_closed:
            return
        delay_ms = self._delay_ms()
        due_ms = self._loop.monotonic_ms() + delay_ms
        if self._next is not None:
            if self._next[0] <= due_ms:
                return
            self._next[1].cancel()
        self._next = due_ms, self._loop.call_later(delay_ms, self._send)

    def _send(self) -> None:
        self._next = None
        if self._in_flight:
            return
        image = self._image()
        taken = list(self._ready)[:MAX_ASSIGNMENTS_PER_REQUEST]
        found = {key: self._ready.pop(key) for key in taken}
        valid = {key: assignment for key, assignment in found.items() if self._is_valid(key, image)}
        log.debug("Sending %d directory assignments, %d are obsolete", len(valid), len(found) - len(valid))
        if valid:
            broker = image.cluster.brokers.get(self._node_id)
            self._in_flight = valid
            self._channel.send(_request(self._node_id, -1 if broker is None else broker.epoch, valid), self._on_answer)
        elif self._ready:
            self._schedule()

    def _is_valid(self, key: Key, image: MetadataImage) -> bool:
        topic = image.topics.by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return partition is not None and self._node_id in partition.replicas

    # answers ----------------------------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Message | ApiError) -> None:
        from kops.protocol.messages import AssignReplicasToDirsResponse

        if self._is_closed:
            return
        sent, self._in_flight = self._in_flight, {}
        if isinstance(answer, ApiError):
            self._failed(sent, answer.name)
        else:
            assert isinstance(answer, AssignReplicasToDirsResponse)
            if answer.error_code:
                self._failed(sent, by_code(answer.error_code).name)
            else:
                self._answered(sent, answer)
        if self._ready:
            self._schedule()

    def _failed(self, sent: Mapping[Key, _Assignment], reason: str) -> None:
        self._failure_count += 1
        log.error("%d directory assignments failed: %s. Retrying.", len(sent), reason)
        self._ready = {**sent, **self._ready}

    def _answered(self, sent: dict[Key, _Assignment], answer: AssignReplicasToDirsResponse) -> None:
        self._failure_count = 0
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    assignment = sent.pop(key, None)
                    if assignment is None:
                        log.error("Partition %d of topic id %s was in the answer, but not in the request", key[1], key[0].hex())
                    elif partition.error_code:
                        log.info("Partition %d of topic id %s: %s", key[1], key[0].hex(), by_code(partition.error_code).name)
                        self._ready.setdefault(key, assignment)
                    else:
                        assignment.on_success()
        for key, assignment in sent.items():
            self._ready.setdefault(key, assignment)


def _request(node_id: int, broker_epoch: int, assignments: Mapping[Key, _Assignment]) -> AssignReplicasToDirsRequest:
    directories: dict[bytes, DirectoryData] = {}
    topics: dict[tuple[bytes, bytes], TopicData] = {}
    for (topic_id, partition), assignment in assignments.items():
        directory_id = assignment.directory_id
        directory = directories.setdefault(directory_id, DirectoryData(directory_id))
        topic = topics.get((directory_id, topic_id))
        if topic is None:
            topic = topics[directory_id, topic_id] = TopicData(topic_id)
            directory.topics.append(topic)
        topic.partitions.append(PartitionData(partition))
    return AssignReplicasToDirsRequest(node_id, broker_epoch, list(directories.values()))
