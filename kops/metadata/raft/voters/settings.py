"""The settings of a quorum (`controller.quorum.*`), and Kafka's fixed sizes.

Source: Kafka's QuorumConfig and KafkaRaftClient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_BATCH_SIZE: Final = 8 * 1024 * 1024
"""The maximum size of a leader's batch in bytes."""
MAX_BATCH_COUNT: Final = 10
"""The number of completed batches that may wait to be appended."""
MAX_FETCH_WAIT_MS: Final = 500
OBSERVER_TIMEOUT_MS: Final = 300_000
"""After this time without a fetch, an observer is forgotten."""
CATCH_UP_MS: Final = 3_600_000
"""A new voter must have fetched within this time."""
CLEAN_PERIOD_MS: Final = 60_000


def same_clock(now_ms: int) -> int:
    """Return the time to write, for a node whose clock is the wall clock."""
    return now_ms


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Times are in ms, sizes in bytes. The defaults are Kafka's."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    auto_join: bool = False
    fetch_max_size: int = 1_048_576
    fetch_snapshot_max_size: int = 1_048_576
    fetch_max_wait_ms: int = MAX_FETCH_WAIT_MS

    @property
    def check_quorum_timeout_ms(self) -> int:
        """After this time without fetches of a majority, a leader resigns."""
        return int(self.fetch_timeout_ms * 1.5)

    @property
    def begin_quorum_period_ms(self) -> int:
        """The interval at which a leader announces itself to voters that do not fetch."""
        return self.fetch_timeout_ms // 2
