"""The settings of one consumer, share or streams group: their types, defaults and limits.

The default of a setting is the broker's setting of the same name with the prefix `group.`, if there is one. The broker's `min` and `max`
settings of that name are its limits.

Source: Kafka's GroupConfig, GroupCoordinatorConfig.extractGroupConfigMap, ShareGroupAutoOffsetResetStrategy (KIP-848, KIP-932, KIP-1071). A
value that is not allowed raises `ApiError` INVALID_CONFIG with Kafka's text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.values.definition import ConfigDef, ConfigKey, Validator, at_least, invalid, one_of
from kops.config.values.java import LONG_MAX
from kops.config.values.java_hash import put_order
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import Value

_SESSION, _HEARTBEAT, _ASSIGNMENT = "session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"
BY_DURATION: Final = "by_duration:"
_KINDS: Final = ("consumer", "share", "streams")
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(?:T(?=[-+0-9])(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_SECONDS: Final = (86_400, 3600, 60, 1)


def duration_ns(text: str) -> int | None:
    """Return the duration as Java's Duration.parse reads it, or None if that rejects the text or the duration is negative."""
    found = _DURATION.fullmatch(text)
    if found is None or all(part is None for part in found.groups()[1:5]):
        return None
    sign = -1 if found[1] == "-" else 1
    seconds = sum(int(part or 0) * factor for part, factor in zip(found.groups()[1:5], _SECONDS, strict=True))
    nanoseconds = int((found[6] or "").ljust(9, "0")) * (-1 if (found[5] or "").startswith("-") else 1)
    total = sign * (seconds * 10**9 + nanoseconds)
    return total if 0 <= total < (LONG_MAX + 1) * 10**9 else None


def _other_reset(name: str, value: Value) -> str | None:
    if value in ("earliest", "latest"):
        return None
    if isinstance(value, str) and value.startswith(BY_DURATION) and duration_ns(value.removeprefix(BY_DURATION)) is not None:
        return None
    allowed = "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'"
    return invalid(name, value, f"Invalid value `{value}` for configuration {name}. The value must be {allowed}.")


def broker_synonym(name: str) -> str | None:
    """Return the broker setting that is the default of a group's setting, or None."""
    synonym = f"group.{name}"
    return synonym if synonym in KAFKA_CONFIG_DEF.keys else None


def _number(name: str, low: int) -> ConfigKey:
    return ConfigKey(name, "int", KAFKA_CONFIG_DEF.keys[f"group.{name}"].default, at_least(low))


GROUP_CONFIG_DEF: Final = ConfigDef(
    (
        _number("consumer.session.timeout.ms", 1),
        _number("consumer.heartbeat.interval.ms", 1),
        _number("consumer.assignment.interval.ms", 0),
        _number("share.session.timeout.ms", 1),
        _number("share.heartbeat.interval.ms", 1),
        _number("share.record.lock.duration.ms", 1000),
        _number("share.delivery.count.limit", 2),
        _number("share.partition.max.record.locks", 100),
        ConfigKey("share.auto.offset.reset", "string", "latest", Validator(_other_reset, "earliest, latest or by_duration:PnDTnHnMn.nS")),
        ConfigKey("share.isolation.level", "string", "read_uncommitted", one_of("read_committed", "read_uncommitted")),
        ConfigKey("share.renew.acknowledge.enable", "boolean", True),
        _number("share.assignment.interval.ms", 0),
        _number("streams.session.timeout.ms", 1),
        _number("streams.heartbeat.interval.ms", 1),
        _number("streams.num.standby.replicas", 0),
        _number("streams.initial.rebalance.delay.ms", 0),
        _number("streams.assignment.interval.ms", 0),
    )
)


def broker_group_settings(static: Mapping[str, str]) -> dict[str, Value]:
    """Return the values of the group settings in a server.properties."""
    keys = {name: key for name, key in KAFKA_CONFIG_DEF.keys.items() if name.startswith("group.")}
    return {name: key.accept(static[name]) if name in static else key.default for name, key in keys.items()}


def group_defaults(broker: Mapping[str, Value]) -> dict[str, Value]:
    """Return the defaults of group settings for a broker with these values."""
    synonyms = ((name, broker_synonym(name)) for name in GROUP_CONFIG_DEF.keys)
    return {name: broker[synonym] for name, synonym in synonyms if synonym is not None}


def validate_group_config(settings: Mapping[str, str], broker: Mapping[str, Value]) -> None:
    """Check whether a group may have these settings on a broker with those values."""
    # Assignment intervals are checked only if they are set.
    defaults = {name: value for name, value in group_defaults(broker).items() if not name.endswith(_ASSIGNMENT)}
    for name in put_order({**defaults, **settings}):
        if name not in GROUP_CONFIG_DEF.keys:
            raise ApiError("INVALID_CONFIG", f"Unknown group config name: {name}")
    values = GROUP_CONFIG_DEF.accept({**defaults, **settings})
    for kind in _KINDS:
        for setting in _limited(kind):
            name = f"{kind}.{setting}"
            if name in settings or name in defaults:
                _check_limits(name, setting, values[name], broker)
    for kind in _KINDS:
        session, heartbeat = f"{kind}.{_SESSION}", f"{kind}.{_HEARTBEAT}"
        if _as_int(values[session]) <= _as_int(values[heartbeat]):
            raise ApiError("INVALID_CONFIG", f"{session} must be greater than {heartbeat}")


def effective_group_config(settings: Mapping[str, str], broker: Mapping[str, Value]) -> dict[str, Value]:
    """Return all settings of a group that has some of its own, adjusted to the broker's limits, which may have changed since they were set
    (GroupConfig.evaluate)."""
    within = dict(settings)
    for kind in _KINDS:
        for setting in _limited(kind):
            name = f"{kind}.{setting}"
            if name in within:
                within[name] = str(_clamped(name, setting, int(within[name]), broker))
    known = {name: value for name, value in within.items() if name in GROUP_CONFIG_DEF.keys}
    return dict(GROUP_CONFIG_DEF.accept({**group_defaults(broker), **known}))


def limits_of_groups() -> list[tuple[str, str]]:
    """Return the broker's minimum and maximum settings that limit settings of groups. Some have no minimum."""
    return [_limits(f"{kind}.{setting}", setting) for kind in _KINDS for setting in _limited(kind)]


def _limits(name: str, setting: str) -> tuple[str, str]:
    prefix = f"group.{name.removesuffix(setting)}"
    return f"{prefix}min.{setting}", f"{prefix}max.{setting.removeprefix('num.')}"


def _clamped(name: str, setting: str, value: int, broker: Mapping[str, Value]) -> int:
    lowest, highest = _limits(name, setting)
    if lowest in broker:
        value = max(value, _as_int(broker[lowest]))
    return min(value, _as_int(broker[highest]))


def _limited(kind: str) -> tuple[str, ...]:
    """Return the settings that have limits, in the order in which they are checked."""
    match kind:
        case "consumer":
            return _HEARTBEAT, _SESSION, _ASSIGNMENT
        case "share":
            locks = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
            return _HEARTBEAT, _SESSION, *locks, _ASSIGNMENT
        case _:
            return _HEARTBEAT, _SESSION, "num.standby.replicas", _ASSIGNMENT


def _check_limits(name: str, setting: str, value: Value, broker: Mapping[str, Value]) -> None:
    lowest, highest = _limits(name, setting)
    if lowest in broker and _as_int(value) < _as_int(broker[lowest]):
        raise ApiError("INVALID_CONFIG", f"{name} must be greater than or equal to {lowest}")
    if _as_int(value) > _as_int(broker[highest]):
        raise ApiError("INVALID_CONFIG", f"{name} must be less than or equal to {highest}")


def _as_int(value: Value) -> int:
    assert isinstance(value, int)
    return value
