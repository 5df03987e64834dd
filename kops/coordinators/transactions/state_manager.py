"""All transactional ids of the partitions of `__transaction_state` that a broker leads (Kafka's TransactionStateManager).

The state of an id changes when the record of its transition is in the log. Partitions come and go with their leadership. The coordinator
epoch is the leader epoch, so operations of an earlier leadership have no effect on a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from kops.config.values.java_hash import partition_of, scala_map_order, store_order
from kops.coordinators.transactions.config import TransactionConfig
from kops.coordinators.transactions.metadata import TransactionMetadata, Transition
from kops.coordinators.transactions.state import BY_LABEL, TransactionState
from kops.coordinators.transactions.transaction_log import LoggedId, UnknownVersion, key_bytes, read_transaction_record, value_bytes
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import ListTransactionsResponse
from kops.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from kops.records.batch import BATCH_OVERHEAD
from kops.records.build import BatchBuilder, one_record_batch, write_record

log = logging.getLogger(__name__)

NONE: Final = "NONE"
_TO_COORDINATOR_ERROR: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "MESSAGE_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "RECORD_LIST_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
}
"""Return the error for a client after a failed append."""


class TransactionLog(Protocol):
    """The partitions of `__transaction_state` on this broker."""

    def append(self, partition: int, batch: bytes, timeout_ms: int, done: Callable[[str], None]) -> None:
        """Append with acks=all. `done` is called with the name of the error, or NONE when all replicas have the record."""

    def max_batch_size(self, partition: int) -> int | None:
        """Return the topic's `max.message.bytes`, or None if this broker does not lead the partition."""


class KnownId:
    """A transactional id and the coordinator's epoch."""

    __slots__ = ("coordinator_epoch", "metadata")

    def __init__(self, coordinator_epoch: int, metadata: TransactionMetadata) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.metadata = metadata


class IdAndProducer(NamedTuple):
    """A transactional id with its producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class LedPartition:
    """The state of one partition."""

    coordinator_epoch: int
    ids: dict[str, TransactionMetadata]


@dataclass(slots=True)
class PartitionLoad:
    """A partition that is being loaded. Pass all its records to `read`."""

    partition: int
    coordinator_epoch: int
    ids: dict[str, TransactionMetadata] = field(default_factory=dict)

    def read(self, key: bytes, value: bytes | None) -> None:
        """Replay a record. Raises DecodeError, TransactionStateError."""
        found = read_transaction_record(key, value)
        if isinstance(found, UnknownVersion):
            log.warning("Unknown message %s with version %d while loading transactions. Ignoring it.", found.part, found.version)
        else:
            self._apply(found)

    def _apply(self, found: LoggedId) -> None:
        if found.metadata is None:
            self.ids.pop(found.transactional_id, None)
        else:
            self.ids[found.transactional_id] = found.metadata


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionStateManager:
    """The state. `now_ms()` is the wall clock, `transaction_version()` the cluster's level of the feature.

    `matcher(pattern)` returns a predicate on whole texts. It raises ApiError INVALID_REGULAR_EXPRESSION for an invalid pattern.
    """

    def __init__(
        self,
        config: TransactionConfig,
        transaction_log: TransactionLog,
        *,
        partition_count: int,
        now_ms: Callable[[], int],
        transaction_version: Callable[[], int],
        matcher: Callable[[str], Callable[[str], bool]],
    ) -> None:
        self._matcher = matcher
        self.config = config
        self.partition_count = partition_count
        self.now_ms = now_ms
        self.transaction_version = transaction_version
        self.partitions: dict[int, LedPartition] = {}
        self._log = transaction_log
        self._loading: dict[int, PartitionLoad] = {}

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition to which an id belongs."""
        return partition_of(transactional_id, self.partition_count)

    # look-ups ---------------------------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> KnownId | None:
        """Return the state of an id, or None. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        partition = self.partition_for(transactional_id)
        if partition in self._loading:
            raise ApiError("COORDINATOR_LOAD_IN_PROGRESS")
        led = self.partitions.get(partition)
        if led is None:
            raise ApiError("NOT_COORDINATOR")
        metadata = led.ids.get(transactional_id)
        return None if metadata is None else KnownId(led.coordinator_epoch, metadata)

    def put_if_absent(self, metadata: TransactionMetadata) -> KnownId:
        """Add an id unless it exists, and return its state. Raises ApiError like `get`."""
        known = self.get(metadata.transactional_id)
        if known is not None:
            return known
        led = self.partitions[self.partition_for(metadata.transactional_id)]
        led.ids[metadata.transactional_id] = metadata
        return KnownId(led.coordinator_epoch, metadata)

    def is_valid_timeout(self, timeout_ms: int, *, is_two_phase_commit: bool) -> bool:
        """Whether a client may use this time-out. It does not apply to two-phase commit."""
        return is_two_phase_commit or 0 < timeout_ms <= self.config.transaction_max_timeout_ms

    def timed_out(self) -> list[IdAndProducer]:
        """Return the transactions that have been open for too long and have no pending transition."""
        now_ms = self.now_ms()
        return [
            IdAndProducer(each.transactional_id, each.producer_id, each.producer_epoch)
            for led in self.partitions.values()
            for each in led.ids.values()
            if each.state is TransactionState.ONGOING
            and each.pending is None
            and not each.is_two_phase_commit
            and each.start_ms + each.timeout_ms < now_ms
        ]

    def list_transactions(
        self, producer_ids: Collection[int], state_names: Collection[str], duration_ms: int, pattern: str | None
    ) -> ListTransactionsResponse:
        """Return the transactions that pass all filters; an empty filter passes all. Raises ApiError INVALID_REGULAR_EXPRESSION."""
        if self._loading:
            return ListTransactionsResponse(error_code=by_name("COORDINATOR_LOAD_IN_PROGRESS").code)
        states = {BY_LABEL[name] for name in state_names if name in BY_LABEL}
        unknown = [name for name in dict.fromkeys(state_names) if name not in BY_LABEL]
        matches = self._matcher(pattern) if pattern else None
        now_ms = self.now_ms()
        listed = [
            ListedTransaction(each.transactional_id, each.producer_id, each.state.label)
            for partition in scala_map_order(self.partitions)
            for led in (self.partitions[partition],)
            for each in map(led.ids.__getitem__, store_order(led.ids))
            if each.state is not TransactionState.DEAD
            and (not producer_ids or each.producer_id in producer_ids)
            and (not state_names or each.state in states)
            and (duration_ms < 0 or now_ms - each.start_ms > duration_ms)
            and (matches is None or matches(each.transactional_id))
        ]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    # leaderships ------------------------------------------------------------------------------------------------------------------

    def begin_load(self, partition: int, coordinator_epoch: int) -> PartitionLoad:
        """Begin to load a partition that this broker now leads. Its ids are available after `end_load`."""
        load = self._loading[partition] = PartitionLoad(partition, coordinator_epoch)
        return load

    def is_wanted(self, load: PartitionLoad) -> bool:
        """Whether the load has not been cancelled."""
        return self._loading.get(load.partition) is load

    def end_load(self, load: PartitionLoad) -> list[TransactionMetadata]:
        """Finish a load. Returns the transactions whose markers must be sent again; their completion must still be prepared."""
        if not self.is_wanted(load):
            return []
        del self._loading[load.partition]
        self.partitions[load.partition] = LedPartition(load.coordinator_epoch, load.ids)
        prepared = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        return [each for each in load.ids.values() if each.state in prepared]

    def remove(self, partition: int, coordinator_epoch: int | None) -> None:
        """Unload a partition that this broker no longer leads. Without an epoch, it no longer has a replica either."""
        load = self._loading.get(partition)
        if load is not None and (coordinator_epoch is None or load.coordinator_epoch < coordinator_epoch):
            del self._loading[partition]
        self.partitions.pop(partition, None)

    # the log ----------------------------------------------------------------------------------------------------------------------

    def append(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        target: Transition,
        done: Callable[[str], None],
        *,
        keeps_pending: Callable[[str], bool] = lambda _error: False,
    ) -> None:
        """Write a prepared transition and complete it. `done` is called with the name of the error, or NONE if it is complete.

        After an error the pending state is cleared, unless `keeps_pending(error)`, in which case the caller retries.
        """
        value = value_bytes(target, self.transaction_version())
        batch = one_record_batch(self.now_ms(), key_bytes(transactional_id), value)
        try:
            known = self.get(transactional_id)
        except ApiError as error:
            done(error.name)
            return
        if known is None or known.coordinator_epoch != coordinator_epoch:
            done("NOT_COORDINATOR")
            return

        def appended(error: str) -> None:
            if error == NONE:
                done(self._complete(transactional_id, coordinator_epoch, target))
                return
            told = _TO_COORDINATOR_ERROR.get(error, error)
            log.info("Appending %s's transition to %s failed: %s", transactional_id, target.state.label, error)
            if not keeps_pending(told):
                self._give_up(transactional_id, coordinator_epoch)
            done(told)

        self._log.append(self.partition_for(transactional_id), batch, target.timeout_ms, appended)

    def _complete(self, transactional_id: str, coordinator_epoch: int, target: Transition) -> str:
        try:
            known = self.get(transactional_id)
        except ApiError as error:
            return error.name
        if known is None or known.coordinator_epoch != coordinator_epoch:
            return "NOT_COORDINATOR"
        known.metadata.complete_transition(target)
        return NONE

    def _give_up(self, transactional_id: str, coordinator_epoch: int) -> None:
        try:
            known = self.get(transactional_id)
        except ApiError:
            return
        if known is not None and known.coordinator_epoch == coordinator_epoch:
            known.metadata.pending = None

    # expiry -----------------------------------------------------------------------------------------------------------------------

    def remove_expired(self) -> None:
        """Write tombstones for the ids that have not been used for `transactional.id.expiration.ms`."""
        for partition, led in list(self.partitions.items()):
            limit = self._log.max_batch_size(partition)
            if limit is None:
                log.warning("No transactional id of partition %d can expire: this broker does not lead it", partition)
                continue
            expired = list(self._expired(led))
            if expired:
                self._write_tombstones(partition, led, expired, limit)

    def _expired(self, led: LedPartition) -> Iterator[TransactionMetadata]:
        last_ms = self.now_ms() - self.config.transactional_id_expiration_ms
        for each in led.ids.values():
            if each.pending is None and each.state.may_expire and each.last_update_ms <= last_ms:
                yield each

    def _write_tombstones(self, partition: int, led: LedPartition, expired: Iterable[TransactionMetadata], limit: int) -> None:
        now_ms = self.now_ms()
        builder, buried = BatchBuilder(), dict[str, int]()
        for each in expired:
            key = key_bytes(each.transactional_id)
            size = len(write_record(builder.count, 0, key, None))
            if buried and BATCH_OVERHEAD + builder.uncompressed_size + size > limit:
                self._append_tombstones(partition, led.coordinator_epoch, builder.build(), buried)
                builder, buried = BatchBuilder(), {}
            builder.append(now_ms, key, None)
            buried[each.transactional_id] = each.prepare_dead().producer_epoch
        self._append_tombstones(partition, led.coordinator_epoch, builder.build(), buried)

    def _append_tombstones(self, partition: int, coordinator_epoch: int, batch: bytes, buried: Mapping[str, int]) -> None:
        def appended(error: str) -> None:
            led = self.partitions.get(partition)
            if led is None:
                return
            for transactional_id, producer_epoch in buried.items():
                metadata = led.ids.get(transactional_id)
                if metadata is None:
                    continue
                is_same = led.coordinator_epoch == coordinator_epoch and metadata.producer_epoch == producer_epoch
                if is_same and error == NONE and metadata.pending is TransactionState.DEAD:
                    del led.ids[transactional_id]
                else:
                    log.warning("Failed to remove expired transactionalId %s: %s", transactional_id, error)
                    metadata.pending = None

        self._log.append(partition, batch, self.config.request_timeout_ms, appended)
