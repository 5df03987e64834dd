"""The states of a record of a share group, and the ways between them. Sources: RecordState, AcknowledgeType."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RecordState(IntEnum):
    """The states by the number that is persisted. ARCHIVING is not used yet."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether nobody gets the record any more."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)

    def may_become(self, state: RecordState) -> bool:
        """Whether there is a way to another state."""
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
"""What a record becomes. RENEW changes no state, only the time for which the record is acquired."""
ACKNOWLEDGEMENTS: Final = frozenset((*STATE_OF_ACKNOWLEDGEMENT, RENEW))
