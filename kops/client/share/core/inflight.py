"""The records that a poll returned, until they are acknowledged, by partition.

Source: Kafka's ShareFetch, ShareInFlightBatch, ShareInFlightBatchException. A renewed record leaves the records in flight until the broker
has answered; then a poll returns it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.client.share.core.acknowledgements import (
    GAP,
    AcknowledgementMap,
    Acknowledgements,
    AcknowledgeType,
    NodeAcknowledgements,
    TopicIdPartition,
)
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kops.client.errors import KafkaError
    from kops.client.share.core.records import ShareRecord


class InFlightBatch:
    """The records of one partition that are not acknowledged yet.

    `failure` is the error of records that can't be delivered, and `failed` are their offsets. They are acknowledged already, and the
    program may acknowledge them differently. `has_failure_next` says that the next records can't be delivered.
    """

    def __init__(self, node_id: int, partition: TopicIdPartition, lock_timeout_ms: int | None) -> None:
        self.node_id = node_id
        self.partition = partition
        self.lock_timeout_ms = lock_timeout_ms
        self.records: dict[int, ShareRecord] = {}
        self.failure: KafkaError | None = None
        self.failed: frozenset[int] = frozenset()
        self.has_failure_next = False
        self._acknowledgements = Acknowledgements()
        self._acknowledged: set[int] = set()
        self._renewing: dict[int, ShareRecord] = {}
        self._renewed: dict[int, ShareRecord] = {}

    # filled by the fetch

    def add_gap(self, offset: int) -> None:
        """An acquired offset has no record."""
        self._acknowledgements.types[offset] = GAP

    def fail(self, error: KafkaError, offsets: Iterable[int], kind: AcknowledgeType) -> None:
        """These records can't be delivered."""
        self.failure = error
        self.failed = frozenset(offsets)
        self._acknowledgements.types.update(dict.fromkeys(self.failed, int(kind)))

    def merge(self, other: InFlightBatch) -> None:
        """Add the records of another fetch."""
        self.records = dict(sorted({**self.records, **other.records}.items()))
        self._acknowledgements.merge(other._acknowledgements)
        if other.failure is not None:
            self.failure, self.failed = other.failure, other.failed

    @property
    def is_empty(self) -> bool:
        """Whether there are neither records nor acknowledgements."""
        return not self.records and not len(self._acknowledgements)

    # acknowledged by the program

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> bool:
        """Acknowledge a record. Returns False if it is not in flight."""
        if offset not in self.records:
            return False
        self._acknowledgements.types[offset] = int(kind)
        self._acknowledged.add(offset)
        return True

    def acknowledge_failed(self, offset: int, kind: AcknowledgeType) -> bool:
        """Acknowledge a record that could not be delivered. Returns False if there is none at this offset."""
        if self.failure is None or offset not in self.failed:
            return False
        self._acknowledgements.types[offset] = int(kind)
        return True

    def acknowledge_rest(self, kind: AcknowledgeType) -> None:
        """Acknowledge the records that are not acknowledged yet."""
        types = self._acknowledgements.types
        for offset in self.records:
            if offset not in types:
                types[offset] = int(kind)
                self._acknowledged.add(offset)

    @property
    def is_acknowledged(self) -> bool:
        """Whether all records are acknowledged."""
        return len(self._acknowledged) == len(self.records)

    def take_acknowledgements(self) -> Acknowledgements:
        """Return the acknowledgements to send. Their records are no longer in flight."""
        types = self._acknowledgements.types
        for offset in self._acknowledged:
            record = self.records.pop(offset)
            if types[offset] == AcknowledgeType.RENEW:
                self._renewing[offset] = record
        self._acknowledged.clear()
        self.failure = None
        taken, self._acknowledgements = self._acknowledgements, Acknowledgements()
        return taken

    # renewed by the broker

    def renew(self, acknowledgements: Acknowledgements) -> int:
        """Handle the outcome of acknowledgements. Returns the number of renewed records; a lock that was not renewed is lost."""
        count = 0
        for offset, kind in acknowledgements.types.items():
            record = self._renewing.pop(offset, None)
            if record is not None and kind == AcknowledgeType.RENEW and acknowledgements.error is None:
                self._renewed[offset] = record
                count += 1
        return count

    @property
    def has_renewals(self) -> bool:
        """Whether records are being renewed, or are renewed and not back in flight."""
        return bool(self._renewing or self._renewed)

    def take_renewed(self) -> None:
        """Put the renewed records back in flight."""
        if self._renewed:
            self.records = dict(sorted({**self.records, **self._renewed}.items()))
            self._renewed.clear()


class ShareFetch:
    """The records that a poll returned."""

    def __init__(self) -> None:
        self.lock_timeout_ms: int | None = None
        self._batches: dict[TopicIdPartition, InFlightBatch] = {}
        self._renewed_lock_timeout_ms: int | None = None

    def add(self, batch: InFlightBatch) -> None:
        """Add records of a partition."""
        known = self._batches.setdefault(batch.partition, batch)
        if known is not batch:
            known.merge(batch)
        if batch.lock_timeout_ms is not None:
            self.lock_timeout_ms = batch.lock_timeout_ms

    def records(self) -> list[ShareRecord]:
        """Return the records in flight, by partition and offset."""
        return [record for batch in self._batches.values() for record in batch.records.values()]

    @property
    def is_empty(self) -> bool:
        """Whether no record is in flight. Partitions without anything are dropped."""
        for partition, batch in list(self._batches.items()):
            if batch.is_empty and not batch.has_renewals:
                del self._batches[partition]
        return not any(batch.records for batch in self._batches.values())

    # acknowledged by the program

    def acknowledge(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record. Raises UsageError if it is not in flight."""
        if not any(one.acknowledge(offset, kind) for one in self._of(topic, partition)):
            raise UsageError(f"{topic}-{partition}, offset {offset}: not a record of the last poll that waits for its acknowledgement")

    def acknowledge_failed(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that could not be delivered. Raises UsageError if there is none."""
        if not any(one.acknowledge_failed(offset, kind) for one in self._of(topic, partition)):
            raise UsageError(f"{topic}-{partition}, offset {offset}: not a record that the last poll could not deliver")

    def _of(self, topic: str, partition: int) -> list[InFlightBatch]:
        return [batch for key, batch in self._batches.items() if key.topic == topic and key.partition == partition]

    def acknowledge_rest(self, kind: AcknowledgeType) -> None:
        """Acknowledge the records that are not acknowledged yet."""
        for batch in self._batches.values():
            batch.acknowledge_rest(kind)

    @property
    def is_acknowledged(self) -> bool:
        """Whether all records are acknowledged."""
        return all(batch.is_acknowledged for batch in self._batches.values())

    def take_acknowledgements(self) -> AcknowledgementMap:
        """Return the acknowledgements to send. Their records are no longer in flight."""
        taken = {}
        for partition, batch in self._batches.items():
            acknowledgements = batch.take_acknowledgements()
            if len(acknowledgements):
                taken[partition] = NodeAcknowledgements(batch.node_id, acknowledgements)
        return taken

    # renewed by brokers

    def renew(self, completed: Mapping[TopicIdPartition, Acknowledgements], lock_timeout_ms: int | None) -> int:
        """Handle the outcome of acknowledgements. Returns the number of renewed records."""
        self._renewed_lock_timeout_ms = lock_timeout_ms
        return sum(self._batches[key].renew(acknowledgements) for key, acknowledgements in completed.items() if key in self._batches)

    @property
    def has_renewals(self) -> bool:
        """Whether records are being renewed, or are renewed and not back in flight."""
        return any(batch.has_renewals for batch in self._batches.values())

    def take_renewed(self) -> None:
        """Put the renewed records back in flight."""
        for batch in self._batches.values():
            batch.take_renewed()
        if self._renewed_lock_timeout_ms is not None:
            self.lock_timeout_ms = self._renewed_lock_timeout_ms
