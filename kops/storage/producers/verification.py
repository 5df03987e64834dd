"""What a partition remembers while a producer's transaction is verified with the coordinator (Kafka VerificationStateEntry,
VerificationGuard; KIP-890).

Before the first batch of a transaction is appended, the coordinator is asked whether the partition belongs to it. A guard made then must
come with the append: one that was made for an earlier transaction of the same producer no longer fits.
"""

from __future__ import annotations


class VerificationGuard:
    """A token that is equal to itself only."""

    __slots__ = ()

    def verify(self, other: VerificationGuard) -> bool:
        """Whether `other` is this guard; the sentinel verifies nothing."""
        return other is self and other is not NO_GUARD


NO_GUARD = VerificationGuard()
"""VerificationGuard.SENTINEL: nothing is being verified, or nothing has to be."""


class VerificationStateEntry:
    """One producer under verification since `timestamp` (ms).

    `lowest_sequence` is the lowest seen in `epoch`: a higher one must not be written before it, else the lower one could never be.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def see(self, sequence: int, epoch: int) -> None:
        """maybeUpdateLowestSequenceAndEpoch: a lower sequence of the same epoch, or any of a later one, is what counts from now on."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
