"""The states of a member, and from which state each may be entered.

Source: Kafka's MemberState.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class MemberState(Enum):
    """The state of a member of a group."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FENCED = auto()
    PREPARE_LEAVING = auto()
    LEAVING = auto()
    FATAL = auto()
    STALE = auto()


_S = MemberState
PREVIOUS: Final[dict[MemberState, frozenset[MemberState]]] = {
    _S.STABLE: frozenset((_S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING)),
    _S.RECONCILING: frozenset((_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING)),
    _S.ACKNOWLEDGING: frozenset((_S.RECONCILING,)),
    _S.FATAL: frozenset((_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.PREPARE_LEAVING, _S.LEAVING, _S.UNSUBSCRIBED)),
    _S.FENCED: frozenset((_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.PREPARE_LEAVING, _S.LEAVING)),
    _S.JOINING: frozenset((_S.FENCED, _S.UNSUBSCRIBED, _S.STALE)),
    _S.PREPARE_LEAVING: frozenset((_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.UNSUBSCRIBED)),
    _S.LEAVING: frozenset((_S.PREPARE_LEAVING,)),
    _S.UNSUBSCRIBED: frozenset((_S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED)),
    _S.STALE: frozenset((_S.LEAVING,)),
}
NOT_IN_GROUP: Final = frozenset((_S.UNSUBSCRIBED, _S.FENCED, _S.FATAL, _S.STALE))
TAKES_ASSIGNMENTS: Final = PREVIOUS[_S.RECONCILING]
BEATS_NOW: Final = frozenset((_S.ACKNOWLEDGING, _S.LEAVING, _S.JOINING))


def may_become(before: MemberState, after: MemberState) -> bool:
    """Return whether a member may go from one state to the other."""
    return before is after or before in PREVIOUS[after]
