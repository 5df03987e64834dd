"""What has to be true of the records of a share group: a book of what its members were given and told.

- What was accepted or rejected, and whose acknowledgement was confirmed, is never given to anybody again.
- A record belongs to one member at a time, until its lock ends, the member acknowledges it, or its session ends.
- No record is delivered more often than the group allows, and none is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LOCK_MS, DELIVERIES = 2_000, 5


class Place(NamedTuple):
    """A record of a partition."""

    partition: int
    offset: int


@dataclass(eq=False)
class Holder:
    """Who has a record. `asked_ms` is when it sent the fetch that acquired it. `state` is what the leader keeps of the partition: if it is
    loaded again, the locks are gone.
    """

    member: str
    node: int
    state: object
    asked_ms: float
    answered_ms: float
    is_over: bool = False


class Suspicion(NamedTuple):
    """A member was given a record that another one had, as far as that one knows."""

    holder: Holder
    since_ms: float
    text: str


class ShareBook:
    """All records of all partitions."""

    def __init__(self) -> None:
        self.decided: set[Place] = set()
        """Those that a member wanted to accept or reject."""
        self.counts: dict[Place, int] = {}
        """The highest count of deliveries that a member has seen."""
        self._ended_ms: dict[Place, float] = {}
        self._holders: dict[Place, Holder] = {}
        self._suspicions: list[Suspicion] = []

    def acquired(self, place: Place, count: int, holder: Holder) -> None:
        """A leader that nobody has followed yet gave a record to a member."""
        where = f"partition {place.partition}, offset {place.offset}: node {holder.node} gave it to {holder.member}"
        assert 1 <= count <= DELIVERIES, f"{where} for the {count}. time"
        ended_ms = self._ended_ms.get(place)
        assert ended_ms is None or holder.asked_ms <= ended_ms, f"{where}, who asked at {holder.asked_ms}; it was ended at {ended_ms}"
        before = self._holders.get(place)
        if before is not None and not before.is_over and before.member != holder.member and before.state is holder.state:
            was_known = before.answered_ms <= holder.asked_ms and holder.answered_ms < before.asked_ms + LOCK_MS
            if was_known:
                self._suspicions.append(
                    Suspicion(before, holder.answered_ms, f"{where} while {before.member} had it, since {before.answered_ms}")
                )
        self._holders[place] = holder

    def gave(self, place: Place, count: int, *, is_end: bool) -> None:
        """A member has a record, from any leader, and is about to end it or not."""
        self.counts[place] = max(count, self.counts.get(place, 0))
        if is_end:
            self.decided.add(place)

    def is_passed_over(self, place: Place) -> bool:
        """At the end: whether nobody wanted to end a record, and it was not delivered as often as allowed. Answers that were lost count,
        too; more than two of one record never are.
        """
        return place not in self.decided and self.counts.get(place, 0) < DELIVERIES - 2

    def ended(self, place: Place, now_ms: float) -> None:
        """A node has confirmed that a record was accepted or rejected."""
        self._ended_ms.setdefault(place, now_ms)

    def let_go(self, member: str, node: int, places: set[Place] | None = None) -> None:
        """A member sends acknowledgements for these records, or (None) its session with a node may be over."""
        for place, holder in self._holders.items():
            if holder.member == member and holder.node == node and (places is None or place in places):
                holder.is_over = True
        if places is None:
            self._suspicions = [one for one in self._suspicions if not one.holder.is_over]

    def went_on(self, member: str, node: int, asked_ms: float) -> None:
        """A node has answered in a member's session: nothing had ended the session when it was asked."""
        for one in self._suspicions:
            holder = one.holder
            assert not (holder.member == member and holder.node == node and one.since_ms < asked_ms), one.text
