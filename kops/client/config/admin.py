"""The settings of the admin client, and the rules between them.

Source (names, types, defaults, limits, order, rules): Kafka's AdminClientConfig, AdminBootstrapAddresses, KafkaAdminClient
(configureDefaultApiTimeoutMs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.client.config.common import common, logger, no_servers, read_settings
from kops.client.config.security import SECURITY
from kops.config.values.definition import ConfigDef, ConfigKey, any_list, at_least, between
from kops.config.values.java import INT_MAX
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNUSED: Final = (
    "client.dns.lookup",
    "metric.reporters",
    "metrics.recording.level",
)

ADMIN_CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey("bootstrap.servers", "list", [], any_list(empty=True, null=False), "high"),
        ConfigKey("bootstrap.controllers", "list", [], any_list(empty=True, null=False), "high"),
        ConfigKey("client.id", "string", "", None, "medium"),
        *common("metadata.max.age.ms", "send.buffer.bytes"),
        ConfigKey("receive.buffer.bytes", "int", 65_536, at_least(-1), "medium"),
        *common("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        ConfigKey("enable.metrics.push", "boolean", False, None, "low"),
        *common("request.timeout.ms", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
        ConfigKey("connections.max.idle.ms", "long", 300_000, None, "medium"),
        ConfigKey("retries", "int", INT_MAX, between(0, INT_MAX), "low"),
        *common(
            "default.api.timeout.ms",
            "metrics.sample.window.ms",
            "metrics.num.samples",
            "metric.reporters",
            "metrics.recording.level",
            "client.dns.lookup",
            "security.providers",
            "security.protocol",
        ),
        *SECURITY,
        *common("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "config.providers"),
    ]
)


def admin_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return the values of all settings for a program's settings. Raises UsageError."""
    values = read_settings(ADMIN_CONFIG_DEF, given, unused=_UNUSED)
    if values["bootstrap.servers"] and values["bootstrap.controllers"]:
        raise UsageError("bootstrap.servers and bootstrap.controllers exclude each other")
    if not values["bootstrap.servers"] and not values["bootstrap.controllers"]:
        raise no_servers(ADMIN_CONFIG_DEF, given, "; bootstrap.controllers for controllers")
    request_ms = cast(int, values["request.timeout.ms"])
    api_ms = cast(int, values["default.api.timeout.ms"])
    if api_ms < request_ms:
        if "default.api.timeout.ms" in given:
            raise UsageError(f"default.api.timeout.ms={api_ms}: not allowed; allowed: request.timeout.ms ({request_ms}) or more")
        logger.warning("default.api.timeout.ms is %d instead of %d: that is request.timeout.ms", request_ms, api_ms)
        values["default.api.timeout.ms"] = request_ms
    return values
