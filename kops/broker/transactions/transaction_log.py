"""The partitions of `__transaction_state` that this broker leads: appends with acks=all, and reading a log back in slices.

Source: Kafka's TransactionStateManager (loadTransactionMetadata, and its calls of ReplicaManager).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.coordinators.transactions.transaction_log import TRANSACTION_STATE_TOPIC
from kops.errors import KopsError
from kops.records.log_offsets import Isolation, TopicPartition, topic_partition
from kops.records.validation.validate import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.appends import ProduceAnswer
    from kops.broker.replicas.manager import ReplicaManager
    from kops.coordinators.transactions.state_manager import PartitionLoad, TransactionStateManager

log = logging.getLogger(__name__)

_ALL: Final = -1
_SLICE_BYTES: Final = 256 * 1024  # The most that one turn of the loop reads. Kafka's loader has its own thread.


class ReplicatedTransactionLog:
    """See `kops.coordinators.transactions.state_manager.TransactionLog`."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def append(self, partition: int, batch: bytes, timeout_ms: int, done: Callable[[str], None]) -> None:
        """Append with acks=all."""
        key = topic_partition(TRANSACTION_STATE_TOPIC, partition)

        def appended(answers: ProduceAnswer) -> None:
            try:
                done(answers[key].error)
            except KopsError:
                # An error here must not affect other waiting appends.
                log.exception("Error after an append to partition %d of the transaction log", partition)

        self._replicas.append_records(
            {key: batch}, _ALL, timeout_ms, appended, internal_topics_allowed=True, origin=AppendOrigin.COORDINATOR
        )

    def max_batch_size(self, partition: int) -> int | None:
        """Return `max.message.bytes`, or None if this broker has no log."""
        found = self._replicas.logs.get_log(topic_partition(TRANSACTION_STATE_TOPIC, partition))
        return None if found is None else found.config.max_message_bytes


class TransactionLogLoader:
    """Reads partitions in the loop, a slice at each turn.

    A new leader may have uncommitted records. If it dies, the next leader may not have them. So a load ends when the high
    watermark has passed all records that were read. No marker or answer then depends on a record that may be lost. Kafka does not wait.
    """

    def __init__(self, loop: Loop, replicas: ReplicaManager, manager: TransactionStateManager) -> None:
        self._loop = loop
        self._replicas = replicas
        self._manager = manager
        self._slice_bytes = min(_SLICE_BYTES, manager.config.load_buffer_size)

    def start(self, load: PartitionLoad, done: Callable[[], None]) -> None:
        """Read a partition. `done` is called at the end, but not if the partition gets another leader before that."""
        self._loop.call_soon(lambda: self._read(load, -1, done))

    def _read(self, load: PartitionLoad, offset: int, done: Callable[[], None]) -> None:
        if not self._manager.is_wanted(load):
            return
        key = TopicPartition(TRANSACTION_STATE_TOPIC, load.partition)
        source = self._replicas.logs.get_log(key)
        if source is None:
            log.warning("Attempted to load transaction metadata from %s-%d, but found no log", *key)
            done()
            return
        try:
            if offset < 0:
                offset = source.log_start_offset
            next_offset = offset
            if offset < self._end_offset(key):
                fetched = source.read(offset, self._slice_bytes, Isolation.LOG_END, min_one_batch=True)
                for batch in () if fetched.records is None else fetched.records.batches():
                    for record in batch.records():
                        if record.key is None:
                            raise KopsError("Transaction state log's key should not be null")
                        load.read(bytes(record.key), None if record.value is None else bytes(record.value))
                    next_offset = batch.last_offset + 1
        except KopsError:
            # As in Kafka, the records read so far are used.
            log.exception("Error loading transactions from transaction log %s-%d", *key)
            done()
            return
        if next_offset == offset:
            self._end_when_committed(load, offset, done)
        else:
            self._loop.call_soon(lambda: self._read(load, next_offset, done))

    def _end_when_committed(self, load: PartitionLoad, offset: int, done: Callable[[], None]) -> None:
        partition = self._replicas.hosted.online.get(TopicPartition(TRANSACTION_STATE_TOPIC, load.partition))
        leader_log = None if partition is None else partition.leader_log
        if partition is None or leader_log is None or leader_log.high_watermark >= offset:
            done()
            return
        found = partition

        def moved(high_watermark: int) -> None:
            if high_watermark >= offset or not self._manager.is_wanted(load):
                found.remove_high_watermark_listener(moved)
                self._loop.call_soon(end)

        def end() -> None:
            if self._manager.is_wanted(load):
                done()

        log.info("Loaded %s-%d up to offset %d; waiting until it is committed", TRANSACTION_STATE_TOPIC, load.partition, offset)
        found.add_high_watermark_listener(moved)

    def _end_offset(self, key: TopicPartition) -> int:
        """Return the log end offset, or -1 if this broker does not lead the partition."""
        partition = self._replicas.hosted.online.get(key)
        leader_log = None if partition is None else partition.leader_log
        return -1 if leader_log is None else leader_log.log_end_offset
