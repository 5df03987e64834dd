"""A share fetch in the purgatory. Source: DelayedShareFetch as a DelayedOperation."""

from __future__ import annotations

from collections.abc import Callable

from kops.coordinators.share.fetching.delayed import DelayedShareFetch
from kops.replication.waiting.purgatory import DelayedOperation


class ParkedShareFetch(DelayedOperation):
    """Waits for records, for room in the window, or for the end of another fetch. `on_expired` is called on time-out."""

    __slots__ = ("_fetch", "_on_expired")

    def __init__(self, max_wait_ms: int, fetch: DelayedShareFetch, on_expired: Callable[[], None]) -> None:
        super().__init__(max_wait_ms)
        self._fetch = fetch
        self._on_expired = on_expired

    def try_complete(self) -> bool:
        """Complete the fetch if there is enough data or an error."""
        return self._fetch.try_complete() and self.force_complete()

    def on_complete(self) -> None:
        """Acquire records and answer."""
        self._fetch.complete()

    def on_expiration(self) -> None:
        """Count the time-out."""
        self._on_expired()
