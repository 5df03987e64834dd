"""The settings of the admin client.

Source (names, types, defaults, limits, order): Kafka's AdminClientConfig.
"""

from __future__ import annotations

from typing import Final

from kops.client.config.common import common
from kops.client.config.security import SECURITY
from kops.config.values.definition import ConfigDef, ConfigKey, any_list, at_least, between
from kops.config.values.java import INT_MAX

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
