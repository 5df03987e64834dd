"""The settings of the transaction coordinator (Kafka's TransactionConfig, TransactionStateManagerConfig, AddPartitionsToTxnConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Settings(Protocol):
    """The settings of a broker (`kops.config.BrokerConfig`)."""

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings. Times are in ms, sizes in bytes. Names and defaults are Kafka's."""

    transactional_id_expiration_ms: int = 604_800_000
    transaction_max_timeout_ms: int = 900_000
    load_buffer_size: int = 5 * 1024 * 1024
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False
    request_timeout_ms: int = 30_000
    add_partitions_retry_backoff_ms: int = 20
    add_partitions_retry_backoff_max_ms: int = 100

    @classmethod
    def of(cls, settings: Settings) -> TransactionConfig:
        """Read the settings of a broker, by Kafka's keys."""
        return cls(*(settings[key] for key in _KEYS))


_KEYS = (
    "transactional.id.expiration.ms",
    "transaction.max.timeout.ms",
    "transaction.state.log.load.buffer.size",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.two.phase.commit.enable",
    "request.timeout.ms",
    "add.partitions.to.txn.retry.backoff.ms",
    "add.partitions.to.txn.retry.backoff.max.ms",
)
