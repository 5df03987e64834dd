"""The state of a partition while the coordinator verifies a producer's transaction.

Sources: Kafka's VerificationStateEntry, VerificationGuard; KIP-890.

Before the first batch of a transaction is appended, the broker asks the coordinator whether the partition belongs to the transaction. The
append must present the guard that was created for this request. The guard of an earlier transaction of the same producer no longer matches.
"""

from __future__ import annotations


class VerificationGuard:
    """A token that is equal only to itself."""

    __slots__ = ()

    def verify(self, other: VerificationGuard) -> bool:
        """Whether `other` is this guard. The sentinel never verifies anything."""
        return other is self and other is not NO_GUARD


NO_GUARD = VerificationGuard()
"""VerificationGuard.SENTINEL: there is no verification, or none is necessary."""


class VerificationStateEntry:
    """A producer under verification since `timestamp` (ms).

    `lowest_sequence` is the lowest sequence seen in `epoch`. A higher sequence must not be written first, because the lower one could never
    be written after it.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def see(self, sequence: int, epoch: int) -> None:
        """Remember a lower sequence of the same epoch, or any sequence of a later epoch (maybeUpdateLowestSequenceAndEpoch)."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
