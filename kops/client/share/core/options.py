"""The settings of a share consumer, in the form that its parts read.

Source: Kafka's ShareConsumerConfig, ShareFetchConfig, ShareAcquireMode, ShareAcknowledgementMode. The names and limits are in
`kops.client.config.consumer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kops.client.config.consumer import share_consumer_settings
from kops.client.groups.modern.heartbeats import ModernSettings
from kops.client.share.core.sessions import BATCH_OPTIMIZED, RECORD_LIMIT, FetchLimits

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """The settings. Times are in ms. `values` has all settings under Kafka's names."""

    limits: FetchLimits
    member: ModernSettings
    is_explicit: bool
    may_create_topics: bool
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    may_rebootstrap: bool
    rebootstrap_ms: int
    values: Mapping[str, object]

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ShareOptions:
        """Return the options for a program's settings. Raises UsageError."""
        values: dict[str, Any] = share_consumer_settings(given)
        limits = FetchLimits(
            group_id=values["group.id"],
            max_wait_ms=values["fetch.max.wait.ms"],
            min_bytes=values["fetch.min.bytes"],
            max_bytes=values["fetch.max.bytes"],
            max_poll_records=values["max.poll.records"],
            acquire_mode=RECORD_LIMIT if values["share.acquire.mode"].upper() == "RECORD_LIMIT" else BATCH_OPTIMIZED,
            checks_crcs=values["check.crcs"],
        )
        member = ModernSettings(values["group.id"], values["max.poll.interval.ms"], rack=values["client.rack"] or None)
        return cls(
            limits=limits,
            member=member,
            is_explicit=values["share.acknowledgement.mode"] == "explicit",
            may_create_topics=values["allow.auto.create.topics"],
            request_timeout_ms=values["request.timeout.ms"],
            api_timeout_ms=values["default.api.timeout.ms"],
            retry_backoff_ms=values["retry.backoff.ms"],
            retry_backoff_max_ms=values["retry.backoff.max.ms"],
            metadata_max_age_ms=values["metadata.max.age.ms"],
            metadata_max_idle_ms=values["metadata.max.age.ms"],
            may_rebootstrap=values["metadata.recovery.strategy"] == "rebootstrap",
            rebootstrap_ms=values["metadata.recovery.rebootstrap.trigger.ms"],
            values=values,
        )
