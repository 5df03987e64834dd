"""Limits on the number and the rate of connections. In: counts. Out: decisions.

Source: Kafka's ConnectionQuotas (SocketServer.scala), Rate, SampledStat and QuotaUtils; KIP-402 (listeners), KIP-612 (rates).
The listener between brokers is protected if there is another one: the limits of the node don't apply to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kops.config.values.java import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.broker.network.settings import ListenerSettings, NetworkSettings


@dataclass(slots=True)
class _Sample:
    """The count of one window."""

    start_ms: int
    last_event_ms: int
    value: float = 0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0


class Rate:
    """Events a second over the last `window_count` windows. `record` compares them with the quota `bound`."""

    def __init__(self, bound: int, *, window_count: int, window_ms: int) -> None:
        self.bound = bound
        self._window_count = window_count
        self._window_ms = window_ms
        # One more than the counted windows, for a sample that began before them and reaches into them.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, now_ms: int, value: float = 1) -> int:
        """Count an event. Returns the ms until the rate is within its limit again, 0 if it is now."""
        self._add(now_ms, value)
        size_ms = self._window_size_ms(now_ms)
        rate = sum(sample.value for sample in self._samples) / (size_ms / 1000)
        if rate <= self.bound:
            return 0
        # A bound of 0 allows nothing in any finite time; Java's Math.round of that is the largest long.
        return INT_MAX if self.bound == 0 else int((rate - self.bound) / self.bound * size_ms + 0.5)

    def take_back(self, now_ms: int) -> None:
        """Take back a recorded event."""
        self._add(now_ms, -1)

    def _add(self, now_ms: int, value: float) -> None:
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            self._current = (self._current + 1) % (self._window_count + 1)
            if self._current == len(self._samples):
                self._samples.append(_Sample(now_ms, now_ms))
            sample = self._samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def _window_size_ms(self, now_ms: int) -> int:
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= self._window_count * self._window_ms:
                sample.reset(now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        # Without enough history the missing windows count as empty, except the one that is being filled.
        missing = self._window_count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)


class ConnectionLimits:
    """Counts of connections by address and listener. Addresses are IP texts."""

    def __init__(self, settings: NetworkSettings, overrides: Mapping[str, int]) -> None:
        """`overrides` is `max.connections.per.ip.overrides` with addresses for its host names."""
        self._window_count = settings.quota_window_num
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._inter_broker_listener = settings.inter_broker_listener_name
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._max_by_listener: dict[str, int] = {}
        self._listener_rates: dict[str, Rate] = {}
        self._address_rates: dict[str, Rate] = {}
        self._address_bounds: dict[str, int] = {}
        self._default_address_bound = INT_MAX
        self.total = 0
        self._rate = self._new_rate(settings.max_connection_creation_rate)
        self.update(settings, overrides)
        for listener in settings.listeners:
            self.add_listener(listener)

    def _new_rate(self, bound: int) -> Rate:
        return Rate(bound, window_count=self._window_count, window_ms=self._window_ms)

    # settings ---------------------------------------------------------------------------------------------------------------------

    def update(self, settings: NetworkSettings, overrides: Mapping[str, int]) -> None:
        """Set the limits of the node as a whole. Existing connections stay."""
        self._max_per_address = settings.max_connections_per_ip
        self._max_per_address_overrides = dict(overrides)
        self._max = settings.max_connections
        self._rate.bound = settings.max_connection_creation_rate

    def add_listener(self, listener: ListenerSettings) -> None:
        """Add a listener, or change the limits of a known one."""
        self._by_listener.setdefault(listener.name, 0)
        self._max_by_listener[listener.name] = listener.max_connections
        rate = self._listener_rates.setdefault(listener.name, self._new_rate(INT_MAX))
        rate.bound = listener.max_connection_creation_rate

    def remove_listener(self, name: str) -> None:
        """Forget a listener, whose connections are closed."""
        for table in (self._by_listener, self._max_by_listener, self._listener_rates):
            table.pop(name, None)

    def set_address_rate(self, address: str | None, bound: int | None) -> None:
        """Set the quota `connection_creation_rate` of an address, or with None the default for addresses; a bound of None removes it."""
        if address is None:
            self._default_address_bound = INT_MAX if bound is None else bound
        elif bound is None:
            self._address_bounds.pop(address, None)
        else:
            self._address_bounds[address] = bound
        for known, rate in self._address_rates.items():
            rate.bound = self._address_bound(known)

    def _address_bound(self, address: str) -> int:
        return self._address_bounds.get(address, self._default_address_bound)

    # verdicts ---------------------------------------------------------------------------------------------------------------------

    def is_protected(self, listener: str) -> bool:
        """Whether a listener is exempt from the node's limits."""
        return listener == self._inter_broker_listener and len(self._by_listener) > 1

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection. Returns how long it must wait because of the rates of the node and the listener."""
        delay_ms = 0 if self.is_protected(listener) else self._rate.record(now_ms)
        return min(max(delay_ms, self._listener_rates[listener].record(now_ms)), self._window_ms)

    def has_slot(self, listener: str) -> bool:
        """Whether one more connection is within the limits of its listener and of the node."""
        if self._by_listener[listener] >= self._max_by_listener[listener]:
            return False
        return self.is_protected(listener) or self.total < self._max

    def address_delay_ms(self, listener: str, address: str, now_ms: int) -> int:
        """Return how long a connection waits before it is rejected because its address connects too often; 0 if it is accepted.

        A rejected connection counts for no rate."""
        bound = self._address_bound(address)
        if bound == INT_MAX:
            return 0
        rate = self._address_rates.get(address)
        if rate is None:
            rate = self._address_rates[address] = self._new_rate(bound)
        delay_ms = min(rate.record(now_ms), self._window_ms)
        if delay_ms:
            rate.take_back(now_ms)
            if not self.is_protected(listener):
                self._rate.take_back(now_ms)
            self._listener_rates[listener].take_back(now_ms)
        return delay_ms

    def is_full(self, address: str) -> bool:
        """Whether an address has reached its limit."""
        return self.count(address) >= self.max_of(address)

    def max_of(self, address: str) -> int:
        """Return the limit of connections of an address."""
        return self._max_per_address_overrides.get(address, self._max_per_address)

    def is_exceeded(self) -> bool:
        """Whether a protected connection exceeds the node's limit, so that another one must be closed."""
        return self.total > self._max

    # counting ---------------------------------------------------------------------------------------------------------------------

    def count(self, address: str) -> int:
        """Return the number of connections of an address."""
        return self._by_address.get(address, 0)

    def listener_count(self, listener: str) -> int:
        """Return the number of connections of a listener."""
        return self._by_listener[listener]

    def add(self, listener: str, address: str) -> None:
        """Count an accepted connection."""
        self.total += 1
        self._by_listener[listener] += 1
        self._by_address[address] = self.count(address) + 1

    def remove(self, listener: str, address: str) -> None:
        """Count a closed connection."""
        self.total -= 1
        self._by_listener[listener] -= 1
        left = self._by_address.pop(address) - 1
        if left:
            self._by_address[address] = left
