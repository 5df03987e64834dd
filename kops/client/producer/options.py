"""The settings of a producer, in the form that its parts read.

Source: Kafka's KafkaProducer (configure…). The names and limits are in `kops.client.config.producer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kops.client.config.producer import producer_settings
from kops.config.values.java import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ProducerOptions:
        """Return the options for a program's settings. Raises UsageError."""
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
