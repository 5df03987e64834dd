"""The producer id, epoch and sequence numbers of an idempotent producer.

Source: Kafka's TransactionManager (its part for producers without a transactional id), TxnPartitionMap, TxnPartitionEntry. After a gap in
the sequence of a partition the client raises the epoch without a request: the broker accepts a higher epoch that begins with number 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr

from kops.client.errors import OutOfOrderSequenceError, UnknownProducerIdError
from kops.client.producer.core.batches import NO_SEQUENCE, ProducerBatch
from kops.records.batch import increment_sequence

if TYPE_CHECKING:
    from kops.client.errors import KafkaError
    from kops.records.log_offsets import TopicPartition

_LAST_EPOCH: Final = 0x7FFF
_NOTHING_ACKED: Final = -1


class Identity(NamedTuple):
    """A producer id and its epoch, -1 before there is one."""

    producer_id: int = -1
    epoch: int = -1


class _Partition:
    """The state of one partition: the producer of its sequence, the next number, and the batches in flight, in order."""

    __slots__ = ("identity", "in_flight", "last_acked_offset", "last_acked_sequence", "next_sequence")

    def __init__(self) -> None:
        self.identity = Identity()
        self.next_sequence = 0
        self.last_acked_sequence = _NOTHING_ACKED
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []

    def start_at_zero(self, identity: Identity) -> None:
        sequence = 0
        for batch in self.in_flight:
            batch.reset_identity(*identity, sequence)
            sequence += batch.count
        self.identity = identity
        self.next_sequence = sequence
        self.last_acked_sequence = _NOTHING_ACKED

    def close_gap(self, failed: ProducerBatch) -> None:
        """Move the numbers of later batches down, because this one was not written."""
        self.next_sequence -= failed.count
        for batch in self.in_flight:
            if batch.base_sequence >= failed.base_sequence:
                batch.reset_identity(batch.producer_id, batch.producer_epoch, batch.base_sequence - failed.count)


@mypyc_attr(allow_interpreted_subclasses=True)
class SequenceKeeper:
    """Assigns sequence numbers to batches, and decides how to react to their errors. This one is for a producer without transactions."""

    def __init__(self) -> None:
        self.is_transactional = False
        self.identity = Identity()
        self.fatal_error: KafkaError | None = None
        self.is_initializing = False
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._unresolved: dict[TopicPartition, int] = {}  # the number after the last one of an expired batch
        self._to_rewrite: dict[TopicPartition, None] = {}
        self._is_bump_needed = False

    @property
    def is_completing(self) -> bool:
        """Whether no record follows, so batches need not wait for more."""
        return False

    @property
    def has_identity(self) -> bool:
        """Whether there is a producer id."""
        return self.identity.producer_id >= 0

    # before batches are sent

    def prepare(self) -> bool:
        """Raise the epoch if a gap requires it. Returns whether a producer id has to be requested now."""
        if self._unresolved:
            self._resolve()
        if self.fatal_error is not None:
            return False
        if self._is_bump_needed:
            self._bump()
        if self.is_initializing or self.has_identity:
            return False
        self.is_initializing = True
        return True

    def initialized(self, identity: Identity) -> None:
        """Adopt the producer id of a response."""
        self.identity = identity
        self.is_initializing = False

    def may_drain(self, key: TopicPartition, first: ProducerBatch) -> bool:
        """Whether the first batch of a partition may be sent (RecordAccumulator.shouldStopDrainBatchesForPartition)."""
        if self.fatal_error is not None or not self.has_identity:
            return False
        entry = self._entry(key)
        if not first.has_sequence:
            # Batches of an earlier epoch must end first, because number 0 of the new epoch must not overtake them.
            if entry.in_flight and entry.identity != self.identity:
                return False
            if key in self._unresolved:
                return False
        # A batch that is sent again waits until all earlier ones are done, so one request is in flight then.
        first_sequence = entry.in_flight[0].base_sequence if entry.in_flight else NO_SEQUENCE
        return not (first_sequence != NO_SEQUENCE and first.has_sequence and first.base_sequence != first_sequence)

    def assign(self, batch: ProducerBatch) -> None:
        """Assign sequence numbers to a batch."""
        entry = self._entry(batch.partition)
        if entry.identity != self.identity and not entry.in_flight:
            entry.start_at_zero(self.identity)
        batch.is_transactional = self.is_transactional
        batch.set_identity(*self.identity, entry.next_sequence)
        entry.next_sequence = increment_sequence(entry.next_sequence, batch.count)
        self.add_in_flight(batch)

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Record an unfinished batch with sequence numbers."""
        batches = self._entry(batch.partition).in_flight
        batches.append(batch)
        if len(batches) > 1:
            batches.sort(key=lambda one: (one.producer_id, one.producer_epoch, one.base_sequence))

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Forget a finished batch."""
        batches = self._entry(batch.partition).in_flight
        if batch in batches:
            batches.remove(batch)

    # outcomes

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that a batch was written."""
        entry = self._entry(batch.partition)
        entry.last_acked_sequence = max(entry.last_acked_sequence, batch.last_sequence)
        if base_offset >= 0:
            entry.last_acked_offset = max(entry.last_acked_offset, base_offset + batch.count - 1)
        self.remove_in_flight(batch)

    def failed(self, batch: ProducerBatch, error: KafkaError, *, was_refused: bool) -> None:
        """Record that a batch was abandoned. `was_refused` says whether the broker certainly has not written it."""
        self.note(error)
        self.remove_in_flight(batch)
        if self.fatal_error is not None:
            return
        if isinstance(error, OutOfOrderSequenceError) and not self.is_transactional:
            self._ask_for_bump(batch.partition)
        elif isinstance(error, UnknownProducerIdError):
            self._partitions.pop(batch.partition, None)
            self._unresolved.pop(batch.partition, None)
        elif was_refused:
            self._close_gap(batch)

    def note(self, error: KafkaError) -> None:
        """Record the error of a record, which may end the producer."""
        if error.fatal:
            self.fatal_error = self.fatal_error or error

    def expired(self, batch: ProducerBatch) -> None:
        """Record that a batch was sent and then abandoned, so that it is unknown whether the broker has written it."""
        self._unresolved[batch.partition] = max(self._unresolved.get(batch.partition, 0), batch.last_sequence + 1)

    def may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether a batch should be sent again after this error. This may first request a new epoch."""
        key = batch.partition
        entry = self._entry(key)
        if error.name == "UNKNOWN_PRODUCER_ID":
            if log_start_offset == -1 or batch.was_reset:
                return True
            self._ask_for_bump(key)
            return True
        if error.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            is_next = batch.base_sequence - entry.last_acked_sequence == 1
            if key not in self._unresolved and (batch.was_reset or not is_next):
                return True
            if key not in self._unresolved or batch.base_sequence == self._unresolved[key]:
                self._ask_for_bump(key)
            return True
        return error.retriable

    def _entry(self, key: TopicPartition) -> _Partition:
        entry = self._partitions.get(key)
        if entry is None:
            entry = self._partitions[key] = _Partition()
        return entry

    def _ask_for_bump(self, key: TopicPartition) -> None:
        self._is_bump_needed = True
        self._to_rewrite[key] = None

    def _close_gap(self, batch: ProducerBatch) -> None:
        """Reuse the numbers of a batch that was certainly not written."""
        self._ask_for_bump(batch.partition)

    def _resolve(self) -> None:
        for key in list(self._unresolved):
            entry = self._entry(key)
            if entry.in_flight:
                continue
            if entry.next_sequence - entry.last_acked_sequence != 1:
                self._found_gap(key)
            del self._unresolved[key]

    def _found_gap(self, key: TopicPartition) -> None:
        """React to expired batches of which it is unknown whether they were written."""
        self._ask_for_bump(key)

    def _bump(self) -> None:
        if self.identity.epoch == _LAST_EPOCH:
            self.identity = Identity()
        else:
            self.identity = Identity(self.identity.producer_id, self.identity.epoch + 1)
        for key in self._to_rewrite:
            self._entry(key).start_at_zero(self.identity)
            self._unresolved.pop(key, None)
        self._to_rewrite.clear()
        self._is_bump_needed = False
