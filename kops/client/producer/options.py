"""The settings of a producer, in the form that its parts read.

Source: Kafka's KafkaProducer (configure…). The names and limits are in `kops.client.config.producer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kops.config.values.java import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.client.settings import ClientSettings

_IN_FLIGHT: Final = 5  # max.in.flight.requests.per.connection of an idempotent producer


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The settings. Times are in ms, sizes in bytes. The names are Kafka's with underscores. `values` has all settings under Kafka's
    names."""

    acks: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    compression_type: str
    compression_level: int | None
    max_in_flight: int
    is_idempotent: bool
    is_adaptive: bool
    availability_timeout_ms: int
    ignores_keys: bool
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    may_rebootstrap: bool
    rebootstrap_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    values: Mapping[str, object]
    sends_once: bool = False
    """Whether a batch that is too large is not split. Without retries, the first error of a batch is then its outcome."""
    creates_topics: bool = True
    """Whether brokers may create a missing topic (auto.create.topics.enable)."""

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ProducerOptions:
        """Return the options for a program's settings. Raises UsageError."""
        from kops.client.config.producer import producer_settings

        values: dict[str, Any] = producer_settings(given)
        codec = values["compression.type"]
        level = values.get(f"compression.{codec}.level")
        return cls(
            acks=int(values["acks"]),
            batch_size=values["batch.size"],
            linger_ms=min(values["linger.ms"], INT_MAX),
            buffer_memory=values["buffer.memory"],
            max_request_size=values["max.request.size"],
            request_timeout_ms=values["request.timeout.ms"],
            delivery_timeout_ms=values["delivery.timeout.ms"],
            max_block_ms=values["max.block.ms"],
            retries=values["retries"],
            retry_backoff_ms=values["retry.backoff.ms"],
            retry_backoff_max_ms=values["retry.backoff.max.ms"],
            compression_type=codec,
            compression_level=None if level == -1 and codec == "gzip" else level,
            max_in_flight=values["max.in.flight.requests.per.connection"],
            is_idempotent=values["enable.idempotence"],
            is_adaptive=values["partitioner.adaptive.partitioning.enable"],
            availability_timeout_ms=values["partitioner.availability.timeout.ms"],
            ignores_keys=values["partitioner.ignore.keys"],
            metadata_max_age_ms=values["metadata.max.age.ms"],
            metadata_max_idle_ms=values["metadata.max.idle.ms"],
            may_rebootstrap=values["metadata.recovery.strategy"] == "rebootstrap",
            rebootstrap_ms=values["metadata.recovery.rebootstrap.trigger.ms"],
            transactional_id=values["transactional.id"],
            transaction_timeout_ms=values["transaction.timeout.ms"],
            values=values,
        )

    @classmethod
    def of_command(cls, settings: ClientSettings) -> ProducerOptions:
        """Return the options for the settings of a command. Without idempotence, one request at a time keeps the order of records."""
        return cls(
            acks=int(settings.acks),
            batch_size=settings.batch_size,
            linger_ms=min(settings.linger_ms, INT_MAX),
            buffer_memory=settings.buffer_memory,
            max_request_size=settings.max_request_size,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            max_block_ms=settings.default_api_timeout_ms,
            retries=settings.retries,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            compression_type=settings.compression_type,
            compression_level=settings.compression_level,
            max_in_flight=_IN_FLIGHT if settings.enable_idempotence else 1,
            is_idempotent=settings.enable_idempotence,
            is_adaptive=settings.partitioner_adaptive_partitioning_enable,
            availability_timeout_ms=0,
            ignores_keys=settings.partitioner_ignore_keys,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            metadata_max_idle_ms=settings.metadata_max_age_ms,
            may_rebootstrap=settings.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
            transactional_id=settings.transactional_id or None,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            values={},
        )
