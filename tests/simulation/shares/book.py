"""The rules for the records of a share group. A book records which records the members got and which acknowledgements were confirmed.

- A record that was accepted or rejected, with a confirmed acknowledgement, is never given to anybody again.
- A record belongs to one member at a time, until its lock ends, the member acknowledges it, or the member's session ends.
- No record is delivered more often than the group allows, and none is skipped.

`MemberBook` has the rules for one consumer:

- The program gets only records that a leader gave to the consumer, once for each time, and once more after each renewal of the lock.
- The consumer sends what the program has decided, and nothing else. Each decision gets an outcome.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kops.client.share.core.acknowledgements import AcknowledgeType

LOCK_MS, DELIVERIES = 2_000, 5


class Place(NamedTuple):
    """A record of a partition."""

    partition: int
    offset: int


@dataclass(eq=False)
class Holder:
    """A member that has a record. `asked_ms` is the time when it sent the fetch that acquired the record. `state` is the leader's state of
    the partition. If the leader loads the state again, the locks are gone.
    """

    member: str
    node: int
    state: object
    asked_ms: float
    answered_ms: float
    is_over: bool = False


class Suspicion(NamedTuple):
    """A member got a record that another member has, as far as that one knows."""

    holder: Holder
    since_ms: float
    text: str


class ShareBook:
    """All records of all partitions."""

    def __init__(self) -> None:
        self.decided: set[Place] = set()
        """The records that a member wanted to accept or reject."""
        self.counts: dict[Place, int] = {}
        """The highest delivery count of each record that a member has seen."""
        self._ended_ms: dict[Place, float] = {}
        self._holders: dict[Place, Holder] = {}
        self._suspicions: list[Suspicion] = []

    def acquired(self, place: Place, count: int, holder: Holder) -> None:
        """Record that a leader gave a record to a member. No later leader exists."""
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
        """Record that a member has a record, from any leader. `is_end`: the member will accept or reject it."""
        self.counts[place] = max(count, self.counts.get(place, 0))
        if is_end:
            self.decided.add(place)

    def is_passed_over(self, place: Place) -> bool:
        """Return, at the end, whether a record was skipped: nobody wanted to accept or reject it, and it was not delivered as often as
        allowed. Deliveries in lost answers count, too. A record never has more than two of these.
        """
        return place not in self.decided and self.counts.get(place, 0) < DELIVERIES - 2

    def ended(self, place: Place, now_ms: float) -> None:
        """Record that a node has confirmed that a record was accepted or rejected."""
        self._ended_ms.setdefault(place, now_ms)

    def let_go(self, member: str, node: int, places: set[Place] | None = None) -> None:
        """Record that a member sends acknowledgements for these records or, with None, that its session with a node may have ended."""
        for place, holder in self._holders.items():
            if holder.member == member and holder.node == node and (places is None or place in places):
                holder.is_over = True
        if places is None:
            self._suspicions = [one for one in self._suspicions if not one.holder.is_over]

    def went_on(self, member: str, node: int, asked_ms: float) -> None:
        """Record that a node has answered in a member's session. So nothing had ended the session when the member sent the request."""
        for one in self._suspicions:
            holder = one.holder
            assert not (holder.member == member and holder.node == node and one.since_ms < asked_ms), one.text


class MemberBook:
    """What the program of one member got and decided."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.open: dict[Place, list[AcknowledgeType]] = {}
        """The decisions that have no outcome yet."""
        self._due: Counter[Place] = Counter()  # how often the program may get a record
        self._kinds: dict[Place, set[int]] = defaultdict(set)

    def acquired(self, place: Place) -> None:
        """Record that a leader gave a record to the consumer."""
        self._due[place] += 1

    def delivered(self, place: Place) -> None:
        """Check that the program may get a record."""
        assert self._due[place] > 0, f"{self.member} gets {place}, which no leader gave to it since the last time"
        self._due[place] -= 1

    def decided(self, place: Place, kind: AcknowledgeType, *, is_renewal: bool) -> None:
        """Record what the program wants."""
        self._kinds[place].add(kind)
        self._due[place] += is_renewal
        self.open.setdefault(place, []).append(kind)

    def told(self, place: Place) -> AcknowledgeType | None:
        """Return the decision that an outcome is for. None if there are several: the record came again before the outcome of the first."""
        kinds = self.open.pop(place, [])
        return kinds[0] if len(kinds) == 1 else None

    def check_sent(self, place: Place, kind: int) -> None:
        """Check that the program has decided what is sent."""
        assert kind in self._kinds[place], f"{self.member} sends {kind} for {place}; the program has decided {self._kinds[place]}"
