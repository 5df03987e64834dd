"""The records of `__transaction_state` (Kafka's TransactionLog, and the settings of TransactionStateManager.transactionTopicConfigs).

A key consists of the type 0 and the transactional id, a value of its version and a TransactionLogValue. A key without a value is a
tombstone.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from kops.config.values.java_hash import hash_map_order
from kops.coordinators.transactions.metadata import TransactionMetadata, Transition
from kops.coordinators.transactions.state import BY_NUMBER, TransactionState, TransactionStateError, log_value_version
from kops.errors import DecodeError
from kops.protocol.messages import TransactionLogKey, TransactionLogValue
from kops.protocol.messages.transaction_log_value import PartitionsSchema
from kops.protocol.record_values import write_coordinator_key, write_versioned
from kops.records.log_offsets import TopicPartition, topic_partition

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
_TYPE: Final = 0
_SHORT: Final = Struct(">h")


class UnknownVersion(NamedTuple):
    """A record of a newer version: `part` is key or value."""

    part: str
    version: int


class LoggedId(NamedTuple):
    """The state of a transactional id in a record. `metadata` is None for a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


@lru_cache(maxsize=1024)
def key_bytes(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return write_coordinator_key(TransactionLogKey(transactional_id))


def value_bytes(target: Transition, transaction_version: int) -> bytes:
    """Return the value of a transition. `transaction_version` is the cluster's. Raises TransactionStateError for Empty with partitions."""
    is_empty = target.state is TransactionState.EMPTY
    if is_empty and target.partitions:
        raise TransactionStateError(f"Transaction is not expected to have any partitions since its state is Empty: {target}")
    version = log_value_version(transaction_version)
    value = TransactionLogValue(
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        transaction_timeout_ms=target.timeout_ms,
        transaction_status=target.state.number,
        transaction_partitions=None if is_empty else _topics(list(target.partitions)),
        transaction_last_update_timestamp_ms=target.last_update_ms,
        transaction_start_timestamp_ms=target.start_ms,
        client_transaction_version=target.client_version,
    )
    if version >= 1:
        value.previous_producer_id = target.previous_producer_id
        value.next_producer_id = target.next_producer_id
    return write_versioned(value, version)


def read_transaction_record(key: bytes, value: bytes | None) -> LoggedId | UnknownVersion:
    """Decode a record. Raises DecodeError for malformed bytes, TransactionStateError for an unknown state."""
    key_version = _version(key)
    if key_version != _TYPE:
        return UnknownVersion("key", key_version)
    transactional_id = TransactionLogKey.read(key, 0, _SHORT.size)[0].transactional_id
    if value is None:
        return LoggedId(transactional_id, None)
    version = _version(value)
    if version not in TransactionLogValue.VERSIONS:
        return UnknownVersion("value", version)
    read = TransactionLogValue.read(value, version, _SHORT.size)[0]
    state = BY_NUMBER.get(read.transaction_status)
    if state is None:
        raise TransactionStateError(f"Unknown transaction state id {read.transaction_status} from the transaction status message")
    topics = () if state is TransactionState.EMPTY else read.transaction_partitions or ()
    return LoggedId(
        transactional_id,
        TransactionMetadata(
            transactional_id,
            read.producer_id,
            previous_producer_id=read.previous_producer_id,
            next_producer_id=read.next_producer_id,
            producer_epoch=read.producer_epoch,
            timeout_ms=read.transaction_timeout_ms,
            state=state,
            partitions=[topic_partition(topic.topic, number) for topic in topics for number in topic.partition_ids],
            start_ms=read.transaction_start_timestamp_ms,
            last_update_ms=read.transaction_last_update_timestamp_ms,
            client_version=read.client_transaction_version,
        ),
    )


def _topics(partitions: list[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    order = list(by_topic) if len(by_topic) < 2 else hash_map_order([topic for topic, _ in partitions])
    return [PartitionsSchema(topic, by_topic[topic]) for topic in order]


def _version(data: bytes) -> int:
    if len(data) < _SHORT.size:
        raise DecodeError(f"{len(data)} byte(s), too few for a version", position=0)
    return int(_SHORT.unpack_from(data)[0])
