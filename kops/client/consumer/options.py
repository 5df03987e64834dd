"""The settings of a consumer, in the form that its parts read.

Source: Kafka's ConsumerConfig (maybeOverrideEnableAutoCommit, postProcessParsedConfig), FetchConfig, AutoOffsetResetStrategy,
GroupRebalanceConfig, JoinGroupRequest (validateGroupInstanceId). The names and limits are in `kops.client.config.consumer`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kops.client.offsets import EARLIEST, LATEST
from kops.config.values.java import INT_MAX
from kops.config.values.topic_names import is_topic_name
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.client.settings import ClientSettings

logger = logging.getLogger("kops.client")
NO_EFFECT: Final = (
    "client.dns.lookup",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "metric.reporters",
    "metrics.recording.level",
)
_SHARE_ONLY: Final = ("share.acknowledgement.mode", "share.acquire.mode")
_CLASSIC_ONLY: Final = ("heartbeat.interval.ms", "session.timeout.ms", "partition.assignment.strategy")


class Reset:
    """Where to begin in a partition without a valid position. Two resets are equal if their names are equal."""

    __slots__ = ("duration_ms", "name")

    def __init__(self, name: str, duration_ms: int | None = None) -> None:
        self.name = name
        self.duration_ms = duration_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reset) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def timestamp(self, wall_ms: int) -> int:
        """Return the timestamp to ask for in ListOffsets. `wall_ms` is the time since the epoch."""
        if self.duration_ms is not None:
            return wall_ms - self.duration_ms
        return EARLIEST if self.name == "earliest" else LATEST

    @classmethod
    def of(cls, text: str) -> Reset | None:
        """Return the reset of a valid value of auto.offset.reset. None stands for "none"."""
        if text == "none":
            return None
        from kops.config.groups import BY_DURATION, duration_ns

        if text.startswith(BY_DURATION):
            duration = duration_ns(text.removeprefix(BY_DURATION))
            assert duration is not None
            return cls(text, duration // 1_000_000)
        return cls(text)


TO_BEGINNING: Final = Reset("earliest")
TO_END: Final = Reset("latest")


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The settings. Times are in ms, sizes in bytes. `values` has all settings under Kafka's names."""

    group_id: str | None
    instance_id: str | None
    rack: str
    reset: Reset | None
    is_committed: bool
    checks_crcs: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    auto_commit_ms: int | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    may_rebootstrap: bool
    rebootstrap_ms: int
    may_create_topics: bool
    excludes_internal: bool
    uses_consumer_protocol: bool
    remote_assignor: str | None
    values: Mapping[str, object]

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ConsumerOptions:
        """Return the options for a program's settings. Raises UsageError."""
        from kops.client.config.common import no_servers, read_settings
        from kops.client.config.consumer import CONSUMER_CONFIG_DEF

        values: dict[str, Any] = read_settings(CONSUMER_CONFIG_DEF, given, unused=NO_EFFECT)
        if not values["bootstrap.servers"]:
            raise no_servers(CONSUMER_CONFIG_DEF, given)
        _check(values, given)
        group_id = values["group.id"]
        return cls(
            group_id=group_id,
            instance_id=values["group.instance.id"],
            rack=values["client.rack"],
            reset=Reset.of(values["auto.offset.reset"]),
            is_committed=values["isolation.level"] == "read_committed",
            checks_crcs=values["check.crcs"],
            fetch_min_bytes=values["fetch.min.bytes"],
            fetch_max_bytes=values["fetch.max.bytes"],
            fetch_max_wait_ms=values["fetch.max.wait.ms"],
            max_partition_fetch_bytes=values["max.partition.fetch.bytes"],
            max_poll_records=values["max.poll.records"],
            max_poll_interval_ms=values["max.poll.interval.ms"],
            auto_commit_ms=values["auto.commit.interval.ms"] if values["enable.auto.commit"] and group_id is not None else None,
            session_timeout_ms=values["session.timeout.ms"],
            heartbeat_interval_ms=values["heartbeat.interval.ms"],
            request_timeout_ms=values["request.timeout.ms"],
            api_timeout_ms=values["default.api.timeout.ms"],
            retry_backoff_ms=values["retry.backoff.ms"],
            retry_backoff_max_ms=values["retry.backoff.max.ms"],
            metadata_max_age_ms=values["metadata.max.age.ms"],
            metadata_max_idle_ms=values["metadata.max.age.ms"],
            may_rebootstrap=values["metadata.recovery.strategy"] == "rebootstrap",
            rebootstrap_ms=values["metadata.recovery.rebootstrap.trigger.ms"],
            may_create_topics=values["allow.auto.create.topics"],
            excludes_internal=values["exclude.internal.topics"],
            uses_consumer_protocol=values["group.protocol"].lower() == "consumer",
            remote_assignor=values["group.remote.assignor"],
            values=values,
        )

    @classmethod
    def of_command(cls, settings: ClientSettings, *, group_id: str | None = None, reset: Reset | None = TO_BEGINNING) -> ConsumerOptions:
        """Return the options for the settings of a command. Commands commit offsets themselves, and create no topics."""
        return cls(
            group_id=group_id,
            instance_id=settings.group_instance_id or None,
            rack=settings.client_rack,
            reset=reset,
            is_committed=settings.isolation_level == "read_committed",
            checks_crcs=settings.check_crcs,
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_bytes=settings.fetch_max_bytes,
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
            max_poll_records=INT_MAX,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            auto_commit_ms=None,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            api_timeout_ms=settings.default_api_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            metadata_max_idle_ms=settings.metadata_max_age_ms,
            may_rebootstrap=settings.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
            may_create_topics=False,
            excludes_internal=False,
            uses_consumer_protocol=False,
            remote_assignor=None,
            values={},
        )


def _check(values: dict[str, Any], given: Mapping[str, object]) -> None:
    """Check what depends on several settings."""
    group_id = values["group.id"]
    if group_id is None and values["enable.auto.commit"] and "enable.auto.commit" in given:
        raise UsageError("enable.auto.commit=true: not allowed without group.id")
    if group_id is not None and not group_id.strip():
        raise UsageError(f"group.id={group_id!r}: not allowed; allowed: a text that is not empty")
    instance_id = values["group.instance.id"]
    if instance_id is not None and not is_topic_name(instance_id):
        allowed = "1 to 249 letters, digits, dots, underscores and hyphens, and not . or .."
        raise UsageError(f"group.instance.id={instance_id!r}: not allowed; allowed: {allowed}")
    for name in _SHARE_ONLY:
        if name in given:
            raise UsageError(f"{name}: not allowed, because it is for share consumers")
    if values["group.protocol"].lower() == "consumer":
        for name in _CLASSIC_ONLY:
            if name in given:
                raise UsageError(f"{name}: not allowed with group.protocol=consumer, where the broker decides it")
    elif values["group.remote.assignor"] is not None:
        raise UsageError("group.remote.assignor: not allowed with group.protocol=classic")
    elif values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
        text = f"heartbeat.interval.ms={values['heartbeat.interval.ms']}"
        raise UsageError(f"{text}: not allowed; allowed: less than session.timeout.ms={values['session.timeout.ms']}")
    if values["fetch.max.bytes"] < values["max.partition.fetch.bytes"]:
        logger.debug("fetch.max.bytes=%d limits max.partition.fetch.bytes", values["fetch.max.bytes"])
