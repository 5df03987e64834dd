"""Shared by the faces of the producer: the arguments of `send_offsets_to_transaction`, and the end of a `transaction()` block.

Source: Kafka's KafkaProducer (sendOffsetsToTransaction, throwIfNoTransactionManager, throwIfInvalidGroupMetadata).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kops.client.errors import KafkaError, KafkaTimeoutError
from kops.errors import UsageError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.client.producer.core.handlers import Committed, GroupMember
    from kops.client.producer.core.producer import ProducerCore
    from kops.client.producer.core.transactions import Transactions

    Offsets = Mapping[TopicPartition, Committed | int] | Mapping[tuple[str, int], Committed | int]

logger = logging.getLogger("kops.client")


class _Offset(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class _Group(NamedTuple):
    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def transactions_of(core: ProducerCore, call: str) -> Transactions:
    """Return the transactions of a producer. Raises UsageError if it has none."""
    if core.transactions is None:
        raise UsageError(f"{call}: not without transactional.id in the settings of the producer")
    return core.transactions


def read_offsets(offsets: Offsets) -> dict[TopicPartition, Committed]:
    """Return offsets by partition. Raises UsageError."""
    found: dict[TopicPartition, Committed] = {}
    for key, given in offsets.items():
        if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)):
            raise UsageError(f"offsets: {key!r} is not a pair of topic and partition")
        one = _Offset(given) if isinstance(given, int) else given
        if not isinstance(getattr(one, "offset", None), int) or not 0 <= one.offset < 1 << 63:
            raise UsageError(f"offsets: {given!r} is not the offset of {key[0]}-{key[1]}; allowed: 0 to 2^63 - 1")
        found[TopicPartition(*key)] = one
    return found


def read_group(group: GroupMember | str) -> GroupMember:
    """Return a member of a group, also for the group's name alone. Raises UsageError."""
    found = _Group(group) if isinstance(group, str) else group
    if not getattr(found, "group_id", ""):
        raise UsageError(f"{group!r} is neither the name of a group nor a consumer's group_metadata()")
    if found.generation_id > 0 and not found.member_id:
        raise UsageError(f"{group!r} has a generation but no member id")
    return found


def can_be_aborted(error: BaseException) -> bool:
    """Whether a transaction is to be aborted after its commit has failed. A commit that timed out or was cancelled goes on."""
    return isinstance(error, KafkaError) and error.abortable and not isinstance(error, KafkaTimeoutError)


def log_abort(error: KafkaError | UsageError) -> None:
    """Log an abort that has failed, because the program gets the error that led to it."""
    logger.warning("the transaction could not be aborted: %s", error)
