"""Appends of coordinators to the partitions that this broker leads (Kafka's CoordinatorPartitionWriter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kops.errors import ApiError
from kops.records.validation.validate import AppendOrigin

if TYPE_CHECKING:
    from kops.broker.replicas.appends import ProduceAnswer
    from kops.broker.replicas.manager import ReplicaManager
    from kops.coordinators.runtime.promise import Promise
    from kops.coordinators.runtime.surroundings import HighWatermarkListener
    from kops.records.log_offsets import TopicPartition

StartVerification = Callable[["TopicPartition", str, int, int, int], "Promise[Any]"]
"""Verifies a transaction with its coordinator: (partition, transactional id, producer id, producer epoch, version of TxnOffsetCommit)."""
_LEADER_ONLY: Final = 1
_NO_TIMEOUT: Final = 0


class LogWriter:
    """See `kops.coordinators.runtime.surroundings.PartitionWriter`."""

    def __init__(self, replicas: ReplicaManager, start_verification: StartVerification) -> None:
        self._replicas = replicas
        self.start_verification = start_verification

    def register_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Call `listener` whenever the high watermark moves, until the partition is deleted or its disk fails."""
        partition = self._replicas.hosted.online.get(key)
        if partition is not None:
            partition.add_high_watermark_listener(listener)

    def deregister_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        """Stop calling the listener."""
        partition = self._replicas.hosted.online.get(key)
        if partition is not None:
            partition.remove_high_watermark_listener(listener)

    def max_batch_bytes(self, key: TopicPartition) -> int:
        """Return the topic's `max.message.bytes`. Raises ApiError NOT_LEADER_OR_FOLLOWER if there is no log."""
        partition = self._replicas.hosted.online.get(key)
        if partition is None or partition.log is None:
            raise ApiError("NOT_LEADER_OR_FOLLOWER")
        return partition.log.config.max_message_bytes

    def append(self, key: TopicPartition, guard: Any, batch: bytes, transaction_version: int) -> int:
        """Append to the leader's log and return the log end offset. Raises the append's ApiError."""
        answers: list[ProduceAnswer] = []
        self._replicas.append_records(
            {key: batch},
            _LEADER_ONLY,
            _NO_TIMEOUT,
            answers.append,
            internal_topics_allowed=True,
            origin=AppendOrigin.COORDINATOR,
            guards={} if guard is None else {key: guard},
            transaction_version=transaction_version,
        )
        answer = answers[0][key]
        if answer.error != "NONE":
            raise ApiError(answer.error, answer.error_message or "")
        return answer.required_offset
