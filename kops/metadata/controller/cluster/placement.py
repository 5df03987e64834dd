"""Places the replicas of new partitions on brokers: racks in turn, leaders spread, fenced brokers last (Kafka StripedReplicaPlacer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.metadata.controller.cluster.settings import Draws

T = TypeVar("T")


class UsableBroker(NamedTuple):
    """A broker on which replicas can be placed."""

    id: int
    rack: str | None
    fenced: bool


class _BrokerList:
    """The brokers of a rack in turn. Each new epoch begins one broker later."""

    def __init__(self, brokers: list[int], draws: Draws) -> None:
        self._brokers = sorted(brokers)
        self._index = 0
        self._epoch = 0
        self._offset = draws.next_int(len(brokers)) if brokers else 0

    def shuffle(self, draws: Draws) -> None:
        shuffle(self._brokers, draws)

    def next(self, epoch: int) -> int | None:
        """Return the next broker, or None if all have had their turn in this epoch."""
        if not self._brokers:
            return None
        if self._epoch != epoch:
            self._epoch = epoch
            self._index = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker


class _Rack:
    """The brokers of a rack, unfenced ones first."""

    def __init__(self, brokers: list[UsableBroker], draws: Draws) -> None:
        self._fenced = _BrokerList([broker.id for broker in brokers if broker.fenced], draws)
        self.unfenced = _BrokerList([broker.id for broker in brokers if not broker.fenced], draws)

    def shuffle(self, draws: Draws) -> None:
        self._fenced.shuffle(draws)
        self.unfenced.shuffle(draws)

    def next(self, epoch: int) -> int | None:
        found = self.unfenced.next(epoch)
        return self._fenced.next(epoch) if found is None else found


class _RackList:
    """All racks. Every partition begins in the next one."""

    def __init__(self, brokers: list[UsableBroker], draws: Draws) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        self._draws = draws
        self._names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = {name: _Rack(by_rack[name], draws) for name in self._names}
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._epoch = 0
        self._offset = draws.next_int(len(self._names)) if self._names else 0

    def place(self, replication_factor: int) -> list[int]:
        """Return the replicas of the next partition. The first one is its leader, which is never fenced."""
        if self._epoch == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
            self._epoch = 0
        if self._offset == len(self._names):
            self._offset = 0
        first, leader_rack = self._leader()
        brokers = [first]
        position, skipped = self._offset, leader_rack
        while len(brokers) < replication_factor:
            if position == skipped:
                skipped = -1  # the leader's rack skips one turn
            else:
                found = self._racks[self._names[position]].next(self._epoch)
                if found is not None:
                    brokers.append(found)
            position = (position + 1) % len(self._names)
        self._epoch += 1
        self._offset += 1
        return brokers

    def _leader(self) -> tuple[int, int]:
        position = self._offset
        while True:
            found = self._racks[self._names[position]].unfenced.next(self._epoch)
            if found is not None:
                return found, position
            position = (position + 1) % len(self._names)

    def _shuffle(self) -> None:
        shuffle(self._names, self._draws)
        for rack in self._racks.values():
            rack.shuffle(self._draws)


def place(brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, draws: Draws) -> list[list[int]]:
    """Return the replicas of each new partition. Raises ApiError INVALID_REPLICATION_FACTOR if there are too few brokers."""
    usable = list(brokers)
    racks = _RackList(usable, draws)
    if replication_factor <= 0:
        reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        raise ApiError("INVALID_REPLICATION_FACTOR", reason)
    if all(broker.fenced for broker in usable):
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
        raise ApiError("INVALID_REPLICATION_FACTOR", reason)
    if replication_factor > len(usable):
        reason = f"only {len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        text = f"The target replication factor of {replication_factor} cannot be reached because {reason}"
        raise ApiError("INVALID_REPLICATION_FACTOR", text)
    return [racks.place(replication_factor) for _ in range(partition_count)]


def shuffle(values: list[T], draws: Draws) -> None:
    """Shuffle as Collections.shuffle does."""
    for size in range(len(values), 1, -1):
        other = draws.next_int(size)
        values[size - 1], values[other] = values[other], values[size - 1]
