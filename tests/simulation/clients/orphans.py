"""Partitions that nobody owns because a static member was replaced between the two rebalances of the cooperative protocol.

In the first rebalance the leader takes a partition from its owner and gives it to nobody. The owner revokes it and joins again, and this
second rebalance gives it to its next owner. If another program takes the owner's instance id meanwhile, the coordinator gives it the
assignment of the first rebalance and begins no other. The new program owns nothing that it could revoke, so nobody joins again, and the
partition has no owner until the next rebalance. Kafka does the same: GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin (a
stable group), ConsumerCoordinator.onJoinComplete (a member joins again only if it has revoked something). The test
`tests/differential/clients/consumer/test_replaced_members.py` shows it with Java's consumers on Apache Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple


class _Asked(NamedTuple):
    """A request to join, and the partitions that it names as owned."""

    ms: float
    program: str
    owned: frozenset[int]


class _Divided(NamedTuple):
    """What a leader has sent for a generation."""

    ms: float
    generation: int
    partitions: frozenset[int]


class OrphanBook:
    """The joins and the divisions of all groups with the classic protocol. Times are virtual ms."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], list[_Asked]] = defaultdict(list)  # by group and instance id
        self._divided: dict[str, _Divided] = {}
        self._orphans: dict[str, tuple[int, frozenset[int]]] = {}  # the generation in which they have no owner

    def asked(self, group: str, instance_id: str, program: str, owned: frozenset[int], now_ms: float) -> None:
        """Record that a program asks to join."""
        self._asked[group, instance_id].append(_Asked(now_ms, program, owned))

    def divided(self, group: str, generation: int, partitions: frozenset[int], now_ms: float) -> None:
        """Record that a leader sends the assignments of a generation, which have these partitions."""
        self._divided[group] = _Divided(now_ms, generation, partitions)

    def joined(self, group: str, instance_id: str, program: str, generation: int, asked_ms: float) -> frozenset[int]:
        """Record that a program has joined a generation. Return the partitions that have no owner from now on.

        They are those that the last program with the instance id owned when the leader divided them, and that nobody got.
        """
        divided = self._divided.get(group)
        if divided is None or divided.generation != generation or asked_ms <= divided.ms:
            return frozenset()
        before = [one for one in self._asked[group, instance_id] if one.ms <= divided.ms]
        if not before or before[-1].program == program:
            return frozenset()
        found = before[-1].owned - divided.partitions
        if found:
            self._orphans[group] = generation, found | self.of(group, generation)
        return found

    def of(self, group: str, generation: int) -> frozenset[int]:
        """Return the partitions without an owner in a generation."""
        since, found = self._orphans.get(group, (-1, frozenset[int]()))
        return found if since == generation else frozenset()
