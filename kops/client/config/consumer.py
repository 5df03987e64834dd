"""The settings of the consumer and the share consumer.

Source (names, types, defaults, limits, order): Kafka's ConsumerConfig, AutoOffsetResetStrategy, ShareAcknowledgementMode, ShareAcquireMode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.config.common import common, no_servers, read_settings
from kops.client.config.security import SECURITY
from kops.config.groups import BY_DURATION, duration_ns
from kops.config.values.definition import (
    NON_EMPTY,
    ConfigDef,
    ConfigKey,
    Validator,
    any_list,
    at_least,
    invalid,
    one_of,
    one_of_ignoring_case,
)
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import Value


def _other_reset(name: str, value: Value) -> str | None:
    if value in ("earliest", "latest", "none"):
        return None
    if isinstance(value, str) and value.startswith(BY_DURATION) and duration_ns(value.removeprefix(BY_DURATION)) is not None:
        return None
    return invalid(name, value)


_RESET: Final = Validator(_other_reset, "earliest, latest, none or by_duration:PnDTnHnMn.nS")
CONSUMER_CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey("bootstrap.servers", "list", None, any_list(empty=False, null=False), "high", required=True),
        *common("client.dns.lookup"),
        ConfigKey("group.id", "string", None, None, "high"),
        ConfigKey("group.instance.id", "string", None, NON_EMPTY, "medium"),
        ConfigKey("session.timeout.ms", "int", 45_000, None, "high"),
        ConfigKey("heartbeat.interval.ms", "int", 3_000, None, "high"),
        ConfigKey(
            "partition.assignment.strategy",
            "list",
            ["org.apache.kafka.clients.consumer.RangeAssignor", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"],
            any_list(empty=True, null=False),
            "medium",
        ),
        *common("metadata.max.age.ms"),
        ConfigKey("enable.auto.commit", "boolean", True, None, "medium"),
        ConfigKey("auto.commit.interval.ms", "int", 5_000, at_least(0), "low"),
        ConfigKey("client.id", "string", "", None, "low"),
        ConfigKey("client.rack", "string", "", None, "low"),
        ConfigKey("max.partition.fetch.bytes", "int", 1_048_576, at_least(0), "high"),
        *common("send.buffer.bytes"),
        ConfigKey("receive.buffer.bytes", "int", 65_536, at_least(-1), "medium"),
        ConfigKey("fetch.min.bytes", "int", 1, at_least(0), "high"),
        ConfigKey("fetch.max.bytes", "int", 52_428_800, at_least(0), "medium"),
        ConfigKey("fetch.max.wait.ms", "int", 500, at_least(0), "low"),
        *common("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        ConfigKey("enable.metrics.push", "boolean", True, None, "low"),
        ConfigKey("auto.offset.reset", "string", "latest", _RESET, "medium"),
        ConfigKey("check.crcs", "boolean", True, None, "low"),
        *common("metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level", "metric.reporters"),
        ConfigKey("key.deserializer", "class", None, None, "high", required=True),
        ConfigKey("value.deserializer", "class", None, None, "high", required=True),
        *common(
            "request.timeout.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"
        ),
        ConfigKey("connections.max.idle.ms", "long", 540_000, None, "medium"),
        *common("interceptor.classes"),
        ConfigKey("max.poll.records", "int", 500, at_least(1), "medium"),
        ConfigKey("max.poll.interval.ms", "int", 300_000, at_least(1), "medium"),
        ConfigKey("exclude.internal.topics", "boolean", True, None, "medium"),
        ConfigKey("internal.throw.on.fetch.stable.offset.unsupported", "boolean", False, None, "low", internal=True),
        ConfigKey("isolation.level", "string", "read_uncommitted", one_of("read_committed", "read_uncommitted"), "medium"),
        ConfigKey("allow.auto.create.topics", "boolean", True, None, "medium"),
        ConfigKey("group.protocol", "string", "classic", one_of_ignoring_case("CONSUMER", "CLASSIC"), "high"),
        ConfigKey("group.remote.assignor", "string", None, None, "medium"),
        *common("security.providers", "security.protocol"),
        *SECURITY,
        *common("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
        ConfigKey("share.acknowledgement.mode", "string", "implicit", one_of("implicit", "explicit"), "medium"),
        ConfigKey("share.acquire.mode", "string", "BATCH_OPTIMIZED", one_of_ignoring_case("BATCH_OPTIMIZED", "RECORD_LIMIT"), "medium"),
        *common("config.providers"),
    ]
)
# ShareConsumerConfig: the group decides these, or they have no meaning for it.
NOT_FOR_SHARE_GROUPS: Final = (
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol",
    "group.remote.assignor",
)
_UNUSED_BY_SHARE_CONSUMERS: Final = (
    "client.dns.lookup",
    "exclude.internal.topics",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "max.partition.fetch.bytes",
    "metric.reporters",
    "metrics.recording.level",
)


def share_consumer_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return the values of all settings for a program's settings of a share consumer. Raises UsageError."""
    wrong = [name for name in NOT_FOR_SHARE_GROUPS if name in given]
    if wrong:
        raise UsageError(f"{', '.join(wrong)}: not allowed in a share group")
    values = read_settings(CONSUMER_CONFIG_DEF, given, unused=_UNUSED_BY_SHARE_CONSUMERS)
    if not values["bootstrap.servers"]:
        raise no_servers(CONSUMER_CONFIG_DEF, given)
    if not str(values["group.id"] or "").strip():
        raise UsageError(f"group.id={values['group.id'] or ''}: missing; allowed: the name of a share group")
    return values
