"""The settings of a subscription to clients' metrics: which metrics, how often, from which clients.

Source: Kafka's ClientMetricsConfigs (KIP-714). A value that is not allowed raises `ApiError` INVALID_REQUEST or INVALID_CONFIG with Kafka's
text. Python's rules decide whether a pattern is valid. They equal Java's except for `\\p{…}`, a brace that opens no repetition, and a few
rare cases.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.values.definition import ConfigDef, ConfigKey, any_list
from kops.config.values.java import split, trim
from kops.config.values.java_hash import put_order
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIST: Final = any_list(empty=True, null=False)
_INTERVAL: Final = "interval.ms"
_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000
_CLASS_OF_CHARACTERS: Final = re.compile(r"\\[pP](?:\{\w+\}|\w)")
_LITERALS: Final = re.compile(r"\\.|\[[^\]]*\]")
_ILLEGAL_BRACE: Final = re.compile(r"\{(?!\d+(?:,\d*)?\})")
_MATCHED: Final = frozenset(
    ("client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port")
)

CLIENT_METRICS_CONFIG_DEF: Final = ConfigDef(
    (
        ConfigKey("metrics", "list", [], _LIST),
        ConfigKey(_INTERVAL, "int", 300_000),
        ConfigKey("match", "list", [], _LIST),
    )
)


def validate_client_metrics(subscription: str, settings: Mapping[str, str]) -> None:
    """Check whether a subscription may have these settings."""
    if not subscription:
        raise ApiError("INVALID_REQUEST", "Subscription name can't be empty")
    for name in put_order(settings):
        if name not in CLIENT_METRICS_CONFIG_DEF.keys:
            raise ApiError("INVALID_REQUEST", f"Unknown client metrics configuration: {name}")
    values = CLIENT_METRICS_CONFIG_DEF.accept(settings)
    interval_ms, patterns = values[_INTERVAL], values["match"]
    assert isinstance(interval_ms, int) and isinstance(patterns, list)
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        allowed = f"interval must be between {_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
        raise ApiError("INVALID_REQUEST", f"Invalid value {interval_ms} for {_INTERVAL}, {allowed}")
    for pattern in patterns:
        if not _is_matching(pattern):
            raise ApiError("INVALID_CONFIG", f"Illegal client matching pattern: {pattern}")


def _is_matching(pattern: str) -> bool:
    parts = split("=", pattern)
    if len(parts) != 2 or trim(parts[0]) not in _MATCHED:
        return False
    expression = _CLASS_OF_CHARACTERS.sub(r"\\w", trim(parts[1]))
    try:
        re.compile(expression)
    except re.error:
        return False
    return _ILLEGAL_BRACE.search(_LITERALS.sub("", expression)) is None
