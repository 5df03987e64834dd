"""The queue of ISR changes for the controller: at most one for each partition, all waiting ones in one request, one request at a time.

Source: Kafka's DefaultAlterPartitionManager (KIP-497). `next_request` returns the next request, and `on_response` and `on_failure` receive
its outcome. A request without an answer is sent again until there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.protocol import errors
from kops.protocol.messages.alter_partition_request import AlterPartitionRequest
from kops.protocol.messages.alter_partition_request import BrokerState as RequestedBroker
from kops.protocol.messages.alter_partition_request import PartitionData as RequestedPartition
from kops.protocol.messages.alter_partition_request import TopicData as RequestedTopic
from kops.replication.leading.isr import RECOVERED, RECOVERING, LeaderAndIsr

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.protocol.messages.alter_partition_response import AlterPartitionResponse
    from kops.protocol.messages.alter_partition_response import PartitionData as AnsweredPartition
    from kops.replication.leading.isr import ProposedIsr

RETRY_DELAY_MS: Final = 50


class _Item(NamedTuple):
    proposed: ProposedIsr
    done: Callable[[LeaderAndIsr | str], None]


class AlterPartitionManager:
    """The queue of one broker. `broker_epoch` returns the epoch of its registration. `on_waiting` is called when there is something to
    send.
    """

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], on_waiting: Callable[[], None]) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._on_waiting = on_waiting
        self._unsent: dict[tuple[bytes, int], _Item] = {}
        self._in_flight: dict[tuple[bytes, int], _Item] | None = None
        self._not_before_ms = 0

    def submit(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        """Propose an ISR. The outcome is OPERATION_NOT_ATTEMPTED if the partition is waiting for another answer."""
        key = (topic_id, partition)
        if key in self._unsent:
            done("OPERATION_NOT_ATTEMPTED")
            return
        self._unsent[key] = _Item(proposed, done)
        self._on_waiting()

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next request, or None while a request is in flight or nothing is waiting."""
        return self._not_before_ms if self._unsent and self._in_flight is None else None

    def next_request(self, now_ms: int) -> AlterPartitionRequest | None:
        """Return the request to send to the controller now, or None."""
        if self.next_due_ms is None or now_ms < self._not_before_ms:
            return None
        self._in_flight = dict(self._unsent)
        topics: dict[bytes, RequestedTopic] = {}
        for (topic_id, partition), item in self._in_flight.items():
            topic = topics.setdefault(topic_id, RequestedTopic(topic_id=topic_id))
            proposed = item.proposed
            topic.partitions.append(
                RequestedPartition(
                    partition_index=partition,
                    leader_epoch=proposed.leader_epoch,
                    new_isr_with_epochs=[RequestedBroker(*member) for member in proposed.isr],
                    leader_recovery_state=proposed.leader_recovery_state,
                    partition_epoch=proposed.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values()))

    def on_failure(self, now_ms: int) -> None:
        """Handle a lost request."""
        self._in_flight = None
        self._not_before_ms = now_ms + RETRY_DELAY_MS

    def on_response(self, response: AlterPartitionResponse, now_ms: int) -> None:
        """Give each partition its answer. A partition that the response omits is sent again."""
        in_flight, self._in_flight = self._in_flight, None
        if response.error_code or in_flight is None:
            # An error of the whole request: STALE_BROKER_EPOCH, CLUSTER_AUTHORIZATION_FAILED …
            self._not_before_ms = now_ms + RETRY_DELAY_MS
            return
        self._not_before_ms = now_ms
        answers = {
            (topic.topic_id, partition.partition_index): _answer(partition) for topic in response.topics for partition in topic.partitions
        }
        for key, item in in_flight.items():
            answer = answers.get(key)
            if answer is not None:
                del self._unsent[key]
                item.done(answer)
        if self._unsent:
            self._on_waiting()


def _answer(partition: AnsweredPartition) -> LeaderAndIsr | str:
    if partition.error_code:
        return errors.by_code(partition.error_code).name
    if partition.leader_recovery_state not in (RECOVERED, RECOVERING):
        return "UNKNOWN_SERVER_ERROR"
    return LeaderAndIsr(
        partition.leader_id, partition.leader_epoch, tuple(partition.isr), partition.leader_recovery_state, partition.partition_epoch
    )
