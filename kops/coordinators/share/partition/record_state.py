"""The states of a record in a share group, and the transitions between them. Sources: RecordState, AcknowledgeType."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RecordState(IntEnum):
    """The states by their persisted numbers. ARCHIVING is not used yet."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)

    def may_become(self, state: RecordState) -> bool:
        """Whether a transition to another state is allowed."""
        if self is state or self.is_terminal:
            return False
        return self is not RecordState.AVAILABLE or state is RecordState.ACQUIRED


GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
STATE_OF_ACKNOWLEDGEMENT: Final = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
"""The new state for each acknowledge type. RENEW does not change the state; it extends the acquisition lock."""
ACKNOWLEDGEMENTS: Final = frozenset((*STATE_OF_ACKNOWLEDGEMENT, RENEW))
