"""How far a client supports transactions, by the versions of its requests, and the errors that it knows.

Source: Kafka's TransactionSupportedOperation (AddPartitionsToTxnManager), ReplicaManager.handleProduceAppend; KIP-890. These are apart from
`verification`, which is compiled with the coordinators, because every Produce asks for them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class TransactionSupport(Enum):
    """A client's support of transactions, by the version of its request. With `adds_partitions`, it relies on the brokers to add
    partitions."""

    DEFAULT_ERROR = 0
    GENERIC_ERROR = 1
    ADD_PARTITION = 2

    @property
    def adds_partitions(self) -> bool:
        """Whether brokers add partitions to the transaction, not only verify them."""
        return self is TransactionSupport.ADD_PARTITION


def support_of_produce(version: int) -> TransactionSupport:
    """Return the support of clients that send this version of Produce."""
    return _support(version, 10, 11)


def support_of_txn_offset_commit(version: int) -> TransactionSupport:
    """Return the support of clients that send this version of TxnOffsetCommit."""
    return _support(version, 3, 4)


def _support(version: int, last_default: int, last_generic: int) -> TransactionSupport:
    if version > last_generic:
        return TransactionSupport.ADD_PARTITION
    return TransactionSupport.GENERIC_ERROR if version > last_default else TransactionSupport.DEFAULT_ERROR


def produce_error(error: str, support: TransactionSupport) -> tuple[str, str | None]:
    """Return the error and its text for a producer whose partition is not verified (ReplicaManager.handleProduceAppend).

    Old clients do not retry after a coordinator's errors. They all retry after NOT_ENOUGH_REPLICAS.
    """
    if error == "INVALID_TXN_STATE":
        return error, "Partition was not added to the transaction"
    is_hidden = error in _HIDDEN or (error == "CONCURRENT_TRANSACTIONS" and not support.adds_partitions)
    if is_hidden:
        return "NOT_ENOUGH_REPLICAS", f"Unable to verify the partition has been added to the transaction. Underlying error: {error}"
    return error, None


_HIDDEN: Final = frozenset({"NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})
