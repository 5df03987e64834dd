"""The settings that all clients share, and the parsing of a program's settings: types, limits, and settings that kops does not support.

Source: Kafka's CommonClientConfigs, AbstractConfig and ConfigDef.parseType. Values may be Python's (5, True, a list, a class) or texts. An
unknown name is logged, as in Kafka, and is otherwise ignored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.client.config.security import SECURITY
from kops.config.values.definition import ConfigDef, ConfigKey, Kind, any_list, at_least, one_of, one_of_ignoring_case
from kops.config.values.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger("kops.client")

_COMMON: Final = (
    ConfigKey(
        "client.dns.lookup", "string", "use_all_dns_ips", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "medium"
    ),
    ConfigKey("send.buffer.bytes", "int", 131_072, at_least(-1), "medium"),
    ConfigKey("reconnect.backoff.ms", "long", 50, at_least(0), "low"),
    ConfigKey("reconnect.backoff.max.ms", "long", 1_000, at_least(0), "low"),
    ConfigKey("retry.backoff.ms", "long", 100, at_least(0), "low"),
    ConfigKey("retry.backoff.max.ms", "long", 1_000, at_least(0), "low"),
    ConfigKey("request.timeout.ms", "int", 30_000, at_least(0), "medium"),
    ConfigKey("metadata.max.age.ms", "long", 300_000, at_least(0), "low"),
    ConfigKey("metrics.sample.window.ms", "long", 30_000, at_least(0), "low"),
    ConfigKey("metrics.num.samples", "int", 2, at_least(1), "low"),
    ConfigKey("metrics.recording.level", "string", "INFO", one_of("INFO", "DEBUG", "TRACE"), "low"),
    ConfigKey("metric.reporters", "list", ["org.apache.kafka.common.metrics.JmxReporter"], any_list(empty=True, null=False), "low"),
    ConfigKey("socket.connection.setup.timeout.ms", "long", 10_000, None, "medium"),
    ConfigKey("socket.connection.setup.timeout.max.ms", "long", 30_000, None, "medium"),
    ConfigKey("interceptor.classes", "list", [], any_list(empty=True, null=False), "low"),
    ConfigKey("security.protocol", "string", "PLAINTEXT", one_of_ignoring_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"), "medium"),
    ConfigKey("security.providers", "string", None, None, "low"),
    ConfigKey("metadata.recovery.strategy", "string", "rebootstrap", one_of_ignoring_case("REBOOTSTRAP", "NONE"), "low"),
    ConfigKey("metadata.recovery.rebootstrap.trigger.ms", "long", 300_000, at_least(0), "low"),
    ConfigKey("config.providers", "list", [], any_list(empty=True, null=False), "low"),
    ConfigKey("default.api.timeout.ms", "int", 60_000, at_least(0), "medium"),
)
_BY_NAME: Final = {key.name: key for key in _COMMON}
_REFUSED: Final = {
    **dict.fromkeys((key.name for key in SECURITY), "TLS and SASL are not supported yet, only PLAINTEXT"),
    "security.providers": "TLS and SASL are not supported yet, only PLAINTEXT",
    "config.providers": "config providers are Java classes",
}
_RANGES: Final[dict[Kind, tuple[int, int]]] = {"short": (-0x8000, 0x7FFF), "int": (INT_MIN, INT_MAX), "long": (LONG_MIN, LONG_MAX)}


def common(*names: str) -> list[ConfigKey]:
    """Return the shared settings with these names."""
    return [_BY_NAME[name] for name in names]


def read_settings(definition: ConfigDef, given: Mapping[str, object], *, unused: Iterable[str] = ()) -> dict[str, object]:
    """Return the values of all settings of a definition. Raises UsageError for a value that is not allowed or not supported.

    A required setting that is missing is None, because the caller can report it best. Names in `unused` have no effect in kops and are
    logged like unknown ones.
    """
    for name in given:
        if name in _REFUSED:
            raise UsageError(f"{name}: not supported: {_REFUSED[name]}")
        if name not in definition.keys:
            near = definition.near(name)
            logger.warning("unknown setting %s is ignored%s", name, f"; did you mean {' or '.join(near)}?" if near else "")
    ineffective = [name for name in unused if name in given]
    if ineffective:
        logger.warning("these settings have no effect here: %s", ", ".join(ineffective))
    values = {name: read_value(key, given[name]) if name in given else key.default for name, key in definition.keys.items()}
    _check_common(values, given)
    return values


def no_servers(definition: ConfigDef, given: Mapping[str, object], more: str = "") -> UsageError:
    """Return the error for a client without brokers. It names an unknown setting that was probably meant."""
    addresses = ("bootstrap.servers", "bootstrap.controllers")
    typos = {name: [one for one in definition.near(name) if one in addresses] for name in given if name not in definition.keys}
    hints = (f"; unknown setting {name}, did you mean {' or '.join(near)}?" for name, near in typos.items() if near)
    return UsageError(f"bootstrap.servers: missing; allowed: host:port[,host:port…]{more}{''.join(hints)}")


def read_value(key: ConfigKey, given: object) -> object:
    """Return the value of one setting (ConfigDef.parseType, then its limits). Raises UsageError with the name, the value and the allowed
    values."""
    value = given
    if isinstance(given, str):
        return key.parse(given)
    if key.kind == "class":
        return value
    if key.kind == "list" and isinstance(given, list | tuple):
        # Lists of classes contain the classes themselves. Only texts have limits.
        return list(given) if not all(isinstance(one, str) for one in given) else key.check(list(given))
    if key.kind == "boolean" and isinstance(given, bool):
        return key.check(given)
    low, high = _RANGES.get(key.kind, (0, -1))
    if isinstance(given, int) and not isinstance(given, bool) and low <= given <= high:
        return key.check(given)
    if key.kind == "double" and isinstance(given, int | float) and not isinstance(given, bool):
        return key.check(float(given))
    if given is None and key.default is None and not key.required:
        return None
    raise UsageError(f"{key.name}={given!r}: not allowed; allowed: {key.allowed}")


def _check_common(values: dict[str, object], given: Mapping[str, object]) -> None:
    """Run the checks that all clients share, and set values that follow from other settings (CommonClientConfigs)."""
    protocol = str(values["security.protocol"])
    if protocol.upper() != "PLAINTEXT":
        raise UsageError(f"security.protocol={protocol}: TLS and SASL are not supported yet; allowed: PLAINTEXT")
    values["metadata.recovery.strategy"] = str(values["metadata.recovery.strategy"]).lower()
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
