"""The states of a transaction and the versions of transactions (Kafka's TransactionState, TransactionVersion; KIP-98, KIP-890)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kops.errors import KopsError

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
NO_TIMESTAMP: Final = -1
TV_0, TV_1, TV_2 = range(3)
"""The levels of the feature `transaction.version`: the original, flexible records, a new epoch for each transaction."""


class TransactionStateError(KopsError):
    """An invalid transition (Java's IllegalStateException)."""


class TransactionState(Enum):
    """A state, with its number in records and its name in DescribeTransactions."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    # By identity, as in Java. Enum's own is a function of Python, which hashes the name.
    __hash__ = object.__hash__

    @property
    def may_expire(self) -> bool:
        """Whether an unused transactional id in this state expires."""
        return self in FINISHED


_S = TransactionState
FINISHED: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open."""
VALID_PREVIOUS: Final = {
    _S.EMPTY: FINISHED,
    _S.ONGOING: FINISHED | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: FINISHED | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: FINISHED,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The allowed previous states of each state."""
BY_NUMBER: Final = {state.number: state for state in TransactionState}
BY_LABEL: Final = {state.label: state for state in TransactionState}


def log_value_version(level: int) -> int:
    """The version of the values in `__transaction_state`."""
    return 1 if level >= TV_1 else 0
