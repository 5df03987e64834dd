"""The states of a classic group (Kafka's ClassicGroupState)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """A state. The value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState

VALID_PREVIOUS_STATES: Final = {
    EMPTY: frozenset((PREPARING_REBALANCE,)),
    PREPARING_REBALANCE: frozenset((STABLE, COMPLETING_REBALANCE, EMPTY)),
    COMPLETING_REBALANCE: frozenset((PREPARING_REBALANCE,)),
    STABLE: frozenset((COMPLETING_REBALANCE,)),
    DEAD: frozenset((STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD)),
}
"""The allowed previous states of each state."""
