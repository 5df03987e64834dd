"""Settings of nodes that change at run time: which stored settings are valid, and the resulting settings.

A setting is looked up for this node first, then for the whole cluster (the metadata contains both), and then in server.properties.

Source: Kafka's DynamicBrokerConfig (the one of server.config and the one of core), DynamicConfig.Broker (KIP-226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.config.broker.changes import check_changes
from kops.config.broker.config import BrokerConfig
from kops.config.broker.dynamic_keys import DYNAMIC, DYNAMIC_CONFIG_DEF, LISTENER_LIMITS, PER_BROKER, TLS_STORES, base_name, synonyms
from kops.config.broker.listeners import number
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Kafka creates the exception with the constructor that takes a name and a value.
_INVALID: Final = "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"


def check_dynamic(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Check that all settings may change at run time and have valid types. Raises ApiError INVALID_CONFIG with Kafka's text."""
    _refuse_names(_fixed(settings), "Cannot update these configs dynamically")
    _refuse_names(
        _tls_stores(settings),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    _check_types(settings)
    if not per_broker:
        _refuse_names(_of_one_broker(settings), "Cannot update these configs at default cluster level, broker id must be specified")


def usable(settings: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Return the valid stored settings, and warnings about the others (DynamicBrokerConfig.fromPersistentProps)."""
    kept = {name: text for name, text in settings.items() if not _is_wrong(name, text)}
    notes = []
    if len(kept) < len(settings):
        source = "broker" if per_broker else "default cluster"
        wrong = ", ".join(name for name in settings if name not in kept)
        notes.append(f"Dynamic {source} config contains invalid values in: {wrong}, these configs will be ignored")
    rules: list[tuple[Callable[[Mapping[str, str]], list[str]], str]] = [
        (_fixed, "Non-dynamic configs will be ignored"),
        (_tls_stores, "Security configs can be dynamically updated only using listener prefix, base configs will be ignored"),
    ]
    if not per_broker:
        rules.append((_of_one_broker, "Per-broker configs defined at default cluster level will be ignored"))
    for find, text in rules:
        names = find(kept)
        for name in names:
            del kept[name]
        if names:
            notes.append(f"{text}: [{', '.join(names)}]")
    return kept, notes


class Change(NamedTuple):
    """The settings before and after a change, the names whose texts differ, and warnings about invalid settings."""

    old: BrokerConfig
    new: BrokerConfig
    changed: frozenset[str]
    notes: list[str]


class DynamicConfig:
    """The changing settings of a node. `static` has the settings from its start. `current` adds those of `cluster` and then those of
    `broker`."""

    __slots__ = ("broker", "cluster", "current", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.broker: dict[str, str] = {}
        self.cluster: dict[str, str] = {}

    def update_broker(self, settings: Mapping[str, str]) -> Change:
        """Replace this node's settings from the metadata. Raises ApiError INVALID_CONFIG, and then `current` is unchanged."""
        self.broker, notes = usable(settings, per_broker=True)
        return self._update(notes)

    def update_cluster(self, settings: Mapping[str, str]) -> Change:
        """Replace the settings for all nodes from the metadata. Raises ApiError INVALID_CONFIG, and then `current` is unchanged."""
        self.cluster, notes = usable(settings, per_broker=False)
        return self._update(notes)

    def validate(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Check whether the metadata may have these settings for this node, or for all nodes.

        Raises ApiError INVALID_REQUEST, as brokers answer (KAFKA-13609), with Kafka's text.
        """
        try:
            check_dynamic(settings, per_broker=per_broker)
            if any(name.startswith("config.providers") for name in settings):
                raise ApiError("INVALID_CONFIG", "config.providers: config providers are Java classes")
            broker, cluster = (settings, self.cluster) if per_broker else (self.broker, settings)
            proposed = BrokerConfig.accept(_merged(self.static.originals, cluster, broker))
            self._check(proposed)
        except ApiError as error:
            raise ApiError("INVALID_REQUEST", error.message) from error

    def _update(self, notes: list[str]) -> Change:
        merged = _merged(self.static.originals, self.cluster, self.broker)
        proposed = BrokerConfig.accept(_clamped(merged))
        old = self.current
        changed = self._check(proposed)
        if changed:
            self.current = proposed
        return Change(old, self.current, changed, notes)

    def _check(self, proposed: BrokerConfig) -> frozenset[str]:
        """Return the names whose texts change."""
        before, after = self.current.originals, proposed.originals
        changed = frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        try:
            check_changes(self.current, proposed, changed)
        except ApiError as error:
            raise ApiError("INVALID_CONFIG", _INVALID.format(error.message)) from error
        return changed


def _merged(static: Mapping[str, str], cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
    """Merge the settings. A setting replaces its synonyms: a dynamic `log.retention.ms` replaces that of the file, and also the file's
    hours.
    """
    found = dict(static)
    for layer in (cluster, broker):
        for name, text in layer.items():
            for synonym in synonyms(name, listeners=False):
                found.pop(synonym, None)
            found[name] = text
    return found


def _clamped(settings: dict[str, str]) -> dict[str, str]:
    """Bring assignment intervals within their limits, which may have changed since they were set."""
    for kind in ("consumer", "share", "streams"):
        own, low, high = (f"group.{kind}.{limit}assignment.interval.ms" for limit in ("", "min.", "max."))
        if own in settings:
            limits = {name: KAFKA_CONFIG_DEF.keys[name].accept(settings[name]) for name in (low, high, own) if name in settings}
            values = {**{name: KAFKA_CONFIG_DEF.keys[name].default for name in (low, high)}, **limits}
            value = max(number(values, low), min(number(values, own), number(values, high)))
            if value != values[own]:
                settings[own] = str(value)
    return settings


def _check_types(settings: Mapping[str, str]) -> None:
    DYNAMIC_CONFIG_DEF.accept({base_name(name) or name: text for name, text in settings.items()})


def _is_wrong(name: str, text: str) -> bool:
    try:
        _check_types({name: text})
    except ApiError:
        return True
    return False


def _fixed(settings: Mapping[str, str]) -> list[str]:
    return [name for name in settings if name in KAFKA_CONFIG_DEF.keys and name not in DYNAMIC]


def _tls_stores(settings: Mapping[str, str]) -> list[str]:
    return [name for name in settings if name in TLS_STORES]


def _of_one_broker(settings: Mapping[str, str]) -> list[str]:
    return [name for name in settings if name in PER_BROKER or (base_name(name) is not None and base_name(name) not in LISTENER_LIMITS)]


def _refuse_names(names: list[str], text: str) -> None:
    if names:
        raise ApiError("INVALID_CONFIG", f"{text}: [{', '.join(names)}]")
