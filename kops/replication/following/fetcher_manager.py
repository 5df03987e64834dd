"""The assignment of partitions to fetchers (Kafka AbstractFetcherManager, ReplicaFetcherManager, ReplicaAlterLogDirsManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java_hash import string_hash
from kops.replication.following.fetch_state import FetchState, InitialFetchState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.records.log_offsets import TopicPartition
    from kops.replication.following.fetcher import Fetcher


class BrokerEndPoint(NamedTuple):
    """The address of a leader."""

    id: int
    host: str
    port: int


class FetcherId(NamedTuple):
    """A fetcher: its leader, and its number among the fetchers of that leader."""

    broker_id: int
    number: int


def fetcher_number(key: TopicPartition, fetcher_count: int) -> int:
    """Return the number of the leader's fetcher for a partition, computed as in Kafka."""
    value = (31 * string_hash(key.topic) + key.partition + 2**31) % 2**32 - 2**31
    return (0 if value == -(2**31) else abs(value)) % fetcher_count


class FetcherManager:
    """All fetchers of one kind. `create` makes one for a leader, and `stop` ends one (its connection, its request in flight)."""

    def __init__(
        self, fetcher_count: int, create: Callable[[FetcherId, BrokerEndPoint], Fetcher], stop: Callable[[FetcherId, Fetcher], None]
    ) -> None:
        self.fetchers: dict[FetcherId, Fetcher] = {}
        self.failed: set[TopicPartition] = set()
        self._fetcher_count = fetcher_count
        self._leaders: dict[FetcherId, BrokerEndPoint] = {}
        self._create = create
        self._stop = stop

    def add(self, partitions: Mapping[TopicPartition, tuple[BrokerEndPoint, InitialFetchState]]) -> None:
        """Follow these partitions from their leaders. A leader with a new address gets a new fetcher."""
        by_fetcher: dict[tuple[FetcherId, BrokerEndPoint], dict[TopicPartition, InitialFetchState]] = {}
        for key, (leader, initial) in partitions.items():
            fetcher_id = FetcherId(leader.id, fetcher_number(key, self._fetcher_count))
            by_fetcher.setdefault((fetcher_id, leader), {})[key] = initial
        for (fetcher_id, leader), initials in by_fetcher.items():
            fetcher = self.fetchers.get(fetcher_id)
            if fetcher is None or self._leaders[fetcher_id] != leader:
                if fetcher is not None:
                    self._stop(fetcher_id, fetcher)
                fetcher = self.fetchers[fetcher_id] = self._create(fetcher_id, leader)
                self._leaders[fetcher_id] = leader
            fetcher.add_partitions(initials)

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchState]:
        """Stop following these partitions, and return their states."""
        removed: dict[TopicPartition, FetchState] = {}
        gone = list(keys)
        for fetcher in self.fetchers.values():
            removed |= fetcher.remove_partitions(gone)
        self.failed.difference_update(gone)
        return removed

    def fetcher_of(self, key: TopicPartition) -> Fetcher | None:
        """Return the fetcher of a partition, or None."""
        return next((fetcher for fetcher in self.fetchers.values() if key in fetcher.states), None)

    def mark_for_truncation(self, broker_id: int, key: TopicPartition, offset: int) -> None:
        """See `Fetcher.mark_for_truncation`."""
        fetcher = self.fetchers.get(FetcherId(broker_id, fetcher_number(key, self._fetcher_count)))
        if fetcher is not None:
            fetcher.mark_for_truncation(key, offset)

    def update_topic_ids(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Set the ids of topics."""
        for fetcher in self.fetchers.values():
            fetcher.update_topic_ids(topic_ids)

    def resize(self, fetcher_count: int) -> None:
        """Apply a new `num.replica.fetchers`: reassign the partitions. Each continues at its current offset."""
        if fetcher_count != self._fetcher_count:
            self._fetcher_count = fetcher_count
            moved: dict[TopicPartition, tuple[BrokerEndPoint, InitialFetchState]] = {}
            for fetcher_id, fetcher in self.fetchers.items():
                for key, state in fetcher.remove_partitions(list(fetcher.states)).items():
                    initial = InitialFetchState(state.topic_id, state.current_leader_epoch, state.fetch_offset)
                    moved[key] = (self._leaders[fetcher_id], initial)
            self.add(moved)
        self.stop_idle()

    def stop_idle(self) -> None:
        """End the fetchers without partitions."""
        for fetcher_id in [fetcher_id for fetcher_id, fetcher in self.fetchers.items() if not fetcher.states]:
            self._end(fetcher_id)

    def close(self) -> None:
        """End all fetchers."""
        for fetcher_id in list(self.fetchers):
            self._end(fetcher_id)

    def _end(self, fetcher_id: FetcherId) -> None:
        self._stop(fetcher_id, self.fetchers.pop(fetcher_id))
        del self._leaders[fetcher_id]
