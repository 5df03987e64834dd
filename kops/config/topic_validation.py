"""The controller's checks of a topic's settings against each other (Kafka LogConfig.validate).

An error raises `ApiError` INVALID_CONFIG with Kafka's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kops.config.topic import TOPIC_CONFIG_DEF
from kops.config.values.definition import invalid
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import Value

_DERIVED = -2
_NO_LIMIT = -1


def validate_topic_config(
    settings: Mapping[str, str],
    *,
    existing: Mapping[str, str] | None = None,
    broker: Mapping[str, Value] | None = None,
    remote_storage_enabled: bool = False,
) -> dict[str, Value]:
    """Return the values of all topic settings if `settings` are the topic's own.

    `existing` are the topic's own settings before the change. `broker` are the broker's defaults by topic names (`TopicConfig.values`).
    Without them, for a check by a client, the rules of remote storage are skipped. `remote_storage_enabled` says whether the broker has
    tiered storage.
    """
    for name in settings:
        if name not in TOPIC_CONFIG_DEF.keys:
            _refuse(f"Unknown topic config name: {name}")
    values = TOPIC_CONFIG_DEF.accept({**(broker or {}), **settings})
    low, high = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if low > high:
        _refuse(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")
    if broker:
        _check_remote_storage(values, existing or {}, remote_storage_enabled)
    return values


def _check_remote_storage(values: Mapping[str, Value], existing: Mapping[str, str], enabled_in_broker: bool) -> None:
    if not values["remote.storage.enable"]:
        if existing.get("remote.storage.enable", "").lower() == "true" and not values["remote.log.delete.on.disable"]:
            _refuse(
                "It is invalid to disable remote storage without deleting remote data. "
                "If you want to keep the remote data and turn to read only, please set "
                "`remote.storage.enable=true,remote.log.copy.disable=true`. "
                "If you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return
    if not enabled_in_broker:
        _refuse("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
    if values["cleanup.policy"] not in ([], ["delete"]):
        _refuse("Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.")
    for name in ("retention.bytes", "retention.ms"):
        _check_local_retention(values, name)
    if values["remote.log.copy.disable"]:
        for name in ("retention.bytes", "retention.ms"):
            if _number(values, f"local.{name}") not in (_DERIVED, _number(values, name)):
                _refuse(
                    f"When `remote.log.copy.disable` is set to true, the `local.{name}` and `{name}` must be set to the identical value "
                    "because there will be no more logs copied to the remote storage."
                )


def _check_local_retention(values: Mapping[str, Value], name: str) -> None:
    """Check that the local retention is not larger than the total retention."""
    whole, local = _number(values, name), _number(values, f"local.{name}")
    has_no_limit = whole <= _NO_LIMIT if name == "retention.bytes" else whole == _NO_LIMIT
    if has_no_limit or local == _DERIVED:
        return
    if local == _NO_LIMIT:
        _refuse(invalid(f"local.{name}", local, f"Value must not be -1 as {name} value is set as {whole}."))
    if local > whole:
        _refuse(invalid(f"local.{name}", local, f"Value must not be more than {name} property value: {whole}"))


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _refuse(reason: str) -> NoReturn:
    raise ApiError("INVALID_CONFIG", reason)
